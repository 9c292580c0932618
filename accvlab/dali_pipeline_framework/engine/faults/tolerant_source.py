# SPDX-License-Identifier: Apache-2.0
"""What DALI calls in its worker processes where samples may fail."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from nvidia.dali import types

from ...sources.planned_input import PlannedInput
from ..samples.loading_batch import LoadingBatch
from ..samples.sample_checker import OddSampleError
from ..samples.sample_steps import SampleSteps, after_steps, named_step, of_step
from ..worker_report import ReportedFailure, WorkerReport
from ..worker_source import BatchSource
from .tolerant_loading import (
    BatchLoading,
    KnownSampleError,
    NotTriedError,
    SampleChain,
    SampleFailureError,
    TolerantLoading,
)

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
