# SPDX-License-Identifier: Apache-2.0
"""Worker processes of this machine: their start, the pipes to them, the memory that they share, and their end.

::

    main process   Start ──────> process ─> Ready, or StartFailed
                   Task ──pipe─> loads a batch into its memory ─> Loaded (where it is), Failed, Ended
                   Free ──pipe─> uses the memory again
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import mmap
import multiprocessing
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import WorkerStartError
from ..forks import leave_process, left_to_parent
from ..threads import one_thread_of_opencv
from .exits import counts_of_kernel, described_exit
from .loading import SETUP_STAGES, LoadingPlan
from .messages import Answer, Loaded, Task
from .preloading import server_pid, start_fork_server
from .process import NUM_WORDS, STARTING, STOP, Free, Layout, Map, Ready, Start, StartFailed, run_worker
from .process_setup import DeathSignal, is_main_thread
from .stacks import stack_of, state_letter, state_of

_logger = logging.getLogger(__name__)

_LONGEST_TRANSFER_S = 10.0  # of a message: a worker that does not take, or does not finish, one is replaced
_GRACE_S = 1.0  # for workers that were requested to end
_SERVER_STOPPED_S = 5.0  # after that the fork server is started again
_POLL_S = 0.05
_OFTEN = 3


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


@attrs.define(eq=False)
class _Process:
    """A worker process of this machine.

    Attributes:
        number: Number of the worker.
        process: The process.
        connection: The pipe to it.
        exit_file: Becomes readable when it has ended, also where a process that it has left keeps the pipe open.
        words: Three int64 words, which it shares; see `Start`.
        words_file: The file that holds them.
        maps: The files that it has sent.
        killed_for: Why it was killed here; empty where it was not.
        is_half_way: Whether an exception has come in the middle of a message to it or from it.
    """

    number: int
    process: Any
    connection: Connection
    exit_file: int
    words: memoryview
    words_file: int
    maps: list[npt.NDArray[np.uint8]] = attrs.Factory(list)
    killed_for: str = ""
    is_half_way: bool = False


class LocalWorkers:
    """The worker processes of a pool on this machine.

    Attributes:
        start_method: ``"forkserver"``, ``"fork"`` or ``"spawn"``.
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
        self.start_method = start_method
        self._plan, self._blocked_after = plan, blocked_after
        self._pid = os.getpid()
        self._files: list[int] = []
        self._payload = self._stacks = ""
        self._names_main = False
        self._by_number: dict[int, _Process] = {}
        self._selector = selectors.DefaultSelector()
        self._kernel_counts = counts_of_kernel()
        self._in_exchange_with: Any = None
        self.last_sent = -1
        self.inbox: deque[tuple[int, Answer | Ready | StartFailed | Gone]] = deque()
        left_to_parent(self, LocalWorkers._leave)

    # --- start ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Pickle what workers need, and have the fork server import it while this process goes on.

        Raises:
            SourcePicklingError: The plan cannot be pickled.
            WorkerStartError: A process of this kind cannot start others.
        """
        refuse_where_none_can_be_started()
        if self._payload:
            return
        payload = b"" if self.start_method == "fork" else self._plan.pickled()
        self._names_main = b"__main__" in payload or b"__mp_main__" in payload
        try:
            self._payload = self._file("plan", _pickled((dict(os.environ), payload)))
            self._stacks = self._file("stacks", b"")
        except OSError as error:
            raise _start_error(error) from error
        self.import_ahead()

    def import_ahead(self) -> None:
        """Have the fork server start, which imports what workers need while this process goes on."""
        process: Any = multiprocessing.current_process()
        if self.start_method == "forkserver" and not process.daemon and not getattr(process, "_inheriting", False):
            try:
                start_fork_server(self._plan.source, self._plan.steps, self._plan.setup.init_fn)
            except OSError as error:
                self._use_spawn(error)

    def _use_spawn(self, error: OSError) -> None:
        """Go on without a fork server: its socket needs a folder for temporary files, with a short path."""
        _logger.warning(
            "Workers are started by 'spawn': the fork server cannot be started (%s: %s). It needs a folder for "
            "temporary files whose path has fewer than 80 characters (TMPDIR). Or choose start_method='spawn'.",
            type(error).__name__,
            error,
        )
        self.start_method = "spawn"

    def _file(self, name: str, content: bytes) -> str:
        file = os.memfd_create(name, os.MFD_CLOEXEC)
        self._files.append(file)
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        return f"/proc/{self._pid}/fd/{file}"

    def start(self, number: int) -> None:
        """Start a worker; it is ready once it says so.

        Raises:
            WorkerStartError: The system does not start it.
        """
        self.prepare()
        try:
            self._start(number)
        except OSError as error:
            raise _start_error(error) from error

    def _start(self, number: int) -> None:
        file = os.memfd_create("progress", os.MFD_CLOEXEC)
        ours = theirs = None
        try:
            os.ftruncate(file, 8 * NUM_WORDS)
            words = memoryview(mmap.mmap(file, 8 * NUM_WORDS)).cast("q")
            words[0], words[1] = STARTING, time.monotonic_ns()
            ours, theirs = multiprocessing.Pipe()
            place = f"/proc/{self._pid}/fd/{file}"
            level = logging.root.getEffectiveLevel()
            start = Start(number, self._pid, is_main_thread(), self._payload, place, self._stacks, level)
            process = self._started(theirs, start)
            _limit_transfers(ours)
            worker = _Process(number, process, ours, _exit_file(process), words, file)
        except BaseException:
            os.close(file)
            if ours is not None:
                ours.close()
            raise
        finally:
            if theirs is not None:
                theirs.close()
        self._by_number[number] = worker
        self._selector.register(ours, selectors.EVENT_READ, worker)
        self._selector.register(worker.exit_file, selectors.EVENT_READ, worker)

    def _started(self, connection: Connection, start: Start) -> Any:
        """Start the process; the fork server may be lost meanwhile, and is started again then."""
        name = f"loading worker {start.number}"
        if start.is_of_main_thread or self.start_method == "forkserver":
            name = DeathSignal(name)
        for attempt in range(_OFTEN):
            context: Any = multiprocessing.get_context(self.start_method)
            target: Any = run_worker
            arguments: tuple[Any, ...] = connection, start
            if self.start_method == "fork":
                target, arguments = _run_forked, (self._plan, connection, start)
            process: Any = context.Process(target=target, args=arguments, name=name, daemon=True)
            try:
                if self.start_method == "forkserver":
                    self._start_by_server(process)
                else:
                    with _forking(), _without_main_script(not self._names_main):
                        process.start()
            except (EOFError, ConnectionError, FileNotFoundError):  # of the fork server
                if self.start_method != "forkserver" or attempt == _OFTEN - 1:
                    raise
                # A module that it imports may have ended it.
                self._end_server()
                start_fork_server(imports=False)
                continue
            return process
        raise AssertionError

    def _start_by_server(self, process: Any) -> None:
        """Have the fork server start a process, and do not wait indefinitely where it was stopped."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                process.start()
            except BaseException as error:
                raised.append(error)

        with _without_main_script(not self._names_main):
            thread = threading.Thread(target=run, daemon=True, name="start of a worker")
            thread.start()
            stopped_since: float | None = None
            while thread.is_alive():
                thread.join(_POLL_S)
                pid = server_pid()
                if pid is None or state_letter(pid) not in "Tt":
                    stopped_since = None
                    continue
                stopped_since = stopped_since or time.monotonic()
                limit = min(_SERVER_STOPPED_S, self._blocked_after or _SERVER_STOPPED_S)
                if time.monotonic() - stopped_since > limit:
                    _logger.warning("The fork server (process %d) was stopped. It is started again.", pid)
                    self._end_server()
                    stopped_since = None
        if raised:
            raise raised[0]

    def _end_server(self) -> None:
        pid = server_pid()
        if pid is not None:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until then `multiprocessing` starts no other

    # --- messages ---------------------------------------------------------------------------------

    def send(self, number: int, task: Task) -> None:
        """Send a task to a worker; one that does not take it is found to be gone."""
        self._send(self._by_number[number], task, task.number)

    def recycle(self, loaded: Loaded) -> None:
        """Have the memory of a batch used again."""
        owner, buffers = loaded.owner
        if self._runs(owner):
            self._send(owner, Free(buffers))

    def _runs(self, worker: _Process) -> bool:
        return self._by_number.get(worker.number) is worker

    def _send(self, worker: Any, message: object, number: int = -1) -> None:
        self._in_exchange_with = worker
        try:
            worker.connection.send(message)
        except OSError as error:  # else it has ended, which is found when its answers are awaited
            if isinstance(error, BlockingIOError):  # a part of it has gone
                self.kill(worker.number, f"took no message for {_LONGEST_TRANSFER_S:g} s")
        self.last_sent, self._in_exchange_with = number, None

    def repair(self) -> None:
        """End a worker with which a message was exchanged half, since an exception has come in between."""
        worker: Any = self._in_exchange_with
        self._in_exchange_with = None
        if worker is not None and self._runs(worker):
            worker.is_half_way = True
            worker.process.kill()

    def wait(self, timeout_s: float) -> None:
        """Wait until something has come, and put it into the inbox; each worker that is gone is reported once."""
        for key, _ in self._selector.select(timeout_s):
            worker: Any = key.data
            if not self._runs(worker):
                continue
            has_ended = key.fd == worker.exit_file
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
                self.inbox.append((worker.number, self._gone(worker)))

    def _receive(self, worker: _Process) -> None:
        message = worker.connection.recv()
        if isinstance(message, Map):
            file = reduction.recv_handle(worker.connection)
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

    def _gone(self, worker: Any) -> Gone:
        worker.process.join(_GRACE_S)
        if worker.process.is_alive():  # its pipe was closed
            worker.process.kill()
            worker.process.join(_GRACE_S)
        code, stage = worker.process.exitcode, worker.words[0]
        self._forget(worker)
        how = described_exit(code, self._kernel_counts)
        if worker.killed_for:
            how = f"was ended by the loader, since it {worker.killed_for}"
        was_killed = code is None or code < 0 or bool(worker.killed_for)
        return Gone(f"process {worker.process.pid} {how}", stage, was_killed, worker.is_half_way)

    def _forget(self, worker: _Process) -> None:
        self._selector.unregister(worker.connection)
        self._selector.unregister(worker.exit_file)
        self._close_files(worker)
        del self._by_number[worker.number]

    @staticmethod
    def _close_files(worker: _Process) -> None:
        worker.connection.close()
        os.close(worker.words_file)
        if worker.exit_file != worker.process.sentinel:
            os.close(worker.exit_file)

    def close(self) -> None:
        """End all workers, and give files and memory back; nothing in a process that was forked from this one."""
        if os.getpid() != self._pid:
            return
        workers = [*self._by_number.values()]
        try:
            self._end(workers)
        except BaseException:  # of a signal handler: nobody would end them later
            for worker in workers:
                worker.process.kill()
            raise

    def _end(self, workers: Sequence[_Process]) -> None:
        for worker in workers:
            worker.words[2] = STOP  # one that loads ends before its next sample
            with contextlib.suppress(OSError, ValueError):
                worker.connection.send(None)  # one that waits for a task ends
        deadline = time.monotonic() + _GRACE_S
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            self._close_files(worker)
        self._by_number.clear()
        self._selector.close()
        files, self._files, self._payload = self._files, [], ""
        for file in files:
            os.close(file)

    def _leave(self) -> None:
        """In a forked child, leave the workers to the parent; where none was prepared, have workers of its own."""
        for worker in self._by_number.values():
            leave_process(worker.process)
        if not self._payload:
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
        stack = stack_of(pid, self._stacks) or f"  (no answer; {state_of(pid)})"
        return f"({state_of(pid)}):\n{stack}"

    def pid(self, number: int) -> int:
        """The process of a worker."""
        return int(self._by_number[number].process.pid)


