"""A quick run of the benchmarks, which compares what contestants deliver; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import RESULTS, SECTIONS, main
from bench_steps import PAGE, with_table

pytestmark = pytest.mark.wide


def test_a_quick_run_measures_all_sections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALI_AFFINITY_MASK", "")  # restored afterwards
    main(["--quick", "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    written = next(tmp_path.glob("*.json")).read_text()
    report, page = json.loads(written), next(tmp_path.glob("*.md")).read_text()
    assert [run["section"] for run in report["runs"]] == list(
        dict.fromkeys(row["section"] for row in report["rows"])
    )
    assert [run["section"] for run in report["runs"]] == [*SECTIONS]
    assert len(written.splitlines()) <= 500
    for row in report["rows"]:
        assert f"| {row['of']} | " in page
        for name, (median, least, most) in ((name, each) for name, each in row.items() if isinstance(each, list)):
            assert 0 <= least <= median <= most
            assert least > 0 or name == "cores of others"
    for each in report["bounds"]:
        least, most = each["at least"], each["at most"]
        assert (least is None) != (most is None)
        assert each["is_met"] == (each["measured"] <= most if least is None else each["measured"] >= least)
        (line,) = (line for line in page.splitlines() if f"| {each['case']} | {each['figure']} | " in line)
        assert line.startswith(f"| {each['section']} | ")
        assert line.endswith(" | met |" if each["is_met"] else " | **missed** |")
        (line,) = (line for line in printed.splitlines() if f"{each['case']}: {each['figure']}: " in line)
        assert line.endswith(": met" if each["is_met"] else ": MISSED")
    rows = report["rows"]
    main(["--quick", "--only", "calls", "--folder", str(tmp_path)])
    assert json.loads(next(tmp_path.glob("*.json")).read_text())["rows"] == rows  # others are kept, calls the same


def test_the_documentation_has_the_figures_of_the_results() -> None:
    (results,) = RESULTS.glob("benchmarks_*.json")
    assert len(results.read_text().splitlines()) <= 500
    rows, page = json.loads(results.read_text())["rows"], PAGE.read_text()
    assert with_table(page, rows) == page
    fewer = [row for row in rows if row["case"] != "GridMasker"]
    assert with_table(page, fewer) == "".join(
        line for line in page.splitlines(True) if "| `GridMasker` |" not in line
    )
