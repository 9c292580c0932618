# SPDX-License-Identifier: Apache-2.0
"""Checks of what a pipeline definition is made of."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..checks import bullets, elements, shown
from ..engine.dali.graph_inspection import num_usable_gpus
from ..errors import DeviceError, SettingError
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..providers.data_provider import DataProvider
from ..sources.joined_input import JoinedInput
from ..sources.native_input import NativeInput


def check_input(data_input: Any) -> None:
    """Refuse what cannot be the input of a pipeline.

    Raises:
        SettingError: It is something else.
    """
    if isinstance(data_input, NativeInput):
        return
    if isinstance(data_input, JoinedInput):
        if data_input.main is not None:
            check_input(data_input.main)
        return
    if isinstance(data_input, DataProvider):
        raise SettingError(
            f"{type(data_input).__name__} is a data provider, which knows no order. Wrap it in an input, e.g. "
            f"ShuffledShardedInputCallable(provider, batch_size)."
        )
    if not callable(data_input) and not (hasattr(data_input, "__iter__") and hasattr(data_input, "__next__")):
        raise SettingError(
            f"The input must be a callable (see CallableBase), an iterable (see IterableBase), a native reader "
            f"(see ReaderInput) or a JoinedInput, got {type(data_input).__name__}."
        )
    name = "used_sample_data_structure"
    if not hasattr(type(data_input), name) and not hasattr(data_input, name):  # else its errors are its own
        raise SettingError(
            f"The input must have the property `used_sample_data_structure`, the blueprint of its samples; "
            f"{type(data_input).__name__} has none. Derive it from CallableBase or IterableBase."
        )


def checked_steps(steps: Sequence[PipelineStepBase | None] | None) -> tuple[PipelineStepBase, ...]:
    """Return the steps of a chain, without entries that are None.

    Raises:
        SettingError: One is no step.
    """
    given = [] if steps is None else elements(steps)
    if given is None:
        single = "a single one: " if isinstance(steps, PipelineStepBase) else ""
        hint = _hint_at_class(steps)
        raise SettingError(
            f"`steps` (of a definition: `preprocess_functors`) must be a sequence of steps, got "
            f"{single}{shown(steps)}{hint}."
        )
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
        device_id: What was asked for.

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
            f"device_id={device_id} was asked for, but no GPU is usable here (no CUDA driver, or no device), and "
            f"these steps use one:"
        )
        advice = "Pass device_id=None to run on the CPU; steps of this package then choose the CPU themselves."
    raise DeviceError(f"{rule}\n{listed}\n{advice}")
