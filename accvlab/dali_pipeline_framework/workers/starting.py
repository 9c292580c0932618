# SPDX-License-Identifier: Apache-2.0
"""The start of worker processes of this machine, with each start method of `multiprocessing`."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import mmap
import multiprocessing
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import WorkerStartError
from ..threads import Job, OneThreadOfOpenCv, in_lasting_thread, lasting_thread
from .loading_plan import LoadingPlan
from .preloading import (
    end_fork_server,
    give_main_a_spec,
    needed_modules,
    server_pid,
    start_fork_server,
    without_vfork,
)
from .process import NUM_WORDS, STARTING, Start, run_worker, start_error
from .process_setup import DeathSignal, comes_from_signal_handler
from .stacks import state_letter, stopped_in_its_start

_logger = logging.getLogger(__name__)

GRACE_S = 1.0  # for workers that were requested to end
LONGEST_TRANSFER_S = 10.0  # of a message: a worker that does not take, or does not finish, one is replaced
_STOPPED_S = 5.0  # after that, what was stopped is started again
_LONG_S = 1.0  # between two looks, which are 0.05 s apart
_OFTEN = 3
_OF_SERVER = EOFError, ConnectionError, FileNotFoundError


@attrs.define(eq=False)
class WorkerProcess:
    """A worker process of this machine.

    Attributes:
        number: Number of the worker.
        words: int64 words, which it shares; see `Start`.
        process: The process.
        connection: The pipe to it.
        exit_file: Becomes readable when it has ended, also where a process that it has left keeps the pipe open.
        files: That one, and the file of the words; none once they were closed.
        exit: What waits for its end.
        maps: The files that it has sent.
        killed_for: Why it was killed here; empty if it was not.
        is_half_way: Whether an exception has come in the middle of a message to it or from it.
    """

    number: int
    words: Any = None
    process: Any = None
    connection: Any = None
    exit_file: int = -1
    files: list[int] = attrs.Factory(list)
    exit: Job | None = None
    maps: list[npt.NDArray[np.uint8]] = attrs.Factory(list)
    killed_for: str = ""
    is_half_way: bool = False

    def end(self) -> None:
        """End the process, and close the files; a second time does no harm."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.close_files()

    def close_files(self) -> None:
        """Close all files."""
        if self.connection is not None:
            self.connection.close()
        files, self.files = self.files, []
        for file in files:
            os.close(file)


class Starter:
    """Starts worker processes.

    Another thread does that, in which no signal handler runs, and which ends with this process: the kernel ends a
    process when the thread has ended that has started it. Where a call is left by an exception, the next one finds
    what was started.

    Attributes:
        stacks: Path of the file into which workers write their stacks on request.
    """

    def __init__(self, plan: LoadingPlan, start_method: str, blocked_after: float | None) -> None:
        """Set up; nothing is started.

        Args:
            plan: What the workers load.
            start_method: Start method of `multiprocessing`.
            blocked_after: Seconds after which what was stopped is started again; at most 5 s are waited.
        """
        self.stacks = ""
        self._start_method, self._plan, self._blocked_after = start_method, plan, blocked_after
        self._pid = 0
        self._files: list[int] = []
        self._payload = ""
        self._names_main = False
        self._server: Job | None = None
        self._starts: dict[int, Job] = {}  # by number of the worker: those that nobody has taken

    @property
    def is_prepared(self) -> bool:
        """Whether workers can be started."""
        return bool(self._payload)

    def prepare(self) -> None:
        """Pickle what workers need, and have the fork server import it while this process goes on.

        Raises:
            SourcePicklingError: The plan cannot be pickled.
            WorkerStartError: A process of this kind cannot start others.
        """
        refuse_where_none_can_be_started()
        if self.is_prepared:
            return
        self._pid = os.getpid()
        payload = b"" if self._start_method == "fork" else self._plan.pickled()
        self._names_main = b"__main__" in payload or b"__mp_main__" in payload
        pickled = bytes(reduction.ForkingPickler.dumps((dict(os.environ), payload)))
        try:
            self.stacks = self._file("stacks", b"")
            self._payload = self._file("plan", pickled)
        except OSError as error:
            raise start_error(error) from error
        self.import_ahead()

    def import_ahead(self) -> None:
        """Have the fork server start, which imports what workers need while this process goes on."""
        process: Any = multiprocessing.current_process()
        if self._start_method != "forkserver" or process.daemon or getattr(process, "_inheriting", False):
            return
        modules = needed_modules(self._plan.source, self._plan.steps, self._plan.setup.init_fn)
        self._server = Job(functools.partial(start_fork_server, modules), _in_lasting_thread)
        self._server.start()

    def _file(self, name: str, content: bytes) -> str:
        file = os.memfd_create(name, os.MFD_CLOEXEC)
        self._files.append(file)
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        return f"/proc/{self._pid}/fd/{file}"

    # --- a worker ---------------------------------------------------------------------------------

    def start(self, number: int) -> WorkerProcess:
        """Start a worker; until `taken`, another call gets the same one.

        Raises:
            WorkerStartError: The system does not start it.
        """
        self.prepare()
        if number not in self._starts:
            self._starts[number] = Job(functools.partial(self._started, number), _in_lasting_thread)
        start = self._starts[number]
        start.wait(_StopWatch(self._blocked_after))
        if start.error is not None:
            self.taken(number)
            raise start.error
        worker: WorkerProcess = start.result
        return worker

    def taken(self, number: int) -> None:
        """Have the next call for a number start another worker."""
        self._starts.pop(number, None)

    def not_taken(self) -> list[WorkerProcess]:
        """The workers that nobody has taken."""
        return [start.result for start in self._starts.values() if start.result is not None]

    def _started(self, number: int) -> WorkerProcess:
        """Start a worker; the fork server may be lost meanwhile, e.g. by a module that it imports."""
        error = None if self._server is None else self._server.error
        if self._start_method == "forkserver" and isinstance(error, OSError):
            self._use_spawn(error)
        for attempt in range(_OFTEN):
            worker = WorkerProcess(number)
            try:
                if self._start_method == "forkserver":
                    start_fork_server()  # unless it runs
                self._begin(worker)
                if worker.process.pid not in _ended:
                    return worker
                _ended.discard(worker.process.pid)
                raise ChildProcessError("it was stopped before its program ran")
            except (EOFError, OSError, RuntimeError, Warning) as error:  # RuntimeError is of threads
                worker.end()
                is_of_server = self._start_method == "forkserver" and isinstance(error, _OF_SERVER)
                if attempt == _OFTEN - 1 or not (is_of_server or isinstance(error, ChildProcessError)):
                    raise start_error(error) from error
                if is_of_server:
                    end_fork_server()
        raise AssertionError

    def _use_spawn(self, error: OSError) -> None:
        """Go on without a fork server: its socket needs a folder for temporary files, with a short path."""
        _logger.warning(
            "Workers are started by 'spawn': the fork server cannot be started (%s: %s). It needs a folder for "
            "temporary files whose path has fewer than 80 characters (TMPDIR). Or choose start_method='spawn'.",
            type(error).__name__,
            error,
        )
        self._start_method = "spawn"

    def _begin(self, worker: WorkerProcess) -> None:
        file = os.memfd_create("progress", os.MFD_CLOEXEC)
        worker.files.append(file)
        os.ftruncate(file, 8 * NUM_WORDS)
        worker.words = words = memoryview(mmap.mmap(file, 8 * NUM_WORDS)).cast("q")
        words[0], words[1] = STARTING, time.monotonic_ns()
        worker.connection, end_of_worker = multiprocessing.Pipe()
        with end_of_worker:
            _limit_transfers(worker.connection)
            place = f"/proc/{self._pid}/fd/{file}"
            level = logging.root.getEffectiveLevel()
            start = Start(worker.number, self._pid, self._payload, place, self.stacks, level)
            arguments: tuple[Any, ...] = end_of_worker, start
            if self._start_method == "fork":
                arguments = *arguments, self._plan
            context: Any = multiprocessing.get_context(self._start_method)
            name = DeathSignal(f"loading worker {worker.number}")
            process = context.Process(target=run_worker, args=arguments, name=name, daemon=True)
            with _forking(self._start_method), _without_main_script(not self._names_main), without_vfork():
                process.start()
            worker.process = process
        worker.exit_file = _exit_file(process)
        worker.files.append(worker.exit_file)

    def close(self) -> None:
        """Give files and memory back, and end workers that nobody has taken."""
        for start in self._starts.values():
            start.wait(_StopWatch(self._blocked_after))
        for worker in self.not_taken():
            worker.end()
        self._starts.clear()
        files, self._files, self._payload = self._files, [], ""
        for file in files:
            os.close(file)


