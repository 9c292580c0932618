# SPDX-License-Identifier: Apache-2.0
"""The texts by which errors and warnings of DALI are distinguished, and what is read out of them.

They are nowhere else in this package; ``test_dali_names.py`` of the tests has DALI say each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import do_not_convert

from ...errors import DeviceError, causes_of, text_of
from . import gpus

RULE_PREFIX = "ERROR: "  # our own, see `failing_with`
ASKS_FOR_DECODER = "is it decoded before? If not, put ImageDecoder before this step"  # our own

# Errors of worker processes.
WORKERS_NOT_STARTED = "Workers initialization failed"
NO_SHARED_MEMORY = "Call to mkstemp failed"  # or file descriptors
WORKER_LOST = "Worker data receiving interrupted"
WORKER_WAS_LOST = "Sending tasks to worker"  # by the time something was to be handed to it

# Parts of the report of an operator that has failed.
CAUSE = "encountered:"  # comes before it
CPP_CONTEXT = "C++ context"
DEFINED_IN = ", in "  # a function, after file and line
PYTHON_ERROR = "DLTensorPythonFunction error: "  # comes before what a function in Python has raised
PYTHON_STACK = "At:"  # comes before its stack
PIPELINE_IS_INVALID = "Current pipeline object is no longer valid."
CRITICAL_ERROR = "Critical error in pipeline:"

# Causes.
NO_KNOWN_IMAGE = "nvImageCodec"
SAMPLE_NUMBER = "sample #"  # a number in the batch of an operator
NO_DECODER_TOOK_IT = "Failed to decode"
NO_BYTES_OF_A_FILE = "raw, undecoded file"
WRONG_LAYOUT = "allowed layouts"
FEWER_SAMPLES_THAN_SHARDS = "num_shards_ <= Size()"
NO_SAMPLES = "samples: 0,"
NO_FILES = "No files found"
NO_FRAMES = "Glob for pattern"
MERGED_DIFFERENT_DIMENSIONS = "Divergent data found"

# Causes that are about the GPU and not about samples; the numbers are failed allocations and calls of CUDA.
DEVICE_FAILURES = (
    "CUDA runtime API error",
    "CUDA driver API error",
    "CUDA Driver API error",
    "CUDA allocation failed",
    " bytes on device ",
    " bytes on host.",
    "CUDA Runtime failure",
    "Unhandled CUDA error",
    "CUDA error #",
    "CUFFT error (",
    "npp error (",
    "nvImageCodec failure: '#5'",
    "nvImageCodec failure: '#15'",
    "nvImageCodec failure: '#21'",
)

NO_VIDEO_LIBRARY_FOUND = "CUDA_ERROR_SHARED_OBJECT"  # 302 and 303: a library, or a symbol in it

TORCH_DEVICE_FAILURES = ("CUDA out of memory", "CUDA error: ", "cuDNN error: ")  # in steps and providers

# Of these, those after which each call of CUDA fails, by PyTorch and by DALI.
LOST_GPU = (
    "CUDA error: ",
    "cudaErrorAssert",
    "cudaErrorIllegalAddress",
    "cudaErrorLaunchFailure",
    "CUDA_ERROR_ASSERT",
)
# The same by their numbers, which both APIs of CUDA share: also illegal instructions, errors of memory, time-outs.
LOST_GPU_NUMBERS = re.compile(r"(?:API error \w+ \(|failure: '#|CUDA error #)(?:214|70[029]|71[04-9])\b")

# Errors while a graph is defined.
NO_CONDITIONALS = "conditional"
REPLACED_EXCEPTION = "StagingError"  # the name of its class

# Warnings.
DEPRECATED_SEQUENCES = "readers.sequence"


def is_about(error: BaseException, operator_name: str) -> bool:
    """Whether a report is about an operator, e.g. ``readers.file``."""
    return f"fn.{operator_name}`" in text_of(error)


def dali_message(error: BaseException) -> str:
    """The text of a DALI error without its repeated phrases."""
    text = text_of(error).replace(PIPELINE_IS_INVALID, "").replace(CRITICAL_ERROR, "")
    return "\n".join(line for line in text.splitlines() if line.strip())


def dali_cause(error: BaseException) -> str:
    """What DALI says an operator failed with, in one line, without where the operator was defined."""
    lines = dali_message(error).rpartition(CAUSE)[2].splitlines()
    told = [line.strip() for line in lines if not line.startswith(CPP_CONTEXT)]
    cause = " ".join(line for line in told[: told.index(PYTHON_STACK) if PYTHON_STACK in told else None] if line)
    return re.sub(rf"^{PYTHON_ERROR}\w+: ", "", cause)


def is_about_device(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, is that a GPU or its libraries have failed."""
    failures = (*DEVICE_FAILURES, *TORCH_DEVICE_FAILURES)
    return any(text in cause for cause in map(dali_cause, causes_of(error)) for text in failures)


