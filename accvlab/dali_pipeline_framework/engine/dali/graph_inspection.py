# SPDX-License-Identifier: Apache-2.0
"""GPUs and random operators: the steps that use them, and the GPUs of this machine."""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from collections.abc import Iterable
from typing import Any, cast

from nvidia.dali import backend
from nvidia.dali.data_node import DataNode

from ...errors import SettingError

INPUT = "the input"


class GraphInspection:
    """Attributes the operators of a graph, while it grows, to the steps that define them.

    Attributes:
        gpu_users: Names of steps, each with what it does on a GPU, in order.
        random_users: Names of steps, each with its random operators, in order: a record of the draws lacks them.
    """

    def __init__(self) -> None:
        """Start with an empty graph."""
        self.gpu_users: dict[str, dict[str, None]] = {}
        self.random_users: dict[str, dict[str, None]] = {}
        self._instances: dict[int, Any] = {}  # kept, so that no other one gets their ids
        self._seen: set[tuple[int, str]] = set()

    def note(self, step: str, values: Iterable[object], draws: Iterable[DataNode] = ()) -> None:
        """Attribute what is new in the graph to a step: its values, and the draws supplied so far.

        The step may be `INPUT`, whose random operators are none of the record's business.
        """
        self._instances.update((id(node.source), node.source) for node in draws)
        pending = [value for value in values if isinstance(value, DataNode)]
        while pending:
            node = pending.pop()
            instance = node.source
            if (id(instance), node.device) in self._seen:
                continue
            self._seen.add((id(instance), node.device))
            operator = getattr(instance, "_op", None)  # with `debug=True`, nodes do not tell
            if operator is not None and operator._device in ("gpu", "mixed"):
                self.gpu_users.setdefault(step, {})[_function_name(operator)] = None
            elif node.device == "gpu":
                self.gpu_users.setdefault(step, {})["a transfer to the GPU"] = None
            if operator is None or id(instance) in self._instances:
                continue
            if step != INPUT and _is_random(operator):
                self.random_users.setdefault(step, {})[_function_name(operator)] = None
            self._instances[id(instance)] = instance
            for inputs in instance.inputs:
                pending += inputs if isinstance(inputs, list) else [inputs]

    def require_declared_draws(self) -> None:
        """Refuse random operators beside the declared draws.

        Raises:
            SettingError: There are some; lists them.
        """
        if self.random_users:
            listed = "\n".join(f"  - {step}: {', '.join(names)}" for step, names in self.random_users.items())
            raise SettingError(
                f"The draws cannot be recorded, since these steps use random operators of DALI directly, whose "
                f"numbers nobody can replay:\n{listed}\n"
                f"Let the steps declare what they draw (`declare_draws`), and get it from `draw`."
            )


def _function_name(operator: Any) -> str:
    # An external source has no schema.
    return "fn." + str(getattr(operator, "schema_name", type(operator).__name__)).replace("__", ".").lower()


def is_random(node: DataNode) -> bool:
    """Whether a random operator made a node."""
    operator = getattr(node.source, "_op", None)
    return operator is not None and _is_random(operator)


def _is_random(operator: Any) -> bool:
    name = getattr(operator, "schema_name", "")
    if name == "RandomBBoxCrop":  # steps select elements by it, without anything to draw
        settings = operator._init_args
        return bool(settings.get("crop_shape") != settings.get("input_shape"))
    schema = cast(Any, backend).TryGetSchema(name)
    return schema is not None and bool(schema.HasRandomSeedArg())


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
