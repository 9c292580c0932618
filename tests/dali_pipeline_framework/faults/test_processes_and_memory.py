"""What is left of a loader when its process ends, and what is said where shared memory is too small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loader_processes import (
    ENDS,
    can_mount,
    end_loader,
    outcome,
    with_file_limit,
    with_shared_memory,
)
from support.laws import some


@pytest.mark.parametrize(
    ("method", "end"),
    [
        *[("fork", end) for end in ENDS],
        ("spawn", "SIGKILL"),
        *[pytest.param("spawn", end, marks=pytest.mark.wide) for end in ENDS if end != "SIGKILL"],
    ],
)
def test_neither_workers_nor_shared_memory_are_left(tmp_path: Path, method: str, end: str) -> None:
    end_loader(tmp_path, method, end)


NEEDED = r"64 KiB are needed to begin with, .*; 40 KiB are free\. Make it larger \(docker: --shm-size"
LITTLE = {
    "40k": rf"WorkerStartError Workers hand over batches in shared memory \(/dev/shm\): {NEEDED}",
    "120k": r"WorkerStartError Workers hand over .*; \d+ KiB are free\. Make it larger",
    "6m": r"WorkerDiedError .* ended by SIGBUS \(usually because /dev/shm is too small, .* MiB by now, and 0\.\d "
    r"MiB are left in /dev/shm\. Make it larger",
    "64m": r"100\n",
}


@some("size", LITTLE, {0, 2})
def test_little_shared_memory(tmp_path: Path, size: str) -> None:
    if not can_mount():
        pytest.skip("mounting a small /dev/shm needs the right to do so")
    told = outcome(tmp_path, with_shared_memory(size))
    assert re.match(LITTLE[size], told, re.DOTALL), told


@pytest.mark.wide
@some(
    ("kib", "told"),
    [
        (500, r"WorkerStartError The memory in which .* could not be had: .*ulimit -f"),
        (3000, "WorkerDiedError .*exited with code 0 .it could not hand over what it has loaded"),
    ],
    {1},
)
def test_limits_of_the_system(tmp_path: Path, kib: int, told: str) -> None:
    limited = outcome(tmp_path, with_file_limit(kib))
    assert re.match(told, limited, re.DOTALL), limited
