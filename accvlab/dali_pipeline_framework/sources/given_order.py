# SPDX-License-Identifier: Apache-2.0
"""Orders given as indices: a function of the epoch, or a sampler of PyTorch.

Both are run in the main process, when a loop begins. Workers get the places of samples with their tasks.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..checks import check_shard, setting_error, shown
from ..draws.keyed_draws import Int64Array, digest
from ..errors import NotSupportedError, SettingError, text_of
from ..sampling.arithmetic.last_batch import LastBatch
from ..sampling.planned_sampler import EpochPlanSampler
from ..sampling.plans.epoch_plans import EpochPlan, FlatPlan

GivenOrder: TypeAlias = Callable[[int], Sequence[int]] | Iterable[int]
"""A function from an epoch to its sample indices, or a sampler of PyTorch."""

_NONE: tuple[int, Int64Array] = (-1, np.zeros((2, 0), np.int64))


class EpochIndices:
    """The sample indices of the running epoch, and of one whose loop has not begun.

    Only the process that made this object runs the user's code.
    """

    def __init__(self, given: GivenOrder, num_samples: int) -> None:
        """Set the order of a data set of ``num_samples`` samples."""
        self._given: Any = given
        self._num_samples = num_samples
        self.is_function = not isinstance(given, Iterable)
        self.name = type(given).__name__
        if self.is_function:
            self.name = f"function `{getattr(given, '__name__', self.name)}`"
        self._takes_epoch = self.is_function or hasattr(given, "set_epoch")
        # Epoch, and (2, n): indices and visits, see `UnitsAt`.
        self._running = self._ahead = _NONE
        self._is_repeatable: bool | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_given": None, "_running": _NONE, "_ahead": _NONE}

    @property
    def stated_count(self) -> int | None:
        """Length of the sampler, or None."""
        try:
            return len(self._given)
        except Exception:  # it has none, or reports when it is run what is wrong
            return None

    def begin(self, epoch: int) -> None:
        """Make the order of the epoch of a loop that begins.

        A sampler whose order was requested before keeps it; a function is run anew, since it may use results of
        the training.
        """
        if self.is_function:
            self._ahead = _NONE
        self._running = self._made_ahead(epoch)
        self._ahead = _NONE

    def require_repeatable(self, epoch: int) -> None:
        """Raise a `NotSupportedError` where the order of a begun epoch cannot be made again."""
        if self._is_repeatable is None:
            if self._takes_epoch:
                self._is_repeatable = np.array_equal(self.of_epoch(epoch), self._drawn(epoch))
            else:
                in_order = getattr(sys.modules.get("torch.utils.data"), "SequentialSampler", Sequence)
                self._is_repeatable = isinstance(self._given, (Sequence, np.ndarray, in_order))
        if not self._is_repeatable:
            again = "gives another order when run again for the same epoch"
            reason = again if self._takes_epoch else "has no `set_epoch`"
            raise NotSupportedError(
                f"The order of the {self.name} is not a function of the epoch: it {reason}. So a loader cannot go "
                f"on in the middle of an epoch, only at its end. Use sampler=ShuffledSampler(num_samples, "
                f"seed=...), or a function epoch -> indices that makes its generator from a seed and the epoch."
            )

    def count(self, epoch: int) -> int:
        """Count the indices of an epoch; a sampler with a length is not run for that."""
        count = None if self._running[0] == epoch else self.stated_count
        return len(self.of_epoch(epoch)) if count is None else count

    def of_epoch(self, epoch: int) -> Int64Array:
        """Get the ``(n,)`` indices of an epoch."""
        indices: Int64Array = self._order(epoch)[1][0]
        return indices

    def units(self, epoch: int, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Get indices and visits at positions of an epoch, see `UnitsAt`."""
        indices, visits = self._order(epoch)[1][:, positions]
        return indices, visits

    def _order(self, epoch: int) -> tuple[int, Int64Array]:
        return self._running if self._running[0] == epoch else self._made_ahead(epoch)

    def _made_ahead(self, epoch: int) -> tuple[int, Int64Array]:
        if self._ahead[0] != epoch:
            torch = None if self.is_function else sys.modules.get("torch")
            if torch is not None:  # PyTorch's loader draws a seed for its workers before it runs its sampler
                torch.empty((), dtype=torch.int64).random_()
            indices = self._drawn(epoch)
            repeats = np.bincount(indices).max() > 1
            self._ahead = epoch, np.stack([indices, np.arange(1, len(indices) + 1) * repeats])
        return self._ahead

    def _drawn(self, epoch: int) -> Int64Array:
        """Run the user's code."""
        count = None if self.is_function else self.stated_count
        try:
            if self._takes_epoch and not self.is_function:
                self._given.set_epoch(epoch)
            given = self._given(epoch) if self.is_function else [*self._given]
        except Exception as error:
            raise SettingError(
                f"The order of epoch {epoch} is not known: the {self.name} raised {type(error).__name__}: "
                f"{text_of(error)}."
            ) from error
        indices = self._checked(given, epoch)
        if count not in (None, len(indices)):
            raise SettingError(
                f"A sampler must deliver as many indices as its length says: {self.name} has the length {count}, "
                f"and delivered {len(indices)} in epoch {epoch}. Correct its `__len__`, or leave it out."
            )
        return indices

    def _checked(self, given: npt.ArrayLike, epoch: int) -> Int64Array:
        try:
            indices = np.asarray(given)
        except ValueError:  # lists of different lengths
            indices = np.empty((1, 1))
        if indices.size == 0:
            raise SettingError(f"An epoch must have samples: the {self.name} gave no index for epoch {epoch}.")
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise SettingError(
                f"The order of an epoch must be a flat sequence of whole numbers, the sample indices: the "
                f"{self.name} gave {shown(given)} for epoch {epoch}. In place of a batch sampler, give the "
                f"sampler in it, with `batch_size` and `last_batch`; where its batches vary in size, make each "
                f"an item of the data set, with batch_size=1."
            )
        is_wrong = (indices < 0) | (indices >= self._num_samples)
        if is_wrong.any():
            place = int(is_wrong.argmax())
            rule = f"The {self.name} chose sample {indices[place]} at position {place} of epoch {epoch}"
            raise SettingError(f"{rule}, but the data set has the samples 0 .. {self._num_samples - 1}.")
        return indices.astype(np.int64)


