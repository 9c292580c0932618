# SPDX-License-Identifier: Apache-2.0
"""A process of this library that imports once what workers need, and forks them.

It is a fresh process: it has no threads and never touches CUDA, whatever the program does. `multiprocessing` has
one fork server for a program, whose imports are given before it starts; here another one takes its place where
workers need packages that it lacks.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from multiprocessing import context, forkserver, popen_forkserver, process, spawn, util
from pathlib import Path
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import attrs

from .preloading import VARIABLE, ends_in_time

_PRELOADING = "accvlab.dali_pipeline_framework.engine.forking.preloading"
_ALWAYS = ("nvidia.dali._multiproc.worker", "accvlab.dali_pipeline_framework.engine.worker_source", __name__)
_MOST_VALUES = 10_000
_MOST_ITEMS = 100  # of a list or dict: the others are of the same classes
_PLAIN = (str, bytes, int, float, complex, type(None), ModuleType)


class ForkServer:
    """A fork server and what it has imported.

    Attributes:
        packages: Names of the packages of which it imports modules.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        """Start it; this does not wait until it has imported the modules."""
        self._modules = [*modules]
        self.packages = {name.partition(".")[0] for name in self._modules}
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload([_PRELOADING])
        self._report = os.memfd_create("dali_pipeline_framework_imports", os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, _end, os.getpid(), self._server, self._report)
        self.close.atexit = False  # workers end before it
        _all.add(self)
        self.start()

    def start(self) -> None:
        """Start it again if it has ended."""
        before = self._pid
        options = {
            "sys_path": [path or os.getcwd() for path in sys.path if isinstance(path, str)],
            "modules": self._modules,
            "excluded": [],
            "report": f"/proc/{os.getpid()}/fd/{self._report}",
        }
        # Else a file in the current folder, e.g. json.py, would be imported in place of a module of Python.
        with environment(VARIABLE, json.dumps(options)), environment("PYTHONSAFEPATH", "1"):
            self._server.ensure_running()
        if self._pid != before:
            os.ftruncate(self._report, 0)

    def connect_to_new_process(self, fds: list[int]) -> Any:
        """Fork a worker; see `multiprocessing.forkserver.ForkServer.connect_to_new_process`."""
        self.start()
        return self._server.connect_to_new_process(fds)

    @property
    def seconds(self) -> Mapping[str, float] | None:
        """How long it has imported each package; None where it has not finished."""
        text = os.pread(self._report, 1 << 20, 0)
        found: dict[str, float] | None = json.loads(text)["seconds"] if text else None
        return found

    @property
    def starting_pid(self) -> int | None:
        """Its process while that imports; None later."""
        return self._pid if self.seconds is None else None

    @property
    def _pid(self) -> int | None:
        pid: int | None = getattr(self._server, "_forkserver_pid", None)
        return pid


def _end(pid: int, server: Any, report: int) -> None:
    alive_fd, server._forkserver_alive_fd = server._forkserver_alive_fd, None
    if alive_fd is not None:  # a forked child must not keep it running, either
        os.close(alive_fd)
    os.close(report)
    if os.getpid() == pid and server._forkserver_pid is not None:
        # Else it would stay as a zombie. It does not end by itself where a process that a worker left is there.
        ends_in_time(server._forkserver_pid)


_all: weakref.WeakSet[ForkServer] = weakref.WeakSet()
_lock = threading.Lock()
_current: ForkServer | None = None


def fork_server_for(*values: object) -> ForkServer | None:
    """Get the fork server of this program, started with what pickles of some values need.

    Returns:
        None in a worker process that imports the main script: it must not start processes.
    """
    global _current
    if getattr(process.current_process(), "_inheriting", False):
        return None
    modules = dict.fromkeys([*_ALWAYS, *_requested_of_python(), *needed_modules(*values)])
    with _lock:
        if _current is None or not {name.partition(".")[0] for name in modules} <= _current.packages:
            known = () if _current is None else _current._modules
            # The one before it ends once its workers have ended: they hold it.
            _current = ForkServer(dict.fromkeys([*known, *modules]))
        return _current


def starting_server() -> int | None:
    """The process of the fork server while that imports; None where there is none."""
    server = _current
    return None if server is None else server.starting_pid


def _requested_of_python() -> list[str]:
    """What `multiprocessing.set_forkserver_preload` was given."""
    requested = getattr(getattr(forkserver, "_forkserver", None), "_preload_modules", ())
    return [name for name in requested if name != "__main__"]


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Have a variable in the environment, of which there is one for the whole process."""
    previous = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if previous is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = previous


# --- workers -----------------------------------------------------------------------------------------


class PreloadedContext(context.ForkServerContext):
    """Start method ``forkserver`` of `multiprocessing`, with a fork server of this library."""

    def __init__(self, server: ForkServer, prepare: Callable[[], None], needs_main: bool) -> None:
        """Make a context.

        Args:
            server: What forks the workers.
            prepare: Called by each worker, before it imports or unpickles anything else.
            needs_main: Whether workers import the main script.
        """
        super().__init__()
        self._origin = server, prepare, needs_main

    def Process(self, *args: Any, **kwargs: Any) -> PreloadedProcess:  # type: ignore[override]
        """Make a process of this context."""
        made = PreloadedProcess(*args, **kwargs)
        made.origin = self._origin
        return made


class PreloadedProcess(context.ForkServerProcess):
    """A worker that is forked by a fork server of this library."""

    origin: tuple[ForkServer, Callable[[], None], bool] | None = None

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _Popen(process_obj)


class _Popen(popen_forkserver.Popen):
    def _launch(self, process_obj: Any) -> None:
        self.server, prepare, needs_main = process_obj.__dict__.pop("origin")
        get_data = functools.partial(_preparation_data, prepare, needs_main)
        names = {
            **vars(popen_forkserver),
            "forkserver": SimpleNamespace(
                connect_to_new_process=self.server.connect_to_new_process, read_signed=forkserver.read_signed
            ),
            "spawn": SimpleNamespace(get_preparation_data=get_data),
        }
        # What Python does, with another server.
        launch: Any = vars(popen_forkserver.Popen)["_launch"]
        FunctionType(launch.__code__, names)(self, process_obj)


def _preparation_data(prepare: Callable[[], None], needs_main: bool, name: str) -> dict[str, Any]:
    """What a worker does first: it gets the environment of now, not that in which the server was started."""
    data = spawn.get_preparation_data(name)
    if not needs_main:
        data = {key: value for key, value in data.items() if not key.startswith("init_main")}
    return {"entry": _Entry(dict(os.environ), prepare), **data}


@attrs.frozen
class _Entry:
    """Unpickled by a worker before it imports the main script."""

    environment: Mapping[str, str]
    prepare: Callable[[], None]

    def __reduce__(self) -> Any:
        return _enter, (self.environment, self.prepare)


def _enter(variables: Mapping[str, str], prepare: Callable[[], None]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    prepare()


# --- what workers need ---------------------------------------------------------------------------------


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


def _end_all() -> None:
    global _current
    _current = None
    for server in [*_all]:
        server.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _end_all()


util.Finalize(None, _end_all, exitpriority=-1)  # once the workers have ended
os.register_at_fork(after_in_child=_after_fork)
