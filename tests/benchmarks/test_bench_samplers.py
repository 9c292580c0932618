"""The benchmark runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_samplers import main

pytestmark = pytest.mark.wide


def test_a_quick_run_reports_times_memory_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results" / "samplers.json"
    main(["--quick", "--output", str(output)])
    printed = capsys.readouterr().out
    report = json.loads(output.read_text())
    rows = {(row["name"], row.get("samples", row.get("sequences"))): row for row in report["results"]}
    assert {name for name, _ in rows} == {
        "ShuffledSampler",
        "MixedSampler",
        "WeightedSampler",
        "numpy permutation",
        "table",
        "streams, whole",
        "streams, cut",
        "SequenceSampler",
    }
    for row in rows.values():
        assert set(row["us"]) == {"create", "first access", "seek", "per index"}
        for spread in row["us"].values():
            assert 0 <= spread["min"] <= spread["median"] <= spread["max"]
    assert rows["numpy permutation", 10**5]["peak_memory_bytes"] >= 8e5
    assert rows["ShuffledSampler", 10**5]["peak_memory_bytes"] < 8e5
    assert rows["numpy permutation", 10**5]["ratio_to_numpy_permutation"]["per index"]["median"] == 1
    for target in report["targets"]:
        assert target["is_met"] == (target["worst"] <= target["limit"])
        assert target["target"] in printed
    assert "usable cores" in printed
