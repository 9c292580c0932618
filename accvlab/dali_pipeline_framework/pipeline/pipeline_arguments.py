# SPDX-License-Identifier: Apache-2.0
"""Checks of the input, the steps and the arguments of a pipeline; what was not given is filled in."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ..checks import MOST_IN_BATCH, bullets, did_you_mean, elements, probability, shown, whole_number
from ..draws.keyed_draws import derive_key
from ..engine.dali.gpus import num_usable_gpus
from ..errors import DeviceError, SettingError, UnknownArgumentError
from ..limits.file_limits import checked_worker_count, is_start_method
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..providers.data_provider import DataProvider
from ..sources.input_adapter import InputAdapter
from ..sources.native_input import NativeInput
from ..sources.planned_input import PlannedInput
from ..sources.sampler_inputs import SamplerInputIterable
from ..sources.shards import Shard, detected_local_rank, detected_rank, num_cores_of_rank
from ..user_warnings import warn_user

PipelineArguments: TypeAlias = dict[str, Any]


class TorchDevice(Protocol):
    """A ``torch.device``."""

    type: str
    index: int | None


Device: TypeAlias = int | str | TorchDevice | None

_CPU_NUMBERS = (-1, cast(Any, types).CPU_ONLY_DEVICE_ID)
_MOST_DEVICES = 2**16
_OF_FIXED_SIZE = PlannedInput, SamplerInputIterable  # other inputs may call something else `batch_size`
_MOST_THREADS = 4096
_THREADS_BESIDE_GPU = 8
_MOST_AHEAD = 4096
_MOST_PIXELS = 2**16  # along an axis of a JPEG
_SIZE_HINTS = ("preallocate_height_hint", "preallocate_width_hint")

# In the documentation of older DALI versions, "not given" is written as these values.
_LEGACY_NOT_GIVEN = {
    "batch_size": -1,
    "num_threads": -1,
    "device_id": -1,
    "seed": -1,
    "max_streams": -1,
    "default_cuda_stream_priority": 0,
}


def normalised_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> PipelineArguments:
    """Get all arguments by name, without those that only say "not given".

    Raises:
        UnknownArgumentError: There is no such argument.
        SettingError: One is given twice, or there are too many.
    """
    parameters = [name for name in inspect.signature(Pipeline.__init__).parameters if name != "self"]
    if len(args) > len(parameters):
        raise SettingError(f"get_dali_pipeline takes at most {len(parameters)} arguments, got {len(args)}.")
    arguments = dict(zip(parameters, args, strict=False))
    known = {*parameters, "enable_conditionals", "debug", "decoder_options"}
    for name, value in kwargs.items():
        if name in arguments:
            raise SettingError(f"The argument `{name}` was given twice, by position and by name.")
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownArgumentError(f"`{name}` is not an argument of a DALI pipeline.{hint}")
        arguments[name] = value
    for name, value in arguments.items():
        if isinstance(value, np.integer):
            arguments[name] = int(value)
    for name, not_given in _LEGACY_NOT_GIVEN.items():
        value = arguments.get(name)
        if value is None or (isinstance(value, int) and value == not_given):
            arguments.pop(name, None)
    if "decoder_options" in arguments:
        arguments["decoder_options"] = _checked_decoder_options(arguments["decoder_options"])
    return arguments


def _checked_decoder_options(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SettingError(f"`decoder_options` must be a dict, got {shown(given)}.")
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name == "hw_decoder_load":
            options[name] = probability(value, name)
        elif name in _SIZE_HINTS:
            options[name] = whole_number(value, name, at_least=0, at_most=_MOST_PIXELS)
        else:
            known = ["hw_decoder_load", *_SIZE_HINTS]
            raise SettingError(
                f"`decoder_options` takes {', '.join(known)}, got {shown(name)}.{did_you_mean(name, known)}"
            )
    return options


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def seed_of_shard(seed: Any, shard: Shard) -> Any:
    """The seed of DALI's random operators. With the same seed they would draw the same numbers on all shards."""
    if shard.shard_id == 0 or not isinstance(seed, int):
        return seed
    return derive_key("shard", seed, shard.shard_id) >> 33


