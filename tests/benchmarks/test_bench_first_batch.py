"""The benchmark of the start of workers runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_first_batch import main, targets

pytestmark = pytest.mark.wide


def test_a_quick_run_reports_the_time_to_a_first_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "first_batch.json"
    main(["--quick", "--output", str(output)])
    report = json.loads(output.read_text())
    (row,) = report["results"]
    assert row["provider"] == "numpy"
    names = ["imports alone", "forkserver", "forkserver, second loader", "fork", "fork, second loader"]
    assert [*row["seconds"]] == names
    assert all(0 < found["least"] == found["median"] == found["most"] for found in row["seconds"].values())
    assert report["targets"][0]["target"] in capsys.readouterr().out


def test_imports_count_where_the_packages_are_large() -> None:
    seconds = {"imports alone": {"median": 3.0}, "forkserver": {"median": 3.5}}
    rows = [{"provider": name, "seconds": seconds} for name in ("numpy", "albumentations")]
    assert [(each["value"], each["is_met"]) for each in targets(rows)] == [(3.5, False), (0.5, True)]
