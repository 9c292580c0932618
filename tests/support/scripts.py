"""Scripts in processes of their own, which need not import DALI, see `script_server`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from support.child_processes import communicate, end_with_stacks

SERVER = Path(__file__).with_name("script_server.py")
_NAME = "accvlab.dali_pipeline_framework"
# What making and closing pipelines imports.
_MODULES = (
    "nvidia.dali.fn",
    "nvidia.dali._multiproc.worker",
    "psutil",
    f"{_NAME}.pipeline",
    f"{_NAME}.inputs",
    f"{_NAME}.loader.data_loader",
    f"{_NAME}.engine.input_sources",
    f"{_NAME}.workers.local",
    "support.pipelines",
    "support.providers",
)


class Script:
    """A process that runs a script, with the methods of `subprocess.Popen` that tests use.

    Where it does not end in time, it writes the stacks of its threads to stderr of the tests, and ends.
    """

    def __init__(self, pid: int, answer: socket.socket, stdout: IO[str], stderr: IO[str]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._answer = answer
        self._printed = ["", ""]
        files = enumerate((stdout, stderr))
        self._readers = [threading.Thread(target=self._read, args=each, daemon=True) for each in files]

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._answer.settimeout(timeout)
            try:
                self.returncode = _number(self._answer)
            except TimeoutError:
                end_with_stacks([self.pid])
                raise subprocess.TimeoutExpired("a script", timeout or 0) from None
            self._answer.close()
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._answer], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        deadline = None if timeout is None else time.monotonic() + timeout
        for reader in self._readers:
            if reader.ident is None:
                reader.start()
        for reader in self._readers:
            reader.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if any(reader.is_alive() for reader in self._readers):
            end_with_stacks([self.pid])
            raise subprocess.TimeoutExpired("a script", timeout or 0)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        stdout, stderr = self._printed
        return stdout, stderr

    def _read(self, number: int, file: IO[str]) -> None:
        with file:
            self._printed[number] = file.read()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    start_new_session: bool = False,
    modules: tuple[str, ...] = (),
) -> Script:
    """Run a script as `subprocess.Popen` would, with pipes for what it prints.

    Args:
        modules: What the server has imported, beside what pipelines need.
    """
    job = {
        "script": str(script),
        "arguments": [*arguments],
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "start_new_session": start_new_session,
    }
    control = _server(modules)
    outputs = [os.pipe() for _ in range(2)]
    mine, answer = socket.socketpair()
    with open(os.devnull, "rb") as stdin:
        files = [stdin.fileno(), *(end for _, end in outputs), answer.fileno()]
        socket.send_fds(control, [json.dumps(job).encode()], files)
    answer.close()
    for _, end in outputs:
        os.close(end)
    stdout, stderr = (os.fdopen(end) for end, _ in outputs)
    return Script(_number(mine), mine, stdout, stderr)


def run_script(script: Path, *arguments: str, timeout: float, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, as `subprocess.run` would, see `start_script`."""
    process = start_script(script, arguments, **how)
    try:
        stdout, stderr = communicate(process, timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess([str(script), *arguments], process.wait(), stdout, stderr)


@functools.cache
def _server(modules: tuple[str, ...]) -> socket.socket:
    mine, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    paths = os.pathsep.join([str(SERVER.parents[1]), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(control.fileno()), *_MODULES, *modules],
        env={**os.environ, "PYTHONPATH": paths},
        pass_fds=[control.fileno()],
    )
    control.close()

    def end() -> None:
        mine.close()
        process.wait(10)

    atexit.register(end)
    return mine


def messages(stderr: str) -> list[str]:
    """Lines of a script, but for what is logged where the machine is busy and workers take long to start."""
    return [line for line in stderr.splitlines() if not re.match(r"Starting \d+ workers: after \d+ s", line)]


def _number(answer: socket.socket) -> int:
    """The next line of an answer."""
    line = b""
    while not line.endswith(b"\n"):
        more = answer.recv(1)
        assert more, "the server of scripts has ended"
        line += more
    return int(line)
