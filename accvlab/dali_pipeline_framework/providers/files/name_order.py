# SPDX-License-Identifier: Apache-2.0
"""Names in the order of their bytes, without a Python object for each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]

_WIDTH = 8  # bytes of a name that are compared at once
_CHUNK = 1 << 12


class UnorderedNames:
    """Takes names one by one and gives them back in order; their bytes stand one after the other in a buffer."""

    def __init__(self) -> None:
        """Start without names."""
        self._bytes = bytearray()
        self._edges = array("q", [0])

    def __len__(self) -> int:
        return len(self._edges) - 1

    def add(self, name: bytes) -> None:
        """Append a name, which has no NUL in it."""
        self._bytes += name
        self._edges.append(len(self._bytes))

    def in_order(self) -> Iterator[bytes]:
        """Get the names in the order of their bytes. No more can be added."""
        order = self._order()
        for first in range(0, len(order), _CHUNK):
            for position in order[first : first + _CHUNK].tolist():
                yield bytes(self._bytes[self._edges[position] : self._edges[position + 1]])

    def _order(self) -> Int32Array:
        """Find the positions of the names in order, ``(N,)`` int32.

        The first 8 bytes of all names are compared, then the next 8 of those that agreed, and so on::

            img_0001 | .jpg          agrees with the next one in the first step
            img_0001 | .png
            img_0002 | .jpg          has its place after the first step
        """
        self._bytes += bytes(_WIDTH)
        order = np.arange(len(self), dtype=np.int32)
        undecided = order.copy()  # places in `order`
        groups = np.zeros(len(self), np.int32)  # names there that agreed so far have the same; not decreasing
        begun = 0
        while len(undecided):
            keys = self._keys(order[undecided], begun)
            within = np.lexsort((keys, groups))
            order[undecided] = order[undecided[within]]
            keys = keys[within]
            # A group keeps its places, so `groups` is as it was. A key of 0 is that of a name which has ended: all
            # that agree in it are the same name.
            agrees = (keys[1:] == keys[:-1]) & (groups[1:] == groups[:-1]) & (keys[1:] != 0)
            is_first = np.ones(len(keys), np.bool_)
            is_first[1:] = ~agrees
            goes_on = ~is_first
            goes_on[:-1] |= agrees
            groups = np.cumsum(is_first, dtype=np.int32)[goes_on]
            undecided = undecided[goes_on]
            begun += _WIDTH
        return order

    def _keys(self, names: Int32Array, begun: int) -> npt.NDArray[np.uint64]:
        """Get bytes ``begun`` to ``begun + 8`` of names as numbers that compare as they do, ``(n,)`` uint64."""
        edges = np.frombuffer(self._edges, np.int64)
        words = np.ndarray((len(self._bytes) - _WIDTH + 1,), ">u8", self._bytes, strides=(1,))
        keys = np.empty(len(names), np.uint64)
        for first in range(0, len(names), _CHUNK):
            chunk = names[first : first + _CHUNK]
            starts = edges[chunk] + begun
            rest = edges[chunk + 1] - starts  # not above 0: the name has ended
            lacking_bits = np.clip((_WIDTH - rest) * 8, 0, 56).astype(np.uint64)
            values = words[np.minimum(starts, len(words) - 1)].astype(np.uint64)
            keys[first : first + _CHUNK] = np.where(rest > 0, values >> lacking_bits << lacking_bits, 0)
        return keys
