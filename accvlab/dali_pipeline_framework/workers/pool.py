# SPDX-License-Identifier: Apache-2.0
"""A pool of workers that load batches ahead, in order, whatever happens to workers and samples.

::

    get(position)      gives tasks to workers up to the window, waits for the answer of this batch
    answers            Loaded: kept until it is released;  Failed: `_on_failure`
    a worker is gone   another one is started in its place, and its tasks are given again; a sample at which that
                       has happened twice: `_on_failure`
    _on_failure        raise when the batch is due, put another sample in its place, leave it out, or ask again

All is done by the calls of one thread. What signal handlers raise in them leaves every batch where it is: each
message is taken out of the inbox after it was dealt with, which can be done twice.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

import attrs

from ..draws.keyed_draws import SamplePlace
from ..errors import ClosedError, FrameworkError, WorkerDiedError, WorkerStartError
from ..faults.fault_policy import OUTCOMES, FailedSample, FailedSamples, Stage
from .loading import BatchLoader, description_of
from .local import Gone, described_stage
from .messages import Answer, Ended, Failed, Loaded, Position, Task
from .plans import BatchPlan
from .process import STARTING, Ready, StartFailed
from .process_setup import pass_on_interrupt
from .reports import WorkerReport
from .stacks import stack_of_main_thread

_logger = logging.getLogger(__name__)

LONGEST_START_S = 300.0  # many interpreters at once, that import large modules from a network file system
REPORTED_AFTER_S = 5.0
_REPORTED_EACH_S = 30.0
_LONGEST_TICK_S = 0.2
_TICKS = 10  # within the shortest time that is watched for
_MOST_MESSAGES = 50  # later failures have no tracebacks, since all are kept


class Workers(Protocol):
    """What runs the loaders: processes of this machine, actors of a cluster, or this process.

    Attributes:
        most_tasks: How many tasks a worker has at a time.
        starts_late: Whether a worker may wait for room before it starts: it then gets nothing before it is ready.
        most_bytes: Memory for all batches, also for those that were handed over.
        last_sent: Number of the task that was sent last as a whole.
        numbers: The workers that run, by number.
        inbox: What has come, by number of the worker: answers, `Ready`, `StartFailed`, `Gone`, or an error: none
            of them can load.
    """

    most_tasks: int
    starts_late: bool
    most_bytes: float
    last_sent: int
    inbox: deque[tuple[int, Any]]

    @property
    def numbers(self) -> Sequence[int]: ...  # noqa: D102

    def prepare(self) -> None:
        """Do what can be done before the first worker is needed."""

    def start(self, number: int) -> None:
        """Start a worker; it is ready once it says so."""

    def send(self, number: int, task: Task) -> None:
        """Send a task to a worker."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something has come, and put it into the inbox."""

    def recycle(self, loaded: Loaded) -> None:
        """Have the memory of a batch used again."""

    def forget_before(self, number: int) -> None:
        """Have workers leave out tasks with smaller numbers."""

    def repair(self) -> None:
        """After an exception in the middle of another method: end workers to which half a message has gone."""

    def kill(self, number: int, why: str) -> None:
        """End a worker."""

    def close(self) -> None:
        """End all."""

    def at_work(self, number: int) -> tuple[int, float]:
        """What a worker is at, and since when."""

    def is_stopped(self, number: int) -> bool:
        """Whether a worker was stopped by a signal."""

    def pid(self, number: int) -> int:
        """The process of a worker."""

    def described(self, number: int) -> str:
        """State of a worker and its stack, for people."""


class _NoWorkers:
    """Stands for workers where this process loads."""

    most_tasks = 0
    starts_late, most_bytes, last_sent = False, math.inf, -1
    numbers: Sequence[int] = ()

    def __init__(self) -> None:
        self.inbox: deque[tuple[int, Any]] = deque()

    def _nothing(self, *arguments: Any) -> Any:
        """There is none of which anything could be asked."""

    prepare = start = send = wait = recycle = forget_before = repair = kill = close = _nothing
    at_work = is_stopped = pid = described = _nothing


