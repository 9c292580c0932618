"""Visibility against a painted canvas of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, output_format, run_step, run_steps
from support.arrays import DT
from support.laws import examples, some

from accvlab.dali_pipeline_framework.processing_steps import ImageMeanStdDevNormalizer, VisibleBboxSelector
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere


def painted(boxes: np.ndarray, depths: np.ndarray, hw: tuple[int, int]) -> np.ndarray:
    """Which boxes are left on a canvas."""
    canvas = np.full(hw, -1)
    # NaN is farther than infinity; of equal depths, the last one is painted last.
    farthest_first = np.lexsort((np.where(np.isnan(depths), 0, -depths), ~np.isnan(depths)))
    for index in farthest_first:
        if np.isnan(boxes[index]).any():
            continue
        x, y = np.sort(boxes[index, 0::2]), np.sort(boxes[index, 1::2])
        [left, top] = (
            int(np.clip(np.floor(side[0]), 0, size)) for side, size in zip((x, y), hw[::-1], strict=True)
        )
        [right, bottom] = (
            int(np.clip(np.ceil(side[1]), 0, size)) for side, size in zip((x, y), hw[::-1], strict=True)
        )
        canvas[top:bottom, left:right] = index
    return np.isin(np.arange(len(boxes)), canvas)


def large_enough(boxes: np.ndarray, hw: tuple[int, int], size: float) -> np.ndarray:
    cut = np.clip(boxes, 0, np.array([hw[1], hw[0]] * 2))
    return (np.abs(cut[:, 2:] - cut[:, :2]) >= size).all(axis=1)


def visible(samples: list[dict[str, Any]], hw: tuple[int, int]) -> list[np.ndarray]:
    step = VisibleBboxSelector(
        "boxes", "mask", image_hw=hw, check_for_minimum_size=False, depths_field_name="depths"
    )
    return [one["mask"] for one in run_step(step, samples)]


COORDINATES = st.integers(-8, 40).map(lambda value: value / 2)
SPECIAL = st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e30])
BOXES = st.lists(st.tuples(*[COORDINATES] * 4, st.integers(1, 4).map(float)), max_size=12)
ODD_BOXES = st.lists(st.tuples(*[COORDINATES | SPECIAL] * 4, COORDINATES | SPECIAL), max_size=6)


@example([[(2.5, 0.0, 0.0, 0.5, np.inf), (0.0, 0.0, 0.5, 20.0, np.nan)]], 1, 1)
@given(
    samples=st.lists(BOXES | ODD_BOXES, min_size=1, max_size=8),
    height=st.integers(1, 14),
    width=st.integers(1, 14),
)
@settings(max_examples=examples(4, 24), deadline=None)  # each builds a large graph
def test_boxes_are_visible_as_on_a_painted_canvas(samples: list[Any], height: int, width: int) -> None:
    arrays = [np.array(sample, np.float32).reshape(-1, 5) for sample in samples]
    found = visible([{"boxes": array[:, :4], "depths": array[:, 4]} for array in arrays], (height, width))
    for mask, array in zip(found, arrays, strict=True):
        assert_same(mask, painted(array[:, :4], array[:, 4], (height, width)))


def crowd(num_boxes: int, hw: tuple[int, int], seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    size = np.array(hw[::-1])
    centers, sizes = random.random((num_boxes, 2)) * size, random.random((num_boxes, 2)) ** 2 * size * 0.55
    boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], axis=1)
    return {"boxes": boxes.astype(np.float32), "depths": random.integers(0, 30, num_boxes)}


def assert_as_painted(samples: list[dict[str, Any]], hw: tuple[int, int]) -> None:
    for mask, sample in zip(visible(samples, hw), samples, strict=True):
        expected = painted(sample["boxes"], sample["depths"].astype(float), hw)
        assert (mask == expected).all()
        assert expected.any()


@some("numbers", [(5, 63, 64), (65,), (130, 300), (384,), (385,)], {0, 1, 4}, ids=str)
def test_of_a_crowded_image_of_full_size(numbers: tuple[int, ...]) -> None:
    assert_as_painted([crowd(num_boxes, (900, 1600), num_boxes) for num_boxes in numbers], (900, 1600))


@some("hw", [(9, 17), (40, 30), (300, 400)], {0, 2})
def test_of_many_boxes_with_few_places_for_their_edges(hw: tuple[int, int]) -> None:
    samples = [crowd(num_boxes, hw, num_boxes) for num_boxes in (430, 3, 512, 400)]  # in one batch with few boxes
    samples[0]["boxes"][::7, 1] = np.nan
    samples[2]["boxes"][:, 2:] += 1
    assert_as_painted(samples, hw)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8", "f2"])
def test_a_gap_of_one_pixel_is_enough(dtype: str) -> None:
    far = [2, 2, 9, 9]
    hiding = [[2, 2, 9, 5], [2, 6, 9, 9], [2, 5, 5, 6], [6, 5, 9, 6]]  # all but the pixel (5, 5)
    boxes = np.array([far, *hiding, [5, 5, 6, 6]], dtype)
    depths = np.array([9, 1, 2, 3, 4, 5], dtype)
    [without, with_last] = visible(
        [{"boxes": boxes[:-1], "depths": depths[:-1]}, {"boxes": boxes, "depths": depths}], (12, 12)
    )
    assert without.all()
    assert with_last.tolist() == [False, True, True, True, True, True]


def test_a_box_with_nan_is_not_visible_and_hides_nothing() -> None:
    samples = []
    for position in range(4):
        boxes = np.array([[1.5, 1.5, 1.8, 1.8], [1.5, 1.5, 1.5, 1.5]], np.float32)
        boxes[1, position] = np.nan
        samples.append({"boxes": boxes, "depths": np.array([2, 1], np.float32)})
    assert [mask.tolist() for mask in visible(samples, (5, 5))] == [[True, False]] * 4


@given(samples=st.lists(BOXES, min_size=1, max_size=3), size=st.sampled_from([0, 0.5, 3, 4.5]))
@settings(max_examples=examples(5, 20), deadline=None)
def test_small_boxes(samples: list[Any], size: float) -> None:
    arrays = [np.array(sample, np.float32).reshape(-1, 5)[:, :4] for sample in samples]
    step = VisibleBboxSelector(
        "boxes", "mask", image_hw=[9, 12], check_for_bbox_occlusion=False, minimum_bbox_size=size
    )
    found = run_step(step, [{"boxes": array} for array in arrays])  # no depths: they are not needed
    for one, array in zip(found, arrays, strict=True):
        assert_same(one["mask"], large_enough(array, (9, 12), size))


SAMPLES = [
    {
        "camera": {
            "image": np.zeros((10 + n, 20, 3), np.uint8),
            "size": np.array([10 + n, 20]),
            "annotation": {"boxes": boxes, "depths": np.arange(n, dtype=np.float32).reshape(n, 1)},
        },
        "x": np.int64(n),
    }
    for n, boxes in (
        (3, np.array([[0, 0, 5, 5], [1, 1, 4, 4], [30, 0, 15, 12.5]], np.float32)),
        (0, np.zeros((0, 4), np.float32)),
        (1, np.array([[3, 3, 3.5, 3.5]], np.float32)),
    )
]


@pytest.mark.parametrize("source", [{"image_field_name": "image"}, {"image_hw_field_name": "size"}])
def test_size_of_the_image_from_a_field(source: dict[str, Any]) -> None:
    step = VisibleBboxSelector(
        "boxes", ("camera", "annotation", "mask"), depths_field_name="depths", minimum_bbox_size=2, **source
    )
    for one, sample in zip(assert_laws(step, SAMPLES), SAMPLES, strict=True):
        camera, annotation = sample["camera"], sample["camera"]["annotation"]
        hw = (int(camera["size"][0]), 20)
        mask = painted(annotation["boxes"], annotation["depths"][:, 0], hw) & large_enough(
            annotation["boxes"], hw, 2
        )
        assert_same(one, {**sample, "camera": {**camera, "annotation": {**annotation, "mask": mask}}})
    assert one["camera"]["annotation"]["mask"].tolist() == [False]


def test_the_size_of_a_clip_is_that_of_its_frames() -> None:
    sample = {"clip": np.zeros((7, 4, 6, 3), np.uint8), "boxes": np.array([[4, 2, 9, 9]], np.float32)}
    for size, expected in ((2, True), (2.5, False)):
        step = VisibleBboxSelector("boxes", "m", "clip", check_for_bbox_occlusion=False, minimum_bbox_size=size)
        assert run_step(step, [sample])[0]["m"].tolist() == [expected]


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_the_size_of_an_image_is_found_by_its_layout(layout: str, run: RunWhere) -> None:
    fields = {
        "image": (DT.UINT8, [np.zeros((100, 200, 3), np.uint8)]),
        "boxes": (DT.FLOAT, [[[10, 10, 60, 60], [190, 10, 260, 60], [10, 97, 60, 160]]]),
    }
    normalizer = ImageMeanStdDevNormalizer("image", 0.0, 255.0, output_layout=layout)
    step = VisibleBboxSelector("boxes", "m", "image", check_for_bbox_occlusion=False, minimum_bbox_size=4)
    assert run_steps([normalizer, step], fields, run=run)["m"][0].tolist() == [True, True, False]


def test_depths_are_not_needed_without_their_check() -> None:
    step = VisibleBboxSelector("boxes", "m", image_hw=(5, 5), check_for_bbox_occlusion=False, minimum_bbox_size=1)
    assert output_format(step, {"boxes": np.zeros((1, 4))}).field_names_flat == ("boxes", "m")


def test_of_boxes_of_equal_depth_the_last_is_the_nearest() -> None:
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 3, 3], [0, 0, 9, 9], [5, 5, 9, 9]], np.float32)
    samples = [
        {"boxes": boxes, "depths": np.array(depths, np.float32)}
        for depths in ([1, 1, 1, 2, 2], [1, 2, 1, 1, np.nan], [np.nan] * 5, [3, 2, 1, 1, 1])
    ]
    assert [mask.tolist() for mask in visible(samples, (8, 8))] == [
        [False, True, True, True, True],
        [False, False, False, True, False],
        [False, False, False, True, True],
        [False, False, False, True, True],
    ]
