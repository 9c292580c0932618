# SPDX-License-Identifier: Apache-2.0
"""What processes are at: stacks of workers on request, states from the kernel."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
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


def answer_requests(path: str) -> None:
    """Have this worker process write its stacks to a file on request, whatever it does then.

    The signal is handled without Python, so it works while C code holds the interpreter's lock.
    """
    with contextlib.suppress(OSError, RuntimeError):  # it only helps people
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        faulthandler.register(_SIGNAL, file=file, all_threads=True)


def stack_of(pid: int, path: str) -> str:
    """Get the stacks of a worker process, which writes them to a file; empty if it does not answer."""
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
    except OSError:  # it has ended
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


def state_letter(pid: int) -> str:
    """The state of a process, as the kernel abbreviates it: ``T`` for stopped, ``Z`` for ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "Z"


def state_of(pid: int) -> str:
    """What the kernel says about a process, in words."""
    letter = state_letter(pid)
    return _STATES.get(letter, f"its state is {letter}")


def stopped_in_its_start(thread: int) -> int | None:
    """The process that a thread of this one is starting, if it was stopped before it has executed its program.

    Until it has, the kernel has the thread wait.
    """
    if state_letter(thread) != "D":
        return None
    try:
        children = Path(f"/proc/self/task/{thread}/children").read_text().split()
    except OSError:  # the thread has ended, or the kernel does not list them
        return None
    return next((int(pid) for pid in children[-1:] if state_letter(int(pid)) == "T"), None)


def stack_of_main_thread() -> str:
    """What the main thread of this process executes."""
    return stack_of_thread(threading.main_thread().ident or 0)


def stack_of_thread(ident: int) -> str:
    """What a thread of this process executes."""
    frame = sys._current_frames().get(ident)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()
