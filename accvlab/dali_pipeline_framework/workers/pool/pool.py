# SPDX-License-Identifier: Apache-2.0
"""A pool of workers that load batches ahead, in order, whatever happens to workers and samples.

::

    get(position)      gives tasks to workers up to the window, waits for the answer of this batch
    answers            Loaded: kept until it is released;  Failed: `FailureHandler.on_failure`
    a worker is gone   `Supervisor.lose`: another one is started in its place, and its tasks are given again; a
                       sample at which that has happened twice: `FailureHandler.on_death`
    failures           raise when the batch is due, put another sample in its place, leave it out, or ask again

All is done by the calls of one thread. What signal handlers raise in them leaves every batch where it is: each
message is taken out of the inbox after it was dealt with, which can be done twice.
"""

from __future__ import annotations

import itertools
import math
import time
import weakref
from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import attrs

from ...errors import ClosedError, FrameworkError
from ...faults.fault_policy import FailedSample, FailedSamples
from ..loading import BatchLoader
from ..local import Gone
from ..messages import Answer, Ended, Failed, Loaded, Position, Task
from ..plans import BatchPlan
from ..process import Ready, StartFailed
from ..process_setup import pass_on_interrupt
from .failures import Entry, FailureHandler, Refused
from .supervisor import Member, NoWorkers, Supervisor, Workers


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


