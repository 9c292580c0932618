# SPDX-License-Identifier: Apache-2.0
"""What worker processes execute, also where they stand still: stacks, which they write when a signal asks them."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

_SIGNAL = signal.SIGRTMAX - 4  # neither PyTorch, nor OpenMP, nor any debugger uses it
_LONGEST_WAIT_S = 1.0
_POLL_S = 0.02

_STATES = {
    "R": "it computes",
    "S": "it sleeps",
    "D": "it waits for a disk or a network file system",
    "T": "it was stopped by a signal",
    "t": "it was stopped by a debugger",
    "Z": "it has ended",
}

_answering_pid: int | None = None


def answer_requests(path: str) -> None:
    """Have this worker process write its stacks to a file whenever it is asked, whatever it does then.

    The signal is handled without Python, so it works while C code holds the interpreter's lock.

    Args:
        path: The file; several processes may write to it.
    """
    global _answering_pid
    if _answering_pid == os.getpid():
        return
    _answering_pid = os.getpid()
    with contextlib.suppress(OSError, RuntimeError):  # it only helps people
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        faulthandler.register(_SIGNAL, file=file, all_threads=True)


def stacks_of_workers(pids: Iterable[int], path: str) -> dict[int, str]:
    """Ask worker processes for their stacks, one after the other; get the state of those that do not answer.

    Args:
        pids: The workers.
        path: The file to which they write.
    """
    return {pid: _stack_of(pid, path) or f"  (no answer; {state_of(pid)})" for pid in pids}


def _stack_of(pid: int, path: str) -> str:
    if not _answers(pid):
        return ""
    try:
        os.truncate(path, 0)
        os.kill(pid, _SIGNAL)
        deadline, last = time.monotonic() + _LONGEST_WAIT_S, b""
        while time.monotonic() < deadline:
            time.sleep(_POLL_S)
            text = Path(path).read_bytes()
            if text and text == last:
                break
            last = text
    except OSError:  # it has ended, or the pipeline was closed
        return ""
    return last.decode(errors="replace").rstrip()


def _answers(pid: int) -> bool:
    """Whether a process handles the signal: one that does not would be ended by it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith(b"SigCgt:")), b"0")
    return bool(int(caught, 16) >> (_SIGNAL - 1) & 1)


def state_of(pid: int) -> str:
    """What the kernel says about a process, in words."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return _STATES["Z"]
    return _STATES.get(state, f"its state is {state}")


def stack_of_main_thread() -> str:
    """What the main thread of this process executes."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()
