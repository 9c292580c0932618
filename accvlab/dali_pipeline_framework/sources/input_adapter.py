# SPDX-License-Identifier: Apache-2.0
"""Inputs of users: what other rooms ask of them, last-batch policies, fixed numbers of steps, and context."""

from __future__ import annotations

import itertools
from abc import ABC
from typing import Any, NoReturn

import attrs
from nvidia.dali import types

from ..draws.keyed_draws import SamplePlace
from ..errors import SettingError
from ..sample_data import SampleDataGroup
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts
from .input_bases import CallableBase, InputBase, IterableBase
from .planned_input import PlannedInput, add_context, context_values
from .shards import shard_of_input


def _asked(name: str) -> Any:
    default = getattr(InputBase, name)
    return property(lambda adapter: getattr(adapter.source, name, default), doc=f"See `InputBase.{name}`.")


@attrs.frozen(eq=False)
class InputAdapter:
    """Asks an input: one of this package, or any object that has some of the attributes.

    A user's input need not be derived from `CallableBase` or `IterableBase`. What it does not tell is as in these.

    Attributes:
        source: The input.
    """

    source: Any

    has_epochs = _asked("has_epochs")
    batch_size = _asked("batch_size")
    delivers_partial_batches = _asked("delivers_partial_batches")

    @property
    def planned(self) -> PlannedInput | None:
        """The input, if a sampler with random access plans its batches."""
        return self.source if isinstance(self.source, PlannedInput) else None

    # --- epochs -------------------------------------------------------------------------------------

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch, of the shard that has most; None where it is not known."""
        if self.planned is not None:
            return self.planned.num_batches_of_all_shards(epoch)
        num_batches: int | None = getattr(self.source, "num_batches_per_epoch", None)
        return num_batches

    def num_batches_here(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard; None where it is not known."""
        if self.planned is not None:
            return self.planned.num_batches_in_epoch(epoch)
        num_batches = self.num_batches(epoch)
        if num_batches is None and not callable(self.source):  # the length of an iterable counts batches
            num_batches = getattr(self.source, "length", None)
        return num_batches

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch, over all shards; None where they are not known."""
        return None if self.planned is None else self.planned.sample_counts(epoch)

    # --- samples ------------------------------------------------------------------------------------

    def place(self, info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position; None where it does not tell."""
        place: SamplePlace | None = self._answer("get_place", None, info)
        return place

    def sample_index(self, info: types.SampleInfo) -> int | None:
        """Get the index in the data set of the sample at a position; None where it does not tell."""
        index: int | None = self._answer("get_sample_index", None, info)
        return index

    def describe_sample(self, sample_index: int) -> str:
        """Say where a sample comes from; empty where it does not tell."""
        return str(self._answer("describe_sample", "", sample_index))

    def describe(self) -> dict[str, Any]:
        """What its order depends on, as far as it is known, by name."""
        return {**self._answer("describe", {})}

    def _answer(self, method: str, default: Any, *arguments: Any) -> Any:
        call = getattr(self.source, method, None)
        return default if call is None else call(*arguments)


@attrs.frozen
class EpochSettings:
    """Settings of the epochs of a user's input.

    Attributes:
        batch_size: Samples per batch on this shard.
        last_batch: Policy for a last batch that is not full.
        num_batches: Number of batches per epoch, or None for as many as the input delivers. Further batches of
            the input are not delivered; missing ones are filled with ``"pad"`` and ``"wrap"``.
        context_name: Name of the group with the position of each sample, or None.
        first_slot: Number of the shard's first slot in the global batch.
    """

    batch_size: int
    last_batch: LastBatch
    num_batches: int | None
    context_name: str | None
    first_slot: int