def described_stage(stage: int, name: str) -> str:
    """Say what a worker is at in its set-up; empty where it is set up."""
    if stage == STARTING:
        return "starting, or importing the main script"
    return f"{SETUP_STAGES[stage]} ({name})" if stage in SETUP_STAGES else ""


def _pickled(value: object) -> bytes:
    return bytes(reduction.ForkingPickler.dumps(value))


def _array(maps: Sequence[npt.NDArray[np.uint8]], layout: Layout) -> Any:
    buffer, dtype, shape, start = layout
    memory = maps[buffer]
    if not isinstance(start, list):
        return np.ndarray(shape, dtype, memory, start)
    return [np.ndarray(of_one, dtype, memory, at) for of_one, at in zip(shape, start, strict=True)]


def _limit_transfers(connection: Connection) -> None:
    """Have messages fail that the other process does not take, or does not finish."""
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
        limit = struct.pack("ll", int(_LONGEST_TRANSFER_S), 0)
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _exit_file(process: Any) -> int:
    """A file that becomes readable when a process has ended, also where processes of its own go on."""
    with contextlib.suppress(OSError, AttributeError):  # an old kernel
        return os.pidfd_open(process.pid)
    return int(process.sentinel)


def _run_forked(plan: LoadingPlan, connection: Connection, start: Start) -> None:
    """Run in a forked worker, which has inherited the plan."""
    run_worker(connection, start, plan)


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """Around a fork: no garbage is collected in the new process before it is prepared; OpenCV has no threads."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with one_thread_of_opencv(ends_others=True):
            yield
    finally:
        if collects:
            gc.enable()


_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def _without_main_script(is_hidden: bool) -> Iterator[None]:
    """Keep started processes from importing the main script: where nothing they get is of it, or it is no file."""
    main = sys.modules["__main__"]
    if not hasattr(main, "__spec__"):  # as the debugger of Python leaves it
        main.__spec__ = None
    path = getattr(main, "__file__", None)
    is_missing = path is not None and not os.path.exists(path)  # Python calls its input <stdin>
    if not is_hidden and not is_missing:
        yield
        return
    with _one_at_a_time:
        kept: dict[str, Any] = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
        if "__file__" in kept:
            del main.__file__
        main.__spec__ = None
        try:
            yield
        finally:
            vars(main).update(kept)


def refuse_where_none_can_be_started() -> None:
    """Raise a `WorkerStartError` in a process that may not start others: a daemon, or one that is starting."""
    process: Any = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        raise WorkerStartError(
            "The main script starts worker processes when it is imported. A worker imports the main script first, "
            "so each worker would start workers of its own. Put the part of the script that runs things under a "
            'guard:\n\n    if __name__ == "__main__":\n        main()\n'
        )
    if process.daemon:
        raise WorkerStartError(
            f"This process ({process.name}) is a daemon of `multiprocessing`, which may not start processes. Load "
            f"in it with num_workers=0, or start it with daemon=False."
        )


def _start_error(error: OSError) -> WorkerStartError:
    advice = "Load in this process with num_workers=0, or choose another `start_method`."
    if error.errno == 24:  # EMFILE
        advice = "Allow more open files (`ulimit -n`): about ten per worker are needed. Or use fewer workers."
    made = WorkerStartError(f"The worker processes could not be started: {error}. {advice}")
    return made
