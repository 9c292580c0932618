"""The benchmark runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_video_colors import main


def test_a_quick_run_reports_rates_ratios_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "colors.json"
    main(["--quick", "--output", str(output)])
    rows = json.loads(output.read_text())["results"]
    assert {("H.264", kind) for kind in ("in order", "clips", "random")} <= {
        (row["codec"], row["kind"]) for row in rows
    }
    for row in rows:
        assert {"PyAV", "provider"} <= row["per_core_second"].keys()
        assert row["ratios_to_pyav"].keys() == row["per_core_second"].keys() - {"PyAV"}
        for spread in [*row["per_core_second"].values(), *row["ratios_to_pyav"].values()]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    printed = capsys.readouterr().out
    for row in rows[:3]:
        assert f"of PyAV, is {row['ratios_to_pyav']['provider']['median']:.2f}: " in printed
