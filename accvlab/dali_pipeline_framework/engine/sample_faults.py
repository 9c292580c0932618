# SPDX-License-Identifier: Apache-2.0
"""What the main process does about samples that fail in a pipeline."""

from __future__ import annotations

import functools
import logging
import operator
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import attrs
from nvidia.dali import types

from ..errors import ClosedError, FrameworkError, GraphError, SourceError, is_of_missing_package
from ..faults.fault_policy import FailedSample, FailedSamples, Stage
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from .failure_diagnosis import BatchMember, Finding
from .samples import LoadingBatch, OddSampleError, SampleSteps, after_steps, named_step, of_step
from .structured_pipeline import StructuredPipeline
from .tolerant_loading import (
    BatchLoading,
    FaultJournal,
    KnownSampleError,
    NotTriedError,
    SampleChain,
    SampleFailureError,
    TolerantLoading,
    description_of,
)
from .worker_report import ReportedFailure, WorkerReport
from .worker_source import BatchSource

_LONGEST_REASON = 500


class TolerantSource(BatchSource):
    """A `BatchSource` that puts other samples in the place of those that fail.

    A batch without faults is made as by any. When something fails, what was made of the batch so far is kept, and
    the rest is made sample by sample; likewise all of a batch with a sample that is known to fail.

    Attributes:
        tolerance: What it knows of samples that fail.
    """

    _ranges: ClassVar[Mapping[str, str]] = {**BatchSource._ranges, "_apply_steps": "steps on arrays"}

    tolerance: TolerantLoading

    def _read(self, batch: LoadingBatch) -> bool:
        if self.tolerance.not_tried and self._is_one_known(batch.infos):
            raise KnownSampleError
        return super()._read(batch)

    def _is_one_known(self, infos: Sequence[types.SampleInfo]) -> bool:
        indices = {place.sample_index for place in self._get_source().places_at(infos)}
        return not indices.isdisjoint(self.tolerance.not_tried)

    def _after_error(self, batch: LoadingBatch, error: BaseException) -> list[Any]:
        if batch.phase == "draws" or (batch.phase == "packing" and not isinstance(error, OddSampleError)):
            self._report_error(batch, error)  # no sample has failed
        note = functools.partial(self._note, batch.row)
        loading = BatchLoading(self.tolerance, self.chain(), note)
        try:
            loading.go_on(batch, error)
            outputs = self.fit_together(loading)
        except SampleFailureError as failure:
            raise self._reported(failure, batch.where) from of_step(failure.cause)
        batch.infos = [each.info for each in loading.loaded]
        batch.stand_ins = loading.stand_ins
        loading.write_records(batch.asked.epoch_idx, batch.asked.iteration)
        return outputs

    def fit_together(self, loading: BatchLoading) -> list[Any]:
        """Make the outputs of a batch; what does not go with the other samples is replaced."""
        while True:
            sent = [each.sent for each in loading.loaded]
            try:
                return self.outputs_of_batch(sent, loading.draws, functools.partial(self._index_of, loading))
            except OddSampleError as odd:
                loading.replace(odd.number, ValueError(odd.problem))

    def _index_of(self, loading: BatchLoading, number: int) -> int | None:
        sample = loading.loaded[number]
        return self._sample_index(sample.info) if sample.index is None else sample.index

    def chain(self) -> SampleChain:
        """What happens to a sample before it is sent."""
        source: PlannedInput = self._get_source()
        apply = None if self._steps is None else self._apply_steps
        return SampleChain(source, self._get_checker().check, self._keyed_draws, apply, self._described)

    def _apply_steps(self, flat: Sequence[Any], numbers: Sequence[Any]) -> Sequence[Any]:
        return after_steps(cast(SampleSteps, self._steps), flat, numbers, self._replayed)

    def _described(self, failure: SampleFailureError) -> tuple[str, str]:
        info = failure.info
        report = self._report_of(failure, f"epoch {info.epoch_idx}, batch {info.iteration}")
        cause = of_step(failure.cause)
        if failure.stage == "checks":
            reason = f"does not fit the blueprint: {str(cause).strip().removeprefix('- ')}"
        else:
            reason = f"{type(cause).__name__}: {cause}"
        return " ".join(reason.split())[:_LONGEST_REASON], report.message

    def _report_of(self, failure: SampleFailureError, where: str) -> WorkerReport:
        where, index = f"{where}, slot {failure.info.idx_in_batch}", failure.sample_index
        if failure.stage == "checks":
            return self.report_of_problem(str(failure.cause), where, index, failure.info)
        cause = of_step(failure.cause)
        what = named_step(failure.cause, index) if failure.stage == "steps" else None
        return self.report(cause, where, index, what, failure.info)

    def _reported(self, failure: SampleFailureError, where: str) -> Exception:
        if isinstance(failure.cause, NotTriedError):
            failure.cause.args = (f"it is known to fail: {failure.cause}",)
        report = self._report_of(failure, where)
        return ReportedFailure((report.with_note(failure.note) if failure.note else report).encode())


