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
        self._rows = np.flatnonzero(~np.isnan(values))  # of frames that have a time
        self._times = values[self._rows]
        self._row_bounds = self._rows.searchsorted(bounds)
        # All sequences behind one another on one axis, so that one sorted array serves them. What is found in
        # another sequence is replaced by the end of the own one.
        counts = np.diff(self._row_bounds)
        has_frames = counts > 0
        starts, spans = np.zeros((2, len(counts)))
        starts[has_frames] = self._times[self._row_bounds[:-1][has_frames]]
        spans[has_frames] = self._times[self._row_bounds[1:][has_frames] - 1] - starts[has_frames]
        self._shifts = np.cumsum(spans) - spans - starts
        self._axis = self._times + np.repeat(self._shifts, counts)

    def __reduce__(self) -> tuple[object, ...]:
        return Times, (self.values, self.bounds)

    def find(self, wanted: Float64Array, sequences: Int64Array, take: FrameRule, tolerance: float) -> Frames:
        """Find the frames at ``(n, T)`` times in the ``(n,)`` sequences."""
        first, last = self._row_bounds[sequences, None], self._row_bounds[sequences + 1, None] - 1  # (n, 1)
        if not len(self._times):
            return Frames(np.zeros(wanted.shape, np.int64), wanted != wanted, wanted == wanted, wanted)
        times, slack, early = self._times, tolerance + ROUNDING, tolerance + ROUNDING
        shifts = self._shifts[sequences, None]
        if take == "nearest":
            rounded = wanted - ROUNDING  # of two that are equally near the earlier
            after = self._axis.searchsorted(rounded + shifts)
            before = np.minimum(np.maximum(after - 1, first), last)
            after = np.minimum(np.maximum(after, first), last)
            found = np.where(np.abs(rounded - times[before]) <= np.abs(times[after] - rounded), before, after)
        else:
            found = self._axis.searchsorted(wanted + (SAME + shifts), side="right") - 1
            found, slack, early = np.minimum(np.maximum(found, first), last), max(slack, SAME), SAME
        off = np.abs(times[found] - wanted)
        is_far = off > slack
        # Of a sequence without frames, `first` can be the number of all frames.
        is_pad = (wanted < times[first % len(times)] - early) | (wanted > times[last] + slack)
        is_pad &= first <= last
        return Frames(self._rows[found], is_pad, ~is_pad & (is_far | (first > last)), off)


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
