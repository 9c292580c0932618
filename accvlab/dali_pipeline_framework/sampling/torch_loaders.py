# SPDX-License-Identifier: Apache-2.0
"""The order of a loader of PyTorch that is there."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from ..checks import shown
from ..errors import SettingError
from .arithmetic.last_batch import LastBatch
from .arithmetic.torch_generator import torch_module
from .planned_sampler import EpochPlanSampler
from .plans.torch_orders import GeneratorOwner
from .sampler_base import SamplerBase
from .shuffled_sampler import SequentialSampler
from .torch_samplers import TorchDistributedSampler, TorchRandomSampler, TorchWeightedSampler


def same_order_as(loader: Any) -> EpochPlanSampler:
    """Make the sampler with the order that a ``torch.utils.data.DataLoader`` is about to deliver.

    Call it where the first loop over that loader would begin: generators are taken in the state that they are in.
    ``DistributedSampler`` is taken as with ``set_epoch`` in each epoch. The batch size is left to the new loader;
    a last batch that is not full becomes what ``drop_last`` says.

    Example:
        >>> import torch
        >>> seeded = torch.Generator().manual_seed(0)
        >>> loader = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True, generator=seeded)
        >>> sampler = same_order_as(loader).with_settings(total_batch_size=4)
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(2)]
        [[3, 7, 5, 2], [0, 8, 1, 6]]
        >>> [batch.tolist() for batch in loader][:2]
        [[3, 7, 5, 2], [0, 8, 1, 6]]

    Raises:
        SettingError: It is no such loader, or its sampler is none of PyTorch's own, of which only
            ``SequentialSampler``, ``RandomSampler``, ``WeightedRandomSampler`` and ``DistributedSampler`` are
            known (and ``SeedableRandomSampler`` of Accelerate).
    """
    torch = torch_module()
    data = torch.utils.data
    if not isinstance(loader, data.DataLoader) or loader.batch_sampler is None:
        raise SettingError(
            f"The argument must be a torch.utils.data.DataLoader that makes batches of a map-style data set, got "
            f"{shown(loader)}."
        )
    batches = loader.batch_sampler
    if type(batches) is not data.BatchSampler:
        raise SettingError(
            f"The order of a batch sampler of one's own, {type(batches).__name__}, is known by playing it only: "
            f"use PlayedBatchSampler(batch_sampler)."
        )
    sampler = batches.sampler
    last_batch: LastBatch = "drop" if batches.drop_last else "partial"
    if type(sampler) is data.SequentialSampler:
        return SequentialSampler(len(sampler), last_batch=last_batch)
    if type(sampler) is data.DistributedSampler:
        return TorchDistributedSampler(
            len(sampler.dataset),
            shuffle=sampler.shuffle,
            seed=sampler.seed,
            drop_last=sampler.drop_last,
            last_batch=last_batch,
        )
    is_weighted = type(sampler) is data.WeightedRandomSampler
    is_seeded = type(sampler).__name__ == "SeedableRandomSampler"  # of Accelerate
    if not is_weighted and not is_seeded and type(sampler) is not data.RandomSampler:
        raise SettingError(
            f"The order of a sampler of one's own, {type(sampler).__name__}, is known by playing it only: use "
            f"PlayedBatchSampler(loader.batch_sampler)."
        )
    owner: GeneratorOwner = "global"
    state: Any = None
    if is_seeded:
        owner = "epoch"
    elif sampler.generator is not None:
        owner = "loader" if sampler.generator is loader.generator else "sampler"
        state = sampler.generator.get_state()
    else:
        if loader.generator is not None:
            if not is_weighted:
                raise SettingError(
                    "The loader draws from its own generator, but its RandomSampler from the global one. Give the "
                    "generator to the sampler as well, or to the loader only, with shuffle=True."
                )
            owner = "sampler"
        state = torch.get_rng_state()
    arguments: dict[str, Any] = {
        "seed": sampler.initial_seed if is_seeded else 0,
        "state": state,
        "generator": owner,
        "replacement": sampler.replacement,
        "num_per_epoch": sampler.num_samples,
        "persistent_workers": loader.persistent_workers,
        "last_batch": last_batch,
    }
    if is_weighted:
        return TorchWeightedSampler(sampler.weights.numpy(), **arguments)
    return TorchRandomSampler(len(sampler.data_source), **arguments)


class PlayedBatchSampler(SamplerBase):
    """Batch samplers of one's own that were written for PyTorch: iterables of lists of indices.

    They are played, so a run is continued by playing them up to there, and each worker plays them for itself. So
    they must be deterministic: random numbers come from a generator that ``__iter__`` makes of a seed (and the
    number of the epoch), not from a global one. All batches but the last one of an epoch must have the same size.

    Before each epoch its number is told by ``set_epoch``, where they or their samplers have that.

    Example::

        >>> import torch
        >>> pairs = torch.utils.data.BatchSampler([5, 2, 7, 1], batch_size=2, drop_last=True)
        >>> sampler = PlayedBatchSampler(pairs)
        >>> sampler.get_next_batch_indices(), sampler.get_next_batch_indices()
        ([5, 2], [7, 1])
    """

    def __init__(self, batch_samplers: Any) -> None:
        """Take a batch sampler, or a list with one for each rank.

        Raises:
            SettingError: It is not iterable, cannot be copied, or two copies of it begin differently.
        """
        several = batch_samplers if isinstance(batch_samplers, list | tuple) else [batch_samplers]
        if not several or not all(hasattr(each, "__iter__") for each in several):
            raise SettingError(
                f"`batch_samplers` must be an iterable of lists of indices, or a list of such, one per rank, got "
                f"{shown(batch_samplers)}."
            )
        try:
            self._samplers, one, other = copy.deepcopy(several), copy.deepcopy(several), copy.deepcopy(several)
        except Exception as error:
            raise SettingError(f"{type(several[0]).__name__} cannot be copied, so it cannot be played.") from error
        self._epoch = 0
        self._running: list[Iterator[Sequence[int]]] | None = None
        if [*map(_first_of, one)] != [*map(_first_of, other)]:
            raise SettingError(
                f"Two copies of {type(several[0]).__name__} begin with different batches, so workers could not "
                f"play the same order. Have `__iter__` make a generator of a seed and the number of the epoch."
            )

    def get_next_batch_indices(self) -> Sequence[int]:
        """Get the next batch: of all ranks, one after the other."""
        if self._running is None:
            for sampler in self._samplers:
                _set_epoch(sampler, self._epoch)
            self._running = [iter(sampler) for sampler in self._samplers]
        parts = [[*next(batches, ())] for batches in self._running]
        if not any(parts):
            raise StopIteration
        if len({len(part) for part in parts}) > 1:
            raise SettingError(
                f"The batch samplers of all ranks must deliver batches of the same size, got {[*map(len, parts)]}."
            )
        return [int(index) for part in parts for index in part]

    @property
    def is_epoch_based(self) -> bool:
        """Whether the batches come in epochs: always."""
        return True

    def reset(self) -> None:
        """Start the next epoch."""
        self._epoch += 1
        self._running = None

    @property
    def length(self) -> int | None:
        """Number of batches, where they tell it."""
        try:
            return len(self._samplers[0])
        except (TypeError, NotImplementedError):  # also a batch sampler over a sampler without a length
            return None


def _set_epoch(sampler: Any, epoch: int) -> None:
    for each in (sampler, getattr(sampler, "sampler", None)):
        set_epoch = getattr(each, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)


def _first_of(sampler: Any) -> list[int]:
    _set_epoch(sampler, 0)
    first = next(iter(sampler), ())
    try:
        return [int(index) for index in first]
    except (TypeError, ValueError):
        raise SettingError(
            f"`batch_samplers` must deliver lists of indices, but the first batch of {type(sampler).__name__} is "
            f"{shown(first)}. Put a sampler of single indices into a BatchSampler of PyTorch."
        ) from None
