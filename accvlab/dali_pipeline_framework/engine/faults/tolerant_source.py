# SPDX-License-Identifier: Apache-2.0
"""What DALI calls in its worker processes where samples may fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, ClassVar, cast

from nvidia.dali import types

from ...sources.planned_input import PlannedInput
from ..samples.sample_checker import OddSampleError
from ..samples.sample_steps import SampleSteps, after_steps, named_step, of_step
from ..told_samples import tell_samples
from ..worker_report import ReportedFailure, WorkerReport
from ..worker_source import CallableSource
from .tolerant_loading import BatchLoading, NotTriedError, SampleChain, SampleFailureError, TolerantLoading

_LONGEST_REASON = 500


class TolerantSource(CallableSource):
    """A `CallableSource` that puts other samples in the place of those that fail.

    Attributes:
        tolerance: What it knows of samples that fail.
    """

    _ranges: ClassVar[Mapping[str, str]] = {**CallableSource._ranges, "_apply_steps": "steps on arrays"}

    tolerance: TolerantLoading
    _steps_ns = 0  # of the batch that is loaded

    def _load(self, batch_info: types.BatchInfo, infos: Sequence[types.SampleInfo], where: str) -> list[Any]:
        row = self._control.begin_batch(infos[0].epoch_idx, infos[0].iteration)
        began, self._steps_ns = perf_counter_ns(), 0
        loading = BatchLoading(self.tolerance, self.chain(), lambda slot: self._control.note_loading(row, slot))
        try:
            loading.run(infos)
            stepped, steps_ns = perf_counter_ns(), self._steps_ns
            outputs = self.fit_together(loading)
        except SampleFailureError as failure:
            raise self._reported(failure, where) from of_step(failure.cause)
        times_ns = began, stepped - steps_ns, stepped, perf_counter_ns()
        self._control.add_work(self._worker_number or 0, times_ns, len(loading.loaded), outputs)
        self._control.note_loaded(row)
        if self._control.tells_samples:
            infos_of_loaded = [each.info for each in loading.loaded]
            tell_samples(self._control, self._get_source(), infos_of_loaded, loading.stand_ins)
        loading.write_records(batch_info.epoch_idx, batch_info.iteration)
        return outputs

    def fit_together(self, loading: BatchLoading) -> list[Any]:
        """Make the outputs of a batch; what does not go with the other samples is replaced."""
        while True:
            loaded = loading.loaded
            try:
                return self.outputs_of_batch(
                    [each.sent for each in loaded],
                    loading.draws,
                    lambda number: self._index_of(loading, number),
                )
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
        began = perf_counter_ns()
        try:
            return after_steps(cast(SampleSteps, self._steps), flat, numbers, self._replayed)
        finally:
            self._steps_ns += perf_counter_ns() - began

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
