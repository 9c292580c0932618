"""Every recipe, with settings for small data sets, and how a provider for it is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.gpu_cases import NORMALIZED, GpuCase

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.driving_data.datasets import NuScenesProvider
from accvlab.driving_data.recipes import (
    BEVFormerSettings,
    BEVFusionSettings,
    Detection2DSettings,
    ImageAugmentation,
    SparseDriveSettings,
    StreamPETRSettings,
    bevformer_evaluation,
    bevformer_training,
    bevfusion_evaluation,
    bevfusion_training,
    detection_2d_evaluation,
    detection_2d_training,
    sparsedrive_evaluation,
    sparsedrive_training,
    streampetr_evaluation,
    streampetr_training,
)

IMAGES = ImageAugmentation(output_hw=(32, 64), scale_range=(0.8, 0.9), rotation_range_deg=(-3, 3))
RECIPES: dict[str, tuple[Any, Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "streampetr": (StreamPETRSettings(images=IMAGES), streampetr_training, streampetr_evaluation, {"split": 1}),
    "sparsedrive": (
        SparseDriveSettings(images=IMAGES, has_map=False, zero_ego_status=True),
        sparsedrive_training,
        sparsedrive_evaluation,
        {"split": 1},
    ),
    "sparse4d": (
        SparseDriveSettings.sparse4d(images=IMAGES),
        sparsedrive_training,
        sparsedrive_evaluation,
        {"split": 1},
    ),
    "bevformer": (
        BEVFormerSettings(queue_length=3, zero_can_bus=True),
        bevformer_training,
        bevformer_evaluation,
        {},
    ),
    "bevfusion": (
        BEVFusionSettings(images=IMAGES, num_sweeps=2, num_loaded_sweeps=3),
        bevfusion_training,
        bevfusion_evaluation,
        {},
    ),
    "detection_2d": (Detection2DSettings(), detection_2d_training, detection_2d_evaluation, {}),
}


def provider_of(root: Path, settings: Any, is_training: bool) -> NuScenesProvider:
    fields = dict(settings.provider_fields(is_training))
    fields.setdefault("classes", "detection")
    return NuScenesProvider(root, "v1.0-mini", **fields)


def recipe_loader(root: Path, name: str, is_training: bool, **options: Any) -> DataLoader:
    """Make the loader of a recipe, for training with batches of two samples."""
    settings, training, evaluation, arguments = RECIPES[name]
    provider = provider_of(root, settings, is_training)
    if is_training:
        loader: DataLoader = training(provider, 2, settings, **arguments, **options)
    else:
        loader = evaluation(provider, settings=settings, **options)
    return loader


def pixels_of(name: str) -> GpuCase:
    """What a GPU makes of a recipe, and how far that may be from what the CPU makes in the graph."""
    return GpuCase(dict, "input" if name == "detection_2d" else "img", NORMALIZED, share=0.02)
