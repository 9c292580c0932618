# SPDX-License-Identifier: Apache-2.0
"""Last-batch policies, fixed numbers of steps, and context for inputs that users write themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from nvidia.dali import types

from ..draws.sample_place import SamplePlace
from ..errors import SettingError
from ..sample_data import SampleDataGroup
from ..sampling.arithmetic.last_batch import LastBatch
from .callable_base import CallableBase
from .context import add_context, context_values
from .iterable_base import IterableBase
from .shards import shard_of_input


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

    def blueprint_of(self, source: Any) -> SampleDataGroup:
        """Get the blueprint of the samples of an input, with the context."""
        blueprint: SampleDataGroup = source.used_sample_data_structure
        if self.context_name is None:
            return blueprint
        blueprint = blueprint.get_empty_like_self()
        blueprint.set_apply_mapping(False)
        add_context(blueprint, self.context_name)
        return blueprint

    def num_batches_of(self, source: Any) -> int | None:
        """Number of batches per epoch, or None where it is not known.

        Inputs tell the number of their full batches, but not whether there is another one that is not full.
        """
        if self.num_batches is not None or (callable(source) and self.last_batch != "drop"):
            return self.num_batches
        return getattr(source, "num_batches_per_epoch", None)

    def require_enough(self, source: Any, num_batches: int) -> None:
        """Raise a `SettingError` where an input ends before the number of batches that was asked for."""
        if self.num_batches is not None and self.last_batch == "drop":
            raise SettingError(
                f"An epoch of {type(source).__name__} has ended after {num_batches} full batch(es) of "
                f"{self.batch_size}, but steps_per_epoch={self.num_batches} was asked for. Ask for no more, or "
                f"use last_batch='pad' or 'wrap'."
            )


class CompletedCallable(CallableBase):
    """A user's callable with a policy for its last batch, and a fixed number of batches if asked for.

    A position behind the end of the callable's epoch gets the last sample (``"pad"``), or one of the first
    (``"wrap"``).
    """

    def __init__(self, source: Any, settings: EpochSettings) -> None:
        """Wrap the callable."""
        self._source = source
        self._settings = settings
        self.delivers_partial_batches = settings.last_batch == "partial"
        self.has_epochs = getattr(source, "has_epochs", True)
        self.shard = shard_of_input(source)
        self._counted: tuple[int, int] | None = None  # epoch, and how many samples it has
        self._delivered_up_to = (0, 0)  # epoch and position behind the last sample that the source has delivered
        if settings.context_name is not None:
            settings.blueprint_of(source)

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        return self._settings.blueprint_of(self._source)

    @property
    def length(self) -> int | None:
        """Number of batches per epoch, or None where it is not known."""
        return self._settings.num_batches_of(self._source)

    @property
    def num_batches_per_epoch(self) -> int | None:  # type: ignore[override]
        """Same as `length`."""
        return self.length

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """Samples per batch on this shard."""
        return self._settings.batch_size

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Load the sample at a position of the epoch, as a flat tuple.

        Raises:
            StopIteration: The epoch has no such position.
            SettingError: The source has fewer batches than were asked for, and they are not to be filled.
        """
        limit = self._settings.num_batches
        if limit is not None and sample_info.iteration >= limit:
            raise StopIteration
        is_filled = False
        try:
            sample = self._load(sample_info)
        except StopIteration:
            sample = self._filling(sample_info)
            is_filled = True
        if self._settings.context_name is None:
            return tuple(sample)
        return (*sample, *context_values(self._place(sample_info, is_filled)))

    def _load(self, info: types.SampleInfo) -> Sequence[Any]:
        sample: Sequence[Any] = self._source(info)
        self._delivered_up_to = (info.epoch_idx, info.idx_in_epoch + 1)
        return sample

    def _filling(self, info: types.SampleInfo) -> Sequence[Any]:
        """Load the sample that fills a position behind the end."""
        policy = self._settings.last_batch
        is_inside_batch = info.idx_in_batch > 0
        if not is_inside_batch and self._settings.num_batches is None:
            raise StopIteration
        if policy in ("drop", "partial"):
            self._settings.require_enough(self._source, info.iteration)
            raise StopIteration
        if self._count(info) == 0:
            raise StopIteration
        sample: Sequence[Any] = self._source(self._shown(info))
        return sample

    def _count(self, info: types.SampleInfo) -> int:
        """Count the samples of an epoch by bisection, given a position behind its end."""
        epoch = info.epoch_idx
        if self._counted is None or self._counted[0] != epoch:
            low = self._delivered_up_to[1] if self._delivered_up_to[0] == epoch else 0
            if low > info.idx_in_epoch:
                low = 0
            high = info.idx_in_epoch  # the number of samples lies in [low, high]
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

    def _place(self, info: types.SampleInfo, is_filled: bool) -> SamplePlace:
        place = self.get_place(info)
        if place is None:
            index = self.get_sample_index(info)
            place = SamplePlace(0, 0, 0, -1 if index is None else index, is_first=True, is_last=True)
        is_padding = place.is_padding or (is_filled and self._settings.last_batch == "pad")
        return place._replace(
            epoch=info.epoch_idx,
            batch=info.iteration,
            slot=self._settings.first_slot + info.idx_in_batch,
            is_first=place.is_first or is_padding,
            is_last=place.is_last or is_padding,
            is_padding=is_padding,
        )

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position, or None where the source does not tell.

        Padding has the visit of the sample that it repeats, and so the same random draws; with ``"wrap"`` the
        visit is another one.
        """
        get_place = getattr(self._source, "get_place", None)
        shown = self._shown(sample_info)
        place: SamplePlace | None = None if get_place is None else get_place(shown)
        if place is None or shown is sample_info:
            return place
        return place._replace(visit=place.visit + int(self._settings.last_batch == "wrap"))

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Index in the data set of the sample at a position, or None where the source does not tell."""
        get_index = getattr(self._source, "get_sample_index", None)
        index: int | None = None if get_index is None else get_index(self._shown(sample_info))
        return index

    def _shown(self, info: types.SampleInfo) -> types.SampleInfo:
        """Get the position whose sample is delivered at a position: behind the end it is an earlier one."""
        if self._counted is None or self._counted[0] != info.epoch_idx or info.idx_in_epoch < self._counted[1]:
            return info
        if self._settings.last_batch not in ("pad", "wrap") or not self._counted[1]:
            return info
        last = self._counted[1] - 1
        wanted = last if self._settings.last_batch == "pad" else info.idx_in_epoch % (last + 1)
        return self._info(wanted, info.epoch_idx)


