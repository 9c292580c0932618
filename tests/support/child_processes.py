"""Processes that a test has started, and what they do where they do not end.

Without DALI, which the process that only distributes the tests need not import.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# What they fork has their command line.
_SERVERS = (b"multiprocessing.forkserver", b"support/script_server.py")


def worker_pids() -> list[int]:
    """Processes below this one that are alive, without the helpers of `multiprocessing`."""
    # Each test asks twice; psutil, which looks through all processes, would take half a minute of the suite.
    below = _below(os.getpid())
    return [pid for pid, parent in below if is_alive(pid) and not _is_helper(pid, parent)]


def _below(pid: int) -> list[tuple[int, int]]:
    """All processes below one, each with its parent and behind it."""
    found = [(pid, 0)]
    for parent, _ in found:  # which grows
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            for thread in os.listdir(f"/proc/{parent}/task"):
                found += [
                    (int(child), parent) for child in _read(f"/proc/{parent}/task/{thread}/children").split()
                ]
    return found[1:]


def is_alive(pid: int) -> bool:
    """Whether a process runs, or one of its threads: these may hold its files when the main thread has ended."""
    state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]
    if state == [b"Z"]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return len(os.listdir(f"/proc/{pid}/task")) > 1
    return state not in ([], [b"Z"])


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


# --- what does not end ------------------------------------------------------------------------------------


def end_with_stacks(pids: Iterable[int]) -> None:
    """Have processes and all below them write the stacks of their threads to stderr, and end.

    `faulthandler` does so on SIGABRT; `tests/conftest.py` switches it on in all that tests start. Each writes
    where it was when this was called: all are stopped meanwhile.
    """
    found = dict.fromkeys(each for pid in pids for each in (pid, *(below for below, _ in _below(pid))))
    _send(signal.SIGSTOP, found)
    for pid in reversed(found):  # else they would end with their parents, or these go on without them
        _send(signal.SIGABRT, [pid])
        _send(signal.SIGCONT, [pid])
        deadline = time.monotonic() + 2
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
    _send(signal.SIGKILL, found)


def _send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def communicate(process: Any, timeout: float | None = None, **how: Any) -> tuple[Any, Any]:
    """Get what a process prints to its end, with the stacks of its threads where it does not end in time.

    Args:
        process: The process.
        timeout: Seconds; None: those of the test.
        how: More arguments of its method of that name.

    Raises:
        AssertionError: It did not end in time.
    """
    try:
        return process.communicate(timeout=timeout, **how)
    except BaseException as error:  # also where the time of the whole test is up
        end_with_stacks([process.pid])
        with contextlib.suppress(subprocess.TimeoutExpired):
            printed = "\n".join(str(each) for each in process.communicate(timeout=10) if each)
            raise AssertionError(f"a process does not end: {error!r}\n{printed}") from error
        raise


def run_process(
    command: Sequence[object], *, timeout: float | None = None, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run` does, with texts that are captured, and with the stacks of what does not end."""
    given = {"input": how.pop("input")} if "input" in how else {}
    if given:
        how["stdin"] = subprocess.PIPE
    how = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    with subprocess.Popen([str(each) for each in command], **how) as process:
        stdout, stderr = communicate(process, timeout, **given)
    assert not check or process.returncode == 0, f"{process.returncode}: {stdout}\n{stderr}"
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def run_python(
    source: object, *arguments: object, env: Mapping[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[Any]:
    """Run code, or the file of a path, in a new process that finds all modules that this one finds."""
    command = [sys.executable, *([source] if isinstance(source, Path) else ["-c", textwrap.dedent(str(source))])]
    environment = {**(os.environ if env is None else env), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return run_process([*command, *arguments], env=environment, **{"timeout": 100, **how})


def join(processes: Iterable[Any], timeout: float) -> None:
    """Wait for processes of `multiprocessing`; those that have not ended by then write their stacks.

    Raises:
        AssertionError: They did not end in time.
    """
    deadline = time.monotonic() + timeout
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    left = [process for process in processes if process.is_alive()]
    end_with_stacks(process.pid for process in left)
    assert not left, f"have not ended within {timeout:g} s: {left}"
