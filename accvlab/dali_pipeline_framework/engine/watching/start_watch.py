# SPDX-License-Identifier: Apache-2.0
"""Watching over the start of worker processes, for which DALI waits without end.

A spawned worker starts an interpreter, imports the main script, and connects to this process. What it unpickles
and sets up behind that is watched by `WorkerWatch`.
"""

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
from typing import TypeAlias

from .worker_watch import stack_of_main_thread, state_of

_logger = logging.getLogger(__name__)

LONGEST_START_S = 300.0  # many interpreters at once, that import large modules from a network file system
TOLD_AFTER_S = 5.0
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

    def __init__(self) -> None:
        """Watch for nothing yet."""
        self.waited_s: float | None = None

    @contextlib.contextmanager
    def watching(
        self, num_workers: int, mark: str, blocked_after: float | None, stacks_after: float | None
    ) -> Iterator[None]:
        """Around the start of workers.

        Args:
            num_workers: How many there are to start.
            mark: ``NAME=value`` in the environment of spawned workers, and of no other processes.
            blocked_after: Seconds after which one that loads stands still; None: it is waited for ever.
            stacks_after: Seconds after which the state of all processes is logged; None: never.
        """
        limits: list[_Limit] = [(TOLD_AFTER_S, functools.partial(self._tell, num_workers))]
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
        self,
        limits: list[_Limit],
        find_workers: Callable[[], set[int]],
        has_ended: threading.Event,
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

    def _tell(self, num_workers: int, limit: float, pids: set[int]) -> float:
        _logger.warning("Starting %d workers: after %g s there are %d processes.", num_workers, limit, len(pids))
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
    """Kill a process, and take what it was about to be sent: this process would wait for that for ever."""
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
    """Whether a number of a file of this process still stands for a pipe."""
    try:
        return os.path.samestat(os.fstat(pipe), os.fstat(number))
    except OSError:
        return False


def _children() -> set[int]:
    """Processes that `multiprocessing` has started in this one."""
    return {process.pid for process in multiprocessing.active_children() if process.pid is not None}


def _workers(others: set[int], mark: bytes) -> set[int]:
    """Workers that were started; one to which the input is just being sent is unknown to `multiprocessing` yet."""
    return _children() - others | _spawned_with(mark)


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