def complete_arguments(arguments: PipelineArguments, data_input: Any, is_parallel: bool) -> None:
    """Fill in what was not given, and check what was.

    Args:
        arguments: The arguments, which are changed.
        data_input: What workers load.
        is_parallel: Whether worker processes load it.

    Raises:
        SettingError: An argument is out of its range, or does not go with the input.
    """
    expected = InputAdapter(data_input).batch_size
    batch_size = arguments.setdefault("batch_size", expected)
    if batch_size is None:
        raise SettingError("`batch_size` must be given, since the input has no `batch_size`.")
    whole_number(batch_size, "batch_size", at_least=1, at_most=MOST_IN_BATCH)
    if expected is not None and batch_size > expected and not callable(data_input):
        # DALI takes smaller batches, so this has always worked.
        warn_user(
            f"{type(data_input).__name__} delivers batches of {expected} samples (on this shard), the pipeline "
            f"has batch_size={batch_size}: batches have {expected} samples."
        )
    elif expected is not None and batch_size != expected and not isinstance(data_input, _OF_FIXED_SIZE):
        warn_user(
            f"{type(data_input).__name__} has batch_size={expected}, the pipeline has batch_size={batch_size}, "
            f"which counts. Leave `batch_size` out here to use that of the input."
        )
    elif expected is not None and batch_size != expected:
        got = f"{type(data_input).__name__} is set up for {expected} samples per batch (on this shard)"
        advice = f"the pipeline for batch_size={batch_size}. Leave `batch_size` out here to use the input's."
        raise SettingError(f"The batch sizes of input and pipeline must be equal: {got}, {advice}")
    arguments["device_id"] = checked_device(arguments.get("device_id"))
    uses_gpu = arguments["device_id"] is not None and num_usable_gpus() > 0
    # Decoders for a GPU have buffers for each thread, on both sides: 32 MiB together.
    arguments.setdefault(
        "num_threads", min(num_cores_of_rank(), _THREADS_BESIDE_GPU if uses_gpu else _MOST_THREADS)
    )
    depth = arguments.get("prefetch_queue_depth", 2)
    for each in depth.values() if isinstance(depth, Mapping) else [depth]:
        if isinstance(each, int):  # DALI refuses others
            whole_number(each, "prefetch_queue_depth", at_least=1, at_most=_MOST_AHEAD)
    whole_number(arguments.get("num_threads", 1), "num_threads", at_least=1, at_most=_MOST_THREADS)
    if uses_gpu and is_parallel:  # forked processes cannot use what initialises CUDA
        arguments.setdefault("py_start_method", "spawn")
    start_method = arguments.get("py_start_method", "fork")
    if not is_start_method(start_method):
        raise SettingError(
            f"`py_start_method` must be 'fork', 'spawn' or 'forkserver', got {shown(start_method)}."
        )
    checked_worker_count(arguments.get("py_num_workers", 1), "py_num_workers")
    if not is_parallel:
        return
    if not callable(data_input):
        arguments["py_num_workers"] = 1  # an iterable has a state, so DALI runs it in one worker
    if arguments.get("exec_pipelined") is False:
        problem = "`exec_pipelined=False` does not work with worker processes"
        advice = "Leave it out, or use `use_parallel_external_source=False`."
        raise SettingError(f"{problem}: DALI then never asks them for data. {advice}")
    if start_method == "fork" and arguments.get("py_callback_pickler") is not None:
        raise SettingError("`py_callback_pickler` has no use with forked workers; use py_start_method='spawn'.")


def checked_device(device: Device) -> int | None:
    """Get the number of a GPU, None for the CPU.

    Args:
        device: The number, the GPU's name or device as PyTorch has it, or ``"auto"``: by the local rank.

    Raises:
        SettingError: It is something else.
        DeviceError: GPUs are usable here, but not this one.
    """
    count = num_usable_gpus() if device is not None else 0
    number: object = int(device) if isinstance(device, np.integer) else device
    is_torch = isinstance(getattr(device, "type", None), str)
    name = str.__str__(device) if isinstance(device, str) else str(device) if is_torch else ""
    kind, _, index = name.partition(":")
    if name == "auto":
        number = _local_rank(count)
        if count == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):  # the launcher shows each rank its own
            number = 0
    elif kind == "cuda" and index.isdecimal():
        number = int(index)
    if number is None or kind == "cpu" or (isinstance(number, int) and number in _CPU_NUMBERS):
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MOST_DEVICES:
        rule = "`device_id` must be None (the CPU) or the number of a GPU"
        advice = "'cuda:1', a torch.device with a number, and 'auto' (the local rank) are taken as well."
        raise SettingError(f"{rule}, got {shown(device)}. {advice}")
    if 0 < count <= number:
        problem = f"device_id={device!r} asks for GPU {number} (counted from 0)"
        advice = "Start no more ranks on this machine than it has GPUs, and look at CUDA_VISIBLE_DEVICES."
        raise DeviceError(f"{problem}, but only {count} can be used here. {advice}")
    return number


