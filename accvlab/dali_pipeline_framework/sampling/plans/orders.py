# SPDX-License-Identifier: Apache-2.0
"""Which unit stands at which position of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import attrs
import numpy as np

from ...draws.keyed_random import derive_key
from ..arithmetic.keyed_permutation import KeyedPermutation
from .planned_batch import Int64Array


@attrs.frozen(eq=False)
class EpochOrder:
    """The units of one epoch in order.

    Attributes:
        num_positions: How many positions the epoch has.
        units: Gets ``(n,)`` units and ``(n,)`` visits at ``(n,)`` positions. The visit is 0 in orders in which no
            unit can stand twice, else the position plus 1.
        permutation: The order, where it is a permutation of all units that is not listed, else None.
    """

    num_positions: int
    units: Callable[[Int64Array], tuple[Int64Array, Int64Array]]
    permutation: KeyedPermutation | None = None


class Order(ABC):
    """The orders of all epochs.

    Attributes:
        num_positions: Positions per epoch.
    """

    num_positions: int

    @abstractmethod
    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""


@attrs.frozen
class ShuffledOrder(Order):
    """Each unit once per epoch: in another random order in each epoch, or in the order of their numbers."""

    num_positions: int
    seed: int
    shuffle: bool

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""
        if not self.shuffle:
            return EpochOrder(self.num_positions, lambda positions: (positions, np.zeros_like(positions)))
        permutation = KeyedPermutation(self.num_positions, derive_key("shuffled order", self.seed, epoch))
        return EpochOrder(
            self.num_positions,
            lambda positions: (permutation[positions], np.zeros_like(positions)),
            permutation if permutation.is_network else None,
        )
