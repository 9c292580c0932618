# SPDX-License-Identifier: Apache-2.0
"""Base class of inputs whose order comes from a `RandomAccessSampler`, and the context of a sample."""

from __future__ import annotations

import copy
import itertools
import logging
import operator
from abc import ABC
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from nvidia.dali import types

from ..checks import MOST_IN_BATCH, check_shard, setting_error, whole_number
from ..draws.keyed_draws import Int64Array, SamplePlace
from ..errors import SettingError
from ..faults.substitutes import substitutes
from ..providers.data_provider import DataProvider, check_number_of_samples, check_sampler_fits, summary
from ..providers.sample_loading import SampleLoader, input_blueprint
from ..sample_data import SampleDataGroup
from ..sample_data.conversion import FlatSample
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts, uneven_batches, unknown_sample
from ..sampling.plans.tracks import PlannedBatch
from ..sampling.random_access_sampler import Description, EpochSegment, RandomAccessSampler
from .input_bases import CallableBase

_NUMBERS = ("epoch", "batch", "slot", "sample_index", "sequence", "frame")
_FLAGS = ("is_first", "is_last", "is_padding")
_FIELDS = (*_NUMBERS, *_FLAGS)  # the first ones of SamplePlace, in its order


def add_context(blueprint: SampleDataGroup, name: str) -> None:
    """Add the group of context fields to a blueprint, as its last field.

    The fields are those of `SamplePlace`: the numbers int64 and the flags bool, all scalars.

    Raises:
        SettingError: The blueprint has a field of that name already, or it is not a text.
    """
    if not isinstance(name, str) or not name:
        raise setting_error("context_name", "a text, the name of a field, or None", name)
    name = str.__str__(name)
    if name in blueprint.contained_top_level_field_names:
        raise SettingError(
            f"`context_name` must be a name that is free: the blueprint has a field `{name}` already. "
            f"Its fields: {', '.join(map(str, blueprint.contained_top_level_field_names))}."
        )
    context = SampleDataGroup()
    for number in _NUMBERS:
        context.add_data_field(number, types.DALIDataType.INT64, ndim=0)
    for flag in _FLAGS:
        context.add_data_field(flag, types.DALIDataType.BOOL, ndim=0)
    blueprint.add_data_group_field(name, context)


def context_values(place: SamplePlace) -> FlatSample:
    """Get the values of the context fields, in flat order."""
    count = len(_NUMBERS)
    return (
        *(np.array(value, np.int64) for value in place[:count]),
        *(np.array(value, np.bool_) for value in place[count : len(_FIELDS)]),
    )


_sample_index_of = operator.attrgetter("sample_index")
# In the order of `SamplePlace`, after the slot.
_columns_of = operator.attrgetter("indices", "sequence", "frame", "is_first", "is_last", "is_padding", "visit")
_logger = logging.getLogger(__name__)

_Self = TypeVar("_Self", bound="PlannedInput")


