# SPDX-License-Identifier: Apache-2.0
"""Base classes of samplers: an order of samples, and random access to its batches."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np

from ..checks import whole_number
from ..draws.keyed_draws import Int64Array, digest
from ..errors import NotSupportedError, SettingError
from .arithmetic.last_batch import LastBatch, SampleCounts, check_last_batch
from .plans.tracks import PlannedBatch


class SamplerBase(ABC):
    """Chooses the sample indices of one global batch after the other (all shards together).

    A sampler may keep a state, but it must be deterministic: worker processes replay copies of it.
    """

    @abstractmethod
    def get_next_batch_indices(self) -> Sequence[int]:
        """Get the sample indices of the next global batch, one per slot.

        Raises:
            StopIteration: The epoch of an epoch-based sampler has ended; `reset` starts the next one.
        """

    @property
    @abstractmethod
    def is_epoch_based(self) -> bool:
        """Whether the batches come in epochs; otherwise the sampler is endless."""

    @abstractmethod
    def reset(self) -> None:
        """Start the next epoch. Called for epoch-based samplers only."""

    @property
    @abstractmethod
    def length(self) -> int | None:
        """Number of batches of one epoch; None if it is not known."""


Description: TypeAlias = dict[str, int | float | str | bool | None]
_Self = TypeVar("_Self", bound="RandomAccessSampler")


@attrs.frozen
class EpochSegment:
    """Consecutive batches of an epoch that were delivered with the same total batch size.

    Attributes:
        num_shards: Number of shards that they were delivered to.
        total_batch_size: Samples per batch, all shards together.
        num_batches: How many batches.
    """

    num_shards: int
    total_batch_size: int
    num_batches: int


_History: TypeAlias = tuple[int, tuple[EpochSegment, ...]]  # an epoch, and its segments


class RandomAccessSampler(SamplerBase):
    """A pure function from a position (epoch and batch) to the samples of the batch.

    A subclass defines `num_batches` and `plan_batch`, which may not change any state, and calls ``__init__``.
    All copies return the same batches, for any position in any order: so any number of workers can share the
    loading, and it can continue anywhere.

    The published interface (`get_next_batch_indices`, `reset`, `length`) steps through the batches. It is for
    hand-written loops; inputs do not use it.

    Example::

        >>> class Backward(RandomAccessSampler):
        ...     def num_batches(self, epoch):
        ...         return 10 // self.total_batch_size
        ...     def plan_batch(self, epoch, batch):
        ...         first = 9 - batch * self.total_batch_size
        ...         return PlannedBatch(range(first, first - self.total_batch_size, -1))
        >>> Backward(4).get_batch_indices(epoch=0, batch=1).tolist()
        [5, 4, 3, 2]
    """

    depends_on_shards = False
    """Whether the global batches depend on the number of shards."""

    supports_last_batch = False
    """Whether `RandomAccessSampler.with_settings` may change the policy for the last batch. Set it to True if all
    methods use ``last_batch``."""

    must_be_played = False
    """Whether a batch is known only after stepping through all batches before it."""

    has_slots = False
    """Whether a slot delivers a sequence over several batches. If so, a slot stays on its shard also in smaller
    batches; otherwise samples of smaller batches are divided evenly among the shards."""

    knows_sequences = False
    """Whether the sampler knows which sequence a sample belongs to."""

    _has_fixed_batch_size = False  # whether a copy cannot have another one
    _can_change_batch_size = False  # whether a begun epoch can be continued with another one

    def __init__(self, total_batch_size: int | None = None, *, last_batch: LastBatch = "drop") -> None:
        """Set the batch size.

        Args:
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            last_batch: Handling of a last batch that is not full, see `LastBatch`.

        Raises:
            SettingError: The batch size is not a whole number of at least 1, or there is no such policy.
        """
        self._total_batch_size: int | None = None
        if total_batch_size is not None:
            self._total_batch_size = whole_number(total_batch_size, "total_batch_size", at_least=1)
        self._last_batch = check_last_batch(last_batch)
        self._num_shards = 1
        self._history: _History = (0, ())
        self._first_position = self._next_position = (0, 0)

    # --- random access ----------------------------------------------------------------------------

    @abstractmethod
    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch, or None where the sampler is endless."""

    @abstractmethod
    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch of an epoch, ``0 <= batch < num_batches(epoch)``."""

    def get_batch_indices(self, epoch: int, batch: int) -> Int64Array:
        """Sample indices of a batch, ``(total_batch_size,)`` int64."""
        return self.plan_batch(epoch, batch).indices

    # --- settings ---------------------------------------------------------------------------------

    @property
    def total_batch_size(self) -> int:
        """Samples per batch, all shards together; a `SettingError` where it was not set yet."""
        if self._total_batch_size is None:
            raise SettingError(
                f"The batch size of the {type(self).__name__} is not set. Give `total_batch_size`, or let a "
                f"DataLoader set it (DataLoader(provider, sampler=..., batch_size=...))."
            )
        return self._total_batch_size

    @property
    def has_batch_size(self) -> bool:
        """Whether the total batch size is set."""
        return self._total_batch_size is not None

    @property
    def last_batch(self) -> LastBatch:
        """Handling of a last batch that is not full."""
        return self._last_batch

    @property
    def num_samples(self) -> int | None:
        """Number of samples that the data set must have; None if it is not known."""
        return None

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch, or None where they are not known."""
        return None

    def describe(self) -> Description:
        """Settings on which the order depends, as short values by name; other values mean another order.

        By default, the name of the class, and the first samples of two epochs.
        """
        second = (1, 0) if self.is_epoch_based else (0, 1)
        first = np.concatenate([self.get_batch_indices(0, 0), self.get_batch_indices(*second)])
        return {"sampler": type(self).__name__, "first_batches": digest(first)}

    def check_provider(self, provider: object) -> None:
        """Raise a `SettingError` if the sampler cannot choose from this data set. Its size was checked before."""

    # --- variants ---------------------------------------------------------------------------------

    def with_settings(
        self: _Self,
        *,
        total_batch_size: int | None = None,
        num_shards: int = 1,
        last_batch: LastBatch | None = None,
    ) -> _Self:
        """Get a copy with other settings; None leaves one as it is.

        Raises:
            SettingError: A value is out of its range, or the sampler cannot have it.
        """
        changed = self._copy(self._history)
        if total_batch_size is not None:
            changed._total_batch_size = whole_number(total_batch_size, "total_batch_size", at_least=1)
            if self._has_fixed_batch_size and changed._total_batch_size != self._total_batch_size:
                raise SettingError(
                    f"The {self.describe()['sampler']} was created for batches of {self._total_batch_size} (all "
                    f"shards together), which its order depends on; requested: {total_batch_size}. Create it with "
                    f"that size."
                )
        if last_batch is not None:
            changed._last_batch = check_last_batch(last_batch)
            if changed._last_batch != self._last_batch and not self.supports_last_batch and self._has_last_batch():
                raise SettingError(
                    f"{type(self).__name__} was created with last_batch={self._last_batch!r}, and does not say "
                    f"that it supports another policy; requested: {last_batch!r}. Create it with that one, or set "
                    f"`supports_last_batch = True` in the class if its methods use `self.last_batch`."
                )
        changed._num_shards = num_shards
        changed._take_over(self)
        return changed

    def _has_last_batch(self) -> bool:
        try:
            return self.is_epoch_based
        except SettingError:  # the number of batches of an epoch depends on the batch size, which is not set
            return True

    def _take_over(self, original: Any) -> None:
        """Copy the caches that are valid for the settings of this copy as well."""

    def continued(self: _Self, epoch: int, segments: Sequence[EpochSegment]) -> _Self:
        """Get a copy that continues an epoch of which these segments were delivered.

        The next batch of this epoch has the number after the last delivered one; the published interface starts
        with it. Other epochs are not affected. If all segments have the settings of this sampler, the batches of
        this epoch are the same as without the call.

        Raises:
            SettingError: The sampler cannot continue with another batch size than the segments have.
        """
        changed = self._copy((epoch, tuple(segments)))
        different = changed._segments(epoch)
        if different and not self._can_change_batch_size:
            raise SettingError(
                f"The order of the {type(self).__name__} depends on the batch size, so an epoch that was begun "
                f"with batches of {different[-1].total_batch_size} cannot be continued with batches of "
                f"{self.total_batch_size} (all shards together). Continue with the same total batch size."
            )
        return changed

    def _copy(self: _Self, history: _History) -> _Self:
        changed = copy.copy(self)
        changed._history = epoch, segments = history
        changed._first_position = epoch, sum(segment.num_batches for segment in segments)
        changed._next_position = changed._first_position
        return changed

    def _segments(self, epoch: int) -> list[EpochSegment]:
        """Get the segments of an epoch that were delivered with other settings than this sampler has."""
        segments: list[EpochSegment] = []
        for segment in self._history[1] if self._history[0] == epoch else ():
            if segments and self._are_alike(segments[-1], segment):
                segments[-1] = attrs.evolve(segment, num_batches=segments[-1].num_batches + segment.num_batches)
            elif segment.num_batches:
                segments.append(segment)
        if segments and self._total_batch_size is not None:
            own = EpochSegment(self._num_shards, self._total_batch_size, 0)
            return segments[:-1] if self._are_alike(segments[-1], own) else segments
        return segments

    def _are_alike(self, one: EpochSegment, other: EpochSegment) -> bool:
        is_same_shard = not self.depends_on_shards or one.num_shards == other.num_shards
        return is_same_shard and one.total_batch_size == other.total_batch_size

    def num_batches_of_first(self, num_epochs: int) -> int:
        """Number of batches of the first ``num_epochs`` whole epochs together. 0 for endless samplers."""
        return sum(self.num_batches(epoch) or 0 for epoch in range(num_epochs))

    def num_batches_before(self, epoch: int) -> int:
        """Number of batches of an epoch that were delivered with other settings (see `continued`)."""
        if self._history[0] != epoch or not self._history[1]:  # the usual case, for each batch
            return 0
        return sum(segment.num_batches for segment in self._segments(epoch))

    # --- the published interface ------------------------------------------------------------------

    def plan_next_batch(self) -> PlannedBatch:
        """Get the samples of the next batch.

        Raises:
            StopIteration: The epoch has ended; `reset` starts the next one.
        """
        epoch, batch = self._next_position
        num_batches = self.num_batches(epoch)
        if num_batches is not None and batch >= num_batches:
            raise StopIteration
        planned = self.plan_batch(epoch, batch)
        self._next_position = (epoch, batch + 1)
        return planned

    def get_next_batch_indices(self) -> list[int]:
        """Get the sample indices of the next batch, one per slot, see `plan_next_batch`."""
        indices: list[int] = self.plan_next_batch().indices.tolist()
        return indices

    @property
    def is_at_start(self) -> bool:
        """Whether the next batch of `get_next_batch_indices` is the first one."""
        return self._next_position == self._first_position

    @property
    def is_epoch_based(self) -> bool:
        """Whether the batches come in epochs; otherwise the sampler is endless."""
        return self.num_batches(0) is not None

    def reset(self) -> None:
        """Start the next epoch; a `NotSupportedError` where the sampler is endless."""
        if not self.is_epoch_based:
            raise NotSupportedError(f"{type(self).__name__} is not epoch-based, so there is no epoch to start.")
        self._next_position = (self._next_position[0] + 1, 0)

    @property
    def length(self) -> int | None:
        """Number of batches of the first epoch, or None where the sampler is endless."""
        return self.num_batches(0)

    def __repr__(self) -> str:
        settings = {**self.describe(), "total_batch_size": self._total_batch_size, "last_batch": self.last_batch}
        del settings["sampler"]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"
