"""The benchmark runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_overhead.py"


@pytest.mark.timeout(100)
def test_a_quick_run_reports_ratios(tmp_path: Path) -> None:
    output = tmp_path / "results" / "overhead.json"
    result = subprocess.run(
        [sys.executable, str(BENCHMARK), "--quick", "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(output.read_text())
    assert [row["fields"] for row in report["results"]] == [1, 10, 60]
    for row in report["results"]:
        ratio = row["ratio"]
        assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]
        assert set(row["ms_per_batch"]) == {"dali", "framework", "dali raw", "framework numpy"}
    assert report["dali"].startswith("2.4")
    assert "usable cores" in result.stdout
