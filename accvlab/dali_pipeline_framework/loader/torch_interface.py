# SPDX-License-Identifier: Apache-2.0
"""The attributes that code written for ``torch.utils.data.DataLoader`` reads, and pinned memory."""

from __future__ import annotations

import functools
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from ..errors import NotSupportedError, SettingError
from ..pipeline._dali_structured_output_iterator_data_loader_wrapper import counted_as
from ..sampling.arithmetic.last_batch import LastBatch
from ..sources.input_adapter import InputAdapter
from ..sources.shards import Shard, detect_shard

_logger = logging.getLogger(__name__)


class LoaderSampler(Iterable[int], Sized, ABC):
    """The order of a loader, as PyTorch's samplers show theirs: sample indices of an epoch on this shard."""

    def __init__(self, loader: TorchInterface) -> None:
        """Set up for a loader."""
        self._loader = loader

    def __iter__(self) -> Iterator[int]:
        """Get the index in the data set of each sample of the epoch.

        Raises:
            NotSupportedError: The input is the user's own, or a native reader; their samples are not known.
        """
        for indices in LoaderBatchSampler(self._loader):
            yield from indices

    def __len__(self) -> int:
        """Number of samples of the epoch on this shard.

        Raises:
            TypeError: The input is endless, or its number of batches is not known.
        """
        loader = self._loader
        if loader.last_batch == "partial" and InputAdapter(loader.bound_input).planned is not None:
            return sum(map(len, loader.batch_sampler))
        return len(loader) * loader.batch_size


class FixedLoaderSampler(LoaderSampler):
    """The order of a loader whose epochs follow each other."""


class SettableLoaderSampler(LoaderSampler):
    """The order of a loader whose epochs can be chosen."""

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop over the loader run in this epoch. See `DataLoader.set_epoch`."""
        self._loader.set_epoch(epoch)


class LoaderBatchSampler:
    """The batches of a loader, as PyTorch's batch samplers show theirs: lists of sample indices of this shard.

    Attributes:
        even_batches: Whether all ranks have the same number of batches. Accelerate's ``join_uneven_inputs`` sets
            it; that has no effect.
    """

    def __init__(self, loader: TorchInterface) -> None:
        """Set up for a loader."""
        self._loader = loader
        self.even_batches = loader.last_batch != "partial"

    @property
    def sampler(self) -> LoaderSampler:
        """The order of the single samples."""
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        """Samples per batch on this shard."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is dropped."""
        return self._loader.drop_last

    def __iter__(self) -> Iterator[list[int]]:
        """Get the sample indices of each batch of the epoch.

        Raises:
            NotSupportedError: The input is the user's own, or a native reader; their samples are not known.
        """
        planned = InputAdapter(self._loader.bound_input).planned
        if planned is None:
            name = type(self._loader.bound_input).__name__
            raise NotSupportedError(
                f"Which samples a {name} delivers is known only when they come. Give the loader a data provider, "
                f"with a sampler."
            )
        epoch = self._loader.epoch
        num_batches = planned.num_batches_in_epoch(epoch)
        batch = 0
        while num_batches is None or batch < num_batches:
            yield [place.sample_index for place in planned.get_places(epoch, batch)]
            batch += 1

    def __len__(self) -> int:
        """Number of batches of the epoch."""
        return len(self._loader)