class GivenOrderSampler(EpochPlanSampler):
    """Batches in an order that the user gives as indices.

    - A function of the epoch gives the order of all shards, which are dealt their slots of each batch.
    - A sampler of PyTorch gives the samples of its own rank. Those of other ranks are not known here; they must be
      equally many. ``num_replicas`` (or ``world_size``) and ``rank`` say which rank that is; without them, it is
      the only one.

    Attributes:
        indices: The indices of the running epoch.
        shard: Shard id and number of shards that the samples are for; the latter 1 for a function.
    """

    def __init__(self, given: GivenOrder, num_samples: int) -> None:
        """Set the function or the sampler.

        Raises:
            SettingError: It is neither, can be iterated once only, or its order is not one of indices.
        """
        super().__init__(None, "partial", num_samples, {})
        if isinstance(given, Iterator) or not (isinstance(given, Iterable) or callable(given)):
            hint = "An iterator ends with its first epoch." if isinstance(given, Iterator) else ""
            rule = "a sampler of this package, a function epoch -> indices, or a sampler of PyTorch"
            raise setting_error("sampler", rule, given, hint)
        self.indices = indices = EpochIndices(given, num_samples)
        self.depends_on_shards = not indices.is_function
        self.shard = 0, 1
        if indices.is_function:
            self._settings = {"sampler": "function of the epoch", "first_epoch": digest(indices.of_epoch(0))}
            return
        num_ranks = getattr(given, "num_replicas", getattr(given, "world_size", None))
        if num_ranks is not None:
            self.shard = check_shard(getattr(given, "rank", None), num_ranks)
        count = indices.stated_count
        if count is None and self.shard[1] > 1:
            rule = "A sampler for several ranks must have a length, so that their numbers of batches are known"
            raise SettingError(f"{rule}: define `__len__` in {indices.name}.")
        self._settings = {"sampler": indices.name, "num_per_epoch": count, "num_ranks": self.shard[1]}
        settings = {name: getattr(given, name, None) for name in ("seed", "shuffle", "drop_last")}
        self._settings |= {name: value for name, value in settings.items() if isinstance(value, int)}

    def with_settings(
        self, *, total_batch_size: int | None = None, num_shards: int = 1, last_batch: LastBatch | None = None
    ) -> GivenOrderSampler:
        """Get a copy with other settings; a `SettingError` where the order is for another number of ranks."""
        if self.depends_on_shards and num_shards != self.shard[1]:
            raise SettingError(
                f"A sampler of PyTorch gives the samples of its own rank: the {self.indices.name} is for "
                f"{self.shard[1]} rank(s) (`num_replicas`; 1 without that), the loader for {num_shards} shard(s). "
                f"Use a DistributedSampler for as many ranks, or a function epoch -> indices, which is dealt to "
                f"all shards."
            )
        return super().with_settings(
            total_batch_size=total_batch_size, num_shards=num_shards, last_batch=last_batch
        )

    def _plan(self, epoch: int) -> EpochPlan:
        plan = super()._plan(epoch)
        self._plans.clear()  # another loop over the same epoch may have another order
        return plan

    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        units_at = functools.partial(self.indices.units, epoch)
        num_ranks = num_shards if self.depends_on_shards else 1  # as many samples are delivered on every rank
        return FlatPlan(
            self.indices.count(epoch), units_at, total_batch_size, self.last_batch, num_ranks=num_ranks
        )
