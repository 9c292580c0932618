"""A driver of CUDA that only says which GPUs there are, for machines without one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.child_processes import run_process

needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="compiles a stand-in for the driver of CUDA"
)

_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static const int capabilities[][2] = { %s };
enum { NUM_GPUS = %d, NOT_INITIALIZED = 3, NO_DEVICE = 100 };
static int is_initialized = 0;
static void note(const char* name) {
    const char* path = getenv("CUDA_CALLS");
    FILE* file = path ? fopen(path, "a") : NULL;
    if (file) { fprintf(file, "%%d %%s\\n", getpid(), name); fclose(file); }
}
int cuInit(unsigned flags) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    note("cuInit");
    is_initialized = NUM_GPUS > 0 && !(visible && !*visible);
    return is_initialized ? 0 : NO_DEVICE;
}
int cuDriverGetVersion(int* version) { note("cuDriverGetVersion"); *version = %d; return 0; }
int cuDeviceGetCount(int* count) {  /* by which DALI finds out whether it may fork */
    *count = NUM_GPUS;
    return is_initialized ? 0 : NOT_INITIALIZED;
}
int cuDeviceGetAttribute(int* value, int attribute, int gpu) {
    *value = capabilities[gpu][attribute == 76];
    return 0;
}
"""


def make_stand_in_driver(
    folder: Path, capabilities: Sequence[tuple[int, int]], *, driver_cuda: int = 13000, has_video: bool = True
) -> dict[str, str]:
    """Compile it.

    Args:
        folder: For its libraries.
        capabilities: Compute capability of each GPU; none for a driver that finds no device.
        driver_cuda: The version of CUDA that it supports.
        has_video: Whether there is a library that decodes videos, too.

    Returns:
        Variables of the environment of processes that are to find it. They note calls in the file ``CUDA_CALLS``.
    """
    folder.mkdir(exist_ok=True)
    pairs = ", ".join(f"{{{major}, {minor}}}" for major, minor in capabilities) or "{0, 0}"
    (folder / "cuda.c").write_text(_DRIVER % (pairs, len(capabilities), driver_cuda))
    for name in ("libcuda.so.1", *(["libnvcuvid.so.1"] if has_video else [])):
        command = ["gcc", "-shared", "-fPIC", "-o", str(folder / name), str(folder / "cuda.c")]
        run_process(command, check=True)
    others = os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), others])), "CUDA_VISIBLE_DEVICES": "0,1"}
