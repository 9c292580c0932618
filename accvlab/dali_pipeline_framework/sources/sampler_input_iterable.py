# SPDX-License-Identifier: Apache-2.0
"""Input in the order of a sampler, loaded by one worker."""

from __future__ import annotations

from typing import Any

from ..checks import check_shard
from ..providers.data_provider import DataProvider
from ..providers.data_set_checks import check_number_of_samples, check_sampler_fits
from ..providers.sample_loading import SampleLoader, input_blueprint
from ..providers.summary import summary
from ..sample_data import SampleDataGroup
from ..sampling.random_access_sampler import RandomAccessSampler
from ..sampling.sampler_base import SamplerBase
from ..sampling.sampler_replay import BatchChecker
from ..unknown_arguments import explains_unknown_arguments
from .iterable_base import IterableBase
from .planned_input import slots_of_shard
from .sampler_input_callable import SamplerInputCallable


class SamplerInputIterable(IterableBase):
    """Delivers the batches of a sampler, one sample after the other in a single worker.

    The sampler chooses global batches of ``B`` samples; shard ``k`` of ``n`` delivers the slots
    ``[k * B / n, (k + 1) * B / n)`` of each. `SamplerInputCallable` delivers the same and lets several
    workers load.
    """

    shard: tuple[int, int]

    @explains_unknown_arguments()
    def __init__(
        self, data_provider: DataProvider, sampler: SamplerBase, shard_id: int = 0, num_shards: int = 1
    ) -> None:
        """Create the input.

        Args:
            data_provider: The data set.
            sampler: Chooses the samples.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).

        Raises:
            SettingError: An argument is out of its range, or the data set is empty.
        """
        self._loader = SampleLoader(data_provider)
        self._sampler = sampler
        self.shard = check_shard(shard_id, num_shards)
        num_samples = check_number_of_samples(data_provider)
        check_sampler_fits(sampler, num_samples)
        self._checker = BatchChecker(type(sampler).__name__, self.shard[1], num_samples)
        self._is_used = False

    def __repr__(self) -> str:
        """Return what it reads, and in which order."""
        return f"{type(self).__name__}({summary(self._loader.provider)}, {summary(self._sampler)})"

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples, with mappings switched off."""
        return input_blueprint(self._loader.provider)

    def __iter__(self) -> SamplerInputIterable:
        """Start an epoch: resets an epoch-based sampler that has been used since the last start."""
        if self._is_used and self._sampler.is_epoch_based:
            self._sampler.reset()
        self._is_used = False
        return self

    def __next__(self) -> list[list[Any]]:
        """Load the next batch: per data field (in flat order) a list with one array per sample.

        Raises:
            StopIteration: The epoch of an epoch-based sampler has ended.
            SettingError: The sampler's batch cannot be dealt evenly to the shards, or an index is wrong.
        """
        self._is_used = True
        self.current_sample_indices = indices = self._next_indices()
        if not indices:
            raise StopIteration
        samples = [*self._loader.load_batch(indices, range(len(indices)))]
        return [list(field) for field in zip(*samples, strict=True)]

    def _next_indices(self) -> list[int]:
        if isinstance(self._sampler, RandomAccessSampler) and self._sampler.last_batch == "partial":
            planned = self._sampler.plan_next_batch()
            slots = slots_of_shard(planned, self._sampler.has_slots, *self.shard)
            self._checker.checked(planned.indices.tolist())
            own: list[int] = planned.indices[slots].tolist()
            return own
        batch = self._checker.checked(self._sampler.get_next_batch_indices())
        shard_id, num_shards = self.shard
        size = len(batch) // num_shards
        return batch[shard_id * size : (shard_id + 1) * size]

    def as_callable(self) -> SamplerInputCallable:
        """Get a callable that delivers the same: it has random access, and lets several workers load.

        Raises:
            SettingError: The sampler was used already.
        """
        shard_id, num_shards = self.shard
        return SamplerInputCallable(self._loader.provider, self._sampler, shard_id=shard_id, num_shards=num_shards)

    @property
    def has_random_access(self) -> bool:
        """Whether the sampler can tell any batch without stepping to it."""
        return isinstance(self._sampler, RandomAccessSampler)

    def load_sample(self, sample_index: int) -> tuple[Any, ...]:
        """Load any sample of the data set, as a flat tuple; the order is not affected."""
        return self._loader.load(sample_index)

    @property
    def length(self) -> int | None:
        """Length that the sampler states, None for an endless one."""
        return self._sampler.length

    @property
    def num_batches_per_epoch(self) -> int | None:  # type: ignore[override]
        """Length that an epoch-based sampler states, in batches."""
        return self._sampler.length if self._sampler.is_epoch_based else None

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """Samples per batch on this shard where the sampler tells its total batch size, else None."""
        total = getattr(self._sampler, "total_batch_size", None)
        return None if total is None else int(total) // self.shard[1]

    @property
    def has_epochs(self) -> bool:  # type: ignore[override]
        """Whether the sampler is epoch-based."""
        return bool(self._sampler.is_epoch_based)
