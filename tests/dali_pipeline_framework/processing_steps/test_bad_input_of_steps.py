"""Formats and values that steps cannot work on: the error names the step, the field and the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.format_cases import (
    FormatCase,
    NeverRead,
    assert_a_group_is_no_field,
    assert_what_is_missing_is_named,
    assert_wrong_types_are_named,
    case,
    case_name,
    of_fields,
    of_types,
)
from support.laws import spread
from support.pipelines import make_iterator, shuffled
from support.steps import as_published

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.errors import GraphError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    AxesLayoutSetter,
    BEVBBoxesTransformer3D,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    ConditionalElementRemover,
    CoordinateCropper,
    DataGroupArrayInPathElementsAppliedStep,
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    DataGroupsWithNameAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    MapStep,
    PaddingToUniform,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    PointsPadder,
    TensorSizeAdder,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.testing import run_step

STRETCH = A.ResizingMode.STRETCH
DISTORTION: Any = ("image", [-30, 30], [-18, 18], [0.5, 1.5], [0.5, 1.5], 1, 1, 1, 1, 1)
GOOD: dict[str, Any] = {
    "image": DT.UINT8,
    "hw": DT.INT32,
    "matrix": DT.FLOAT,
    "time_ns": DT.INT64,
    "reference_ns": DT.INT64,
    "boxes": DT.FLOAT,
    "frames": {"encoded": {0: DT.UINT8, 1: DT.UINT8}},
    "array": {0: {"x": DT.FLOAT}, 1: {"x": DT.FLOAT}},
    "a": {"boxes": DT.FLOAT, "points": DT.FLOAT, "categories": DT.INT32, "depths": DT.FLOAT, "mask": DT.BOOL},
}


# --- formats --------------------------------------------------------------------------------------------

IN_PIXELS: Any = {"projection_names": "matrix", "box_names": "boxes"}
HEATMAP = BoundingBoxToHeatmapConverter(
    "a", "boxes", "heatmap", [4, 5], None, "hw", categories_in_name="categories", num_categories=2
)
VISIBLE = VisibleBboxSelector(
    "points", "is_visible", image_hw_field_name="hw", depths_field_name="depths", minimum_bbox_size=2
)
BEV = BEVBBoxesTransformer3D("points", None, None, "depths", "matrix", None, None, [0, 1], 2, None, None)
CONDITION = AnnotationElementConditionEval("a", "kept = depths < 5 and categories == 1", False)
REMOVER = ConditionalElementRemover("a", "mask", ["points"], [0], [2], True)
SIZE_ADDER = TensorSizeAdder("x", "_hw")
FORMATS = [
    case(A([4, 5], STRETCH, None, "image", **as_published(IN_PIXELS)), "image", DT.FLOAT16),
    case(A([4, 5], STRETCH, None, "image", **as_published(IN_PIXELS)), "matrix", DT.INT32),
    case(A([4, 5], STRETCH, None, None, "hw", **as_published(IN_PIXELS)), "hw", DT.BOOL),
    case(CONDITION, "a.depths", DT.STRING, ValueError),
    case(AxesLayoutSetter("image", "HWC"), "image", None),
    case(BEV, "a.points", DT.INT32, ValueError),
    case(BEV, "matrix", DT.INT32, ValueError),
    case(HEATMAP, "a.boxes", DT.STRING),
    case(HEATMAP, "a.categories", DT.FLOAT),
    case(HEATMAP, "hw", DT.STRING),
    case(BoxAreaFilter("depths", area_range=(1, 2), further_names="points"), "a.depths", DT.BOOL),
    case(BoxAreaFilter("depths", area_range=(1, 2), further_names="points"), "a.points", None),
    case(REMOVER, "a.mask", DT.UINT8),
    case(REMOVER, "a.points", None),
    case(CoordinateCropper("points", [0], [1]), "a.points", DT.BOOL, ValueError),
    case(GridMasker("image", tile_range=(4, 7)), "image", DT.INT32),
    case(HorizontalFlipper("image", prob=1, **IN_PIXELS), "image", DT.BOOL),
    case(HorizontalFlipper("image", prob=1, hw_names="hw"), "hw", DT.STRING),
    case(ImageDecoder("image", False), "image", DT.FLOAT),
    case(ImageMeanStdDevNormalizer("image", 1, 2), "image", DT.STRING),
    case(ImageRange01Normalizer("image"), "image", DT.STRING),
    case(ImageResizeCropFlipper("image", output_hw=[4, 5], scale_range=(1, 1), **IN_PIXELS), "image", DT.INT64),
    case(
        ImageResizeCropFlipper("image", output_hw=[4, 5], scale_range=(1, 1), is_encoded=True), "image", DT.FLOAT
    ),
    case(ImageResizer("image", output_hw=[4, 5], **IN_PIXELS), "image", DT.INT64),
    case(ImageResizer("image", output_hw=[4, 5], **IN_PIXELS), "matrix", DT.STRING),
    case(ImageToTileSizePadder("image", 4), "image", DT.STRING),
    case(ImageToTileSizePadder("image", 4, hw_names="hw"), "hw", DT.BOOL),
    case(LambdaStep(abs, input_names="matrix", output_types={"matrix": DT.FLOAT}), "matrix", None),
    case(MapStep(abs, input_names="matrix"), "matrix", None),
    case(PaddingToUniform("depths"), "a.depths", None, ValueError),
    case(PhotoMetricDistorter(*DISTORTION), "image", DT.INT32, KeyError, AssertionError),
    case(PointCloudRangeFilter("points", point_range=([0], [1]), further_names="depths"), "a.points", DT.STRING),
    case(PointCloudRangeFilter("points", point_range=([0], [1]), further_names="depths"), "a.depths", None),
    case(PointsInRangeCheck("points", "is_inside", [0], [1]), "a.points", DT.BOOL, ValueError),
    case(PointsPadder("points", num_points=4), "a.points", DT.STRING),
    case(TensorSizeAdder("image", "_hw"), "image", None),
    case(VISIBLE, "a.points", DT.STRING, ValueError),
    case(VISIBLE, "a.depths", DT.BOOL, ValueError),
    case(VISIBLE, "hw", DT.STRING, ValueError),
    case(DataGroupInPathAppliedStep(TensorSizeAdder("boxes", "_hw"), "a"), "a", DT.FLOAT, ValueError),
    case(DataGroupsWithNameAppliedStep(TensorSizeAdder("boxes", "_hw"), "a"), "a", DT.FLOAT, ValueError),
    case(DataGroupArrayInPathElementsAppliedStep(SIZE_ADDER, "array"), "array", DT.FLOAT, ValueError),
    case(DataGroupArrayWithNameElementsAppliedStep(SIZE_ADDER, "array"), "array", DT.FLOAT, ValueError),
]


@pytest.mark.parametrize("of", FORMATS, ids=case_name)
def test_what_is_missing_is_told(of: FormatCase) -> None:
    assert_what_is_missing_is_named(of, GOOD)


@pytest.mark.parametrize("of", of_fields(FORMATS), ids=case_name)
def test_a_group_is_no_field(of: FormatCase) -> None:
    assert_a_group_is_no_field(of, GOOD)


@pytest.mark.parametrize("of", of_types(FORMATS), ids=case_name)
def test_wrong_types_are_told(of: FormatCase) -> None:
    assert_wrong_types_are_named(of, GOOD)


def test_all_problems_of_a_chain_are_told_at_once() -> None:
    steps = [of.step for of in FORMATS if of.path == ("image",) and not isinstance(of.step, LambdaStep)]
    definition = PipelineDefinition(shuffled(NeverRead({"other": DT.FLOAT}), 1), steps)
    with pytest.raises(KeyError) as caught:
        definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
    for index, step in enumerate(steps):
        assert f"step {index} ({type(step).__name__})" in str(caught.value)


def test_no_step_is_left_out() -> None:
    no_steps = {
        "ImageUse",
        "FieldUse",
        "ArrayStep",
        "GroupToApplyToSelectedStepBase",
        "PipelineStepBase",
        "for_each",
    }
    of_other_packages = {"AlbumentationsStep", "TorchvisionStep"}  # see test_image_library_steps.py
    with_dimensions = {"VideoDecoder"}  # which the formats here have not, see test_video_decoder.py
    cannot_fail = {*no_steps, *of_other_packages, *with_dimensions, "UnneededFieldRemover"}
    assert {type(of.step).__name__ for of in FORMATS} | cannot_fail == {*processing_steps.__all__}


# --- values ---------------------------------------------------------------------------------------------

PIXELS = gradient(6, 8)
EMPTY = PIXELS[:0]
GRAY = PIXELS[..., :1]
NO_PIXELS = "an image of no pixels"
NO_SIZE = "An image has no pixels or no channels"
NO_IMAGE = "no image of a known format, or it is damaged"
RESIZER = ImageResizer("image", output_hw=[4, 5])
AFFINE = A([4, 5], STRETCH, None, "image", transformation_steps=[A.Rotation(1, 5)])
IMAGE_VALUES = [
    (AFFINE, EMPTY, NO_SIZE),
    (RESIZER, EMPTY, NO_SIZE),
    (ImageResizeCropFlipper("image", output_hw=[4, 5], scale_range=(1, 1)), EMPTY, NO_SIZE),
    (PhotoMetricDistorter(*DISTORTION), GRAY, "requires matrices with 1 columns"),
    (ImageMeanStdDevNormalizer("image", [1, 2, 3], 1), GRAY, "an image has another number of channels"),
    (ImageDecoder("image", False), np.arange(99, dtype=np.uint8), NO_IMAGE),
    (ImageDecoder("image", False), np.zeros(0, np.uint8), NO_IMAGE),
    (ImageDecoder("image", False), encoded_image(PIXELS)[:200], NO_IMAGE),
    (ImageResizer("image", output_hw=[4, 5], is_encoded=True), np.arange(99, dtype=np.uint8), "No image file"),
    (ImageResizer("image", output_hw=[4, 5], is_encoded=True), encoded_image(PIXELS)[:200], NO_IMAGE),
]


@spread(
    ("step", "value", "rule"),
    IMAGE_VALUES,
    6,
    ids=[f"{type(one).__name__}-{rule}" for one, _, rule in IMAGE_VALUES],
)
def test_images_that_a_step_cannot_work_on(step: Any, value: np.ndarray, rule: str) -> None:
    """In one camera of one sample, after a step that can."""
    usual = encoded_image(PIXELS) if value.ndim == 1 else PIXELS
    fields = {
        "cameras": {0: {"image": (DT.UINT8, [usual] * 4)}, 1: {"image": (DT.UINT8, [usual, usual, usual, value])}}
    }
    before = LambdaStep(_same, input_names="image", output_types={"image": DT.UINT8})
    steps = [DataGroupArrayWithNameElementsAppliedStep(each, "cameras") for each in (before, step)]
    with make_iterator(shuffled(ArrayProvider(fields), 2), steps, py_num_workers=0, in_graph=True) as iterator:
        epoch = iter(iterator)
        next(epoch)
        with pytest.raises(GraphError) as caught:
            next(epoch)
    assert caught.value.sample_indices == (3,)
    told = next(line for line in str(caught.value).splitlines() if "sample 3" in line)
    assert rule in told
    assert "cameras[1].image" in told
    assert f"[in step 1: DataGroupArrayWithNameElementsAppliedStep of {type(step).__name__}]" in told


def _same(image: Any) -> Any:
    return image


ROW_VALUES = [
    (CoordinateCropper("rows", [0, 0], [1, 1]), 2, "Points must have one number for each limit"),
    (PointsInRangeCheck("rows", "inside", [0, 0], [1, 1]), 2, "Points must have one number for each limit"),
    (BEVBBoxesTransformer3D(*[None] * 4, "rows", None, None, [1, 1], 2, None, None), 4, "Matrices must have 4"),
]


@pytest.mark.parametrize(
    ("step", "num_columns", "rule"), ROW_VALUES, ids=[type(step).__name__ for step, *_ in ROW_VALUES]
)
def test_rows_of_other_numbers_than_a_step_works_on(step: Any, num_columns: int, rule: str) -> None:
    rows = [np.zeros((3, num_columns)), np.zeros((3, num_columns + 1))]
    source = shuffled(ArrayProvider({"rows": (DT.FLOAT, rows)}), 2)
    with (
        make_iterator(source, [step], py_num_workers=0, in_graph=True) as iterator,
        pytest.raises(GraphError, match=f"sample 1, field [a-z, ]+: ?(rows: )?{rule}") as caught,
    ):
        next(iter(iterator))
    assert caught.value.sample_indices == (1,)


@pytest.mark.parametrize(
    "step",
    [
        AFFINE,
        RESIZER,
        HorizontalFlipper("image", prob=1),
        PhotoMetricDistorter(*DISTORTION),
        GridMasker("image", prob=1),
        ImageMeanStdDevNormalizer("image", [1, 2, 3], 1),
    ],
)
def test_the_report_on_a_file_where_an_image_belongs_asks_whether_it_is_decoded(step: PipelineStepBase) -> None:
    sample = SampleDataGroup()
    sample.add_data_field("image", DT.UINT8)
    sample["image"] = encoded_image(PIXELS)
    with pytest.raises(GraphError, match=r"field image: .*is it decoded before\? If not, put ImageDecoder before"):
        run_step(step, sample)


@pytest.mark.parametrize("step", [RESIZER, GridMasker("image", prob=1)])
def test_an_image_without_channels_is_named(step: PipelineStepBase) -> None:
    sample = SampleDataGroup()
    sample.add_data_field("image", DT.UINT8)
    sample["image"] = PIXELS[..., 0]
    with pytest.raises(GraphError, match=r"field image: .*(height, width, channels|no channels)"):
        run_step(step, sample)


def test_tensors_without_height_and_width_are_named() -> None:
    sample = SampleDataGroup()
    sample.add_data_field("image", DT.UINT8)
    sample["image"] = encoded_image(PIXELS)
    with pytest.raises(
        GraphError, match=r"field image_hw: An image is \(..., height, width, channels\)\. .* \[in step 0"
    ):
        run_step(TensorSizeAdder("image", "_hw"), sample)
    with pytest.raises(GraphError, match="field image: image: An image has height, width, channels"):
        run_step(ImageToTileSizePadder("image", 32), sample)


def test_variables_of_a_condition_with_several_values_for_each_element_are_named() -> None:
    objects = SampleDataGroup()
    objects.add_data_field("boxes", DT.FLOAT)
    sample = SampleDataGroup()
    sample.add_data_group_field("objects", objects)
    sample["objects"]["boxes"] = np.zeros((3, 4))
    with pytest.raises(
        GraphError, match="The variable 'boxes' must have one value for each element, got \\(3, 4\\)"
    ):
        run_step(AnnotationElementConditionEval("objects", "is_left = boxes < 3", False), sample)
