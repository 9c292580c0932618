"""What the graphs of the recipes consist of with a GPU: DALI accepts them, and no operator is added unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from driving_support.nuscenes_data import write_nuscenes
from driving_support.recipe_cases import RECIPES, provider_of
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.types import DALIDataType
from support.gpu_definitions import checked_by_dali, pretend_gpus

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.driving_data.recipes import UnclippedPhotometricDistorter
from accvlab.driving_data.recipes.bevformer import ScaledImagePreparer

# Operators on the CPU that compute, and operators on the GPU; for training and for evaluation.
COUNTS = {
    "streampetr": ((6, 5), (5, 4)),
    "sparsedrive": ((6, 17), (5, 4)),
    "sparse4d": ((6, 17), (5, 4)),
    "bevformer": ((5, 15), (5, 3)),
    "bevfusion": ((6, 5), (5, 4)),
    "detection_2d": ((10, 7), (5, 4)),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nuscenes(tmp_path_factory.mktemp("nuscenes") / "root")


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", RECIPES)
def test_operators_are_as_many_as_noted(
    root: Path, name: str, is_training: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path))
    counts = checked_by_dali(made(root, name, is_training, monkeypatch)._run.pipeline)
    on_gpu = counts.on("gpu", "mixed")
    assert (counts.computing_on_cpu, on_gpu) == COUNTS[name][0 if is_training else 1]
    assert counts.num_decoders == 1
    assert counts.outputs.count("gpu") == 1


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", RECIPES)
def test_packages_that_decode_on_arrays_are_not_needed(
    root: Path, name: str, is_training: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path))
    for package in ("cv2", "simplejpeg"):
        monkeypatch.setitem(sys.modules, package, None)
    pipeline = made(root, name, is_training, monkeypatch)._run.pipeline
    assert checked_by_dali(pipeline).num_decoders == 1
    # What the workers do: load samples, and apply the steps on arrays.
    assert len(pipeline.worker_source(types.BatchInfo(0, 0))) > 1


def made(root: Path, name: str, is_training: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loader of a recipe, for a GPU."""
    pretend_gpus(monkeypatch)
    settings, training, evaluation, arguments = RECIPES[name]
    provider = provider_of(root, settings, is_training)
    options: dict[str, Any] = {"num_workers": 2, "output_type": "numpy", "device_id": 0}
    if is_training:
        return training(provider, 2, settings, **arguments, **options)
    return evaluation(provider, settings=settings, **options)


def test_decoded_images_are_changed_on_the_gpu() -> None:
    sample = SampleDataGroup()
    sample.add_data_field("image", DALIDataType.UINT8, ndim=3)
    changes = [
        UnclippedPhotometricDistorter("image"),
        ScaledImagePreparer(0.5, 32, mean=[1, 2, 3], std_dev=[4, 5, 6]),
    ]

    @pipeline_def(batch_size=2, num_threads=1, device_id=0)
    def of_decoded() -> Any:
        sample["image"] = fn.external_source(name="image")
        return changes[1](changes[0](sample))["image"]

    counts = checked_by_dali(of_decoded())
    assert counts.on("gpu") == 12 + 2
    assert counts.outputs == ["gpu"]
