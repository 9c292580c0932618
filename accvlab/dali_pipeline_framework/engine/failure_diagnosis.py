# SPDX-License-Identifier: Apache-2.0
"""Finds the sample, field and step that made a batch fail.

DALI names an operator at best, and the pipeline is lost. But which samples form a batch is known, so after a
failure each of them is loaded again, in this process, and run through the same graph alone.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ..limits.image_limits import decoded_already
from ..sample_data import FieldPath, GroupFormat
from ..sample_data.names import format_path
from ..sources.input_adapter import InputAdapter
from .control_block import ControlBlock
from .dali.texts import dali_reason, is_about_decoding
from .samples import of_step
from .tolerant_loading import description_of
from .worker_process import pass_on_interrupt
from .worker_source import CallableSource, IterableSource, infos_of_batch

_MAX_NAMED = 5


@attrs.frozen
class BatchMember:
    """A sample of the failed batch.

    Attributes:
        name: How to call it in a message.
        sample_index: Index in the data set, None where it is not known.
        load: Loads it again, as a flat tuple.
        slot: Its slot in the batch.
    """

    name: str
    sample_index: int | None
    load: Callable[[], Sequence[Any]]
    slot: int = 0


@attrs.frozen
class Culprit:
    """A sample that fails.

    Attributes:
        member: The sample.
        line: Sample, fields, reason and step, for a message.
        reason: The reason and the step.
    """

    member: BatchMember
    line: str
    reason: str


@attrs.frozen
class FailureDiagnosis:
    """Looks for the culprits of a failed batch.

    Attributes:
        source: What workers call: it loads samples again, as they have sent them.
        control: Memory in which workers note the samples of a batch.
        sent_paths: Paths of the fields that the workers send.
        output_format: Format of the output.
        make_pipeline: Makes a pipeline for one given flat sample that has only the given output, and only so many
            of the steps (None: all).
        step_names: The steps in the graph.
        first_step: Number of the first of the steps in the graph.
    """

    source: CallableSource | IterableSource
    control: ControlBlock
    sent_paths: Sequence[FieldPath]
    output_format: GroupFormat
    make_pipeline: Callable[[Sequence[Any], int | None, int | None], Pipeline]
    step_names: Sequence[str]
    first_step: int

    def find(
        self,
        epoch: int,
        batch: int,
        batch_in_all: int,
        members: Sequence[BatchMember] | None = None,
        most: int | None = _MAX_NAMED + 1,
    ) -> tuple[str, list[Culprit]]:
        """Find the culprits.

        Args:
            epoch: Epoch of the batch.
            batch: The batch in it.
            batch_in_all: The batch since the start.
            members: The samples of the batch; None: those that the input loads for it.
            most: Find no more than so many: each takes a while. None: all.

        Returns:
            A description in a few lines, and the culprits.
        """
        if members is None:
            members = self._members(epoch, batch, batch_in_all)
        if not members:
            return "Which samples form the batch is not known, since the input does not tell.", []
        failing = (culprit for culprit in map(self._examine, members) if culprit is not None)
        culprits = list(itertools.islice(failing, most))
        return self._describe(members, [culprit.line for culprit in culprits]), culprits

    def _describe(self, members: Sequence[BatchMember], culprits: Sequence[str]) -> str:
        if not culprits:
            return (
                f"The batch holds {', '.join(member.name for member in members)}. Each of them passes alone, so "
                f"the failure is about the batch as a whole (e.g. samples whose shapes do not go together)."
            )
        more = ["  - and others"] if len(culprits) > _MAX_NAMED else []
        return "\n".join(["To blame:", *culprits[:_MAX_NAMED], *more])

    def _members(self, epoch: int, batch: int, batch_in_all: int) -> list[BatchMember]:
        data_input, size = self.source.data_input, self.source.batch_size
        if callable(data_input):
            members = (self._member_of_callable(data_input, epoch, batch, slot) for slot in range(size))
            if not InputAdapter(data_input).delivers_partial_batches:
                return list(members)
            return [member for member in members if member.sample_index is not None]
        indices = self.control.recorded_batch(batch_in_all)
        load = getattr(data_input, "load_sample", None)
        if indices is None or load is None:
            return []
        infos = infos_of_batch(batch_in_all, len(indices), size)
        return [
            BatchMember(f"sample {index}", index, functools.partial(self.source.load_again, load, index, info))
            for index, info in zip(indices, infos, strict=True)
        ]

    def _member_of_callable(self, data_input: Any, epoch: int, batch: int, slot: int) -> BatchMember:
        info = types.SampleInfo(batch * self.source.batch_size + slot, slot, batch, epoch)
        index = InputAdapter(data_input).sample_index(info)
        name = f"slot {slot}" if index is None else f"sample {index}"
        return BatchMember(name, index, functools.partial(self.source.load_again, data_input, info, info))

    def _examine(self, member: BatchMember) -> Culprit | None:
        try:
            flat = [np.ascontiguousarray(array) if array.ndim else array for array in member.load()]
        except BaseException as error:
            pass_on_interrupt(error)
            cause = of_step(error)
            reason = f"could not be loaded again: {type(cause).__name__}: {cause}"
            return Culprit(member, f"  - {member.name}: {reason}", reason)
        found = self._failure_of(flat)
        if found is None:
            return None
        all_paths = self.output_format.flat_paths
        failing = (
            format_path(path)
            for position, path in enumerate(all_paths)
            if len(all_paths) == 1 or self._failure_of(flat, position) is not None
        )
        paths = list(itertools.islice(failing, _MAX_NAMED + 1))
        fields = ", ".join(paths[:_MAX_NAMED]) + (", ..." if len(paths) > _MAX_NAMED else "")
        told = description_of(InputAdapter(self.source.data_input), member.sample_index)
        where = f"{member.name}{f' ({told})' if told else ''}{', field ' if paths else ''}{fields}"
        reason = f"{found}{self._step_of(flat, found)}{self._decoded_already(flat, found, paths)}"
        return Culprit(member, f"  - {where}: {reason}", reason)

    def _step_of(self, flat: Sequence[Any], reason: str) -> str:
        """Say which step fails for the same reason when it is the last one."""
        low, high = 0, len(self.step_names)  # fails with `high` steps, not with `low`
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._failure_of(flat, None, middle) == reason else (middle, high)
        return f" [in step {self.first_step + high - 1}: {self.step_names[high - 1]}]" if high else ""

    def _decoded_already(self, flat: Sequence[Any], reason: str, failing: Sequence[str]) -> str:
        """Say that images which could not be decoded are no files."""
        if not is_about_decoding(reason):
            return ""
        arrays = {format_path(path): array for path, array in zip(self.sent_paths, flat, strict=False)}
        found = (decoded_already(arrays[path]) for path in failing if path in arrays)
        return next((f"; {problem}" for problem in found if problem), "")

    def _failure_of(
        self, flat: Sequence[Any], output: int | None = None, num_steps: int | None = None
    ) -> str | None:
        """Say why a sample fails in the graph, as the workers have sent it; None where it passes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DALI's, about inputs that do not reach the only output
            try:
                self.make_pipeline(flat, output, num_steps).run()
            except Exception as error:
                # It counts in a batch of one here.
                return dali_reason(error).replace("sample #0", "the sample")
        return None
