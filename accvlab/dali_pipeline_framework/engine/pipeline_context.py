# SPDX-License-Identifier: Apache-2.0
"""What a pipeline knows about where it comes from, and what it can say from that when something fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ..errors import GraphError, SettingError
from ..sample_data import SampleDataGroup
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.names import format_path
from ..sources.input_parts import NativeInput, NativeRun
from ..user_warnings import warn_user
from .control_block import ControlBlock
from .dali.texts import MERGED_DIFFERENT_DIMENSIONS, dali_cause, dali_message, is_about
from .transport import Delivery

if TYPE_CHECKING:
    from .sample_faults import Culprit, FailureDiagnosis, SampleFaults


@attrs.frozen
class PipelineContext:
    """What a pipeline knows about where it comes from.

    Attributes:
        output_blueprint: Format of the output.
        control: Memory shared with the workers.
        data_input: The user's input that workers load; native readers are in ``native``.
        native: The native inputs by the names of their operators.
        has_workers: Whether there is a callable or iterable, whose epochs are those of the pipeline; else the
            epochs are those of the native inputs.
        check_dtypes: Whether the first batch is compared with the blueprint.
        delivery: Where the fields stand in the outputs of the graph.
        plan: What runs in the workers, what is folded, and what is packed, for people.
        steps_in_workers: How many of the steps run in the workers.
        not_folded: For steps that treat elements alike, and are not applied to folded arrays: why.
        merged_fields: Fields whose elements are put together in the graph, after steps that changed single ones.
        batch_size: Samples per batch; the batch of the graph holds more where arrays are folded.
        unused_fields: Fields that workers load, and that nothing depends on.
        last_changed_by: Per output field, what set it last.
        worker_source: What DALI calls in the workers; None where there is nothing for them.
        least_ahead: Batches that workers load ahead at least; more only as far as memory allows.
        diagnosis: Finds out which samples of a failed batch are to blame; None beside native readers.
    """

    output_blueprint: SampleDataGroup
    control: ControlBlock
    data_input: Any
    native: Mapping[str, NativeInput]
    has_workers: bool
    check_dtypes: bool
    delivery: Delivery
    plan: str
    steps_in_workers: int
    not_folded: Mapping[int, str]
    merged_fields: Sequence[str]
    batch_size: int
    unused_fields: Sequence[str]
    last_changed_by: Sequence[str]
    worker_source: Any
    least_ahead: int
    diagnosis: FailureDiagnosis | None

    def find_native(self, error: Exception) -> NativeInput | None:
        """The native input that an error of DALI is about, if it is about one."""
        return next((each for each in self.native.values() if is_about(error, each.operator_name)), None)

    def warn_of_unused_fields(self) -> None:
        """Warn of fields that are loaded in vain."""
        if self.unused_fields:
            warn_user(
                f"These fields are not used, though loaded for each sample: no step reads them, and they do not "
                f"reach the output: {', '.join(self.unused_fields)}. Leave fields out of the blueprint "
                f"of the data provider (`sample_data_structure`), and draws out of what the step declares."
            )

    def setup_error(self, error: Exception) -> SettingError | None:
        """Make the error for a native input that DALI could not set up; None where it is not about one."""
        failed = self.find_native(error)
        if failed is None:
            return None
        reason = dali_cause(error)
        advice = failed.advice(reason)
        return SettingError(f"DALI cannot set up {failed!r}. {advice}{' ' * bool(advice)}DALI reports: {reason}")

    def require_equal_epochs(self, runs: Sequence[NativeRun]) -> None:
        """Refuse native inputs beside each other whose epochs have different batches."""
        if not self.has_workers and len({run.epochs for run in runs}) > 1:
            sizes = (f"{name}: {run.epochs}" for name, run in zip(self.native, runs, strict=True))
            raise SettingError(
                "Readers beside each other must have the same number of samples, shards and policy, so that their "
                "epochs have the same batches:\n" + "\n".join(f"  - {each}" for each in sizes)
            )

    def describe_loading(self, pid: int) -> str:
        """Say what a process is at: "loading sample 7 (...)"; empty where that is not known."""
        if pid in self.control.setups():
            return self.control.setups()[pid][0]
        from .watching.worker_watch import describe_place, sample_index_at

        loading = self.control.find_loading(pid) if callable(self.data_input) else None
        if loading is None:
            return ""
        return f"loading {describe_place(sample_index_at(self.data_input, loading, self.batch_size), loading)}"

    def dtype_problems(self, batch: Sequence[Any]) -> list[str]:
        """Say which outputs of the graph have other types than the format; a line for each field."""
        problems = []
        leaves = zip(
            self.output_blueprint.format.flat_paths,
            self.output_blueprint.format.flat_leaves,
            self.delivery.places,
            self.last_changed_by,
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
        self,
        error: Exception,
        place: tuple[int, int],
        batch_in_all: int,
        holds: str,
        faults: SampleFaults | None,
    ) -> GraphError:
        """Make the error for a batch that failed in the graph.

        ``place`` is its epoch, and the batch in it; ``holds`` is what native readers tell of it. ``faults`` finds
        the culprits instead of the diagnosis, if it is given.
        """
        epoch, batch = place
        reader = self.find_native(error)
        if reader is not None:
            return GraphError(f"Batch {batch} of epoch {epoch} failed in {reader!r}: {dali_cause(error)}")
        diagnosis = "Which samples form the batch is not known: native readers of DALI do not tell."
        culprits: list[Culprit] = []
        if self.diagnosis is not None:
            try:
                diagnosis, culprits = (faults or self.diagnosis).find(epoch, batch, batch_in_all)
            except Exception as failed:
                diagnosis = f"Which sample is to blame could not be found out: {type(failed).__name__}: {failed}"
        if MERGED_DIFFERENT_DIMENSIONS in str(error) and self.merged_fields:
            diagnosis += (
                f"\nSteps have given the elements of an array different numbers of dimensions, so that they can "
                f"not be processed together any more: one of {', '.join(self.merged_fields)}. Give them the same, "
                f"or set `fold_arrays=False` of `PipelineDefinition`."
            )
        layout = self.delivery.layout
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
