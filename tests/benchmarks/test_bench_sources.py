"""The benchmark runs and reports what it says; its figures are not judged here, but counts of frames are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_sources import main

pytestmark = pytest.mark.wide

PROVIDER_AND_NATIVE = {"provider", "native"}


def test_a_quick_run_reports_rates_ratios_counts_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results" / "sources.json"
    main(["--quick", "--output", str(output)])
    printed = capsys.readouterr().out
    report = json.loads(output.read_text())
    rows = {row["race"]: row for row in report["results"]}
    video = "video, VP9"
    assert rows.keys() == {"files, decoded", "files, bytes", "sequences, overlapping by half", video}
    assert PROVIDER_AND_NATIVE | {"PyTorch, Pillow"} <= rows["files, decoded"]["per_second"].keys()
    assert rows["files, bytes"]["per_second"].keys() >= PROVIDER_AND_NATIVE
    assert PROVIDER_AND_NATIVE | {"PyTorch, Pillow"} <= rows["sequences, overlapping by half"]["per_second"].keys()
    assert {"provider, streamed, 1 worker", "PyTorch, PyAV, shuffled"} <= rows[video]["per_second"].keys()
    for row in rows.values():
        assert row["processor_ms_each"].keys() == row["per_second"].keys()
        assert all(spread["median"] > 0 for spread in row["processor_ms_each"].values())
        for spread in [*row["per_second"].values(), *row["ratios"]]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    counts = rows[video]["decoded_per_delivered"]
    assert counts["streamed"] <= 1.1 < counts["shuffled"]
    for target in report["targets"]:
        assert f"{target['target']}, is {target['value']:.2f}: " in printed
        is_most = "at most" in target["target"]
        assert target["is_met"] == (
            target["value"] <= target["limit"] if is_most else target["value"] >= target["limit"]
        )
    assert len(report["targets"]) == 3
    assert "usable cores" in printed
