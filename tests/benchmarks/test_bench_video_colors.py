"""The benchmark runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_video_colors import main
from page import write_page

pytestmark = pytest.mark.wide


def test_a_quick_run_reports_rates_ratios_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "colors.json"
    main(["--quick", "--output", str(output)])
    report = json.loads(output.read_text())
    rows = report["frames"]
    assert {("H.264", kind) for kind in ("in order", "clips", "random")} <= {
        (row["codec"], row["kind"]) for row in rows
    }
    for row in rows:
        assert {"PyAV", "provider"} <= row["per_core_second"].keys()
        assert row["ratios_to_pyav"].keys() == row["per_core_second"].keys() - {"PyAV"}
        for spread in [*row["per_core_second"].values(), *row["ratios_to_pyav"].values()]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    assert [row["codec"] for row in report["cutting"]] == [*report["mbit_per_s"]]
    (race,) = report["results"]
    assert {"decoded", "encoded, in workers", "encoded, in the graph"} <= race["per_second"].keys()
    printed = capsys.readouterr().out
    for target in report["targets"]:
        assert f"{target['target']}, is {target['value']:.2f}: " in printed
    about = {
        "processor": "one",
        "cores": 2,
        "python": "3",
        "dali": "2",
        "numpy": "2",
        "torch": "2",
        "sections": {},
    }
    page = write_page({**about, "sections": {}}, {"Frames of videos": report}, tmp_path, "page").read_text()
    assert "| H.264, in order | PyAV |" in page
    assert "| VP9 | " in page.partition("clips cut out")[2]
    assert "4 cameras x 4 frames, VP9 (samples)" in page
