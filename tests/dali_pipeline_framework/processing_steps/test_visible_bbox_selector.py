"""Visibility against a painted canvas of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from step_runs import assert_same
from support.array_samples import sample_of
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import ImageMeanStdDevNormalizer, VisibleBboxSelector
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.testing import run_step

NAN, INF = float("nan"), float("inf")


def painted(boxes: np.ndarray, depths: np.ndarray, hw: tuple[int, int]) -> np.ndarray:
    """Which boxes are left on a canvas."""
    canvas = np.full(hw, -1)
    # NaN is farther than infinity; of equal depths, the last one is painted last.
    for index in np.lexsort((np.where(np.isnan(depths), 0, -depths), ~np.isnan(depths))):
        if not np.isnan(boxes[index]).any():
            low, high = np.sort(boxes[index].reshape(2, 2), axis=0)
            left, top = np.clip(np.floor(low), 0, hw[::-1]).astype(int)
            right, bottom = np.clip(np.ceil(high), 0, hw[::-1]).astype(int)
            canvas[top:bottom, left:right] = index
    return np.isin(np.arange(len(boxes)), canvas)


def large_enough(boxes: np.ndarray, hw: tuple[int, int], size: float) -> np.ndarray:
    cut = np.clip(boxes, 0, np.array([hw[1], hw[0]] * 2))
    return (np.abs(cut[:, 2:] - cut[:, :2]) >= size).all(axis=1)


def visible(boxes: np.ndarray, depths: np.ndarray, hw: tuple[int, int]) -> np.ndarray:
    step = VisibleBboxSelector(
        "boxes", "mask", image_hw=hw, check_for_minimum_size=False, depths_field_name="depths"
    )
    return step(sample_of({"boxes": boxes, "depths": depths}))["mask"]


COORDINATES = st.integers(-8, 40).map(lambda value: value / 2)
SPECIAL = st.sampled_from([NAN, INF, -INF, 1e30])
BOXES = st.lists(st.tuples(*[COORDINATES] * 4, st.integers(1, 4).map(float)), max_size=12)
ODD_BOXES = st.lists(st.tuples(*[COORDINATES | SPECIAL] * 4, COORDINATES | SPECIAL), max_size=6)


@example([(2.5, 0.0, 0.0, 0.5, INF), (0.0, 0.0, 0.5, 20.0, NAN)], (1, 1))
@given(BOXES | ODD_BOXES, st.tuples(st.integers(1, 14), st.integers(1, 14)))
@settings(max_examples=examples(60, 200), deadline=None)
def test_boxes_are_visible_as_on_a_painted_canvas(boxes: list[Any], hw: tuple[int, int]) -> None:
    array = np.array(boxes, np.float32).reshape(-1, 5)
    assert_same(visible(array[:, :4], array[:, 4], hw), painted(array[:, :4], array[:, 4], hw))


@pytest.mark.parametrize(("num_boxes", "hw"), [(300, (900, 1600)), (512, (9, 17))])
def test_of_a_crowd(num_boxes: int, hw: tuple[int, int]) -> None:
    random = np.random.default_rng(num_boxes)
    size = np.array(hw[::-1])
    centers, sizes = random.random((num_boxes, 2)) * size, random.random((num_boxes, 2)) ** 2 * size * 0.55
    boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=1).astype(np.float32)
    boxes[::7, 1] = NAN
    depths = random.integers(0, 30, num_boxes)
    expected = painted(boxes, depths.astype(float), hw)
    assert 0 < expected.sum() < num_boxes
    assert_same(visible(boxes, depths, hw), expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8", "f2"])
def test_a_gap_of_one_pixel_is_enough(dtype: str) -> None:
    hiding = [[2, 2, 9, 5], [2, 6, 9, 9], [2, 5, 5, 6], [6, 5, 9, 6]]  # all but the pixel (5, 5)
    boxes = np.array([[2, 2, 9, 9], *hiding, [5, 5, 6, 6]], dtype)
    depths = np.array([9, 1, 2, 3, 4, 5], dtype)
    assert visible(boxes[:-1], depths[:-1], (12, 12)).all()
    assert visible(boxes, depths, (12, 12)).tolist() == [False, True, True, True, True, True]


@given(BOXES, st.sampled_from([0, 0.5, 3, 4.5]))
@settings(max_examples=examples(40, 100), deadline=None)
def test_small_boxes(boxes: list[Any], size: float) -> None:
    array = np.array(boxes, np.float32).reshape(-1, 5)[:, :4]
    step = VisibleBboxSelector(
        "boxes", "mask", image_hw=[9, 12], check_for_bbox_occlusion=False, minimum_bbox_size=size
    )
    found = step(sample_of({"boxes": array}))["mask"]  # no depths: they are not needed
    assert_same(found, large_enough(array, (9, 12), size))


@pytest.mark.parametrize(
    "source", [{"image_field_name": "image"}, {"image_field_name": "clip"}, {"image_hw_field_name": "size"}]
)
def test_size_of_the_image_from_a_field(source: dict[str, Any]) -> None:
    boxes = np.array([[0, 0, 5, 5], [1, 1, 4, 4], [30, 0, 15, 12.5], [3, 9, 8, 14]], np.float32)
    depths = np.array([[0], [1], [2], [3]], np.float32)
    annotation = {"boxes": boxes, "depths": depths}
    images = {"image": np.zeros((10, 20, 3), np.uint8), "clip": np.zeros((7, 10, 20, 3), np.uint8)}
    camera = {**images, "size": np.array([10, 20]), "annotation": annotation}
    step = VisibleBboxSelector(
        "boxes", ("camera", "annotation", "mask"), depths_field_name="depths", minimum_bbox_size=2, **source
    )
    found = step(sample_of({"camera": camera, "x": np.int64(1)})).to_dictionary()
    mask = np.array([True, False, True, False])
    assert_same(found, {"camera": {**camera, "annotation": {**annotation, "mask": mask}}, "x": np.int64(1)})


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_the_size_of_an_image_is_found_by_its_layout(layout: str, run: RunWhere) -> None:
    boxes = np.array([[10, 10, 60, 60], [190, 10, 260, 60], [10, 97, 60, 160]], np.float32)
    sample = sample_of({"image": np.zeros((100, 200, 3), np.uint8), "boxes": boxes})
    normalizer = ImageMeanStdDevNormalizer("image", 0.0, 255.0, output_layout=layout)
    step = VisibleBboxSelector("boxes", "m", "image", check_for_bbox_occlusion=False, minimum_bbox_size=4)
    assert run_step([normalizer, step], sample, run=run).output["m"].tolist() == [True, True, False]
