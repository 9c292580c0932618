"""Evaluation scene by scene: each frame once, no scene cut, whatever the number of slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.recipes import SceneSampler


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 9))
def test_each_frame_once_and_scenes_whole(lengths: list[int], num_slots: int) -> None:
    sampler = SceneSampler(lengths, num_slots)
    batches = [sampler.plan_batch(0, batch) for batch in range(sampler.num_batches(0))]
    delivered = []
    for slot in range(num_slots):
        own = [batch for batch in batches if not batch.is_padding[slot]]
        frames = [int(batch.indices[slot]) for batch in own]
        delivered += frames
        # Padding only behind what a slot plays.
        assert [bool(batch.is_padding[slot]) for batch in batches] == sorted(
            bool(batch.is_padding[slot]) for batch in batches
        )
        for batch, frame in zip(own, frames, strict=True):
            assert bool(batch.is_first[slot]) == (batch.frame[slot] == 0)
            if batch.frame[slot] > 0:
                assert frame - 1 == frames[frames.index(frame) - 1]
    assert sorted(delivered) == list(range(sum(lengths)))
    assert all(not batch.is_padding.all() for batch in batches)
    assert len(batches) >= max(lengths)


def test_slots_without_a_scene_are_padding() -> None:
    sampler = SceneSampler([3, 2], 4)
    batches = [sampler.plan_batch(0, batch) for batch in range(sampler.num_batches(0))]
    assert [batch.indices.tolist() for batch in batches] == [[0, 3, 0, 0], [1, 4, 0, 0], [2, 4, 0, 0]]
    assert [batch.is_padding.tolist() for batch in batches] == [
        [False, False, True, True],
        [False, False, True, True],
        [False, True, True, True],
    ]


def test_lengths_are_checked() -> None:
    with pytest.raises(SettingError, match="sequence_lengths"):
        SceneSampler([3, 0])


def test_it_depends_on_the_lengths() -> None:
    assert SceneSampler([3, 2], 2) == SceneSampler(np.array([3, 2]), 2)
    assert SceneSampler([3, 2], 2) != SceneSampler([2, 3], 2)
