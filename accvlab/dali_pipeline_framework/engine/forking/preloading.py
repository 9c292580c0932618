# SPDX-License-Identifier: Apache-2.0
"""Imported by a fork server before it starts workers: imports what they need, if forking stays safe after it."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import warnings

VARIABLE = "DALI_PIPELINE_FRAMEWORK_PRELOAD"
"""In the environment of a fork server, as JSON: its ``sys_path``, ``modules``, ``excluded``, a ``report`` file."""

_LONGEST_END_S = 5.0


def end_with_program(alive_fd: int) -> None:
    """Have the kernel end this process as soon as no process has the other end of a pipe open.

    It must not need a thread, which forked workers would lack, nor wait until a module is imported: what this
    process has open, e.g. the standard output, is kept open meanwhile. SIGIO ends a process that does not handle
    it.
    """
    fcntl.fcntl(alive_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(alive_fd, fcntl.F_SETFL, fcntl.fcntl(alive_fd, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(alive_fd, 0)
    if poll.poll(0):  # the program has ended before that
        os._exit(0)


def ends_in_time(child: int) -> bool:
    """Wait until a child process has ended; kill one that has not within seconds."""
    deadline = time.monotonic() + _LONGEST_END_S
    with contextlib.suppress(ChildProcessError):  # somebody else has waited for it
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
            time.sleep(0.001)
    return True


def preload(options: dict[str, object], alive_fd: int) -> None:
    """Import the modules that a program has requested.

    A module that starts threads, or after which forking gives a warning, is left to the workers: then this
    process begins anew without it.
    """
    end_with_program(alive_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the program, not before
    sys.path[:] = options["sys_path"]  # type: ignore[call-overload]
    excluded: list[str] = options["excluded"]  # type: ignore[assignment]
    seconds: dict[str, float] = {}
    gc.disable()  # imports make hardly any garbage, and take a sixth less time without looking for it
    for name in options["modules"]:  # type: ignore[attr-defined]
        package = name.partition(".")[0]
        if package in excluded:
            continue
        began, num_threads = time.monotonic(), _count_threads()
        with contextlib.suppress(BaseException):  # a worker that needs it says what is wrong
            importlib.import_module(name)
        seconds[package] = seconds.get(package, 0.0) + time.monotonic() - began
        if (_count_threads() > num_threads or _uses_cuda()) and not _can_fork():
            _begin_without(options, package)
    if not _can_fork():
        _begin_without(options, *seconds)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # else each worker would print it again
    gc.freeze()  # else the garbage collector of each worker would copy this memory
    gc.enable()
    with contextlib.suppress(OSError):  # the program ends
        report = os.open(str(options["report"]), os.O_WRONLY | os.O_CLOEXEC)
        os.write(report, json.dumps({"seconds": seconds, "excluded": excluded}).encode())
        os.close(report)


def _count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _can_fork() -> bool:
    """Fork once: libraries that know of forks end their threads then, e.g. OpenBLAS; others, e.g. JAX, warn."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        has_ended = ends_in_time(pid)
    return has_ended and not caught and _count_threads() == 1 and not _uses_cuda()


def _uses_cuda() -> bool:
    """Whether CUDA was initialised, e.g. by code at the top of a module: workers could not use it any more."""
    backend = sys.modules.get("nvidia.dali.backend")
    return backend is not None and bool(backend.IsDriverInitialized())


def _begin_without(options: dict[str, object], *packages: str) -> None:
    excluded = [*options["excluded"], *packages]  # type: ignore[misc]
    os.environ[VARIABLE] = json.dumps({**options, "excluded": excluded})
    os.execv(sys.executable, sys.orig_argv)


def _alive_fd() -> int | None:
    """The pipe by which a fork server notices that its program has ended; None in another process."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and "alive_r" in frame.f_locals:
            found: int = frame.f_locals["alive_r"]
            return found
        frame = frame.f_back  # type: ignore[assignment]
    return None


_options, _fd = os.environ.pop(VARIABLE, None), _alive_fd()
if _options is not None and _fd is not None:
    preload(json.loads(_options), _fd)