class PlannedInput(CallableBase, ABC):
    """Delivers one shard of the batches of a `RandomAccessSampler`.

    Shard ``k`` of ``n`` delivers the slots ``[k * B / n, (k + 1) * B / n)`` of each global batch of ``B``. With
    the policy ``"partial"`` padding is left out: slots of sequences stay on their shard; samples of other samplers
    are divided evenly among the shards. A shard without samples in the last batch ends its epoch earlier than
    others.
    """

    takes_any_batch_size = False
    """Whether a pipeline may have another batch size than the input; then there is a method `for_pipeline`."""

    _leaves_out_empty_slots_with: tuple[LastBatch, ...] = ("partial",)

    def __init__(
        self,
        data_provider: DataProvider,
        sampler: RandomAccessSampler,
        shard_id: int,
        num_shards: int,
        context_name: str | None,
    ) -> None:
        """Set up.

        Raises:
            SettingError: An argument is out of its range, or sampler and data set do not fit.
        """
        self._loader = SampleLoader(data_provider)
        self._shard_id, self._num_shards = check_shard(shard_id, num_shards)
        self._num_samples = check_number_of_samples(data_provider)
        self._sampler = sampler
        check_sampler_fits(sampler, self._num_samples)
        sampler.check_provider(data_provider)
        if sampler.num_samples is not None and sampler.num_samples < self._num_samples:
            _logger.warning(
                "%s is set up for %d samples: the other %d of the data set are never delivered.",
                type(sampler).__name__,
                sampler.num_samples,
                self._num_samples - sampler.num_samples,
            )
        self._context_name = context_name
        self._forget()
        if context_name is not None:
            _ = self.used_sample_data_structure  # raises for a name that is taken
        self._check_batch_size()

    def _check_batch_size(self) -> None:
        if not self._sampler.has_batch_size:
            return
        total = self._sampler.total_batch_size
        if total % self._num_shards:
            raise uneven_batches(type(self._sampler).__name__, total, self._num_shards)
        if not self._sampler.must_be_played:
            self._sampler.num_batches(0)  # raises for an empty epoch

    def _forget(self) -> None:
        """Reset cached values, in a new object or one with other settings."""
        self._current: tuple[int, int, list[SamplePlace]] | None = None  # the batch that was requested last

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_current": None}

    def __repr__(self) -> str:
        """Name the data set and the sampler."""
        return f"{type(self).__name__}({summary(self.provider)}, {summary(self._sampler)})"

    # --- settings ---------------------------------------------------------------------------------

    @property
    def sampler(self) -> RandomAccessSampler:
        """The sampler, with the settings that this input uses."""
        return self._sampler

    @property
    def provider(self) -> DataProvider:
        """The data set."""
        return self._loader.provider

    @property
    def shard(self) -> tuple[int, int]:  # type: ignore[override]
        """Shard id and number of shards."""
        return self._shard_id, self._num_shards

    @property
    def context_name(self) -> str | None:
        """Name of the group with the position of each sample, or None."""
        return self._context_name

    def with_settings(self: _Self, *, batch_size: int | None = None, last_batch: LastBatch | None = None) -> _Self:
        """Get a copy with other settings; None leaves one as it is.

        Args:
            batch_size: Samples per batch on this shard.
            last_batch: Policy for a last batch that is not full.

        Raises:
            SettingError: A value is out of its range, or the sampler cannot have it.
        """
        total = None
        if batch_size is not None:
            batch_size = whole_number(batch_size, "batch_size", at_least=1, at_most=MOST_IN_BATCH)
            total = batch_size * self._num_shards
        sampler = self._sampler.with_settings(
            total_batch_size=total, num_shards=self._num_shards, last_batch=last_batch
        )
        changed = self.with_sampler(sampler)
        changed._check_batch_size()
        return changed

    def continued(self: _Self, epoch: int, segments: Sequence[EpochSegment]) -> _Self:
        """Get a copy for which these segments of an epoch were delivered, see `RandomAccessSampler.continued`."""
        return self.with_sampler(self._sampler.continued(epoch, segments))

    def with_sampler(self: _Self, sampler: RandomAccessSampler) -> _Self:
        """Get a copy with another sampler of the same settings."""
        changed = copy.copy(self)
        changed._forget()
        changed._sampler = sampler
        return changed

    def describe(self) -> Description:
        """Settings on which the order depends, by name."""
        last_batch = {"last_batch": self._sampler.last_batch} if self._sampler.is_epoch_based else {}
        return {**self._sampler.describe(), "data_set_size": self._num_samples, **last_batch}

    # --- samples ----------------------------------------------------------------------------------

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples, with mappings switched off."""
        blueprint = input_blueprint(self._loader.provider)
        if self._context_name is not None:
            add_context(blueprint, self._context_name)
        return blueprint

    def __call__(self, sample_info: types.SampleInfo) -> FlatSample:
        """Load the sample at a position of the epoch, as a flat tuple.

        Raises:
            StopIteration: The epoch has no such position.
        """
        place = self._place(sample_info)
        return self._with_context(self._loader.load(place.sample_index), place)

    def _with_context(self, sample: FlatSample, place: SamplePlace) -> FlatSample:
        return sample if self._context_name is None else (*sample, *context_values(place))

    def iter_batch(self, sample_infos: Sequence[types.SampleInfo]) -> Iterator[FlatSample]:
        """Load the samples at all positions of one batch, each when it is requested, as flat tuples.

        It ends before the first position that the epoch does not have.
        """
        if type(self).__call__ is not PlannedInput.__call__:  # a user's subclass loads in its own way
            return map(self, sample_infos)
        places = self.places_at(sample_infos)
        indices = list(map(_sample_index_of, places))
        samples = self._loader.load_batch(indices, range(len(places)))
        if self._context_name is None:
            return samples
        return map(self._with_context, samples, places)

    @property
    def loads_batches(self) -> bool:
        """Whether the data provider loads the samples of a batch together."""
        return bool(getattr(self.provider, "loads_batches", False))

    def substitutes(self, place: SamplePlace) -> Iterator[int]:
        """Get the indices of the samples to try in the place of one that has failed, in order."""
        return substitutes(self._sampler, place, self._num_samples)

    def load_in_place(self, place: SamplePlace, sample_index: int) -> FlatSample:
        """Load a sample in the place of another one, as a flat tuple.

        The context group of the sample has ``place``, with the index of the loaded sample.
        """
        return self._with_context(self._loader.load(sample_index), place._replace(sample_index=sample_index))

    def places_at(self, sample_infos: Sequence[types.SampleInfo]) -> list[SamplePlace]:
        """Get the places of the samples at all positions of one batch, up to the end of the epoch."""
        first, size = sample_infos[0], self._sampler.total_batch_size // self._num_shards
        try:
            if size == len(sample_infos) and first.idx_in_epoch % size == 0:  # the usual case: a batch as planned
                return self._places_of_batch(first.epoch_idx, first.idx_in_epoch // size)
        except StopIteration:
            return []
        places: list[SamplePlace] = []
        for sample_info in sample_infos:
            try:
                places.append(self._place(sample_info))
            except StopIteration:
                break
        return places

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position, or None after the end of the epoch."""
        try:
            return self._place(sample_info)
        except (StopIteration, RuntimeError):
            return None

    def describe_sample(self, sample_index: int) -> str:
        """Get the data provider's description of a sample, or an empty text."""
        describe = getattr(self._loader.provider, "describe_sample", None)
        return "" if describe is None else str(describe(sample_index))

    def _place(self, sample_info: types.SampleInfo) -> SamplePlace:
        batch_size = self._sampler.total_batch_size // self._num_shards
        places = self._places_of_batch(sample_info.epoch_idx, sample_info.idx_in_epoch // batch_size)
        number: int = sample_info.idx_in_epoch % batch_size
        if number >= len(places):
            raise StopIteration
        return places[number]

    def _places_of_batch(self, epoch: int, batch: int) -> list[SamplePlace]:
        if self._current is None or self._current[:2] != (epoch, batch):
            if not self._has_batch(epoch, batch):
                raise StopIteration
            self._current = (epoch, batch, self.get_places(epoch, batch))
        return self._current[2]

    def use_places(self, epoch: int, batch: int, places: list[SamplePlace]) -> None:
        """Take the places of a batch, which another process has planned."""
        self._current = (epoch, batch, places)

    def get_places(self, epoch: int, batch: int) -> list[SamplePlace]:
        """Get the places of the samples of this shard in a batch."""
        try:
            planned = self._sampler.plan_batch(epoch, batch)
        except StopIteration as error:  # passed on, it would end the epoch silently
            raise SettingError(
                f"{type(self._sampler).__name__}.plan_batch raised StopIteration for batch {batch} of epoch "
                f"{epoch}, which has more batches by num_batches({epoch}). Only num_batches may end an epoch."
            ) from error
        slots = self._own_slots(planned)
        columns = map(operator.itemgetter(slots), _columns_of(planned))
        values = map(np.ndarray.tolist, (slots, *columns))
        return list(map(SamplePlace, itertools.repeat(epoch), itertools.repeat(batch), *values))

    def _has_batch(self, epoch: int, batch: int) -> bool:
        num_batches = self._sampler.num_batches(epoch)
        return num_batches is None or batch < num_batches

    def _own_slots(self, planned: PlannedBatch) -> Int64Array:
        total = self._sampler.total_batch_size
        if len(planned.indices) != total:
            rule = f"{type(self._sampler).__name__}.plan_batch must plan all {total} slots"
            raise SettingError(f"{rule}, got {len(planned.indices)}.")
        if planned.indices.min() < 0 or planned.indices.max() >= self._num_samples:
            raise unknown_sample(planned.indices.tolist(), self._num_samples, type(self._sampler).__name__)
        if not planned.is_over.any() or self._sampler.last_batch not in self._leaves_out_empty_slots_with:
            size = total // self._num_shards
            return np.arange(self._shard_id * size, (self._shard_id + 1) * size)
        return slots_of_shard(planned, self._sampler.has_slots, self._shard_id, self._num_shards)

    # --- sizes ------------------------------------------------------------------------------------

    @property
    def delivers_partial_batches(self) -> bool:  # type: ignore[override]
        """Whether batches at the end of an epoch may be smaller."""
        return self._sampler.last_batch == "partial"

    def num_batches_in_epoch(self, epoch: int) -> int | None:
        """Number of batches of an epoch, or None if there is no end.

        With the policy ``"partial"``, it is the number for this shard; others may have more or fewer batches.
        """
        num_batches = self.num_batches_of_all_shards(epoch)
        if num_batches is None or not self.delivers_partial_batches or self._num_shards == 1:
            return num_batches
        # Bisection: the batches in which this shard has samples come first.
        low, high = min(self._sampler.num_batches_before(epoch), num_batches), num_batches
        while low < high:
            middle = (low + high) // 2
            if len(self._own_slots(self._sampler.plan_batch(epoch, middle))):
                low = middle + 1
            else:
                high = middle
        return low

    def num_batches_of_all_shards(self, epoch: int) -> int | None:
        """Largest number of batches of an epoch on any shard, or None if there is no end."""
        count, name = self._sampler.num_batches(epoch), f"{type(self._sampler).__name__}.num_batches({epoch})"
        return None if count is None else whole_number(count, name, at_least=0)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch over all shards, or None if they are not known."""
        return self._sampler.sample_counts(epoch)

    @property
    def length(self) -> int | None:
        """Number of batches of the first epoch; None if that is endless, or while there is no batch size."""
        return self.num_batches_in_epoch(0) if self._sampler.has_batch_size else None

    @property
    def num_batches_per_epoch(self) -> int | None:  # type: ignore[override]
        """Same as `length`."""
        return self.length

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """Samples per batch on this shard; None if it is not set yet."""
        return self._sampler.total_batch_size // self._num_shards if self._sampler.has_batch_size else None

    @property
    def has_epochs(self) -> bool:  # type: ignore[override]
        """Whether the sampler is epoch-based."""
        return not self._sampler.has_batch_size or self._sampler.is_epoch_based


def slots_of_shard(planned: PlannedBatch, has_slots: bool, shard_id: int, num_shards: int) -> Int64Array:
    """Get the slots of a global batch that a shard delivers, without those that are over.

    Where slots stay on their shard (``has_slots``), these are its own slots; otherwise all that are not over are
    divided evenly.
    """
    size = len(planned.indices) // num_shards
    own = np.arange(shard_id * size, (shard_id + 1) * size)
    if has_slots or not planned.is_over.any():
        return own[~planned.is_over[own]]
    left = np.flatnonzero(~planned.is_over)
    return left[len(left) * shard_id // num_shards : len(left) * (shard_id + 1) // num_shards]
