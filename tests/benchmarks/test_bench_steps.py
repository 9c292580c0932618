"""The benchmark runs and reports what it says, and its contestants do the same; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import step_by_hand
import step_settings
from bench_steps import main, price_table
from step_contestants import (
    DetectionProvider,
    MultiCameraProvider,
    detection_steps,
    multi_camera_steps,
    twenty_steps,
)
from step_data import DrivingSamples
from step_torch import DetectionSamples, MultiCameraSamples

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, ShuffledSampler
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition

ROOT = Path(__file__).parents[2]
CONTESTANTS = {"steps", "DALI by hand", "PyTorch, OpenCV"}
# Each range is a point, or as good as one: then nothing is left to chance.
FIXED = {
    "SCALE": (0.44, 0.44 + 1e-6),
    "ZOOM": (1.2, 1.2 + 1e-6),
    "FLIP_PROB": 0.0,
    "BRIGHTNESS": (10.0, 10.0 + 1e-5),
    "CONTRAST": (1.1, 1.1 + 1e-6),
    "SATURATION": (1.0, 1.0 + 1e-6),
    "HUE_DEGREES": (0.0, 1e-6),
    "BEV_ANGLE_RAD": (0.2, 0.2 + 1e-6),
    "BEV_SCALE": (1.02, 1.02 + 1e-6),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> DrivingSamples:
    return DrivingSamples.generate(tmp_path_factory.mktemp("images"), 1)


def by_steps(provider: Any, steps: Any) -> list[np.ndarray]:
    data_input = SamplerInputCallable(provider, ShuffledSampler(1, 1))
    return outputs_of(PipelineDefinition(data_input, steps).get_dali_pipeline(num_threads=2, py_num_workers=0))


def outputs_of(pipeline: Any) -> list[np.ndarray]:
    pipeline.build()
    return [np.array(output[0]) for output in pipeline.run()]


@pytest.mark.parametrize("name", ["multi-camera", "detection"])
def test_chains_do_the_same(name: str, samples: DrivingSamples, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in FIXED.items():
        monkeypatch.setattr(step_settings, setting, value)
    is_multi = name == "multi-camera"
    provider = (MultiCameraProvider if is_multi else DetectionProvider)(samples)
    found = by_steps(provider, multi_camera_steps() if is_multi else detection_steps())
    define = step_by_hand.multi_camera if is_multi else step_by_hand.detection
    by_hand = outputs_of(define(samples, is_parallel=False, batch_size=1, num_threads=2, device_id=None))
    by_torch = (MultiCameraSamples if is_multi else DetectionSamples)(samples)[0]
    for others in (by_hand, [tensor.numpy() for tensor in by_torch]):
        for one, other in zip(found, others, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            is_image = one.ndim == 3 and 3 in one.shape
            # Images: in standard deviations; the JPEG decoders, and crops to whole pixels, differ.
            np.testing.assert_allclose(
                np.mean(np.abs(one - other)) if is_image else one, 0 if is_image else other, atol=0.06, rtol=1e-4
            )


def test_the_graph_of_twenty_steps_has_twenty_steps() -> None:
    assert len(twenty_steps()) == 20  # a quick run builds it


def test_the_documentation_has_the_prices_of_the_results() -> None:
    report = json.loads((ROOT / "benchmarks" / "results" / "steps_2_cores_cpu.json").read_text())
    assert price_table(report) in (ROOT / "docs" / "step_prices.md").read_text()


def test_a_quick_run_reports_rates_prices_ratios_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALI_AFFINITY_MASK", "")  # restored afterwards
    output = tmp_path / "results" / "steps.json"
    main(["--quick", "--output", str(output)])
    printed = capsys.readouterr().out
    report = json.loads(output.read_text())
    rows = {row["race"]: row for row in report["results"]}
    step = "step, ImageResizeCropFlipper, JPEG to 704 x 256"
    assert rows.keys() == {step, "chain, detection"}
    assert rows[step]["per_second"].keys() == CONTESTANTS
    variants = {"steps, a core for each thread", "steps, distorted last"}
    assert rows["chain, detection"]["per_second"].keys() == CONTESTANTS | variants
    for row in rows.values():
        for spread in [*row["per_second"].values(), *row["ratios"]]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    for target in report["targets"]:
        assert f"{target['target']}, is {target['value']:.2f}: " in printed
        assert target["is_met"] == (target["value"] >= target["limit"])
    assert len(report["targets"]) == 2
    main(["--table", str(output)])
    price = 1e3 * rows[step]["processor_ms_each"]["steps"]["median"]
    assert f"| `ImageResizeCropFlipper`, JPEG to 704 x 256 | {price:.0f} |" in capsys.readouterr().out
