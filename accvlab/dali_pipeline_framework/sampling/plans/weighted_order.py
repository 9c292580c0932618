# SPDX-License-Identifier: Apache-2.0
"""Units drawn by weight."""

from __future__ import annotations

import attrs

from ...draws.keyed_random import derive_key
from ..arithmetic.weighted_choice import WeightedChoice
from .orders import EpochOrder, Order
from .planned_batch import Int64Array


@attrs.frozen(eq=False)
class WeightedOrder(Order):
    """Each position draws a unit by weight, with replacement."""

    choice: WeightedChoice
    num_draws: int
    seed: int

    @property
    def num_positions(self) -> int:
        """Draws per epoch."""
        return self.num_draws

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The draws of an epoch."""
        return _Drawn(self.choice, self.num_draws, derive_key("weighted order", self.seed, epoch))


class _Drawn(EpochOrder):
    def __init__(self, choice: WeightedChoice, num_positions: int, key: int) -> None:
        self.num_positions = num_positions
        self._choice = choice
        self._key = key

    def units(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        return self._choice.draw(self._key, positions), positions + 1
