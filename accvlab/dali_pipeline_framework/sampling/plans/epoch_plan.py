# SPDX-License-Identifier: Apache-2.0
"""What all plans of an epoch have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..arithmetic.last_batch import EpochAccount, LastBatch
from .planned_batch import PlannedBatch


class EpochPlan(ABC):
    """The batches of one epoch (or of the rest of one), by random access.

    Attributes:
        num_batches: How many batches there are.
    """

    num_batches: int

    @abstractmethod
    def batch(self, number: int) -> PlannedBatch:
        """Get a batch, ``0 <= number < num_batches``."""

    @abstractmethod
    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan anew what is left after the first ``num_delivered`` batches, e.g. for another batch size.

        No sample is lost or repeated: what this plan and the new one deliver is what this plan would have
        delivered without the break, up to what ``last_batch`` drops, repeats or pads at the end.
        """

    @property
    @abstractmethod
    def account(self) -> EpochAccount:
        """What becomes of the samples."""
