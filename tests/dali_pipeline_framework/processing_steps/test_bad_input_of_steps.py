"""Formats and values that steps cannot work on: the error names the step, the field and the rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from step_runs import output_format
from support.array_samples import sample_of
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.format_cases import (
    FormatCase,
    NeverRead,
    assert_a_group_is_no_field,
    assert_what_is_missing_is_named,
    assert_wrong_types_are_named,
    case,
    case_name,
)
from support.pipelines import make_iterator, shuffled
from support.public_steps import untried_steps
from support.steps import as_published

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.errors import FieldValueError, FormatError, GraphError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
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
PIXELS = gradient(6, 8)
GRAY = PIXELS[..., :1]
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
    case(HEATMAP, "hw", DT.STRING),
    case(BoxAreaFilter("depths", area_range=(1, 2), further_names="points"), "a.depths", DT.BOOL),
    case(REMOVER, "a.mask", DT.UINT8),
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
def test_formats_that_a_step_cannot_work_on(of: FormatCase) -> None:
    assert_what_is_missing_is_named(of, GOOD)
    assert_a_group_is_no_field(of, GOOD)
    assert_wrong_types_are_named(of, GOOD)


NONE = np.zeros(1)
MASK = np.zeros(1, bool)
IS_SEEN = {"depths_field_name": "depths", "minimum_bbox_size": 1}
BOXES = np.zeros((1, 4))
# A step, a sample of a format that it cannot work on, and what the error says of each problem.
PROBLEMS: list[tuple[PipelineStepBase, dict[str | int, Any], list[str]]] = [
    (
        A([4, 5], STRETCH, None, "image", None, "matrix", ["points", "absent"]),
        {"image": np.zeros((2, 2, 3), np.int64), "points": np.zeros(2), "matrix": np.zeros((3, 3), np.int32)},
        [
            "AffineTransformer cannot be applied:",
            "image: must be UINT8 or INT16 or FLOAT (an image), got INT64",
            "matrix: must be FLOAT or FLOAT64 or FLOAT16 (a projection matrix), got INT32",
            "No occurrences of points found: no field has the name 'absent'",
        ],
    ),
    (
        AnnotationElementConditionEval("a", "r = x < y or depths", True),
        {"a": {"x": NONE, "dephts": NONE, "r": NONE}, "g": {"a": NONE}, "h": {"a": {"x": {}, "y": NONE}}},
        [
            "AnnotationElementConditionEval cannot evaluate",
            "a: does not have child `y`",
            "Did you mean 'dephts'? Available: ",
            "a.r: exists already",
            "g.a: must be a data group field with annotations, is a data field",
            "h.a.x: is not a data field",
        ],
    ),
    (
        BEVBBoxesTransformer3D(
            *("points", "velocities", "sizes", None, "lidar2img", "e2w", "w2e"), None, None, [1, 2], None
        ),
        {"points": np.zeros((1, 3), np.int32), "velocities": {"x": NONE}},
        [
            "points: must be FLOAT or FLOAT64 ((N, 3) points), got INT32",
            "velocities: must be a data field",
            *(f"no field has the name '{name}'" for name in ("sizes", "lidar2img", "e2w", "w2e")),
        ],
    ),
    (
        BoundingBoxToHeatmapConverter(
            *("a", "boxes", "heatmap", [4, 5], None, "hw", "categories", 2),
            is_valid_opt_in_name="is_valid",
            center_opt_in_name="centers",
        ),
        {"a": {"categories": np.zeros(1, np.float32), "heatmap": NONE}, "b": {"a": NONE}},
        [
            "hw: there is no such data field",
            "a.boxes: there is no such data field with boxes",
            "a.categories: must be INT8 or",
            "a.is_valid: there is no such data field with the validity",
            "a.centers: there is no such data field",
            "a.heatmap: exists already, so it cannot be added",
            "b.a: must be the group of an annotation, is a data field",
        ],
    ),
    (
        BoxAreaFilter("boxes", further_names=["ids", "g"]),
        {"a": {"boxes": BOXES, "g": {}}, "ids": NONE},
        ["a.ids: there is no such data field", "a.g: must be a data field"],
    ),
    (
        ConditionalElementRemover("a", "mask", ["x"], [0], [1], True),
        {"g": {"a": {"mask": MASK, "x": {}}}, "h": {"a": {"mask": np.zeros(1, np.uint8)}}, "a": NONE},
        [
            "a: must be a data group field with annotations, is a data field",
            "g.a.x: must be a data field with elements, is a group",
            "h.a.x: there is no such data field",
            "h.a.mask: must be BOOL (a mask), got UINT8",
        ],
    ),
    (
        ImageDecoder("image", False),
        {"index": NONE, "cam": {0: {"img": NONE}}},
        ["no field has the name 'image'. Did you mean 'img'? Fields: index, cam[0].img."],
    ),
    (
        LambdaStep(
            abs, input_names=[("c", "x"), ("c",), "z"], output_types={("d", "y"): DT.FLOAT, ("c",): DT.FLOAT}
        ),
        {"c": {"a": NONE}},
        [
            "no field has the name 'z'",
            "c.x: there is no such field for the function",
            "c: must be a data field for the function, is a group",
            "d: there is no such group for a result",
            "c: must be a data field for a result, is a group",
        ],
    ),
    (PaddingToUniform(["y", "x"]), {"x": NONE}, ["No fields to be padded with name 'y' were found"]),
    (PointsInRangeCheck("p", "in", [0], [1]), {"a": {"p": NONE, "in": NONE}}, ["a.in: exists already"]),
    (PointsPadder("p", num_points=3, mask_name="m"), {"p": NONE, "m": NONE}, ["m: exists already"]),
    (TensorSizeAdder("image", "_hw"), {"image": NONE, "image_hw": {}}, ["image_hw: exists already"]),
    (
        VisibleBboxSelector("boxes", "mask", image_hw=(5, 5), **IS_SEEN),
        {"boxes": BOXES, "g": {"boxes": BOXES}, "mask": NONE},
        [
            "The name 'boxes' must occur once, but occurs 2 times: boxes, g.boxes. Wrap the step",
            "no field has the name 'depths'",
            "mask: exists already",
        ],
    ),
    (
        VisibleBboxSelector("boxes", ("h", "m"), image_hw=(5, 5), **IS_SEEN),
        {"boxes": BOXES, "depths": NONE},
        ["h: there is no such group to add the mask to"],
    ),
]


@pytest.mark.parametrize(("step", "sample", "told"), PROBLEMS, ids=lambda each: type(each).__name__)
def test_all_problems_of_a_format_are_told(step: Any, sample: dict[str | int, Any], told: list[str]) -> None:
    with pytest.raises(FormatError) as caught:
        output_format(step, sample)
    for words in told:
        assert words in str(caught.value)


def test_all_problems_of_a_chain_are_told_at_once() -> None:
    steps = [of.step for of in FORMATS if of.path == ("image",) and not isinstance(of.step, LambdaStep)]
    definition = PipelineDefinition(shuffled(NeverRead({"other": DT.FLOAT}), 1), steps)
    with pytest.raises(KeyError) as caught:
        definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
    for index, step in enumerate(steps):
        assert f"step {index} ({type(step).__name__})" in str(caught.value)


def test_no_step_is_left_out() -> None:
    of_other_packages = {"AlbumentationsStep", "TorchvisionStep"}  # see test_image_library_steps.py
    with_dimensions = {"VideoDecoder"}  # which the formats here have not, see test_video_decoder.py
    cannot_fail = {*of_other_packages, *with_dimensions, "UnneededFieldRemover"}
    assert untried_steps(processing_steps, {type(of.step).__name__ for of in FORMATS}) == cannot_fail


# --- values ---------------------------------------------------------------------------------------------

EMPTY = PIXELS[:0]
FILE = encoded_image(PIXELS)
NO_FILE = np.arange(99, dtype=np.uint8)
NO_PIXELS = "An image has no pixels or no channels"
NO_IMAGE = "no image of a known format, or it is damaged"
RESIZER = ImageResizer("image", output_hw=[4, 5])
OF_FILES = ImageResizer("image", output_hw=[4, 5], is_encoded=True)
AFFINE = A([4, 5], STRETCH, None, "image", transformation_steps=[A.Rotation(1, 5)])
# A step, an image that it can work on, one that it cannot, and what the graph says of the latter.
IMAGES: list[tuple[PipelineStepBase, np.ndarray, np.ndarray, str]] = [
    *((step, PIXELS, EMPTY, NO_PIXELS) for step in (AFFINE, RESIZER)),
    *((ImageDecoder("image", False), FILE, file, NO_IMAGE) for file in (NO_FILE, FILE[:0], FILE[:200])),
    (OF_FILES, FILE, NO_FILE, "No image file"),
    (OF_FILES, FILE, FILE[:200], NO_IMAGE),
    (PhotoMetricDistorter(*DISTORTION), PIXELS, GRAY, "requires matrices with 1 columns"),
    (ImageMeanStdDevNormalizer("image", [1, 2, 3], 1), PIXELS, GRAY, "an image has another number of channels"),
]


@pytest.mark.parametrize(("step", "usual", "value", "rule"), IMAGES)
def test_the_graph_names_the_camera_of_a_sample_and_the_step(step: Any, usual: Any, value: Any, rule: str) -> None:
    images = {0: [usual] * 4, 1: [usual, usual, usual, value]}
    provider = ArrayProvider({"cameras": {number: {"image": (DT.UINT8, each)} for number, each in images.items()}})
    before = LambdaStep(_same, input_names="image", output_types={"image": DT.UINT8})
    steps = [DataGroupArrayWithNameElementsAppliedStep(each, "cameras") for each in (before, step)]
    with make_iterator(shuffled(provider, 2), steps, py_num_workers=0, in_graph=True) as iterator:
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


COUNTED = ConditionalElementRemover("g", "m", ["x"], [0], [1], False)
EVALUATED = AnnotationElementConditionEval("g", "r = x < y", False)
SCENE = BEVBBoxesTransformer3D(
    *("points", "velocities", None, None, "projection", None, None), [-0.4, 0.4], 2, [0.9, 1.1], None
)
HEATS = BoundingBoxToHeatmapConverter(
    *("g", "boxes", "heatmap", (9, 9), None, "hw", "categories", 3),
    is_valid_opt_in_name="valid",
    center_opt_in_name="centers",
)
ANNOTATION = {
    "boxes": np.zeros((2, 4), np.float32),
    "categories": np.zeros(2, np.int32),
    "valid": np.ones(2, bool),
    "centers": np.zeros((2, 2), np.float32),
}
SEEN = VisibleBboxSelector("boxes", "m", image_hw=(5, 5), check_for_minimum_size=False, depths_field_name="depths")
AFFINE_SIZES = A([8, 8], STRETCH, None, image_hw_field_names=["hw", "size"])
SHOWN = A([8, 8], STRETCH, None, None, "hw", "matrix", "points", box_names="boxes")
SHAPES = {"points": (2, 2), "boxes": (2, 4), "matrix": (3, 4)}
IS_COUNTED = "A mask must have one value for each element"


def of_shapes(**shapes: tuple[int, ...]) -> dict[str | int, Any]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def in_scene(**other: tuple[int, ...]) -> dict[str | int, Any]:
    return of_shapes(**{"points": (2, 3), "velocities": (2, 3), "projection": (4, 4), **other})


def shown(**other: tuple[int, ...]) -> dict[str | int, Any]:
    return {"hw": np.array([4, 5], np.int32), **of_shapes(**{**SHAPES, **other})}


def annotated(**other: np.ndarray) -> dict[str | int, Any]:
    return {"hw": np.array([90, 120], np.int32), "g": {**ANNOTATION, **other}}


# A step, a sample whose values it cannot work on, and what the error says, beginning with the field.
VALUES: list[tuple[Any, dict[str | int, Any], str]] = [
    (CoordinateCropper("rows", [0, 0], [1, 1]), of_shapes(rows=(2, 1)), "one number for each limit"),
    (CoordinateCropper("rows", [0], [1]), of_shapes(rows=(2, 3)), "one number for each limit"),
    (PointsInRangeCheck("rows", "inside", [0, 0], [1, 1]), of_shapes(rows=(0, 3)), "one number for each limit"),
    (PointCloudRangeFilter("p", point_range=([0] * 3, [1] * 3)), of_shapes(p=(4, 2)), "one number for each limit"),
    (BoxAreaFilter("boxes", further_names="ids"), of_shapes(boxes=(2, 4), ids=(3,)), IS_COUNTED),
    *((COUNTED, {"g": {"x": np.zeros(3), "m": np.ones(count, bool)}}, IS_COUNTED) for count in (0, 2)),
    (
        ConditionalElementRemover("g", "m", ["x"], [1], [2], False),
        {"g": {"x": np.zeros((3, 3)), "m": np.ones(2, bool)}},
        IS_COUNTED,
    ),
    *((EVALUATED, {"g": of_shapes(x=(3,), y=shape)}, "one value for each element") for shape in ((1,), (3, 4))),
    (AnnotationElementConditionEval("g", "r = x", False), {"g": of_shapes(x=(2, 3))}, r"got \(2, 3\)"),
    *(
        (SCENE, in_scene(**{name: shape}), f"{name}: Points and velocities must be x, y, z")
        for name, shape in (("points", (2, 4)), ("points", (6,)), ("velocities", (2, 2)))
    ),
    (SCENE, in_scene(projection=(4, 3)), "projection: Matrices must have 4 columns"),
    (HEATS, annotated(boxes=np.zeros((2, 5), np.float32)), r"g: Boxes must be \(N, 4\)"),
    (HEATS, annotated(categories=np.zeros(1, np.int32)), "g: One value for each box"),
    (HEATS, annotated(valid=np.zeros(3, bool)), "g: One value for each box"),
    *(
        (HEATS, annotated(centers=np.zeros(shape, np.float32)), "g: A center x, y for each box is needed")
        for shape in ((1, 2), (2, 1))
    ),
    (
        BoundingBoxToHeatmapConverter("g", "boxes", "heatmap", (9, 9), "image", None, "categories", 3),
        {"image": PIXELS[..., 0], "g": ANNOTATION},
        r"^image: An image is \(\.\.\., height, width, channels\)",
    ),
    *((SEEN, of_shapes(boxes=boxes, depths=(3,)), "") for boxes in ((3, 5), (4, 4))),
    *((SHOWN, shown(points=(2, n)), "Points must be x, y pairs") for n in (3, 5)),
    (SHOWN, shown(boxes=(2, 5)), "Boxes must be x1"),
    *((SHOWN, shown(matrix=(n, 4)), "Projection matrices must have 3 or 4 rows") for n in (2, 5)),
    (AFFINE_SIZES, {"hw": np.array([4, 5]), "size": np.array([8, 10])}, "size fields of a sample differ in size"),
    *(
        (AFFINE_SIZES, {"hw": np.array(hw), "size": np.array(hw)}, "A size is below 1 pixel, or not finite")
        for hw in ([0, 5.0], [4, -3.0], [5, math.nan], [math.inf, 5])
    ),
    (
        ImageResizer("image", output_hw=[8, 8], mask_names="mask"),
        {"image": PIXELS, "mask": np.zeros((7, 8, 1), np.uint8)},
        r"differ in size; wrap the step\. Sizes: \[\[6\.0, 8\.0\], \[7",
    ),
    (
        TensorSizeAdder("image", "_hw"),
        {"image": np.zeros((2, 2))},
        r"An image is \(\.\.\., height, width, channels",
    ),
    (ImageToTileSizePadder("image", 8), {"image": np.zeros(5)}, "An image has height, width, channels"),
    (PhotoMetricDistorter(*DISTORTION), {"image": GRAY}, "image: .*with 3 channels"),
    (
        ImageMeanStdDevNormalizer("image", [1, 2, 3], 1),
        {"image": GRAY},
        "image: .*another number of channels than there are means",
    ),
    (
        ImageMeanStdDevNormalizer("image", 1, 1, output_layout="FCHW"),
        {"image": PIXELS},
        "image: .*cannot get the layout FCHW",
    ),
    (AxesLayoutSetter("image", "FHWC"), {"image": PIXELS}, r"image: .*\(6, 8, 3\), so it cannot have the layout"),
    (RESIZER, {"image": EMPTY}, r"is it decoded before\?"),
    *(
        (step, {"image": PIXELS[..., 0]}, r"is it decoded before\?")
        for step in (
            RESIZER,
            PhotoMetricDistorter(*DISTORTION),
            ImageMeanStdDevNormalizer("image", 124, 57),
            GridMasker("image", prob=1),
        )
    ),
]


@pytest.mark.parametrize(("step", "sample", "rule"), VALUES)
def test_values_that_a_step_cannot_work_on(step: Any, sample: dict[str | int, Any], rule: str) -> None:
    """On arrays; a graph runs the same code for all but pixels, and names the sample."""
    with pytest.raises(FieldValueError, match=f"(?i){rule}"):
        run_step(step, sample_of(sample), run="workers")


NOT_DECODED = r"field image: .*is it decoded before\? If not, put ImageDecoder before"
NO_CHANNELS = r"field image: .*(height, width, channels|no channels)"


@pytest.mark.parametrize(
    ("step", "value", "rule"),
    [
        (RESIZER, FILE, NOT_DECODED),
        (GridMasker("image", prob=1), FILE, NOT_DECODED),
        (ImageMeanStdDevNormalizer("image", [1, 2, 3], 1), FILE, NOT_DECODED),
        (RESIZER, PIXELS[..., 0], NO_CHANNELS),
        (TensorSizeAdder("image", "_hw"), FILE, r"field image_hw: An image is \(.*\)\. .* \[in step 0"),
        (ImageToTileSizePadder("image", 32), FILE, "field image: image: An image has height, width, channels"),
    ],
)
def test_the_graph_names_the_field_whose_axes_are_no_image(step: Any, value: np.ndarray, rule: str) -> None:
    with pytest.raises(GraphError, match=rule):
        run_step(step, sample_of({"image": value}))
