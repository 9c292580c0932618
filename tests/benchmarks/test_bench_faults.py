"""The benchmark of faults runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_faults import lint_ratios, main

pytestmark = pytest.mark.wide


def test_a_quick_run_reports_what_policies_and_ledgers_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results" / "faults.json"
    for section in ("policies", "ledger"):
        main(["--quick", "--only", section, "--output", str(output)])
        printed = capsys.readouterr().out
        report = json.loads(output.read_text())
        found = report["sections"][section]
        rows = found if section == "policies" else found["rows"]
        assert len(rows) == (3 if section == "policies" else 2)
        for row in rows:
            assert row["ratio"]["quarter"] <= row["ratio"]["median"] <= row["ratio"]["three_quarters"]
            assert row["extra_calls"] <= (2 if section == "policies" else 12)
        assert len(report["targets"]) == (3 if section == "policies" else 2)
        for target in report["targets"]:
            assert target["is_met"] == (target["value"] <= target["limit"])
            assert target["target"] in printed


@pytest.mark.wide
def test_a_quick_run_of_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "faults.json"
    main(["--quick", "--only", "lint", "--output", str(output)])
    found = json.loads(output.read_text())
    assert [target["limit"] for target in found["targets"]] == [0.9, 0.9]
    assert "lint / bare loop" in capsys.readouterr().out


def test_rates_with_and_without_the_start() -> None:
    """Lint starts in 3 s and takes 20 ms for a sample, the bare loop starts in 1 s and takes 10 ms."""
    found = lint_ratios({"lint": (5.0, 23.0), "bare": (2.0, 11.0)}, (100, 1000))
    assert {name: round(value, 6) for name, value in found.items()} == {
        "rate": round(11 / 23, 6),
        "rate_without_start": 0.5,
        "start_s": 3.0,
        "start_of_bare_s": 1.0,
        "ms_per_sample": 20.0,
    }
