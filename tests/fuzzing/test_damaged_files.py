"""Damaged files of data sets: read, or refused by a documented error, in little memory and time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from damaged_files import KINDS
from support.child_processes import run_process

pytestmark = pytest.mark.wide

QUICK = {"arrow, not compressed": 60, "mp4": 40}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.wide) for name in KINDS]
)
def test_damaged_files(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    is_wide = request.config.getoption("--wide")
    num_examples = 1500 if is_wide else QUICK[name]
    command = [sys.executable, "-X", "faulthandler", str(Path(__file__).parent / "damaged_files.py")]
    ended = run_process(
        [*command, str(tmp_path), name, str(num_examples)],
        timeout=600 if is_wide else 120,
    )
    assert ended.returncode == 0, f"{ended.returncode}\n{ended.stderr[-4000:]}"
    counts = json.loads(ended.stdout.splitlines()[-1])
    assert counts["refused"] > 0 < sum(counts.values())
