"""What the graphs of the recipes consist of with a GPU: DALI accepts them, and no operator is added unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from driving_support.nuscenes_data import write_nuscenes
from driving_support.recipe_cases import RECIPES, provider_of
from nvidia.dali import types
from support.gpu_definitions import checked_by_dali, pretend_gpus

# Operators on the CPU that compute, and operators on the GPU; for training and for evaluation.
COUNTS = {
    "streampetr": ((53, 5), (51, 4)),
    "sparsedrive": ((6, 0), (51, 4)),
    "sparse4d": ((6, 0), (51, 4)),
    "bevformer": ((0, 0), (0, 0)),
    "bevfusion": ((53, 5), (51, 4)),
    "detection_2d": ((386, 7), (64, 4)),
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
    assert counts.num_decoders == (1 if on_gpu else 0)


@pytest.mark.parametrize(
    ("name", "is_training"),
    [
        (name, mode == "training")
        for name, counts in COUNTS.items()
        for mode, (_, on_gpu) in zip(("training", "evaluation"), counts, strict=True)
        if on_gpu
    ],
)
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
