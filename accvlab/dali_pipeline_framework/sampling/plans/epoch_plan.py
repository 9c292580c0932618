# SPDX-License-Identifier: Apache-2.0
"""Base class of the plans of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..arithmetic.last_batch import LastBatch, SampleCounts
from .planned_batch import PlannedBatch


class EpochPlan(ABC):
    """The batches of one epoch (or of the rest of one), by random access; ``num_batches`` of them."""

    num_batches: int

    @property
    def num_begun_batches(self) -> int:
        """Number of batches that can be asked for: also one that is dropped, where the plan has that."""
        return self.num_batches

    @abstractmethod
    def batch(self, number: int) -> PlannedBatch:
        """Get a batch, ``0 <= number < num_begun_batches``."""

    @abstractmethod
    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan what is left after the first ``num_delivered`` batches, for another batch size or number of shards.

        No sample is lost or repeated: this plan up to there and the new one deliver what this plan alone would
        have delivered, up to what ``last_batch`` drops, repeats or pads at the end.
        """

    @property
    @abstractmethod
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
