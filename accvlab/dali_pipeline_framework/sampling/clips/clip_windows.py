# SPDX-License-Identifier: Apache-2.0
"""Which frames belong to the clip that starts at a frame."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import SettingError

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

_ROUNDING_STEPS = 4  # the most roundings in comparing a difference of times with a multiple of an interval


class ClipWindows(ABC):
    """The frames of a clip as a function of its first frame."""

    @abstractmethod
    def frames(self, first_frames: Int64Array, sequences: Int64Array | None) -> tuple[Int64Array, Int64Array]:
        """Get the frames of clips of ``L`` frames in the order of time.

        Args:
            first_frames: Sample index of the first frame of each clip, shape ``(n,)``.
            sequences: The sequences of these frames, shape ``(n,)``, if they are known; None to look them up.

        Returns:
            ``(n, L)`` int64 sample indices, and ``(n,)`` int64 how many of them exist, 1 to ``L``. The other
            numbers of a row have no meaning, and can be out of range.
        """


@attrs.frozen(eq=False)
class StrideWindows(ClipWindows):
    """Every ``stride``-th frame, up to the end of the sequence.

    Attributes:
        edges: First frame of each sequence, and the number of all frames; shape ``(S + 1,)``.
        sequence_length: Frames per clip.
        stride: Frames from one frame of a clip to the next.
    """

    edges: Int64Array
    sequence_length: int
    stride: int

    def frames(self, first_frames: Int64Array, sequences: Int64Array | None) -> tuple[Int64Array, Int64Array]:
        """Get the frames of clips."""
        following = self.edges.searchsorted(first_frames, side="right") if sequences is None else sequences + 1
        num_existing = (self.edges[following] - 1 - first_frames) // self.stride + 1
        frames = first_frames[:, None] + np.arange(self.sequence_length) * self.stride
        return frames, np.minimum(num_existing, self.sequence_length)


class TimedWindows(ClipWindows):
    """The frames nearest to points in time at equal distances, up to the first that is missing.

    Times are relative to the start of the sequence, since float64 would round absolute ones (nanoseconds since
    1970).
    """

    def __init__(
        self,
        edges: Int64Array,
        times: Float64Array,
        rounding: float,
        sequence_length: int,
        stride_interval: float,
        tolerance: float,
    ) -> None:
        """Set up.

        Args:
            edges: First frame of each sequence, and the number of all frames; shape ``(S + 1,)``.
            times: Time of each frame since the start of its sequence, shape ``(N,)``, see `times_in_sequence`.
            rounding: By how much a comparison of times may be off.
            sequence_length: Frames per clip.
            stride_interval: Time from one frame of a clip to the next.
            tolerance: How far a frame may be from its point in time.
        """
        self._edges = edges
        self._targets = np.arange(sequence_length) * float(stride_interval)
        self._tolerance = tolerance + rounding
        # Keys (sequence, time): NumPy sorts complex numbers by real part, then imaginary part. So one sorted array
        # serves all sequences, without adding numbers of different magnitude.
        self._keys = np.empty(len(times), np.complex128)
        self._keys.real = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        self._keys.imag = times

    def frames(self, first_frames: Int64Array, sequences: Int64Array | None) -> tuple[Int64Array, Int64Array]:
        """Get the frames of clips."""
        times = self._keys.imag
        first_keys = self._keys[first_frames]
        sequences = first_keys.real.astype(np.int64)
        first_times = first_keys.imag[:, None]
        wanted = np.empty((len(first_frames), len(self._targets)), np.complex128)
        wanted.real = first_keys.real[:, None]
        wanted.imag = first_times + self._targets
        after = self._keys.searchsorted(wanted)  # (n, L), the first frame at or after each point in time
        before = np.maximum(after - 1, first_frames[:, None])
        after = np.minimum(after, self._edges[sequences + 1][:, None] - 1)
        off_before = times[before] - first_times - self._targets
        off_after = times[after] - first_times - self._targets
        is_before_nearer = np.abs(off_before) <= np.abs(off_after)
        frames = np.where(is_before_nearer, before, after)
        exists = np.abs(np.where(is_before_nearer, off_before, off_after)) <= self._tolerance
        exists[:, 1:] &= frames[:, 1:] > frames[:, :-1]  # else one frame would stand for two points in time
        num_existing = np.logical_and.accumulate(exists, axis=1).sum(axis=1)
        return frames, num_existing


def checked_timestamps(timestamps: npt.ArrayLike, edges: Int64Array) -> npt.NDArray[Any]:
    """Return the ``(N,)`` times of frames, which must increase within each sequence, see `times_in_sequence`."""
    try:
        array = np.asarray(timestamps)
    except ValueError as error:  # nested lists of different lengths
        raise SettingError("`timestamps` must be a flat list with the time of each frame.") from error
    if array.shape != (edges[-1],):
        raise SettingError(
            f"`timestamps` must have one time for each of the {edges[-1]} frames of `sequence_lengths`, got shape "
            f"{array.shape}."
        )
    if array.dtype.kind not in "iuf":
        raise SettingError(
            f"`timestamps` must be integers or floats, got {array.dtype} values. Convert dates to seconds or "
            f"nanoseconds first, e.g. with .astype('datetime64[ns]').astype('int64')."
        )
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise SettingError(f"`timestamps` must be finite, but that of frame {bad} is {array[bad]}.")
    is_late = np.append(False, array[1:] <= array[:-1])
    is_late[edges[:-1]] = False
    if is_late.any():
        late = np.flatnonzero(is_late)
        sequence = int(edges.searchsorted(late[0], side="right")) - 1
        raise SettingError(
            f"`timestamps` must increase within each sequence, but frame {late[0]} at {array[late[0]]} follows "
            f"frame {late[0] - 1} at {array[late[0] - 1]} in sequence {sequence} ({late.size} such frame(s)). "
            f"Sort the frames, and check `sequence_lengths`."
        )
    return array


def times_in_sequence(timestamps: npt.NDArray[Any], edges: Int64Array) -> tuple[Float64Array, float]:
    """Count times from the start of each sequence.

    Args:
        timestamps: Time of each frame, shape ``(N,)``, integers or floats.
        edges: First frame of each sequence, and ``N``; shape ``(S + 1,)``.

    Returns:
        ``(N,)`` float64 times, and by how much a comparison of them with multiples of an interval may be off:
        nothing for integers, and a few units in the last place of the largest timestamp for floats.
    """
    if timestamps.dtype.kind == "f":
        numbers = timestamps.astype(np.float64)
        rounding = _ROUNDING_STEPS * float(np.spacing(np.abs(timestamps).max()))
    else:  # as many bits as there are, so that no difference wraps around
        numbers = timestamps.astype(np.uint64 if timestamps.dtype.kind == "u" else np.int64)
        rounding = 0.0
    times = numbers - np.repeat(numbers[edges[:-1]], np.diff(edges))
    return times.astype(np.float64), rounding


_CLIPS_AT_A_TIME = 1 << 15  # bounds the size of temporary arrays


class ClipStarts(ABC):
    """Numbers the clips of all sequences, in the order of their first frames.

    Attributes:
        first_clips: First clip of each sequence, and the number of all clips; shape ``(S + 1,)``.
    """

    first_clips: Int64Array

    def sequence_of(self, clips: Int64Array) -> Int64Array:
        """Get the ``(n,)`` sequences of ``(n,)`` clips."""
        return self.first_clips.searchsorted(clips, side="right") - 1

    @abstractmethod
    def first_frames(self, clips: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get the ``(n,)`` sample indices where ``(n,)`` clips of ``(n,)`` sequences start."""

    @abstractmethod
    def room(self, clips: Int64Array, sequences: Int64Array, first_frames: Int64Array) -> Int64Array:
        """Get by how many frames each clip can start later and still be complete; 0 for incomplete ones."""