def _in_lasting_thread(function: Callable[[], None]) -> None:
    try:
        in_lasting_thread(function)
    except RuntimeError as error:
        if comes_from_signal_handler(error):
            raise
        raise start_error(error) from error  # the system allows no more threads


# Processes that were ended before their program ran. All loaders of this process start theirs in one thread.
_ended: set[int] = set()


class _StopWatch:
    """Ends what was stopped and keeps a start waiting: the fork server, or a process before its program runs."""

    def __init__(self, blocked_after: float | None) -> None:
        self._limit_s = min(_STOPPED_S, blocked_after or _STOPPED_S)
        self._stopped: int | None = None
        self._since = self._last_look = 0.0

    def __call__(self) -> None:
        server, begins = server_pid(), stopped_in_its_start(lasting_thread())
        if server is not None and state_letter(server) not in "Tt":
            server = None
        stopped, now = begins or server, time.monotonic()
        was_awake, self._last_look = now - self._last_look < _LONG_S, now  # or else all of the job was stopped
        if stopped != self._stopped or not was_awake:
            self._stopped, self._since = stopped, now
        if stopped is None or now - self._since <= self._limit_s:
            return
        self._stopped = None
        if stopped == begins:
            _logger.warning("Process %d was stopped before its program ran, and is ended.", stopped)
            _ended.add(stopped)
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
        else:
            _logger.warning("The fork server (process %d) was stopped. It is started again.", stopped)
            end_fork_server()


def _limit_transfers(connection: Connection) -> None:
    """Have messages fail that the other process does not take, or does not finish."""
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
        limit = struct.pack("ll", int(LONGEST_TRANSFER_S), 0)
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _exit_file(process: Any) -> int:
    """A file that becomes readable when a process has ended, also where processes of its own go on."""
    with contextlib.suppress(OSError, AttributeError):  # an old kernel
        return os.pidfd_open(process.pid)
    return os.dup(process.sentinel)


@contextlib.contextmanager
def _forking(start_method: str) -> Iterator[None]:
    """Around a fork: no garbage is collected in the new process before it is prepared; OpenCV has no threads."""
    if start_method != "fork":
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        with OneThreadOfOpenCv(ends_others=True):
            yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _without_main_script(is_hidden: bool) -> Iterator[None]:
    """Keep started processes from importing the main script: where nothing they get is of it, or it is no file."""
    give_main_a_spec()
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    is_missing = path is not None and not os.path.exists(path)  # Python calls its input <stdin>
    if not is_hidden and not is_missing:
        yield
        return
    kept: dict[str, Any] = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
    try:
        if "__file__" in kept:
            del main.__file__
        main.__spec__ = None
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
