"""Where the frames of overlapping windows of a batch lie."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.providers.frames.frame_providers import (
    can_overlap,
    lay_out_alone,
    lay_out_frames,
)
from accvlab.dali_pipeline_framework.sampling import Clips


def test_lays_out_the_example_of_the_docstring():
    frames = np.array([[10, 11, 12, 13], [11, 12, 13, 14], [40, 41, 42, 43], [12, 13, 14, 15]])
    layout = lay_out_frames(frames, np.array([0, 0, 3, 0]), np.arange(4))
    assert layout.carried.tolist() == [[10, 13, -1, -1], [11, 14, -1, -1], [40, 41, 42, 43], [12, 15, -1, -1]]
    assert layout.places[:, 0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert layout.places[:, 1].tolist() == [[0, 1, 3, 0], [1, 3, 0, 1], [-1, -1, -1, -1], [3, 0, 1, 3]]
    assert layout.places[:, 2].tolist() == [[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 2, 3], [0, 1, 1, 1]]
    assert layout.complete_with.tolist() == [3, 3, 2, 3]


@given(st.data())
def test_each_frame_is_carried_once_and_found(data):
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    clips = Clips(
        lengths,
        data.draw(st.integers(1, 5)),
        stride=data.draw(st.integers(1, 3)),
        step=data.draw(st.integers(1, 3)),
        tail=data.draw(st.sampled_from(["repeat", "mark"])),
    )
    windows = data.draw(st.lists(st.integers(0, clips.num_clips - 1), min_size=1, max_size=10))
    played = clips.play(np.array(windows))
    slots = np.array(data.draw(st.permutations(range(12))))[: len(windows)]
    layout = lay_out_frames(played.frames, played.sequences, slots)
    window_at = {slot: window for window, slot in enumerate(slots.tolist())}

    carried = layout.carried[layout.carried >= 0]
    assert sorted(carried.tolist()) == sorted(set(played.frames.ravel().tolist()))
    assert (layout.places[:, 0] == (layout.carried >= 0)).all()
    is_sharing = layout.places[:, 1, 0] >= 0
    for window, frames in enumerate(played.frames):
        if is_sharing[window]:
            carriers = np.array([window_at[slot] for slot in layout.places[window, 1].tolist()])
            assert layout.carried[carriers, layout.places[window, 2]].tolist() == frames.tolist()
            assert (played.sequences[carriers] == played.sequences[window]).all()
            assert layout.complete_with[window] == carriers.max()
        else:
            assert layout.carried[window].tolist() == frames.tolist()
            assert layout.complete_with[window] == window
        # Frames fill the fields from the first one on, without gaps: the decoder takes sizes from there.
        assert (np.diff(layout.places[window, 0]) <= 0).all()
    # The windows of a sequence that share carry the same number of frames, or one less.
    for sequence in set(played.sequences[is_sharing].tolist()):
        num_carried = layout.places[is_sharing & (played.sequences == sequence), 0].sum(axis=1)
        assert num_carried.max() - num_carried.min() <= 1


def test_alone_nothing_is_shared():
    layout = lay_out_alone(np.array([[3, 4, 4]]))
    assert layout.carried.tolist() == [[3, 4, 4]]
    assert layout.places.tolist() == [[[1, 1, 1], [-1, -1, -1], [0, 1, 2]]]


def test_can_overlap():
    for length, step, stride in itertools.product(range(1, 5), (1, 2, 3, 4, 6), range(1, 5)):
        clips = Clips([60], length, stride=stride, step=step)
        frames = clips.play(np.arange(clips.num_clips)).frames
        shares = len(np.unique(frames)) < frames.size
        assert can_overlap(length, stride, step) == shares, (length, stride, step)