class _CompletedInput(InputBase, ABC):
    """What a completed input has of its source and of the settings."""

    def __init__(self, source: Any, settings: EpochSettings) -> None:
        """Wrap the source."""
        self._source, self._settings = source, settings
        self.batch_size = settings.batch_size
        self.has_epochs = getattr(source, "has_epochs", True)
        self.shard = shard_of_input(source)
        if settings.context_name is not None:
            _ = self.used_sample_data_structure  # complains about the name

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples, with the context."""
        blueprint: SampleDataGroup = self._source.used_sample_data_structure
        if self._settings.context_name is None:
            return blueprint
        blueprint = blueprint.get_empty_like_self()
        blueprint.set_apply_mapping(False)
        add_context(blueprint, self._settings.context_name)
        return blueprint

    @property
    def length(self) -> int | None:
        """Number of batches per epoch, or None where it is not known.

        Inputs tell the number of their full batches, but not whether there is another one that is not full.
        """
        settings, is_callable = self._settings, callable(self._source)
        if settings.num_batches is not None or (is_callable and settings.last_batch != "drop"):
            return settings.num_batches
        num_batches: int | None = getattr(self._source, "num_batches_per_epoch", None)
        return num_batches if is_callable else num_batches or self._source.length

    num_batches_per_epoch = length

    def _context(self, place: SamplePlace, epoch: int, batch: int, slot: int, is_filled: bool) -> tuple[Any, ...]:
        is_padding = place.is_padding or (is_filled and self._settings.last_batch == "pad")
        place = place._replace(
            epoch=epoch,
            batch=batch,
            slot=self._settings.first_slot + slot,
            is_first=place.is_first or is_padding,
            is_last=place.is_last or is_padding,
            is_padding=is_padding,
        )
        return context_values(place)

    def _end(self, num_batches: int) -> NoReturn:
        """End an epoch of so many full batches; a `SettingError` where more were requested."""
        settings = self._settings
        if settings.num_batches is not None and settings.last_batch == "drop":
            raise SettingError(
                f"An epoch of {type(self._source).__name__} has ended after {num_batches} full batch(es) of "
                f"{settings.batch_size}, but steps_per_epoch={settings.num_batches} was asked for. Ask for no "
                f"more, or use last_batch='pad' or 'wrap'."
            )
        raise StopIteration


def _place_of(sample_index: int | None) -> SamplePlace:
    """Place of a sample of which no more than its index is known."""
    return SamplePlace(0, 0, 0, -1 if sample_index is None else sample_index, is_first=True, is_last=True)


class CompletedCallable(_CompletedInput, CallableBase):
    """A user's callable with a policy for its last batch, and a fixed number of batches if requested.

    A position behind the end of the callable's epoch gets the last sample (``"pad"``), or one of the first
    (``"wrap"``).
    """

    def __init__(self, source: Any, settings: EpochSettings) -> None:
        """Wrap the callable."""
        super().__init__(source, settings)
        self.delivers_partial_batches = settings.last_batch == "partial"
        self._counted: tuple[int, int] | None = None  # epoch, and how many samples it has
        self._delivered_up_to = (0, 0)  # epoch and position behind the last sample that the source has delivered

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Load the sample at a position of the epoch, as a flat tuple.

        Raises:
            StopIteration: The epoch has no such position.
            SettingError: The source has fewer batches than were requested, and they are not to be filled.
        """
        limit = self._settings.num_batches
        if limit is not None and sample_info.iteration >= limit:
            raise StopIteration
        try:
            sample, is_filled = self._source(sample_info), False
            self._delivered_up_to = (sample_info.epoch_idx, sample_info.idx_in_epoch + 1)
        except StopIteration:
            sample, is_filled = self._filling(sample_info), True
        if self._settings.context_name is None:
            return tuple(sample)
        place = self.get_place(sample_info) or _place_of(self.get_sample_index(sample_info))
        numbers = sample_info.epoch_idx, sample_info.iteration, sample_info.idx_in_batch
        return (*sample, *self._context(place, *numbers, is_filled))

    def _filling(self, info: types.SampleInfo) -> Any:
        """Load the sample that fills a position behind the end."""
        if info.idx_in_batch == 0 and self._settings.num_batches is None:
            raise StopIteration
        if self._settings.last_batch in ("drop", "partial"):
            self._end(info.iteration)
        if self._count(info) == 0:
            raise StopIteration
        return self._source(self._shown(info))

    def _count(self, info: types.SampleInfo) -> int:
        """Count the samples of an epoch by bisection, given a position behind its end."""
        epoch = info.epoch_idx
        if self._counted is None or self._counted[0] != epoch:
            low, high = 0, info.idx_in_epoch  # the number of samples lies in [low, high]
            if self._delivered_up_to[0] == epoch and self._delivered_up_to[1] <= high:
                low = self._delivered_up_to[1]
            while low < high:
                middle = (low + high) // 2
                try:
                    self._source(self._info(middle, epoch))
                    low = middle + 1
                except StopIteration:
                    high = middle
            self._counted = (epoch, low)
        return self._counted[1]

    def _info(self, position: int, epoch: int) -> types.SampleInfo:
        batch, slot = divmod(position, self._settings.batch_size)
        return types.SampleInfo(position, slot, batch, epoch)

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position, or None where the source does not tell.

        Padding has the visit of the sample that it repeats, and so the same random draws; with ``"wrap"`` the
        visit is another one.
        """
        shown = self._shown(sample_info)
        place = InputAdapter(self._source).place(shown)
        if place is None or shown is sample_info:
            return place
        return place._replace(visit=place.visit + int(self._settings.last_batch == "wrap"))

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Index in the data set of the sample at a position, or None where the source does not tell."""
        return InputAdapter(self._source).sample_index(self._shown(sample_info))

    def _shown(self, info: types.SampleInfo) -> types.SampleInfo:
        """Get the position whose sample is delivered at a position: behind the end it is an earlier one."""
        if self._counted is None or self._counted[0] != info.epoch_idx or info.idx_in_epoch < self._counted[1]:
            return info
        if self._settings.last_batch not in ("pad", "wrap") or not self._counted[1]:
            return info
        last = self._counted[1] - 1
        wanted = last if self._settings.last_batch == "pad" else info.idx_in_epoch % (last + 1)
        return self._info(wanted, info.epoch_idx)