@attrs.frozen
class PoolSettings:
    """Settings of a pool.

    Attributes:
        num_workers: How many workers.
        window: Batches that are loaded ahead at most.
        window_bytes: Bytes that they may take; one batch per worker is loaded ahead in any case.
        restarts: How often workers may be lost; None: any number of times.
        blocked_after: As in a `FaultPolicy`.
        stacks_after: As in a `FaultPolicy`.
    """

    num_workers: int
    window: int
    window_bytes: float
    restarts: int | None = 0
    blocked_after: float | None = None
    stacks_after: float | None = None


@attrs.define(eq=False)
class _Member:
    """A worker, as the pool sees it.

    Attributes:
        number: Its number.
        tasks: What it has to do.
        is_ready: Whether it is set up.
        heard_at: When it was given something to do while it had nothing, or something came from it.
        generation: How many restarts had been counted when it was started.
    """

    number: int
    tasks: deque[Task] = attrs.Factory(deque)
    is_ready: bool = False
    heard_at: float = attrs.Factory(time.monotonic)
    generation: int = 0


@attrs.define(eq=False)
class _Entry:
    """A batch of the window.

    Attributes:
        task: What is asked for.
        answer: What has come.
        error: What to raise when it is due, in place of an answer.
        is_given: Whether a worker has it.
        failures: Samples that have failed, with the sample that took their place.
        deaths: How often workers were lost at each sample, by number in the batch.
        candidates: What can take the place of a sample, by number in the batch.
    """

    task: Task
    answer: Answer | None = None
    error: FrameworkError | None = None
    is_given: bool = False
    failures: list[FailedSample] = attrs.Factory(list)
    deaths: Counter[int] = attrs.Factory(Counter)
    candidates: dict[int, Iterator[int]] = attrs.Factory(dict)


@attrs.define(eq=False)
class Batch:
    """A batch that a pool hands over; its memory is its own until it is released.

    Attributes:
        position: Which one.
        loaded: Its arrays.
        task: Places of its samples, and which of them others have taken.
        failures: Samples of it that have failed.
    """

    position: Position
    loaded: Loaded
    task: Task
    failures: Sequence[FailedSample] = ()

    def index_of(self, place: int) -> int | None:
        """Index in the data set of the sample at a place among those that were loaded."""
        if self.loaded.indices is not None:
            return self.loaded.indices[place]
        return self.task.sample_index(self.loaded.numbers[place])


@attrs.define(eq=False)
class Refused:
    """A batch that cannot be handed over.

    Attributes:
        error: What is to be raised.
        is_tried_again: Whether the next request is for this batch again, after `Pool.forgive`.
    """

    error: FrameworkError
    is_tried_again: bool


