# SPDX-License-Identifier: Apache-2.0
"""Inputs that load the samples that a sampler selects, or all in shuffled or sequential order."""

from __future__ import annotations

from typing import cast

from ..checks import MOST_IN_BATCH, check_shard, setting_error, whole_number
from ..errors import SettingError, error_that_is_also
from ..providers.data_provider import DataProvider, check_number_of_samples, check_sampler_fits, summary
from ..providers.sample_loading import SampleLoader, input_blueprint
from ..sample_data import FieldValue, SampleDataGroup
from ..sample_data.conversion import FlatSample
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts, check_last_batch
from ..sampling.played_sampler import BatchChecker, PlayedSampler, used_up_message
from ..sampling.random_access_sampler import RandomAccessSampler, SamplerBase
from ..sampling.samplers import ShardedPermutationSampler
from ..unknown_arguments import explains_unknown_arguments
from ..user_warnings import warn_user
from .input_bases import IterableBase
from .planned_input import PlannedInput, slots_of_shard


class SamplerInputCallable(PlannedInput):
    """Delivers the batches of a sampler; several workers share the loading.

    The sampler chooses global batches of ``B`` samples; shard ``k`` of ``n`` delivers the slots
    ``[k * B / n, (k + 1) * B / n)`` of each.

    A `RandomAccessSampler`, as all samplers of this package are, plans each batch directly. Any other sampler is
    stepped through in each process, as far as batches are requested, and its indices are kept in a table; so it
    must be deterministic.

    Example::

        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        data_input = SamplerInputCallable(provider, sampler, context_name="position")
    """

    _known_left: tuple[int, int] | None  # an epoch, and how many batches of the maximum are left when it begins

    @explains_unknown_arguments
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
            sampler: Chooses the samples. It must not have been used before, which is checked where it can be. A
                sampler need not be derived from `SamplerBase` if it has the four members of that class.
            max_num_iterations: Number of batches, over all epochs, after which the input ends. None: no limit.
            pre_fetch_queue_length: Added to ``max_num_iterations``, for the batches that are prefetched but
                not delivered.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).
            context_name: Name of a group that is added to each sample and holds its place: the fields of
                `SamplePlace` but ``visit`` (epoch, batch, slot, sample_index, sequence, frame as int64;
                is_first, is_last, is_padding as bool). None: no such group.

        Raises:
            SettingError: An argument is out of its range, the data set is empty, or the batches of the sampler
                cannot be divided evenly among the shards.
        """
        _check_has_sampler_names(sampler)
        self._max_batches: int | None = None
        if max_num_iterations is not None:
            self._max_batches = whole_number(max_num_iterations, "max_num_iterations", at_least=1)
            self._max_batches += whole_number(pre_fetch_queue_length, "pre_fetch_queue_length", at_least=0)
        if isinstance(sampler, RandomAccessSampler) and not sampler.is_at_start:
            raise SettingError(
                f"The {type(sampler).__name__} was used already: its next batch is not the first. An input needs "
                f"all batches, by their positions; create a new sampler for it."
            )
        if not isinstance(sampler, RandomAccessSampler):
            num_samples = check_number_of_samples(data_provider)
            _, shards = check_shard(shard_id, num_shards)
            sampler = PlayedSampler(sampler, num_samples, shards, self._max_batches)
        super().__init__(data_provider, sampler, shard_id, num_shards, context_name)

    def _has_batch(self, epoch: int, batch: int) -> bool:
        if isinstance(self._sampler, PlayedSampler):
            return self._sampler.has_batch(epoch, batch)
        if self._max_batches is not None:
            left = self._batches_left(epoch)
            if left <= 0:
                raise error_that_is_also(SettingError, [RuntimeError], used_up_message(epoch, self._max_batches))
            if batch >= left:
                return False
        num_batches = self._sampler.num_batches(epoch)  # not by the base class: once per batch
        return num_batches is None or batch < num_batches

    def _batches_left(self, epoch: int) -> int:
        """Number of batches of the maximum that are left when an epoch begins."""
        limit = self._max_batches or 0
        if not self._sampler.is_epoch_based:
            return limit if epoch == 0 else 0
        if self._known_left is None or self._known_left[0] != epoch:
            self._known_left = (epoch, limit - self._sampler.num_batches_of_first(epoch))
        return self._known_left[1]

    def _forget(self) -> None:
        super()._forget()
        self._known_left = None

    def num_batches_of_all_shards(self, epoch: int) -> int | None:
        """Largest number of batches of an epoch on any shard; for an endless sampler, ``max_num_iterations``."""
        num_batches = super().num_batches_of_all_shards(epoch)
        if num_batches is None:
            return self._max_batches
        if self._max_batches is None or isinstance(self._sampler, PlayedSampler):
            return num_batches
        return max(0, min(num_batches, self._batches_left(epoch)))

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch over all shards; what ``max_num_iterations`` cuts off counts as dropped."""
        counts, sampler = super().sample_counts(epoch), self._sampler
        num_batches = self.num_batches_of_all_shards(epoch)
        if counts is None or num_batches is None or num_batches == counts.num_batches:
            return counts
        num_slots = num_batches * sampler.total_batch_size
        num_delivered = num_slots
        for batch in reversed(range(num_batches)):  # slots are filled up at the end of an epoch
            planned = sampler.plan_batch(epoch, batch)
            num_filled = int((planned.is_over | (planned.visit < 0)).sum())
            if not num_filled:
                break
            num_delivered -= num_filled
        return SampleCounts.of_slots(
            sampler.last_batch, num_batches, num_slots, counts.num_samples, num_delivered, counts.num_cuts
        )


