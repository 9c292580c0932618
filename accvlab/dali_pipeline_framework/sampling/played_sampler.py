# SPDX-License-Identifier: Apache-2.0
"""Random access to the batches of a sampler that only knows its next batch: it is played into a table."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import operator
import pickle
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ..draws.keyed_draws import Int64Array, digest
from ..errors import SettingError, error_that_is_also
from .arithmetic.last_batch import LastBatch, SampleCounts, uneven_batches, unknown_sample
from .plans.tracks import PlannedBatch
from .random_access_sampler import Description, RandomAccessSampler, SamplerBase


@attrs.define
class BatchChecker:
    """Checks the batches of a sampler: always the same size, a whole number per shard, valid indices.

    Attributes:
        sampler_name: Class of the sampler.
        num_shards: Number of shards to which it deals its batches.
        num_samples: Number of samples of the data set.
        size: Number of indices per batch; 0 before the first one.
    """

    sampler_name: str
    num_shards: int
    num_samples: int
    size: int = 0

    def checked(self, batch: Sequence[int], may_be_smaller: bool = False) -> list[int]:
        """Check a batch; returns it as a list of ints."""
        try:
            indices = [operator.index(index) for index in batch]
        except TypeError as error:
            method = f"{self.sampler_name}.get_next_batch_indices()"
            raise SettingError(f"{method} must return a sequence of whole numbers, got {batch!r}.") from error
        if not self.size:
            if not indices or len(indices) % self.num_shards:
                raise uneven_batches(self.sampler_name, len(indices), self.num_shards)
            self.size = len(indices)
        if len(indices) != self.size and not (may_be_smaller and 0 < len(indices) < self.size):
            raise self.wrong_size(len(indices))
        if min(indices) < 0 or max(indices) >= self.num_samples:
            raise unknown_sample(indices, self.num_samples, self.sampler_name)
        return indices

    def wrong_size(self, size: int, after: str = "") -> SettingError:
        """Write the error for a batch of another size."""
        advice = "For the last one, give the loader or input last_batch='partial' or 'drop'."
        return SettingError(
            f"All batches of a sampler must have the same size (all but the last of an epoch, where there is "
            f"a `last_batch` policy): {self.sampler_name} delivered {self.size} indices first and "
            f"{size} now{after}. {advice * (not after and 0 < size < self.size)}".rstrip()
        )


@attrs.define(slots=False)
class _Table:
    """The batches of a sampler, as far as it was played; 16 bytes per sample.

    Attributes:
        sampler: The sampler, after the last batch of the table; None where it was used up.
        checker: Checks each batch.
        num_left: Number of batches until the sampler counts as used up; may be infinite.
        epochs: For each epoch its batches, ``(2, size)`` each: sample indices, and how often each sample came
            before in the epoch. The last batch of an epoch may be smaller.
        failure: Error with which the sampler failed: it raises it again.
        num_visits: How often each sample came so far in the last epoch, ``(num_samples,)``.
    """

    sampler: SamplerBase | None
    checker: BatchChecker
    num_left: float
    epochs: list[list[Int64Array]] = attrs.field(factory=lambda: [[]])
    failure: Exception | None = None
    num_visits: Int64Array = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.num_visits = np.zeros(self.checker.num_samples, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        try:
            pickle.dumps(self.sampler)
        except Exception as error:  # whatever a member raises: then the table is sent alone
            if self.num_left == math.inf:
                raise SettingError(
                    f"{self.checker.sampler_name} cannot be pickled, nor played to its end, since the number of "
                    f"iterations is not limited. Make what cannot be pickled on first use, or give "
                    f"`max_num_iterations`."
                ) from error
            self.play(math.inf, 0)
            self.sampler = None
        return self.__dict__

    def play(self, epoch: float, num_batches: float) -> None:
        """Play until an epoch has as many batches, or has ended, or the sampler is used up."""
        while self.num_left != 0 and (
            len(self.epochs) <= epoch or (len(self.epochs) == epoch + 1 and len(self.epochs[-1]) < num_batches)
        ):
            if self.failure is not None:
                raise self.failure
            name = self.checker.sampler_name
            self.failure = RuntimeError(
                f"{name} was interrupted, so its next batch is not known. Create a new one."
            )
            try:
                self._play_on()
            except Exception as error:
                self.failure = error
                raise
            self.failure = None

    def _play_on(self) -> None:
        sampler, batches = self.sampler, self.epochs[-1]
        try:
            given = sampler.get_next_batch_indices()  # type: ignore[union-attr]  # it is there until used up
        except StopIteration:
            if not batches:
                raise SettingError(
                    f"{self.checker.sampler_name} ended epoch {len(self.epochs) - 1} without a single batch. An "
                    f"epoch-based sampler must deliver batches again after reset()."
                ) from None
            sampler.reset()  # type: ignore[union-attr]
            self.epochs.append([])
            self.num_visits.fill(0)
            return
        indices = self.checker.checked(given, may_be_smaller=True)
        if batches and batches[-1].shape[1] < self.checker.size:
            raise self.checker.wrong_size(len(indices), ", after a smaller batch")
        visits = []
        for index in indices:
            visits.append(self.num_visits[index])
            self.num_visits[index] += 1
        batches.append(np.array([indices, visits], np.int64))
        self.num_left -= 1


def used_up_message(epoch: int, max_batches: int | None) -> str:
    """Write the error for a sampler that has delivered its maximum number of batches."""
    return (
        f"Epoch {epoch} was requested, but the maximum number of iterations is used up: the sampler was "
        f"limited to {max_batches} batches in all (`max_num_iterations` + `pre_fetch_queue_length`). "
        f"Raise `max_num_iterations`, or pass None for no limit."
    )


class PlayedSampler(RandomAccessSampler):
    """A sampler with the published stateful interface, by random access.

    Each process plays a copy of it as far as batches are requested, and keeps them.
    """

    must_be_played = supports_last_batch = _has_fixed_batch_size = True

    def __init__(self, sampler: SamplerBase, num_samples: int, num_shards: int, max_batches: int | None) -> None:
        """Play the first batch.

        Args:
            sampler: The sampler, not used before. It stays unused, unless it cannot be copied.
            num_samples: Number of samples of the data set.
            num_shards: Number of shards to which it deals its batches.
            max_batches: Number of batches, over all epochs, after which the sampler counts as used up.
        """
        with contextlib.suppress(Exception):  # whatever a member raises that cannot be copied
            sampler = copy.deepcopy(sampler)
        self._name = type(sampler).__name__
        self._max_batches = max_batches
        self._policy: LastBatch | None = None  # all batches must be full
        self._is_endless = not sampler.is_epoch_based
        checker = BatchChecker(self._name, num_shards, num_samples)
        self._table = _Table(sampler, checker, math.inf if max_batches is None else max_batches)
        self._table.play(0, 1)
        super().__init__(self._table.checker.size)
        self._num_shards = num_shards

    def play_to_the_end(self) -> None:
        """Fix all batches, where their number is limited: copies in workers might play on in other ways."""
        if self._max_batches is not None:
            with contextlib.suppress(Exception):  # of the sampler: raised again for the batch that needs it
                self._table.play(math.inf, 0)

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch; plays the sampler to its end. None for an endless sampler."""
        if self._is_endless:
            return None
        self._table.play(epoch, math.inf)
        return len(self._batches(epoch))

    def _batches(self, epoch: int) -> list[Int64Array]:
        """The batches of an epoch, as far as they were played, without one that is dropped."""
        batches = self._table.epochs[epoch] if epoch < len(self._table.epochs) else []
        is_cut = self._policy == "drop" and batches and batches[-1].shape[1] < self.total_batch_size
        return batches[:-1] if is_cut else batches

    @property
    def is_epoch_based(self) -> bool:
        """Whether the sampler is; it is not played to find out."""
        return not self._is_endless

    def has_batch(self, epoch: int, batch: int) -> bool:
        """Whether there is such a batch; plays the sampler no further than to it.

        Raises:
            RuntimeError: The sampler is used up before this epoch begins.
        """
        self._table.play(epoch, batch + 1)
        if epoch >= len(self._table.epochs):
            raise error_that_is_also(SettingError, [RuntimeError], used_up_message(epoch, self._max_batches))
        return batch < len(self._batches(epoch))

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch; a smaller one is filled up."""
        if batch < 0 or not self.has_batch(epoch, batch):
            raise SettingError(f"Epoch {epoch} of {self._name} has no such batch, requested: batch {batch}.")
        batches, size = self._table.epochs[epoch], self.total_batch_size
        given = batches[batch]  # (2, n): indices, visits
        num_given = given.shape[1]
        if num_given < size and self._policy is None:
            raise self._table.checker.wrong_size(num_given)
        if num_given < size and self._policy == "wrap":
            rounds, slots = np.divmod(np.arange(size - num_given), batches[0].shape[1])
            again, visits_again = batches[0][:, slots]
            given = np.append(given, [again, -1 - visits_again - size * rounds], axis=1)
        places = np.arange(size)
        is_padding = places >= given.shape[1]
        indices, visits = given[:, np.where(is_padding, num_given - 1, places)]
        return PlannedBatch(indices, is_padding, visit=visits)

    def with_settings(
        self, *, total_batch_size: int | None = None, num_shards: int = 1, last_batch: LastBatch | None = None
    ) -> PlayedSampler:
        """Get a copy with other settings, which plays the same table. See `RandomAccessSampler.with_settings`."""
        changed = super().with_settings(
            total_batch_size=total_batch_size, num_shards=num_shards, last_batch=last_batch
        )
        changed._policy = last_batch or self._policy
        return changed

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch; plays the sampler to its end. None for an endless sampler."""
        num_batches = self.num_batches(epoch)
        if num_batches is None:
            return None
        num_delivered = sum(batch.shape[1] for batch in self._batches(epoch))
        num_samples = sum(batch.shape[1] for batch in itertools.chain(*self._table.epochs[epoch : epoch + 1]))
        num_slots = num_batches * self.total_batch_size
        return SampleCounts.of_slots(self.last_batch, num_batches, num_slots, num_samples, num_delivered)

    def describe(self) -> Description:
        """Describe the known part of the order: the class of the sampler and its first batch."""
        return {"sampler": self._name, "first_batch": digest(self._table.epochs[0][0][0])}
