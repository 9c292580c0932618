# SPDX-License-Identifier: Apache-2.0
"""Random access to the batches of a stateful sampler, by replaying a copy of it."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
from cachetools import LRUCache

from ..draws.keyed_draws import digest
from ..errors import SettingError
from .arithmetic.last_batch import LastBatch, SampleCounts, uneven_batches, unknown_sample
from .plans.tracks import PlannedBatch
from .random_access_sampler import Description, RandomAccessSampler, SamplerBase


class CompleteBatch(NamedTuple):
    """A batch of a sampler, filled up to the size of all its batches.

    Attributes:
        indices: Sample indices, one per slot.
        num_given: How many of them the sampler gave; the rest fills the last batch of an epoch.
    """

    indices: list[int]
    num_given: int


@attrs.define(eq=False, slots=False)
class BatchChecker:
    """Checks the batches of a sampler: always the same size, a whole number per shard, valid indices.

    With a policy for the last batch, the last one of an epoch may be smaller and is completed.

    Attributes:
        sampler_name: Class of the sampler.
        num_shards: Number of shards to which it deals its batches.
        num_samples: Number of samples of the data set.
        last_batch: The policy; None where all batches must be full.
    """

    sampler_name: str
    num_shards: int
    num_samples: int
    last_batch: LastBatch | None = None
    _size: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.start_epoch()

    def start_epoch(self) -> None:
        """Start an epoch with the next batch."""
        self._first: list[int] | None = None
        self._has_ended = False

    def complete(self, batch: Sequence[int]) -> CompleteBatch | None:
        """Check a batch and fill it up; None where it is dropped."""
        indices = self.checked(batch)
        size = self._size or len(indices)
        if self._first is None:
            self._first = indices
        num_given = len(indices)
        if num_given < size:
            self._has_ended = True
            if self.last_batch == "drop":
                return None
            if self.last_batch == "wrap":
                indices = (indices + self._first * size)[:size]
            else:
                indices = indices + indices[-1:] * (size - num_given)
        return CompleteBatch(indices, num_given)

    def checked(self, batch: Sequence[int]) -> list[int]:
        """Check a batch; returns it as a list of ints."""
        try:
            indices = [operator.index(index) for index in batch]
        except TypeError as error:
            method = f"{self.sampler_name}.get_next_batch_indices()"
            raise SettingError(f"{method} must return a sequence of whole numbers, got {batch!r}.") from error
        if self._size is None:
            if not indices or len(indices) % self.num_shards:
                raise uneven_batches(self.sampler_name, len(indices), self.num_shards)
            self._size = len(indices)
        may_be_smaller = self.last_batch is not None and not self._has_ended and indices
        if self._has_ended or len(indices) > self._size or (len(indices) < self._size and not may_be_smaller):
            lacks_policy = self.last_batch is None and 0 < len(indices) < self._size
            after = ", after a smaller batch" if self._has_ended else ""
            advice = "For the last one, give the loader or input last_batch='partial' or 'drop'." * lacks_policy
            raise SettingError(
                f"All batches of a sampler must have the same size (all but the last of an epoch, where there is "
                f"a `last_batch` policy): {self.sampler_name} delivered {self._size} indices first and "
                f"{len(indices)} now{after}. {advice}".rstrip()
            )
        if min(indices) < 0 or max(indices) >= self.num_samples:
            raise unknown_sample(indices, self.num_samples, self.sampler_name)
        return indices


class _Recording(SamplerBase):
    """Delivers the batches that a sampler delivered before, epoch by epoch."""

    is_epoch_based, length = True, None

    def __init__(self, epochs: list[list[Sequence[int]]]) -> None:
        self._epochs = epochs
        self._epoch = self._batch = 0

    def __deepcopy__(self, memo: object) -> _Recording:
        return _Recording(self._epochs)

    def get_next_batch_indices(self) -> Sequence[int]:
        if self._batch == len(self._epochs[self._epoch]):
            raise StopIteration
        self._batch += 1
        return self._epochs[self._epoch][self._batch - 1]

    def reset(self) -> None:
        self._epoch, self._batch = self._epoch + 1, 0


def _play(
    sampler: SamplerBase, checker: BatchChecker, max_batches: int | None
) -> Iterator[tuple[Sequence[int], CompleteBatch | None] | None]:
    """Yield batches as given and completed (None where one is dropped), and None at the end of an epoch."""
    checker.start_epoch()
    epoch = num_batches = num_played = 0
    while num_played != max_batches:
        try:
            given = sampler.get_next_batch_indices()
        except StopIteration:
            if num_batches == 0:
                raise SettingError(
                    f"{type(sampler).__name__} ended epoch {epoch} without a single batch. An epoch-based sampler "
                    f"must deliver batches again after reset()."
                ) from None
            sampler.reset()
            checker.start_epoch()
            epoch, num_batches = epoch + 1, 0
            yield None
            continue
        complete = checker.complete(given)
        num_batches += complete is not None
        num_played += complete is not None
        yield given, complete


def _recorded(sampler: SamplerBase, checker: BatchChecker, max_batches: int) -> _Recording:
    epochs: list[list[Sequence[int]]] = [[]]
    for played in _play(sampler, copy.copy(checker), max_batches):
        if played is None:
            epochs.append([])
        else:
            epochs[-1].append(played[0])
    return _Recording(epochs)


class SamplerReplay:
    """Random access to the batches of a sampler that only has a next batch.

    Each process plays a copy of the unused sampler forward as far as requested, and starts over with a new copy
    for a batch that it has passed and forgotten. Only the unused sampler is pickled, so the size of the pickle
    does not grow with the number of batches. A sampler that can be neither copied nor pickled is played once, up
    to ``max_batches``, and its batches are recorded.
    """

    def __init__(self, sampler: SamplerBase, checker: BatchChecker, max_batches: int | None) -> None:
        """Set up.

        Args:
            sampler: The sampler, not used before. It stays unused unless it cannot be copied.
            checker: Checks each batch.
            max_batches: Number of batches, over all epochs, after which the sampler counts as used up.
        """
        self._checker = checker
        self._max_batches = max_batches
        self._unused: SamplerBase
        try:
            self._unused = copy.deepcopy(sampler)
        except Exception as error:
            if max_batches is None:
                raise SettingError(
                    f"{type(sampler).__name__} can neither be copied nor played into a table, since the "
                    f"number of iterations is not limited. Make what cannot be copied on first use, "
                    f"or give `max_num_iterations`."
                ) from error
            self._unused = _recorded(sampler, checker, max_batches)
        self._forget()

    def _forget(self) -> None:
        self._played: Iterator[tuple[Sequence[int], CompleteBatch | None] | None] | None = None
        self._epoch = self._batch = 0  # position of the player: the next batch is `_batch` of `_epoch`
        self._recent: LRUCache[tuple[int, int], CompleteBatch] = LRUCache(64)
        self._epoch_lengths: dict[int, int] = {}
        self._num_dropped: dict[int, int] = {}  # samples of a last batch that was dropped, per epoch
        self._used_up = False

    def __getstate__(self) -> dict[str, object]:
        unused = self._unused
        if self._max_batches is not None:
            try:
                pickle.dumps(unused)
            except Exception:  # whatever a member raises: it cannot be pickled, so send what it chooses
                unused = _recorded(copy.deepcopy(unused), self._checker, self._max_batches)
        return {"_checker": self._checker, "_max_batches": self._max_batches, "_unused": unused}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    @property
    def unused(self) -> SamplerBase | None:
        """A copy of the sampler that was not used yet, or None where it cannot be copied."""
        return None if isinstance(self._unused, _Recording) else self._unused

    def get(self, epoch: int, batch: int) -> CompleteBatch:
        """Get a batch.

        Raises:
            StopIteration: The epoch has fewer batches.
            RuntimeError: The sampler is used up before this epoch begins.
        """
        known = self._recent.get((epoch, batch))
        if known is not None:
            return known
        if (epoch, batch) < (self._epoch, self._batch) and batch < self._epoch_lengths.get(epoch, batch + 1):
            self._forget()
        while (epoch, batch) not in self._recent:
            if epoch in self._epoch_lengths:
                raise StopIteration
            if self._used_up:
                raise RuntimeError(used_up_message(epoch, self._max_batches))
            self._advance()
        return self._recent[epoch, batch]

    def num_dropped(self, epoch: int) -> int:
        """Number of samples of an epoch that were dropped, where the epoch was played to its end."""
        return self._num_dropped.get(epoch, 0)

    def num_batches(self, epoch: int) -> int:
        """Number of batches of an epoch; plays the sampler to its end."""
        while epoch not in self._epoch_lengths and not self._used_up:
            self._advance()
        return self._epoch_lengths.get(epoch, 0)

    def _advance(self) -> None:
        if self._played is None:
            self._played = _play(copy.deepcopy(self._unused), self._checker, self._max_batches)
        try:
            played = next(self._played)
        except StopIteration:
            self._epoch_lengths[self._epoch] = self._batch
            self._used_up = True
            return
        except Exception:
            self._forget()
            raise
        if played is None:
            self._epoch_lengths[self._epoch] = self._batch
            self._epoch, self._batch = self._epoch + 1, 0
        elif played[1] is None:
            self._num_dropped[self._epoch] = len(played[0])
        else:
            self._recent[self._epoch, self._batch] = played[1]
            self._batch += 1


def used_up_message(epoch: int, max_batches: int | None) -> str:
    """Write the error for a sampler that has delivered its maximum number of batches."""
    return (
        f"Epoch {epoch} was requested, but the maximum number of iterations is used up: the sampler was "
        f"limited to {max_batches} batches in all (`max_num_iterations` + `pre_fetch_queue_length`). "
        f"Raise `max_num_iterations`, or pass None for no limit."
    )


class ReplayedSampler(RandomAccessSampler):
    """A sampler with the published stateful interface, by random access; far ahead it costs a replay."""

    must_be_played = True

    def __init__(
        self,
        sampler: SamplerBase,
        num_samples: int,
        num_shards: int,
        max_batches: int | None,
        last_batch: LastBatch | None = None,
    ) -> None:
        """Wrap a sampler that was not used before. See `SamplerReplay`."""
        self._settings = (num_samples, max_batches)
        self._name = type(sampler).__name__
        self._policy = last_batch
        self._is_endless = not sampler.is_epoch_based
        self._replay = SamplerReplay(
            sampler, BatchChecker(self._name, num_shards, num_samples, last_batch), max_batches
        )
        total_batch_size = len(self._replay.get(0, 0).indices)
        super().__init__(total_batch_size, last_batch=last_batch or "drop")
        self._num_shards = num_shards

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch; plays the sampler to its end. None for an endless sampler."""
        return None if self._is_endless else self._replay.num_batches(epoch)

    @property
    def is_epoch_based(self) -> bool:
        """Whether the sampler is; it is not played to find out."""
        return not self._is_endless

    def has_batch(self, epoch: int, batch: int) -> bool:
        """Whether there is such a batch; plays the sampler no further than to it. See `SamplerReplay.get`."""
        try:
            self._replay.get(epoch, batch)
        except StopIteration:
            return False
        return True

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch."""
        if batch < 0 or not self.has_batch(epoch, batch):
            raise SettingError(f"Epoch {epoch} of {self._name} has no such batch, requested: batch {batch}.")
        complete = self._replay.get(epoch, batch)
        fills = np.arange(len(complete.indices)) >= complete.num_given
        if self._policy == "wrap":
            return PlannedBatch(complete.indices, visit=-1 * fills.astype(np.int64))
        return PlannedBatch(complete.indices, fills)

    def with_settings(
        self, *, total_batch_size: int | None = None, num_shards: int = 1, last_batch: LastBatch | None = None
    ) -> ReplayedSampler:
        """Get a copy with other settings. See `RandomAccessSampler.with_settings`."""
        if total_batch_size not in (None, self.total_batch_size):
            raise SettingError(
                f"{self._name} delivers batches of {self.total_batch_size} (all shards together), requested: "
                f"{total_batch_size}."
            )
        if last_batch in (None, self._policy):
            return super().with_settings(num_shards=num_shards)
        sampler = self._replay.unused
        if sampler is None:
            raise SettingError(
                f"{self._name} can neither be copied nor pickled, so it was played already, and a policy for its "
                f"last batch ({last_batch!r}) comes too late. Make what cannot be copied on first use."
            )
        num_samples, max_batches = self._settings
        return ReplayedSampler(sampler, num_samples, num_shards, max_batches, last_batch)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch; plays the sampler to its end.

        None for an endless sampler, and for one that can neither be copied nor pickled.
        """
        if self._is_endless or self._replay.unused is None:
            return None
        num_batches = self._replay.num_batches(epoch)
        num_surplus = 0
        if num_batches:
            last = self._replay.get(epoch, num_batches - 1)
            num_surplus = len(last.indices) - last.num_given
        num_slots = num_batches * self.total_batch_size
        num_delivered = num_slots - num_surplus
        num_samples = num_delivered + self._replay.num_dropped(epoch)
        return SampleCounts.of_slots(self.last_batch, num_batches, num_slots, num_samples, num_delivered)

    # Two samplers with the same first batch may differ in later ones.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def describe(self) -> Description:
        """Describe the known part of the order: the class of the sampler and its first batch."""
        first = np.array(self._replay.get(0, 0).indices, np.int64)
        return {"sampler": self._name, "first_batch": digest(first)}