def is_about_lost_gpu(error: BaseException | None) -> bool:
    """Whether an error is one of CUDA after which a process can use no GPU any more: not one of memory."""
    causes = [*map(text_of, causes_of(error))]
    ran_out = any("out of memory" in cause for cause in causes)
    is_lost = any(text in cause for cause in causes for text in LOST_GPU)
    return not ran_out and (is_lost or any(map(LOST_GPU_NUMBERS.search, causes)))


def number_in_batch(error: BaseException) -> int | None:
    """The number of the sample in its operator's batch, from 0, that a report names; None if it names none."""
    found = re.search(rf"{SAMPLE_NUMBER}(\d+)", dali_cause(error))
    return None if found is None else int(found[1])


def is_about_decoding(reason: str) -> bool:
    """Whether a reason says that an image could not be decoded."""
    return any(text in reason for text in (NO_KNOWN_IMAGE, NO_DECODER_TOOK_IT, NO_BYTES_OF_A_FILE))


def dali_reason(error: BaseException) -> str:
    """Why an operator failed, in one line: the rule, where one is named in what defines it."""
    named = f"{DEFINED_IN}{RULE_PREFIX}"
    rules = [line.rpartition(named)[2].strip() for line in dali_message(error).splitlines() if named in line]
    if rules:
        return rules[-1]
    reason = re.sub(rf" \[{SAMPLE_NUMBER}\d+\]", "", dali_cause(error)) or type(error).__name__
    if is_about_decoding(reason):
        reason += " (what was to be decoded is no image of a known format, or it is damaged)"
    if WRONG_LAYOUT in reason:
        reason += f" (an image is (height, width, channels), a clip has the frames in front; {ASKS_FOR_DECODER})"
    return reason


@do_not_convert
def failing_with(rule: str, define: Callable[..., Any], /, *arguments: Any, **settings: Any) -> DataNode:
    """Define operators, e.g. ``fn.reshape``, that fail where data break a rule, with a message of one line."""

    def call() -> DataNode:
        node: DataNode = define(*arguments, **settings)
        return node

    call.__code__ = call.__code__.replace(co_name=f"{RULE_PREFIX}{rule}")
    return call()


def device_error(where: str, error: Exception) -> DeviceError:
    """Make the error for a GPU that has failed; ``where``: ``"Batch 3 of epoch 0"``."""
    cause = dali_cause(error)
    if NO_VIDEO_LIBRARY_FOUND in cause:
        return DeviceError(
            f"{where} failed, since no video can be decoded on the GPU: {cause}\n{gpus.NO_VIDEO_LIBRARY}."
        )
    cures = "a smaller `batch_size`, a queue depth of 1 or fewer `num_threads` (each has buffers for decoding)"
    if is_about(error, "decoders.video"):
        cures += ", or VideoDecoder(device='cpu'): a GPU holds 8 frames of each clip while it decodes a batch"
    return DeviceError(
        f"{where} failed because of the GPU, and not of samples: {cause}\n"
        f"Where memory ran out: take {cures}. After another error of CUDA: start a new process."
    )
