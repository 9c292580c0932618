# SPDX-License-Identifier: Apache-2.0
"""Input in the order of a sampler, loaded by any number of workers."""

from __future__ import annotations

from typing import Any

from nvidia.dali import types

from accvlab.dali_pipeline_framework.inputs.callable_base import CallableBase
from accvlab.dali_pipeline_framework.inputs.data_provider import DataProvider
from accvlab.dali_pipeline_framework.inputs.sample_loading import SampleLoader, input_blueprint
from accvlab.dali_pipeline_framework.inputs.sampler_base import SamplerBase
from accvlab.dali_pipeline_framework.inputs.sampler_replay import BatchChecker, SamplerReplay
from accvlab.dali_pipeline_framework.inputs.sequence_sampler import check_sequences_fit
from accvlab.dali_pipeline_framework.inputs.settings import (
    check_number_of_samples,
    check_shard,
    whole_number,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


class SamplerInputCallable(CallableBase):
    """Delivers the batches of a sampler; several workers share the loading.

    The sampler chooses global batches of ``B`` samples; shard ``k`` of ``n`` delivers the slots
    ``[k * B / n, (k + 1) * B / n)`` of each.

    Each worker plays a copy of the sampler of its own, so the sampler must be deterministic. No table of
    indices is built or pickled.
    """

    def __init__(
        self,
        data_provider: DataProvider,
        sampler: SamplerBase,
        max_num_iterations: int | None = None,
        pre_fetch_queue_length: int = 0,
        shard_id: int = 0,
        num_shards: int = 1,
    ) -> None:
        """Create the input.

        Args:
            data_provider: The data set.
            sampler: Chooses the samples; it must not have been used before.
            max_num_iterations: Number of batches, over all epochs, after which the input ends. None: no limit.
            pre_fetch_queue_length: Added to ``max_num_iterations``, for the batches that are prefetched but
                not delivered.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).

        Raises:
            SettingError: An argument is out of its range, the data set is empty, or the first batch of the
                sampler cannot be dealt evenly to the shards.
        """
        self._loader = SampleLoader(data_provider)
        self._shard_id, self._num_shards = check_shard(shard_id, num_shards)
        self._max_batches: int | None = None
        if max_num_iterations is not None:
            self._max_batches = whole_number(max_num_iterations, "max_num_iterations", at_least=1)
            self._max_batches += whole_number(pre_fetch_queue_length, "pre_fetch_queue_length", at_least=0)
        num_samples = check_number_of_samples(data_provider)
        check_sequences_fit(sampler, num_samples)
        checker = BatchChecker(type(sampler).__name__, self._num_shards, num_samples)
        self._replay = SamplerReplay(sampler, checker, self._max_batches)
        self._is_epoch_based = bool(sampler.is_epoch_based)
        self._shard_batch_size = len(self._replay.get(0, 0)) // self._num_shards

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples, with mappings switched off."""
        return input_blueprint(self._loader.provider)

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Load the sample at a position of the epoch, as a flat tuple.

        Raises:
            StopIteration: The epoch has no such batch.
            RuntimeError: The maximum number of iterations is used up.
        """
        return self._loader.load(self._sample_index(sample_info))

    def _sample_index(self, sample_info: types.SampleInfo) -> int:
        batch: int = sample_info.idx_in_epoch // self._shard_batch_size
        slot: int = sample_info.idx_in_batch + self._shard_id * self._shard_batch_size
        return self._replay.get(sample_info.epoch_idx, batch)[slot]

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Index of the sample at a position, or None behind the end of the epoch."""
        try:
            return self._sample_index(sample_info)
        except (StopIteration, RuntimeError):
            return None

    @property
    def length(self) -> int | None:
        """Number of batches of the first epoch; the limit of an endless sampler, None without one."""
        if not self._is_epoch_based:
            return self._max_batches
        return self._replay.num_batches(0)

    @property
    def num_batches_per_epoch(self) -> int | None:  # type: ignore[override]
        """Same as `length`."""
        return self.length

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """Samples per batch on this shard."""
        return self._shard_batch_size

    @property
    def has_epochs(self) -> bool:  # type: ignore[override]
        """Whether the sampler is epoch-based."""
        return self._is_epoch_based
