"""Formats and values that steps cannot work on: the error names the step, the field and the rule."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from nvidia.dali.types import DALIImageType
from support.arrays import DT, ArrayProvider, encoded_image, gradient
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
    BoxFormatConverter,
    ConditionalElementRemover,
    CoordinateCropper,
    DataGroupArrayInPathElementsAppliedStep,
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    DataGroupsWithNameAppliedStep,
    FrameSequenceDecoder,
    GridMasker,
    GroupToApplyToSelectedStepBase,
    HorizontalFlipper,
    ImageBrightnessContrastJitter,
    ImageColorSpaceConverter,
    ImageDecoder,
    ImageGaussianBlurrer,
    ImageJpegDistorter,
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
    RandomEraser,
    TensorSizeAdder,
    TimeDifferenceAdder,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.steps import (
    BEVMaskAdder,
    FutureTrajectoryAdder,
    LidarDepthMapAdder,
    LidarSweepAggregator,
    MapLineVectorizer,
)

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
    "lidar": {"xyz": DT.FLOAT, "pose": DT.FLOAT64, "time": DT.FLOAT64},
    "sweeps": {0: {"xyz": DT.FLOAT, "pose": DT.FLOAT64, "time": DT.FLOAT64}},
    "ways": {"places": DT.FLOAT, "is_known": DT.BOOL},
    "lines": {"ends": DT.FLOAT, "num_points": DT.INT32},
    "things": {"centers": DT.FLOAT, "sizes": DT.FLOAT, "yaws": DT.FLOAT, "categories": DT.INT32},
    "a": {"boxes": DT.FLOAT, "points": DT.FLOAT, "categories": DT.INT32, "depths": DT.FLOAT, "mask": DT.BOOL},
}


# --- formats --------------------------------------------------------------------------------------------


@attrs.frozen
class FormatCase:
    """A step, and what it needs.

    Attributes:
        step: The step.
        path: Path of a field that it needs.
        wrong: A type that this field must not have; None if any will do.
        missing: Exceptions that catch the error where the field is missing.
        wrong_type: Exceptions that catch the error where it has the wrong type.
    """

    step: PipelineStepBase
    path: tuple[str, ...]
    wrong: DT | None
    missing: type[Exception] = KeyError
    wrong_type: type[Exception] = ValueError


def case(step: PipelineStepBase, path: str, wrong: DT | None, *errors: type[Exception]) -> FormatCase:
    return FormatCase(step, tuple(path.split(".")), wrong, *errors)


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
DEPTH_MAPS = LidarDepthMapAdder("matrix", point_path=("lidar", "xyz"), image_hw=[4, 5], strides={"d": 2})
SWEEPS = LidarSweepAggregator("lidar", point_name="xyz", matrix_name="pose", timestamp_name="time")
TRAJECTORIES = FutureTrajectoryAdder("places", known_name="is_known", offset_name="o", mask_name="m")
MASKS = BEVMaskAdder("masks", x_range=[0, 2], y_range=[0, 2], cell_size=1, boxes=[0], box_path="things")
VECTORS = MapLineVectorizer("ends", count_name="num_points", vector_name="v")
SIZE_ADDER = TensorSizeAdder("x", "_hw")
FORMATS = [
    case(A([4, 5], STRETCH, None, "image", **as_published(IN_PIXELS)), "image", DT.FLOAT16),
    case(A([4, 5], STRETCH, None, "image", **as_published(IN_PIXELS)), "matrix", DT.INT32),
    case(A([4, 5], STRETCH, None, None, "hw", **as_published(IN_PIXELS)), "hw", DT.BOOL),
    case(CONDITION, "a.depths", DT.STRING, ValueError),
    case(AxesLayoutSetter("image", "HWC"), "image", None),
    case(BEV, "a.points", DT.FLOAT64, ValueError),
    case(BEV, "matrix", DT.INT32, ValueError),
    case(DEPTH_MAPS, "lidar.xyz", DT.INT32),
    case(DEPTH_MAPS, "matrix", DT.INT32),
    case(MASKS, "things.centers", DT.INT32),
    case(MASKS, "things.categories", DT.FLOAT),
    case(SWEEPS, "lidar.xyz", DT.FLOAT64),
    case(SWEEPS, "lidar.pose", DT.FLOAT),
    case(VECTORS, "lines.ends", DT.INT32),
    case(VECTORS, "lines.num_points", DT.FLOAT),
    case(TRAJECTORIES, "ways.places", DT.INT32),
    case(TRAJECTORIES, "ways.is_known", DT.INT32),
    case(HEATMAP, "a.boxes", DT.STRING),
    case(HEATMAP, "a.categories", DT.FLOAT),
    case(HEATMAP, "hw", DT.STRING),
    case(BoxAreaFilter("depths", area_range=(1, 2), further_names="points"), "a.depths", DT.BOOL),
    case(BoxAreaFilter("depths", area_range=(1, 2), further_names="points"), "a.points", None),
    case(BoxFormatConverter("points", from_format="xyxy", to_format="xywh"), "a.points", DT.INT32),
    case(REMOVER, "a.mask", DT.UINT8),
    case(REMOVER, "a.points", None),
    case(CoordinateCropper("points", [0], [1]), "a.points", DT.BOOL, ValueError),
    case(FrameSequenceDecoder("frames"), "frames", None),
    case(GridMasker("image", tile_range=(4, 7)), "image", DT.INT32),
    case(HorizontalFlipper("image", prob=1, **IN_PIXELS), "image", DT.BOOL),
    case(HorizontalFlipper("image", prob=1, hw_names="hw"), "hw", DT.STRING),
    case(ImageBrightnessContrastJitter("image"), "image", DT.FLOAT16),
    case(
        ImageColorSpaceConverter("image", from_image_type=DALIImageType.RGB, to_image_type=DALIImageType.GRAY),
        "image",
        DT.FLOAT,
    ),
    case(ImageDecoder("image", False), "image", DT.FLOAT),
    case(ImageGaussianBlurrer("image"), "image", DT.INT32),
    case(ImageJpegDistorter("image"), "image", DT.FLOAT),
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
    case(RandomEraser("image"), "image", DT.INT32),
    case(TensorSizeAdder("image", "_hw"), "image", None),
    case(
        TimeDifferenceAdder("time_ns", reference_path="reference_ns", difference_name="age"), "time_ns", DT.STRING
    ),
    case(
        TimeDifferenceAdder("time_ns", reference_path="reference_ns", difference_name="age"), "reference_ns", None
    ),
    case(VISIBLE, "a.points", DT.STRING, ValueError),
    case(VISIBLE, "a.depths", DT.BOOL, ValueError),
    case(VISIBLE, "hw", DT.STRING, ValueError),
    case(DataGroupInPathAppliedStep(TensorSizeAdder("boxes", "_hw"), "a"), "a", DT.FLOAT, ValueError),
    case(DataGroupsWithNameAppliedStep(TensorSizeAdder("boxes", "_hw"), "a"), "a", DT.FLOAT, ValueError),
    case(DataGroupArrayInPathElementsAppliedStep(SIZE_ADDER, "array"), "array", DT.FLOAT, ValueError),
    case(DataGroupArrayWithNameElementsAppliedStep(SIZE_ADDER, "array"), "array", DT.FLOAT, ValueError),
]


class NeverRead(ArrayProvider):
    """Fields of types, without values."""

    def __init__(self, types: dict[str, Any]) -> None:
        def without_values(types: dict[str, Any]) -> dict[str | int, Any]:
            return {
                name: without_values(dtype) if isinstance(dtype, dict) else (dtype, [None])
                for name, dtype in types.items()
            }

        super().__init__(without_values(types))

    def get_data(self, sample_index: int) -> Any:
        raise AssertionError("read before the format was checked")


def changed(types: dict[str, Any], path: tuple[str, ...], to: Any) -> dict[str, Any]:
    """The types with another one at a path; without it for None."""
    if len(path) > 1:
        return {**types, path[0]: changed(types[path[0]], path[1:], to)}
    others = {name: dtype for name, dtype in types.items() if name != path[0]}
    return others if to is None else {**others, path[0]: to}


def problem_of(step: PipelineStepBase, types: dict[str, Any], error: type[Exception]) -> str:
    """The text of the error when a pipeline is made, which reads nothing."""
    definition = PipelineDefinition(shuffled(NeverRead(types), 1), [step])
    with pytest.raises(error) as caught:
        definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
    text = str(caught.value)
    with pytest.raises(error) as caught:
        definition.check_and_get_output_data_structure()
    assert str(caught.value) == text
    applied = f" of {TensorSizeAdder.__name__}" if isinstance(step, GroupToApplyToSelectedStepBase) else ""
    assert f"step 0 ({type(step).__name__}{applied})" in text
    return text


def is_of_groups(step: PipelineStepBase) -> bool:
    return isinstance(step, GroupToApplyToSelectedStepBase | FrameSequenceDecoder)


def _id(of: FormatCase) -> str:
    return f"{type(of.step).__name__}-{'.'.join(of.path)}"


@pytest.mark.parametrize("of", FORMATS, ids=_id)
def test_what_is_missing_is_told(of: FormatCase) -> None:
    assert PipelineDefinition(shuffled(NeverRead(GOOD), 1), [of.step]).check_and_get_output_data_structure()
    text = problem_of(of.step, changed(GOOD, of.path, None), of.missing)
    named = (repr(of.path[-1]), f"`{of.path[-1]}`", f"- {'.'.join(of.path)}: ")
    assert any(name in text for name in named)


OF_FIELDS = [of for of in FORMATS if not isinstance(of.step, PaddingToUniform) and not is_of_groups(of.step)]


@pytest.mark.parametrize("of", OF_FIELDS, ids=_id)
def test_a_group_is_no_field(of: FormatCase) -> None:
    text = problem_of(of.step, changed(GOOD, of.path, {"x": DT.FLOAT}), ValueError)
    assert f"- {'.'.join(of.path)}: " in text
    assert any(rule in text for rule in ("is a group", "is not a data field", "no such data field"))


@pytest.mark.parametrize("of", [of for of in FORMATS if of.wrong is not None], ids=_id)
def test_wrong_types_are_told(of: FormatCase) -> None:
    assert of.wrong is not None
    text = problem_of(of.step, changed(GOOD, of.path, of.wrong), of.wrong_type)
    assert f"- {'.'.join(of.path)}: must be" in text
    assert is_of_groups(of.step) or f"got {of.wrong.name}" in text


def test_all_problems_of_a_chain_are_told_at_once() -> None:
    steps = [of.step for of in FORMATS if of.path == ("image",) and not isinstance(of.step, LambdaStep)]
    definition = PipelineDefinition(shuffled(NeverRead({"other": DT.FLOAT}), 1), steps)
    with pytest.raises(KeyError) as caught:
        definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
    for index, step in enumerate(steps):
        assert f"step {index} ({type(step).__name__})" in str(caught.value)


def test_no_step_is_left_out() -> None:
    no_steps = {"DrawRecording", "ImageUse", "ArrayStep", "GroupToApplyToSelectedStepBase", "PipelineStepBase"}
    of_other_packages = {"AlbumentationsStep", "TorchvisionStep"}  # see test_image_library_steps.py
    cannot_fail = {*no_steps, *of_other_packages, "UnneededFieldRemover"}
    assert {type(of.step).__name__ for of in FORMATS} | cannot_fail == {*processing_steps.__all__}


# --- values ---------------------------------------------------------------------------------------------

PIXELS = gradient(6, 8)
EMPTY = PIXELS[:0]
GRAY = PIXELS[..., :1]
NO_PIXELS = "an image of no pixels"
NO_SIZE = "an image has no pixels or no channels"
NO_IMAGE = "no image of a known format, or it is damaged"
RESIZER = ImageResizer("image", output_hw=[4, 5])
AFFINE = A([4, 5], STRETCH, None, "image", transformation_steps=[A.Rotation(1, 5)])
IMAGE_VALUES = [
    (AFFINE, EMPTY, NO_SIZE),
    (RESIZER, EMPTY, NO_SIZE),
    (ImageResizeCropFlipper("image", output_hw=[4, 5], scale_range=(1, 1)), EMPTY, NO_SIZE),
    (ImageGaussianBlurrer("image", prob=1), EMPTY, NO_PIXELS),
    (ImageJpegDistorter("image"), EMPTY, NO_PIXELS),
    (RandomEraser("image", prob=1), EMPTY, NO_PIXELS),
    (
        ImageColorSpaceConverter("image", from_image_type=DALIImageType.RGB, to_image_type=DALIImageType.GRAY),
        EMPTY,
        NO_PIXELS,
    ),
    (
        ImageColorSpaceConverter("image", from_image_type=DALIImageType.RGB, to_image_type=DALIImageType.GRAY),
        GRAY,
        "Expected 3. Got 1",
    ),
    (ImageJpegDistorter("image"), GRAY, "with 3 channels"),
    (PhotoMetricDistorter(*DISTORTION), GRAY, "requires matrices with 1 columns"),
    (ImageMeanStdDevNormalizer("image", [1, 2, 3], 1), GRAY, "an image has another number of channels"),
    (RandomEraser("image", prob=1, fill_value=[1, 2, 3]), GRAY, "channels"),
    (ImageDecoder("image", False), np.arange(99, dtype=np.uint8), NO_IMAGE),
    (ImageDecoder("image", False), np.zeros(0, np.uint8), NO_IMAGE),
    (ImageDecoder("image", False), encoded_image(PIXELS)[:200], NO_IMAGE),
    (ImageResizer("image", output_hw=[4, 5], is_encoded=True), np.arange(99, dtype=np.uint8), NO_IMAGE),
    (ImageResizer("image", output_hw=[4, 5], is_encoded=True), encoded_image(PIXELS)[:200], NO_IMAGE),
]


@pytest.mark.parametrize(
    ("step", "value", "rule"), IMAGE_VALUES, ids=[f"{type(one).__name__}-{rule}" for one, _, rule in IMAGE_VALUES]
)
def test_images_that_a_step_cannot_work_on(step: Any, value: np.ndarray, rule: str) -> None:
    """In one camera of one sample, after a step that can."""
    usual = encoded_image(PIXELS) if value.ndim == 1 else PIXELS
    fields = {
        "cameras": {0: {"image": (DT.UINT8, [usual] * 4)}, 1: {"image": (DT.UINT8, [usual, usual, usual, value])}}
    }
    before = LambdaStep(_same, input_names="image", output_types={"image": DT.UINT8})
    steps = [DataGroupArrayWithNameElementsAppliedStep(each, "cameras") for each in (before, step)]
    with make_iterator(shuffled(ArrayProvider(fields), 2), steps, py_num_workers=0) as iterator:
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
    (CoordinateCropper("rows", [0, 0], [1, 1]), 2, "points must have one number for each limit"),
    (PointsInRangeCheck("rows", "inside", [0, 0], [1, 1]), 2, "points must have one number for each limit"),
    (BoxFormatConverter("rows", from_format="xyxy", to_format="xywh"), 4, "boxes must be four numbers"),
    (BEVBBoxesTransformer3D(*[None] * 4, "rows", None, None, [1, 1], 2, None, None), 4, "matrices must have 4"),
]


@pytest.mark.parametrize(
    ("step", "num_columns", "rule"), ROW_VALUES, ids=[type(step).__name__ for step, *_ in ROW_VALUES]
)
def test_rows_of_other_numbers_than_a_step_works_on(step: Any, num_columns: int, rule: str) -> None:
    rows = [np.zeros((3, num_columns)), np.zeros((3, num_columns + 1))]
    source = shuffled(ArrayProvider({"rows": (DT.FLOAT, rows)}), 2)
    with (
        make_iterator(source, [step], py_num_workers=0) as iterator,
        pytest.raises(GraphError, match=f"sample 1, field [a-z]+: {rule}") as caught,
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
    ],
)
def test_the_report_on_a_file_where_an_image_belongs_asks_whether_it_is_decoded(step: PipelineStepBase) -> None:
    sample = SampleDataGroup()
    sample.add_data_field("image", DT.UINT8)
    sample["image"] = encoded_image(PIXELS)
    with pytest.raises(GraphError, match=r"field image: .*is it decoded before"):
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
        GraphError, match=r"field image_hw: an image is \(..., height, width, channels\) \[in step 0"
    ):
        run_step(TensorSizeAdder("image", "_hw"), sample)
    with pytest.raises(GraphError, match="field image: an image has height, width, channels"):
        run_step(ImageToTileSizePadder("image", 32), sample)


def test_variables_of_a_condition_with_several_values_for_each_element_are_named() -> None:
    objects = SampleDataGroup()
    objects.add_data_field("boxes", DT.FLOAT)
    sample = SampleDataGroup()
    sample.add_data_group_field("objects", objects)
    sample["objects"]["boxes"] = np.zeros((3, 4))
    with pytest.raises(GraphError, match="each variable has one value for each element"):
        run_step(AnnotationElementConditionEval("objects", "is_left = boxes < 3", False), sample)
