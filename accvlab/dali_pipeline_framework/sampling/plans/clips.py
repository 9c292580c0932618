# SPDX-License-Identifier: Apache-2.0
"""Clips: windows of frames in the sequences of a data set."""

from __future__ import annotations

import hashlib
import math
import numbers
from abc import ABC, abstractmethod
from typing import Any, Final, Literal, NamedTuple, SupportsIndex, TypeAlias, get_args

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import choice, flag, number, whole_number
from ...draws.keyed_draws import UInt64Array, random_bits
from ...errors import SettingError
from ..arithmetic.last_batch import checked_lengths

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
        exists[:, 1:] &= frames[:, 1:] > frames[:, :-1]  # else one frame would be that of two points in time
        num_existing = np.logical_and.accumulate(exists, axis=1).sum(axis=1)
        return frames, num_existing


def checked_timestamps(timestamps: npt.ArrayLike, edges: Int64Array) -> npt.NDArray[Any]:
    """Check the ``(N,)`` times of frames, which must increase within each sequence, see `times_in_sequence`."""
    try:
        array = np.asarray(timestamps)
    except ValueError as error:  # nested lists of different lengths
        raise SettingError("`timestamps` must be a flat list with the time of each frame.") from error
    if array.shape != (edges[-1],):
        rule = f"`timestamps` must have one time for each of the {edges[-1]} frames of `sequence_lengths`"
        raise SettingError(f"{rule}, got shape {array.shape}.")
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
            needs_room: Whether `room` is called.
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


BoolArray = npt.NDArray[np.bool_]
ClipTail: TypeAlias = Literal["drop", "repeat", "mark"]


class PlayedClips(NamedTuple):
    """Frames of clips.

    Attributes:
        sequences: ``(n,)`` int64, the sequence of each clip.
        sequence_starts: ``(n,)`` int64, sample index of the first frame of that sequence.
        frames: ``(n, sequence_length)`` int64, sample indices in the order of play.
        is_padding: ``(n, sequence_length)`` bool, whether a frame is padding.
    """

    sequences: Int64Array
    sequence_starts: Int64Array
    frames: Int64Array
    is_padding: BoolArray


