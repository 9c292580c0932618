# SPDX-License-Identifier: Apache-2.0
"""Samplers whose epochs are plans, made of an order of units and the samples of each."""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from cachetools import LRUCache

from ..checks import whole_number
from ..draws.keyed_draws import derive_key
from ..errors import SettingError
from .arithmetic.last_batch import LastBatch, SampleCounts
from .plans.epoch_plans import EpochPlan, FlatPlan, StreamPlan
from .plans.orders import Order, ShuffledOrder
from .plans.tracks import PlannedBatch, Segments
from .random_access_sampler import Description, EpochSegment, RandomAccessSampler

_logger = logging.getLogger(__name__)


class EpochPlanSampler(RandomAccessSampler):
    """A sampler whose epochs are `EpochPlan` objects: a begun epoch can continue with another batch size."""

    supports_last_batch = True
    _can_change_batch_size = True

    is_epoch_based = True

    has_equal_epochs = True
    """Whether all epochs have the same number of batches."""

    _has_begun_batches = (
        False  # whether a batch that is dropped can be requested; then an epoch may have no full one
    )

    def __init__(
        self, total_batch_size: int | None, last_batch: LastBatch, num_samples: int, settings: Description
    ) -> None:
        """Set the batch size, see `RandomAccessSampler`, and the settings that the order depends on, by name."""
        super().__init__(total_batch_size, last_batch=last_batch)
        self._num_samples = num_samples
        self._settings: Description = {"sampler": type(self).__name__, **settings}
        self._plans = _no_plans()
        self._has_reported_cuts = False

    @property
    def num_samples(self) -> int:
        """Number of samples that the data set must have."""
        return self._num_samples

    def describe(self) -> Description:
        """Settings on which the order depends, as short values by name."""
        return dict(self._settings)

    def num_batches(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        return self.num_batches_before(epoch) + (self._plans.get(epoch) or self._plan(epoch)).num_batches

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch of an epoch; a `SettingError` where there is no such batch."""
        plan, before = self._plans.get(epoch) or self._plan(epoch), self.num_batches_before(epoch)
        stop = before + (plan.num_begun_batches if self._has_begun_batches else plan.num_batches)
        if not before <= batch < stop:
            raise SettingError(f"Epoch {epoch} has the batches {before} .. {stop - 1}, requested: batch {batch}.")
        return plan.batch(batch - before)

    def sample_counts(self, epoch: int) -> SampleCounts:
        """Sample counts of an epoch, including batches that were delivered with other settings."""
        own = self._plan(epoch).sample_counts
        segments = self._segments(epoch)
        if not segments:
            return own
        begun = self._begin_plan(epoch, segments[0].total_batch_size, segments[0].num_shards).sample_counts
        segments.append(EpochSegment(self._num_shards, self.total_batch_size, own.num_batches))
        num_batches = own.num_batches + self.num_batches_before(epoch)
        num_slots = sum(segment.num_batches * segment.total_batch_size for segment in segments)
        num_delivered = own.num_delivered + begun.num_samples - own.num_samples
        counts = num_batches, num_slots, begun.num_samples, num_delivered, own.num_cuts
        return SampleCounts.of_slots(self.last_batch, *counts)

    def _take_over(self, original: Any) -> None:
        is_same = (self._total_batch_size, self._last_batch) == (original._total_batch_size, original._last_batch)
        if is_same and (not self.depends_on_shards or self._num_shards == original._num_shards):
            self._plans.update(original._plans)  # plans can take a while to make

    def num_batches_of_first(self, num_epochs: int) -> int:
        """Number of batches of the first epochs together."""
        if self.has_equal_epochs and self._history[0] >= num_epochs:
            return num_epochs * self.num_batches(0) if num_epochs else 0
        return super().num_batches_of_first(num_epochs)

    def _plan(self, epoch: int) -> EpochPlan:
        plan = self._plans.get(epoch)
        if plan is None:
            plan = self._make_plan(whole_number(epoch, "epoch", at_least=0))
            may_be_empty = self._has_begun_batches or epoch > 0 or self._segments(epoch)
            if plan.num_batches == 0 and not may_be_empty:
                raise SettingError(
                    f"An epoch must have at least one batch: {type(self).__name__} has "
                    f"{plan.sample_counts.num_samples} sample(s) for {self.total_batch_size} slots with "
                    f"last_batch='drop'. Use a smaller batch, more data, or last_batch='pad'."
                )
            self._plans[epoch] = plan
        return plan

    def _make_plan(self, epoch: int) -> EpochPlan:
        segments = [*self._segments(epoch), EpochSegment(self._num_shards, self.total_batch_size, 0)]
        plan = self._begin_plan(epoch, segments[0].total_batch_size, segments[0].num_shards)
        for done, following in itertools.pairwise(segments):
            plan = plan.rest(done.num_batches, following.total_batch_size, following.num_shards, self.last_batch)
        return plan

    @abstractmethod
    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        """Plan an epoch from its beginning."""

    def __getstate__(self) -> dict[str, object]:
        # Plans can be large, so each process makes its own; only the main process logs.
        return {**self.__dict__, "_plans": _no_plans(), "_has_reported_cuts": True}

    def _copy(self: Any, history: Any) -> Any:
        changed = super()._copy(history)
        changed._has_reported_cuts = self._has_reported_cuts  # which `__getstate__` has changed
        return changed


class PlannedSampler(EpochPlanSampler, ABC):
    """A sampler with epochs, made of an order of units: samples, or sequences.

    Attributes:
        order: Which unit is at which position of an epoch.
        is_streamed: Whether units are sequences that a slot delivers one after the other (`StreamPlan`); otherwise
            they are samples (`FlatPlan`).
        cuts: Whether streamed units may be cut to make the slots equally long.
        shuffles: Whether the order differs between epochs.
        arguments_elsewhere: What errors say about arguments of PyTorch's samplers, by their names.
    """

    arguments_elsewhere: ClassVar[Mapping[str, str]] = {
        "drop_last": "Pass `last_batch`: 'drop', or 'partial' for False.",
        "batch_size": "Pass `total_batch_size`, or give the loader its `batch_size`.",
        **dict.fromkeys(("rank", "world_size", "num_replicas"), "Pass `shard` to the loader."),
    }

    order: Order
    is_streamed: bool = False
    cuts: bool = False
    shuffles: bool = True
    seed: int = 0

    def sequences(self) -> Segments:
        """Get the sequences, the units of a sampler with ``is_streamed``."""
        raise NotImplementedError

    @property
    def has_equal_epochs(self) -> bool:  # type: ignore[override]
        """Whether all epochs have the same number of batches; False for weighted or mixed sequences."""
        return not self.is_streamed or isinstance(self.order, ShuffledOrder)

    def _make_plan(self, epoch: int) -> EpochPlan:
        plan = super()._make_plan(epoch)
        if plan.sample_counts.num_cuts and not self.cuts and not self._has_reported_cuts:
            self._has_reported_cuts = True
            _logger.warning(
                "%s: there are fewer sequences than the %d slots, so they are cut into segments (%d cuts per "
                "epoch): a sequence is in several slots at once. Use a smaller batch to avoid that.",
                type(self).__name__,
                self.total_batch_size,
                plan.sample_counts.num_cuts,
            )
        return plan

    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        units_at, num_positions = self.order.of_epoch(epoch), self.order.num_positions
        if not self.is_streamed:
            return FlatPlan(num_positions, units_at, total_batch_size, self.last_batch)
        units, visits = units_at(np.arange(num_positions))
        segments = self.sequences().select(units)._replace(visits=visits)
        key = derive_key("within the epoch", self.seed, epoch) if self.shuffles else None
        return StreamPlan(segments, total_batch_size, self.last_batch, key, self.cuts)


def _no_plans() -> LRUCache[int, EpochPlan]:
    return LRUCache(2)  # the running epoch, and the next one that is prefetched
