"""Forks processes that run scripts, so that these need not start Python and import DALI, which takes a second.

    python script_server.py CONTROL MODULE [MODULE ...]

``CONTROL`` is the number of a socket. For each script, a line of JSON comes, and with it the files that are to be
its standard streams, and a socket that is told its process id, and how it has ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import types
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each script that is asked for, and tell how they end.

    Returns:
        In such a process: what it is to run. In the server: None, when nobody can ask any more.
    """
    running: dict[int, tuple[int, socket.socket]] = {}  # by the file that tells that a process has ended
    while True:
        ready, _, _ = select.select([control.fileno(), *running], [], [])
        for ended in running.keys() & ready:
            pid, answer = running.pop(ended)
            _, status = os.waitpid(pid, 0)
            os.close(ended)
            _tell(answer, os.waitstatus_to_exitcode(status))
            answer.close()
        if control.fileno() not in ready:
            continue
        message, files, _, _ = socket.recv_fds(control, _MOST_BYTES, 4)
        if not message:
            return None
        *streams, told = files
        pid = os.fork()
        if pid == 0:
            faulthandler.enable(os.dup(2))  # what it says where it hangs is for who runs the tests
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for ended, (_, answer) in running.items():
                os.close(ended)
                answer.close()
            for file in files:
                os.close(file)
            control.close()
            job: dict[str, Any] = json.loads(message)
            return job
        for stream in streams:
            os.close(stream)
        answer = socket.socket(fileno=told)
        running[os.pidfd_open(pid)] = pid, answer
        _tell(answer, pid)


def _tell(answer: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
        answer.sendall(b"%d\n" % number)


def become(job: dict[str, Any]) -> types.ModuleType:
    """Be a process that has just been started; returns the module in which the script runs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if job["start_new_session"]:
        os.setsid()
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv[:] = [job["script"], *job["arguments"]]
    more = filter(None, job["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [str(Path(job["script"]).parent), *more]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    main = types.ModuleType("__main__")
    main.__file__ = job["script"]
    sys.modules["__main__"] = main  # until the interpreter ends, as for a script
    return main


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    given = serve(socket.socket(fileno=int(sys.argv[1])))
    if given is None:
        os._exit(0)  # to free what was imported takes seconds
    code = compile(Path(given["script"]).read_bytes(), given["script"], "exec")
    exec(code, vars(become(given)))