class Pool:
    """Loads batches ahead.

    Attributes:
        settings: The settings.
        supervisor: What starts and watches the workers.
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
        self._plan, self.settings = plan, settings
        self._here = workers if isinstance(workers, BatchLoader) else None
        self._workers: Workers = NoWorkers() if isinstance(workers, BatchLoader) else workers
        limits = settings.restarts, settings.blocked_after, settings.stacks_after
        self.supervisor = Supervisor(plan, self._workers, settings.num_workers, *limits)
        self._failures = FailureHandler(plan, failed)
        self._entries: dict[Position, Entry] = {}  # in order
        self._by_number: dict[int, Entry] = {}  # by number of the task
        self._waiting: deque[Entry] = deque()  # not given to a worker
        self._num_handed = self._batch_bytes = 0
        self._is_within = self._is_ending = False
        self._close = weakref.finalize(self, self._workers.close)  # also where nobody closes it
        self.waited_ns = 0

    def start(self) -> None:
        """Start the workers; they load from the first requested position on."""
        if self._here is None:
            self._enter()
            self._workers.prepare()
            self.supervisor.start_missing()
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
        if entry is not None and entry.answer is None and entry.error is None:
            began = perf_counter_ns()
            self._await(entry)
            if isinstance(entry.answer, Loaded):  # to wait for the end of an epoch is no wait for a batch
                self.waited_ns += perf_counter_ns() - began
        got: Batch | Ended | Refused
        if entry is None:
            got = Ended(-1)
        elif isinstance(entry.answer, Loaded):
            self._num_handed += position not in itertools.islice(self._entries, self._num_handed)
            if self._here is None:
                self._give()
            got = Batch(position, entry.answer, entry.task, entry.failures)
        elif isinstance(entry.answer, Ended):
            got = entry.answer
            self._plan.note_end(position)
            self._forget(entry)
        else:
            got = self._failures.refused(entry)
        self._is_within = False
        return got

    def _enter(self) -> None:
        """Begin a call, noted before anything is done: the next one finds what this one leaves half done."""
        if self._is_within:
            self._mend()
        self._is_within = True

    def _mend(self) -> None:
        """After an exception in the middle of another call: mend what that has left."""
        self._workers.repair()
        self.supervisor.set_right()
        self._take_all()  # else a message about a worker would be taken for one about the next of its number
        self._have_rest_wait()  # of what is in the inbox, a part may have been done before

    def _set_right(self) -> None:
        """Make the lists agree again after an exception in the middle of a call."""
        self.supervisor.set_right()
        self._have_rest_wait()

    # --- the window -------------------------------------------------------------------------------

    @property
    def num_loaded(self) -> int:
        """How many batches are loaded, and not handed over."""
        num_answered = sum(entry.answer is not None for entry in self._entries.values())
        return max(0, num_answered - self._num_handed)

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
        self._forget_all()
        self._plan.forget()
        self._is_within = False

    def forgive(self) -> None:
        """After an error of workers was raised: start others, and have them try again what they were at."""
        if not self._plan.is_callable:  # what a worker had begun is lost with it
            return
        self.supervisor.forgive()
        for entry in self._entries.values():
            if entry.error is not None and not getattr(entry.error, "is_repeated", False):
                entry.error = None
        self._set_right()

    def try_again(self) -> None:
        """Forget what has failed, e.g. since a state was loaded: it is loaded again when it is due."""
        if any(entry.error is not None or isinstance(entry.answer, Failed) for entry in self._entries.values()):
            self._enter()
            self._forget_all()
            self._is_within = False

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
        self._enter()  # and the next call makes the lists agree
        if not self._failures.note_culprits(entry, culprits):
            return False
        self._ask_again(entry)
        self._failures.replace_culprits(entry, culprits)
        return True

    def _ask_again(self, entry: Entry) -> None:
        """Have a batch that was handed over loaded anew, with other samples."""
        position = entry.task.position
        # What was handed over after it is kept, and handed over again.
        self._num_handed = min(self._num_handed, [*self._entries].index(position))
        if isinstance(entry.answer, Loaded):
            self._workers.recycle(entry.answer)
        self._by_number.pop(entry.task.number, None)
        entry.task = Task(position, entry.task.places, dict(entry.task.instead))
        self._by_number[entry.task.number] = entry
        entry.answer = None

    def _forget(self, entry: Entry) -> None:
        position = entry.task.position
        is_handed = position in itertools.islice(self._entries, self._num_handed)
        del self._entries[position]
        self._num_handed -= is_handed
        self._by_number.pop(entry.task.number, None)
        if entry.answer is None and entry in self._waiting:
            self._waiting.remove(entry)
        if self._here is None and isinstance(entry.answer, Loaded):
            self._workers.recycle(entry.answer)

    def _forget_all(self) -> None:
        for entry in [*self._entries.values()]:
            self._forget(entry)

    def _begun(self, position: Position) -> Entry | None:
        """Begin at a position that was not loaded ahead."""
        if self._entries:
            epoch, number = next(reversed(self._entries))
            if position == (epoch, number + 1):  # it follows, and nothing was loaded ahead
                return self._added(position)
            if self._plan.is_behind_end(position):  # batches of the next epoch are loaded already
                return None
            self._forget_all()
        if not self._plan.is_callable and position[1] == 0:  # another epoch of an iterable
            self.supervisor.forgive()
        entry = self._added(position)
        if entry is not None and self._here is None:
            self._workers.forget_before(entry.task.number)
        return entry

    def _added(self, position: Position) -> Entry | None:
        """Add a batch to the window; None if the epoch has no such batch."""
        try:
            task = self._plan.task(position)
            if task is None:
                return None
        except Exception as error:  # of a sampler of the user; it is raised when the batch is due
            pass_on_interrupt(error)
            entry = self._entries[position] = self._failures.unplanned(position, error)
            return entry
        entry = self._by_number[task.number] = Entry(task)
        self._entries[position] = entry  # now it can be given to a worker, whose answer finds it
        if self._failures.not_tried:
            self._failures.replace_known(entry)
        if entry.answer is None:
            self._waiting.append(entry)
        return entry

    def _room(self) -> int:
        """How many batches may be in the window, without the batches that were handed over."""
        room, num_workers = self.settings.window, self.settings.num_workers
        if not self._batch_bytes:  # how large batches are is not known yet: one for each worker
            return max(1, min(room, num_workers))
        room = min(room, max(num_workers, int(self.settings.window_bytes // self._batch_bytes)))
        return max(1, int(min(room, self._workers.most_bytes // self._batch_bytes - self._num_handed)))

    # --- giving and taking ------------------------------------------------------------------------

    def _await(self, entry: Entry) -> None:
        """Wait until a batch is there, or an error in its place."""
        if self._here is not None:
            self._waiting.clear()  # nobody else takes it
            while entry.answer is None:
                self._answer_is(entry, self._here.load(entry.task))
            return
        self.supervisor.begin_wait()
        while entry.answer is None and entry.error is None:
            self._give()
            if self.supervisor.start_error is not None:
                entry.error = self.supervisor.start_error
                return
            if self._is_ending:
                entry.error = ClosedError("The loader was closed while it waited for a batch.")
                return
            self._workers.wait(self.supervisor.tick_s)
            self._take_all()
            self.supervisor.look_after(self.num_loaded)

    def _give(self) -> None:
        """Fill the window, and give each worker something to do."""
        room = self._room()
        while self._entries and len(self._entries) - self._num_handed < room:
            following = self._plan.following(next(reversed(self._entries)))
            if following is None or self._added(following) is None:
                break
        # Without any worker, what comes before the batch with the error would never come.
        if self._waiting and (self.supervisor.may_start or not self.supervisor.members):
            self.supervisor.start_missing()
        while self._waiting and (member := self.supervisor.free_member()) is not None:
            self.supervisor.send(member, self._waiting[0].task)
            self._waiting.popleft()

    def _have_rest_wait(self) -> None:
        """Have all batches wait that are to come, and that no worker has."""
        given = {number for member in self.supervisor.members.values() for number in member.tasks}
        to_come = [entry for entry in self._entries.values() if entry.answer is None and entry.error is None]
        self._waiting = deque(entry for entry in to_come if entry.task.number not in given)

    def _take_all(self) -> None:
        """Deal with what has come. A message is taken out once that is done; twice would do no harm."""
        inbox = self._workers.inbox
        while inbox:
            self._take(*inbox[0])
            inbox.popleft()

    def _take(self, number: int, message: Any) -> None:
        member = self.supervisor.members.get(number)
        if member is None:
            return
        member.heard_at = time.monotonic()
        if isinstance(message, Gone):
            self._lose(member, message)
        elif isinstance(message, Ready):
            member.is_ready = True
        elif isinstance(message, StartFailed):
            self.supervisor.start_error = message.report.to_error()
        elif isinstance(message, FrameworkError):
            self.supervisor.start_error = message
        else:
            self._answered(member, message)

    def _answered(self, member: Member, answer: Answer) -> None:
        member.is_in_epoch = not isinstance(answer, Ended)
        member.tasks.pop(answer.number, None)
        entry = self._by_number.get(answer.number)
        if entry is None or entry.answer not in (None, answer):  # nobody waits for it, or another one has come
            if isinstance(answer, Loaded):
                self._workers.recycle(answer)
        elif entry.answer is None:
            self._answer_is(entry, answer)
            if entry.answer is None:  # by the same worker, which has kept the other samples
                self.supervisor.send(member, entry.task)

    def _answer_is(self, entry: Entry, answer: Answer) -> None:
        """Take the answer for a batch, or change what is to be loaded."""
        if type(answer) is Loaded:
            entry.answer, self.supervisor.has_come_since = answer, True
            self._batch_bytes = max(self._batch_bytes, answer.work.num_bytes)
        elif isinstance(answer, Failed):
            self._failures.on_failure(entry, answer)
        else:
            entry.answer = answer

    def _lose(self, member: Member, gone: Gone) -> None:
        """A worker is gone: what it had to do is given again, unless that is of no help."""
        if self._plan.is_callable:  # nothing is counted twice, where an exception comes in the middle of this
            del self.supervisor.members[member.number]
        entries = [self._by_number.get(number) for number in member.tasks]
        not_come = [entry for entry in entries if entry is not None and entry.answer is None]
        if not self.supervisor.is_no_loss(member, gone):
            is_at_sample = bool(not_come) and gone.stage > 0 and entries[0] is not_come[0]
            error = self._error_of_loss(member, gone, not_come[0] if is_at_sample else None)
            due = not_come[0] if not_come else next(iter(self._waiting), None)
            if error is not None and (due is None or not member.is_ready or not self._plan.is_callable):
                self.supervisor.start_error = error
            elif error is not None and due is not None:
                due.error = error
        self.supervisor.members.pop(member.number, None)
        self._have_rest_wait()

    def _error_of_loss(self, member: Member, gone: Gone, entry: Entry | None) -> FrameworkError | None:
        error = self.supervisor.died_error(gone, None if entry is None else entry.task)
        if entry is not None and self._failures.on_death(entry, gone.stage - 1, error):
            return None
        return self.supervisor.lose(member, gone, error)

    # --- the rest ---------------------------------------------------------------------------------

    def end_wait(self) -> None:
        """Have another thread that waits for a batch get an error."""
        self._is_ending = True

    def close(self) -> None:
        """End the workers, and give their memory back."""
        self._close()


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
