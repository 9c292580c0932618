"""A quick run of the benchmarks, which compares what contestants deliver; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from bench import RESULTS, SECTIONS, main
from bench_recipes import SETTINGS, make_data, recipe
from bench_steps import PAGE, with_table
from recipe_torch import StreamPETRSamples

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
        assert line.startswith(f"| {SECTIONS[each['section']].__doc__.partition('.')[0]} | ")
        assert line.endswith(" | met |" if each["is_met"] else " | **missed** |")
        (line,) = (line for line in printed.splitlines() if f"{each['case']}: {each['figure']}: " in line)
        assert line.endswith(": met" if each["is_met"] else ": MISSED")
    rows = report["rows"]
    main(["--quick", "--only", "calls", "--folder", str(tmp_path)])
    assert json.loads(next(tmp_path.glob("*.json")).read_text())["rows"] == rows  # others are kept, calls the same


def test_the_recipe_delivers_what_the_data_set_of_pytorch_does(tmp_path: Path) -> None:
    images = attrs.evolve(SETTINGS.images, scale_range=(0.45, 0.45), crop_x_range=(0.3, 0.3), flip_prob=1.0)
    settings = attrs.evolve(SETTINGS, images=images, bev_rotation_range=(0.2, 0.2), bev_scale_range=(1.02, 1.02))
    provider = make_data(tmp_path, num_images=6, frames_per_scene=2)
    samples = StreamPETRSamples(provider, settings)
    with recipe(provider, settings, 2, num_workers=0) as loader:
        for batch in loader:
            for place, time in enumerate(batch["timestamp"][:, 0].tolist()):
                expected = samples[round(2 * time)]
                expected["prev_exists"] = batch["prev_exists"][place]  # depends on the order, which differs
                for name, values in expected.items():
                    for one, other in zip(_tensors(batch[name][place]), _tensors(values), strict=True):
                        tolerance = 0.1 if name == "img" else 1e-3
                        torch.testing.assert_close(one, other, rtol=0, atol=tolerance, msg=name)


def _tensors(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [each for part in value for each in _tensors(part)]


def test_the_documentation_has_the_figures_of_the_results() -> None:
    (results,) = RESULTS.glob("benchmarks_*.json")
    assert len(results.read_text().splitlines()) <= 500
    rows, page = json.loads(results.read_text())["rows"], PAGE.read_text()
    assert with_table(page, rows) == page
    fewer = [row for row in rows if row["case"] != "GridMasker"]
    assert with_table(page, fewer) == "".join(
        line for line in page.splitlines(True) if "| `GridMasker` |" not in line
    )
