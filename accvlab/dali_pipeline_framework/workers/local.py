# SPDX-License-Identifier: Apache-2.0
"""Worker processes of this machine: their start, the pipes to them, the memory that they share, and their end.

::

    main process   Start ──────> process ─> Ready, or StartFailed
                   Task ──pipe─> loads a batch into its memory ─> Loaded (where it is), Failed, Ended
                   Free ──pipe─> uses the memory again
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import math
import mmap
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import FrameworkError
from ..forks import leave_process, left_to_parent
from ..threads import Job, in_new_thread
from .exits import counts_of_kernel, described_exit
from .loading_plan import LoadingPlan
from .messages import Answer, Loaded, Task
from .process import STOP, Free, Layout, Map, Ready, StartFailed, send_to_worker, start_error
from .process_setup import comes_from_signal_handler
from .stacks import stack_of, state_letter, state_of
from .starting import GRACE_S, LONGEST_TRANSFER_S, Starter, WorkerProcess


@attrs.define(eq=False)
class Gone:
    """A worker has ended.

    Attributes:
        how: In words.
        stage: What it was at, see `LocalWorkers.at_work`.
        was_killed: Whether a signal has ended it.
        is_own_doing: Whether it was ended because an exception had come in the middle of a message to it.
    """

    how: str
    stage: int = 0
    was_killed: bool = False
    is_own_doing: bool = False


class LocalWorkers:
    """The worker processes of a pool on this machine.

    Attributes:
        most_tasks: How many tasks a worker has at a time: one is worked on, others wait.
        starts_late: Whether it may wait for room before it starts.
        most_bytes: Memory for all batches.
        last_sent: Number of the task that was sent last as a whole.
        inbox: What has come, by number of the worker.
    """

    most_tasks = 2
    starts_late, most_bytes = False, math.inf

    def __init__(self, plan: LoadingPlan, start_method: str, blocked_after: float | None) -> None:
        """Set up; nothing is started.

        Args:
            plan: What the workers load.
            start_method: Start method of `multiprocessing`.
            blocked_after: Seconds after which a worker that is not ready and was stopped is given up; None: never.
        """
        self._starter = Starter(plan, start_method, blocked_after)
        self._pid = os.getpid()
        self._by_number: dict[int, WorkerProcess] = {}
        # Not one of `selectors`, which an exception in the middle leaves half registered.
        self._poll, self._by_file = select.poll(), dict[int, WorkerProcess]()
        self._kernel_counts = counts_of_kernel()
        self._in_exchange_with: Any = None
        self._ending: WorkerProcess | None = None
        self.last_sent = -1
        self.inbox: deque[tuple[int, Answer | Ready | StartFailed | Gone | FrameworkError]] = deque()
        left_to_parent(self, LocalWorkers._leave)

    # --- start ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Pickle what workers need, and have the fork server import it while this process goes on.

        Raises:
            SourcePicklingError: The plan cannot be pickled.
            WorkerStartError: A process of this kind cannot start others.
        """
        self._starter.prepare()

    def import_ahead(self) -> None:
        """Have the fork server start, which imports what workers need while this process goes on."""
        self._starter.import_ahead()

    def start(self, number: int) -> None:
        """Start a worker; it is ready once it says so.

        Raises:
            WorkerStartError: The system does not start it.
        """
        worker = self._starter.start(number)
        for file in (worker.connection.fileno(), worker.exit_file):
            self._by_file[file] = worker
            self._poll.register(file, select.POLLIN)
        self._by_number[number] = worker
        self._starter.taken(number)

    # --- messages ---------------------------------------------------------------------------------

    def send(self, number: int, task: Task) -> None:
        """Send a task to a worker; one that does not take it is found to be gone."""
        worker = self._by_number.get(number)
        if worker is None:  # it has ended, which the pool finds in the inbox
            self.last_sent = task.number
        else:
            self._send(worker, task, task.number)

    def recycle(self, loaded: Loaded) -> None:
        """Have the memory of a batch used again."""
        if loaded.owner is None:  # twice, after an exception in the middle: it would hold two batches
            return
        (owner, buffers), loaded.owner = loaded.owner, None
        if self._runs(owner):
            self._send(owner, Free(buffers))

    def _runs(self, worker: WorkerProcess) -> bool:
        return self._by_number.get(worker.number) is worker

    def _send(self, worker: Any, message: object, number: int = -1) -> None:
        self._in_exchange_with = worker
        try:
            send_to_worker(worker.connection, message)
        except OSError as error:  # else it has ended, which is found when its answers are awaited
            if isinstance(error, BlockingIOError):  # a part of it has gone
                self.kill(worker.number, f"took no message for {LONGEST_TRANSFER_S:g} s")
        self.last_sent, self._in_exchange_with = number, None

    def repair(self) -> None:
        """After an exception in the middle of another method: complete the start or end of a worker.

        One with which a message was exchanged half is ended.
        """
        for number in self._by_number:
            self._starter.taken(number)
        if self._ending is not None:
            self._end_of(self._ending)
        worker = self._in_exchange_with
        if worker is not None and self._runs(worker):
            worker.is_half_way = True
            worker.process.kill()
        self._in_exchange_with = None

    def wait(self, timeout_s: float) -> None:
        """Wait until something has come, and put it into the inbox; each worker that is gone is reported once."""
        for file, _ in self._poll.poll(1000 * timeout_s):
            worker = self._by_file.get(file)
            if worker is None or not self._runs(worker):
                continue
            has_ended = file == worker.exit_file
            try:
                while not worker.is_half_way and (not has_ended or worker.connection.poll()):
                    self._in_exchange_with = worker
                    self._receive(worker)
                    self._in_exchange_with = None
                    if not has_ended:
                        break
            except (EOFError, OSError):
                has_ended = True
                self._in_exchange_with = None
            if has_ended:
                self._end_of(worker)

    def _receive(self, worker: WorkerProcess) -> None:
        message = worker.connection.recv()
        if isinstance(message, Map):
            try:
                file = reduction.recv_handle(worker.connection)
            except RuntimeError as error:
                if comes_from_signal_handler(error):
                    raise
                worker.is_half_way = True
                self.inbox.append((worker.number, start_error(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))))
                return
            try:
                worker.maps.append(np.frombuffer(mmap.mmap(file, message.size), np.uint8))
            finally:
                os.close(file)
        elif isinstance(message, dict):  # a record of its log
            record = logging.makeLogRecord(message)
            if logging.getLogger(record.name).isEnabledFor(record.levelno):
                logging.getLogger(record.name).handle(record)
        else:
            if isinstance(message, Loaded):
                layouts: Sequence[Layout] = message.outputs
                message.owner = worker, [*{layout[0] for layout in layouts if layout[0] >= 0}]
                message.outputs = [_array(worker.maps, layout) for layout in layouts]
            self.inbox.append((worker.number, message))

    # --- end --------------------------------------------------------------------------------------

    def kill(self, number: int, why: str) -> None:
        """End a worker."""
        worker = self._by_number[number]
        worker.killed_for = worker.killed_for or why
        worker.process.kill()

    def _end_of(self, worker: WorkerProcess) -> None:
        """Report that a worker has ended. A second time, after an exception in the middle, does no harm."""
        self._ending, process = worker, worker.process
        if worker.exit is None:
            worker.exit = Job(functools.partial(_exit_code, process), in_new_thread)
        worker.exit.wait()
        code = worker.exit.result
        how = described_exit(code, self._kernel_counts)
        if worker.killed_for:
            how = f"was ended by the loader, since it {worker.killed_for}"
        was_killed = code is None or code < 0 or bool(worker.killed_for)
        gone = Gone(f"process {process.pid} {how}", worker.words[0], was_killed, worker.is_half_way)
        self.inbox.append((worker.number, gone))
        self._unregister(worker)
        worker.close_files()
        if self._runs(worker):
            del self._by_number[worker.number]
        self._ending = None

    def _unregister(self, worker: WorkerProcess) -> None:
        for file in [file for file, each in self._by_file.items() if each is worker]:
            with contextlib.suppress(KeyError):
                self._poll.unregister(file)
            del self._by_file[file]

    def close(self) -> None:
        """End all workers, and give files and memory back; nothing in a process that was forked from this one."""
        if os.getpid() != self._pid:
            return
        self.repair()
        workers = [*self._by_number.values()]
        try:
            self._end(workers)
        except BaseException:  # of a signal handler: nobody would end them later
            for worker in workers:
                worker.process.kill()
            raise

    def _end(self, workers: Sequence[WorkerProcess]) -> None:
        for worker in workers:
            worker.words[2] = STOP  # one that loads ends before its next sample
            with contextlib.suppress(OSError, ValueError):
                worker.connection.send(None)  # one that waits for a task ends
        deadline = time.monotonic() + GRACE_S
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.close_files()
        self._by_number.clear()
        self._by_file.clear()
        self._starter.close()

    def _leave(self) -> None:
        """In a forked child, leave the workers to the parent; where none was prepared, have workers of its own."""
        for worker in [*self._by_number.values(), *self._starter.not_taken()]:
            leave_process(worker.process)
        if not self._starter.is_prepared:
            self._pid = os.getpid()

    def forget_before(self, number: int) -> None:
        """Have workers leave out tasks with smaller numbers, for which nobody waits any more."""
        for worker in self._by_number.values():
            worker.words[2] = number

    # --- what they are at -------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        """The workers that run."""
        return list(self._by_number)

    def at_work(self, number: int) -> tuple[int, float]:
        """What a worker is at (a stage of its set-up, or the number of a sample, plus 1; 0: nothing), since when.

        The time is that of `time.monotonic`.
        """
        words = self._by_number[number].words
        return words[0], words[1] * 1e-9

    def is_stopped(self, number: int) -> bool:
        """Whether a worker was stopped by a signal."""
        return state_letter(self._by_number[number].process.pid) in "Tt"

    def described(self, number: int) -> str:
        """Name a worker, with the state of its process and its stack."""
        pid = self._by_number[number].process.pid
        stack = stack_of(pid, self._starter.stacks) or f"  (no answer; {state_of(pid)})"
        return f"({state_of(pid)}):\n{stack}"

    def pid(self, number: int) -> int:
        """The process of a worker."""
        return int(self._by_number[number].process.pid)


def _exit_code(process: Any) -> int | None:
    process.join(GRACE_S)
    if process.is_alive():  # its pipe was closed
        process.kill()
        process.join(GRACE_S)
    code: int | None = process.exitcode
    return code


def _array(maps: Sequence[npt.NDArray[np.uint8]], layout: Layout) -> Any:
    buffer, dtype, shape, start = layout
    memory = maps[buffer]
    if not isinstance(start, list):
        return np.ndarray(shape, dtype, memory, start)
    return [np.ndarray(of_one, dtype, memory, at) for of_one, at in zip(shape, start, strict=True)]
