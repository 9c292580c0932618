# SPDX-License-Identifier: Apache-2.0
"""Errors of a pipeline: what failed, from what DALI says and what the pipeline knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeviceError, GraphError, SettingError
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.names import format_path
from ..sources.input_parts import NativeInput
from .dali.texts import MERGED_DIFFERENT_DIMENSIONS, dali_cause, dali_message, is_about, is_about_device

if TYPE_CHECKING:
    from .sample_faults import Culprit
    from .structured_pipeline import StructuredPipeline


def _find_native(pipeline: StructuredPipeline, error: Exception) -> NativeInput | None:
    """The native input that an error of DALI is about, if it is about one."""
    return next((each for each in pipeline.native.values() if is_about(error, each.operator_name)), None)


def device_error(where: str, error: Exception) -> DeviceError:
    """Make the error for a GPU that has failed; ``where``: ``"Batch 3 of epoch 0"``."""
    return DeviceError(
        f"{where} failed because of the GPU, and not of samples: {dali_cause(error)}\n"
        f"Where memory ran out: take a smaller `batch_size`, a queue depth of 1 or fewer `num_threads` (each "
        f"has buffers for decoding). After another error of CUDA: start a new process."
    )


def setup_error(pipeline: StructuredPipeline, error: Exception) -> SettingError | DeviceError | None:
    """Make the error for a GPU or a native input that DALI could not set up; None where it is about neither."""
    if is_about_device(error):
        return device_error("Building the pipeline", error)
    failed = _find_native(pipeline, error)
    if failed is None:
        return None
    reason = dali_cause(error)
    advice = failed.advice(reason)
    return SettingError(f"DALI cannot set up {failed!r}. {advice}{' ' * bool(advice)}DALI reports: {reason}")


def dtype_problems(pipeline: StructuredPipeline, batch: Sequence[Any]) -> list[str]:
    """Say which outputs of the graph have other types than the format; a line for each field."""
    problems = []
    leaves = zip(
        pipeline.blueprint.format.flat_paths,
        pipeline.blueprint.format.flat_leaves,
        pipeline.delivery.places,
        pipeline.last_changed_by,
        strict=True,
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


def graph_error(
    pipeline: StructuredPipeline, error: Exception, batch_in_all: int, holds: str
) -> GraphError | DeviceError:
    """Make the error for the batch that failed in the graph; ``holds`` is what native readers tell of it."""
    epoch, batch = pipeline.failed_batch
    if is_about_device(error):
        return device_error(f"Batch {batch} of epoch {epoch}", error)
    reader = _find_native(pipeline, error)
    if reader is not None:
        return GraphError(f"Batch {batch} of epoch {epoch} failed in {reader!r}: {dali_cause(error)}")
    diagnosis = "Which samples form the batch is not known: native readers of DALI do not tell."
    culprits: list[Culprit] = []
    if pipeline.diagnosis is not None:
        try:
            faults = pipeline.sample_faults or pipeline.diagnosis
            diagnosis, culprits = faults.find(error, epoch, batch, batch_in_all)
        except DeviceError as failed:
            return failed
        except Exception as failed:
            diagnosis = f"Which sample is to blame could not be found out: {type(failed).__name__}: {failed}"
    if MERGED_DIFFERENT_DIMENSIONS in str(error) and pipeline.merged_fields:
        diagnosis += (
            f"\nSteps have given the elements of an array different numbers of dimensions, so that they can "
            f"not be processed together any more: one of {', '.join(pipeline.merged_fields)}. Give them the same, "
            f"or set `fold_arrays=False` of `PipelineDefinition`."
        )
    layout = pipeline.delivery.layout
    counted = "samples" if layout is None or layout.num_slots == 1 else "the elements of all samples"
    explained = GraphError(
        f"Batch {batch} of epoch {epoch} failed in the graph.{holds}\n{diagnosis}\n\n"
        f"DALI reports (counting {counted} from 0 within the batch):\n{dali_message(error)}"
    )
    indices = [culprit.member.sample_index for culprit in culprits]
    explained.sample_indices = tuple([index for index in indices if index is not None])
    return explained


def _source_of(tensors: Any) -> str:
    """Where the first sample of a field came from, where a native reader told DALI."""
    source = tensors[0].source_info() if len(tensors) else ""
    return f", from {source!r}" if source else ""
