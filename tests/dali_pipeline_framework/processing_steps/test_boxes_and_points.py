"""Filters of boxes and points, and padding to a number, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, run_step
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import (
    BoxAreaFilter,
    PointCloudRangeFilter,
    PointsPadder,
)

FORMATS = ["xyxy", "xywh", "cxcywh"]
INF = float("inf")


class TestBoxAreaFilter:
    @given(data=st.data())
    @settings(max_examples=examples(7, 15), deadline=None)
    def test_keeps_boxes_of_a_range_and_what_belongs_to_them(self, data: st.DataObject) -> None:
        box_format = data.draw(st.sampled_from(FORMATS))
        dtype = data.draw(st.sampled_from(["f4", "f8", "i4"]))
        low, high = sorted(data.draw(st.tuples(*[st.sampled_from([0.0, 4.0, 6.0, 20.0, INF])] * 2)))
        number = st.integers(-2, 8)
        if dtype != "i4":
            number = number | st.just(float("nan"))
        samples = []
        for _ in range(2):
            boxes = np.array(data.draw(st.lists(st.tuples(*[number] * 4), max_size=6)), dtype).reshape(-1, 4)
            samples.append({"a": {"boxes": boxes, "ids": np.arange(len(boxes))}, "ids": np.arange(3)})
        step = BoxAreaFilter("boxes", area_range=(low, high), further_names="ids", box_format=box_format)
        for one, sample in zip(run_step(step, samples), samples, strict=True):
            boxes = sample["a"]["boxes"].astype(np.float64)
            sides = boxes[:, 2:] - boxes[:, :2] if box_format == "xyxy" else boxes[:, 2:]
            area = np.where(np.isnan(sides), sides, np.maximum(sides, 0)).prod(axis=1)
            kept = (area >= low) & (area <= high)
            if box_format == "xyxy":
                assert not np.isnan(one["a"]["boxes"].astype(float)).any()
            expected = {"boxes": sample["a"]["boxes"][kept], "ids": sample["a"]["ids"][kept]}
            assert_same(one, {"a": expected, "ids": sample["ids"]})

    def test_laws(self) -> None:
        samples = [{"boxes": np.tile(np.array([[0, 0, 2, 3]], np.float32), (n, 1))} for n in (2, 0, 1)]
        least_6, least_6_5 = (BoxAreaFilter("boxes", area_range=(least, INF)) for least in (6, 6.5))
        assert [len(one["boxes"]) for one in assert_laws(least_6, samples)] == [2, 0, 1]
        assert [len(one["boxes"]) for one in run_step(least_6_5, samples)] == [0, 0, 0]
        assert [len(one["boxes"]) for one in run_step(BoxAreaFilter("boxes"), [{"boxes": np.zeros((2, 4))}])] == [
            2
        ]


class TestPointCloudRangeFilter:
    def test_keeps_points_in_the_box_with_all_their_columns(self) -> None:
        random = np.random.default_rng(0)
        samples = []
        for n in (200, 0, 1):
            points = random.uniform(-2, 2, (n, 5)).astype(np.float32)
            points[n // 2 :: 7, 1] = np.nan
            points[n // 3 :: 5, 0] = 1
            samples.append({"lidar": {"points": points, "ring": random.integers(0, 32, (n, 1))}, "x": np.int8(0)})
        step = PointCloudRangeFilter("points", point_range=([-1, -1, -INF], [1, 1, 0.5]), further_names=["ring"])
        for one, sample in zip(assert_laws(step, samples), samples, strict=True):
            points = sample["lidar"]["points"]
            kept = ((points[:, :3] >= [-1, -1, -INF]) & (points[:, :3] <= [1, 1, 0.5])).all(axis=1)
            expected = {"points": points[kept], "ring": sample["lidar"]["ring"][kept]}
            assert_same(one, {**sample, "lidar": expected})


class TestPointsPadder:
    @pytest.mark.parametrize("dtype", [bool, "i1", "i8", "u2", "u8", "f2", "f4", "f8"])
    @pytest.mark.parametrize("fill", [0, 1, 7.0])
    def test_cuts_and_fills(self, dtype: Any, fill: float) -> None:
        random = np.random.default_rng(2)
        samples = [{"a": {"p": random.integers(0, 99, (n, 2)).astype(dtype)}} for n in (0, 2, 3, 5)]
        found = run_step(PointsPadder("p", num_points=3, mask_name="mask", fill_value=fill), samples)
        for one, n in zip(found, (0, 2, 3, 5), strict=True):
            values = samples[(0, 2, 3, 5).index(n)]["a"]["p"]
            expected = np.full((3, 2), fill).astype(dtype)
            expected[: min(n, 3)] = values[:3]
            assert_same(one, {"a": {"p": expected, "mask": np.arange(3) < n}})

    def test_laws_and_other_shapes(self) -> None:
        samples = [{"p": np.arange(n), "q": np.zeros(n)} for n in (1, 0, 9)]
        found = assert_laws(PointsPadder("p", num_points=4, fill_value=-1), samples)
        assert [one["p"].tolist() for one in found] == [[0, -1, -1, -1], [-1] * 4, [0, 1, 2, 3]]
        [one] = run_step(PointsPadder("p", num_points=2), [{"p": np.ones((1, 2, 3), np.float32)}])
        assert one["p"].shape == (2, 2, 3)

    @pytest.mark.parametrize(
        ("dtype", "fill", "expected"),
        [("i1", 2.7, 3), ("i1", -300, -128), ("u1", -2.7, 0), ("u8", 1e30, 2**64 - 1), ("i4", np.nan, 0)],
    )
    def test_fill_values_are_rounded_and_limited(self, dtype: str, fill: float, expected: int) -> None:
        step = PointsPadder("p", num_points=2, fill_value=fill)
        [found] = run_step(step, [{"p": np.ones(1, dtype)}])
        assert found["p"].tolist() == [1, expected]
