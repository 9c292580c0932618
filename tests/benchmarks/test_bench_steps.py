"""The benchmark runs and reports what it says, and its contestants do the same; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import step_settings
import step_torch
from bench_steps import PAGE, chain_table, main, price_table, with_tables
from chain_contestants import CHAINS, Chain, twenty_steps
from races import PriceTarget, Race, judged
from step_data import DrivingSamples

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler

pytestmark = pytest.mark.wide

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "steps_2_cores_cpu.json"
LIBRARY = {"in the workers", "auto"}
OTHERS = {"DALI by hand", "PyTorch, OpenCV"}
# Each range is a point, or as good as one: then nothing is left to chance.
FIXED = {
    "SCALE": (0.44, 0.44 + 1e-6),
    "ZOOM": (1.2, 1.2 + 1e-6),
    "FLIP_PROB": 0.0,
    "BRIGHTNESS": (10.0, 10.0 + 1e-5),
    "CONTRAST": (1.1, 1.1 + 1e-6),
    "SATURATION": (1.0, 1.0 + 1e-6),
    "HUE_DEGREES": (0.0, 1e-6),
    "ROTATION_DEGREES": (3.0, 3.0 + 1e-5),
    "BEV_ANGLE_RAD": (0.2, 0.2 + 1e-6),
    "BEV_SCALE": (1.02, 1.02 + 1e-6),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> DrivingSamples:
    return DrivingSamples.generate(tmp_path_factory.mktemp("images"), 1)


def by_steps(provider: Any, steps: Any, run: Any) -> list[np.ndarray]:
    data_input = SamplerInputCallable(provider, ShuffledSampler(1, 1))
    definition = PipelineDefinition(data_input, steps, run=run)
    return outputs_of(definition.get_dali_pipeline(num_threads=2, py_num_workers=0))


def outputs_of(pipeline: Any) -> list[np.ndarray]:
    pipeline.build()
    return [np.array(output[0]) for output in pipeline.run()]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_chains_do_the_same(chain: Chain, samples: DrivingSamples, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in FIXED.items():
        monkeypatch.setattr(step_settings, setting, value)
    found = by_steps(chain.provider(samples), chain.steps(), "workers")
    by_torch = getattr(step_torch, chain.dataset)(samples)[0]
    compared = [[tensor.numpy() for tensor in by_torch]]
    if chain.by_hand is not None:
        by_hand = chain.by_hand(samples, is_parallel=False, batch_size=1, num_threads=2, device_id=None)
        compared += [by_steps(chain.provider(samples), chain.steps(), "graph"), outputs_of(by_hand)]
    for others in compared:
        for one, other in zip(found, others, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            is_image = one.ndim == 3 and 3 in one.shape
            # Images: in standard deviations; the JPEG decoders, and crops to whole pixels, differ.
            np.testing.assert_allclose(
                np.mean(np.abs(one - other)) if is_image else one, 0 if is_image else other, atol=0.06, rtol=1e-4
            )


def test_the_graph_of_twenty_steps_has_twenty_steps() -> None:
    assert len(twenty_steps()) == 20  # a quick run builds it


def test_the_documentation_has_the_figures_of_the_results() -> None:
    report, page = json.loads(RESULTS.read_text()), PAGE.read_text()
    assert price_table(report) in page
    assert chain_table(report) in page
    assert with_tables(page, report) == page
    first = price_table(report).splitlines()[2]
    report["results"].pop(0)
    assert with_tables(page, report) == page.replace(f"{first}\n", "")


def test_a_quick_run_reports_rates_prices_ratios_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALI_AFFINITY_MASK", "")  # restored afterwards
    output = tmp_path / "results" / "steps.json"
    main(["--quick", "--only", "steps", "--output", str(output)])
    printed = capsys.readouterr().out
    step = "step, ImageResizeCropFlipper, JPEG to 704 x 256"
    report = json.loads(output.read_text())
    assert [row["race"] for row in report["results"]] == [step]
    main(["--quick", "--only", "chains", "--output", str(output)])
    printed += capsys.readouterr().out
    report = json.loads(output.read_text())
    rows = {row["race"]: row for row in report["results"]}
    reduced, detection = "chain, six cameras, reduced decoding, batches of 1", "chain, detection, batches of 1"
    assert [*rows] == [step, reduced, detection]
    assert rows[step]["per_second"].keys() == {"in the graph", "in the workers"} | OTHERS
    assert rows[reduced]["per_second"].keys() == LIBRARY | {"PyTorch, OpenCV"}
    in_the_graph = {"in the graph", "auto, colors distorted last"}
    assert rows[detection]["per_second"].keys() == LIBRARY | in_the_graph | OTHERS
    for row in rows.values():
        for spread in [*row["per_second"].values(), *row["ratios"], *row["processor_ratios"]]:
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    for target in report["targets"]:
        assert f"{target['target']}, is {target['value']:.2f}: " in printed
        assert target["is_met"] == (target["value"] >= target["limit"])
    assert len(report["targets"]) == 4
    of_step = {name: price["median"] for name, price in rows[step]["processor_ms_each"].items()}
    main(["--table", str(output)])
    cells = [f"{1e3 * of_step[name]:.0f}" for name in ("in the graph", "in the workers")]
    assert f"| `ImageResizeCropFlipper`, JPEG to 704 x 256 | {' | '.join(cells)} |" in capsys.readouterr().out
    main(["--chain-table", str(output)])
    rate = rows[detection]["per_second"]["in the workers"]["median"]
    assert f"| detection, batches of 1 | in the workers | {rate:.1f} |" in capsys.readouterr().out


def test_a_bound_on_processor_time_is_judged() -> None:
    race = Race("race", "samples", lambda resources: {}, price_targets=(PriceTarget("one", "other", 0.6),))
    row = {"ratios": [], "processor_ratios": [{"of": "one", "to": "other", "median": 0.7}]}
    found = judged(race, row)
    assert [(each["target"], each["is_met"]) for each in found] == [
        ("race: processor time of one to other, at most 0.6", False)
    ]
