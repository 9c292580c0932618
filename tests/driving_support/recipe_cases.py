"""Every recipe, with settings for small data sets, and how a provider for it is made."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from nvidia.dali.types import DALIDataType
from support.gpu_cases import NORMALIZED, GpuCase

from accvlab.dali_pipeline_framework import DataLoader, SampleDataGroup
from accvlab.driving_data.datasets import NuScenesProvider
from accvlab.driving_data.recipes import (
    BEVFORMER,
    BEVFUSION,
    DETECTION_2D,
    SPARSEDRIVE,
    STREAMPETR,
    BEVFormerSettings,
    BEVFusionSettings,
    Detection2DSettings,
    ImageAugmentation,
    Recipe,
    SparseDriveSettings,
    StreamPETRSettings,
)

IMAGES = ImageAugmentation(output_hw=(32, 64), scale_range=(0.8, 0.9), rotation_range_deg=(-3, 3))
RECIPES: dict[str, tuple[Recipe, Any]] = {
    "streampetr": (STREAMPETR, StreamPETRSettings(images=IMAGES, split=1)),
    "sparsedrive": (SPARSEDRIVE, SparseDriveSettings(images=IMAGES, has_map=False, zero_ego_status=True, split=1)),
    "sparse4d": (SPARSEDRIVE, SparseDriveSettings.sparse4d(images=IMAGES, split=1)),
    "bevformer": (BEVFORMER, BEVFormerSettings(queue_length=3, zero_can_bus=True)),
    "bevfusion": (BEVFUSION, BEVFusionSettings(images=IMAGES, num_sweeps=2, num_loaded_sweeps=3)),
    "detection_2d": (DETECTION_2D, Detection2DSettings()),
}


CLASSES = ("car", "pedestrian", "barrier")
SMALL = ImageAugmentation(output_hw=(8, 16), scale_range=(0.4, 0.6), allows_black=True)
WIDE = (-1e4, -1e4, -1e4, 1e4, 1e4, 1e4)
# For `drives.write_drive`. Nothing moves the scene, so that boxes are where the provider has them.
STILL: dict[str, Any] = {"images": SMALL, "classes": CLASSES}
STREAMED = {
    **STILL,
    "bev_rotation_range": (0, 0),
    "bev_scale_range": (1, 1),
    "point_cloud_range": WIDE,
    "split": 1,
}
SWEPT = {**STILL, "num_sweeps": 0, "num_loaded_sweeps": 0, "point_cloud_range": WIDE, "translation_std": 0}
SWEPT |= {"rotation_range": (0, 0), "scale_range": (1, 1), "flip_prob": 0}
OF_DRIVE: dict[str, tuple[Recipe, Any]] = {
    "streampetr": (STREAMPETR, StreamPETRSettings(**STREAMED)),
    "sparsedrive": (SPARSEDRIVE, SparseDriveSettings(**STILL, circle_range=1e4)),
    "bevformer": (BEVFORMER, BEVFormerSettings(classes=CLASSES, point_cloud_range=WIDE, queue_length=2)),
    "bevfusion": (BEVFUSION, BEVFusionSettings(**SWEPT)),
    "detection_2d": (DETECTION_2D, Detection2DSettings(output_hw=(8, 16), classes=CLASSES)),
}


class WithField:
    """Makes a class of providers, the next base, have one more field: int32 numbers."""

    name = "weather"

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint: SampleDataGroup = super().sample_data_structure  # type: ignore[misc]
        blueprint.add_data_field(self.name, DALIDataType.INT32, ndim=0)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample: SampleDataGroup = super().get_data(sample_index)  # type: ignore[misc]
        sample.add_data_field(self.name, DALIDataType.INT32, ndim=0)
        sample[self.name] = self.number_of(sample_index)
        return sample

    def number_of(self, sample_index: int) -> int:
        return 10 + sample_index


def photometric_draws(recorded: list[dict[str, Any]], group: str) -> dict[str, Any]:
    """Draws of `UnclippedPhotometricDistorter` as the published code made them, for each image of a group."""
    parts = {"brightness_delta": 0.0, "contrast_alpha": 1.0, "saturation": 1.0, "hue_delta": 0.0}
    draws: dict[str, Any] = {}
    for number, image in enumerate(recorded):
        happens = [image[name] is not None for name in (*parts, "channel_permutation")]
        happens.insert(1, image["contrast_first"])
        prefix = f"UnclippedPhotometricDistorter[0]/{group}[{number}]"
        draws |= {f"{prefix}/{name.split('_')[0]}": image[name] or still for name, still in parts.items()}
        draws[f"{prefix}/decisions"] = [0.0 if each else 1.0 for each in happens]
        order = tuple(image["channel_permutation"] or (0, 1, 2))
        draws[f"{prefix}/permutation"] = [*itertools.permutations(range(3))].index(order)
    return draws


def batches_of(recipe: Recipe, provider: Any, settings: Any = None, batch_size: int = 1, **options: Any) -> Any:
    """Batches of an epoch, of NumPy arrays, loaded in this process unless the options say otherwise."""
    options = {"num_workers": 0, "output_type": "numpy", **options}
    with recipe.loader(provider, batch_size, settings, **options) as loader:
        return list(loader)


def provider_of(root: Path, settings: Any, is_training: bool) -> NuScenesProvider:
    fields = dict(settings.provider_fields(is_training))
    fields.setdefault("classes", "detection")
    return NuScenesProvider(root, "v1.0-mini", **fields)


def recipe_loader(root: Path, name: str, is_training: bool, **options: Any) -> DataLoader:
    """Make the loader of a recipe, for training with batches of two samples."""
    recipe, settings = RECIPES[name]
    provider = provider_of(root, settings, is_training)
    return recipe.loader(provider, 2 if is_training else 1, settings, is_training=is_training, **options)


def pixels_of(name: str) -> GpuCase:
    """What a GPU makes of a recipe, and how far that may be from what the CPU makes in the graph."""
    return GpuCase(dict, "input" if name == "detection_2d" else "img", NORMALIZED, share=0.02)
