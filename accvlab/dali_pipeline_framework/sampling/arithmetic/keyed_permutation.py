# SPDX-License-Identifier: Apache-2.0
"""A random order of any number of items that is computed item by item."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ...draws.keyed_draws import random_bits

_NUM_ROUNDS = 8
_FEW_ITEMS = 512  # for so few the distance between two items is not quite uniform; sorting them costs 25 us once
_HALF = np.array(32, np.uint64)  # NumPy computes faster with arrays without dimensions than with scalars


class KeyedPermutation:
    """A permutation of ``0 .. size-1``, chosen by a key; needs no memory and no preparation.

    A Feistel network on pairs: item ``i`` is written as ``(i // b, i % b)`` with ``a * b >= size`` and ``a`` and
    ``b`` about the square root of it. In each round, a keyed hash of one half is added to the other half, modulo
    the range of that other half. This can be undone, so different items stay different. (The hash: a sum, a
    product, and the middle bits of the square of that.) An item that lands in ``[size, a * b)`` is sent through
    again until it lands below ``size`` (cycle walking); that is rare, since ``a * b - size < a``. See Black and
    Rogaway, "Ciphers with arbitrary finite domains" (2002), method 3. Up to 512 items are sorted by random
    numbers instead.
    """

    def __init__(self, size: int, key: int) -> None:
        """Choose the permutation of ``size`` items (at least 1, at most ``2**62``) by a 64-bit key."""
        self.size = size
        self._table: npt.NDArray[np.int64] | None = None
        if size <= _FEW_ITEMS:
            self._table = np.argsort(random_bits(key, np.arange(size)), kind="stable")
            return
        left_range = math.isqrt(size - 1) + 1  # ceil(sqrt(size))
        self._ranges = [np.array(each, np.uint64) for each in (left_range, -(-size // left_range))]
        keys = random_bits(key, np.arange(2 * _NUM_ROUNDS))
        keys[1::2] |= np.uint64(1)  # a factor must be odd
        self._keys = [np.array(each) for each in keys]

    def __getitem__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Get the ``(n,)`` items at ``(n,)`` positions in ``[0, size)``."""
        if self._table is not None:
            return self._table[positions]
        halves = list(np.divmod(positions.astype(np.uint64), self._ranges[1]))
        for number in range(_NUM_ROUNDS):
            changed = number % 2
            mixed = halves[1 - changed] + self._keys[2 * number]
            mixed *= self._keys[2 * number + 1]
            mixed *= mixed
            mixed >>= _HALF
            mixed += halves[changed]
            mixed %= self._ranges[changed]
            halves[changed] = mixed
        items: npt.NDArray[np.int64] = (halves[0] * self._ranges[1] + halves[1]).astype(np.int64)
        outside = np.flatnonzero(items >= self.size)
        if outside.size:
            items[outside] = self[items[outside]]
        return items
