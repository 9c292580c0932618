# SPDX-License-Identifier: Apache-2.0
"""The attributes that code written for ``torch.utils.data.DataLoader`` reads, and pinned memory."""

from __future__ import annotations

import functools
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, ClassVar

import attrs

from ..checks import flag
from ..pipeline._dali_structured_output_iterator_data_loader_wrapper import counted_as

_logger = logging.getLogger(__name__)


_SHARD = "Pass `shard`: 'auto', or the pair (rank, number of ranks)."
_LEAVE_OUT = "Leave it out:"
_ARGUMENTS_OF_TORCH = {
    "dataset": "Pass the data provider first; TorchDatasetProvider makes one of a data set of PyTorch.",
    "transform": "Pass `steps`.",
    "batch_sampler": "Pass `batch_size`, and `sampler` for the order.",
    "collate_fn": "Arrays are stacked anyway; see `ragged` for other shapes, and `post_process_func`.",
    "drop_last": "Pass `last_batch`: 'drop', or 'partial' for False.",
    "timeout": "Pass `faults=FaultPolicy(blocked_after=...)`.",
    "multiprocessing_context": "Pass `start_method`.",
    "generator": "Pass `seed`, or a `sampler` that has the generator.",
    "prefetch_factor": "Pass `prefetch_queue_depth`, the batches of all workers together, or `prefetch_bytes`.",
    "persistent_workers": f"{_LEAVE_OUT} workers always stay for the next epoch.",
    "pin_memory_device": f"{_LEAVE_OUT} `pin_memory` is for the current GPU.",
    "in_order": f"{_LEAVE_OUT} batches always come in order.",
    "gpu": "Pass `device_id`.",
    **dict.fromkeys(("rank", "world_size", "num_replicas", "num_shards"), _SHARD),
}


class TorchInterface(ABC):
    """Base of loaders with the settings of `torch.utils.data.DataLoader` that mean nothing here.

    Attributes:
        arguments_elsewhere: What errors say about arguments of PyTorch's loader and samplers, by their names.
    """

    arguments_elsewhere: ClassVar[Mapping[str, str]] = _ARGUMENTS_OF_TORCH

    collate_fn = None
    generator = None
    in_order = True
    multiprocessing_context = None
    pin_memory = False
    pin_memory_device = ""
    timeout = 0
    remainder = -1
    """How many samples of the last batch Accelerate is to take for the last ones of the data; not known."""

    def __new__(cls, *args: Any, as_torch_data_loader: bool = False, **arguments: Any) -> Any:
        """Make the object, of a class that counts as PyTorch's where that is wanted.

        Raises:
            SettingError: ``as_torch_data_loader`` is neither True nor False.
        """
        is_of_torch = flag(as_torch_data_loader, "as_torch_data_loader")
        return super().__new__(as_torch_class(cls) if is_of_torch else cls)

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Start an epoch."""


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


_FIT_LOOPS = ("pytorch_lightning.loops.fit_loop", "lightning.pytorch.loops.fit_loop")


@attrs.frozen
class ResumedTraining:
    """What a Trainer of Lightning that resumes knows of a loader.

    Attributes:
        states: The states of its loaders that it has not loaded.
        state: That of the loader; None: there is none.
        num_batches: How many batches of the epoch it has had; None where that says nothing about the loader.
    """

    states: Sequence[Any]
    state: Mapping[str, Any] | None
    num_batches: int | None


def resumed_by_lightning(loader: object) -> ResumedTraining | None:
    """Look whether a Trainer of Lightning that resumes requests the first batch of a loop over a loader.

    It loads states where it makes its loaders. Where that was done before the checkpoint was read, since somebody
    wanted `Trainer.estimated_stepping_batches`, it keeps them, and begins the epoch again; likewise in an epoch
    that it has miscounted.
    """
    if not any(name in sys.modules for name in _FIT_LOOPS):
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") not in _FIT_LOOPS:
        frame = frame.f_back
    fit_loop = None if frame is None else frame.f_locals.get("self")
    loaders = list(getattr(getattr(fit_loop, "_combined_loader", None), "flattened", ()))
    if fit_loop is None or all(each is not loader for each in loaders):
        return None
    states = getattr(fit_loop, "_combined_loader_states_to_load", ())
    stateful = [each for each in loaders if hasattr(each, "state_dict") and hasattr(each, "load_state_dict")]
    state = None
    if len(states) == len(stateful):
        state = next(state for each, state in zip(stateful, states, strict=True) if each is loader)
    is_of_epoch = state is not None and state.get("epoch") == fit_loop.epoch_progress.current.processed
    if not fit_loop.restarting and not is_of_epoch:
        return None
    counts = fit_loop.restarted_mid_epoch and len(loaders) == 1
    return ResumedTraining(states, state, fit_loop.epoch_loop.batch_progress.current.ready if counts else None)


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
