"""The benchmark of counting runs and reports what it says; its figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_report import Contestant, main, payloads, without_counters

from accvlab.dali_pipeline_framework.workers.messages import Work

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
    run = contestant._loader._run
    times, pool = run.pipeline.times, run.pipelines.pool
    counted = times.input_ns, times.run_ns, pool.waited_ns, times.work.reading_ns, run.times.sums["next_ns"]
    assert [each > 0 for each in counted] == [is_counted] * 5
    contestant.close()


def test_counters_are_there_again_afterwards() -> None:
    before = Work.plus
    with without_counters():
        assert Work.plus is not before
    assert Work.plus is before
