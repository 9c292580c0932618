# SPDX-License-Identifier: Apache-2.0
"""Samples dealt to the shards one by one."""

from __future__ import annotations

import attrs
import numpy as np

from ..arithmetic.last_batch import LastBatch, SampleCounts
from .epoch_plan import EpochPlan
from .planned_batch import PlannedBatch


class StridedPlan(EpochPlan):
    """A plan of single samples whose batches are dealt to the shards as cards: the first one, the second one, ...

    Two shards with batches of three (``A`` is the first sample of the order)::

        shard 0 | A C E | G I K
        shard 1 | B D F | H J L
    """

    def __init__(self, plan: EpochPlan, total_batch_size: int, num_shards: int) -> None:
        """Deal the batches of a plan."""
        self._plan = plan
        self._sources = np.arange(total_batch_size).reshape(-1, num_shards).T.ravel()
        self.num_batches = plan.num_batches

    @property
    def num_begun_batches(self) -> int:
        """Number of batches that can be asked for."""
        return self._plan.num_begun_batches

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch."""
        planned = self._plan.batch(number)
        return PlannedBatch(*(getattr(planned, field.name)[self._sources] for field in attrs.fields(PlannedBatch)))

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Deal what is left to other shards."""
        rest = self._plan.rest(num_delivered, total_batch_size, num_shards, last_batch)
        return StridedPlan(rest, total_batch_size, num_shards)

    @property
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
        return self._plan.sample_counts
