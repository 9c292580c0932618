"""Ctrl-C at random moments: a process with a loader ends, in its start, its loop and its close."""

from __future__ import annotations

from pathlib import Path

import pytest
from interrupt_storm import storm

QUICK = [("fork", range(10)), ("forkserver", range(4)), ("spawn", range(2))]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("method", "numbers"), QUICK, ids=[method for method, _ in QUICK])
def test_some_interrupts_end_within_seconds(tmp_path: Path, method: str, numbers: range) -> None:
    storm(tmp_path, method, numbers)


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 500, 50))
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_five_hundred_interrupts_end_within_seconds(tmp_path: Path, method: str, first: int) -> None:
    storm(tmp_path, method, range(first, first + 50))
