"""Which processes a test has started; without DALI, which what only distributes the tests need not import."""

from __future__ import annotations

import contextlib
import os

# What they fork has their command line.
_SERVERS = (b"multiprocessing.forkserver", b"support/script_server.py")


def worker_pids() -> list[int]:
    """Processes below this one that are alive, without the helpers of `multiprocessing`."""
    # Each test asks twice; psutil, which looks through all processes, would take half a minute of the suite.
    found, parents = [], [os.getpid()]
    while parents:
        parent = parents.pop()
        with contextlib.suppress(FileNotFoundError):  # the process has ended meanwhile
            for thread in os.listdir(f"/proc/{parent}/task"):
                pids = [int(pid) for pid in _read(f"/proc/{parent}/task/{thread}/children").split()]
                parents += pids
                found += [pid for pid in pids if _is_alive(pid) and not _is_helper(pid, parent)]
    return found


def _is_alive(pid: int) -> bool:
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


def _is_helper(pid: int, parent: int) -> bool:
    command = _read(f"/proc/{pid}/cmdline")
    if any(server in command for server in _SERVERS):
        of_parent = _read(f"/proc/{parent}/cmdline")
        return any(server in command and server not in of_parent for server in _SERVERS)
    return b"resource_tracker" in command


def _read(path: str) -> bytes:
    """What the kernel says; nothing about a process or thread that has ended."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""
