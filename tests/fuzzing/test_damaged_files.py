"""Damaged files of data sets: read, or refused by a documented error, in little memory and time."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from damaged_files import KINDS
from support.child_processes import run_process

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-X", "faulthandler", str(Path(__file__).parent / "damaged_files.py")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run_process([*command, str(tmp_path), name], timeout=600, env=env)
    assert ended.returncode == 0, f"{ended.returncode}\n{ended.stderr[-4000:]}"
    counts = json.loads(ended.stdout.splitlines()[-1])
    assert counts["refused"] > 0 < sum(counts.values())
