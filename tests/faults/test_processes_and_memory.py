"""What is left of a loader when its process ends, and what is said where shared memory is too small."""

from __future__ import annotations

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
import pytest

pytestmark = pytest.mark.timeout(60)

GONE_WITHIN_S = 10.0


def script(tmp_path: Path, body: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Run lines with a loader of large samples; ``before`` is a command that runs the rest."""
    path = tmp_path / "script.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from support.fault_providers import *\nfrom support.pipelines import worker_pids\n"
        "from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy\n"
        "from accvlab.dali_pipeline_framework.engine.watching.pool import queues_of\n"
        "def loader(method, **arguments):\n"
        "    return DataLoader(LargeProvider(400), 4, num_workers=2, start_method=method, output_type='numpy',\n"
        "                      **arguments)\n"
        'if __name__ == "__main__":\n' + textwrap.indent(textwrap.dedent(body), "    ")
    )
    return subprocess.Popen(
        [*before, sys.executable, "-u", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_gone(pids: list[int], semaphores: list[str]) -> bool:
    deadline = time.monotonic() + GONE_WITHIN_S
    names = [f"sem.{name.lstrip('/')}" for name in semaphores]
    while any(map(psutil.pid_exists, pids)) or not set(os.listdir("/dev/shm")).isdisjoint(names):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


ENDS = {
    "SIGKILL": "",
    "SIGTERM": "",
    "SIGTERM, handled": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))",
    "exception in the loop": "raise ZeroDivisionError",
    "deleted": "del loop, used; print(worker_pids()); os._exit(0)",
    "end of the script": "sys.exit(0)",
}


@pytest.mark.parametrize(
    ("method", "end"),
    [
        *[("fork", end) for end in ENDS],
        ("spawn", "SIGKILL"),
        *[pytest.param("spawn", end, marks=pytest.mark.wide) for end in ENDS if end != "SIGKILL"],
    ],
)
def test_neither_workers_nor_shared_memory_are_left(tmp_path: Path, method: str, end: str) -> None:
    waits = end.startswith("SIG")
    started = script(
        tmp_path,
        f"""
        {ENDS[end] if waits else ""}
        used = loader({method!r})
        loop = iter(used)
        next(loop)
        queues = queues_of(used._run.pipeline._py_pool.pool)
        print(*worker_pids(), *[queue.lock._semlock.name for queue in queues])
        {"time.sleep(100)" if waits else ENDS[end]}
        """,
    )
    try:
        *pids, first, second = started.stdout.readline().split()
        assert len(pids) == 2
        if waits:
            started.send_signal(getattr(signal, end[:7]))
        stdout, stderr = started.communicate(timeout=30)
        assert is_gone([*map(int, pids)], [first, second]), stderr
        if end == "deleted":
            assert stdout == "[]\n"
    finally:
        started.kill()
        started.communicate()


def can_mount() -> bool:
    command = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    return subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, check=False).returncode == 0


def outcome(tmp_path: Path, before: Sequence[str]) -> str:
    """What becomes of a loader of batches of 4 MiB, in a process that may have little shared memory."""
    body = """
    with loader("fork", faults=FaultPolicy(restarts=1)) as used:
        try:
            print(len([batch["index"][0] for batch in used]))
        except Exception as error:
            print(type(error).__name__, error)
    print(worker_pids())
    """
    started = script(tmp_path, body, before)
    try:
        stdout, stderr = started.communicate(timeout=50)
    finally:
        started.kill()
    assert started.returncode == 0, (started.returncode, stdout, stderr)
    assert stdout.endswith("\n[]\n")
    return stdout


NEEDED = r"64 KiB are needed to begin with, .*; 40 KiB are free\. Make it larger \(docker: --shm-size"
LITTLE = {
    "40k": rf"WorkerStartError Workers hand over batches in shared memory \(/dev/shm\): {NEEDED}",
    "120k": r"WorkerStartError Workers hand over .*; \d+ KiB are free\. Make it larger",
    "6m": r"WorkerDiedError .* ended by SIGBUS \(usually because /dev/shm is too small, .* MiB by now, and 0\.\d "
    r"MiB are left in /dev/shm\. Make it larger",
    "64m": r"100\n",
}


@pytest.mark.parametrize("size", LITTLE)
def test_little_shared_memory(tmp_path: Path, size: str) -> None:
    if not can_mount():
        pytest.skip("mounting a small /dev/shm needs the right to do so")
    mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm"
    told = outcome(tmp_path, ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$@"'])
    assert re.match(LITTLE[size], told, re.DOTALL), told


@pytest.mark.parametrize(
    ("kib", "told"),
    [
        (500, r"WorkerStartError The memory in which .* could not be had: .*ulimit -f"),
        (3000, "WorkerDiedError .*exited with code 0 .it could not hand over what it has loaded"),
    ],
)
def test_limits_of_the_system(tmp_path: Path, kib: int, told: str) -> None:
    limited = outcome(tmp_path, ["sh", "-c", f'ulimit -f {2 * kib}; exec "$0" "$@"'])
    assert re.match(told, limited, re.DOTALL), limited
