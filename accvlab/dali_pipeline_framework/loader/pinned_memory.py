# SPDX-License-Identifier: Apache-2.0
"""Batches in pinned memory, from which a GPU fetches them while the program goes on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..checks import shown
from ..errors import SettingError

_logger = logging.getLogger(__name__)


def with_pinning(
    post_process: Callable[[Any], Any] | None, pin_memory: bool, output_type: str
) -> Callable[[Any], Any] | None:
    """What a batch goes through: what the user asks for, and then pinning where that is asked for and of use.

    Raises:
        SettingError: An argument is of the wrong type, or arrays are delivered that cannot be pinned.
    """
    if post_process is not None and not callable(post_process):
        raise SettingError(f"`post_process_func` must be a function of a batch, got {shown(post_process)}.")
    if not isinstance(pin_memory, bool):
        raise SettingError(f"`pin_memory` must be True or False, got {shown(pin_memory)}.")
    if not pin_memory:
        return post_process
    if output_type != "torch":
        raise SettingError(
            f"`pin_memory=True` pins tensors of PyTorch, got output_type={output_type!r}. Leave `pin_memory` out, "
            f"or take output_type='torch'."
        )
    import torch

    if not torch.cuda.is_available():
        _logger.info("`pin_memory=True` changes nothing here: there is no CUDA device to copy to.")
        return post_process
    pin = functools.partial(pinned, pin=torch.Tensor.pin_memory)
    return pin if post_process is None else lambda batch: pin(post_process(batch))


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
