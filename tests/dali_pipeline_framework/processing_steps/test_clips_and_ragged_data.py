"""All image steps on clips, and all steps of boxes, points and the like on any number of elements, also none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from affine_reference import constant_draws
from step_runs import BatchRun, assert_same, run_steps
from support.arrays import DT
from support.laws import some, spread
from support.steps import as_published

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    AxesLayoutSetter,
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    ConditionalElementRemover,
    CoordinateCropper,
    GridMasker,
    HorizontalFlipper,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    PaddingToUniform,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    PointsPadder,
    TensorSizeAdder,
    VisibleBboxSelector,
)

SHARE = 0.3  # of their ranges, for all random numbers
STRETCH, PAD, CENTER = A.ResizingMode.STRETCH, A.ResizingMode.PAD, A.ResizingAnchor.CENTER


def half_way(one: Any) -> Any:
    return one * 0.5


# --- clips ----------------------------------------------------------------------------------------------

IMAGE_STEPS: dict[str, PipelineStepBase] = {
    "AffineTransformer, warp": A((18, 22), STRETCH, None, "image", transformation_steps=[A.Rotation(1, 5, 30)]),
    "AffineTransformer, pasted": A(
        (18, 22), STRETCH, None, "image", transformation_steps=[A.UniformScaling(1, 0.7)], fill_value=9
    ),
    "AffineTransformer, region": A((18, 22), STRETCH, None, "image"),
    "AffineTransformer, part": A((18, 22), PAD, CENTER, "image", transformation_steps=[A.Translation(1, [3, 4])]),
    "AxesLayoutSetter": AxesLayoutSetter("image", ""),
    "GridMasker": GridMasker("image", prob=1, tile_range=(4, 7), angle_range=(0, 0.5)),
    "HorizontalFlipper": HorizontalFlipper("image", prob=1),
    "ImageMeanStdDevNormalizer": ImageMeanStdDevNormalizer("image", [1, 2, 3], 50),
    "ImageRange01Normalizer": ImageRange01Normalizer("image"),
    "ImageResizeCropFlipper": ImageResizeCropFlipper(
        "image", output_hw=(14, 18), scale_range=(0.8, 1.2), bottom_crop_range=(0, 0.3), flip_prob=1
    ),
    "ImageResizer": ImageResizer("image", output_hw=(14, 18), mode="crop"),
    "ImageResizer, pad": ImageResizer("image", output_hw=(14, 18), mode="pad"),
    "ImageToTileSizePadder": ImageToTileSizePadder("image", (16, 10), fill_value=3),
    "LambdaStep": LambdaStep(half_way, input_names="image", output_types={"image": DT.FLOAT}),
    "PhotoMetricDistorter": PhotoMetricDistorter("image", [-30, 30], [-18, 18], [0.5, 1.5], [0.5, 1.5]),
}
CLIPS = [
    np.random.default_rng(frames).integers(0, 256, (frames, *hw, 3), dtype=np.uint8)
    for frames, hw in ((3, (20, 28)), (1, (17, 23)))
]


def run_images(step: PipelineStepBase, images: list[np.ndarray], layout: str) -> list[np.ndarray]:
    dtype = DT.UINT8 if images[0].dtype == np.uint8 else DT.FLOAT
    with constant_draws(SHARE):
        return run_steps(step, {"image": (dtype, images)}, layouts={"image": layout})["image"]


@spread("name", IMAGE_STEPS, 7)
@some("is_float", [False, True], {0}, ids=["uint8", "float"])
def test_a_clip_is_what_its_frames_are_one_by_one(name: str, is_float: bool) -> None:
    """With and without layouts."""
    step = IMAGE_STEPS[name]
    clips = [(clip / 255).astype(np.float32) for clip in CLIPS] if is_float else CLIPS
    frames = [frame for clip in clips for frame in clip]
    expected = run_images(step, frames, "HWC")
    assert name == "AxesLayoutSetter" or any(
        one.shape != frame.shape or (one != frame).any() for one, frame in zip(expected, frames, strict=True)
    )
    for one, other in zip(run_images(step, frames, ""), expected, strict=True):
        assert_same(one, other)
    for layout in ("FHWC", ""):
        found = run_images(step, clips, layout)
        assert [len(clip) for clip in found] == [len(clip) for clip in clips]
        for one, other in zip([frame for clip in found for frame in clip], expected, strict=True):
            assert_same(one, other)


def test_clips_are_normalized_and_transposed() -> None:
    step, of_clips = (ImageMeanStdDevNormalizer("image", 1, 50, output_layout=axes) for axes in ("CHW", "FCHW"))
    expected = run_images(step, [frame for clip in CLIPS for frame in clip], "HWC")
    found = run_images(of_clips, CLIPS, "FHWC")
    for one, other in zip([frame for clip in found for frame in clip], expected, strict=True):
        assert_same(one, other)


def test_sizes_of_clips_are_those_of_their_frames() -> None:
    for layout in ("FHWC", ""):
        run = run_steps(TensorSizeAdder("image", "_hw"), {"image": (DT.UINT8, CLIPS)}, layouts={"image": layout})
        assert [size.tolist() for size in run["image_hw"]] == [[20, 28], [17, 23]]


# --- any number of elements -----------------------------------------------------------------------------


def elements(counts: tuple[int, ...]) -> dict[str, Any]:
    """Samples with so many elements each; those with equally many are the same."""

    def of_each(make: Callable[[np.random.Generator, int], Any]) -> list[Any]:
        return [make(np.random.default_rng(count), count) for count in counts]

    def boxes(rng: np.random.Generator, count: int) -> np.ndarray:
        low = rng.uniform(0, 9, (count, 2))
        return np.concatenate([low, low + rng.uniform(0.5, 9, (count, 2))], 1)

    return {
        "image_hw": (DT.INT32, [np.array([18, 20])] * len(counts)),
        "time_ns": (DT.INT64, [np.array(10**18)] * len(counts)),
        "annotation": {
            "boxes": (DT.FLOAT, of_each(boxes)),
            "points": (DT.FLOAT, of_each(lambda rng, count: rng.uniform(0, 20, (count, 4)))),
            "whole": (DT.INT32, of_each(lambda rng, count: rng.integers(0, 20, (count, 2)))),
            "matrices": (DT.FLOAT, of_each(lambda rng, count: rng.uniform(-1, 1, (count, 3, 4)))),
            "centers": (DT.FLOAT, of_each(lambda rng, count: rng.uniform(-9, 9, (count, 3)))),
            "yaws": (DT.FLOAT, of_each(lambda rng, count: rng.uniform(-3, 3, count))),
            "categories": (DT.INT32, of_each(lambda rng, count: rng.integers(0, 3, count))),
            "depths": (DT.FLOAT, of_each(lambda rng, count: rng.uniform(1, 9, count))),
            "columns": (DT.FLOAT, of_each(lambda rng, count: rng.uniform(0, 9, (2, count)))),
            "times_ns": (DT.INT64, of_each(lambda rng, count: 10**18 + rng.integers(0, 10**9, count))),
            "is_kept": (DT.BOOL, of_each(lambda rng, count: rng.random(count) < 0.5)),
        },
    }


IN_PIXELS: Any = {
    "hw_names": "image_hw",
    "point_names": ["points", "whole"],
    "box_names": "boxes",
    "projection_names": "matrices",
}
ELEMENT_STEPS: dict[str, PipelineStepBase] = {
    "AffineTransformer": A(
        (9, 12), PAD, CENTER, transformation_steps=[A.Rotation(1, 5, 30)], **as_published(IN_PIXELS)
    ),
    "AnnotationElementConditionEval": AnnotationElementConditionEval(
        "annotation", "result = depths < 5 and not (categories == 1)", False
    ),
    "BEVBBoxesTransformer3D": BEVBBoxesTransformer3D(
        "centers", None, None, "yaws", "matrices", None, None, [-1, 1], 2, [0.9, 1.1], [1, 1, 1], flip_prob_y=1
    ),
    "BoundingBoxToHeatmapConverter": BoundingBoxToHeatmapConverter(
        "annotation",
        "boxes",
        "heatmap",
        [6, 9],
        image_hw_field_name="image_hw",
        categories_in_name="categories",
        num_categories=3,
        is_active_opt_out_name="is_active",
        center_opt_out_name="center_px",
        center_offset_opt_out_name="offset",
        height_width_bboxes_heatmap_opt_out_name="sizes",
        bboxes_heatmap_opt_out_name="scaled",
    ),
    "BoxAreaFilter": BoxAreaFilter("boxes", area_range=(10, 50), further_names=["depths", "matrices"]),
    "ConditionalElementRemover": ConditionalElementRemover(
        "annotation", "is_kept", ["boxes", "yaws", "matrices", "columns"], [0, 0, 0, 1], [2, 1, 3, 2], True
    ),
    "CoordinateCropper": CoordinateCropper("boxes", [1, 1, 1, 1], [8, 9, 10, 11]),
    "HorizontalFlipper": HorizontalFlipper(None, prob=1, **IN_PIXELS),
    "ImageResizeCropFlipper": ImageResizeCropFlipper(None, output_hw=(9, 12), scale_range=(0.8, 1.2), **IN_PIXELS),
    "ImageResizer": ImageResizer(None, output_hw=(9, 12), mode="crop", **IN_PIXELS),
    "PointCloudRangeFilter": PointCloudRangeFilter(
        "centers", point_range=([-5, -5], [5, 5]), further_names=["categories", "points"]
    ),
    "PointsInRangeCheck": PointsInRangeCheck("centers", "is_inside", [-5, -5, -5], [5, 5, 5]),
    "PointsPadder": PointsPadder("points", num_points=2, mask_name="is_point", fill_value=-1),
    "VisibleBboxSelector": VisibleBboxSelector(
        "boxes",
        ("annotation", "is_visible"),
        image_hw_field_name="image_hw",
        depths_field_name="depths",
        minimum_bbox_size=2,
    ),
}
# Fields of the output without an axis for the elements, or with one of fixed length.
FIXED = ("image_hw", "time_ns", "annotation.heatmap")
FIXED_OF = {"PointsPadder": ("annotation.points", "annotation.is_point")}
AXIS_OF = {"annotation.columns": 1}


@cache
def run_elements(name: str, counts: tuple[int, ...]) -> BatchRun:
    with constant_draws(SHARE):
        return run_steps(ELEMENT_STEPS[name], elements(counts))


@spread("name", ELEMENT_STEPS, 6)
@some("counts", [(0, 0, 0), (0, 3, 0), (2, 0, 1), (2, 1, 3)], {1}, ids=str)
def test_samples_may_have_any_number_of_elements(name: str, counts: tuple[int, ...]) -> None:
    found = run_elements(name, counts)
    is_fixed = FIXED + FIXED_OF.get(name, ())
    usual = run_elements(name, (2, 1, 3)).values
    assert [*found.values] == [*usual]
    for index, count in enumerate(counts):
        alone = run_elements(name, (count,))
        for field, values in found.values.items():
            assert_same(values[index], alone[field][0])
            shape, usual_shape = [*values[index].shape], [*usual[field][0].shape]
            assert values[index].dtype == usual[field][0].dtype
            if field not in is_fixed:
                num = shape.pop(AXIS_OF.get(field, 0))
                usual_shape.pop(AXIS_OF.get(field, 0))
                assert num <= count
            assert shape == usual_shape


@pytest.mark.parametrize("counts", [(0, 0, 0), (0, 3, 0), (2, 0, 1), (2, 1, 3)], ids=str)
def test_padding_of_any_number_of_elements(counts: tuple[int, ...]) -> None:
    fields = elements(counts)
    run = run_steps(PaddingToUniform(["boxes", "yaws", "is_kept"], 7), fields)
    for name in ("boxes", "yaws", "is_kept"):
        for value, padded in zip(fields["annotation"][name][1], run[f"annotation.{name}"], strict=True):
            expected = np.full((max(counts), *value.shape[1:]), 7)
            expected[: len(value)] = 0
            np.testing.assert_array_equal(padded[len(value) :], expected[len(value) :].astype(padded.dtype))
            np.testing.assert_array_equal(padded[: len(value)], value.astype(padded.dtype))


def test_no_step_is_left_out() -> None:
    """Steps of images, and steps of elements; the rest has neither, applies others, or is tested elsewhere."""
    rest = {
        "AlbumentationsStep",
        "ArrayStep",
        "DataGroupArrayInPathElementsAppliedStep",
        "DataGroupArrayWithNameElementsAppliedStep",
        "DataGroupInPathAppliedStep",
        "DataGroupsWithNameAppliedStep",
        "FieldUse",
        "GroupToApplyToSelectedStepBase",
        "ImageDecoder",
        "ImageUse",
        "MapStep",
        "PaddingToUniform",
        "PipelineStepBase",
        "TensorSizeAdder",
        "TorchvisionStep",
        "UnneededFieldRemover",
        "for_each",
        "VideoDecoder",
    }
    covered = {name.split(",")[0] for name in (*IMAGE_STEPS, *ELEMENT_STEPS)}
    assert covered | rest == {*processing_steps.__all__}
