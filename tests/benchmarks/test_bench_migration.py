"""The benchmark of a move from PyTorch's loader runs; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_migration import main

pytestmark = pytest.mark.wide


def test_the_benchmark_measures_each_stage(tmp_path: Path) -> None:
    main(["--quick", "--output", str(tmp_path / "migration.json")])
    (race,) = json.loads((tmp_path / "migration.json").read_text())["results"]
    assert list(race["per_second"]) == ["PyTorch", "wrapped", "JPEG bytes", "own steps"]
    assert {(pair["of"], pair["to"]) for pair in race["ratios"]} == {
        ("wrapped", "PyTorch"),
        ("JPEG bytes", "PyTorch"),
        ("own steps", "PyTorch"),
    }
