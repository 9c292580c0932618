"""Steps that move 3D boxes and draw heatmaps give the same on arrays as in the graph, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.laws import examples
from support.random_steps import filled

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import (
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType


def assert_forms_agree(step: PipelineStepBase, sample: SampleDataGroup, seed: int) -> None:
    in_graph = run_step(step, sample, seed=seed)
    on_arrays = run_step(step, sample, draws=in_graph.draws, run="workers")
    expected, found = in_graph.output, on_arrays.output
    assert found.format.matches(expected.format)
    for path, one, other in zip(expected.format.flat_paths, expected.get_data(), found.get_data(), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), path
        np.testing.assert_array_equal(other, one, str(path))
        if one.dtype.kind == "f":
            assert np.array_equal(np.signbit(other) | np.isnan(one), np.signbit(one) | np.isnan(one)), path


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


@settings(max_examples=examples(6, 60), deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    n=st.integers(0, 6),
    axis=st.sampled_from([0, 1, 2, None]),
    has_scale=st.booleans(),
    has_translation=st.booleans(),
    flip_probs=st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])),
)
def test_3d_boxes(
    seed: int, n: int, axis: int | None, has_scale: bool, has_translation: bool, flip_probs: tuple[float, float]
) -> None:
    names = list(NAMES)
    if axis in (0, 1) and any(flip_probs):
        names[3] = None  # which cannot be mirrored
    step = BEVBBoxesTransformer3D(
        *names,
        None if axis is None else [-3.0, 7.0],
        axis,
        [0.8, 1.25] if has_scale else None,
        [3.0, 0.5, 20.0] if has_translation else None,
        flip_prob_x=flip_probs[0],
        flip_prob_y=flip_probs[1],
    )
    assert_forms_agree(step, scene(np.random.default_rng(seed), n), seed)


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


OUTPUTS = {
    "is_active_opt_out_name": "are_active",
    "center_opt_out_name": "pixels",
    "center_offset_opt_out_name": "offsets",
    "height_width_bboxes_heatmap_opt_out_name": "extents",
    "bboxes_heatmap_opt_out_name": "boxes_of_heatmap",
}


@settings(max_examples=examples(3, 40), deadline=None)
@given(seed=st.integers(0, 1 << 20), n=st.integers(0, 12), data=st.data())
def test_heatmaps(seed: int, n: int, data: st.DataObject) -> None:
    draw = data.draw
    how: dict[str, Any] = {}
    if draw(st.booleans(), "with categories"):
        how |= {"categories_in_name": "categories", "num_categories": draw(st.integers(1, 4))}
        how["use_per_category_heatmap"] = draw(st.booleans())
        if draw(st.booleans(), "least sizes"):
            how["per_category_min_object_sizes"] = [[1.5 * i, 4.0] for i in range(how["num_categories"])]
    else:
        how["use_per_category_heatmap"] = False
        how["min_object_size"] = draw(st.sampled_from([None, [2, 3]]))
    how["is_valid_opt_in_name"] = draw(st.sampled_from([None, "are_valid"]))
    how["center_opt_in_name"] = draw(st.sampled_from([None, "centers"]))
    how["max_radius"] = draw(st.sampled_from([0.5, 6.5, 200.0, float("inf")]))
    how["radius_scaling_factor"] = draw(st.sampled_from([0.0, 0.8, float("inf")]))
    hw = draw(st.sampled_from([(45, 60), (30, 41), (1, 1), (90, 7)]))
    step = BoundingBoxToHeatmapConverter("annotation", "boxes", "heatmap", hw, None, "hw", **how, **OUTPUTS)
    sample = annotated(np.random.default_rng(seed), n, draw(st.sampled_from([*CATEGORY_TYPES])))
    assert_forms_agree(step, sample, seed)


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
