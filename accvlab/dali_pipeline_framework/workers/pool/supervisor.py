# SPDX-License-Identifier: Apache-2.0
"""The workers of a pool: their starts, lost workers, and workers that stand still."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from ...errors import FrameworkError, WorkerDiedError, WorkerStartError
from ..loading_plan import SETUP_STAGES
from ..local import Gone
from ..messages import Loaded, Task
from ..plans import BatchPlan
from ..process import STARTING
from ..stacks import stack_of_main_thread

_logger = logging.getLogger(__name__)

LONGEST_START_S = 300.0  # many interpreters at once, that import large modules from a network file system
REPORTED_AFTER_S = 5.0
_REPORTED_EACH_S = 30.0
_LONGEST_TICK_S = 0.2
_TICKS = 10  # within the shortest time that is watched for


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


class NoWorkers:
    """No workers: this process loads."""

    most_tasks = 0
    starts_late, most_bytes, last_sent = False, math.inf, -1
    numbers: Sequence[int] = ()

    def __init__(self) -> None:
        """Begin with an inbox into which nothing comes."""
        self.inbox: deque[tuple[int, Any]] = deque()

    def _nothing(self, *arguments: Any) -> Any:
        """Do nothing: there is none."""

    prepare = start = send = wait = recycle = forget_before = repair = kill = close = _nothing
    at_work = is_stopped = pid = described = _nothing


@attrs.define(eq=False)
class Member:
    """A worker, as the pool sees it.

    Attributes:
        number: Its number.
        generation: How many restarts had been counted when it was started.
        tasks: What it has to do, by number of the task.
        is_ready: Whether it is set up.
        is_in_epoch: Whether it has loaded batches of an epoch that has not ended.
        heard_at: When it was given something to do while it had nothing, or something came from it.
    """

    number: int
    generation: int
    tasks: dict[int, Task] = attrs.Factory(dict)
    is_ready: bool = False
    is_in_epoch: bool = False
    heard_at: float = attrs.Factory(time.monotonic)


class Supervisor:
    """Starts workers, counts the lost ones, and ends those that stand still.

    Attributes:
        members: The workers, by number.
        start_error: Why none can load; None while some can.
        may_start: Whether others may be started in place of lost ones.
        num_restarts: How many workers were lost.
        has_come_since: Whether a batch has come since the last restart.
        tick_s: How long to wait before `look_after` is called again.
    """

    def __init__(
        self,
        plan: BatchPlan,
        workers: Workers,
        num_workers: int,
        restarts: int | None,
        blocked_after: float | None,
        stacks_after: float | None,
    ) -> None:
        """Set up; nothing is started. For the settings see `PoolSettings`."""
        self._plan, self._workers, self._num_workers = plan, workers, max(1, num_workers)
        self._restarts, self._blocked_after = restarts, blocked_after
        self._stacks_after = stacks_after or math.inf
        self.members: dict[int, Member] = {}
        self.start_error: FrameworkError | None = None
        self.may_start = self.has_come_since = True
        self.num_restarts = 0
        self._sending: Task | None = None  # within that, which an exception may end
        limits = [limit / _TICKS for limit in (blocked_after, stacks_after) if limit]
        self.tick_s = min([_LONGEST_TICK_S, *limits])
        self._awake_since = time.monotonic()
        self.begin_wait()

    # --- starts and tasks -------------------------------------------------------------------------

    def start_missing(self) -> None:
        """Start workers in place of lost ones."""
        for number in range(self._num_workers):
            if self.start_error is not None:
                return
            if number not in self.members:
                self.members[number] = Member(number, self.num_restarts)
                try:
                    self._workers.start(number)
                except FrameworkError as error:
                    del self.members[number]
                    self.start_error = error

    def forgive(self) -> None:
        """Start others after an error of workers."""
        self.start_error, self.may_start = None, True

    def free_member(self) -> Member | None:
        """Get the worker that has least to do; None if all have as much as they may have."""
        is_late, most = self._workers.starts_late, self._workers.most_tasks
        members = [each for each in self.members.values() if each.is_ready or not is_late]
        member = min(members, key=_load, default=None)
        return None if member is None or len(member.tasks) >= most else member

    def send(self, member: Member, task: Task) -> None:
        """Give a worker something to do."""
        if not member.tasks:
            member.heard_at = time.monotonic()
        self._workers.last_sent = -1  # the task may have been sent before, to a worker that was lost
        self._sending = task
        member.tasks[task.number] = task
        self._workers.send(member.number, task)
        self._sending = None

    def set_right(self) -> None:
        """Forget a start that was undone, and a task that was not sent, after an exception in the middle."""
        known = {*self._workers.numbers, *(number for number, _ in self._workers.inbox)}
        for number in self.members.keys() - known:
            del self.members[number]
        if self._sending is not None and self._workers.last_sent != self._sending.number:
            for member in self.members.values():
                member.tasks.pop(self._sending.number, None)
        self._sending = None  # last: an exception in the middle of this leaves it to the next call

    # --- workers that are lost --------------------------------------------------------------------

    def is_no_loss(self, member: Member, gone: Gone) -> bool:
        """Whether nothing was lost with a worker; or nobody loads any more."""
        # Of one that was never ready, nothing has come: another one begins where it began.
        is_at_start = not member.is_ready or not (member.tasks or member.is_in_epoch) or gone.stage < 0
        has_read_nothing = self._plan.is_callable or is_at_start
        return (gone.is_own_doing and has_read_nothing) or self.start_error is not None

    def died_error(self, gone: Gone, task: Task | None) -> WorkerDiedError:
        """Make the error for a lost worker, with the sample at which it was lost, where it was in a batch."""
        work, number = self._while(gone.stage), gone.stage - 1
        place = index = None
        if task is not None:
            place, index = (*task.position, number), self._plan.sample_index(task, number)
            work = f", while it loaded {_described_place(index, place)}" if self._plan.is_callable else ""
        error = WorkerDiedError(f"A worker process that loads data ended unexpectedly: {gone.how}{work}.")
        if place is not None:
            error.loading = {place: index}
        return error

    def lose(self, member: Member, gone: Gone, error: WorkerDiedError) -> FrameworkError | None:
        """Count a lost worker; return the error to raise where no other one may take its place."""
        most, is_callable = self._restarts, self._plan.is_callable
        # Workers that are lost together count once, also where one that was never ready is found much later; one
        # that was started in the place of such a one counts anew.
        is_counted = (self.has_come_since and member.is_ready) or member.generation == self.num_restarts
        has_begun = member.is_ready or gone.stage not in (STARTING, 0)
        is_in_budget = most is None or not is_counted or self.num_restarts < most
        if is_callable and is_in_budget and (has_begun or gone.was_killed):
            if is_counted:
                self.has_come_since = False
                self.count_restart(error, most)
            return None
        self.may_start = False
        name = type(self._plan.source).__name__
        if not has_begun:
            explained = WorkerStartError(
                f"The worker processes could not be started. A worker ended while it was set up: {gone.how}"
                f"{self._while(gone.stage)}.{'' if gone.was_killed else _START_ADVICE}"
            )
            explained.was_killed = gone.was_killed
            return explained
        if gone.is_own_doing:
            return WorkerDiedError(
                f"A signal handler has raised an exception in the middle of a message from the worker of {name}, "
                f"so what that has read is lost. Begin another epoch."
            )
        if not is_callable and most:
            why = f"{name} is an iterable: it has no random access"
            return WorkerDiedError(f"{error} Restarts are of no help: {why}.")
        return error

    def count_restart(self, error: FrameworkError, most: int | None) -> None:
        """Count and log a restart, of at most so many."""
        self.num_restarts += 1
        of = "" if most is None else f" of at most {most}"
        _logger.warning("%s\nRestart %d%s.", error, self.num_restarts, of)

    # --- workers that stand still -----------------------------------------------------------------

    def begin_wait(self) -> None:
        """Begin to wait for a batch."""
        self._began = self._looked_at = time.monotonic()
        self._starts_due, self._stacks_due = REPORTED_AFTER_S, self._stacks_after

    def look_after(self, num_loaded: int) -> None:
        """End workers that are blocked, and say why nothing comes; ``num_loaded``: batches that wait."""
        now = time.monotonic()
        if now - self._looked_at > 2 * _LONGEST_TICK_S + 1.0:  # this process was stopped itself, and all with it
            self._awake_since = now
        self._looked_at = now
        if self._blocked_after is not None:
            for member in [*self.members.values()]:
                self._end_if_blocked(member, now, self._blocked_after)
        waited = now - max(self._began, self._awake_since)
        is_starting = self.start_error is None and not any(member.is_ready for member in self.members.values())
        if is_starting and waited >= self._starts_due:
            self._starts_due = waited + _REPORTED_EACH_S
            stages = {self._at_stage(self._workers.at_work(number)[0]) for number in self.members}
            what = "; ".join(f"while it was {stage}" for stage in sorted(stages - {""})) or "no worker is ready"
            _logger.warning("Starting %d workers: after %.0f s: %s.", len(self.members), waited, what)
        if waited >= self._stacks_due:
            self._stacks_due = 2 * waited
            _logger.warning("%s", self._described(waited, num_loaded))

    def _end_if_blocked(self, member: Member, now: float, limit: float) -> None:
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

    def _described(self, waited: float, num_loaded: int) -> str:
        """Say what all processes are at."""
        num_given = sum(len(member.tasks) for member in self.members.values())
        lines = [f"No batch has come for {waited:.0f} s."]
        lines.append(f"{num_given} batches are with the workers, {num_loaded} have come from them and wait.")
        now = time.monotonic()
        for member in [*self.members.values()]:
            stage, since = self._workers.at_work(member.number)
            what = self._at_stage(stage)
            if stage > 0 and member.tasks:
                task = next(iter(member.tasks.values()))
                place = (*task.position, stage - 1)
                what = f"loading {_described_place(task.sample_index(stage - 1), place)}"
            work = f"has been {what} for {now - since:.0f} s" if what else "loads nothing"
            pid = self._workers.pid(member.number)
            lines.append(f"Worker process {pid} {work} {self._workers.described(member.number)}")
        lines.append(f"Main thread of process {os.getpid()}:\n{stack_of_main_thread()}")
        return "\n".join(lines)

    def _at_stage(self, stage: int) -> str:
        """Say what a worker is at in its set-up; empty if it is set up."""
        if stage == STARTING:
            return "starting, or importing the main script"
        source = self._plan.source if self._plan.planned is None else self._plan.planned.provider
        return f"{SETUP_STAGES[stage]} ({type(source).__name__})" if stage in SETUP_STAGES else ""

    def _while(self, stage: int) -> str:
        what = self._at_stage(stage)
        return f", while it was {what}" if what else ""


_START_ADVICE = (
    " What it printed on stderr says why. Frequent causes: a module that cannot be imported in the worker, too "
    "little memory."
)


def _load(member: Member) -> int:
    return len(member.tasks)


def _described_place(index: int | None, place: tuple[int, int, int]) -> str:
    """Name the sample at an epoch, batch and slot."""
    sample = "a sample" if index is None else f"sample {index}"
    return "{} (epoch {}, batch {}, slot {})".format(sample, *place)
