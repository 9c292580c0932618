# SPDX-License-Identifier: Apache-2.0
"""A random order of any number of items that is computed item by item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from ...draws.keyed_draws import random_bits

_NUM_ROUNDS = 8
_FEW_ITEMS = 512  # for so few the distance between two items is not quite uniform; sorting them costs 25 us once
_FEW_POSITIONS = 6  # for so few Python's integers are faster than the fixed cost of NumPy's operations
_MASK = 0xFFFFFFFFFFFFFFFF
_HALF = np.array(32, np.uint64)  # NumPy computes faster with arrays without dimensions than with scalars


class KeyedPermutation:
    """A permutation of ``0 .. size-1``, chosen by a key; needs no memory and no preparation.

    A Feistel network on pairs: item ``i`` is written as ``(i // b, i % b)`` with ``a * b >= size`` and ``a`` and
    ``b`` about the square root of it. In each round a keyed hash of one half (a sum, a product, and the middle
    bits of its square) is added to the other half, modulo its range, which can be undone, so different items
    stay different. An item that lands in ``[size, a * b)`` is sent through again until it lands below ``size``
    (cycle walking); that is rare, since ``a * b - size < a``. See Black and Rogaway, "Ciphers with arbitrary
    finite domains" (2002), method 3. Up to 512 items are sorted by random numbers instead.
    """

    def __init__(self, size: int, key: int) -> None:
        """Choose the permutation of ``size`` items (at least 1, at most ``2**62``) by a 64-bit key."""
        self.size = size
        self._table: npt.NDArray[np.int64] | None = None
        if size <= _FEW_ITEMS:
            self._table = np.argsort(random_bits(key, np.arange(size)), kind="stable")
            return
        self._left_range = math.isqrt(size - 1) + 1  # ceil(sqrt(size))
        self._right_range = -(-size // self._left_range)
        keys = random_bits(key, np.arange(2 * _NUM_ROUNDS))
        keys[1::2] |= np.uint64(1)  # a factor must be odd
        ranges = np.array([self._left_range, self._right_range], np.uint64)
        self._parameters = [np.array(each) for each in np.concatenate((ranges, keys))]
        self._round_keys = list(zip(keys[::2].tolist(), keys[1::2].tolist(), strict=True))

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...

    def __getitem__(self, position: int | npt.NDArray[np.int64]) -> int | npt.NDArray[np.int64]:
        """Get the item at a position in ``[0, size)``, or the ``(n,)`` items at ``(n,)`` positions."""
        if self._table is not None:
            return self._table[position] if isinstance(position, np.ndarray) else int(self._table[position])
        if not isinstance(position, np.ndarray):
            return self._get_one(position)
        if position.size > _FEW_POSITIONS:
            return self._get_many(position)
        return np.array([self._get_one(each) for each in position.tolist()], dtype=np.int64)

    def _get_one(self, item: int) -> int:
        left_range, right_range = self._left_range, self._right_range
        while True:
            left, right = divmod(item, right_range)
            for number, (addend, factor) in enumerate(self._round_keys):
                mixed = ((right if number % 2 == 0 else left) + addend) * factor & _MASK
                mixed = (mixed * mixed & _MASK) >> 32
                if number % 2 == 0:
                    left = (left + mixed) % left_range
                else:
                    right = (right + mixed) % right_range
            item = left * right_range + right
            if item < self.size:
                return item

    def _get_many(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        items = _send_through(positions.astype(np.uint64), self._parameters).astype(np.int64)
        outside = np.flatnonzero(items >= self.size)
        if outside.size:
            items[outside] = self[items[outside]]
        return items


def _send_through(
    items: npt.NDArray[np.uint64], parameters: Sequence[npt.NDArray[np.uint64]]
) -> npt.NDArray[np.uint64]:
    """Send ``(n,)`` items once through a network given by its ranges and the keys of each round."""
    halves = list(np.divmod(items, parameters[1]))
    for number in range(_NUM_ROUNDS):
        changed = number % 2
        mixed = halves[1 - changed] + parameters[2 + 2 * number]
        mixed *= parameters[3 + 2 * number]
        mixed *= mixed
        mixed >>= _HALF
        mixed += halves[changed]
        mixed %= parameters[changed]
        halves[changed] = mixed
    combined: npt.NDArray[np.uint64] = halves[0] * parameters[1] + halves[1]
    return combined
