# SPDX-License-Identifier: Apache-2.0
"""A weighted choice that is computed draw by draw."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...draws.keyed_random import UInt64Array, random_uniform
from .class_weights import checked_weights


class WeightedChoice:
    """Draws items with replacement, each with a chance in proportion to its weight.

    Draw ``i`` of a key is a function of the two: the item at which the running sum of the weights exceeds a
    random part of the total. An item of weight 0 is never drawn. Memory: 8 bytes per item.

    Example::

        >>> WeightedChoice([1, 0, 3]).draw(7, np.arange(8)).tolist()
        [2, 0, 2, 2, 2, 0, 2, 2]
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        """Add up the weights: ``(N,)``, at least 0 and not all 0; they need not add up to 1."""
        checked = checked_weights(weights, None, "weights")
        # Scaling by a power of two is exact. It keeps the sum from overflowing, and from being so small (denormal)
        # that few values lie below it.
        scaled = np.ldexp(checked, -math.frexp(checked.max())[1])
        self._thresholds = np.cumsum(scaled)

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self._thresholds)

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
