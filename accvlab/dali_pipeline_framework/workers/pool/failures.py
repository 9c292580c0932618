# SPDX-License-Identifier: Apache-2.0
"""What is done about a batch in which something has failed: an error when it is due, or other samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from ...draws.keyed_draws import SamplePlace
from ...errors import FrameworkError, WorkerDiedError
from ...faults.fault_policy import OUTCOMES, FailedSample, FailedSamples, Stage
from ..loading import description_of
from ..messages import Answer, Failed, Position, Task
from ..plans import BatchPlan
from ..reports import WorkerReport

_STANDS_IN = "was to take the place of sample"
_MOST_MESSAGES = 50  # later failures have no tracebacks, since all are kept
_PLANNING = "Planning a batch"


@attrs.define(eq=False)
class Entry:
    """A batch of the window of a pool.

    Attributes:
        task: What is to be loaded.
        answer: What has come.
        error: What to raise when it is due, in place of an answer.
        failures: Samples that have failed, with the sample that took their place.
        deaths: How often workers were lost at the sample that is loaded now, by number in the batch.
        candidates: What can take the place of a sample, by number in the batch.
    """

    task: Task
    answer: Answer | None = None
    error: FrameworkError | None = None
    failures: list[FailedSample] = attrs.Factory(list)
    deaths: Counter[int] = attrs.Factory(Counter)
    candidates: dict[int, Iterator[int]] = attrs.Factory(dict)


@attrs.define(eq=False)
class Refused:
    """A batch that cannot be handed over.

    Attributes:
        error: What is to be raised.
        is_tried_again: Whether the next request is for this batch again, after `Pool.forgive`.
    """

    error: FrameworkError
    is_tried_again: bool


class FailureHandler:
    """Decides by policy what to do about a batch in which something has failed; the only place where that is done.

    Either the entry gets an answer or an error, which is raised when it is due; or its task is changed, and it has
    no answer: the worker tries again.

    Attributes:
        not_tried: Samples that are known to fail, and why.
    """

    def __init__(self, plan: BatchPlan, failed: FailedSamples) -> None:
        """Set which batches there are, and how samples that fail are handled."""
        self._plan, self._failed, self.not_tried = plan, failed, failed.not_tried
        self._num_messages = 0

    def on_failure(self, entry: Entry, failed: Failed) -> None:
        """Decide what to do about an answer that says that something has failed."""
        number, places = failed.sample, entry.task.places
        is_final = failed.report.is_of_missing_package or failed.report.is_about_device
        if number is None or is_final:
            entry.answer = failed
            return
        message = failed.report.message if self._num_messages < _MOST_MESSAGES else failed.reason
        self._num_messages += 1
        self._note(entry, number, failed.stage, failed.reason, failed.file, message)
        if places is None or self._failed.policy.samples == "raise":
            entry.answer = failed
        elif not self._replace(entry, number):
            entry.answer = failed
            failed.report = failed.report.with_note(_nothing_left(places[number]))

    def on_death(self, entry: Entry, number: int, error: WorkerDiedError) -> bool:
        """Count a worker that was lost at a sample; after the second one, decide what to do, and return True."""
        if not self._plan.is_callable:
            return False
        entry.deaths[number] += 1
        if entry.deaths[number] < 2:
            return False
        (epoch, batch), index = entry.task.position, entry.task.sample_index(number)
        report = WorkerReport.of_problem(f"It has ended two workers. {error}", index)
        file = description_of(self._plan.source, index)
        self.on_failure(entry, Failed(entry.task.number, report, number, "loading", report.message, file))
        if entry.answer is None:
            if index is not None:
                self._failed.not_tried[index] = report.message
            return True
        name = "A sample" if index is None else f"Sample {index}"
        problem = f"{name} (epoch {epoch}, batch {batch}, slot {number}) has ended two workers"
        advice = "The loader can go on after its batch; with `faults`, another one can take its place"
        twice = WorkerDiedError(f"{problem} that loaded it. {advice}. The second time: {error}")
        twice.loading, twice.is_repeated = error.loading, True
        entry.answer, entry.error = None, twice
        return True

    def unplanned(self, position: Position, error: Exception) -> Entry:
        """Make the entry of a batch that could not be planned: a sampler of the user has raised."""
        entry = Entry(Task(position))
        where = f"epoch {position[0]}, batch {position[1]}"
        report = WorkerReport.of_exception(error, where, None, _PLANNING)
        entry.answer = Failed(entry.task.number, report, cause=error)
        return entry

    def replace_known(self, entry: Entry) -> None:
        """Replace the samples of a new batch that are known to fail.

        One may have failed in a batch that was never delivered; it is listed with this one.
        """
        for number, place in enumerate(entry.task.places or ()):
            index = place.sample_index
            if index in self.not_tried:
                if not self._failed.is_listed(index):
                    reason, file = self.not_tried[index], description_of(self._plan.source, index)
                    self._note(entry, number, "loading", reason, file, reason)
                self._replace_or_fail(entry, number, "it is known to fail")

    def note_culprits(self, entry: Entry, culprits: Sequence[tuple[int, str, str]]) -> bool:
        """Note samples that have failed in the graph (see `Pool.refuse`); return whether others replace them."""
        policy = self._failed.policy.samples
        for number, reason, message in culprits:
            index = entry.task.sample_index(number)
            file = description_of(self._plan.source, index)
            self._note(entry, number, "graph", reason, file, message, OUTCOMES[policy])
            if policy != "raise" and index is not None:
                self._failed.not_tried[index] = reason
        if policy == "raise":
            for each in entry.failures:
                self._failed.found(each)
        return policy != "raise"

    def replace_culprits(self, entry: Entry, culprits: Sequence[tuple[int, str, str]]) -> None:
        """Replace samples that have failed in the graph.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        for number, _, _ in culprits:
            self._replace_or_fail(entry, number, "it fails in the graph")
        self._failed.require_budget()

    def refused(self, entry: Entry) -> Refused:
        """Make the error of a batch that is due."""
        if entry.error is not None and not getattr(entry.error, "is_repeated", False):
            return Refused(entry.error, is_tried_again=True)
        for each in entry.failures:
            self._failed.found(attrs.evolve(each, outcome=each.outcome or OUTCOMES["raise"]))
        if entry.error is not None:
            return Refused(entry.error, is_tried_again=False)
        failed: Any = entry.answer
        error = failed.report.to_error()
        if failed.cause is not None:  # it happened in this process, so the original is here
            error.__cause__ = failed.cause
        if failed.report.is_about_device:  # whatever the batch
            entry.answer, entry.error = None, error
        return Refused(error, is_tried_again=failed.report.is_about_device)

    def _replace(self, entry: Entry, number: int) -> bool:
        """Put another sample in the place of one, or leave it out; return whether there is one."""
        task, policy = entry.task, self._failed.policy.samples
        places: Sequence[SamplePlace] = task.places or ()
        found = None
        instead = {**task.instead, number: found}
        if policy != "skip" or all(instead.get(each, -1) is None for each in range(len(places))):
            if number not in entry.candidates:
                entry.candidates[number] = self._plan.substitutes(places[number])
            found = next((each for each in entry.candidates[number] if each not in self._failed.not_tried), None)
            if found is None:
                self._set_outcome(entry, number, None, "")
                return False
        task.instead = {**instead, number: found}
        entry.deaths.pop(number, None)
        self._set_outcome(entry, number, found, "skipped" if found is None else f"sample {found} in its place")
        return True

    @staticmethod
    def _set_outcome(entry: Entry, number: int, substitute: int | None, outcome: str) -> None:
        """Note what has become of a planned sample; before, another one may have been about to take its place."""
        planned = [each.slot == number and not each.outcome.startswith(_STANDS_IN) for each in entry.failures]
        entry.failures = [
            attrs.evolve(each, substitute=substitute, outcome=outcome) if is_planned else each
            for each, is_planned in zip(entry.failures, planned, strict=True)
        ]

    def _replace_or_fail(self, entry: Entry, number: int, why: str) -> None:
        if self._replace(entry, number):
            return
        places: Sequence[SamplePlace] = entry.task.places or ()
        index = places[number].sample_index
        reason = self._failed.not_tried.get(index, "")
        problem = f"{_nothing_left(places[number])}\nSample {index} cannot be loaded: {why}: {reason}"
        entry.answer = Failed(entry.task.number, WorkerReport.of_problem(problem, index), number)

    def _note(
        self, entry: Entry, number: int, stage: Stage, reason: str, file: str, message: str, outcome: str = ""
    ) -> None:
        """Note that a sample has failed; it counts once its batch is due."""
        index = self._plan.sample_index(entry.task, number)
        if index is None:
            return
        epoch, batch = entry.task.position
        planned = index if entry.task.places is None else entry.task.places[number].sample_index
        if index != planned:
            outcome = f"{_STANDS_IN} {planned}"
        entry.failures.append(
            FailedSample(index, reason, stage, outcome, file, epoch, batch, number, message=message)
        )


def _nothing_left(place: SamplePlace) -> str:
    return (
        f"No other sample could take the place of sample {place.sample_index}. Is there a fault that all samples "
        f"have, e.g. a disk that is gone?"
    )
