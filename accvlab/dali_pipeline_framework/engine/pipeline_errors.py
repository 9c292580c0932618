# SPDX-License-Identifier: Apache-2.0
"""Errors of a pipeline: what failed, from what DALI says and what the pipeline knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ..errors import DeviceError, GraphError, SettingError, WorkerDiedError, WorkerStartError
from ..sample_data import GroupFormat
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.names import format_path
from ..sources.native_input import NativeInput
from .dali.texts import (
    MERGED_DIFFERENT_DIMENSIONS,
    NO_SHARED_MEMORY,
    WORKER_LOST,
    WORKER_WAS_LOST,
    WORKERS_NOT_STARTED,
    dali_cause,
    dali_message,
    dali_reason,
    device_error,
    is_about,
    is_about_decoding,
    is_about_device,
)
from .failure_diagnosis import Culprit
from .transport import Delivery


def setup_error(native: NativeInput | None, error: Exception) -> SettingError | DeviceError | None:
    """Make the error for a GPU or a native input that DALI could not set up; None if it is about neither."""
    if is_about_device(error):
        return device_error("Building the pipeline", error)
    if native is None or not is_about(error, native.operator_name):
        return None
    reason = dali_cause(error)
    advice = native.advice(reason)
    return SettingError(f"DALI cannot set up {native!r}. {advice}{' ' * bool(advice)}DALI reports: {reason}")


def worker_error(error: Exception) -> WorkerStartError | WorkerDiedError | None:
    """Make the error for a worker of DALI that has ended; None if the error is about none."""
    text = str(error)
    if isinstance(error, OSError) or NO_SHARED_MEMORY in text:
        return WorkerStartError(
            f"The worker processes could not be started: {text}. DALI keeps batches and semaphores in /dev/shm, "
            f"which must be writable, and needs some open files for each worker (`ulimit -n`). A DataLoader does "
            f"without /dev/shm, and `py_num_workers=0` without workers."
        )
    if WORKERS_NOT_STARTED in text:
        return WorkerStartError(
            "The worker processes could not be started: one has ended while it was set up. What it printed on "
            "stderr says why. Frequent causes: a module that cannot be imported in the worker, a main script "
            'without a guard (`if __name__ == "__main__":`), too little memory.'
        )
    if WORKER_LOST in text or WORKER_WAS_LOST in text:
        return WorkerDiedError(
            "A worker process of DALI has ended, so no more batches can be loaded. Frequent causes: memory ran "
            "out, a crash in native code that the data provider uses, a /dev/shm that is too small. A DataLoader "
            "names the sample and how the process has ended, and starts another worker (`FaultPolicy`)."
        )
    return None


def dtype_problems(
    output_format: GroupFormat, delivery: Delivery, last_changed_by: Sequence[str], batch: Sequence[Any]
) -> list[str]:
    """Say which outputs of the graph have other types than the format; a line for each field."""
    problems = []
    leaves = zip(
        output_format.flat_paths, output_format.flat_leaves, delivery.places, last_changed_by, strict=True
    )
    for path, leaf, place, changed_by in leaves:
        if place.is_packed:
            continue
        tensors = batch[place.output]
        if tensors.dtype != leaf.transport_dtype:
            problems.append(
                f"  - {format_path(path)}: Expected type {leaf.numpy_dtype}, but the actual data type is "
                f"{get_numpy_type_for_dali_type(tensors.dtype).__name__} (last set by {changed_by}"
                f"{_source_of(tensors)})"
            )
    return problems


_NOT_KNOWN = "Which samples form the batch is not known, since the input does not report it."


@attrs.frozen
class FailedBatch:
    """A batch that has failed in the graph.

    Attributes:
        epoch: Its epoch.
        batch: Its number in the epoch.
        holds: What is known of its samples; empty where nothing is.
        counted: What DALI counts in a batch, for messages.
        merged_fields: Fields whose elements are put together in the graph.
    """

    epoch: int
    batch: int
    holds: str
    counted: str
    merged_fields: Sequence[str]

    def __str__(self) -> str:
        """Return its numbers."""
        return f"Batch {self.batch} of epoch {self.epoch}"


def graph_error(
    failed: FailedBatch,
    error: Exception,
    native: NativeInput | None,
    find: Callable[[], tuple[str, list[Culprit]]] | None,
) -> tuple[GraphError | DeviceError, list[Culprit]]:
    """Make the error for a batch that failed in the graph; ``find`` gets a description and the culprits."""
    if is_about_device(error):
        return device_error(str(failed), error), []
    why = native.why_not_decoded() if native is not None and is_about_decoding(dali_cause(error)) else ""
    if native is not None and is_about(error, native.operator_name):
        return GraphError(f"{failed} failed in {native!r}: {dali_cause(error)}{why and f'. {why}'}"), []
    advice = "A DataLoader finds out which of its samples is to blame." if failed.holds else _NOT_KNOWN
    diagnosis = f"The reason: {dali_reason(error)}\n{why and f'{why} '}{advice}"
    culprits: list[Culprit] = []
    if find is not None:
        try:
            diagnosis, culprits = find()
        except DeviceError as of_device:
            return of_device, []
        except Exception as unknown:  # whatever it is, the error of DALI is reported
            diagnosis = f"Which sample is to blame could not be found out: {type(unknown).__name__}: {unknown}"
    if MERGED_DIFFERENT_DIMENSIONS in str(error) and failed.merged_fields:
        diagnosis += (
            f"\nSteps have given the elements of an array different numbers of dimensions, so that they can "
            f"not be processed together any more: one of {', '.join(failed.merged_fields)}. Give them the same, "
            f"or set `fold_arrays=False`."
        )
    explained = GraphError(
        f"{failed} failed in the graph.{failed.holds}\n{diagnosis}\n\n"
        f"DALI reports (counting {failed.counted} from 0 within the batch):\n{dali_message(error)}"
    )
    indices = [culprit.member.sample_index for culprit in culprits]
    explained.sample_indices = tuple([index for index in indices if index is not None])
    return explained, culprits


def _source_of(tensors: Any) -> str:
    """The origin of the first sample of a field; empty if DALI does not know it."""
    source = tensors[0].source_info() if len(tensors) else ""
    return f", from {source!r}" if source else ""
