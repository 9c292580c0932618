# SPDX-License-Identifier: Apache-2.0
"""Number of usable GPUs, and what to do without one."""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from typing import Any

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
