"""What is left of a loader when its process ends, and what is said where files may not be large enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_processes import ENDS, end_loader


@pytest.mark.parametrize(
    ("method", "end"),
    [*[("fork", end) for end in ENDS], ("spawn", "SIGKILL")],
)
def test_neither_workers_nor_shared_memory_are_left(tmp_path: Path, method: str, end: str) -> None:
    end_loader(tmp_path, method, end)
