"""Scripts in processes of their own, which need not import DALI, see `script_server`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import select
import selectors
import signal
import socket
import subprocess
import sys
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

    def __init__(self, pid: int, answer: socket.socket, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = _Output(stdout)
        self.stderr = _Output(stderr)
        self._answer = answer

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
        with selectors.DefaultSelector() as selector:
            for output in (self.stdout, self.stderr):
                if not output.file.closed:
                    selector.register(output.file, selectors.EVENT_READ, output)
            while selector.get_map():
                ready = selector.select(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if not ready:
                    end_with_stacks([self.pid])
                    raise subprocess.TimeoutExpired("a script", timeout or 0)
                for key, _ in ready:
                    if not key.data.read_more():
                        selector.unregister(key.fileobj)
                        key.data.file.close()
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self.stdout.rest(), self.stderr.rest()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Output:
    """What a script has printed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._read = b""

    def read_more(self) -> bool:
        content = os.read(self.file.fileno(), 1 << 16)
        self._read += content
        return bool(content)

    def readline(self) -> str:
        while b"\n" not in self._read and self.read_more():
            pass
        line, end, self._read = self._read.partition(b"\n")
        return (line + end).decode()

    def rest(self) -> str:
        read, self._read = self._read, b""
        return read.decode()


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
    stdout, stderr = (os.fdopen(end, "rb", buffering=0) for end, _ in outputs)
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
