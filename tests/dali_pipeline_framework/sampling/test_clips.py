"""`Clips`: which frames the clips of a data set have."""

from __future__ import annotations

import json
import pickle
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from PIL import Image
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.sampling.plans.clips import Clips

# --- what is expected, frame by frame -----------------------------------------------------------------------


class Expected:
    """The definition of clips, in loops."""

    def __init__(self, lengths: list[int], sequence_length: int, **arguments: Any) -> None:
        defaults = dict.fromkeys(("timestamps", "stride_interval", "step_interval", "tolerance"))
        self.__dict__.update({"stride": 1, "step": 1, "tail": "drop", "backward": False, "jitter": 0, **defaults})
        self.__dict__.update(arguments)
        self.length = sequence_length
        self.sequences = [range(sum(lengths[:s]), sum(lengths[: s + 1])) for s in range(len(lengths))]
        self.clips = [clip for sequence in self.sequences for clip in self.clips_of(sequence)]

    def time(self, frame: int) -> Fraction:
        return Fraction(self.timestamps[frame])

    def candidates(self, sequence: range) -> list[int]:
        if self.step_interval is None:
            return [*sequence[:: self.step]]
        starts: list[int] = []
        number = 0
        while True:
            wanted = self.time(sequence[0]) + number * Fraction(self.step_interval)
            later = [frame for frame in sequence if self.time(frame) >= wanted]
            if not later:
                return starts
            if later[0] not in starts:
                starts.append(later[0])
            number += 1

    def existing(self, first: int) -> list[int]:
        """The frames of the clip that starts at a frame, up to the first missing one."""
        [sequence] = [sequence for sequence in self.sequences if first in sequence]
        frames: list[int] = []
        for number in range(self.length):
            if self.stride_interval is None:
                frame = first + number * self.stride
                is_there = frame in sequence
            else:
                wanted = self.time(first) + number * Fraction(self.stride_interval)
                tolerance = Fraction(self.stride_interval) / 2 if self.tolerance is None else self.tolerance
                frame = min(sequence, key=lambda each: (abs(self.time(each) - wanted), each))
                is_there = abs(self.time(frame) - wanted) <= tolerance and frame not in frames
            if not is_there:
                break
            frames.append(frame)
        return frames

    def is_complete(self, first: int) -> bool:
        return len(self.existing(first)) == self.length

    def clips_of(self, sequence: range) -> list[int]:
        shown: set[int] = set()
        starts = []
        for first in self.candidates(sequence):
            if self.is_complete(first) or (self.tail != "drop" and set(self.existing(first)) - shown):
                starts.append(first)
            shown |= set(self.existing(first))
        return starts

    def play(self, first: int) -> tuple[list[int], list[bool]]:
        frames = self.existing(first)
        if self.backward:
            frames.reverse()
        missing = self.length - len(frames)
        return frames + frames[-1:] * missing, [False] * len(frames) + [self.tail == "mark"] * missing

    def moved_starts(self, first: int) -> list[int]:
        """Where a clip can start after it was moved by chance."""
        starts = [first]
        [sequence] = [sequence for sequence in self.sequences if first in sequence]
        while starts[-1] + 1 in sequence and len(starts) <= self.jitter and self.is_complete(starts[-1] + 1):
            starts.append(starts[-1] + 1)
        return starts if self.is_complete(first) else [first]


def assert_as_expected(clips: Clips, expected: Expected) -> None:
    firsts = expected.clips
    numbers = np.arange(len(firsts))
    assert clips.num_clips == len(firsts)
    assert clips.first_frames(numbers).tolist() == firsts
    per_sequence = [len(expected.clips_of(sequence)) for sequence in expected.sequences]
    assert clips.clips_per_sequence.tolist() == per_sequence
    assert clips.num_sequences_without_clip == per_sequence.count(0)
    owner = [s for s, sequence in enumerate(expected.sequences) for _ in sequence]
    assert clips.sequence_of(numbers).tolist() == [owner[first] for first in firsts]
    assert clips.num_sequences == len(per_sequence)
    assert clips.num_frames == len(owner)
    # Any frame can be the first of a clip.
    all_frames = np.arange(len(owner))
    in_sequence = [frame - sequence[0] for sequence in expected.sequences for frame in sequence]
    assert [each.tolist() for each in clips.locate_frames(all_frames)] == [owner, in_sequence]
    frames, is_padding = clips.frames(all_frames)
    assert frames.shape == is_padding.shape == (len(owner), expected.length)
    assert (frames.dtype, is_padding.dtype) == (np.int64, np.bool_)
    for first in all_frames:
        assert (frames[first].tolist(), is_padding[first].tolist()) == expected.play(int(first))


