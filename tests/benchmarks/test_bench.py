"""A quick run of the benchmarks reports what it says, and contestants do the same; figures are not judged here."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import step_by_hand
import step_settings
import step_torch
from bench import RESULTS, SECTIONS, main
from bench_recipes import SETTINGS, in_torch, make_data, recipe
from bench_steps import PAGE, with_table
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from recipe_torch import LISTED
from step_contestants import StepCase, step_cases
from step_data import ImageProvider, camera_picture, jpeg_of
from support.laws import each_value

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.driving_data.recipes import ImageAugmentation

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
        for median, least, most in (each for each in row.values() if isinstance(each, list)):
            assert 0 < least <= median <= most
    for each in report["bounds"]:
        is_most = "at most" in each["bound"]
        assert each["is_met"] == (each["value"] <= each["limit"] if is_most else each["value"] >= each["limit"])
        assert f"{each['bound']}, is {each['value']:.2f}: {'met' if each['is_met'] else 'MISSED'}" in printed
        assert f"| {each['section']} | {each['bound']} | " in page
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


# Each range is a point, or as good as one: then nothing is left to chance.
FIXED = {
    "SCALE": (0.44, 0.44 + 1e-6),
    "FLIP_PROB": 0.0,
    "BRIGHTNESS": (10.0, 10.0 + 1e-5),
    "CONTRAST": (1.1, 1.1 + 1e-6),
    "SATURATION": (1.0, 1.0 + 1e-6),
    "HUE_DEGREES": (0.0, 1e-6),
    "ROTATION_DEGREES": (3.0, 3.0 + 1e-5),
}


@pytest.mark.parametrize("number", [n for n, case in enumerate(step_cases()) if case.name != "GridMasker"])
def test_contestants_of_steps_do_the_same(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in FIXED.items():
        monkeypatch.setattr(step_settings, setting, value)
    case: StepCase = step_cases()[number]
    image = jpeg_of(camera_picture()) if case.is_encoded else camera_picture()
    pipeline = Pipeline(1, 2, device_id=None)
    with pipeline:
        node = fn.external_source(lambda: [image], batch=True, layout=None if case.is_encoded else "HWC")
        pipeline.set_outputs(getattr(step_by_hand, case.work)(node))
    found = {"DALI": np.array(pipeline.run()[0][0]), "OpenCV": getattr(step_torch, case.work)(image)}
    for run in ("graph", "workers"):
        settings: dict[str, Any] = {"steps": [case.step], "run": run, "num_workers": 0, "output_type": "numpy"}
        with DataLoader(ImageProvider(image), 1, **settings) as loader:
            found[run] = next(iter(loader))["image"][0]
    largest = float(np.abs(found["DALI"]).max())
    for one, other in itertools.pairwise(found.values()):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        difference = np.abs(one.astype(np.float64) - other)
        assert difference.mean() < 0.012 * largest  # JPEG decoders, and crops to whole pixels, differ


@each_value(scale=[0.42, 0.53], is_flipped=[False, True])
def test_contestants_of_the_recipe_deliver_the_same(tmp_path: Path, scale: float, is_flipped: bool) -> None:
    images = ImageAugmentation(
        scale_range=(scale, scale), crop_x_range=(0.3, 0.3), flip_prob=1.0 if is_flipped else 0.0
    )
    settings = attrs.evolve(SETTINGS, images=images, bev_rotation_range=(0.2, 0.2), bev_scale_range=(1.02, 1.02))
    provider = make_data(tmp_path, 6, 1)
    expected = dict(enumerate(itertools.islice(in_torch(provider, settings, 1, 0), 2)))
    num_compared = 0
    with recipe(provider, attrs.evolve(settings, split=1), 1, 0) as loader:
        for batch in loader:
            number = int(batch["place"]["sample_index"][0])
            for name, value in expected.get(number, {}).items():
                num_compared += 1
                if name == "img":
                    assert value.shape == batch[name].shape
                    assert float((value - batch[name]).abs().mean()) < 0.01
                elif name in LISTED[2:]:
                    for one, other in zip(value[0][0], batch[name][0][0], strict=True):
                        assert one.dtype == other.dtype
                        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
                elif name in LISTED:
                    np.testing.assert_allclose(value[0], batch[name][0][0], rtol=1e-5, atol=1e-5)
                else:
                    assert value.dtype == batch[name].dtype
                    np.testing.assert_allclose(value, batch[name], rtol=1e-5, atol=1e-4)
    assert num_compared == 2 * 15
