# SPDX-License-Identifier: Apache-2.0
"""Which device a pipeline can run on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import Any, cast

import nvidia.dali.backend
from nvidia.dali.data_node import DataNode

_logger = logging.getLogger(__name__)


@functools.cache
def num_usable_gpus() -> int:
    """Number of CUDA devices that this process can use; 0 without a driver."""
    try:
        return int(cast(Any, nvidia.dali.backend).GetCUDADeviceCount())
    except RuntimeError:
        return 0


@functools.cache
def log_cpu_fallback_once(device_id: int) -> None:
    """Say once per process that a pipeline asked for a GPU runs on the CPU."""
    _logger.warning(
        "device_id=%d was asked for, but no GPU is usable. No step needs one, so everything runs on the CPU. "
        "Pass device_id=None to choose the CPU.",
        device_id,
    )


class GpuUseTracker:
    """Finds out which steps of a chain define something that runs on a GPU."""

    def __init__(self) -> None:
        """Start with an empty graph."""
        self._seen: set[tuple[int, str]] = set()
        self.users: dict[str, dict[str, None]] = {}  # step -> what it does there, in order

    def note(self, step: str, values: Iterable[object]) -> None:
        """Attribute what is new in the graph since the last call to a step."""
        pending = [value for value in values if isinstance(value, DataNode)]
        while pending:
            node = pending.pop()
            operator = node.source
            if (id(operator), node.device) in self._seen:
                continue
            self._seen.add((id(operator), node.device))
            if operator is not None and operator._op._device in ("gpu", "mixed"):
                self.users.setdefault(step, {})[_function_name(operator._op)] = None
            elif node.device == "gpu":
                self.users.setdefault(step, {})["a transfer to the GPU"] = None
            for inputs in [] if operator is None else operator.inputs:
                pending += inputs if isinstance(inputs, list) else [inputs]


def _function_name(operator: Any) -> str:
    name = getattr(operator, "schema_name", None) or getattr(operator, "_schema_name", type(operator).__name__)
    return "fn." + str(name).replace("__", ".").lower()
