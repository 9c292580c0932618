# SPDX-License-Identifier: Apache-2.0
"""Input in shuffled or sequential order, dealt to shards."""

from __future__ import annotations

import copy
from typing import cast

from nvidia.dali import types

from ..checks import MOST_IN_BATCH, check_shard, whole_number
from ..errors import SettingError
from ..providers.data_provider import DataProvider, check_number_of_samples
from ..sampling.arithmetic.last_batch import LastBatch, check_last_batch
from ..sampling.samplers import ShardedPermutationSampler
from .planned_input import PlannedInput


class ShuffledShardedInputCallable(PlannedInput):
    """Each shard delivers its equal share of the data set once per epoch.

    In epoch ``e`` the samples are put into the order ``numpy.random.default_rng(seed + e).permutation(N)``
    (with ``shuffle=False``: ``0 .. N-1``), and shard ``k`` delivers positions ``[k * S, (k + 1) * S)`` of
    it, where ``S = N // num_shards``::

        order of epoch e   | 7 2 9 0 | 4 1 8 3 | 6 5
                             shard 0   shard 1   dropped (N = 10, num_shards = 2 would give 5 + 5)

    Dropped in each epoch: the ``N - S * num_shards`` samples at the end of the order, and the samples of
    a shard that do not fill a last batch. With another policy than ``"drop"`` for the last batch, shard ``k``
    delivers the positions ``[k * N // num_shards, (k + 1) * N // num_shards)``, and all of them.
    """

    takes_any_batch_size = True  # as published: only `length` depends on the one that it was given
    _keeps_batch_size_per_shard = True

    def __init__(
        self,
        data_provider: DataProvider,
        batch_size: int,
        shard_id: int = 0,
        num_shards: int = 1,
        shuffle: bool = False,
        seed: int = 21,
        *,
        last_batch: LastBatch = "drop",
        context_name: str | None = None,
    ) -> None:
        """Create the input.

        Args:
            data_provider: The data set.
            batch_size: Samples per batch on this shard; the pipeline must have the same batch size.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).
            shuffle: Whether each epoch has a random order of its own.
            seed: Seed of the orders, at least 0. All shards must use the same seed.
            last_batch: What becomes of a last batch that is not full.
            context_name: Name of a group that is added to each sample and tells where it stands (see
                `SamplerInputCallable`). None: no such group.

        Raises:
            SettingError: An argument is out of its range, the data set is empty, or (with ``"drop"``) the shard
                holds fewer samples than one batch.
        """
        size = whole_number(batch_size, "batch_size", at_least=1, at_most=MOST_IN_BATCH)
        _, shards = check_shard(shard_id, num_shards)
        seed = whole_number(seed, "seed", at_least=0)
        num_samples = check_number_of_samples(data_provider)
        shard_size = num_samples // shards
        if shard_size < size and check_last_batch(last_batch) == "drop":
            raise SettingError(
                f"A shard must hold at least one batch: {num_samples} samples dealt to {shards} "
                f"shard(s) give {shard_size} each, but `batch_size` is {size}. "
                f"Use a smaller batch size, fewer shards, or more data."
            )
        sampler = ShardedPermutationSampler(num_samples, size * shards, seed, bool(shuffle), last_batch)
        sampler = sampler.with_settings(num_shards=shards)
        super().__init__(data_provider, sampler, shard_id, shards, context_name)

    def for_pipeline(self, batch_size: int) -> tuple[ShuffledShardedInputCallable, str]:
        """Get a copy for a pipeline of another batch size, which delivers the samples in the same order.

        Args:
            batch_size: Samples per batch of the pipeline, on this shard.

        Returns:
            The copy, and what the difference means for the user.

        Raises:
            SettingError: With this batch size an epoch has no batches; or the last batch is not dropped, but
                completed for the batch size of this input.
        """
        own = self.batch_size
        if self._sampler.last_batch != "drop":
            raise SettingError(
                f"The batch sizes of input and pipeline must be equal with "
                f"last_batch={self._sampler.last_batch!r}: {type(self).__name__} is set up for {own} samples per "
                f"batch (on this shard), the pipeline for batch_size={batch_size}. Leave `batch_size` out in the "
                f"pipeline to use that of the input."
            )
        changed = copy.copy(self)
        changed._forget()
        changed._sampler = self._sampler.with_settings(
            total_batch_size=batch_size * self._num_shards, num_shards=self._num_shards
        )
        changed._check_batch_size()
        shard_size = self._num_samples // self._num_shards
        num_dropped = shard_size % batch_size
        samples = f"the {shard_size} samples of this shard"
        last = f"the last {num_dropped} of {samples}, which do not fill a batch"
        dropped = f"drops {last if num_dropped else f'none of {samples}'}"
        return changed, (
            f"{type(self).__name__} was created with batch_size={own}, the pipeline has "
            f"batch_size={batch_size}. The order of the samples is the same; an epoch has "
            f"{shard_size // batch_size} batches of {batch_size} and {dropped}. The `length` of "
            f"the input, {self.length}, counts batches of {own}. Give both the same batch size."
        )

    # The published input answers for any sample of its shard, also for those that DALI then drops, and looks
    # at nothing but the position in the epoch.

    @property
    def _leaves_out_empty_slots(self) -> bool:
        return self._sampler.last_batch in ("drop", "partial")

    def _number_in_batch(self, sample_info: types.SampleInfo) -> int:
        number: int = sample_info.idx_in_epoch % (self.batch_size or 1)
        return number

    def _has_batch(self, epoch: int, batch: int) -> bool:
        return batch < cast(ShardedPermutationSampler, self._sampler).num_begun_batches(epoch)
