# SPDX-License-Identifier: Apache-2.0
"""Watching over the start of worker processes, for which DALI waits without end.

A spawned worker starts an interpreter, imports the main script, and connects to this process. What it unpickles
and sets up behind that is watched by `WorkerWatch`.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .stacks import stack_of_main_thread, state_of

_logger = logging.getLogger(__name__)

LONGEST_START_S = 300.0  # many interpreters at once, that import large modules from a network file system
_POLL_S = 0.05
_SHORT_S = 0.001
_SPAWNED = b"--multiprocessing-fork"
_PIPE = re.compile(rb"pipe_handle=(\d+)")


class StartWatch:
    """Kills workers that do not start within a time.

    Attributes:
        waited_s: After how many seconds they were killed; None where they were not.
    """

    def __init__(self) -> None:
        """Watch for nothing yet."""
        self.waited_s: float | None = None

    @contextlib.contextmanager
    def watching(self, mark: str, blocked_after: float | None, stacks_after: float | None) -> Iterator[None]:
        """Around the start of workers.

        Args:
            mark: ``NAME=value`` in the environment of spawned workers, and of no other processes.
            blocked_after: Seconds after which one that loads stands still; None: it is waited for ever.
            stacks_after: Seconds after which the state of all processes is logged; None: never.
        """
        limits = []
        if stacks_after is not None:
            limits.append((stacks_after, False))
        if blocked_after is not None:
            limits.append((max(blocked_after, LONGEST_START_S), True))
        if not limits:
            yield
            return
        has_ended = threading.Event()
        arguments = (sorted(limits), mark.encode(), _children(), has_ended)
        thread = threading.Thread(target=self._watch, args=arguments, daemon=True, name="start watch")
        thread.start()
        try:
            yield
        finally:
            has_ended.set()

    def _watch(
        self, limits: list[tuple[float, bool]], mark: bytes, before: set[int], has_ended: threading.Event
    ) -> None:
        began = time.monotonic()
        for limit, is_last in limits:
            if has_ended.wait(began + limit - time.monotonic()):
                return
            # One to which the input is just being sent is not known to `multiprocessing` yet.
            pids = sorted(_children() - before | _spawned_with(mark))
            if not is_last:
                lines = [f"Workers have not started for {limit:g} s."]
                lines += [f"Worker process {pid}: {state_of(pid)}." for pid in pids]
                lines.append(f"Main thread of process {os.getpid()}:\n{stack_of_main_thread()}")
                _logger.warning("%s", "\n".join(lines))
                continue
            self.waited_s = limit
            while not has_ended.wait(_POLL_S):  # the next one may not start either
                for pid in _children() - before | _spawned_with(mark):
                    _end(pid)


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
