# SPDX-License-Identifier: Apache-2.0
"""Orders of all epochs: which unit, a sample or a sequence, is at which position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import MOST_SAMPLES, whole_number
from ...draws.keyed_draws import Int64Array, derive_key
from ...errors import SettingError
from ..arithmetic.keyed_permutation import KeyedPermutation
from ..arithmetic.weights import WeightedChoice

Weights: TypeAlias = Sequence[float] | npt.NDArray[np.float64]

UnitsAt: TypeAlias = Callable[[Int64Array], tuple[Int64Array, Int64Array]]
"""Gets ``(n,)`` units and ``(n,)`` visits at ``(n,)`` positions of an epoch. The visit is 0 in orders in which no
unit can occur twice, else the position plus 1."""


class Order(ABC):
    """The orders of all epochs.

    Attributes:
        num_positions: Positions per epoch.
    """

    num_positions: int

    @abstractmethod
    def of_epoch(self, epoch: int) -> UnitsAt:
        """Get the function that maps positions of an epoch to units and their visits."""


@attrs.frozen
class ShuffledOrder(Order):
    """Each unit once per epoch: in another random order in each epoch, or in the order of their numbers."""

    num_positions: int
    seed: int
    shuffle: bool

    def of_epoch(self, epoch: int) -> UnitsAt:
        """The order of an epoch."""
        if not self.shuffle:
            return lambda positions: (positions, np.zeros_like(positions))
        permutation = KeyedPermutation(self.num_positions, derive_key("shuffled order", self.seed, epoch))
        return lambda positions: (permutation[positions], np.zeros_like(positions))


@attrs.frozen(eq=False)
class WeightedOrder(Order):
    """Each position draws a unit by weight, with replacement."""

    choice: WeightedChoice
    num_positions: int
    seed: int

    def of_epoch(self, epoch: int) -> UnitsAt:
        """The draws of an epoch."""
        key = derive_key("weighted order", self.seed, epoch)
        return lambda positions: (self.choice.draw(key, positions), positions + 1)


def units_order(
    num_units: int, weights: Weights | None, num_per_epoch: int | None, seed: int, shuffle: bool
) -> Order:
    """Make the order of units: drawn by weight where there are weights, else each once."""
    if weights is None:
        if num_per_epoch is not None:
            got = f"{num_per_epoch!r} without weights, with which each is delivered once per epoch"
            raise SettingError(f"`num_per_epoch` goes with `weights`, got {got}.")
        return ShuffledOrder(num_units, seed, shuffle)
    if not shuffle:
        raise SettingError("`weights` do not go with `shuffle=False`, since draws by weight are random: omit one.")
    choice = WeightedChoice(weights, num_units)
    num_per_epoch = num_units if num_per_epoch is None else num_per_epoch
    num_per_epoch = whole_number(num_per_epoch, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
    return WeightedOrder(choice, num_per_epoch, seed)