class Pool:
    """Loads batches ahead.

    Attributes:
        settings: The settings.
        num_restarts: How many workers were lost.
        waited_ns: Time in which nothing was there that was due.
    """

    def __init__(
        self, plan: BatchPlan, workers: Workers | BatchLoader, settings: PoolSettings, failed: FailedSamples
    ) -> None:
        """Set up; nothing is started.

        Args:
            plan: Which batches there are.
            workers: What loads them: workers, or this process itself where there are to be none.
            settings: Settings.
            failed: How samples that fail are handled, and which are known to fail.
        """
        self._plan, self.settings, self._failed = plan, settings, failed
        self._here = workers if isinstance(workers, BatchLoader) else None
        self._workers: Workers = _NoWorkers() if isinstance(workers, BatchLoader) else workers
        self._members: dict[int, _Member] = {}
        self._entries: dict[Position, _Entry] = {}  # in order
        self._by_number: dict[int, _Entry] = {}  # by number of the task
        self._waiting: deque[_Entry] = deque()  # not given to a worker
        self._num_handed = 0
        self._start_error: FrameworkError | None = None
        self._is_within = self._is_ending = False
        self._has_come_since = True  # a batch, since the last restart
        self._close = weakref.finalize(self, self._workers.close)  # also where nobody closes it
        self._may_start = True
        self._batch_bytes = 0
        self._sending: Task | None = None  # within that, which an exception may end
        self._num_messages = 0
        limits = (settings.blocked_after, settings.stacks_after)
        self._tick = min(_LONGEST_TICK_S, *(limit / _TICKS for limit in limits if limit), _LONGEST_TICK_S)
        self._looked_at = self._awake_since = time.monotonic()
        self._reported = 0.0
        self.num_restarts = self.waited_ns = 0

    # --- batches ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; they load from the position on that is asked for first."""
        if self._here is None:
            self._enter()
            self._workers.prepare()
            self._start_missing()
            self._is_within = False

    def get(self, position: Position) -> Batch | Ended | Refused:
        """Get a batch, which stays as it is until it is released."""
        if self._is_within:
            self._mend()
        self._is_within = True
        if self._here is None:
            self._workers.wait(0)
            while self._workers.inbox:  # what has come meanwhile is there, and who has sent it gets more to do
                self._take_all()
                self._workers.wait(0)
        entry = self._entries.get(position) or self._begun(position)
        if entry is None:
            self._is_within = False
            return Ended(-1)
        began = 0
        if entry.answer is None and entry.error is None:
            began = perf_counter_ns()
            self._await(entry)
        answer = entry.answer
        if type(answer) is Loaded:
            if began:  # to wait for the end of an epoch is no wait for a batch
                self.waited_ns += perf_counter_ns() - began
            if not self._num_handed or position not in itertools.islice(self._entries, self._num_handed):
                self._num_handed += 1
            if self._here is None:
                self._give()
            self._is_within = False
            return Batch(position, answer, entry.task, entry.failures)
        self._is_within = False
        if isinstance(answer, Ended):
            self._plan.note_end(position)
            self._forget(entry)
            return answer
        return self._refused(entry)

    def _refused(self, entry: _Entry) -> Refused:
        """Make the error of a batch that is due."""
        if entry.error is not None:
            return Refused(entry.error, is_tried_again=not getattr(entry.error, "is_repeated", False))
        failed: Any = entry.answer
        for each in entry.failures:
            self._failed.found(attrs.evolve(each, outcome=each.outcome or OUTCOMES["raise"]))
        error = failed.report.to_error()
        if failed.cause is not None:  # it happened in this process, so the original is here
            error.__cause__ = failed.cause
        if failed.report.is_about_device:  # whatever the batch
            entry.answer, entry.error = None, error
        return Refused(error, is_tried_again=failed.report.is_about_device)

    def _enter(self) -> None:
        """Begin a call, noted before anything is done: the next one finds what this one leaves half done."""
        if self._is_within:
            self._mend()
        self._is_within = True

    def _mend(self) -> None:
        """After an exception in the middle of another call: mend what that has left."""
        self._workers.repair()
        self._set_right()
        self._take_all()  # else a message about a worker would be taken for one about the next of its number

    @property
    def num_loaded(self) -> int:
        """How many batches are loaded, and not handed over."""
        count = -self._num_handed
        for entry in self._entries.values():
            count += entry.answer is not None
        return max(0, count)

    def release_through(self, position: Position) -> None:
        """Give the memory back of all batches up to one."""
        if self._is_within:
            self._mend()
        self._is_within = True
        entries = self._entries
        while entries and (first := next(iter(entries))) <= position:
            entry = entries.pop(first)
            self._num_handed -= self._num_handed > 0
            self._by_number.pop(entry.task.number, None)
            if self._here is None and isinstance(entry.answer, Loaded):
                self._workers.recycle(entry.answer)
        self._is_within = False

    def forget(self) -> None:
        """Forget all batches that were not handed over, e.g. since another order was set."""
        self._enter()
        for entry in [*self._entries.values()]:
            self._forget(entry)
        self._plan.forget()
        self._is_within = False

    def forgive(self) -> None:
        """After an error of workers was raised: start others, and have them try again what they were at."""
        if not self._plan.is_callable:  # what a worker had begun is lost with it
            return
        self._start_error, self._may_start = None, True
        for entry in self._entries.values():
            if entry.error is not None and not getattr(entry.error, "is_repeated", False):
                entry.error = None
        self._set_right()

    def _forget(self, entry: _Entry) -> None:
        position = entry.task.position
        self._num_handed -= position in itertools.islice(self._entries, self._num_handed)
        del self._entries[position]
        self._by_number.pop(entry.task.number, None)
        if not entry.is_given and entry.answer is None and entry in self._waiting:
            self._waiting.remove(entry)
        if isinstance(entry.answer, Loaded):
            self._workers.recycle(entry.answer)

    def _begun(self, position: Position) -> _Entry | None:
        """Begin at a position that was not loaded ahead."""
        if self._entries:
            epoch, number = next(reversed(self._entries))
            if position == (epoch, number + 1):  # it follows, and nothing was loaded ahead
                return self._added(position)
        for other in [*self._entries.values()]:
            self._forget(other)
        if not self._plan.is_callable and position[1] == 0:  # another epoch of an iterable
            self._start_error, self._may_start = None, True
        entry = self._added(position)
        if entry is not None:
            self._workers.forget_before(entry.task.number)
        return entry

    def _added(self, position: Position) -> _Entry | None:
        """Add a batch to the window; None where the epoch has no such batch."""
        try:
            task = self._plan.task(position)
            if task is None:
                return None
        except Exception as error:  # of a sampler of the user; it is raised when the batch is due
            pass_on_interrupt(error)
            where = f"epoch {position[0]}, batch {position[1]}"
            entry = self._entries[position] = _Entry(Task(position))
            report = WorkerReport.of_exception(error, where, None, _PLANNING)
            entry.answer = Failed(entry.task.number, report, cause=error)
            return entry
        self._entries[position] = entry = self._by_number[task.number] = _Entry(task)
        if self._failed.not_tried and task.places is not None:
            for number, place in enumerate(task.places):
                if place.sample_index in self._failed.not_tried and not self._replace(entry, number):
                    self._fail_for_good(entry, number, "it is known to fail")
        if entry.answer is None:
            self._waiting.append(entry)
        return entry

    # --- giving and taking ------------------------------------------------------------------------

    def _await(self, entry: _Entry) -> None:
        """Wait until a batch is there, or an error in its place."""
        if self._here is not None:
            self._waiting.clear()  # nobody else takes it
            while entry.answer is None:
                self._answer_is(entry, self._here.load(entry.task))
            return
        began = time.monotonic()
        self._looked_at = began
        self._reported = 0.0
        while entry.answer is None and entry.error is None:
            self._give()
            if self._start_error is not None:
                entry.error = self._start_error
                return
            if self._is_ending:
                entry.error = ClosedError("The loader was closed while it waited for a batch.")
                return
            self._workers.wait(self._tick)
            self._take_all()
            self._look_after(time.monotonic(), began)

    def _room(self) -> int:
        """How many batches may be in the window beside those that were handed over."""
        room = self.settings.window
        if not self._batch_bytes:  # how large batches are is not known yet: one for each worker
            room = min(room, self.settings.num_workers)
        else:
            room = min(room, max(self.settings.num_workers, int(self.settings.window_bytes // self._batch_bytes)))
            room = int(min(room, self._workers.most_bytes // self._batch_bytes - self._num_handed))
        return max(1, room)

    def _give(self) -> None:
        """Fill the window, and give each worker something to do."""
        entries = self._entries
        room = self._room()
        while entries and len(entries) - self._num_handed < room:
            following = self._plan.following(next(reversed(entries)))
            if following is None or self._added(following) is None:
                break
        if not self._waiting:
            return
        if len(self._members) < max(1, self.settings.num_workers) and self._may_start:
            self._start_missing()
        most, members = self._workers.most_tasks, [*self._members.values()]
        if self._workers.starts_late:
            members = [member for member in members if member.is_ready]
        while self._waiting:
            member = min(members, key=_load, default=None)
            if member is None or len(member.tasks) >= most:
                return
            entry = self._waiting[0]
            entry.is_given = True
            if entry.task not in member.tasks:
                if not member.tasks:
                    member.heard_at = time.monotonic()
                self._sending = entry.task
                member.tasks.append(entry.task)
                self._workers.send(member.number, entry.task)
                self._sending = None
            self._waiting.popleft()

    def _start_missing(self) -> None:
        """Start workers in place of those that are gone."""
        if self._start_error is not None:
            return
        for number in range(max(1, self.settings.num_workers)):
            if number in self._members:
                continue
            self._members[number] = _Member(number, generation=self.num_restarts)
            try:
                self._workers.start(number)
            except FrameworkError as error:
                del self._members[number]
                self._start_error = error
                return

    def _take_all(self) -> None:
        """Deal with what has come. A message is taken out once that is done; twice would do no harm."""
        inbox = self._workers.inbox
        while inbox:
            self._take(*inbox[0])
            inbox.popleft()

    def _take(self, number: int, message: Any) -> None:
        member = self._members.get(number)
        if member is None:
            return
        member.heard_at = time.monotonic()
        if isinstance(message, Gone):
            self._lose(member, message)
        elif isinstance(message, Ready):
            member.is_ready = True
        elif isinstance(message, StartFailed):
            self._start_error = message.report.to_error()
        elif isinstance(message, FrameworkError):
            self._start_error = message
        else:
            self._answered(member, message)

    def _answered(self, member: _Member, answer: Answer) -> None:
        for task in member.tasks:
            if task.number == answer.number:
                member.tasks.remove(task)
                break
        entry = self._by_number.get(answer.number)
        if entry is None or entry.answer not in (None, answer):  # nobody waits for it, or another one has come
            if isinstance(answer, Loaded):
                self._workers.recycle(answer)
        elif entry.answer is None:
            self._answer_is(entry, answer)
            if entry.answer is None:  # by the same worker, which has kept the other samples
                self._sending = entry.task
                member.tasks.append(entry.task)
                self._workers.send(member.number, entry.task)
                self._sending = None

    def _answer_is(self, entry: _Entry, answer: Answer) -> None:
        """Take the answer for a batch, or change what is asked for."""
        if type(answer) is Loaded:
            entry.answer, self._has_come_since = answer, True
            if answer.work.num_bytes > self._batch_bytes:
                self._batch_bytes = answer.work.num_bytes
        elif isinstance(answer, Failed):
            self._on_failure(entry, answer)
        else:
            entry.answer = answer

    def _set_right(self) -> None:
        """Make the lists agree again after an exception in the middle of a call."""
        known = {*self._workers.numbers, *(number for number, _ in self._workers.inbox)}
        for number in self._members.keys() - known:  # its start was undone
            del self._members[number]
        sending, self._sending = self._sending, None
        if sending is not None and self._workers.last_sent != sending.number:
            for member in self._members.values():
                if sending in member.tasks:
                    member.tasks.remove(sending)
        given = {task.number for member in self._members.values() for task in member.tasks}
        self._waiting.clear()
        for entry in self._entries.values():
            if entry.answer is None and entry.error is None and entry.task.number not in given:
                entry.is_given = False
                self._waiting.append(entry)

    # --- failures ---------------------------------------------------------------------------------

    def _on_failure(self, entry: _Entry, failed: Failed) -> None:
        """Decide what to do about a batch in which something has failed; the only place where that is done.

        Either the entry gets an answer, which is raised when it is due, or its task is changed, and asked again.
        """
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

    def refuse(self, position: Position, culprits: Sequence[tuple[int, str, str]]) -> bool:
        """Have a batch made again, without samples to which a failure in the graph is due.

        Args:
            position: The batch.
            culprits: Of each: number in the batch, reason, message.

        Returns:
            Whether that can be done: the policy says so, and the places of the samples are known.
        """
        entry = self._entries.get(position)
        if entry is None or entry.task.places is None:
            return False
        self._enter()  # the next call makes the lists agree
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
            return False
        self._ask_again(entry)
        for number, _, _ in culprits:
            if not self._replace(entry, number):
                self._fail_for_good(entry, number, "it fails in the graph")
        self._failed.require_budget()
        return True

    def _ask_again(self, entry: _Entry) -> None:
        """Have a batch that was handed over loaded anew, with other samples."""
        position = entry.task.position
        self._num_handed -= position in itertools.islice(self._entries, self._num_handed)
        # What was handed over after it is kept, and handed over again.
        self._num_handed = min(self._num_handed, [*self._entries].index(position))
        if isinstance(entry.answer, Loaded):
            self._workers.recycle(entry.answer)
        self._by_number.pop(entry.task.number, None)
        entry.task = Task(position, entry.task.places, dict(entry.task.instead))
        self._by_number[entry.task.number] = entry
        entry.answer, entry.is_given = None, False
        self._waiting.appendleft(entry)

    def _replace(self, entry: _Entry, number: int) -> bool:
        """Put another sample in the place of one, or leave it out; return whether there is one."""
        task, policy = entry.task, self._failed.policy.samples
        places: Sequence[SamplePlace] = task.places or ()
        instead = dict(task.instead)
        instead[number] = None
        if policy != "skip" or all(instead.get(each, -1) is None for each in range(len(places))):
            if number not in entry.candidates:
                entry.candidates[number] = self._plan.substitutes(places[number])
            found = next((each for each in entry.candidates[number] if each not in self._failed.not_tried), None)
            if found is None:
                return False
            instead[number] = found
        task.instead = instead
        found = instead[number]
        outcome = "skipped" if found is None else f"sample {found} in its place"
        entry.failures = [
            each if each.outcome or each.slot != number else attrs.evolve(each, substitute=found, outcome=outcome)
            for each in entry.failures
        ]
        return True

    def _fail_for_good(self, entry: _Entry, number: int, why: str) -> None:
        places: Sequence[SamplePlace] = entry.task.places or ()
        place = places[number]
        reason = self._failed.not_tried.get(place.sample_index, "")
        report = WorkerReport.of_problem(
            f"{_nothing_left(place)}\nSample {place.sample_index} cannot be loaded: {why}: {reason}",
            place.sample_index,
        )
        entry.answer = Failed(entry.task.number, report, number)
        if entry in self._waiting:
            self._waiting.remove(entry)

    def _note(
        self, entry: _Entry, number: int, stage: Stage, reason: str, file: str, message: str, outcome: str = ""
    ) -> None:
        """Note that a sample has failed; it counts once its batch is due."""
        index = entry.task.sample_index(number)
        if index is None:
            index = self._plan.sample_index(entry.task.position, number)
        if index is None:
            return
        epoch, batch = entry.task.position
        planned = index if entry.task.places is None else entry.task.places[number].sample_index
        if index != planned:
            outcome = f"was to take the place of sample {planned}"
        entry.failures.append(
            FailedSample(index, reason, stage, outcome, file, epoch, batch, number, message=message)
        )

    # --- workers that are lost --------------------------------------------------------------------

    def _lose(self, member: _Member, gone: Gone) -> None:
        """A worker is gone: another one takes its place, and what it had to do is given again."""
        del self._members[member.number]
        entries = [self._by_number.get(task.number) for task in member.tasks]
        open_entries = [entry for entry in entries if entry is not None and entry.answer is None]
        for entry in reversed(open_entries):
            entry.is_given = False
            if entry not in self._waiting:
                self._waiting.appendleft(entry)
        has_read_nothing = self._plan.is_callable or not member.tasks or gone.stage < 0
        if (gone.is_own_doing and has_read_nothing) or self._start_error is not None:
            return
        stage, number = gone.stage, gone.stage - 1
        at = open_entries[0] if open_entries and stage > 0 and entries[0] is open_entries[0] else None
        error = self._died_error(gone, at, stage)
        if at is not None and self._plan.is_callable:
            at.deaths[number] += 1
            if at.deaths[number] > 1:
                self._fail_for_death(at, number, error)
                return
        is_of_no_help = not self._plan.is_callable
        # Workers that are lost together count once; one that was started in the place of such a one counts anew.
        is_counted = self._has_come_since or member.generation == self.num_restarts
        most = self.settings.restarts
        has_not_begun = not member.is_ready and stage in (STARTING, 0)
        ends_always = has_not_begun and not gone.was_killed
        if is_of_no_help or ends_always or (most is not None and is_counted and self.num_restarts >= most):
            if is_of_no_help and self.settings.restarts:
                why = f"{type(self._plan.source).__name__} is an iterable: it has no random access"
                error = WorkerDiedError(f"{error} Restarts are of no help: {why}.")
            if gone.is_own_doing:
                error = WorkerDiedError(
                    f"A signal handler has raised an exception in the middle of a message from the worker of "
                    f"{type(self._plan.source).__name__}, so what that has read is lost. Begin another epoch."
                )
            self._may_start = False
            due = at or (open_entries[0] if open_entries else next(iter(self._waiting), None))
            if has_not_begun:
                explained = WorkerStartError(
                    f"The worker processes could not be started. A worker ended while it was set up: {gone.how}"
                    f"{_at_stage(stage, self._plan)}.{'' if gone.was_killed else _START_ADVICE}"
                )
                explained.was_killed = gone.was_killed
                error = explained  # type: ignore[assignment]
            if due is None or not member.is_ready or not self._plan.is_callable:
                self._start_error = error
            else:
                due.error = error
                if due in self._waiting:
                    self._waiting.remove(due)
            return
        if not is_counted:
            return
        self.num_restarts += 1
        self._has_come_since = False
        of = "" if self.settings.restarts is None else f" of at most {self.settings.restarts}"
        _logger.warning("%s\nRestart %d%s.", error, self.num_restarts, of)

    def _died_error(self, gone: Gone, entry: _Entry | None, stage: int) -> WorkerDiedError:
        work, place, index = _at_stage(stage, self._plan), None, None
        if entry is not None:
            place = (*entry.task.position, stage - 1)
            index = entry.task.sample_index(stage - 1)
            if index is None:
                index = self._plan.sample_index(entry.task.position, stage - 1)
            work = f", while it loaded {described_place(index, place)}" if self._plan.is_callable else ""
        error = WorkerDiedError(f"A worker process that loads data ended unexpectedly: {gone.how}{work}.")
        if place is not None:
            error.loading = {place: index}
        return error

    def _fail_for_death(self, entry: _Entry, number: int, second: WorkerDiedError) -> None:
        """A sample has ended two workers: it is one that cannot be loaded."""
        position, index = entry.task.position, entry.task.sample_index(number)
        self._waiting.remove(entry)
        report = WorkerReport.of_problem(f"It has ended two workers. {second}", index)
        file = description_of(self._plan.source, index)
        failed = Failed(entry.task.number, report, number, "loading", report.message, file)
        self._on_failure(entry, failed)
        if entry.answer is None:
            if index is not None:
                self._failed.not_tried[index] = report.message
            self._waiting.appendleft(entry)
            return
        name = "A sample" if index is None else f"Sample {index}"
        problem = f"{name} (epoch {position[0]}, batch {position[1]}, slot {number}) has ended two workers"
        advice = "The loader can go on after its batch; with `faults`, another one can take its place"
        twice = WorkerDiedError(f"{problem} that loaded it. {advice}. The second time: {second}")
        twice.loading, twice.is_repeated = second.loading, True
        entry.answer, entry.error = None, twice

    # --- workers that stand still -----------------------------------------------------------------

    def _look_after(self, now: float, began: float) -> None:
        """End workers that are blocked, and say why nothing comes."""
        if now - self._looked_at > 2 * _LONGEST_TICK_S + 1.0:  # this process was stopped itself, and all with it
            self._awake_since = now
        self._looked_at = now
        limit = self.settings.blocked_after
        if limit is not None:
            for member in [*self._members.values()]:
                self._end_if_blocked(member, now, limit)
        waited = now - max(began, self._awake_since)
        if not any(member.is_ready for member in self._members.values()) and self._start_error is None:
            due = REPORTED_AFTER_S if not self._reported else self._reported + _REPORTED_EACH_S
            if waited >= due:
                self._reported = waited
                stages = sorted({_at_stage(self._workers.at_work(n)[0], self._plan)[2:] for n in self._members})
                what = "; ".join(filter(None, stages)) or "no worker is ready"
                _logger.warning("Starting %d workers: after %.0f s: %s.", len(self._members), waited, what)
        after = self.settings.stacks_after
        if after is not None and waited >= (2 * self._stacks_at if self._stacks_of == began else after):
            self._stacks_of, self._stacks_at = began, waited
            _logger.warning("%s", self.describe(waited))

    _stacks_of, _stacks_at = 0.0, 0.0

    def _end_if_blocked(self, member: _Member, now: float, limit: float) -> None:
        stage, since = self._workers.at_work(member.number)
        if stage == 0 and not member.tasks:
            return
        if stage == 0:  # it has something to do, and does nothing
            since = max(since, member.heard_at)
        elif stage == STARTING and not self._workers.is_stopped(member.number):
            limit = max(limit, LONGEST_START_S)
        still = now - max(since, self._awake_since)
        if still > limit:
            self._workers.kill(member.number, f"stood still for {still:.1f} s")

    def describe(self, waited: float) -> str:
        """Say what all processes are at."""
        num_given = sum(len(member.tasks) for member in self._members.values())
        lines = [f"No batch has come for {waited:.0f} s."]
        lines.append(f"{num_given} batches are with the workers, {self.num_loaded} have come from them and wait.")
        now = time.monotonic()
        for member in [*self._members.values()]:
            stage, since = self._workers.at_work(member.number)
            what = _at_stage(stage, self._plan)[2:].removeprefix("while it was ")
            if stage > 0 and member.tasks:
                entry = self._by_number.get(member.tasks[0].number)
                place = (*member.tasks[0].position, stage - 1)
                index = None if entry is None else entry.task.sample_index(stage - 1)
                what = f"loading {described_place(index, place)}"
            told = f"has been {what} for {now - since:.0f} s" if what else "loads nothing"
            pid = self._workers.pid(member.number)
            lines.append(f"Worker process {pid} {told} {self._workers.described(member.number)}")
        lines.append(f"Main thread of process {os.getpid()}:\n{stack_of_main_thread()}")
        return "\n".join(lines)

    # --- the rest ---------------------------------------------------------------------------------

    def end_wait(self) -> None:
        """Have another thread that waits for a batch get an error."""
        self._is_ending = True

    def close(self) -> None:
        """End the workers, and give their memory back."""
        self._close()


_PLANNING = "Planning a batch"
_START_ADVICE = (
    " What it printed on stderr says why. Frequent causes: a module that cannot be imported in the worker, too "
    "little memory."
)


def _load(member: _Member) -> int:
    return len(member.tasks)


def _at_stage(stage: int, plan: BatchPlan) -> str:
    source = plan.source if plan.planned is None else plan.planned.provider
    what = described_stage(stage, type(source).__name__)
    return f", while it was {what}" if what else ""


def _nothing_left(place: SamplePlace) -> str:
    return (
        f"No other sample could take the place of sample {place.sample_index}. Is there a fault that all samples "
        f"have, e.g. a disk that is gone?"
    )


def described_place(index: int | None, place: tuple[int, int, int]) -> str:
    """Name the sample at an epoch, batch and slot."""
    sample = "a sample" if index is None else f"sample {index}"
    return "{} (epoch {}, batch {}, slot {})".format(sample, *place)


_SAMPLES_PER_WORKER = 12
_BATCHES_PER_WORKER = 2


def evening_depth(num_workers: int, batch_size: int) -> int:
    """Get the depth at which a few slow samples do not hold up the workers; one worker alone waits for nobody.

    Of batches of one sample, more must be ahead than of large ones, which even out within themselves: 14 per
    worker for single samples, 8, 5 and 4 for 2, 4 and 8. Where 5 % of the samples take 20 times as long as the
    others, 2, 4 and 8 workers then reach at least 0.98 of what they could if the order were free.
    """
    if num_workers < 2:
        return num_workers
    return num_workers * (_BATCHES_PER_WORKER + math.ceil(_SAMPLES_PER_WORKER / batch_size))
