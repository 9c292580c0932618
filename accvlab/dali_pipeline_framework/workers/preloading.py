# SPDX-License-Identifier: Apache-2.0
"""The fork server of `multiprocessing`, and what it imports once for all workers."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from multiprocessing import forkserver
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

_MOST_VALUES = 10_000
_MOST_ITEMS = 100  # of a list or dict: the others are of the same classes
_PLAIN = (str, bytes, int, float, complex, type(None), ModuleType)

_WORKER = "accvlab.dali_pipeline_framework.workers.process"
_END_WITH_PARENT = "accvlab.dali_pipeline_framework.workers.end_with_parent"


def start_fork_server(modules: Iterable[str] = ()) -> None:
    """Start the fork server of this program, unless it runs, and have it import modules first.

    It imports them while this process goes on. A program has one fork server: what another loader needs besides is
    imported by each of its workers. The kernel ends the server with the thread that calls this.

    Raises:
        OSError: There is no folder, or no memory, for its socket.
    """
    requested = list(getattr(getattr(forkserver, "_forkserver", None), "_preload_modules", ()))
    give_main_a_spec()
    multiprocessing.set_forkserver_preload([_END_WITH_PARENT, *requested, _WORKER, *modules])
    try:
        with without_vfork():
            forkserver.ensure_running()
    finally:
        multiprocessing.set_forkserver_preload(requested)


@contextlib.contextmanager
def without_vfork() -> Iterator[None]:
    """Around the start of a process: before Python 3.11.7, `vfork` stops all threads until its program runs."""
    if sys.version_info >= (3, 11, 7):
        yield
        return
    name = "_USE_VFORK"
    given = getattr(subprocess, name, True)
    setattr(subprocess, name, False)
    try:
        yield
    finally:
        setattr(subprocess, name, given)


def give_main_a_spec() -> None:
    """Give the main module the attribute that `multiprocessing` reads; Python's debugger leaves it without."""
    main = sys.modules["__main__"]
    if not hasattr(main, "__spec__"):
        main.__spec__ = None


def end_fork_server() -> None:
    """End the fork server, with all that it has started."""
    pid = server_pid()
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until then `multiprocessing` starts no other


def server_pid() -> int | None:
    """The process of the fork server; None if it does not run, or is not known."""
    pid: int | None = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    return pid


def needed_modules(*values: object) -> list[str]:
    """Names of the modules that a worker imports to unpickle values, as far as they are of installed packages.

    The user's own modules are looked through, but not preloaded: what they make when they are imported, e.g. a
    random generator, must not be the same in all workers.
    """
    found: dict[str, None] = {}
    waiting, seen = deque(_modules_of(values)), set()
    while waiting:
        name = waiting.popleft()
        module = sys.modules.get(name)
        if module is None or name in seen:
            continue
        seen.add(name)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__":
            continue
        if _is_installed(module):
            found[name] = None
            continue
        for value in [*vars(module).values()]:
            if isinstance(value, ModuleType):
                waiting.append(value.__name__)
            elif isinstance(value, type | FunctionType):
                waiting.append(value.__module__)
    return [*found]


def _is_installed(module: ModuleType) -> bool:
    if module.__name__.startswith("accvlab."):
        return True
    file = getattr(module, "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _modules_of(values: Iterable[object]) -> dict[str, None]:
    """Modules of the classes and functions that values consist of."""
    found: dict[str, None] = {}
    waiting, seen = deque(values), set[int]()
    while waiting and len(seen) < _MOST_VALUES:
        value: Any = waiting.popleft()
        kind = type(value)
        if issubclass(kind, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        is_definition = issubclass(kind, type | FunctionType)
        module = (value if is_definition else kind).__module__
        if isinstance(module, str):
            found[module] = None
        if issubclass(kind, dict):
            waiting.extend(islice(value.values(), _MOST_ITEMS))
        elif issubclass(kind, list | tuple | set | frozenset):
            waiting.extend(islice(value, _MOST_ITEMS))
        elif issubclass(kind, functools.partial):
            waiting += [value.func, value.args, value.keywords]
        elif issubclass(kind, MethodType):
            waiting += [value.__self__, value.__func__]
        elif not is_definition:
            waiting.extend(_attributes_of(value))
    return found


def _attributes_of(value: object) -> Iterator[object]:
    yield from [*getattr(value, "__dict__", {}).values()]
    for each in type(value).__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield getattr(value, name, None)
