# SPDX-License-Identifier: Apache-2.0
"""Which unit stands at which position of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import numpy as np

from ...draws.keyed_random import derive_key
from ..arithmetic.keyed_permutation import KeyedPermutation
from .planned_batch import Int64Array


class EpochOrder(ABC):
    """The units of one epoch in order.

    Attributes:
        num_positions: How many positions the epoch has.
        permutation: The order, where it is a permutation of all units, else None.
    """

    num_positions: int
    permutation: KeyedPermutation | None = None

    @abstractmethod
    def units(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Get ``(n,)`` units and ``(n,)`` visits at ``(n,)`` positions.

        The visit is 0 in orders in which no unit can stand twice, else the position plus 1.
        """


class Order(ABC):
    """The orders of all epochs."""

    @property
    @abstractmethod
    def num_positions(self) -> int:
        """Positions per epoch."""

    @abstractmethod
    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""


@attrs.frozen
class ShuffledOrder(Order):
    """Each unit once per epoch: in another random order in each epoch, or in the order of their numbers."""

    num_units: int
    seed: int
    shuffle: bool

    @property
    def num_positions(self) -> int:
        """Positions per epoch: one per unit."""
        return self.num_units

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""
        if not self.shuffle:
            return _InOrder(self.num_units)
        return _Permuted(self.num_units, derive_key("shuffled order", self.seed, epoch))


class _InOrder(EpochOrder):
    def __init__(self, num_units: int) -> None:
        self.num_positions = num_units

    def units(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return positions, np.zeros(len(positions), np.int64)


class _Permuted(EpochOrder):
    def __init__(self, num_units: int, key: int) -> None:
        self.num_positions = num_units
        self.permutation: KeyedPermutation = KeyedPermutation(num_units, key)

    def units(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return self.permutation[positions], np.zeros(len(positions), np.int64)
