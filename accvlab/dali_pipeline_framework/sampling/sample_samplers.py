# SPDX-License-Identifier: Apache-2.0
"""Samplers of single samples: shuffled, in order, by weight, or with a range of the order for each shard."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..checks import MOST_SAMPLES, flag, whole_number
from ..draws.keyed_draws import digest
from .arithmetic.last_batch import LastBatch, SampleCounts
from .arithmetic.weights import checked_weights
from .planned_sampler import EpochPlanSampler, PlannedSampler
from .plans.epoch_plans import EpochPlan, ShuffledOrder, Weights, units_order
from .plans.planned_batch import Int64Array, PlannedBatch
from .plans.tracks import SampleUnits
from .random_access_sampler import Description


class RangePlan(EpochPlan):
    """Samples in an order, cut into one range per shard."""

    def __init__(
        self,
        num_positions: int,
        make_order: Callable[[], Int64Array] | None,
        total_batch_size: int,
        num_shards: int,
        last_batch: LastBatch,
    ) -> None:
        """Divide the positions of the order among the shards.

        Args:
            num_positions: Number of samples, ``N``.
            make_order: Makes the ``(N,)`` samples at all positions, when the first batch is asked for; None for
                the order of the data set.
            total_batch_size: Samples per batch, all shards together; a multiple of ``num_shards``.
            num_shards: Number of shards.
            last_batch: With ``"drop"`` all shards get ranges of the same length, and what is left over at the end
                of the order is dropped; otherwise the lengths differ by at most 1.
        """
        self._make_order = make_order
        self._num_positions = num_positions
        self._batch_size = total_batch_size // num_shards
        self._num_shards = num_shards
        self._last_batch = last_batch
        shards = np.arange(num_shards + 1)
        if last_batch == "drop":
            bounds = shards * (num_positions // num_shards)
        else:
            bounds = shards * num_positions // num_shards
        self._first, self._stop = bounds[:-1], bounds[1:]
        self._sizes = self._stop - self._first
        self._num_begun = -(-int(self._sizes.max()) // self._batch_size)
        self.num_batches = int(self._sizes[0]) // self._batch_size if last_batch == "drop" else self._num_begun

    @functools.cached_property
    def _order(self) -> Int64Array | None:
        return None if self._make_order is None else self._make_order()

    @property
    def num_begun_batches(self) -> int:
        """Number of batches, with one that is dropped, since it is not full."""
        return self._num_begun

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch; also one that is dropped, since it is not full (``number < num_begun_batches``)."""
        slots = np.arange(number * self._batch_size, (number + 1) * self._batch_size)
        positions = self._first[:, None] + slots  # (num_shards, batch size)
        beyond = positions >= self._stop[:, None]
        visits = np.zeros(positions.shape, np.int64)
        if self._last_batch == "wrap":
            positions = self._first[:, None] + slots % np.maximum(self._sizes, 1)[:, None]
            visits, beyond = -1 * beyond.astype(np.int64), np.zeros_like(beyond)
        else:
            positions = np.where(beyond, self._stop[:, None] - 1, positions)
        indices = self._samples_at(np.clip(positions.ravel(), 0, self._num_positions - 1))
        return PlannedBatch(indices, beyond.ravel(), visit=visits.ravel())

    def _samples_at(self, positions: Int64Array) -> Int64Array:
        return positions if self._order is None else self._order[positions]

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan what the shards have left, and behind it what would have been dropped."""
        done = np.minimum(self._first + num_delivered * self._batch_size, self._stop)
        starts, stops = [*done.tolist(), self._stop[-1]], [*self._stop.tolist(), self._num_positions]
        left = np.concatenate(list(map(np.arange, starts, stops)))
        return RangePlan(
            len(left), functools.partial(self._samples_at, left), total_batch_size, num_shards, last_batch
        )

    @property
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
        num_slots = self.num_batches * self._batch_size
        num_delivered = int(np.minimum(self._sizes, num_slots).sum())
        return SampleCounts.of_slots(
            self._last_batch,
            num_batches=self.num_batches,
            num_samples=self._num_positions,
            num_delivered=num_delivered,
            num_slots=num_slots * self._num_shards,
        )


class ShardedPermutationSampler(EpochPlanSampler):
    """Shard ``k`` has a range of the order ``numpy.random.default_rng(seed + epoch).permutation(N)``.

    The permutation of the epoch is made in each process that asks for it.
    """

    has_slots = True
    depends_on_shards = True

    def __init__(
        self, num_samples: int, total_batch_size: int | None, seed: int, shuffle: bool, last_batch: LastBatch
    ) -> None:
        """Set up; the arguments were checked."""
        super().__init__(total_batch_size, last_batch, num_samples, _described(num_samples, seed, shuffle))
        self._seed = seed
        self._shuffle = shuffle

    def num_begun_batches(self, epoch: int) -> int:
        """Number of batches of an epoch, with one that is dropped, since it is not full."""
        return self.num_batches_before(epoch) + self._plan(epoch).num_begun_batches

    def _permutation(self, epoch: int) -> Int64Array:
        return np.random.default_rng(seed=self._seed + epoch).permutation(self._num_samples)

    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        make_order = functools.partial(self._permutation, epoch) if self._shuffle else None
        return RangePlan(self._num_samples, make_order, total_batch_size, num_shards, self.last_batch)


def _described(num_samples: int, seed: int, shuffle: bool) -> Description:
    return {"num_samples": num_samples, "seed": seed if shuffle else None, "shuffle": shuffle}


class ShuffledSampler(PlannedSampler):
    """Each sample once per epoch, in an order that is shuffled anew in each epoch.

    The order is computed sample by sample (`KeyedPermutation`): it needs no memory, whatever the size of the
    data set. Batch ``b`` of an epoch has the positions ``[b * B, (b + 1) * B)`` of its order.

    Example::

        >>> sampler = ShuffledSampler(10, 4, seed=1, last_batch="pad")
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(3)]
        [[6, 1, 2, 8], [3, 7, 9, 5], [4, 0, 0, 0]]
        >>> sampler.get_padding(epoch=0, batch=2).tolist()
        [False, False, True, True]
    """

    def __init__(
        self,
        num_samples: int,
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set, from 1 to 2**62.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            seed: Seed of the orders, at least 0.
            shuffle: Whether to shuffle; otherwise each epoch has the order ``0, 1, 2, ...``, as that of
                `SequentialSampler`, which delivers the last samples too.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        self.seed = whole_number(seed, "seed", at_least=0)
        self.shuffles = flag(shuffle, "shuffle")
        settings = _described(num_samples, self.seed, self.shuffles)
        super().__init__(total_batch_size, last_batch, num_samples, settings)
        self.order = ShuffledOrder(num_samples, self.seed, self.shuffles)
        self.unit_table = SampleUnits(num_samples)


class SequentialSampler(PlannedSampler):
    """The samples ``0, 1, 2, ...`` in each epoch, for evaluation.

    By default each sample is delivered exactly once, as by PyTorch's sampler of this name: the last batch may be
    smaller. With several shards it is divided among them, so some may have one batch less than others. Where all
    need the same number of batches, since they communicate in each, use ``last_batch="pad"`` and leave the samples
    that are marked as padding out of the metrics.

    Example::

        >>> sampler = SequentialSampler(10, 4)
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(3)]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
        >>> sampler.get_padding(epoch=0, batch=2).tolist()  # left out of the batch with "partial"
        [False, False, True, True]
    """

    shuffles = False

    def __init__(
        self, num_samples: int, total_batch_size: int | None = None, *, last_batch: LastBatch = "partial"
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set, from 1 to 2**62.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        super().__init__(total_batch_size, last_batch, num_samples, {"num_samples": num_samples})
        self.order = ShuffledOrder(num_samples, 0, False)
        self.unit_table = SampleUnits(num_samples)


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
        self.seed = whole_number(seed, "seed", at_least=0)
        array = checked_weights(weights, None, "weights")
        self.order = units_order(len(array), array, num_per_epoch, self.seed, shuffle=True)
        self.unit_table = SampleUnits(len(array))
        settings: Description = {
            "num_samples": len(array),
            "weights": digest(array),
            "num_per_epoch": self.order.num_positions,
            "seed": self.seed,
        }
        super().__init__(total_batch_size, last_batch, len(array), settings)