class RegularStarts(ClipStarts):
    """A clip every ``step`` frames, with ``stride`` frames from one of its frames to the next."""

    def __init__(
        self, edges: Int64Array, sequence_length: int, stride: int, step: int, keeps_incomplete: bool
    ) -> None:
        """Count the clips.

        Args:
            edges: First frame of each sequence, and the number of all frames; shape ``(S + 1,)``.
            sequence_length: Frames per clip.
            stride: Frames from one frame of a clip to the next.
            step: Frames from the start of a clip to the start of the next.
            keeps_incomplete: See `ListedStarts`.
        """
        self._edges = edges
        self._step = step
        self._span = _span(sequence_length, stride, edges)
        last = np.diff(edges) - 1  # (S,), last frame as counted in its sequence
        if keeps_incomplete:
            # Frame j of clip k is frame j + later of clip k - earlier, if that clip and that frame exist;
            # otherwise no earlier clip has it. So an incomplete clip of n existing frames has a frame of its own
            # if k < earlier, or n + later > sequence_length.
            common = math.gcd(step, stride)
            earlier, later = stride // common, step // common
            reach = _span(max(sequence_length - later, 0) + 1, stride, edges)
            counts = np.maximum((last - reach) // step + 1, earlier)
            counts = np.minimum(counts, last // step + 1)
        else:
            counts = np.maximum((last - self._span) // step + 1, 0)
        self.first_clips = np.concatenate(([0], np.cumsum(counts)))

    def first_frames(self, clips: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get where clips start."""
        first_frames: Int64Array = self._edges[sequences] + (clips - self.first_clips[sequences]) * self._step
        return first_frames

    def room(self, clips: Int64Array, sequences: Int64Array, first_frames: Int64Array) -> Int64Array:
        """Get by how much clips can start later."""
        ends = self._edges[sequences + 1]
        room: Int64Array = np.maximum(ends - 1 - self._span - first_frames, 0)
        return room


class ListedStarts(ClipStarts):
    """Clips that start at some of given frames."""

    def __init__(
        self,
        edges: Int64Array,
        candidates: Int64Array,
        windows: ClipWindows,
        sequence_length: int,
        keeps_incomplete: bool,
        needs_room: bool,
    ) -> None:
        """Choose the frames at which clips start.

        Args:
            edges: First frame of each sequence, and the number ``N`` of all frames; shape ``(S + 1,)``.
            candidates: Frames at which clips can start, ascending.
            windows: Frames of a clip.
            sequence_length: Frames per clip.
            keeps_incomplete: Whether there are incomplete clips, where they have a frame of their own.
            needs_room: Whether `room` is asked for.
        """
        if keeps_incomplete:
            is_clip = _has_own_frames_or_all(candidates, windows, sequence_length, int(edges[-1]))
        else:
            is_clip = _is_complete(candidates, windows, sequence_length)
        self._first_frames = candidates[is_clip]
        self.first_clips = self._first_frames.searchsorted(edges)
        self._room = _room(self._first_frames, edges, windows, sequence_length) if needs_room else None

    def first_frames(self, clips: Int64Array, sequences: Int64Array) -> Int64Array:
        """Get where clips start."""
        return self._first_frames[clips]

    def room(self, clips: Int64Array, sequences: Int64Array, first_frames: Int64Array) -> Int64Array:
        """Get by how much clips can start later; 0 where ``needs_room`` was False."""
        return np.zeros(len(clips), np.int64) if self._room is None else self._room[clips]


def starts_every(step: int, edges: Int64Array) -> Int64Array:
    """List every ``step``-th frame of each sequence, from its first one on; ascending, int64."""
    position = np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))
    return np.flatnonzero(position % step == 0)


def starts_in_time(step_interval: float, times: Float64Array, rounding: float, edges: Int64Array) -> Int64Array:
    """List the first frame at or after each multiple of ``step_interval``, in each sequence.

    Args:
        step_interval: Distance of the points in time.
        times: Time of each frame since the start of its sequence, shape ``(N,)``.
        rounding: By how much a comparison of times may be off.
        edges: First frame of each sequence, and ``N``; shape ``(S + 1,)``.

    Returns:
        Sample indices, ascending, each once; int64.
    """
    interval = np.floor_divide(times + rounding, step_interval)  # (N,), changes where a multiple was passed
    is_start = np.empty(len(times), np.bool_)
    is_start[1:] = interval[1:] != interval[:-1]
    is_start[edges[:-1]] = True
    return np.flatnonzero(is_start)


def _span(sequence_length: int, stride: int, edges: Int64Array) -> int:
    # Distance from the first to the last frame of a clip, limited so that it cannot overflow int64.
    return min((sequence_length - 1) * stride, int(edges[-1]))


def _chunks(array: Int64Array) -> list[slice]:
    return [slice(start, start + _CLIPS_AT_A_TIME) for start in range(0, len(array), _CLIPS_AT_A_TIME)]


def _is_complete(first_frames: Int64Array, windows: ClipWindows, sequence_length: int) -> npt.NDArray[np.bool_]:
    num_existing = [windows.frames(first_frames[chunk], None)[1] for chunk in _chunks(first_frames)]
    is_complete: npt.NDArray[np.bool_] = np.concatenate([np.zeros(0, np.int64), *num_existing]) == sequence_length
    return is_complete


def _has_own_frames_or_all(
    first_frames: Int64Array, windows: ClipWindows, sequence_length: int, num_frames: int
) -> npt.NDArray[np.bool_]:
    is_clip = np.empty(len(first_frames), np.bool_)
    first_owner = np.full(num_frames, len(first_frames))  # per frame: the first clip that has it
    for chunk in _chunks(first_frames):
        frames, num_existing = windows.frames(first_frames[chunk], None)
        exists = np.arange(sequence_length) < num_existing[:, None]
        frames = np.where(exists, frames, frames[:, :1])  # numbers of missing frames can be out of range
        clips = np.broadcast_to(np.arange(chunk.start, chunk.start + len(frames))[:, None], frames.shape)
        np.minimum.at(first_owner, frames, clips)
        is_clip[chunk] = (first_owner[frames] == clips).any(axis=1) | (num_existing == sequence_length)
    return is_clip


def _room(first_frames: Int64Array, edges: Int64Array, windows: ClipWindows, sequence_length: int) -> Int64Array:
    # A clip can start at each later frame of its sequence, up to the first at which no complete clip starts.
    is_complete = _is_complete(np.arange(edges[-1]), windows, sequence_length)
    stops = np.append(np.flatnonzero(~is_complete), edges[-1])
    ends = np.minimum(
        stops[stops.searchsorted(first_frames)], edges[edges.searchsorted(first_frames, side="right")]
    )
    room: Int64Array = np.maximum(ends - 1 - first_frames, 0)
    return room
