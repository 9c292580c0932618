# SPDX-License-Identifier: Apache-2.0
"""Which frames belong to the clip that starts at a frame."""

from __future__ import annotations

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
