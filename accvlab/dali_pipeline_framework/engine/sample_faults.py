# SPDX-License-Identifier: Apache-2.0
"""Handling of samples that fail in a pipeline, in the main process."""

from __future__ import annotations

import functools
import logging
import weakref
from typing import cast

from nvidia.dali import types

from ..errors import FrameworkError, GraphError, SourceError, is_of_missing_package
from ..faults.fault_policy import FailedSample, FailedSamples, SamplePolicy, Stage
from ..sources.input_adapter import InputAdapter
from .failure_diagnosis import BatchMember, Culprit, FailureDiagnosis
from .samples import Array, SampleFailureError
from .structured_pipeline import StructuredPipeline
from .tolerant_loading import BatchLoading, FaultJournal, FaultRecord, TolerantLoading, description_of
from .worker_source import CallableSource

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
        self._pipeline: StructuredPipeline = weakref.proxy(pipeline)  # it holds this object
        self._failed = failed
        self._culprits: list[Culprit] = []
        self._records: list[FaultRecord] = []
        self._journal: FaultJournal | None = None
        self._source: CallableSource | None = None
        policy = failed.policy
        if policy.checks_images:
            pipeline.worker_source.checks_images = True
        if policy.samples != "raise":
            self._journal = FaultJournal()
            self._source = pipeline.worker_source
            self._source.tolerance = TolerantLoading(policy.samples, dict(failed.not_tried), self._journal)

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
        of_later: list[FaultRecord] = []
        for record in self._records:
            place = (record["epoch_idx"], record["iteration"])
            if place > position:
                of_later.append(record)
            if place != position:  # else of a batch that was thrown away
                continue
            for each in record["failed"]:
                self._note(FailedSample(**each))
        self._records = of_later

    def _note(self, failed: FailedSample, is_tried_again: bool = True) -> None:
        number = len(self._failed.samples)
        if not is_tried_again:
            self._failed.not_tried[failed.sample_index] = failed.reason
        self._failed.note(failed)
        if len(self._failed.samples) > number:
            file = f" ({failed.file})" if failed.file else ""
            is_error = failed.outcome == _OUTCOMES["raise"]  # then the error says it all
            level = logging.INFO if is_error or number >= _MOST_LOGGED else logging.WARNING
            _logger.log(
                level, "Sample %d%s failed: %s [%s]", failed.sample_index, file, failed.reason, failed.outcome
            )

    # --- batches that fail ----------------------------------------------------------------------------

    def find(self, error: Exception, epoch: int, batch: int, batch_in_all: int) -> tuple[str, list[Culprit]]:
        """Find the culprits of a batch that failed in the graph; see `FailureDiagnosis.find`."""
        members = None if self._source is None else self._members(self._source, epoch, batch)
        diagnosis = cast(FailureDiagnosis, self._pipeline.diagnosis)
        text, self._culprits = diagnosis.find(error, epoch, batch, batch_in_all, members, most=None)
        return text, self._culprits

    def _members(self, source: CallableSource, epoch: int, batch: int) -> list[BatchMember]:
        """The samples of a batch, as the workers have sent them."""
        size = self._pipeline.max_batch_size
        infos = [types.SampleInfo(batch * size + slot, slot, batch, epoch) for slot in range(size)]
        loading = BatchLoading(cast(TolerantLoading, source.tolerance), source.chain())
        try:
            with source.seeding():
                loading.run(infos)
                source.fit_together(loading)
        except (StopIteration, SampleFailureError):
            return []
        members = []
        for number, each in enumerate(loading.loaded):
            index = source.index_of(loading, number)
            load = functools.partial(list[Array], [*each.sent, *each.numbers])
            members.append(BatchMember(f"sample {index}", index, load, int(each.info.idx_in_batch)))
        return members

    def resolve(self, error: FrameworkError) -> bool:
        """Decide whether a batch that failed can be made again, without what is to blame for it.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        if not isinstance(error, GraphError) or not self._culprits:
            index = error.sample_index if isinstance(error, SourceError) else None
            if index is not None and not is_of_missing_package(error):
                text, place = str(error), (*self._pipeline.failed_batch, 0)
                self._note_failed(index, text.partition("\n")[0], "loading", place, text, "raise")
            return False
        for culprit in self._culprits:
            member = culprit.member
            if member.sample_index is None:
                return False
            place = (*self._pipeline.failed_batch, member.slot)
            self._note_failed(member.sample_index, culprit.reason, "graph", place, culprit.line.strip())
        self._failed.require_budget()
        return self._failed.policy.samples != "raise"

    def note_fatal(self, index: int, place: tuple[int, int, int], reason: str) -> bool:
        """Note a sample that has ended the workers that loaded it; return whether it will not be tried again.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        self._note_failed(index, reason, "loading", place, reason)
        self._failed.require_budget()
        return self._failed.policy.samples != "raise"

    def _note_failed(
        self,
        index: int,
        reason: str,
        stage: Stage,
        place: tuple[int, int, int],
        message: str,
        policy: SamplePolicy | None = None,
    ) -> None:
        """Note a sample that made its batch fail: where samples may fail, it is not tried again."""
        policy = policy or self._failed.policy.samples
        file = description_of(InputAdapter(self._pipeline.data_input), index)
        failed = FailedSample(index, reason, stage, _OUTCOMES[policy], file, *place, message=message)
        self._note(failed, is_tried_again=policy == "raise")


_OUTCOMES = {"raise": "raised", "skip": "skipped", "replace": "another sample in its place"}
