"""Formats of boxes, filters, padding to a number, and differences of time, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, output_format, run_step
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.processing_steps import (
    BoxAreaFilter,
    PointCloudRangeFilter,
    PointsPadder,
)

FORMATS = ["xyxy", "xywh", "cxcywh"]
INF = float("inf")


def to_format(corners: np.ndarray, box_format: str) -> np.ndarray:
    first, second = corners[:, :2], corners[:, 2:]
    return {
        "xyxy": corners,
        "xywh": np.concatenate([first, second - first], axis=1),
        "cxcywh": np.concatenate([(first + second) / 2, second - first], axis=1),
    }[box_format]


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

    def test_refusals(self) -> None:
        with pytest.raises(
            SettingError,
            match=r"`area_range` must be two numbers, 0 <= least <= greatest, got \(3, 2\)",
        ):
            BoxAreaFilter("boxes", area_range=(3, 2))
        with pytest.raises(SettingError, match="`box_format` must be one of"):
            BoxAreaFilter("boxes", box_format="ltrb")
        sample = {"a": {"boxes": np.zeros((1, 4)), "g": {}}, "ids": np.zeros(1)}
        with pytest.raises(
            KeyError,
            match=r"a\.ids: there is no such data field .*\n.*a\.g: must be a data field",
        ):
            output_format(BoxAreaFilter("boxes", further_names=["ids", "g"]), sample)
        with pytest.raises(RuntimeError):
            run_step(
                BoxAreaFilter("boxes", further_names="ids"),
                [{"boxes": np.zeros((2, 4)), "ids": np.zeros(3)}],
            )


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

    def test_too_few_columns_fail(self) -> None:
        with pytest.raises(RuntimeError, match="one number for each limit"):
            run_step(PointCloudRangeFilter("p", point_range=([0] * 3, [1] * 3)), [{"p": np.zeros((4, 2))}])


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

    @pytest.mark.parametrize("num_points", [0, -1, 2.5, "3", None])
    def test_numbers_that_are_refused(self, num_points: Any) -> None:
        with pytest.raises(SettingError, match="`num_points` must be a whole number of at least 1, got"):
            PointsPadder("p", num_points=num_points)

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="m: exists already"):
            output_format(PointsPadder("p", num_points=3, mask_name="m"), {"p": np.zeros(1), "m": np.zeros(1)})
        with pytest.raises(SettingError, match="`fill_value` must be a number"):
            PointsPadder("p", num_points=3, fill_value="0")


NOW = 1_700_000_000_123_456_789