class TorchInterface(Sized, ABC):
    """A loader with the attributes of `torch.utils.data.DataLoader` that are of use only to code around it."""

    collate_fn = None
    generator = None
    in_order = True
    multiprocessing_context = None
    pin_memory = False
    pin_memory_device = ""
    timeout = 0
    remainder = -1
    """How many samples of the last batch Accelerate is to take for the last ones of the data; not known."""

    _is_shard_given: bool
    _was_prepared = False

    def __new__(cls, *args: Any, as_torch_data_loader: Any = False, **arguments: Any) -> Any:
        """Make the object, of a class that counts as PyTorch's where that is wanted."""
        return super().__new__(as_torch_class(cls) if as_torch_data_loader else cls)

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Samples per batch on this shard."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Worker processes that load samples."""

    @property
    @abstractmethod
    def shard(self) -> Shard:
        """Which part of each batch this loader delivers."""

    @property
    @abstractmethod
    def last_batch(self) -> LastBatch:
        """Handling of a last batch that is not full."""

    @property
    @abstractmethod
    def bound_input(self) -> object:
        """The input, with the settings of this loader."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The current epoch."""

    @abstractmethod
    def set_epoch(self, epoch: int) -> None:
        """Have the next loop run in this epoch."""

    @property
    @abstractmethod
    def sampler(self) -> LoaderSampler:
        """The order of the current epoch on this shard, as PyTorch's samplers show theirs."""

    @property
    def batch_sampler(self) -> LoaderBatchSampler:
        """The batches of the current epoch on this shard, as PyTorch's batch samplers show theirs."""
        return LoaderBatchSampler(self)

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is dropped."""
        return self.last_batch == "drop"

    @property
    def persistent_workers(self) -> bool:
        """Whether worker processes stay for the next epoch, as they do where there are any."""
        return bool(self.num_workers)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Always True: ``Accelerator.prepare`` reads it, and then gives the loader back as it is.

        Otherwise it would make a loader of PyTorch of what PyTorch's would have: data set, batch sampler.

        Raises:
            SettingError: The loader was handed to ``prepare`` before, or delivers all samples on each of several
                ranks.
        """
        if self._was_prepared:
            raise SettingError(
                "The loader was handed to `prepare` of Accelerate before. It is used as it is: hand it over once, "
                "or not at all."
            )
        num_ranks = detect_shard().num_shards
        if num_ranks > 1 and self.shard.num_shards == 1 and not self._is_shard_given:
            raise SettingError(
                f"The loader was handed to `prepare` of Accelerate, which uses it as it is: each of the "
                f"{num_ranks} ranks would get all samples. Create the loader with `shard='auto'`."
            )
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """Note what ``Accelerator.prepare`` says of the loader at its end."""
        self._was_prepared = value


@functools.cache
def as_torch_class(loader_class: Any) -> Any:
    """Get the subclass of a loader's class that is one of ``torch.utils.data.DataLoader``, too."""
    from torch.utils.data import DataLoader as TorchDataLoader

    if issubclass(loader_class, TorchDataLoader):
        return loader_class
    names = {"__qualname__": loader_class.__qualname__, "__module__": loader_class.__module__}
    return counted_as(TorchDataLoader, loader_class.__name__, loader_class, names)


def inform_accelerate(loader: object, *, is_running: bool) -> None:
    """Have Accelerate, where it is used, know the running loader, whose last batch ends an accumulation early."""
    accelerate: Any = sys.modules.get("accelerate.state")
    if accelerate is None:
        return
    state = accelerate.GradientState()
    state._remove_dataloader(loader)
    if is_running:
        state._add_dataloader(loader)


def with_pinning(post_process: Callable[[Any], Any] | None, pin_memory: bool) -> Callable[[Any], Any] | None:
    """Get what a batch goes through: the function of the user, and then pinning where that is wanted."""
    if not pin_memory:
        return post_process
    import torch

    @functools.cache
    def has_cuda() -> bool:
        # Asked for the first batch: the question initialises CUDA, and after that DALI forks no workers.
        is_available: bool = torch.cuda.is_available()
        if not is_available:
            _logger.info("`pin_memory=True` changes nothing here: there is no CUDA device to copy to.")
        return is_available

    def processed(batch: Any) -> Any:
        batch = batch if post_process is None else post_process(batch)
        return pinned(batch, torch.Tensor.pin_memory) if has_cuda() else batch

    return processed


def pinned(value: Any, pin: Callable[[Any], Any]) -> Any:
    """Copy the tensors of a batch to pinned memory, those that are on the CPU.

    Dicts, lists and tuples are looked through, and what has a method ``pin_memory`` pins itself, as in PyTorch's
    loader. All else stays as it is.

    Args:
        value: The batch, or a part of it.
        pin: Copies a tensor.
    """
    if hasattr(value, "is_pinned"):
        return pin(value) if value.device.type == "cpu" else value
    if isinstance(value, Mapping):
        parts = {name: pinned(part, pin) for name, part in value.items()}
        return parts if type(value) is dict else _like(value, parts)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(pinned(part, pin) for part in value))
    if isinstance(value, list | tuple):
        return _like(value, [pinned(part, pin) for part in value])
    return value.pin_memory() if hasattr(value, "pin_memory") else value


def _like(value: Any, parts: Any) -> Any:
    """The parts in a container like this one."""
    try:
        return type(value)(parts)
    except TypeError:  # its constructor takes something else
        return parts