class CompletedIterable(_CompletedInput, IterableBase):
    """A user's iterable with a policy for its last batch: batches that are not full are filled, or left out.

    Only the first batch of the epoch is kept: with ``"wrap"``, batches are filled from it.
    """

    def __init__(self, source: Any, settings: EpochSettings) -> None:
        """Wrap the iterable."""
        super().__init__(source, settings)
        self._epoch = -1

    def __iter__(self) -> CompletedIterable:
        """Start an epoch."""
        self._iterator = iter(self._source)
        self._epoch += 1
        self._num_delivered = 0
        self._has_ended = False
        self._first: list[list[Any]] | None = None  # the first batch of the epoch, per field
        self._last: list[Any] = []  # the last sample
        self.current_sample_indices = None
        return self

    def __next__(self) -> list[list[Any]]:
        """Get the next batch: per data field (in flat order) a list with one array per sample.

        Raises:
            StopIteration: The epoch has ended.
            SettingError: The source has fewer batches than were requested, and they are not to be filled.
        """
        limit = self._settings.num_batches
        if limit is not None and self._num_delivered >= limit:
            raise StopIteration
        batch = self._next_of_source()
        num_given = len(batch[0]) if batch else 0
        size = self._settings.batch_size
        if num_given == 0 and (limit is None or self._first is None):
            raise StopIteration
        if self._first is None:
            self._first = batch
        if num_given:
            self._last = [field[-1] for field in batch]
        if num_given < size:
            batch = self._completed(batch, num_given)
        self._num_delivered += 1
        return self._with_context(batch, num_given)

    def _next_of_source(self) -> list[list[Any]]:
        if self._has_ended:
            return []
        try:
            batch = [list(field) for field in next(self._iterator)]
        except StopIteration:
            self._has_ended = True
            self.current_sample_indices = None
            return []
        indices = getattr(self._source, "current_sample_indices", None)
        self.current_sample_indices = None if indices is None else list(indices)
        return batch

    def _completed(self, batch: list[list[Any]], num_given: int) -> list[list[Any]]:
        policy, size = self._settings.last_batch, self._settings.batch_size
        if policy == "partial" and num_given:
            return batch
        if policy in ("drop", "partial"):
            self._end(self._num_delivered)
        missing = size - num_given
        first = self._first or []
        batch = batch or [[] for _ in first]
        if policy == "pad":
            return [[*field, *([value] * missing)] for field, value in zip(batch, self._last, strict=True)]
        return [[*field, *(begin * size)[:missing]] for field, begin in zip(batch, first, strict=True)]

    def _with_context(self, batch: list[list[Any]], num_given: int) -> list[list[Any]]:
        if self._settings.context_name is None:
            return batch
        indices = itertools.chain(self.current_sample_indices or (), itertools.repeat(None))
        number = self._num_delivered - 1
        rows = [
            self._context(_place_of(index), self._epoch, number, slot, slot >= num_given)
            for slot, index in zip(range(len(batch[0])), indices, strict=False)
        ]
        return [*batch, *(list(column) for column in zip(*rows, strict=True))]
