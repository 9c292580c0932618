"""The graphs of the recipes for a GPU: DALI accepts them, and one operator decodes all images there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from driving_support.recipe_cases import RECIPES, pixels_of, recipe_loader
from support.gpu_cases import Difference
from support.gpu_definitions import checked_by_dali, pretend_gpus
from support.laws import spread
from support.loaders import pipeline_of

from accvlab.dali_pipeline_framework.workers.loading import BatchLoader
from accvlab.dali_pipeline_framework.workers.messages import Loaded, Task


@pytest.fixture(params=[True, False], ids=["training", "evaluation"])
def is_training(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@spread("name", RECIPES, 3)
def test_one_operator_decodes_without_the_packages_that_decode_on_arrays(
    nuscenes: Path, name: str, is_training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("cv2", "simplejpeg"):
        monkeypatch.setitem(sys.modules, package, None)
    pretend_gpus(monkeypatch)
    loader = recipe_loader(nuscenes, name, is_training, num_workers=2, output_type="numpy", device_id=0)
    counts = checked_by_dali(pipeline_of(loader))
    assert (counts.num_decoders, counts.outputs.count("gpu")) == (1, 1)
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
