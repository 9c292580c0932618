# SPDX-License-Identifier: Apache-2.0
"""Draws of items by weights."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...checks import setting_error
from ...draws.keyed_draws import UInt64Array, random_uniform
from ...errors import SettingError

Float64Array = npt.NDArray[np.float64]


def checked_weights(weights: npt.ArrayLike, expected_count: int | None = None) -> Float64Array:
    """Check weights with which items are drawn.

    Args:
        weights: ``(N,)`` numbers of at least 0 and not all 0; they need not add up to 1.
        expected_count: What ``N`` must be; None for any number of at least 1.

    Returns:
        ``(N,)`` float64, a copy.
    """
    try:
        given = np.asarray(weights)
        if given.dtype.kind not in "biufO":
            raise TypeError
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise setting_error("weights", "a sequence of numbers", weights) from error
    if array.ndim != 1 or not array.size:
        raise SettingError(f"`weights` must be of shape (N,) with N > 0, got shape {array.shape}.")
    if expected_count is not None and len(array) != expected_count:
        raise SettingError(f"`weights` must have {expected_count} weights, one per item, got {len(array)}.")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if bad.size:
        raise SettingError(
            f"`weights` must be finite and at least 0, but weights[{bad[0]}] is {array[bad[0]]}"
            f"{f' (and {bad.size - 1} more are wrong)' if bad.size > 1 else ''}."
        )
    if not array.any():
        raise SettingError(f"`weights` must not all be 0: with these {len(array)} weights nothing can be drawn.")
    return array


class WeightedChoice:
    """Draws items with replacement, each with a chance in proportion to its weight.

    Draw ``i`` of a key is a function of the two: the item at which the running sum of the weights exceeds a
    random part of the total. An item of weight 0 is never drawn. Memory: 8 bytes per item.

    Example::

        >>> WeightedChoice([1, 0, 3]).draw(7, np.arange(8)).tolist()
        [2, 0, 2, 2, 2, 0, 2, 2]
    """

    def __init__(self, weights: npt.ArrayLike, expected_count: int | None = None) -> None:
        """Add up the weights, see `checked_weights`."""
        checked = checked_weights(weights, expected_count)
        # Scaling by a power of two is exact. It keeps the sum from overflowing, and from being so small (denormal)
        # that few values lie below it.
        scaled = np.ldexp(checked, -math.frexp(checked.max())[1])
        self._thresholds = np.cumsum(scaled)

    def draw(self, key: int | UInt64Array, counters: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Draw an item for each counter of a key.

        Args:
            key: A key of 64 bits, or an array of them that broadcasts against ``counters``.
            counters: ``(n,)``, which draws of the key: whole numbers of at least 0.

        Returns:
            ``(n,)`` int64, each in ``[0, N)``.
        """
        # random_uniform is at most 1 - 2**-53, so the product rounds to less than the total, and searchsorted
        # never returns N.
        parts_of_total = random_uniform(key, counters) * self._thresholds[-1]
        items: npt.NDArray[np.int64] = np.searchsorted(self._thresholds, parts_of_total, side="right")
        return items