def make(lengths: list[int], sequence_length: int, **arguments: Any) -> tuple[Clips | None, Expected]:
    """Clips (None if refused, since there is none) and what is expected of them."""
    expected = Expected(lengths, sequence_length, **arguments)
    if expected.clips:
        return Clips(lengths, sequence_length, **arguments), expected
    with pytest.raises(SettingError, match="There must be at least one complete clip"):
        Clips(lengths, sequence_length, **arguments)
    return None, expected


TAILS = st.sampled_from(["drop", "repeat", "mark"])
LENGTHS = st.lists(st.integers(1, 14), min_size=1, max_size=4)
KEYS = st.integers(0, 2**64 - 1)


@st.composite
def timed(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """Lengths of sequences, and settings of clips by time. All numbers are exact as float64."""
    lengths = draw(LENGTHS)
    gaps = draw(st.lists(st.integers(1, 9), min_size=sum(lengths), max_size=sum(lengths)))
    timestamps = np.cumsum(gaps)
    # Sequences need not follow each other in time.
    offsets = draw(st.lists(st.integers(0, 10**15), min_size=len(lengths), max_size=len(lengths)))
    timestamps += np.repeat(offsets, lengths)
    halves = st.integers(1, 24).map(lambda number: number / 2)
    arguments: dict[str, Any] = {"timestamps": timestamps}
    if draw(st.booleans()):
        arguments["stride_interval"] = draw(halves)
        arguments["tolerance"] = draw(st.none() | st.integers(0, 12).map(lambda number: number / 2))
    else:
        arguments["stride"] = draw(st.integers(1, 3))
    if draw(st.booleans()) or "stride" in arguments:
        arguments["step_interval"] = draw(halves)
    else:
        arguments["step"] = draw(st.integers(1, 4))
    return lengths, arguments


class TestDefinition:
    @given(LENGTHS, st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), TAILS, st.booleans())
    @settings(deadline=None, max_examples=examples(20, 150))
    def test_by_frames(
        self, lengths: list[int], length: int, stride: int, step: int, tail: str, backward: bool
    ) -> None:
        clips, expected = make(lengths, length, stride=stride, step=step, tail=tail, backward=backward)
        if clips is not None:
            assert_as_expected(clips, expected)

    @given(timed(), st.integers(1, 5), TAILS, st.booleans())
    @settings(deadline=None, max_examples=examples(20, 200))
    def test_by_time(
        self, given_times: tuple[list[int], dict[str, Any]], length: int, tail: str, backward: bool
    ) -> None:
        lengths, arguments = given_times
        clips, expected = make(lengths, length, tail=tail, backward=backward, **arguments)
        if clips is not None:
            assert_as_expected(clips, expected)

    @given(LENGTHS, st.integers(1, 5), st.integers(1, 4), st.integers(1, 5), TAILS, st.integers(0, 4), KEYS)
    @settings(deadline=None, max_examples=examples(12, 80))
    def test_frames_at_equal_distances_in_time_give_the_clips_by_frames(
        self, lengths: list[int], length: int, stride: int, step: int, tail: Any, jitter: int, key: int
    ) -> None:
        clips, _ = make(lengths, length, stride=stride, step=step, tail=tail, jitter=jitter)
        if clips is None:
            return
        by_time = Clips(
            lengths,
            length,
            tail=tail,
            jitter=jitter,
            timestamps=1_600_000_000_000_000_000 + 100_000_000 * np.arange(sum(lengths)),
            stride_interval=100_000_000 * stride,
            step_interval=100_000_000 * step,
            tolerance=0,
        )
        numbers = np.arange(clips.num_clips)
        assert by_time.clips_per_sequence.tolist() == clips.clips_per_sequence.tolist()
        first_frames = clips.first_frames(numbers, key)
        assert by_time.first_frames(numbers, key).tolist() == first_frames.tolist()
        for one, other in zip(by_time.frames(first_frames), clips.frames(first_frames), strict=True):
            np.testing.assert_array_equal(one, other)

    @given(LENGTHS, st.integers(1, 6), st.data())
    @settings(deadline=None, max_examples=examples(10, 50))
    def test_with_repeated_frames_no_frame_is_lost(
        self, lengths: list[int], length: int, data: st.DataObject
    ) -> None:
        clips = Clips(lengths, length, step=data.draw(st.integers(1, length)), tail="repeat")
        frames, _ = clips.frames(clips.first_frames(np.arange(clips.num_clips)))
        assert sorted(set(frames.ravel().tolist())) == [*range(sum(lengths))]
        complete = np.array([max(0, (each - length) // clips.describe()["step"] + 1) for each in lengths])
        assert (clips.clips_per_sequence - complete <= 1).all()

    def test_clips_are_found_in_tables_of_any_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from accvlab.dali_pipeline_framework.sampling.plans import clips as module

        rng = np.random.default_rng(3)
        lengths = [40, 1, 23]
        arguments = {"timestamps": np.cumsum(rng.integers(1, 4, 64)), "stride_interval": 2, "jitter": 3}
        whole = [Clips(lengths, 3, tail=tail, **arguments) for tail in ("drop", "mark")]
        monkeypatch.setattr(module, "_CLIPS_AT_A_TIME", 7)
        for clips, tail in zip(whole, ("drop", "mark"), strict=True):
            numbers = np.arange(clips.num_clips)
            again = Clips(lengths, 3, tail=tail, **arguments)
            assert again.first_frames(numbers, 5).tolist() == clips.first_frames(numbers, 5).tolist()
        assert_as_expected(again, Expected(lengths, 3, tail="mark", **arguments))


class TestExamples:
    def test_complete_clips(self) -> None:
        clips = Clips([8, 2, 6], 3, stride=2, step=1)
        assert clips.clips_per_sequence.tolist() == [4, 0, 2]
        assert clips.num_sequences_without_clip == 1
        frames, is_padding = clips.frames(clips.first_frames(np.arange(6)))
        assert frames.tolist() == [[0, 2, 4], [1, 3, 5], [2, 4, 6], [3, 5, 7], [10, 12, 14], [11, 13, 15]]
        assert not is_padding.any()

    @pytest.mark.parametrize("tail", ["repeat", "mark"])
    def test_incomplete_clips(self, tail: Any) -> None:
        clips = Clips([8, 2], 3, step=2, tail=tail)
        frames, is_padding = clips.frames(clips.first_frames(np.arange(5)))
        assert frames.tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 7], [8, 9, 9]]
        assert is_padding[:, :2].tolist() == [[False, False]] * 5
        assert is_padding[:, 2].tolist() == [False, False, False, tail == "mark", tail == "mark"]

    def test_no_incomplete_clip_where_a_complete_one_ends_with_the_sequence(self) -> None:
        assert Clips([7], 3, step=2, tail="mark").clips_per_sequence.tolist() == [3]

    def test_every_frame_that_a_stride_leaves_out_gets_a_clip(self) -> None:
        clips = Clips([5], 3, stride=2, tail="mark")
        frames, is_padding = clips.frames(clips.first_frames(np.arange(2)))
        assert clips.num_clips == 2
        assert frames.tolist() == [[0, 2, 4], [1, 3, 3]]
        assert is_padding.tolist() == [[False, False, False], [False, False, True]]

    def test_backward(self) -> None:
        clips = Clips([5], 3, step=3, tail="mark", backward=True)
        frames, is_padding = clips.frames(clips.first_frames(np.arange(2)))
        assert frames.tolist() == [[2, 1, 0], [4, 3, 3]]
        assert is_padding.tolist() == [[False, False, False], [False, False, True]]

    def test_a_start_without_a_complete_clip_repeats_a_frame(self) -> None:
        frames, is_padding = Clips([4], 3).frames(np.array([3, 0]))
        assert frames.tolist() == [[3, 3, 3], [0, 1, 2]]
        assert not is_padding.any()

    def test_a_gap_ends_a_clip(self) -> None:
        # A camera at about 12 Hz (in milliseconds), one clip frame each half a second, 2 s lost after frame 8.
        timestamps = [0, 84, 160, 251, 333, 416, 498, 584, 667, 2750, 2830, 3260, 3741]
        arguments: dict[str, Any] = {"timestamps": timestamps, "stride_interval": 500, "tolerance": 50}
        clips = Clips([13], 3, tail="mark", **arguments)
        frames, is_padding = clips.frames(clips.first_frames(np.arange(clips.num_clips)))
        expected = [[0, 6, 6], [1, 7, 7], [2, 8, 8], [3, 3, 3], [4, 4, 4], [5, 5, 5], [9, 11, 12], [10, 10, 10]]
        assert frames.tolist() == expected
        assert is_padding.sum(axis=1).tolist() == [1, 1, 1, 2, 2, 2, 0, 2]
        assert Clips([13], 3, **arguments).first_frames(np.array([0])).tolist() == [9]

    def test_clips_start_at_intervals(self) -> None:
        timestamps = [100, 140, 205, 290, 310, 700, 0, 50, 100]
        clips = Clips([6, 3], 1, timestamps=timestamps, step_interval=100)
        assert clips.first_frames(np.arange(clips.num_clips)).tolist() == [0, 2, 4, 5, 6, 8]
        assert clips.clips_per_sequence.tolist() == [4, 2]

    def test_one_frame_does_not_stand_for_two_points_in_time(self) -> None:
        clips = Clips([3], 3, timestamps=[0, 10, 14], stride_interval=4, tolerance=6, tail="repeat")
        # At 4 the nearest frame is the one at 0, which is taken.
        assert clips.frames(np.array([0, 1]))[0].tolist() == [[0, 0, 0], [1, 2, 2]]

    @pytest.mark.parametrize("start", [0.0, 1_600_000_000.0])
    def test_rounding_of_seconds_does_not_count(self, start: float) -> None:
        timestamps = start + 0.1 * np.arange(60)
        arguments: dict[str, Any] = {"stride_interval": 0.2, "step_interval": 0.3, "tolerance": 0.0}
        clips = Clips([40, 20], 4, timestamps=timestamps, **arguments)
        by_frames = Clips([40, 20], 4, stride=2, step=3)
        numbers = np.arange(by_frames.num_clips)
        first_frames = by_frames.first_frames(numbers)
        assert clips.first_frames(numbers).tolist() == first_frames.tolist()
        assert clips.frames(first_frames)[0].tolist() == by_frames.frames(first_frames)[0].tolist()

    @pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.float16, np.float32])
    def test_timestamps_can_have_any_type_of_numbers(self, dtype: npt.DTypeLike) -> None:
        timestamps = np.array([0, 60, 120, 0, 60, 120]).astype(dtype)
        if dtype is np.int8:
            timestamps = np.array([-120, 0, 120, -60, 0, 60], dtype)  # differences do not fit int8
        clips = Clips([3, 3], 3, timestamps=timestamps, stride_interval=60 if dtype is not np.int8 else 120)
        assert clips.clips_per_sequence.tolist() == ([1, 1] if dtype is not np.int8 else [1, 0])

    def test_no_memory_is_needed_for_frames_and_clips(self) -> None:
        clips = Clips([10**15, 3, 10**15], 8, stride=3, step=5, tail="mark", jitter=100)
        assert len(pickle.dumps(clips)) < 3000
        last = np.array([clips.num_clips - 1])
        assert clips.sequence_of(last).tolist() == [2]
        end = 2 * 10**15 + 3
        expected = [end - 10, end - 7, end - 4, *[end - 1] * 5]  # 5 later, a clip has no frame of its own
        assert clips.frames(clips.first_frames(last))[0].tolist() == [expected]

    @pytest.mark.parametrize("name", ["stride", "step", "jitter"])
    def test_settings_can_be_larger_than_any_sequence(self, name: str) -> None:
        clips = Clips([5, 3], 2, tail="mark", **{name: 10**30})
        expected = Expected([5, 3], 2, tail="mark", **{name: 100})
        assert_as_expected(clips, expected)
        first_frames = clips.first_frames(np.arange(clips.num_clips), 3)
        moved = [expected.moved_starts(first) for first in expected.clips]
        assert all(got in allowed for got, allowed in zip(first_frames.tolist(), moved, strict=True))


