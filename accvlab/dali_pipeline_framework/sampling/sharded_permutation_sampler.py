# SPDX-License-Identifier: Apache-2.0
"""The order of `ShuffledShardedInputCallable`, as a sampler of all shards."""

from __future__ import annotations

import functools

import numpy as np

from ..errors import SettingError
from .arithmetic.last_batch import LastBatch
from .planned_sampler import EpochPlanSampler
from .plans.epoch_plan import EpochPlan
from .plans.planned_batch import Int64Array, PlannedBatch
from .plans.range_plan import RangePlan
from .random_access_sampler import Description


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
        super().__init__(total_batch_size, last_batch)
        self._num_samples = num_samples
        self._seed = seed
        self._shuffle = shuffle

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_samples": self._num_samples,
            "seed": self._seed if self._shuffle else None,
            "shuffle": self._shuffle,
        }

    def num_begun_batches(self, epoch: int) -> int:
        """Number of batches of an epoch, with one that is dropped, since it is not full."""
        plan = self._plan(epoch)
        return self.num_batches_before(epoch) + (plan.num_begun_batches if isinstance(plan, RangePlan) else 0)

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch of an epoch; also of one that is dropped, since it is not full."""
        before, stop = self.num_batches_before(epoch), self.num_begun_batches(epoch)
        if not before <= batch < stop:
            raise SettingError(
                f"Epoch {epoch} has the batches {before} .. {stop - 1}, asked for was batch {batch}."
            )
        return self._plan(epoch).batch(batch - before)

    def _permutation(self, epoch: int) -> Int64Array:
        return np.random.default_rng(seed=self._seed + epoch).permutation(self._num_samples)

    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        make_order = functools.partial(self._permutation, epoch) if self._shuffle else None
        return RangePlan(make_order, [(0, self._num_samples)], total_batch_size, num_shards, self.last_batch)
