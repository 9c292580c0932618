# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this machine, and why they cannot be used."""

from __future__ import annotations

import ctypes
import functools
import json
import logging
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import nvidia.dali

from ...errors import DeviceError

_logger = logging.getLogger(__name__)

Capability: TypeAlias = tuple[int, int]
"""CUDA's compute capability of a GPU, by which generations differ: (8, 0) is an A100, (9, 0) an H100 or H200."""

_MARK: Final = "accvlab-gpus: "  # programs that run at the start of Python may print, too
_MOST_SECONDS: Final = 120
_LIST_DEVICES: Final = f"""
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
number = ctypes.c_int()
facts = [[], 0, True]
if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
    facts[1] = number.value
is_usable = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0
for device in range(number.value if is_usable else 0):
    capability = []
    for attribute in (75, 76):  # the major and the minor number of the compute capability
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        capability.append(number.value)
    facts[0].append(capability)
try:
    ctypes.CDLL("libnvcuvid.so.1")
except OSError:
    facts[2] = False
print("\\n{_MARK}" + json.dumps(facts))
"""

# The compute capabilities for which the wheels of DALI 2.4 have code, by CUDA's major version and processor.
# Code for one runs on all of its major version that are not smaller; for later ones there is code to translate.
_COMPILED: Final[Mapping[tuple[int, str], Sequence[Capability]]] = {
    (12, "x86_64"): ((5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (12, 0)),
    (12, "aarch64"): ((7, 0), (8, 0), (9, 0), (10, 0), (12, 0)),
    (13, "x86_64"): ((7, 5), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0)),
    (13, "aarch64"): ((7, 5), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0)),
}
_TRANSLATED_FROM: Final = (12, 0)

NO_VIDEO_LIBRARY: Final = (
    "libnvcuvid, with which a GPU decodes videos, is not there: in a container set "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
)


@attrs.frozen
class GpuFacts:
    """What is known of the GPUs that can be used here.

    Attributes:
        capabilities: The compute capability of each; none without a driver.
        driver_cuda: The version of CUDA that the driver supports, e.g. 12040 for 12.4; 0 where it is not known.
        has_video: Whether the driver's library for videos is there.
    """

    capabilities: tuple[Capability, ...] = ()
    driver_cuda: int = 0
    has_video: bool = False


@functools.cache
def gpu_facts() -> GpuFacts:
    """Look at the GPUs, in another process: once CUDA is initialised, DALI refuses to fork its workers."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return GpuFacts()
    command = [sys.executable, "-c", _LIST_DEVICES]
    try:
        looked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS)
        printed, problem = looked.stdout, looked.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:  # where Python is a part of another program
        printed, problem = "", str(error)
    lines = [line for line in printed.splitlines() if line.startswith(_MARK)]
    if not lines:
        _logger.warning("The GPUs could not be listed, so none is used: %s", problem[-500:])
        return GpuFacts()
    capabilities, driver_cuda, has_video = json.loads(lines[-1].removeprefix(_MARK))
    return GpuFacts(tuple([(major, minor) for major, minor in capabilities]), driver_cuda, has_video)


def gpu_capabilities() -> tuple[Capability, ...]:
    """Compute capability of each GPU that can be used here, major and minor number; none without a driver."""
    return gpu_facts().capabilities


def num_usable_gpus() -> int:
    """Number of GPUs that can be used here; 0 without a driver."""
    return len(gpu_capabilities())


def why_gpu_is_unusable(device_id: int, *, uses_torch: bool = False, decodes_videos: bool = False) -> str:
    """Explain why a GPU cannot be used, in a sentence with what to do; empty where it can.

    Args:
        device_id: Number of the GPU.
        uses_torch: Whether batches are tensors of PyTorch.
        decodes_videos: Whether videos are to be decoded on it.
    """
    facts = gpu_facts()
    if device_id >= len(facts.capabilities):
        count = len(facts.capabilities)
        return f"{count} GPUs can be used here (counted from 0)" if count else "no CUDA driver, or no GPU, is here"
    reasons = [
        _why_dali_cannot(facts, facts.capabilities[device_id]),
        _why_torch_cannot(facts) if uses_torch else "",
        NO_VIDEO_LIBRARY if decodes_videos and not facts.has_video else "",
    ]
    return next(filter(None, reasons), "")


def require_usable_gpu(device_id: int | None, *, uses_torch: bool = False) -> None:
    """Refuse an existing GPU that cannot be used; a missing one is not refused here.

    Raises:
        DeviceError: DALI, or PyTorch where it is to be used, is not made for this GPU or its driver.
    """
    if device_id is None or device_id >= num_usable_gpus():
        return
    why = why_gpu_is_unusable(device_id, uses_torch=uses_torch)
    if why:
        raise DeviceError(f"The pipeline has device_id={device_id}, but this GPU cannot be used: {why}.")


def _why_dali_cannot(facts: GpuFacts, gpu: Capability) -> str:
    cuda = int(str(nvidia.dali.__cuda_version__)[:2])  # 12986 for 12.9.86
    wheel = f"nvidia-dali-cuda{10 * cuda}"
    versions = sorted({each for each, _ in _COMPILED})
    code = {each: _COMPILED.get((each, platform.machine()), ()) for each in versions}
    driver = facts.driver_cuda  # 0 if it is not known
    others = [
        each
        for each in versions
        if each != cuda and code[each] and _runs(code[each], gpu) and not 0 < driver < 1000 * each
    ]
    compiled = code.get(cuda, ())
    if compiled and not _runs(compiled, gpu):
        other = next((f": install nvidia-dali-cuda{10 * each} instead" for each in others), "")
        known = ", ".join([_version(1000 * major + 10 * minor) for major, minor in compiled])
        return f"{wheel} has code for the compute capabilities {known}, and this GPU has {gpu[0]}.{gpu[1]}{other}"
    if 0 < driver < 1000 * cuda:
        why = f"{wheel} needs a driver for CUDA {cuda}, and this one is for {_version(driver)}: update it"
        return why + next((f", or install nvidia-dali-cuda{10 * each}" for each in others), "")
    return ""


def _runs(compiled: Sequence[Capability], gpu: Capability) -> bool:
    return gpu >= _TRANSLATED_FROM or any(gpu[0] == each[0] and gpu >= each for each in compiled)


def _why_torch_cannot(facts: GpuFacts) -> str:
    try:
        import torch
    except ImportError:  # said where tensors are made
        return ""
    built: Any = torch.version.cuda
    what = f"PyTorch {torch.__version__}"
    if built is None:
        return f"{what} is built without CUDA: install one with it, or take output_type='numpy'"
    if 0 < facts.driver_cuda < 1000 * int(built.partition(".")[0]):
        driver = f"the driver is for {_version(facts.driver_cuda)}: update it, or install another PyTorch"
        return f"{what} is built for CUDA {built}, and {driver}"
    return ""


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@functools.cache
def log_cpu_fallback_once(device_id: int) -> None:
    """Say once per process that a pipeline asked for a GPU runs on the CPU."""
    _logger.warning(
        "The pipeline has device_id=%d, but no GPU is usable. No step needs one, so everything runs on the CPU. "
        "Pass device_id=None to choose the CPU.",
        device_id,
    )
