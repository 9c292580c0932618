# SPDX-License-Identifier: Apache-2.0
"""Input in the order of a sampler, loaded by any number of workers."""

from __future__ import annotations

from ..checks import check_shard, shown, whole_number
from ..errors import SettingError
from ..providers.data_provider import DataProvider
from ..providers.data_set_checks import check_number_of_samples
from ..sampling.random_access_sampler import RandomAccessSampler
from ..sampling.sampler_base import SamplerBase
from ..sampling.sampler_replay import ReplayedSampler, used_up_message
from ..unknown_arguments import explains_unknown_arguments
from .planned_input import PlannedInput


class SamplerInputCallable(PlannedInput):
    """Delivers the batches of a sampler; several workers share the loading.

    The sampler chooses global batches of ``B`` samples; shard ``k`` of ``n`` delivers the slots
    ``[k * B / n, (k + 1) * B / n)`` of each.

    A `RandomAccessSampler`, as all samplers of this package are, is asked for each batch directly. Of any other
    sampler each worker plays a copy of its own, so it must be deterministic. No table of indices is built or
    pickled.

    Example::

        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        data_input = SamplerInputCallable(provider, sampler, context_name="position")
    """

    _known_left: tuple[int, int] | None  # an epoch, and how many batches of the maximum are left when it begins

    @explains_unknown_arguments()
    def __init__(
        self,
        data_provider: DataProvider,
        sampler: SamplerBase,
        max_num_iterations: int | None = None,
        pre_fetch_queue_length: int = 0,
        shard_id: int = 0,
        num_shards: int = 1,
        *,
        context_name: str | None = None,
    ) -> None:
        """Create the input.

        Args:
            data_provider: The data set.
            sampler: Chooses the samples. One that has no random access must not have been used before.
            max_num_iterations: Number of batches, over all epochs, after which the input ends. None: no limit.
            pre_fetch_queue_length: Added to ``max_num_iterations``, for the batches that are prefetched but
                not delivered.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).
            context_name: Name of a group that is added to each sample and tells where it stands: the fields of
                `SamplePlace` (epoch, batch, slot, sample_index, sequence, frame, clip as int64; is_first, is_last,
                is_padding as bool). None: no such group.

        Raises:
            SettingError: An argument is out of its range, the data set is empty, or the batches of the sampler
                cannot be dealt evenly to the shards.
        """
        if not isinstance(sampler, SamplerBase):
            hint = " (a class: create an object of it)" if isinstance(sampler, type) else ""
            raise SettingError(f"`sampler` must be a SamplerBase, got {shown(sampler)}{hint}.")
        self._max_batches: int | None = None
        if max_num_iterations is not None:
            self._max_batches = whole_number(max_num_iterations, "max_num_iterations", at_least=1)
            self._max_batches += whole_number(pre_fetch_queue_length, "pre_fetch_queue_length", at_least=0)
        if isinstance(sampler, RandomAccessSampler) and not sampler.is_at_start:
            raise SettingError(
                f"The {type(sampler).__name__} was used already: its next batch is not the first. An input asks "
                f"for all batches by their position; create a new sampler for it."
            )
        if not isinstance(sampler, RandomAccessSampler):
            num_samples = check_number_of_samples(data_provider)
            _, shards = check_shard(shard_id, num_shards)
            sampler = ReplayedSampler(sampler, num_samples, shards, self._max_batches)
        super().__init__(data_provider, sampler, shard_id, num_shards, context_name)

    def _has_batch(self, epoch: int, batch: int) -> bool:
        if isinstance(self._sampler, ReplayedSampler):
            return self._sampler.has_batch(epoch, batch)
        if self._max_batches is not None:
            left = self._batches_left(epoch)
            if left <= 0:
                raise RuntimeError(used_up_message(epoch, self._max_batches))
            if batch >= left:
                return False
        num_batches = self._sampler.num_batches(epoch)  # as in the base class, a call less
        return num_batches is None or batch < num_batches

    def _batches_left(self, epoch: int) -> int:
        """How many batches of the maximum are left when an epoch begins."""
        limit = self._max_batches or 0
        if not self._sampler.is_epoch_based:
            return limit if epoch == 0 else 0
        if self._known_left is None or self._known_left[0] != epoch:
            self._known_left = (epoch, limit - self._sampler.num_batches_of_first(epoch))
        return self._known_left[1]

    def _forget(self) -> None:
        super()._forget()
        self._known_left = None

    def num_batches_in_epoch(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard; the limit of an endless sampler, None without one."""
        return self._limited(super().num_batches_in_epoch(epoch), epoch)

    def num_batches_of_all_shards(self, epoch: int) -> int | None:
        """Number of batches of an epoch of the shard that has most."""
        return self._limited(super().num_batches_of_all_shards(epoch), epoch)

    def _limited(self, num_batches: int | None, epoch: int) -> int | None:
        if num_batches is None:
            return self._max_batches
        if self._max_batches is None or isinstance(self._sampler, ReplayedSampler):
            return num_batches
        return max(0, min(num_batches, self._batches_left(epoch)))