class TestJitter:
    @given(LENGTHS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 6), TAILS, KEYS)
    @settings(deadline=None, max_examples=examples(12, 80))
    def test_clips_move_within_their_room(
        self, lengths: list[int], length: int, stride: int, step: int, jitter: int, tail: str, key: int
    ) -> None:
        clips, expected = make(lengths, length, stride=stride, step=step, jitter=jitter, tail=tail)
        if clips is not None:
            self.assert_moves(clips, expected, key)

    @given(timed(), st.integers(1, 4), st.integers(0, 6), TAILS, KEYS)
    @settings(deadline=None, max_examples=examples(15, 100))
    def test_clips_by_time_move_within_their_room(
        self, given_times: tuple[list[int], dict[str, Any]], length: int, jitter: int, tail: str, key: int
    ) -> None:
        lengths, arguments = given_times
        clips, expected = make(lengths, length, jitter=jitter, tail=tail, **arguments)
        if clips is not None:
            self.assert_moves(clips, expected, key)

    @staticmethod
    def assert_moves(clips: Clips, expected: Expected, key: int) -> None:
        numbers = np.arange(clips.num_clips)
        moved = clips.first_frames(numbers, key)
        allowed = [expected.moved_starts(first) for first in expected.clips]
        assert all(got in starts for got, starts in zip(moved.tolist(), allowed, strict=True))
        # What a clip does depends on key and clip alone.
        assert clips.first_frames(numbers[::-1], key).tolist() == moved[::-1].tolist()
        seen = np.array([clips.first_frames(numbers[:4], other) for other in range(key % 1000, key % 1000 + 150)])
        for clip in range(seen.shape[1]):
            assert sorted(set(seen[:, clip].tolist())) == allowed[clip]

    def test_all_moves_are_equally_likely(self) -> None:
        clips = Clips([12, 12], 8, step=2, jitter=3)  # room: 4, 2, 0 frames, of which 3 are used
        moves = np.array([clips.first_frames(np.arange(3), key) for key in range(6000)]) - [0, 2, 4]
        counts = [np.bincount(moves[:, clip], minlength=4) for clip in range(3)]
        np.testing.assert_allclose(counts[0], [1500] * 4, atol=150)  # more than 4 standard deviations
        np.testing.assert_allclose(counts[1], [2000, 2000, 2000, 0], atol=150)
        assert counts[1][3] == 0
        assert counts[2].tolist() == [6000, 0, 0, 0]

    def test_ten_pinned_numbers(self) -> None:
        # The order is part of the contract: a change of it changes everybody's runs.
        clips = Clips([100, 100], 10, step=18, jitter=9)
        assert clips.first_frames(np.arange(10), 21).tolist() == [3, 27, 41, 61, 73, 90, 100, 125, 140, 158]

    def test_each_clip_can_have_a_key_of_its_own(self) -> None:
        clips = Clips([100, 100], 10, step=18, jitter=9)
        one, other = (clips.first_frames(np.arange(10), key) for key in (21, 2**64 - 1))
        keys = np.array([21, 2**64 - 1] * 5, np.uint64)
        mixed = clips.first_frames(np.arange(10), keys)
        assert mixed[::2].tolist() == one[::2].tolist()
        assert mixed[1::2].tolist() == other[1::2].tolist()

    def test_without_a_key_nothing_moves(self) -> None:
        clips = Clips([100], 10, step=10, jitter=9)
        assert clips.first_frames(np.arange(10)).tolist() == [*range(0, 100, 10)]


