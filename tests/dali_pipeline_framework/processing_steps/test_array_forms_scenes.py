"""What steps that move 3D boxes and draw heatmaps refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.random_steps import filled

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import (
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
)
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType


def reals(rng: np.random.Generator, *shape: int, scale: float = 10.0) -> np.ndarray:
    """Numbers, and some that are not finite."""
    values = rng.normal(0, scale, shape)
    odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30], shape)
    return np.where(rng.random(shape) < 0.05, odd, values).astype(np.float32)


# --- 3D boxes -------------------------------------------------------------------------------------------


def scene(rng: np.random.Generator, n: int) -> SampleDataGroup:
    values = {
        "points": reals(rng, n, 3),
        "point": reals(rng, 3),
        "velocities": reals(rng, n, 3),
        "velocity": reals(rng, 3),
        "sizes": reals(rng, n, 3),
        "yaws": reals(rng, n),
        "yaw": reals(rng, scale=4.0),
        "projections": reals(rng, 2, 3, 4),
        "projection": reals(rng, 4, 4),
        "ego_to_world": reals(rng, 4, 4),
        "world_to_ego": reals(rng, 4, 4),
        "others": reals(rng, n, 3),
    }
    return filled({name: (DT.FLOAT, value) for name, value in values.items()})


NAMES: list[Any] = [
    ["points", "point"],
    ["velocities", "velocity"],
    "sizes",
    ["yaws", "yaw"],
    ["projections", "projection"],
    "ego_to_world",
    "world_to_ego",
]


@pytest.mark.parametrize(
    ("field", "shape", "message"),
    [
        ("points", (2, 4), "points: Points and velocities must be x, y, z"),
        ("velocities", (2, 2), "velocities: Points and velocities must be x, y, z"),
        ("projection", (4, 3), "projection: Matrices must have 4 columns"),
    ],
)
def test_3d_boxes_of_other_shapes_are_refused(field: str, shape: tuple[int, ...], message: str) -> None:
    sample = scene(np.random.default_rng(1), 2)
    sample[field] = np.zeros(shape, np.float32)
    step = BEVBBoxesTransformer3D(*NAMES, [-0.4, 0.4], 2, [0.9, 1.1], None)
    with pytest.raises(FieldValueError, match=message):
        run_step(step, sample, run="workers")


# --- heatmaps -------------------------------------------------------------------------------------------

CATEGORY_TYPES = {DT.INT32: np.int32, DT.INT64: np.int64, DT.UINT8: np.uint8, DT.INT8: np.int8}


def annotated(rng: np.random.Generator, n: int, category_type: DT = DT.INT32) -> SampleDataGroup:
    boxes = reals(rng, n, 4, scale=40.0) + np.float32(40)
    is_whole = rng.random(n) < 0.5
    boxes[is_whole] = np.round(boxes[is_whole])  # centers on the borders of pixels
    annotation = filled(
        {
            "boxes": (DT.FLOAT, boxes),
            "categories": (category_type, rng.integers(-2, 5, n).astype(CATEGORY_TYPES[category_type])),
            "are_valid": (DT.BOOL, rng.random(n) < 0.8),
            "centers": (DT.FLOAT, reals(rng, n, 2, scale=30.0) + np.float32(40)),
        }
    )
    sample = SampleDataGroup()
    sample.add_data_group_field("annotation", annotation)
    sample["annotation"] = annotation
    sample.add_data_field("hw", DT.INT32)
    sample["hw"] = np.array([90, 120], np.int32)
    return sample


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("boxes", np.zeros((2, 3), np.float32), r"annotation: Boxes must be \(N, 4\)"),
        ("categories", np.zeros(3, np.int32), "annotation: One value for each box is needed"),
        ("centers", np.zeros((1, 2), np.float32), "annotation: A center x, y for each box is needed"),
    ],
)
def test_annotations_of_other_shapes_are_refused(field: str, value: np.ndarray, message: str) -> None:
    sample = annotated(np.random.default_rng(1), 2)
    sample["annotation"][field] = value
    step = BoundingBoxToHeatmapConverter(
        *("annotation", "boxes", "heatmap", (9, 9), None, "hw", "categories", 3),
        is_valid_opt_in_name="are_valid",
        center_opt_in_name="centers",
    )
    with pytest.raises(FieldValueError, match=message):
        run_step(step, sample, run="workers")
