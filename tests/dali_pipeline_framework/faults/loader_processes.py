"""Scripts with a loader that are ended, or have little shared memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from support.child_processes import communicate, run_process
from support.scripts import Script, start_script

GONE_WITHIN_S = 10.0


def script(tmp_path: Path, body: str, before: Sequence[str] = ()) -> Script | subprocess.Popen[str]:
    """Run lines with a loader of large samples; ``before`` is a command that runs the rest."""
    path = tmp_path / "script.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from support.fault_providers import *\nfrom support.pipelines import worker_pids\n"
        "from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy\n"
        "def loader(method, **arguments):\n"
        "    return DataLoader(LargeProvider(400), 4, num_workers=2, start_method=method, output_type='numpy',\n"
        "                      **arguments)\n"
        'if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(body), "    ")
    )
    if not before:
        return start_script(path, start_new_session=True)
    return subprocess.Popen(
        [*before, sys.executable, "-u", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left_in_shared_memory(before: set[str]) -> set[str]:
    """What is in /dev/shm that was not there before, and that no process uses: others use it meanwhile."""
    left = set(os.listdir("/dev/shm")) - before
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with contextlib.suppress(OSError):  # it has ended, or is that of another user
            left -= {*re.findall(r"/dev/shm/(\S+)", maps.read_text())}
    return left


def seconds_until_gone(pids: list[int], names: set[str], since: float) -> float:
    """How long after a time (`time.monotonic`) neither processes are left, nor what was not in /dev/shm before."""
    while any(map(psutil.pid_exists, pids)) or left_in_shared_memory(names):
        seconds = time.monotonic() - since
        assert seconds < 6 * GONE_WITHIN_S, ("something is left", pids, left_in_shared_memory(names))
        time.sleep(0.05)
    return time.monotonic() - since


ENDS = {
    "SIGKILL": "",
    "SIGTERM": "",
    "SIGINT": "",
    "SIGTERM, handled": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))",
    "exception in the loop": "raise ZeroDivisionError",
    "loader deleted": "del loop, used; print(worker_pids()); os._exit(0)",
    "end of the script": "sys.exit(0)",
}


def end_loader(folder: Path, method: str, end: str) -> float:
    """End a process with a loader. Returns how long after that nothing was left of its workers.

    A process that waits does so again and again: Python calls the handler of a signal that comes just before a
    call of the system begins, only after that.
    """
    waits, names = end.startswith("SIG"), set(os.listdir("/dev/shm"))
    started = script(
        folder,
        f"""
        {ENDS[end] if waits else ""}
        used = loader({method!r})
        loop = iter(used)
        next(loop)
        print(*worker_pids())
        {"while True: time.sleep(0.05)" if waits else ENDS[end]}
        """,
    )
    try:
        pids = started.stdout.readline().split()
        assert len(pids) == 2
        since = time.monotonic()
        if waits:
            started.send_signal(getattr(signal, end.partition(",")[0]))
        stdout, _ = communicate(started, 100)
        seconds = seconds_until_gone([*map(int, pids)], names, since)
        if end == "loader deleted":
            assert stdout == "[]\n"
        return seconds
    finally:
        started.kill()
        started.communicate()


def can_mount() -> bool:
    return run_process([*with_shared_memory("64k"), "true"]).returncode == 0


def outcome(tmp_path: Path, before: Sequence[str]) -> str:
    """What becomes of a loader of batches of 4 MiB, in a process that may have little shared memory.

    Number of batches or the error, and a line that tells after how long.
    """
    body = """
    start = time.monotonic()
    with loader("fork", faults=FaultPolicy(restarts=1)) as used:
        try:
            print(len([batch["index"][0] for batch in used]))
        except Exception as error:
            print(type(error).__name__, error)
        print(f"after {time.monotonic() - start:.2f} s")
    print(worker_pids())
    """
    started = script(tmp_path, body, before)
    try:
        stdout, stderr = communicate(started, 100)
    finally:
        started.kill()
    assert started.returncode == 0, (started.returncode, stdout, stderr)
    assert stdout.endswith("\n[]\n")
    return stdout


def with_shared_memory(size: str) -> list[str]:
    """The command that runs another one with a `/dev/shm` of that size."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$0" "$@"']


def with_file_limit(kib: int) -> list[str]:
    """The command that runs another one whose files may not be larger."""
    return ["sh", "-c", f'ulimit -f {2 * kib}; exec "$0" "$@"']
