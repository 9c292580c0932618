"""The benchmark of counting runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from accvlab.dali_pipeline_framework.engine.control_block import ControlBlock
from bench_report import Contestant, main, payloads, without_counters
from support.loaders import pipeline_of

pytestmark = pytest.mark.wide


def test_a_quick_run_reports_what_counting_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results" / "report.json"
    main(["--quick", "--output", str(output)])
    printed = capsys.readouterr().out
    report = json.loads(output.read_text())
    rows = {(row["payload"], row["num_workers"]): row for row in report["results"]}
    assert set(rows) == {("numbers", 0), ("numbers", 1), ("images", 0), ("images", 1)}
    for row in rows.values():
        for spread in (*row["processor_us_per_batch"].values(), row["extra_share"]):
            assert spread["quarter"] <= spread["median"] <= spread["three_quarters"]
    for target in report["targets"]:
        assert target["is_met"] == (target["value"] <= target["limit"])
        assert target["target"] in printed


@pytest.mark.parametrize("is_counted", [True, False])
def test_nothing_is_counted_without_counters(is_counted: bool) -> None:
    contestant = Contestant(payloads(True)["numbers"], 1, is_counted)
    contestant.turn()
    pipeline, report = pipeline_of(contestant._loader), contestant._loader.report()
    times = pipeline.times
    found = (
        report.num_batches > 0,
        times.workers_ns > 0,
        times.input_ns > 0,
        times.run_ns > 0,
        bool(pipeline.work()),
    )
    assert found == (is_counted,) * 5
    contestant.close()


def test_counters_are_there_again_afterwards() -> None:
    before = vars(ControlBlock)["add_work"]
    with without_counters():
        assert vars(ControlBlock)["add_work"] is not before
    assert vars(ControlBlock)["add_work"] is before
