# SPDX-License-Identifier: Apache-2.0
"""Number of usable GPUs, and which steps of a graph need one."""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from collections.abc import Iterable
from typing import Any

from nvidia.dali.data_node import DataNode

_logger = logging.getLogger(__name__)


_COUNT_DEVICES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
is_usable = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value if is_usable else 0)
"""


@functools.cache
def num_usable_gpus() -> int:
    """Number of CUDA devices that can be used here; 0 without a driver.

    They are counted in a process of its own: counting initialises CUDA, and after that DALI refuses to fork
    its workers.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    import subprocess  # seldom needed, and long to import

    counted = subprocess.run([sys.executable, "-c", _COUNT_DEVICES], capture_output=True, text=True, check=False)
    return int(counted.stdout) if counted.returncode == 0 else 0


@functools.cache
def log_cpu_fallback_once(device_id: int) -> None:
    """Say once per process that a pipeline asked for a GPU runs on the CPU."""
    _logger.warning(
        "device_id=%d was asked for, but no GPU is usable. No step needs one, so everything runs on the CPU. "
        "Pass device_id=None to choose the CPU.",
        device_id,
    )


def move_to_cpu(pipeline: Any) -> None:
    """Have a pipeline that is defined for a GPU, but not built yet, run on the CPU."""
    pipeline._device_id = None


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
