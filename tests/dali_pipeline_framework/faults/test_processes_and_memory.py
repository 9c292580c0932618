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


@some("size", ["40k", "6m"], {0})
def test_little_shared_memory(tmp_path: Path, size: str) -> None:
    if not can_mount():
        pytest.skip("mounting a small /dev/shm needs the right to do so")
    assert outcome(tmp_path, with_shared_memory(size)).startswith("100\n")


@pytest.mark.wide
def test_limits_of_the_system(tmp_path: Path) -> None:
    limited = outcome(tmp_path, with_file_limit(3000))
    assert re.match(r"SourceError.* There is no memory of \d\.\d MB to hand a batch over: .*ulimit -f", limited), (
        limited
    )
