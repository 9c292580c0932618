# SPDX-License-Identifier: Apache-2.0
"""Signs that a video lost frames: what FFmpeg cannot read in a container, it skips without an error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

_NUM_NEIGHBOURS = 4  # intervals on each side of a gap
# How many times as long as its neighbours a gap is at least. Cameras leave out a frame now and then: of time, more
# than one must be missing; of the encoder's counters, one.
OF_TIME, OF_COUNTERS = 2.5, 1.5
_MOST_GAPS = 0.05  # of all intervals: where there are more, the rate varies
_MOST_LISTED = 3


def describe_gaps(pts: Int64Array, time_base: Fraction, end_pts: int, rate: Fraction | None) -> list[str]:
    """Describe at which times frames are missing.

    Args:
        pts: ``(N,)`` times of the frames, strictly increasing.
        time_base: Seconds per unit of the times.
        end_pts: Where the last frame ends as the container states it; 0 where it does not.
        rate: Frames per second as the container states it, or None.
    """
    intervals = np.diff(pts)
    gaps = find_gaps(intervals)
    texts = [
        f"{_seconds(intervals[place], time_base)} between the frames {place} and {place + 1}, at "
        f"{_seconds(pts[place], time_base)}, where the neighbours are {_seconds(usual, time_base)} apart: about "
        f"{round(intervals[place] / usual) - 1} frame(s) are missing"
        for place, usual in gaps[:_MOST_LISTED]
    ]
    texts += [f"{len(gaps) - _MOST_LISTED} more such gaps"] * (len(gaps) > _MOST_LISTED)
    last = intervals[-2 * _NUM_NEIGHBOURS :]
    if rate and not len(last):
        last = np.array([round(1 / (rate * time_base))])
    left = end_pts - int(pts[-1])
    if len(last) and left > OF_COUNTERS * last.max() and last.max() <= OF_TIME * last.min():
        num_missing = round(left / float(np.median(last))) - 1
        texts.append(
            f"the last frame is at {_seconds(pts[-1], time_base)}, and ends at {_seconds(end_pts, time_base)} as "
            f"the container states it: about {num_missing} frame(s) are missing"
        )
    return texts


def _seconds(duration: float, time_base: Fraction) -> str:
    return f"{float(duration * time_base):.3f} s"


def find_gaps(intervals: Int64Array, factor: float = OF_TIME) -> list[tuple[int, float]]:
    """Find the intervals that are much longer than their neighbours, which are alike.

    So a rate that changes has no gaps, nor one that varies.

    Args:
        intervals: ``(N,)`` times between frames.
        factor: How many times as long as its neighbours a gap is at least.

    Returns:
        The place of each gap, and the usual interval around it.
    """
    if len(intervals) <= _NUM_NEIGHBOURS:
        return []
    is_longer = np.zeros(len(intervals), np.bool_)
    is_longer[1:] = intervals[1:] > factor * intervals[:-1]
    is_longer[:-1] |= intervals[:-1] > factor * intervals[1:]
    candidates = np.flatnonzero(is_longer)
    if len(candidates) > max(2, _MOST_GAPS * len(intervals)):
        return []
    found = []
    for place in candidates.tolist():
        start = max(place - _NUM_NEIGHBOURS, 0)
        neighbours = np.sort(np.delete(intervals[start : place + _NUM_NEIGHBOURS + 1], place - start))
        low, high = neighbours[0], neighbours[-2]  # the longest may be a gap, too
        if high <= factor * low and intervals[place] > factor * high:
            found.append((place, float(np.median(neighbours))))
    return found
