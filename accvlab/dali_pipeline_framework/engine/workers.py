# SPDX-License-Identifier: Apache-2.0
"""Start and end of the worker processes of a pipeline, with errors that name the cause."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import operator
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias, cast

from ..errors import SourcePicklingError, WorkerStartError
from ..sources.shards import num_cores_of_rank
from ..user_warnings import warn_user
from .control_block import ControlBlock
from .dali.texts import NO_SHARED_MEMORY, WORKERS_NOT_STARTED
from .forking.fork_server import ForkServer, PreloadedContext, environment, starting_server
from .source_pickling import without_missing_main_script
from .watching.pool import REMEDY, noting_pool
from .watching.worker_watch import WorkerWatch, describe_exit_code, first_ended, stack_of_main_thread, state_of
from .worker_process import forked_children_are_workers, is_main_thread, prepare_worker_process

_logger = logging.getLogger(__name__)

LONGEST_START_S = 300.0  # many interpreters at once, that import large modules from a network file system
REPORTED_AFTER_S = 5.0
_TOLD_EACH_S = 30.0
_POLL_S = 0.05
_SHORT_S = 0.001
_SPAWNED = b"--multiprocessing-fork"
_PIPE = re.compile(rb"pipe_handle=(\d+)")

# Seconds, and what is done then: it gets these seconds and the workers, and returns when it is due again.
_Limit: TypeAlias = tuple[float, Callable[[float, set[int]], float | None]]


class StartWatch:
    """Logs that workers take long to start, and kills those that do not start within a time.

    Attributes:
        waited_s: After how many seconds they were killed; None where they were not.
    """

    waited_s: float | None = None

    @contextlib.contextmanager
    def watching(
        self, num_workers: int, mark: str, blocked_after: float | None, stacks_after: float | None
    ) -> Iterator[None]:
        """Around the start of workers.

        Args:
            num_workers: How many there are to start.
            mark: ``NAME=value`` in the environment of spawned workers, and of no other processes.
            blocked_after: Seconds of loading one sample after which a worker counts as blocked; None: no limit.
            stacks_after: Seconds after which the state of all processes is logged; None: never.
        """
        limits: list[_Limit] = [(REPORTED_AFTER_S, functools.partial(self._report_slow_start, num_workers))]
        if stacks_after is not None:
            limits.append((stacks_after, self._tell_states))
        if blocked_after is not None:
            limits.append((max(blocked_after, LONGEST_START_S), self._end_all))
        has_ended = threading.Event()
        find_workers = functools.partial(_workers, _children(), mark.encode())
        arguments = (limits, find_workers, has_ended)
        thread = threading.Thread(target=self._watch, args=arguments, daemon=True, name="start watch")
        thread.start()
        try:
            yield
        finally:
            has_ended.set()

    def _watch(
        self, limits: list[_Limit], find_workers: Callable[[], set[int]], has_ended: threading.Event
    ) -> None:
        began = time.monotonic()
        while limits:
            limit, act = min(limits, key=operator.itemgetter(0))
            limits.remove((limit, act))
            if has_ended.wait(max(0.0, began + limit - time.monotonic())):
                return
            again = act(limit, find_workers())
            if again is not None:
                limits.append((again, act))

    def _report_slow_start(self, num_workers: int, limit: float, pids: set[int]) -> float:
        found = f"there are {len(pids)} processes"
        if starting_server() is not None:
            found = "the fork server still imports what they need"
        _logger.warning("Starting %d workers: after %g s %s.", num_workers, limit, found)
        return limit + _TOLD_EACH_S

    def _tell_states(self, limit: float, pids: set[int]) -> None:
        lines = [f"Workers have not started for {limit:g} s."]
        lines += [f"Worker process {pid}: {state_of(pid)}." for pid in sorted(pids)]
        lines.append(f"Main thread of process {os.getpid()}:\n{stack_of_main_thread()}")
        _logger.warning("%s", "\n".join(lines))

    def _end_all(self, limit: float, pids: set[int]) -> float:
        self.waited_s = self.waited_s or limit
        for pid in pids:
            _end(pid)
        return limit + _POLL_S  # the next one may not start either


def _end(pid: int) -> None:
    """Kill a process, and take what it was about to be sent: this process would wait for that indefinitely."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        os.kill(pid, signal.SIGKILL)
        handle = _PIPE.search(command)
        if handle is None:
            return
        number = int(handle[1])  # the same here, where it is closed once all was written
        pipe = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # it has ended
        return
    try:
        while stat.S_ISFIFO(os.fstat(pipe).st_mode) and _is_open(pipe, number):
            with contextlib.suppress(BlockingIOError):  # this process writes on when it finds that there is room
                while os.read(pipe, 1 << 20):
                    pass
            time.sleep(_SHORT_S)
    finally:
        os.close(pipe)


def _is_open(pipe: int, number: int) -> bool:
    """Whether a file descriptor of this process is still a pipe."""
    try:
        return os.path.samestat(os.fstat(pipe), os.fstat(number))
    except OSError:
        return False


def _children() -> set[int]:
    """Processes that `multiprocessing` has started in this one."""
    return {process.pid for process in multiprocessing.active_children() if process.pid is not None}


def _workers(others: set[int], mark: bytes) -> set[int]:
    """Workers that were started, and the fork server while it imports.

    One to which the input is just being sent is unknown to `multiprocessing` yet.
    """
    server = starting_server()
    return _children() - others | _spawned_with(mark) | (set() if server is None else {server})


