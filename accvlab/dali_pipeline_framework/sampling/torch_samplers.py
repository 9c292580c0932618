# SPDX-License-Identifier: Apache-2.0
"""The orders of PyTorch's samplers, index by index, so that a run can change its loader and go on as it was.

``SequentialSampler`` has the same order as that of PyTorch; so a ``BatchSampler`` is a batch size and
``last_batch``.
"""

from __future__ import annotations

import math
from abc import ABC
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from ..checks import MOST_SAMPLES, choice, flag, shown, whole_number
from ..draws.keyed_random import digest
from ..errors import SettingError
from .arithmetic.class_weights import checked_weights
from .arithmetic.last_batch import LastBatch
from .arithmetic.torch_generator import torch_generator, torch_permutation
from .planned_sampler import EpochPlanSampler, PlannedSampler
from .plans.epoch_plan import EpochPlan
from .plans.flat_plan import FlatPlan
from .plans.orders import EpochOrder
from .plans.planned_batch import Int64Array
from .plans.strided_plan import StridedPlan
from .plans.torch_orders import EpochDraw, GeneratorOwner, RandomDraw, TorchOrder, WeightedDraw
from .plans.tracks import SampleUnits
from .random_access_sampler import Description


class _DrawnSampler(PlannedSampler, ABC):
    """Samples drawn from a generator of PyTorch."""

    def __init__(
        self,
        num_samples: int,
        draw: EpochDraw,
        total_batch_size: int | None,
        seed: int,
        state: Any,
        generator: GeneratorOwner,
        persistent_workers: bool,
        last_batch: LastBatch,
    ) -> None:
        super().__init__(total_batch_size, last_batch)
        self._num_samples = num_samples
        self._draw = draw
        self.seed = whole_number(seed, "seed", at_least=0)
        if self.seed >= 2**64:
            raise SettingError(f"`seed` must be less than 2**64, as for PyTorch, got {seed}.")
        self._state = _checked_state(state)
        self._owner: GeneratorOwner = choice(generator, "generator", get_args(GeneratorOwner))
        if self._owner == "epoch" and self._state is not None:
            raise SettingError("`state` does not go with generator='epoch', which has a seed for each epoch.")
        self._is_persistent = flag(persistent_workers, "persistent_workers")
        self.order = TorchOrder(draw, self.seed, self._state, self._owner, self._is_persistent)
        self.unit_table = SampleUnits(num_samples)

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_samples": self._num_samples,
            "num_per_epoch": self._draw.num_drawn,
            "seed": self.seed if self._state is None else None,
            "state": None if self._state is None else digest(self._state),
            "generator": self._owner,
            "persistent_workers": self._is_persistent,
        }


