# SPDX-License-Identifier: Apache-2.0
"""Times of the frames of sequences: checked, and searched for the frames of windows."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..checks import shown
from ..errors import SettingError

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FrameRule: TypeAlias = Literal["nearest", "last"]

SAME = 1e-4
"""Frames are equally spaced, and a frame is at a time, within so much."""

ROUNDING = 1e-6
"""Of differences of times that are compared with the tolerance."""


class Frames(NamedTuple):
    """The frames of a window at ``n`` moments.

    Attributes:
        rows: ``(n, T)`` int64, samples of the wrapped provider.
        is_pad: ``(n, T)`` bool, whether the time is before the first or after the last frame of the sequence.
        is_missing: ``(n, T)`` bool, whether it is between them, and no frame is within the tolerance.
        off: ``(n, T)`` float64, distance of the frame from its time.
    """

    rows: Int64Array
    is_pad: BoolArray
    is_missing: BoolArray
    off: Float64Array


class Times:
    """The times of the frames of all sequences, to search in: seconds, or numbers of frames in the sequence.

    Attributes:
        bounds: ``(S + 1,)`` int64, first frame of each sequence.
        values: ``(N,)`` float64; NaN where there is no frame.
        interval: From frame to frame; the median where frames are not equally spaced.
        is_regular: Whether they are equally spaced, so that there are no gaps.
    """

    def __init__(self, values: Float64Array, bounds: Int64Array) -> None:
        """Sort the times, see the attributes."""
        self.values, self.bounds = values, bounds
        self.interval, self.is_regular = _interval(values, bounds)
        self._known = np.flatnonzero(~np.isnan(values))
        self._known_bounds = self._known.searchsorted(bounds)
        # Keys (sequence, time): NumPy sorts complex numbers by real part, then imaginary part. So one sorted array
        # serves all sequences, without adding numbers of different magnitude.
        self._keys = _keys(bounds.searchsorted(self._known, side="right") - 1, values[self._known])

    def __reduce__(self) -> tuple[object, ...]:
        return Times, (self.values, self.bounds)

    def find(self, wanted: Float64Array, sequences: Int64Array, take: FrameRule, tolerance: float) -> Frames:
        """Find the frames at ``(n, T)`` times in the ``(n,)`` sequences."""
        first, stop = self._known_bounds[sequences, None], self._known_bounds[sequences + 1, None]  # (n, 1)
        if not len(self._known):
            return Frames(np.zeros(wanted.shape, np.int64), wanted != wanted, wanted == wanted, wanted)
        keys, slack, early = self._keys, tolerance + ROUNDING, tolerance + ROUNDING
        if take == "nearest":
            rounded = wanted - ROUNDING  # of two that are equally near the earlier
            after = keys.searchsorted(_keys(sequences[:, None], rounded))
            before, after = np.clip(after - 1, first, stop - 1), np.clip(after, first, stop - 1)
            is_before = np.abs(rounded - keys.imag[before]) <= np.abs(keys.imag[after] - rounded)
            found = np.where(is_before, before, after)
        else:
            found = keys.searchsorted(_keys(sequences[:, None], wanted + SAME), side="right") - 1
            found, slack, early = np.clip(found, first, stop - 1), max(slack, SAME), SAME
        off = np.abs(keys.imag[found] - wanted)
        is_pad = (wanted < keys.imag[first % len(keys)] - early) | (wanted > keys.imag[stop - 1] + slack)
        is_pad &= first < stop
        return Frames(self._known[found], is_pad, ~is_pad & ((off > slack) | (first == stop)), off)


def _keys(sequences: Int64Array, times: Float64Array) -> npt.NDArray[np.complex128]:
    keys = np.empty(times.shape, np.complex128)
    keys.real, keys.imag = sequences, times
    return keys


def positions(bounds: Int64Array) -> Int64Array:
    """Number the frames of each sequence, ``(N,)``, from 0."""
    numbers: Int64Array = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
    return numbers


def checked_times(given: npt.ArrayLike, bounds: Int64Array, what: str) -> Float64Array:
    """Check the ``(N,)`` times of frames, which must ascend in each sequence; NaN where there is none."""
    try:
        times = np.asarray(given, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{what} must be seconds, a number for each sample, got {shown(given)}.") from error
    if times.shape != (bounds[-1],) or np.isinf(times).any():
        got = f"shape {times.shape}" if times.shape != (bounds[-1],) else "infinity"
        raise SettingError(f"{what} must be {bounds[-1]} finite numbers, one per sample, got {got}.")
    known = np.flatnonzero(~np.isnan(times))
    sequences = bounds.searchsorted(known, side="right") - 1
    is_late = (np.diff(times[known]) < 0) & (np.diff(sequences) == 0)
    if is_late.any():
        place = int(is_late.argmax())
        before, after = known[place], known[place + 1]
        raise SettingError(
            f"{what} must ascend in each sequence, but sample {after} at {times[after]:g} s follows sample "
            f"{before} at {times[before]:g} s in sequence {sequences[place]}. Sort the frames, and check "
            f"`sequence_lengths`."
        )
    return times


def _interval(times: Float64Array, bounds: Int64Array) -> tuple[float, bool]:
    """Get the interval of frames, and whether they are equally spaced; if not, it is the median."""
    lengths = np.diff(bounds)
    longest = int(lengths.argmax())
    first, last = times[bounds[longest]], times[bounds[longest + 1] - 1]
    period = float(last - first) / max(int(lengths[longest]) - 1, 1)
    steps = positions(bounds)
    off = np.abs(times - np.repeat(times[bounds[:-1]], lengths) - steps * period)
    if period > 2 * SAME and (off <= SAME / 2).all():  # any two of them are within `SAME`
        return period, True
    intervals = np.diff(times)[np.diff(steps) == 1]
    intervals = intervals[intervals > 0]  # not NaN, and not where a slower camera has the same frame again
    return float(np.median(intervals)) if len(intervals) else 0.0, False
