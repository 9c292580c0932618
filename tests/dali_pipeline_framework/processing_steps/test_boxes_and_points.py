"""Filters, limits and padding of boxes and points, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_same
from support.array_samples import sample_of
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import (
    BoxAreaFilter,
    CoordinateCropper,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    PointsPadder,
)

INF, NAN = float("inf"), float("nan")
EXAMPLES = settings(max_examples=examples(60, 150), deadline=None)


def applied(step: Any, sample: dict[Any, Any]) -> dict[Any, Any]:
    return step(sample_of(sample)).to_dictionary()


@given(
    data=st.data(),
    dtype=st.sampled_from(["f4", "f8", "i4"]),
    box_format=st.sampled_from(["xyxy", "xywh", "cxcywh"]),
)
@EXAMPLES
def test_boxes_of_a_range_of_areas_are_kept(data: st.DataObject, dtype: str, box_format: str) -> None:
    low, high = sorted(data.draw(st.tuples(*[st.sampled_from([0.0, 4.0, 6.0, 20.0, INF])] * 2)))
    number = st.integers(-2, 8) if dtype == "i4" else st.integers(-2, 8) | st.just(NAN)
    boxes = np.array(data.draw(st.lists(st.tuples(*[number] * 4), max_size=6)), dtype).reshape(-1, 4)
    sample = {"a": {"boxes": boxes, "ids": np.arange(len(boxes))}, "ids": np.arange(3)}
    step = BoxAreaFilter("boxes", area_range=(low, high), further_names="ids", box_format=box_format)
    exact = boxes.astype(np.float64)
    sides = exact[:, 2:] - exact[:, :2] if box_format == "xyxy" else exact[:, 2:]
    area = np.where(np.isnan(sides), sides, np.maximum(sides, 0)).prod(axis=1)
    kept = (area >= low) & (area <= high)
    expected = {"boxes": boxes[kept], "ids": sample["a"]["ids"][kept]}
    assert_same(applied(step, sample), {"a": expected, "ids": sample["ids"]})


def test_without_a_range_boxes_of_any_area_are_kept() -> None:
    assert len(applied(BoxAreaFilter("boxes"), {"boxes": np.zeros((2, 4))})["boxes"]) == 2
    for dtype in ("f4", "f8"):  # limits are of the type of the boxes
        step = BoxAreaFilter("boxes", area_range=(0.1, 0.1))
        assert len(applied(step, {"boxes": np.array([[0, 0, 0.1, 1]], dtype)})["boxes"]) == 1


@pytest.mark.parametrize("count", [200, 0, 1])
def test_points_of_a_range_are_kept_with_all_their_columns(count: int) -> None:
    random = np.random.default_rng(0)
    points = random.uniform(-2, 2, (count, 5)).astype(np.float32)
    points[count // 2 :: 7, 1] = NAN
    points[count // 3 :: 5, 0] = 1
    ring = random.integers(0, 32, (count, 1))
    step = PointCloudRangeFilter("points", point_range=([-1, -1, -INF], [1, 1, 0.5]), further_names=["ring"])
    kept = ((points[:, :3] >= [-1, -1, -INF]) & (points[:, :3] <= [1, 1, 0.5])).all(axis=1)
    found = applied(step, {"lidar": {"points": points, "ring": ring}, "x": np.int8(0)})
    assert_same(found, {"lidar": {"points": points[kept], "ring": ring[kept]}, "x": np.int8(0)})


# --- limits -----------------------------------------------------------------------------------------------


@given(data=st.data(), dtype=st.sampled_from(["f2", "f4", "f8", "i1", "i8"]), columns=st.integers(1, 4))
@EXAMPLES
def test_points_on_a_border_are_inside_and_nan_is_not(data: st.DataObject, dtype: str, columns: int) -> None:
    ends = st.sampled_from([-INF, -2.0, -0.5, 0.0, 1.0, 1.2, 1.5, 1.8, 3.0, INF])
    low, high = np.sort(data.draw(st.tuples(*[st.tuples(*[ends] * columns)] * 2)), axis=0)
    values = [-3, -2, -1, 0, 1, 2, 3, 100, *([] if dtype[0] == "i" else [0.5, 1.5, NAN, INF, -INF])]
    row = st.lists(st.sampled_from(values), min_size=columns, max_size=columns)
    points = np.array(data.draw(st.lists(row, max_size=5)), dtype).reshape(-1, columns)
    # Limits of floats are rounded to their type.
    least, most = (each if dtype[0] == "i" else each.astype(dtype) for each in (low, high))
    expected = ((points >= least) & (points <= most)).all(axis=1)
    assert_same(applied(PointsInRangeCheck("p", "in", low, high), {"p": points}), {"p": points, "in": expected})


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1e30, INF, [False] * 2), (-INF, -1e30, [False] * 2), (-1e30, 1e30, [True] * 2)]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64])
def test_limits_beyond_the_type_are_limits(dtype: Any, low: float, high: float, expected: list[bool]) -> None:
    points = np.array([[np.iinfo(dtype).min], [np.iinfo(dtype).max]], dtype)
    assert applied(PointsInRangeCheck("p", "in", [low], [high]), {"p": points})["in"].tolist() == expected


def test_large_integers_are_exact() -> None:
    points = np.array([[2**53], [2**53 + 1], [2**53 + 2]])
    found = applied(PointsInRangeCheck("p", "in", [2**53 + 2], [INF]), {"p": points})
    assert found["in"].tolist() == [False, False, True]


@given(data=st.data(), dtype=st.sampled_from(["f2", "f4", "f8"]), columns=st.integers(1, 4))
@EXAMPLES
def test_floats_are_clamped_per_column(data: st.DataObject, dtype: str, columns: int) -> None:
    number = st.floats(-100, 100, width=16)
    low, high = np.sort(data.draw(st.tuples(*[st.tuples(*[number] * columns)] * 2)), axis=0)
    row = st.lists(number | st.sampled_from([NAN, INF, -INF, -0.0]), min_size=columns, max_size=columns)
    points = np.array(data.draw(st.lists(row, max_size=4)), dtype).reshape(-1, columns)
    found = applied(CoordinateCropper("p", low, high), {"p": points})["p"]
    np.testing.assert_array_equal(found, np.clip(points, low.astype(dtype), high.astype(dtype)))
    assert found.dtype == dtype


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_are_clamped_exactly_at_the_ends_of_their_type(dtype: str) -> None:
    info = np.iinfo(dtype)
    ends = [int(info.min), int(info.min) + 1, 5, int(info.max) - 1, int(info.max)]
    points = np.array([[value, value] for value in ends], dtype)
    found = applied(CoordinateCropper("p", [-INF, 6.9], [INF, 1e30]), {"p": points})["p"]
    assert found.tolist() == [[value, max(value, 6)] for value in ends]
    assert found.dtype == np.dtype(dtype)


def test_every_field_of_the_name_is_limited() -> None:
    nines = np.full((2, 2), 9.0)
    sample = {"p": nines, "a": {0: {"p": np.full((1, 2), -3, np.int32), "q": nines}}}
    cropped = {"p": np.array([[5.0, 4.0]] * 2), "a": {0: {"p": np.array([[0, 1]], np.int32), "q": nines}}}
    assert_same(applied(CoordinateCropper("p", [0, 1], [5, 4]), sample), cropped)
    checked = {"p": nines, "a": {0: {**sample["a"][0], "in": np.array([True])}}, "in": np.array([False] * 2)}
    assert_same(applied(PointsInRangeCheck("p", "in", [-5, -5], [5, 5]), sample), checked)


# --- padding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bool, "i1", "i8", "u2", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("count", [0, 2, 3, 5])
def test_points_are_cut_or_filled_to_a_number(dtype: Any, count: int) -> None:
    points = np.random.default_rng(2).integers(0, 99, (count, 2)).astype(dtype)
    step = PointsPadder("p", num_points=3, mask_name="mask", fill_value=7.0)
    expected = np.full((3, 2), 7).astype(dtype)
    expected[: min(count, 3)] = points[:3]
    found = applied(step, {"a": {"p": points}})
    assert_same(found, {"a": {"p": expected, "mask": np.arange(3) < count}})


@pytest.mark.parametrize("shape", [(1,), (1, 2, 3)])
def test_points_of_other_shapes_are_filled_with_zeros(shape: tuple[int, ...]) -> None:
    expected = np.concatenate([np.ones(shape), np.zeros(shape)])
    assert_same(applied(PointsPadder("p", num_points=2), {"p": np.ones(shape)}), {"p": expected})


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [("i1", 2.7, 3), ("i1", -300, -128), ("u1", -2.7, 0), ("u8", 1e30, 2**64 - 1), ("i4", NAN, 0)],
)
def test_fill_values_are_rounded_and_limited(dtype: str, fill: float, expected: int) -> None:
    found = applied(PointsPadder("p", num_points=2, fill_value=fill), {"p": np.ones(1, dtype)})
    assert found["p"].tolist() == [1, expected]
