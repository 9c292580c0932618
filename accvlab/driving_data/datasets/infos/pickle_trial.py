# SPDX-License-Identifier: Apache-2.0
"""Loading of a pickle in a child process first, which the system ends at a limit of time or memory.

A value that was made once can be named again and again, so some hundred bytes can stand for 2**40 elements::

    a = (1, 1)     b = (a, a)     c = (b, b)     ...

To hash such a tuple, as a key of a dict, Python goes through all of them, in one call that nothing in its process
can stop. For a tuple in a tuple in a tuple ..., it calls itself for each level without counting, until the process
crashes. So a pickle is loaded only after a child has loaded it, with less memory for calls.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any, Final

from accvlab.dali_pipeline_framework.threads import called_in_thread

from .pickled_values import LimitError, unpickled

_NO_MEMORY: Final = 3  # exit code
_SECONDS: Final = 1.0
_BYTES_PER_SECOND: Final = 1 << 22  # those of data sets are loaded ten times as fast
_MEMORY: Final = 1 << 28
_MEMORY_PER_BYTE: Final = 200  # an empty list or dict is one byte
_STACK_BYTES: Final = 1 << 24
_SLOWEST: Final = 30.0  # seconds for a second of processor time

_CHILD = "import sys; sys.path[:] = {path!r}; from {module} import run; run({file}, {seconds!r})"


def try_to_load(data: bytes) -> None:
    """Have a child process load a pickle and forget what it has loaded.

    Raises:
        LimitError: The child needed too much time, memory or levels.
    """
    seconds = _SECONDS + len(data) / _BYTES_PER_SECOND
    with open(os.memfd_create("pickle"), "wb") as file:
        file.write(data)
        file.flush()
        descriptor = file.fileno()
        script = _CHILD.format(path=sys.path, module=__name__, file=descriptor, seconds=seconds)
        command = [os.fsdecode(spawn.get_executable()), "-c", script]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                pass_fds=[descriptor],
                timeout=_SLOWEST * (1 + seconds),
            )
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as expired:
            code, said = -signal.SIGPROF, expired.stderr or b""
    if code:
        raise LimitError(_reason(code, len(data), seconds, said.decode(errors="replace")))


def _reason(code: int, size: int, seconds: float, said: str) -> str:
    of_size = f"for a pickle of {size} bytes"
    if code == -signal.SIGPROF:
        return (
            f"it takes more than {seconds:.3g} s, the limit {of_size}: its values repeat each other so often that "
            f"they stand for far more elements than it has"
        )
    if code == _NO_MEMORY:
        most = f"{_most_memory(size) >> 20} MiB of memory, the limit {of_size}"
        return f"it takes more than {most}, or more than there is"
    if code == -signal.SIGSEGV:
        return "its values are nested so deep that Python crashes"
    return f"a process that was to try it ended with exit code {code}: {said.strip() or 'it said nothing'}"


def _most_memory(size: int) -> int:
    return _MEMORY + _MEMORY_PER_BYTE * size


def loaded_in_thread(load: Callable[[], Any], stack_bytes: int = 2 * _STACK_BYTES) -> Any:
    """Load a pickle with memory for more levels than it has had in the child."""
    return called_in_thread(load, "unpickling", stack_bytes).result()


def run(descriptor: int, seconds: float) -> None:
    """Load a pickle in this process, which ends at the limits; other errors are left to who loads it then."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        data = file.read()
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    limits = [used + _STACK_BYTES + _most_memory(len(data)), *resource.getrlimit(resource.RLIMIT_AS)]
    most = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        loaded_in_thread(lambda: unpickled(data), _STACK_BYTES)
    except MemoryError:
        os._exit(_NO_MEMORY)
    except Exception:
        pass
    os._exit(0)  # without the time that it takes to destroy what was loaded
