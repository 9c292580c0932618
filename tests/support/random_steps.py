"""A setting of each random step, for cameras with an image, boxes, points and matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    BEVBBoxesTransformer3D,
    DataGroupArrayWithNameElementsAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageResizeCropFlipper,
    PhotoMetricDistorter,
    PipelineStepBase,
)

DT = types.DALIDataType
_HALVES = [0.5, 0.5]


def _affine(key: Any) -> PipelineStepBase:
    steps = AffineTransformer
    chosen = steps.Selection(
        0.8, _HALVES, [[steps.Rotation(0.5, -0.4, 0.4)], [steps.Shearing(0.5, [-0.2, -0.2], [0.2, 0.2])]]
    )
    return AffineTransformer(
        [20, 30],
        steps.ResizingMode.STRETCH,
        None,
        "image",
        "hw",
        "matrix",
        "points",
        [steps.UniformScaling(0.5, 0.8, 1.2), steps.Translation(0.5, [-4, -4], [4, 4]), chosen],
        key=key,
    )


RANDOM_STEPS: dict[str, Callable[[Any], PipelineStepBase]] = {
    "AffineTransformer": _affine,
    "BEVBBoxesTransformer3D": lambda key: BEVBBoxesTransformer3D(
        ["centers"], ["velocities"], ["sizes"], ["yaws"], ["matrix"], None, None, [-0.5, 0.5], 2, [0.9, 1.1],
        [1.0, 1.0, 0.2], flip_prob_x=0.5, flip_prob_y=0.5, key=key,
    ),
    "GridMasker": lambda key: GridMasker(
        "image", prob=0.7, tile_range=(6, 12), ratio_range=(0.3, 0.7), angle_range=(0.0, 0.5), key=key
    ),
    "HorizontalFlipper": lambda key: HorizontalFlipper(
        "image", prob=0.5, box_names="boxes", point_names="points", key=key
    ),
    "ImageResizeCropFlipper": lambda key: ImageResizeCropFlipper(
        "image", output_hw=[16, 24], scale_range=(0.6, 1.2), bottom_crop_range=(0.0, 0.3),
        box_names="boxes", key=key,
    ),
    "PhotoMetricDistorter": lambda key: PhotoMetricDistorter(
        "image", [-30, 30], [-18, 18], [0.5, 1.5], [0.5, 1.5], key=key
    ),
}  # fmt: skip


# The fields of a camera that a step uses; for others the image.
_USED = {
    "AffineTransformer": ["image", "hw", "matrix", "points"],
    "BEVBBoxesTransformer3D": ["centers", "velocities", "sizes", "yaws", "matrix"],
    "HorizontalFlipper": ["image", "boxes", "points"],
    "ImageResizeCropFlipper": ["image", "boxes"],
}


def used_fields(step: str) -> list[str]:
    return _USED.get(step, ["image"])


def each_camera(step: PipelineStepBase) -> PipelineStepBase:
    return DataGroupArrayWithNameElementsAppliedStep(step, "cameras")


def camera(names: Sequence[str], height: int = 24, width: int = 36, num_boxes: int = 3) -> SampleDataGroup:
    """A filled group of the named fields."""
    random = np.random.default_rng(0)
    corners = random.uniform(1, 10, (num_boxes, 2))
    fields: dict[str, tuple[types.DALIDataType, Any]] = {
        "image": (DT.UINT8, random.integers(0, 256, (height, width, 3)).astype(np.uint8)),
        "hw": (DT.INT32, [height, width]),
        "matrix": (DT.FLOAT, random.uniform(-1, 1, (4, 4)).astype(np.float32)),
        "points": (DT.FLOAT, random.uniform(0, 20, (num_boxes, 2))),
        "boxes": (DT.FLOAT, np.concatenate([corners, corners + 5], 1)),
        "centers": (DT.FLOAT, random.uniform(-9, 9, (num_boxes, 3))),
        "velocities": (DT.FLOAT, random.uniform(-9, 9, (num_boxes, 3))),
        "sizes": (DT.FLOAT, random.uniform(1, 9, (num_boxes, 3))),
        "yaws": (DT.FLOAT, random.uniform(-3, 3, (num_boxes,))),
    }
    return filled({name: fields[name] for name in names})


def filled(fields: dict[str, tuple[types.DALIDataType, Any]]) -> SampleDataGroup:
    group = SampleDataGroup()
    for name, (dtype, value) in fields.items():
        group.add_data_field(name, dtype)
        group[name] = value
    return group


def rig(scene: str, names: Sequence[str]) -> SampleDataGroup:
    """Two cameras that are alike, and the scene."""
    sample = filled({"scene": (DT.STRING, scene)})
    sample.add_data_group_field_array("cameras", camera(names), 2)
    for number in range(2):
        sample["cameras"][number] = camera(names)
    return sample
