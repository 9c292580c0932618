"""The page has what it should, and contestants deliver the same; figures are not judged here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import page
import pytest
import scheduling
from bench import main
from races import Contestant, DisagreementError, require_agreement
from sections import BY_DEFAULT, LIBRARY, QUICK, SECTIONS, STEPS

pytestmark = pytest.mark.wide

NAMES = {section.name for section in SECTIONS}


@pytest.fixture(scope="module", params=["no plots", pytest.param("plots", marks=pytest.mark.wide)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a quick run, without plots where matplotlib is not there: to draw them is a third of the time."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "no plots":
            patch.setitem(sys.modules, "matplotlib", None)
        else:
            pytest.importorskip("matplotlib")
        main(["--quick", "--folder", str(folder)])
    assert any(folder.rglob("*.png")) == (request.param == "plots")
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    return json.loads(next(folder.glob("benchmarks_*.json")).read_text())


def test_a_quick_run_measures_all_sections(report: dict[str, Any]) -> None:
    assert report["sections"].keys() == NAMES
    races = [row for section in report["sections"].values() for row in section["results"]]
    assert len(races) == 6
    for row in races:
        ours = STEPS if row["race"].startswith("chain") else LIBRARY
        names = row["per_second"].keys()
        assert names == row["processor_ms_each"].keys() == row["busy_cores"].keys()
        assert {ratio["to"] for ratio in row["ratios"]} == names - {ours, BY_DEFAULT}
        for spread in [*row["per_second"].values(), *row["ratios"]]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    times = report["sections"]["times"]
    assert times["stragglers"][0]["is_in_order"]
    assert times["first_batch"]["seconds"]["max"] > 0
    assert [row["leaves"] for row in report["sections"]["transport"]["packing"]] == [80, 80]


def test_each_target_says_whether_it_is_met(report: dict[str, Any]) -> None:
    targets = [target for section in report["sections"].values() for target in section["targets"]]
    for each in targets:
        is_most = "at most" in each["target"]
        assert each["is_met"] == (each["value"] <= each["limit"] if is_most else each["value"] >= each["limit"])


def test_the_page_has_every_contestant_and_target(folder: Path, report: dict[str, Any]) -> None:
    text = next(folder.glob("*.md")).read_text()
    assert report["processor"] in text
    for section in SECTIONS:
        assert f"## {section.title}\n" in text
        for row in report["sections"][section.name]["results"]:
            for name in row["per_second"]:
                assert f"| {name} | " in text
        for target in report["sections"][section.name]["targets"]:
            assert f"| {target['target']} | {target['value']:.2f} | " in text


def test_a_part_is_measured_again_and_the_rest_is_kept(
    folder: Path, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    main(["--quick", "--only", "transport", "--folder", str(folder)])
    again = json.loads(next(folder.glob("benchmarks_*.json")).read_text())
    assert list(again["sections"]) == list(report["sections"])
    assert again["sections"]["folding"] == report["sections"]["folding"]


def test_the_page_says_why_a_bound_is_missed() -> None:
    row = {
        "race": "a race",
        "unit": "samples",
        "per_second": {LIBRARY: spread(1), "other": spread(2)},
        "processor_ms_each": {LIBRARY: spread(30), "other": spread(10)},
        "busy_cores": {LIBRARY: spread(1.5), "other": spread(1.9)},
        "ratios": [{"of": LIBRARY, "to": "other", **spread(0.5)}],
    }
    why = "30.00 against 10.00 ms of processor time, 1.50 against 1.90 busy cores"
    target = {"target": f"a race: {LIBRARY} to other, at least 1", "limit": 1, "value": 0.5, "is_met": False}
    section = {"results": [row], "targets": [target]}
    most = "with all 2 cores busy, the other one would have 1.05 times its rate"
    table = page._target_table({"cores": 2, "sections": {"a": section}})
    assert table[-1].endswith(f"| 0.50 | **missed**: {why}; {most} |")
    assert page._section_lines(section)[-1] == f"- a race: 0.50 times the rate of other; {why}."


def spread(value: float) -> dict[str, float]:
    return {"median": value, "min": value, "max": value}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": np.ones(3, np.float32)}, "b and a differ in ['x']"),
        ({"x": np.zeros(3, np.float64)}, "b and a differ in ['x']"),
        ({"y": np.zeros(3, np.float32)}, "b and a differ in all names"),
        ({"x": np.zeros(3, np.float32), "image": np.full((2, 2, 3), 2.0, np.float32)}, "in ['image']"),
    ],
)
def test_contestants_that_deliver_something_else_are_found(other: dict[str, Any], message: str) -> None:
    ours = {"x": np.zeros(3, np.float32), "image": np.zeros((2, 2, 3), np.float32)}
    racing = {"a": contestant(ours), "b": contestant(ours)}
    require_agreement(racing, 1.5)
    racing["b"] = contestant(other)
    with pytest.raises(DisagreementError) as error:
        require_agreement(racing, 1.5)
    assert message in str(error.value)


def contestant(sample: dict[str, Any]) -> Contestant:
    return Contestant(lambda: sample, 1, lambda batch, place: batch)


def test_five_percent_of_the_samples_are_stragglers() -> None:
    count = sum(scheduling.seconds_of(index) > scheduling.USUAL_SECONDS for index in range(10_000))
    assert count == pytest.approx(500, rel=0.05)
    assert QUICK.num_workers == 0  # nothing is spawned: the test would take long