class TorchRandomSampler(_DrawnSampler):
    """The order of ``torch.utils.data.RandomSampler``, so that of PyTorch's ``DataLoader(shuffle=True)``.

    Which generator the seed is for tells ``generator``:

    - ``"global"``: ``torch.manual_seed(seed)``, and a loader and sampler without a generator. In each epoch the
      loader draws a seed for its workers, and the sampler one for its order. What else is drawn from the global
      generator shifts the order: pass the state that it has where the first loop starts,
      ``state=torch.get_rng_state()``. What is drawn while the loops run (dropout on the CPU) cannot be known;
      draws on a GPU do not matter.
    - ``"loader"``: ``DataLoader(shuffle=True, generator=torch.Generator().manual_seed(seed))``.
    - ``"sampler"``: ``RandomSampler(dataset, generator=torch.Generator().manual_seed(seed))`` in a loader without
      one.
    - ``"epoch"``: a sampler whose generator has ``seed + epoch`` in each epoch, as ``SeedableRandomSampler`` of
      Accelerate, which the ``Trainer`` of Hugging Face uses.

    With several shards the slots of a rank are one of the batches that PyTorch's batch sampler makes, in turn, as
    Accelerate deals them. Each process that plans batches imports PyTorch and holds the order of an epoch, 8 bytes
    per sample. An epoch is reached by drawing those before it; of ``"global"`` only their seeds, of ``"epoch"``
    nothing.

    Example::

        >>> sampler = TorchRandomSampler(10, 4, seed=0)
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(2)]
        [[6, 7, 1, 4], [2, 0, 9, 8]]
    """

    def __init__(
        self,
        num_samples: int,
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        state: Any = None,
        generator: GeneratorOwner = "global",
        replacement: bool = False,
        num_per_epoch: int | None = None,
        persistent_workers: bool = False,
        last_batch: LastBatch = "partial",
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            seed: Seed of the generator.
            state: State of the generator before the first epoch, as ``get_state`` or ``torch.get_rng_state`` tell
                it, in place of a seed.
            generator: Which generator: ``"global"``, ``"loader"``, ``"sampler"`` or ``"epoch"``.
            replacement: As in PyTorch.
            num_per_epoch: ``num_samples`` of PyTorch's sampler: number of draws. None: that of the data set.
            persistent_workers: Whether PyTorch's loader has ``persistent_workers=True``: then it draws their seed
                once.
            last_batch: What becomes of a last batch that is not full: ``"partial"`` is ``drop_last=False``,
                ``"drop"`` is ``drop_last=True``.

        Raises:
            SettingError: An argument is out of its range.
        """
        size = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        if num_per_epoch is None:
            num_per_epoch = size
        count = whole_number(num_per_epoch, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
        self._replacement = flag(replacement, "replacement")
        draw = RandomDraw(size, count, self._replacement)
        super().__init__(size, draw, total_batch_size, seed, state, generator, persistent_workers, last_batch)

    def describe(self) -> Description:
        """What the order depends on."""
        return {**super().describe(), "replacement": self._replacement}


class TorchWeightedSampler(_DrawnSampler):
    """The order of ``torch.utils.data.WeightedRandomSampler``.

    The arguments that it shares with `TorchRandomSampler` mean the same. This sampler draws its samples, not a
    seed, from the global generator where it has none of its own.

    Example::

        >>> sampler = TorchWeightedSampler([0.1, 0.9, 0.4, 0.7], 4, num_per_epoch=8, seed=0, generator="sampler")
        >>> sampler.get_next_batch_indices()
        [3, 3, 1, 3]
    """

    def __init__(
        self,
        weights: npt.ArrayLike,
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        state: Any = None,
        generator: GeneratorOwner = "global",
        replacement: bool = True,
        num_per_epoch: int | None = None,
        persistent_workers: bool = False,
        last_batch: LastBatch = "partial",
    ) -> None:
        """Create the sampler.

        Args:
            weights: ``(N,)``, weight of each sample.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            seed: Seed of the generator.
            state: State of the generator before the first epoch, in place of a seed.
            generator: Which generator: ``"global"``, ``"loader"``, ``"sampler"`` or ``"epoch"``.
            replacement: As in PyTorch.
            num_per_epoch: ``num_samples`` of PyTorch's sampler: number of draws. None: as many as weights.
            persistent_workers: Whether PyTorch's loader has ``persistent_workers=True``.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        checked = checked_weights(weights, None, "weights")
        self._weights = np.ascontiguousarray(checked, np.float64)
        count = len(checked) if num_per_epoch is None else num_per_epoch
        count = whole_number(count, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
        self._replacement = flag(replacement, "replacement")
        draw = WeightedDraw(self._weights, count, self._replacement)
        super().__init__(
            len(checked), draw, total_batch_size, seed, state, generator, persistent_workers, last_batch
        )

    def describe(self) -> Description:
        """What the order depends on."""
        return {**super().describe(), "replacement": self._replacement, "weights": digest(self._weights)}


class TorchDistributedSampler(EpochPlanSampler):
    """The order of ``torch.utils.data.DistributedSampler``: rank ``r`` of ``R`` gets ``r, r + R, r + 2 R, ...`` of
    it.

    The order of an epoch has a generator of its own, with the seed ``seed + epoch``. So that all ranks get equally
    many, the first samples of the order come again at its end, or with ``drop_last`` its last ones are left out.

    ``DefaultSampler`` of MMEngine has the same order, and so have the loaders into which PyTorch Lightning puts a
    ``DistributedSampler`` (with ``PL_GLOBAL_SEED`` as its seed).

    An epoch that was begun can be continued on other ranks: what is left is dealt to them in the same way.

    Example::

        >>> sampler = TorchDistributedSampler(10, 4, shuffle=False).with_settings(num_shards=2)
        >>> sampler.get_next_batch_indices()  # of rank 0, then of rank 1
        [0, 2, 1, 3]
    """

    depends_on_shards = True

    def __init__(
        self,
        num_samples: int,
        total_batch_size: int | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        sets_epoch: bool = True,
        last_batch: LastBatch = "partial",
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            shuffle: As in PyTorch.
            seed: As in PyTorch.
            drop_last: That of PyTorch's sampler; that of its loader is ``last_batch``.
            sets_epoch: Whether the loop calls ``set_epoch`` before each epoch. If not, all have the same order.
            last_batch: What becomes of a last batch that is not full: ``"partial"`` is ``drop_last=False`` of
                PyTorch's loader, ``"drop"`` is ``drop_last=True``.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size, last_batch)
        self._num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        self._shuffle = flag(shuffle, "shuffle")
        self._seed = whole_number(seed, "seed", at_least=0)
        self._drop_last = flag(drop_last, "drop_last")
        self._sets_epoch = flag(sets_epoch, "sets_epoch")

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_samples": self._num_samples,
            "seed": self._seed if self._shuffle else None,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "sets_epoch": self._sets_epoch,
        }

    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        size = self._num_samples
        if self._drop_last and size % num_shards:
            num_each = math.ceil((size - num_shards) / num_shards)
        else:
            num_each = math.ceil(size / num_shards)
        order: Int64Array | None = None
        if self._shuffle:
            order = torch_permutation(size, torch_generator(self._seed + (epoch if self._sets_epoch else 0)))

        def units(positions: Int64Array) -> tuple[Int64Array, Int64Array]:
            visits, places = np.divmod(positions, size)  # what comes again has another visit
            return places if order is None else order[places], visits

        flat = FlatPlan(
            EpochOrder(num_each * num_shards, units), SampleUnits(size), 0, total_batch_size, self.last_batch
        )
        return StridedPlan(flat, total_batch_size, num_shards)


def _checked_state(state: Any) -> npt.NDArray[np.uint8] | None:
    """A state of a generator as an array."""
    if state is None:
        return None
    array = np.asarray(state)
    if array.dtype != np.uint8 or array.ndim != 1:
        raise SettingError(
            f"`state` must be the state of a generator, as torch.get_rng_state() or generator.get_state() tell "
            f"it, got {shown(state)}."
        )
    return array.copy()
