# SPDX-License-Identifier: Apache-2.0
"""Checks of the settings of clips."""

from __future__ import annotations

import math
import numbers
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ...errors import SettingError
from .clip_windows import Int64Array

ClipTail: TypeAlias = Literal["drop", "repeat", "mark"]


def checked_tail(tail: Any) -> ClipTail:
    """Return a policy for incomplete clips, or raise a `SettingError` where there is none of that name."""
    for known in get_args(ClipTail):
        if isinstance(tail, str) and tail == known:
            return known  # type: ignore[no-any-return]
    raise SettingError(
        f"`tail` must be 'drop' (complete clips only), 'repeat' (incomplete ones repeat a frame) or 'mark' "
        f"(repeated frames are marked as padding), got {tail!r}."
    )


def _checked_number(value: Any, name: str, rule: str, is_right: bool) -> float:
    if not is_right:
        raise SettingError(f"`{name}` must be a finite number {rule}, got {value!r}.")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _is_finite_number(value: Any) -> bool:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def checked_interval(interval: float | None, name: str, frames: int, frames_name: str) -> float | None:
    """Return an interval in time, or raise a `SettingError` if it is none, or given together with frames."""
    if interval is None:
        return None
    if frames != 1:
        raise SettingError(
            f"`{name}` stands in place of `{frames_name}`: give one of them. Got {name}={interval!r} and "
            f"{frames_name}={frames}."
        )
    return _checked_number(interval, name, "above 0", _is_finite_number(interval) and interval > 0)


def checked_tolerance(tolerance: float | None, stride_interval: float | None) -> float | None:
    """Return the tolerance of an interval (by default half of it), or raise a `SettingError`."""
    if stride_interval is None:
        if tolerance is not None:
            raise SettingError(
                f"`tolerance` says how far frames may be from the points in time of `stride_interval`, which is "
                f"not given. Got tolerance={tolerance!r}."
            )
        return None
    if tolerance is None:
        return stride_interval / 2
    return _checked_number(
        tolerance, "tolerance", "of at least 0", _is_finite_number(tolerance) and tolerance >= 0
    )


def checked_timestamps(timestamps: npt.ArrayLike, edges: Int64Array) -> npt.NDArray[Any]:
    """Return the ``(N,)`` times of frames that increase within each sequence, or raise a `SettingError`.

    Args:
        timestamps: What was given.
        edges: First frame of each sequence, and ``N``; shape ``(S + 1,)``.
    """
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