def _check_has_sampler_names(sampler: object) -> None:
    """Raise a `SettingError` for what has not all names of a `SamplerBase`, which it need not be derived from."""
    names = ("get_next_batch_indices", "is_epoch_based", "reset", "length")
    missing = [name for name in names if not hasattr(type(sampler), name) and not hasattr(sampler, name)]
    if missing or isinstance(sampler, type):
        lacks = (
            "Create an object of the class." if isinstance(sampler, type) else f"It lacks {', '.join(missing)}."
        )
        raise setting_error("sampler", "of the class SamplerBase, or have its members", sampler, lacks)


class SamplerInputIterable(IterableBase):
    """Delivers the batches of a sampler, one sample after the other in a single worker.

    The sampler chooses global batches of ``B`` samples; shard ``k`` of ``n`` delivers the slots
    ``[k * B / n, (k + 1) * B / n)`` of each. `SamplerInputCallable` delivers the same and lets several
    workers load.
    """

    shard: tuple[int, int]

    @explains_unknown_arguments
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
        self._is_used = self._has_delivered = False

    def __repr__(self) -> str:
        """Name the data set and the sampler."""
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

    def __next__(self) -> list[list[FieldValue]]:
        """Load the next batch: per data field (in flat order) a list with one array per sample.

        Raises:
            StopIteration: The epoch of an epoch-based sampler has ended.
            SettingError: The sampler's batch cannot be dealt evenly to the shards, or an index is wrong.
        """
        self._is_used = self._has_delivered = True
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
        batch = self._checker.checked(self._sampler.get_next_batch_indices(), may_be_smaller=True)
        shard_id, num_shards = self.shard
        if len(batch) % num_shards:
            raise self._checker.wrong_size(len(batch))
        size = len(batch) // num_shards
        return batch[shard_id * size : (shard_id + 1) * size]

    def as_callable(self) -> SamplerInputCallable:
        """Get a callable that delivers the same: it has random access, and lets several workers load.

        Raises:
            SettingError: The sampler was used already.
        """
        if self._has_delivered:
            raise SettingError(f"The {type(self._sampler).__name__} was used already: give the input a new one.")
        shard_id, num_shards = self.shard
        return SamplerInputCallable(self._loader.provider, self._sampler, shard_id=shard_id, num_shards=num_shards)

    @property
    def has_random_access(self) -> bool:
        """Whether the sampler can plan any batch without stepping to it."""
        return isinstance(self._sampler, RandomAccessSampler)

    def load_sample(self, sample_index: int) -> FlatSample:
        """Load any sample of the data set, as a flat tuple; the order is not affected."""
        return self._loader.load(sample_index)

    @property
    def length(self) -> int | None:
        """Length that the sampler states, in batches; None for an endless sampler."""
        return self._sampler.length

    @property
    def num_batches_per_epoch(self) -> int | None:  # type: ignore[override]
        """Length that an epoch-based sampler states, in batches."""
        return self._sampler.length if self._sampler.is_epoch_based else None

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """Samples per batch on this shard where the sampler has a total batch size, else None."""
        total = getattr(self._sampler, "total_batch_size", None)
        return None if total is None else int(total) // self.shard[1]

    @property
    def has_epochs(self) -> bool:  # type: ignore[override]
        """Whether the sampler is epoch-based."""
        return bool(self._sampler.is_epoch_based)


