"""What the graphs of the recipes consist of with a GPU: DALI accepts them, and no operator is added unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from driving_support.driving_steps import DRIVING_STEPS
from driving_support.recipe_cases import RECIPES, pixels_of, recipe_loader
from support.gpu_cases import Difference
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.laws import spread
from support.loaders import pipeline_of

from accvlab.dali_pipeline_framework import PipelineDefinition
from accvlab.dali_pipeline_framework.testing.step_runs import GivenSamples
from accvlab.dali_pipeline_framework.workers.loading import BatchLoader
from accvlab.dali_pipeline_framework.workers.messages import Loaded, Task

# Operators on the CPU that compute, and operators on the GPU; for training and for evaluation.
COUNTS = {
    "streampetr": ((5, 5), (5, 4)),
    "sparsedrive": ((5, 17), (5, 4)),
    "sparse4d": ((5, 17), (5, 4)),
    "bevformer": ((5, 15), (5, 3)),
    "bevfusion": ((5, 5), (5, 4)),
    "detection_2d": ((6, 7), (5, 4)),
}


@pytest.fixture(params=[True, False], ids=["training", "evaluation"])
def is_training(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@spread("name", RECIPES, 6)
def test_operators_are_as_many_as_noted(
    nuscenes: Path, name: str, is_training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch)
    loader = recipe_loader(nuscenes, name, is_training, num_workers=2, output_type="numpy", device_id=0)
    counts = checked_by_dali(pipeline_of(loader))
    on_gpu = counts.on("gpu", "mixed")
    assert (counts.computing_on_cpu, on_gpu) == COUNTS[name][0 if is_training else 1]
    assert counts.num_decoders == 1
    assert counts.outputs.count("gpu") == 1


@spread("name", RECIPES, 4)
def test_packages_that_decode_on_arrays_are_not_needed(
    nuscenes: Path, name: str, is_training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("cv2", "simplejpeg"):
        monkeypatch.setitem(sys.modules, package, None)
    pretend_gpus(monkeypatch)
    loader = recipe_loader(nuscenes, name, is_training, num_workers=2, output_type="numpy", device_id=0)
    assert checked_by_dali(pipeline_of(loader)).num_decoders == 1
    # What the workers do: load samples, and apply the steps on arrays.
    loaded = BatchLoader(pipeline_of(loader).source.plan).load(Task((0, 0)))
    assert isinstance(loaded, Loaded)
    assert len(loaded.outputs) > 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", RECIPES)
def test_images_are_on_the_gpu_and_all_else_is_as_on_the_cpu(nuscenes: Path, name: str, is_training: bool) -> None:
    pytest.importorskip("simplejpeg")
    with recipe_loader(nuscenes, name, is_training, num_workers=0, run="graph") as loader:
        expected = list(loader)
    with recipe_loader(nuscenes, name, is_training, num_workers=2, device_id=0) as loader:
        found = Difference.of(list(loader), expected, pixels_of(name).pixels, pixels_of(name).levels)
    assert found.is_within(pixels_of(name)), found
    assert found.devices == ["cuda:0"]


@pytest.mark.parametrize("name", DRIVING_STEPS)
def test_dali_takes_each_driving_step_in_a_pipeline_for_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch)
    case = DRIVING_STEPS[name]
    definition = PipelineDefinition(GivenSamples(case.samples), [case.step])
    options = {"num_threads": 1, "py_num_workers": 0, "device_id": 0, "enable_conditionals": True}
    pipeline = definition.get_dali_pipeline(**options)
    assert set(checked_by_dali(pipeline).outputs) == {"cpu"}
