# SPDX-License-Identifier: Apache-2.0
"""Processor time of processes and of threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_THREADS_OF_DALI = b"[DALI]"
# Kinds of clocks of Linux, in the lowest bits of their numbers; the others are the complement of the id.
_OF_PROCESS, _OF_THREAD = 2, 6


def processor_time_of_process(pid: int) -> int | None:
    """Processor time of a process with all its threads, in ns; None where there is no such process (any more)."""
    return _read(~pid << 3 | _OF_PROCESS)


def queued_time(thread: int) -> int:
    """Time in ns in which a thread could have run, but others had the cores; 0: unknown.

    The id of a process is that of its main thread.
    """
    try:
        return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def processor_time_of_threads(threads: Iterable[int]) -> int:
    """Processor time of threads of this process together, in ns, of those that still run."""
    return sum(_read(~thread << 3 | _OF_THREAD) or 0 for thread in threads)


def _read(clock: int) -> int | None:
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return None


def threads_of_process() -> set[int]:
    """All threads of this process."""
    try:
        return {int(thread) for thread in os.listdir("/proc/self/task")}
    except OSError:
        return set()


def threads_of_dali(threads: Iterable[int]) -> set[int]:
    """Those of some threads in which DALI runs operators; once they run, they give themselves names."""
    found = set()
    for thread in threads:
        try:
            if Path(f"/proc/self/task/{thread}/comm").read_bytes().startswith(_THREADS_OF_DALI):
                found.add(thread)
        except OSError:  # it has ended
            pass
    return found
