"""The benchmark of nuScenes runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import bench_nuscenes
import pytest
from bench_nuscenes import QUICK, main

pytestmark = pytest.mark.wide


@pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.wide)])
def test_a_quick_run_reports_conversion_opening_and_memory(
    start_method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_nuscenes, "START_METHOD", start_method)
    output = tmp_path / "results" / "nuscenes.json"
    main(["--quick", "--output", str(output), "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    report = json.loads(output.read_text())
    tables = report["tables"]
    assert (tables["scenes"], tables["keyframes"], tables["boxes"]) == QUICK
    assert set(report["conversion"]) == {"plain", "with 2D boxes"}
    for one in report["conversion"].values():
        assert one["seconds"] > 0
        assert 0 < one["before_megabytes"] < one["most_megabytes"]
    for spread in [*report["open"].values(), *report["worker"].values()]:
        assert spread["min"] <= spread["median"] <= spread["max"]
    assert report["open"]["constructed"]["median"] < report["open"]["seconds"]["median"]
    for target in report["targets"]:
        assert target["is_met"] == (target["value"] <= target["limit"])
        assert target["target"] in printed
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