class ShuffledShardedInputCallable(PlannedInput):
    """Each shard delivers its equal share of the data set once per epoch.

    In epoch ``e`` the samples are put into the order ``numpy.random.default_rng(seed + e).permutation(N)``
    (with ``shuffle=False``: ``0 .. N-1``), and shard ``k`` delivers positions ``[k * S, (k + 1) * S)`` of
    it, where ``S = N // num_shards``::

        order of epoch e   | 7 2 9 0 | 4 1 8 3 | 6           N = 9, num_shards = 2
                             shard 0   shard 1   dropped

    Dropped in each epoch: the ``N - S * num_shards`` samples at the end of the order, and the samples of a shard
    that do not fill a last batch. With another policy than ``"drop"`` for the last batch, shard ``k`` delivers all
    positions ``[k * N // num_shards, (k + 1) * N // num_shards)``.
    """

    takes_any_batch_size = True  # as published: only `length` depends on the one that it was given

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
            batch_size: Samples per batch on this shard. Only with ``"drop"``, the pipeline may have another batch
                size. A ``batch_size`` larger than the shard leaves no batch with ``"drop"``, which a warning says.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).
            shuffle: Whether each epoch has another random order.
            seed: Seed of the orders, at least 0. All shards must use the same seed.
            last_batch: Handling of a last batch that is not full, see `LastBatch`.
            context_name: Name of a group that is added to each sample and holds its place (see
                `SamplerInputCallable`). None: no such group.

        Raises:
            SettingError: An argument is out of its range, or the data set is empty.
        """
        size = whole_number(batch_size, "batch_size", at_least=1, at_most=MOST_IN_BATCH)
        _, shards = check_shard(shard_id, num_shards)
        seed = whole_number(seed, "seed", at_least=0)
        num_samples = check_number_of_samples(data_provider)
        shard_size = num_samples // shards
        if shard_size < size and check_last_batch(last_batch) == "drop":
            warn_user(
                f"An epoch has no full batch: {num_samples} samples dealt to {shards} "
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
            The copy, and a text on the consequences for the user.

        Raises:
            SettingError: ``last_batch`` is not ``"drop"``: the last batch was planned for the batch size of this
                input.
        """
        own = self.batch_size
        if self._sampler.last_batch != "drop":
            raise SettingError(
                f"The batch sizes of input and pipeline must be equal with "
                f"last_batch={self._sampler.last_batch!r}: {type(self).__name__} is set up for {own} samples per "
                f"batch (on this shard), the pipeline for batch_size={batch_size}. Leave `batch_size` out in the "
                f"pipeline to use that of the input."
            )
        total = batch_size * self._num_shards
        changed = self.with_sampler(
            self._sampler.with_settings(total_batch_size=total, num_shards=self._num_shards)
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
    _leaves_out_empty_slots_with = ("drop", "partial")

    def _has_batch(self, epoch: int, batch: int) -> bool:
        return batch < cast(ShardedPermutationSampler, self._sampler).num_begun_batches(epoch)