class TestDescription:
    def test_describes_itself(self) -> None:
        clips = Clips([8, 2], 3, step=2, tail="mark")
        assert clips.describe() == {
            "sequence_length": 3,
            "stride": 1,
            "step": 2,
            "jitter": 0,
            "backward": False,
            "tail": "mark",
            "stride_interval": None,
            "step_interval": None,
            "tolerance": None,
            "sequence_lengths": "3e8a04c8",
            "timestamps": None,
            "num_sequences": 2,
            "num_frames": 10,
            "num_clips": 5,
        }
        assert repr(clips) == "Clips(5 clips of 3 frames, step=2, tail='mark'; 10 frames in 2 sequences)"

    def test_describes_clips_by_time(self) -> None:
        clips = Clips([8, 2], 3, timestamps=range(10), stride_interval=1, step_interval=np.float32(2), jitter=1)
        described = clips.describe()
        assert {name: value for name, value in described.items() if "_interval" in name or "tol" in name} == {
            "stride_interval": 1,
            "step_interval": 2.0,
            "tolerance": 0.5,
        }
        assert (described["stride"], described["step"], described["timestamps"]) == (None, None, "aee65015")
        assert json.loads(json.dumps(described)) == described
        assert repr(clips) == (
            "Clips(3 clips of 3 frames, jitter=1, tail='drop', stride_interval=1, step_interval=2.0, "
            "tolerance=0.5; 10 frames in 2 sequences, 1 of them without a clip)"
        )

    def test_data_of_other_values_have_other_hashes(self) -> None:
        def hashes(lengths: list[int], timestamps: Any) -> tuple[Any, Any]:
            described = Clips(lengths, 2, timestamps=timestamps, step_interval=1).describe()
            return described["sequence_lengths"], described["timestamps"]

        reference = hashes([8, 2], np.arange(10))
        assert reference == hashes([8, 2], [*range(10)]) == hashes([8, 2], np.arange(10, dtype=np.int16))
        assert hashes([2, 8], np.arange(10))[0] != reference[0]
        assert hashes([8, 2], np.arange(1, 11))[1] != reference[1]

    @pytest.mark.parametrize(
        "arguments", [{}, {"timestamps": range(30), "stride_interval": 2, "step_interval": 3}]
    )
    def test_survives_pickling(self, arguments: dict[str, Any]) -> None:
        clips = Clips([10, 20], 3, jitter=2, tail="mark", **arguments)
        copy = pickle.loads(pickle.dumps(clips))
        assert copy.describe() == clips.describe()
        assert copy.frames(np.arange(30))[0].tolist() == clips.frames(np.arange(30))[0].tolist()
        assert copy.first_frames(np.arange(8), 3).tolist() == clips.first_frames(np.arange(8), 3).tolist()

    def test_what_is_handed_out_can_be_changed(self) -> None:
        clips = Clips([4, 4], 2)
        clips.clips_per_sequence[:] = 7
        assert_as_expected(clips, Expected([4, 4], 2))

    def test_properties(self) -> None:
        clips = Clips([9], 3, jitter=2, tail="repeat", backward=True)
        assert (clips.sequence_length, clips.jitter, clips.tail, clips.backward) == (3, 2, "repeat", True)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"sequence_lengths": [3, 0]}, r"Each of `sequence_lengths` must be at least 1, but length 1 is 0"),
            ({"sequence_length": 0}, "`sequence_length` must be a whole number of at least 1, got 0"),
            ({"stride": 0}, "`stride` must be a whole number of at least 1"),
            ({"step": 1.5}, "`step` must be a whole number of at least 1"),
            ({"jitter": -1}, "`jitter` must be a whole number of at least 0"),
            ({"tail": "pad"}, "`tail` must be one of 'drop', 'repeat', 'mark', got 'pad'"),
            ({"tail": ["drop"]}, r"`tail` must be .*got \['drop'\]"),
            ({"sequence_length": 3, "stride": 4}, r"needs 9 frames of one sequence.*longest of 2.* has 6 frame"),
            ({"stride_interval": 2}, "`timestamps` are needed with.*Got an interval, but no timestamps"),
            ({"step_interval": 2}, "`timestamps` are needed with.*Got an interval, but no timestamps"),
            ({"timestamps": range(10)}, "only then. Got timestamps, but no interval"),
            ({"tolerance": 1}, "`tolerance` says how far.*not given. Got tolerance=1"),
            (
                {"timestamps": range(10), "step_interval": 1, "tolerance": 1},
                "`stride_interval`, which is not given",
            ),
            ({"timestamps": range(10), "stride_interval": 1, "stride": 2}, "replaces `stride`.*and stride=2"),
            ({"timestamps": range(10), "step_interval": 1, "step": 2}, "replaces `step`.*and step=2"),
            ({"timestamps": range(10), "stride_interval": 0}, "`stride_interval` must be a number above 0"),
            (
                {"timestamps": range(10), "step_interval": float("nan")},
                "`step_interval` must be a number above 0, got nan",
            ),
            ({"timestamps": range(10), "step_interval": "1"}, "`step_interval` must be a number above 0, got '1'"),
            ({"timestamps": range(10), "step_interval": 10**400}, "`step_interval` must be a number above 0"),
            ({"timestamps": range(10), "stride_interval": 1, "tolerance": -1}, "`tolerance` must .* at least 0"),
            ({"timestamps": range(9), "step_interval": 1}, r"each of the 10 frames.*got shape \(9,\)"),
            ({"timestamps": [[1], [2, 3]], "step_interval": 1}, "flat list with the time of each frame"),
            ({"timestamps": ["a"] * 10, "step_interval": 1}, "integers or floats, got <U1 values. Convert dates"),
            ({"timestamps": [0.0] * 9 + [np.inf], "step_interval": 1}, "finite, but that of frame 9 is inf"),
            (
                {"timestamps": [0, 1, 2, 3, 1, 2, 2, 3, 3, 4], "step_interval": 1},
                r"frame 6 at 2 follows frame 5 at 2 in sequence 1 \(2 such frame\(s\)\)",
            ),
            (
                {"timestamps": range(10), "stride_interval": 1.5, "tolerance": 0.25},
                r"at least one complete clip of `sequence_length=2` frames.*every 1\.5.*give or take 0\.25",
            ),
            ({"timestamps": range(10), "step_interval": 9, "stride": 7}, "from a frame at which clips start"),
        ],
    )
    def test_bad_settings(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            Clips(**{"sequence_lengths": [4, 6], "sequence_length": 2, **arguments})

    @pytest.mark.parametrize("number", [-1, 8])
    def test_numbers_of_no_clip_and_no_frame(self, number: int) -> None:
        clips = Clips([4, 6], 2)
        for method in (clips.sequence_of, clips.first_frames):
            with pytest.raises(SettingError, match=f"There is no clip {number}: clips are numbered 0 to 7"):
                method(np.array([0, number]))
        number = 10 if number > 0 else -1
        for method in (clips.frames, clips.locate_frames):
            with pytest.raises(SettingError, match=f"There is no frame {number}: frames are numbered 0 to 9"):
                method(np.array([0, number]))

    def test_numbers_that_are_none(self) -> None:
        with pytest.raises(SettingError, match=r"numbers of frames must be a flat array of integers, got float64"):
            Clips([4, 6], 2).frames([1.0])

    def test_no_clips_are_asked_for(self) -> None:
        clips = Clips([4, 6], 2, jitter=2)
        assert clips.first_frames([], 1).shape == (0,)
        assert clips.frames(np.zeros(0, np.int64))[0].shape == (0, 2)


class TestAgainstDali:
    @pytest.mark.parametrize(("length", "stride", "step"), [(1, 1, 1), (3, 1, 2), (2, 3, 1), (3, 2, 4), (5, 1, 9)])
    def test_complete_clips_are_those_of_the_sequence_reader(
        self, tmp_path: Path, length: int, stride: int, step: int
    ) -> None:
        lengths = [8, 2, 6]
        for frame in range(sum(lengths)):
            # Gray images, 15 levels from frame to frame: JPEG does not blur that.
            sequence = sum(frame >= end for end in np.cumsum(lengths))
            folder = tmp_path / f"{sequence}"
            folder.mkdir(exist_ok=True)
            Image.new("RGB", (8, 8), (frame * 15,) * 3).save(folder / f"{frame:05}.jpg", quality=95)

        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def read() -> Any:
            return fn.readers.sequence(
                name="reader", file_root=f"{tmp_path}", sequence_length=length, stride=stride, step=step
            )

        with pytest.warns(DeprecationWarning, match=r"readers\.sequence"):
            pipeline = read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pipeline.build()
        images = [np.asarray(pipeline.run()[0][0]) for _ in range(pipeline.reader_meta("reader")["epoch_size"])]
        read_frames = [np.rint(each[:, 0, 0, 0] / 15).astype(int).tolist() for each in images]
        clips = Clips(lengths, length, stride=stride, step=step)
        frames, _ = clips.frames(clips.first_frames(np.arange(clips.num_clips)))
        assert frames.tolist() == read_frames
