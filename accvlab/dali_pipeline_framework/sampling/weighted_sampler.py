# SPDX-License-Identifier: Apache-2.0
"""Samples drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import MOST_SAMPLES, whole_number
from ..draws.keyed_draws import derive_key, digest
from ..errors import SettingError
from .arithmetic.last_batch import LastBatch
from .arithmetic.weights import WeightedChoice, checked_weights
from .planned_sampler import PlannedSampler
from .plans.epoch_plans import EpochOrder, Order, ShuffledOrder
from .plans.tracks import SampleUnits
from .random_access_sampler import Description

Weights = Sequence[float] | npt.NDArray[np.float64]


class WeightedSampler(PlannedSampler):
    """Each position of an epoch draws a sample by weight, independently of all others (with replacement).

    Weights per class are weights per sample that are looked up: ``class_weights[labels]``;
    `class_balanced_weights` computes weights with which all classes are drawn equally often.

    The length of the epoch does not depend on the weights; it is as many draws as there are samples, unless
    given. So rare samples are seen several times per epoch, and others are not seen in it.

    Example::

        >>> sampler = WeightedSampler([1, 0, 3], 4, num_per_epoch=8)
        >>> 1 in sampler.get_next_batch_indices()
        False
    """

    def __init__(
        self,
        weights: Weights,
        total_batch_size: int | None = None,
        *,
        num_per_epoch: int | None = None,
        seed: int = 0,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            weights: ``(N,)``, one per sample of the data set, at least 0 and not all 0; they need not add up to 1.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            num_per_epoch: Draws per epoch; None for ``N``.
            seed: Seed of the draws, at least 0.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size, last_batch)
        self.seed = whole_number(seed, "seed", at_least=0)
        array = checked_weights(weights, None, "weights")
        self._num_samples = len(array)
        self._digest = digest(array)
        self.order = units_order(self._num_samples, array, num_per_epoch, self.seed, shuffle=True)
        self.unit_table = SampleUnits(self._num_samples)

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_samples": self._num_samples,
            "weights": self._digest,
            "num_per_epoch": self.order.num_positions,
            "seed": self.seed,
        }


@attrs.frozen(eq=False)
class WeightedOrder(Order):
    """Each position draws a unit by weight, with replacement."""

    choice: WeightedChoice
    num_positions: int
    seed: int

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The draws of an epoch."""
        key = derive_key("weighted order", self.seed, epoch)
        return EpochOrder(self.num_positions, lambda positions: (self.choice.draw(key, positions), positions + 1))


def units_order(
    num_units: int, weights: Weights | None, num_per_epoch: int | None, seed: int, shuffle: bool
) -> Order:
    """The order of units: by weight where there are weights, else each once."""
    if weights is None:
        if num_per_epoch is not None:
            raise SettingError(
                f"`num_per_epoch` goes with `weights`: without weights each is delivered once per epoch. Got "
                f"{num_per_epoch!r} without weights."
            )
        return ShuffledOrder(num_units, seed, shuffle)
    if not shuffle:
        raise SettingError(
            "`weights` do not go with `shuffle=False`: draws by weight are random. Leave one of the two out."
        )
    array = checked_weights(weights, num_units, "weights")
    num_per_epoch = num_units if num_per_epoch is None else num_per_epoch
    num_per_epoch = whole_number(num_per_epoch, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
    return WeightedOrder(WeightedChoice(array), num_per_epoch, seed)