class CompletedIterable(IterableBase):
    """A user's iterable with a policy for its last batch: batches that are not full are filled, or left out.

    Only the first batch of the epoch is kept: with ``"wrap"``, batches are filled from it.
    """

    def __init__(self, source: Any, settings: EpochSettings) -> None:
        """Wrap the iterable."""
        self._source = source
        self._settings = settings
        self.has_epochs = getattr(source, "has_epochs", True)
        self.shard = shard_of_input(source)
        self._iterator: Any = None
        self._epoch = -1
        self._start_epoch()
        if settings.context_name is not None:
            settings.blueprint_of(source)

    def _start_epoch(self) -> None:
        self._num_delivered = 0
        self._has_ended = False
        self._first: list[list[Any]] | None = None  # the first batch of the epoch, per field
        self._last: list[Any] | None = None  # the last sample
        self._indices: list[int] | None = None

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        return self._settings.blueprint_of(self._source)

    @property
    def length(self) -> int | None:
        """Number of batches per epoch, or None where it is not known."""
        return self._settings.num_batches_of(self._source) or self._source.length

    @property
    def num_batches_per_epoch(self) -> int | None:  # type: ignore[override]
        """Same as `length`."""
        return self.length

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """Samples per batch on this shard."""
        return self._settings.batch_size

    @property
    def current_sample_indices(self) -> list[int] | None:  # type: ignore[override]
        """Indices of the batch last asked for, as far as the source tells."""
        return self._indices

    def __iter__(self) -> CompletedIterable:
        """Start an epoch."""
        self._iterator = iter(self._source)
        self._epoch += 1
        self._start_epoch()
        return self

    def __next__(self) -> list[list[Any]]:
        """Get the next batch: per data field (in flat order) a list with one array per sample.

        Raises:
            StopIteration: The epoch has ended.
            SettingError: The source has fewer batches than were asked for, and they are not to be filled.
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
            self._indices = None
            return []
        indices = getattr(self._source, "current_sample_indices", None)
        self._indices = None if indices is None else list(indices)
        return batch

    def _completed(self, batch: list[list[Any]], num_given: int) -> list[list[Any]]:
        policy, size = self._settings.last_batch, self._settings.batch_size
        if policy == "partial" and num_given:
            return batch
        if policy in ("drop", "partial"):
            self._settings.require_enough(self._source, self._num_delivered)
            raise StopIteration
        missing = size - num_given
        first, last = self._first or [], self._last or []
        batch = batch or [[] for _ in first]
        if policy == "pad":
            return [[*field, *([value] * missing)] for field, value in zip(batch, last, strict=True)]
        return [[*field, *(begin * size)[:missing]] for field, begin in zip(batch, first, strict=True)]

    def _with_context(self, batch: list[list[Any]], num_given: int) -> list[list[Any]]:
        if self._settings.context_name is None:
            return batch
        indices = self._indices or []
        rows = []
        for slot in range(len(batch[0])):
            is_filled = slot >= num_given
            place = SamplePlace(
                self._epoch,
                self._num_delivered - 1,
                self._settings.first_slot + slot,
                indices[slot] if slot < len(indices) else -1,
                is_first=True,
                is_last=True,
                is_padding=is_filled and self._settings.last_batch == "pad",
            )
            rows.append(context_values(place))
        return [*batch, *(list(column) for column in zip(*rows, strict=True))]