_logger = logging.getLogger(__name__)

_MOST_LOGGED = 10


class SampleFaults:
    """Follows what fails in one pipeline, and keeps it in the `FailedSamples` of the loader.

    ```text
     worker      sample fails ─> substitute ─> journal                ─┐
     pipeline                                        batch delivered  ─┴─> noted, budget
     graph       batch fails ─> diagnosis ─> culprits ─> not to be tried any more ─> the loader renews the pipeline
    ```
    """

    def __init__(self, pipeline: StructuredPipeline, failed: FailedSamples) -> None:
        """Set the pipeline up, which is not started yet."""
        self._pipeline_reference = weakref.ref(pipeline)  # it holds this object
        self._failed = failed
        self._culprits: list[tuple[BatchMember, Finding]] = []
        self._slots: dict[str, int] = {}  # of the batch that failed, by the name of the sample
        self._records: list[dict[str, Any]] = []
        self._journal: FaultJournal | None = None
        self._source: TolerantSource | None = None
        policy = failed.policy
        if policy.samples != "raise":
            self._journal = FaultJournal()
            source: Any = pipeline.worker_source
            source.__class__ = TolerantSource  # it is not started yet
            self._source = source
            source.tolerance = TolerantLoading(policy.samples, dict(failed.not_tried), self._journal)
        self._diagnosis = pipeline.diagnose_by(self._diagnose)

    @property
    def _pipeline(self) -> StructuredPipeline:
        pipeline = self._pipeline_reference()
        if pipeline is None:
            raise ClosedError("The pipeline is gone.")
        return pipeline

    def close(self) -> None:
        """Give the journal back."""
        if self._journal is not None:
            self._journal.close()

    # --- batches that are delivered -------------------------------------------------------------------

    def received(self, num_samples: int) -> None:
        """Note what has failed in the batch that was received last, of that many samples.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        failed = self._failed
        failed.num_delivered += num_samples
        if self._journal is not None:
            self._records += self._journal.read()
        if self._records:
            self._note_records()
        if failed.by_index:
            failed.require_budget()

    def _note_records(self) -> None:
        position = self._pipeline.last_batch
        of_later: list[dict[str, Any]] = []
        for record in self._records:
            place = (record["epoch_idx"], record["iteration"])
            if place > position:
                of_later.append(record)
            if place != position:  # else of a batch that was thrown away
                continue
            for each in record["failed"]:
                self._note(FailedSample.of_record(each))
        self._records = of_later

    def _note(self, failed: FailedSample, is_tried_again: bool = True) -> None:
        number = len(self._failed.samples)
        if is_tried_again:
            self._failed.note(failed)
        else:
            self._failed.note_not_to_be_tried(failed)
        if len(self._failed.samples) > number:
            file = f" ({failed.file})" if failed.file else ""
            is_error = failed.outcome == _OUTCOMES["raise"]  # then the error says it all
            level = logging.INFO if is_error or number >= _MOST_LOGGED else logging.WARNING
            _logger.log(
                level, "Sample %d%s failed: %s [%s]", failed.sample_index, file, failed.reason, failed.outcome
            )

    # --- batches that fail ----------------------------------------------------------------------------

    def _diagnose(self, epoch: int, batch: int, batch_in_all: int) -> tuple[str, tuple[int, ...]]:
        members = None if self._source is None else self._members(self._source, epoch, batch)
        text, self._culprits = self._diagnosis.find(epoch, batch, batch_in_all, members)
        indices = [member.sample_index for member, _ in self._culprits]
        return text, tuple([index for index in indices if index is not None])

    def _members(self, source: TolerantSource, epoch: int, batch: int) -> list[BatchMember]:
        """The samples of a batch, as the workers have sent them."""
        size = self._pipeline.max_batch_size
        infos = [types.SampleInfo(batch * size + slot, slot, batch, epoch) for slot in range(size)]
        loading = BatchLoading(attrs.evolve(source.tolerance, journal=None), source.chain())
        try:
            with source.seeding():
                loading.run(infos)
                source.fit_together(loading)
        except (StopIteration, SampleFailureError):
            return []
        members = []
        for number, each in enumerate(loading.loaded):
            numbers = [of_batch[number] for of_batch in loading.draws]
            index = (
                each.index
                if each.index is not None
                else InputAdapter(source.chain().source).sample_index(each.info)
            )
            name = f"sample {index}"
            self._slots[name] = int(each.info.idx_in_batch)
            members.append(BatchMember(name, index, functools.partial(list, [*each.sent, *numbers])))
        return members

    def resolve(self, error: FrameworkError) -> bool:
        """Decide whether a batch that failed can be made again, without what is to blame for it.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        if not isinstance(error, GraphError) or not self._culprits:
            self._note_raised(error)
            return False
        for member, finding in self._culprits:
            if member.sample_index is None:
                return False
            place = (*self._pipeline.failed_batch, self._slots.get(member.name, 0))
            self._note_culprit(member.sample_index, finding.reason, "graph", place, finding.line.strip())
        self._failed.require_budget()
        return self._failed.policy.samples != "raise"

    def note_deadly(self, index: int, place: tuple[int, int, int], reason: str) -> bool:
        """Note a sample that has ended the workers that loaded it; return whether it will not be tried again.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        self._note_culprit(index, reason, "loading", place, reason)
        self._failed.require_budget()
        return self._failed.policy.samples != "raise"

    def _note_culprit(
        self, index: int, reason: str, stage: Stage, place: tuple[int, int, int], message: str
    ) -> None:
        """Note a sample that made its batch fail: where samples may fail, it is not tried again."""
        policy = self._failed.policy.samples
        failed = FailedSample(index, reason, stage, _OUTCOMES[policy], self._file(index), *place, message=message)
        self._note(failed, is_tried_again=policy == "raise")

    def _note_raised(self, error: FrameworkError) -> None:
        index = error.sample_index if isinstance(error, SourceError) else None
        if index is None or is_of_missing_package(error):
            return
        reason = str(error).partition("\n")[0]
        epoch, batch = self._pipeline.failed_batch
        self._note(
            FailedSample(
                index, reason, "loading", _OUTCOMES["raise"], self._file(index), epoch, batch, message=str(error)
            )
        )

    def _file(self, index: int) -> str:
        return description_of(InputAdapter(self._pipeline.data_input), index)


_OUTCOMES = {"raise": "raised", "skip": "skipped", "replace": "another sample in its place"}


_sample_index_of, _is_padding_of = operator.attrgetter("sample_index"), operator.attrgetter("is_padding")
