"""The benchmark runs and reports what it says; its figures are not judged here, but counts of frames are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_sources.py"
PROVIDER_AND_NATIVE = {"provider", "native"}


@pytest.mark.slow
@pytest.mark.timeout(250)
def test_a_quick_run_reports_rates_ratios_counts_and_targets(tmp_path: Path) -> None:
    output = tmp_path / "results" / "sources.json"
    result = subprocess.run(
        [sys.executable, str(BENCHMARK), "--quick", "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(output.read_text())
    rows = {row["race"]: row for row in report["results"]}
    video = "video, VP9"
    assert rows.keys() == {"files, decoded", "files, bytes", "sequences, overlapping by half", video}
    assert PROVIDER_AND_NATIVE | {"PyTorch, Pillow"} <= rows["files, decoded"]["per_second"].keys()
    assert rows["files, bytes"]["per_second"].keys() >= PROVIDER_AND_NATIVE
    assert PROVIDER_AND_NATIVE | {"PyTorch, Pillow"} <= rows["sequences, overlapping by half"]["per_second"].keys()
    assert {"provider, streamed, 1 worker", "native, in order", "PyTorch, PyAV, shuffled"} <= rows[video][
        "per_second"
    ].keys()
    for row in rows.values():
        assert row["processor_ms_each"].keys() == row["per_second"].keys()
        assert all(spread["median"] > 0 for spread in row["processor_ms_each"].values())
        for spread in [*row["per_second"].values(), *row["ratios"]]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    counts = rows[video]["decoded_per_delivered"]
    assert counts["streamed"] <= 1.1 < counts["shuffled"]
    for target in report["targets"]:
        assert f"{target['target']}, is {target['value']:.2f}: " in result.stdout
        is_most = "at most" in target["target"]
        assert target["is_met"] == (
            target["value"] <= target["limit"] if is_most else target["value"] >= target["limit"]
        )
    assert len(report["targets"]) == 3
    assert "usable cores" in result.stdout