def _spawned_with(mark: bytes) -> set[int]:
    """Spawned processes with a setting in their environment, also those that are just being started."""
    found = set()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            folder = Path("/proc", str(int(entry)))
            is_worker = _SPAWNED in (folder / "cmdline").read_bytes()
            if is_worker and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(entry))
    return found


_one_start_at_a_time = threading.Lock()  # the environment belongs to the whole process
_ADVICE = (
    "What it printed on stderr says why. Frequent causes: a module that cannot be imported in the worker, too "
    "little memory."
)
_REPORT_PATH_VARIABLE = "DALI_PIPELINE_FRAMEWORK_START_REPORT"


@contextlib.contextmanager
def starting_workers(
    num_workers: int,
    watch: WorkerWatch,
    control: ControlBlock,
    limits: tuple[float | None, float | None] = (None, None),
    server: ForkServer | None = None,
    *,
    needs_main: bool = True,
) -> Iterator[None]:
    """Around the code by which DALI starts its workers.

    Args:
        num_workers: How many there are to start.
        watch: Begins to watch as soon as they run.
        control: What they share with this process.
        limits: ``blocked_after`` and ``stacks_after`` of a `FaultPolicy`.
        server: What forks them; None: another start method.
        needs_main: Whether those that it forks import the main script in any case, else only where what they get
            names it.

    Raises:
        WorkerStartError: They could not be started; says why as far as a worker has reported it.
    """
    refuse_while_main_script_is_imported()
    prepare = functools.partial(prepare_worker_process, os.getpid(), is_main_thread())

    def make_context(names_main: bool) -> PreloadedContext:
        return PreloadedContext(cast(ForkServer, server), prepare, needs_main or names_main)

    start_watch, mark = StartWatch(), f"{_REPORT_PATH_VARIABLE}={control.start_report_path}"
    try:
        with (
            _one_start_at_a_time,
            forked_children_are_workers(),
            environment(_REPORT_PATH_VARIABLE, control.start_report_path),
            start_watch.watching(num_workers, mark, *limits),
            without_missing_main_script(),
            noting_pool(watch.begin, None if server is None else make_context),
        ):
            yield
    except SourcePicklingError:
        raise
    except (RuntimeError, EOFError, OSError) as error:
        reason = control.read_start_report()
        if start_watch.waited_s is not None:
            problem = f"The worker processes had not started after {start_watch.waited_s:g} s, and were ended."
            question = "Does the main script, which a spawned worker imports first, wait for something when it is"
            raise WorkerStartError(f"{problem} {question} imported?") from error
        if NO_SHARED_MEMORY in str(error):
            problem = f"The memory in which workers hand over batches could not be had: {error}"
            cause = "A limit of the system may be too small (`ulimit -f`, `ulimit -v`)."
            raise WorkerStartError(f"{problem} {cause} {REMEDY}.") from error
        if not reason and WORKERS_NOT_STARTED not in str(error) and isinstance(error, RuntimeError):
            raise  # not about a worker, e.g. DALI's refusal to fork after CUDA was initialised
        what = "The worker processes could not be started. "
        if reason:
            raise WorkerStartError(what + reason) from None
        codes = first_ended(watch)
        ended = [f"process {pid} {describe_exit_code(code, watch.kernel_counts)}" for pid, code in codes.items()]
        was_killed = any(code < 0 for code in codes.values())
        advice = "" if was_killed else f" {_ADVICE}"
        explained = WorkerStartError(
            f"{what}A worker ended while it was set up: {'; '.join(ended) or error}.{advice}"
        )
        explained.was_killed = was_killed
        raise explained from error


def refuse_while_main_script_is_imported() -> None:
    """Refuse to start workers in a process that is itself a worker and only imports the main script yet.

    A worker of a pipeline reports it to its parent, which raises the error, and ends at once: a traceback of each
    worker would bury the message, and code of the main script might catch an exception and go on.
    """
    if not getattr(multiprocessing.current_process(), "_inheriting", False):
        return
    message = (
        "The main script starts worker processes when it is imported. A spawned worker imports the main script "
        "first, so each worker would start workers of its own. Put the part of the script that runs things "
        'under a guard:\n\n    if __name__ == "__main__":\n        main()\n'
    )
    report_path = os.environ.get(_REPORT_PATH_VARIABLE)
    if report_path is not None:
        with contextlib.suppress(OSError):
            # All write the same. The parent may read what the first one wrote: it must not be cut off by the next.
            report = os.open(report_path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(report, message.encode())
            os._exit(1)
    raise WorkerStartError(message)


def warn_of_many_workers(num_workers: int, name: str) -> None:
    """Warn of more worker processes, given as an argument of that name, than this rank has usable cores."""
    num_cores = num_cores_of_rank()
    if num_workers > num_cores:
        warn_user(
            f"`{name}={num_workers}` starts {num_workers} worker processes, and this rank has {num_cores} usable "
            f"core{'s' * (num_cores > 1)}. Unless workers mostly wait for files or a network, they only slow each "
            f"other down, and each takes time to start and memory. Give {num_cores} or fewer; a DataLoader "
            f"with num_workers=None takes as many as there are usable cores, at most 8."
        )


def _renew_lock() -> None:
    """In a forked worker, which is started while the lock is held: a data provider may use a loader itself."""
    global _one_start_at_a_time
    _one_start_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