def _local_rank(num_gpus: int) -> int:
    """Get the number of this rank on its machine, as its launcher sets it; else the GPU that PyTorch uses.

    Raises:
        DeviceError: There are several GPUs, this is not the first rank, and neither is known.
    """
    local_rank = detected_local_rank()
    if local_rank is not None:
        return local_rank
    torch: Any = sys.modules.get("torch")
    if num_gpus > 1 and torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    if num_gpus > 1 and detected_rank() > 0:  # all ranks would take the first GPU
        raise DeviceError(
            "device_id='auto' is the number of this rank on its machine, and its launcher has not set one "
            "(LOCAL_RANK). Give it: device_id=<local rank>."
        )
    return 0


def check_input(data_input: Any) -> None:
    """Refuse what cannot be the input of a pipeline.

    Raises:
        SettingError: It is something else.
    """
    if isinstance(data_input, NativeInput):
        return
    if isinstance(data_input, DataProvider):
        advice = "Wrap it in an input, e.g. ShuffledShardedInputCallable(provider, batch_size)."
        raise SettingError(f"{type(data_input).__name__} is a data provider, which knows no order. {advice}")
    if not callable(data_input) and not hasattr(data_input, "__iter__"):
        kinds = "a callable (CallableBase), an iterable (IterableBase) or a native reader (ReaderInput)"
        raise SettingError(f"The input must be {kinds}, got {type(data_input).__name__}.")
    name = "used_sample_data_structure"
    if not hasattr(type(data_input), name) and not hasattr(data_input, name):  # else its errors are its own
        problem = "The input must have the property `used_sample_data_structure`, the blueprint of its samples"
        advice = "Derive it from CallableBase or IterableBase."
        raise SettingError(f"{problem}; {type(data_input).__name__} has none. {advice}")


def checked_steps(steps: Sequence[PipelineStepBase | None] | None) -> tuple[PipelineStepBase, ...]:
    """Return the steps of a chain, without entries that are None.

    Raises:
        SettingError: One is no step.
    """
    given = [] if steps is None else elements(steps)
    if given is None:
        single = "a single one: " if isinstance(steps, PipelineStepBase) else ""
        hint = _hint_at_class(steps)
        rule = "`steps` (of a definition: `preprocess_functors`) must be a sequence of steps"
        raise SettingError(f"{rule}, got {single}{shown(steps)}{hint}.")
    kept = tuple(step for step in given if step is not None)
    for index, step in enumerate(kept):
        if not isinstance(step, PipelineStepBase):
            hint = _hint_at_class(step)
            raise SettingError(f"Step {index} must be a PipelineStepBase, got {shown(step)}{hint}.")
    return kept


def _hint_at_class(value: object) -> str:
    if isinstance(value, type):
        return " (a class: create an object of it)"
    return " (a function: MapStep or LambdaStep makes a step of it)" if inspect.isroutine(value) else ""


def require_gpu(users: Mapping[str, Iterable[str]], device_id: int | None) -> None:
    """Refuse steps that need a GPU where none is usable.

    Args:
        users: Names of steps, and of the operators that they use on a GPU.
        device_id: What was given.

    Raises:
        DeviceError: No GPU is usable.
    """
    if num_usable_gpus() > 0:
        return
    listed = bullets(f"{step}: {', '.join(names)}" for step, names in users.items())
    if device_id is None:
        rule = "No GPU is usable here (no CUDA driver, or no device), but these steps use one:"
        advice = (
            "Let them choose the CPU where `Pipeline.current().device_id` is None, as steps of this package do."
        )
    else:
        rule = (
            f"The pipeline has device_id={device_id}, but no GPU is usable here (no CUDA driver, or no device), "
            f"and these steps use one:"
        )
        advice = "Pass device_id=None to run on the CPU; steps of this package then choose the CPU themselves."
    raise DeviceError(f"{rule}\n{listed}\n{advice}")