class Clips:
    """The frames of the clips of a data set, as arithmetic: nothing is loaded.

    The frames of all sequences lie one after the other: sequence ``s`` has the sample indices
    ``[sum(lengths[:s]), sum(lengths[:s + 1]))``. A clip has ``sequence_length`` frames of one sequence, with
    ``stride`` frames from one to the next; clips start every ``step`` frames, in each sequence from its first
    frame on (the terms of DALI's ``fn.readers.sequence``, whose clips these are by default). With
    ``sequence_length=3, stride=1, step=2``, a sequence of eight frames and one of two::

        sample index |  0  1  2  3  4  5  6  7 |  8  9 |
        clip 0       |  0  1  2                |       |
        clip 1       |        2  3  4          |       |
        clip 2       |              4  5  6    |       |
        clip 3       |                    6  7 | 7     |     only with tail="repeat" or "mark"
        clip 4       |                         |  8  9 | 9   only with tail="repeat" or "mark"

    **The ends of the sequences.** A clip is *complete* if all its frames exist. With ``tail="drop"`` there are
    no others. With ``"repeat"`` and ``"mark"`` there is also each incomplete clip that has *a frame of its
    own*: one that no earlier clip has. So each frame is in a clip that could be (none is lost at the end of a
    sequence), and no clip has only frames of others; with ``stride=1`` that is at most one clip per
    sequence. The missing frames repeat the last one that is played; ``"mark"`` also marks them as padding.

    **By time.** With ``timestamps`` and ``stride_interval``, frame ``k`` of a clip is the frame nearest to
    ``first + k * stride_interval`` (of two the earlier). It is missing if it is further away than
    ``tolerance``, or not later than frame ``k - 1``; the clip ends before the first missing frame, so clips do
    not bridge gaps. With ``step_interval``, clips start at the first frame at or after each
    ``start of the sequence + k * step_interval``, each frame at most once. Rounding errors of floating-point
    timestamps (4 units in the last place of the largest one) do not count.

    Where fields of one sample are needed at different times around a moment, `Windows` is the way: it has
    offsets for each field, and goes with any sampler. Clips are runs of whole frames, each of which can be a slot
    of its own, for models that see one frame after the other.

    Clips are numbered in the order of their first frames (before they are moved by ``jitter``). Objects are
    immutable, hashable and can be pickled; they are equal if they have the same sequences, settings and times.
    Without timestamps memory goes with the number of sequences, with timestamps with the number of frames.

    Attributes:
        sequence_length: Number of frames of each clip.
        jitter: By how many frames at most a clip starts later.
        backward: Whether clips play against time.
        tail: Policy for incomplete clips.
        num_clips: Number of clips of all sequences.
        num_frames: Number of frames of the data set.
        num_sequences: Number of sequences, with those that have no clip.

    Example:
        >>> clips = Clips([8, 2], 3, step=2, tail="mark")
        >>> clips
        Clips(5 clips of 3 frames, step=2, tail='mark'; 10 frames in 2 sequences)
        >>> frames, is_padding = clips.frames(clips.first_frames(np.array([2, 3])))
        >>> frames
        array([[4, 5, 6],
               [6, 7, 7]])
        >>> is_padding
        array([[False, False, False],
               [False, False,  True]])
    """

    def __init__(
        self,
        sequence_lengths: npt.ArrayLike,
        sequence_length: SupportsIndex,
        *,
        stride: SupportsIndex = 1,
        step: SupportsIndex = 1,
        jitter: SupportsIndex = 0,
        backward: bool = False,
        tail: ClipTail = "drop",
        timestamps: npt.ArrayLike | None = None,
        stride_interval: float | None = None,
        step_interval: float | None = None,
        tolerance: float | None = None,
    ) -> None:
        """Count the clips.

        Args:
            sequence_lengths: Number of frames of each sequence, shape ``(S,)``, each at least 1.
            sequence_length: Frames per clip, at least 1.
            stride: Frames from one frame of a clip to the next, at least 1.
            step: Frames from the start of a clip to the start of the next one of the sequence, at least 1.
            jitter: Each complete clip starts up to that many frames later, at random, see `first_frames`.
            backward: Whether clips play against time: the existing frames from the last to the first, then
                the repeated ones (of the first).
            tail: Policy for clips that are not complete, see above.
            timestamps: Time of each frame, shape ``(N,)``, integers or floats of any unit, strictly increasing
                within each sequence. Only together with an interval.
            stride_interval: Time from one frame of a clip to the next in the unit of the timestamps, above 0;
                in place of ``stride``.
            step_interval: Time from the start of a clip to the start of the next, above 0; in place of ``step``.
            tolerance: How far a frame may be from its point in time, at least 0; None for half the
                ``stride_interval``.

        Raises:
            SettingError: An argument is out of its range or does not go with another one, the timestamps do
                not fit the sequences, or there is no clip at all.
        """
        lengths = checked_lengths(sequence_lengths)
        self._edges = np.concatenate(([0], np.cumsum(lengths)))  # (S + 1,)
        self.num_frames: Final = int(self._edges[-1])
        self.num_sequences: Final = len(lengths)
        self.sequence_length: Final = whole_number(sequence_length, "sequence_length", at_least=1)
        self._stride = whole_number(stride, "stride", at_least=1)
        self._step = whole_number(step, "step", at_least=1)
        self.jitter: Final = whole_number(jitter, "jitter", at_least=0)
        self.backward: Final = flag(backward, "backward")
        self.tail: Final[ClipTail] = choice(tail, "tail", get_args(ClipTail))
        self._stride_interval = _interval(stride_interval, "stride_interval", self._stride, "stride")
        self._step_interval = _interval(step_interval, "step_interval", self._step, "step")
        self._tolerance = _tolerance(tolerance, self._stride_interval)
        self._timestamps_digest: str | None = None
        self._timestamps_hash: bytes | None = None  # long enough to distinguish any two
        self._positions = np.arange(self.sequence_length)
        self._windows, self._starts = self._make_windows_and_starts(timestamps)
        self.num_clips: Final = int(self._starts.first_clips[-1])
        if not self.num_clips:
            raise SettingError(self._why_there_is_no_clip(lengths))

    def _make_windows_and_starts(self, timestamps: npt.ArrayLike | None) -> tuple[ClipWindows, ClipStarts]:
        is_timed = self._stride_interval is not None or self._step_interval is not None
        if is_timed != (timestamps is not None):
            raise SettingError(
                "`timestamps` are needed with `stride_interval` or `step_interval`, and only then. Got "
                + ("an interval, but no timestamps." if is_timed else "timestamps, but no interval.")
            )
        edges, length = self._edges, self.sequence_length
        # Larger ones give the same clips, and sample indices beyond int64.
        stride, step = min(self._stride, self.num_frames), min(self._step, self.num_frames)
        keeps_incomplete = self.tail != "drop"
        windows: ClipWindows = StrideWindows(edges, length, stride)
        if timestamps is None:
            return windows, RegularStarts(edges, length, stride, step, keeps_incomplete)
        checked = checked_timestamps(timestamps, edges)
        bytes_of_times = checked.astype("<f8" if checked.dtype.kind == "f" else "<i8").tobytes()
        self._timestamps_digest = _digest(bytes_of_times)
        self._timestamps_hash = hashlib.blake2b(bytes_of_times, digest_size=32).digest()
        times, rounding = times_in_sequence(checked, edges)
        if self._stride_interval is not None and self._tolerance is not None:
            windows = TimedWindows(edges, times, rounding, length, self._stride_interval, self._tolerance)
        if self._step_interval is None:
            candidates = starts_every(step, edges)
        else:
            candidates = starts_in_time(self._step_interval, times, rounding, edges)
        return windows, ListedStarts(edges, candidates, windows, length, keeps_incomplete, self.jitter > 0)

    def _why_there_is_no_clip(self, lengths: Int64Array) -> str:
        longest = f"The longest of {len(lengths)} sequence(s) has {lengths.max()} frame(s)"
        if self._stride_interval is None:
            num_needed = (self.sequence_length - 1) * self._stride + 1
            why = f"a clip needs {num_needed} frames of one sequence"
            if self._step_interval is not None:
                why += " from a frame at which clips start"
        else:
            why = (
                f"no clip has a frame every {self._stride_interval} (`stride_interval`, give or take "
                f"{self._tolerance}, in the unit of the timestamps)"
            )
        return (
            f"There must be at least one complete clip of `sequence_length={self.sequence_length}` frames, but "
            f"{why}. {longest}. Use shorter clips, or keep incomplete ones with tail='repeat' or tail='mark'."
        )

    # --- numbers ----------------------------------------------------------------------------------------

    @property
    def num_sequences_without_clip(self) -> int:
        """Number of sequences that have no clip, since none is complete; 0 with ``"repeat"`` and ``"mark"``."""
        return int(np.count_nonzero(self.clips_per_sequence == 0))

    @property
    def clips_per_sequence(self) -> Int64Array:
        """Number of clips of each sequence, ``(S,)`` int64."""
        return np.diff(self._starts.first_clips)

    # --- arithmetic -------------------------------------------------------------------------------------

    def sequence_of(self, clips: npt.ArrayLike) -> Int64Array:
        """Get the ``(n,)`` int64 sequences of ``(n,)`` clips; a `SettingError` where there is no such clip."""
        return self._starts.sequence_of(_checked_numbers(clips, self.num_clips, "clip"))

    def locate_frames(self, sample_indices: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
        """Get the ``(n,)`` int64 sequences of ``(n,)`` frames of the data set, and their numbers in these, from 0.

        Raises:
            SettingError: There is no such frame.
        """
        sample_indices = _checked_numbers(sample_indices, self.num_frames, "frame")
        sequences = self._edges.searchsorted(sample_indices, side="right") - 1
        return sequences, sample_indices - self._edges[sequences]

    def first_frames(self, clips: npt.ArrayLike, jitter_key: int | UInt64Array | None = None) -> Int64Array:
        """Get where clips start.

        With a key and ``jitter > 0``, each clip starts 0 to ``jitter`` frames later, all equally likely; the
        range ends before the first start at which the clip would not be complete. Incomplete clips stay.

        Args:
            clips: Numbers of the clips, shape ``(n,)`` int64.
            jitter_key: Key of 64 bits that chooses by how much, e.g. one for each epoch, or an array of them,
                shape ``(n,)`` uint64, one for each clip; None for not at all.

        Returns:
            ``(n,)`` int64 sample indices.

        Raises:
            SettingError: There is no such clip.
        """
        clips = _checked_numbers(clips, self.num_clips, "clip")
        return self._first_frames(clips, self._starts.sequence_of(clips), jitter_key)

    def _first_frames(
        self, clips: Int64Array, sequences: Int64Array, jitter_key: int | UInt64Array | None
    ) -> Int64Array:
        first_frames = self._starts.first_frames(clips, sequences)
        if jitter_key is None or not self.jitter:
            return first_frames
        largest = min(self.jitter, self.num_frames)  # no clip has more room; larger ones may not fit int64
        num_choices = np.minimum(self._starts.room(clips, sequences, first_frames), largest) + 1
        # Choices differ in probability by less than num_choices / 2**64.
        moves = random_bits(jitter_key, clips) % num_choices.astype(np.uint64)
        return first_frames + moves.astype(np.int64)

    def frames(self, first_frames: npt.ArrayLike) -> tuple[Int64Array, BoolArray]:
        """Get the frames of the clip that starts at each of the given frames, which may be any of the data set.

        Args:
            first_frames: Sample indices, shape ``(n,)`` int64.

        Returns:
            ``(n, sequence_length)`` int64 sample indices in the order of play, and
            ``(n, sequence_length)`` bool: whether a frame is padding. Missing frames repeat the last one that
            is played, also with ``tail="drop"``; only with ``"mark"`` they are padding.

        Raises:
            SettingError: There is no such frame.
        """
        return self._frames(_checked_numbers(first_frames, self.num_frames, "frame"), None)

    def _frames(self, first_frames: Int64Array, sequences: Int64Array | None) -> tuple[Int64Array, BoolArray]:
        frames, num_existing = self._windows.frames(first_frames, sequences)
        if num_existing.min(initial=self.sequence_length) == self.sequence_length:  # the usual case
            return frames[:, ::-1] if self.backward else frames, np.zeros(frames.shape, np.bool_)
        last = num_existing[:, None] - 1  # (n, 1)
        is_missing = self._positions > last  # (n, L)
        played = np.where(is_missing, last, self._positions)
        if self.backward:
            played = last - played
        frames = frames[np.arange(len(frames))[:, None], played]
        return frames, is_missing if self.tail == "mark" else np.zeros_like(is_missing)

    def play(self, clips: npt.ArrayLike, jitter_key: int | UInt64Array | None = None) -> PlayedClips:
        """Get the sequences and frames of ``(n,)`` clips; for arguments and errors see `first_frames`."""
        clips = _checked_numbers(clips, self.num_clips, "clip")
        sequences = self._starts.sequence_of(clips)
        frames, is_padding = self._frames(self._first_frames(clips, sequences, jitter_key), sequences)
        return PlayedClips(sequences, self._edges[sequences], frames, is_padding)

    def describe(self) -> dict[str, int | str | bool | float | None]:
        """Get settings, hashes of the data, and counts, as values for JSON."""
        return {
            "sequence_length": self.sequence_length,
            "stride": self._stride if self._stride_interval is None else None,
            "step": self._step if self._step_interval is None else None,
            "jitter": self.jitter,
            "backward": self.backward,
            "tail": self.tail,
            "stride_interval": self._stride_interval,
            "step_interval": self._step_interval,
            "tolerance": self._tolerance,
            "sequence_lengths": _digest(np.diff(self._edges).astype("<i8").tobytes()),
            "timestamps": self._timestamps_digest,
            "num_sequences": self.num_sequences,
            "num_frames": self.num_frames,
            "num_clips": self.num_clips,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Clips):
            return NotImplemented
        return (
            np.array_equal(self._edges, other._edges)
            and self._timestamps_hash == other._timestamps_hash
            and self.describe() == other.describe()
        )

    def __hash__(self) -> int:
        return hash(tuple(self.describe().items()))

    def __repr__(self) -> str:
        """Return the counts, and the settings other than the defaults."""
        usual = {"stride": 1, "step": 1, "jitter": 0, "backward": False}
        not_settings = ("sequence_length", "sequence_lengths", "timestamps")
        settings = "".join(
            f", {name}={value!r}"
            for name, value in self.describe().items()
            if value is not None and value != usual.get(name) and name not in not_settings and name[:4] != "num_"
        )
        without = self.num_sequences_without_clip
        return (
            f"Clips({self.num_clips} clips of {self.sequence_length} frames{settings}; {self.num_frames} frames "
            f"in {self.num_sequences} sequences{f', {without} of them without a clip' if without else ''})"
        )


def _interval(interval: float | None, name: str, frames: int, frames_name: str) -> float | None:
    """Check an interval in time that replaces a number of frames."""
    if interval is not None and frames != 1:
        rule = f"`{name}` replaces `{frames_name}`: give one of them"
        raise SettingError(f"{rule}, got {name}={interval!r} and {frames_name}={frames}.")
    return None if interval is None else _exact(interval, name, above=0)


def _tolerance(tolerance: float | None, stride_interval: float | None) -> float | None:
    if stride_interval is None and tolerance is not None:
        raise SettingError(
            f"`tolerance` says how far frames may be from the points in time of `stride_interval`, which is "
            f"not given. Got tolerance={tolerance!r}."
        )
    if tolerance is None:
        return None if stride_interval is None else stride_interval / 2
    return _exact(tolerance, "tolerance", at_least=0)


def _exact(value: float, name: str, **limits: Any) -> float:
    checked = number(value, name, **limits)
    return int(value) if isinstance(value, numbers.Integral) else checked  # whole numbers stay exact


def _checked_numbers(given: npt.ArrayLike, stop: int, what: str) -> Int64Array:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        rule = f"The numbers of {what}s must be a flat array of integers"
        raise SettingError(f"{rule}, got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.int64, copy=False)
    # As uint64, negative numbers are larger than any valid one: one comparison for both ends.
    if array.size and int(array.view(np.uint64).max()) >= stop:
        bad = array[(array < 0) | (array >= stop)]
        raise SettingError(f"There is no {what} {bad[0]}: {what}s are numbered 0 to {stop - 1}.")
    return array


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=4).hexdigest()
