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
    """Finds out which steps of a chain define operators that run on a GPU."""

    def __init__(self) -> None:
        """Start with an empty graph."""
        self._seen: set[int] = set()
        self.users: dict[str, dict[str, None]] = {}  # step -> names of operators, in order

    def note(self, step: str, values: Iterable[object]) -> None:
        """Attribute the operators that are new since the last call to a step."""
        pending = [value for value in values if isinstance(value, DataNode)]
        while pending:
            operator = pending.pop().source
            if operator is None or id(operator) in self._seen:
                continue
            self._seen.add(id(operator))
            if operator._op._device in ("gpu", "mixed"):
                self.users.setdefault(step, {})[_function_name(operator._op)] = None
            for inputs in operator.inputs:
                pending += inputs if isinstance(inputs, list) else [inputs]


def _function_name(operator: Any) -> str:
    return "fn." + str(operator.schema_name).replace("__", ".").lower()
