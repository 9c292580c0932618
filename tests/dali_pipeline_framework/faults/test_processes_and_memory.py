"""What is left of a loader when its process ends, and what is said where files may not be large enough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from loader_processes import (
    ENDS,
    end_loader,
    outcome,
    with_file_limit,
)


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


@pytest.mark.wide
def test_limits_of_the_system(tmp_path: Path) -> None:
    limited = outcome(tmp_path, with_file_limit(3000))
    assert re.match(r"SourceError.* There is no memory of \d\.\d MB to hand a batch over: .*ulimit -f", limited), (
        limited
    )
