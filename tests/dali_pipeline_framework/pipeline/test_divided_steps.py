"""Divided steps, with pixels in the graph and all else on arrays, give what whole steps give in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from nvidia.dali import fn, types
from support.array_samples import sample_of
from support.arrays import encoded_image, gradient
from support.graphs import untraced
from support.laws import examples
from support.random_steps import each_camera, filled

from accvlab.dali_pipeline_framework.draws import UniformDraw, records_of_batch
from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.inputs import IterableBase
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.pipeline.chain import chain_format
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    AnnotationElementConditionEval,
    AxesLayoutSetter,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    CoordinateCropper,
    DataGroupInPathAppliedStep,
    GridMasker,
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
    PhotoMetricDistorter,
    PipelineStepBase,
    PointsInRangeCheck,
    PointsPadder,
    RandomEraser,
    TensorSizeAdder,
    UnneededFieldRemover,
)
from accvlab.dali_pipeline_framework.testing import StepRun, run_step

DT = types.DALIDataType
_RGB, _BGR = types.DALIImageType.RGB, types.DALIImageType.BGR
_FIELDS = {"hw": "hw_names", "matrix": "projection_names", "points": "point_names", "boxes": "box_names"}


def _named(fields: set[Any]) -> dict[str, Any]:
    """The arguments for what is given in the pixels of images, and is there."""
    names = {argument: name for name, argument in _FIELDS.items() if name in fields}
    return {**names, "mask_names": "mask"} if "mask" in fields else names


def _affine(fields: set[Any]) -> PipelineStepBase:
    kinds = AffineTransformer
    return AffineTransformer(
        [20, 30], kinds.ResizingMode.STRETCH, None, "image", **{
            {"hw_names": "image_hw_field_names", "projection_names": "projection_matrix_field_names",
             "point_names": "point_field_names"}.get(argument, argument): name
            for argument, name in _named(fields).items()
        },
        transformation_steps=[kinds.Rotation(0.7, -0.3, 0.3), kinds.UniformScaling(0.5, 0.8, 1.2)],
    )  # fmt: skip


def _sized(name: str, fields: set[Any]) -> PipelineStepBase:
    return TensorSizeAdder(name, f"_size{len(fields)}")


# For each step what makes it for the names of the fields that there are.
STEPS: dict[str, Callable[[set[Any]], PipelineStepBase]] = {
    "affine": _affine,
    "area": lambda _: BoxAreaFilter("boxes", area_range=(20.0, 500.0)),
    "bgr": lambda _: ImageColorSpaceConverter("image", from_image_type=_RGB, to_image_type=_BGR),
    "blur": lambda _: ImageGaussianBlurrer("image", prob=0.7, sigma_range=(0.3, 1.0)),
    "brightness": lambda _: ImageBrightnessContrastJitter("image", prob=0.7, key="rig"),
    "condition": lambda _: AnnotationElementConditionEval("annotation", "is_far = depths > 4", False),
    "crop": lambda _: CoordinateCropper("points", [0, 0], [20, 15]),
    "erase": lambda _: RandomEraser("image", prob=0.7, num_rectangles=2),
    "flip": lambda fields: HorizontalFlipper("image", **_named(fields)),
    "grid": lambda _: GridMasker("image", prob=0.7, tile_range=(6, 12), angle_range=(0.0, 0.5)),
    "heatmap": lambda _: BoundingBoxToHeatmapConverter(
        "annotation", "boxes", "heatmap", [6, 9], image_hw_field_name="image_hw", use_per_category_heatmap=False
    ),
    "jpeg": lambda _: ImageJpegDistorter("image", quality_range=(5, 60)),
    "layout": lambda _: AxesLayoutSetter("image", "HWC"),
    "layout of points": lambda _: AxesLayoutSetter("points", "NC"),
    "mean": lambda _: ImageMeanStdDevNormalizer("image", [90, 100, 110], 50.0, output_layout="CHW"),
    "pad": lambda _: ImageToTileSizePadder("image", 16),
    "points": lambda _: PointsPadder("points", num_points=3, mask_name="is_point"),
    "range": lambda _: PointsInRangeCheck("points", "is_inside", [0, 0], [20, 15]),
    "range 0..1": lambda _: ImageRange01Normalizer("image"),
    "recolor": lambda _: PhotoMetricDistorter("image", [-30, 30], [-18, 18], [0.5, 1.5], [0.5, 1.5]),
    "remove image": lambda _: UnneededFieldRemover(["image"]),
    "remove": lambda _: UnneededFieldRemover(["boxes", "mask"]),
    "resize": lambda fields: ImageResizer("image", output_hw=[18, 24], mode="crop", **_named(fields)),
    "resize, crop": lambda fields: ImageResizeCropFlipper(
        "image", output_hw=[16, 24], scale_range=(0.6, 1.2), bottom_crop_range=(0.0, 0.3), **_named(fields)
    ),
    "size": lambda fields: _sized("image", fields),
    "size of mask": lambda fields: _sized("mask", fields),
    "map": lambda _: MapStep(np.negative, input_names="matrix", output_types={"matrix": DT.FLOAT}),
    "lambda": lambda _: LambdaStep(
        lambda image: fn.cast(image, dtype=DT.FLOAT), input_names="image", output_types={"image": DT.FLOAT}
    ),
}
CHANGE_SIZES = {"affine", "resize", "resize, crop", "pad"}
NEED_ONE_SIZE = {"affine", "flip", "resize", "resize, crop", "decode a region"}
DECODERS: dict[str, Callable[[set[Any]], PipelineStepBase]] = {
    "decode": lambda _: ImageDecoder("image", False),
    "decode a region": lambda fields: ImageResizer(
        "image", output_hw=[18, 26], mode="crop", is_encoded=True, **_named(fields)
    ),
}


def _rig(number: int, sizes: Sequence[tuple[int, int]], kind: str, has_mask: bool) -> SampleDataGroup:
    random = np.random.default_rng(number)
    cameras = []
    for camera, (height, width) in enumerate(sizes):
        image = gradient(height, width, camera + number)
        image[height // 3 :, width // 2 :] = random.integers(0, 256, (3,))
        corners = random.uniform(0, 10, (random.integers(0, 4), 2))
        fields = {
            "image": (DT.UINT8, image if kind == "array" else encoded_image(image, kind)),
            "hw": (DT.INT32, [height, width]),
            "matrix": (DT.FLOAT, random.uniform(-1, 1, (3, 3)).astype(np.float32)),
            "points": (DT.FLOAT, random.uniform(0, 20, (random.integers(0, 4), 2))),
            "boxes": (DT.FLOAT, np.concatenate([corners, corners + random.uniform(1, 15, corners.shape)], 1)),
        }
        if has_mask:
            fields["mask"] = (DT.UINT8, random.integers(0, 9, (height, width, 1)).astype(np.uint8))
        cameras.append(filled(fields))
    boxes = np.array([[1, 2, 9, 8], [5, 5, 20, 18]][: number % 3], np.float32).reshape(-1, 4)
    annotation = filled({"boxes": (DT.FLOAT, boxes), "depths": (DT.FLOAT, np.arange(len(boxes)) + 3.5)})
    sample = filled({"image_hw": (DT.INT32, [24, 36]), "index": (DT.INT64, number)})
    sample.add_data_group_field("annotation", annotation)
    sample["annotation"] = annotation
    sample.add_data_group_field_array("cameras", cameras[0], len(cameras))
    for index, each in enumerate(cameras):
        sample["cameras"][index] = each
    return sample


@st.composite
def chains(draw: st.DrawFn, names: Sequence[str] = (*STEPS,)) -> tuple[list[PipelineStepBase], list[SampleDataGroup]]:
    """Steps that fit each other, and samples of a rig of cameras for them."""
    num_cameras, has_one_size = draw(st.integers(1, 3)), draw(st.booleans())
    kind, has_mask = draw(st.sampled_from(["JPEG", "PNG", "array"])), draw(st.booleans())
    sizes = [(24, 36) if has_one_size else (24 + 2 * index, 36 - 3 * index) for index in range(num_cameras)]
    num_samples = draw(st.integers(1, 4))
    samples = [_rig(number, [*sizes[number % 2 :], *sizes][:num_cameras], kind, has_mask) for number in range(num_samples)]
    wraps = st.sampled_from(["", "cameras", 0])
    wanted = draw(st.lists(st.tuples(st.sampled_from(names), wraps), max_size=5))
    decoder, where = draw(st.sampled_from([*DECODERS])), draw(st.sampled_from(["", "cameras", "each"]))
    places = [*range(num_cameras)] if where == "each" else [where]
    steps: list[PipelineStepBase] = []
    group = samples[0].get_empty_like_self()
    for name, wrap in [*((decoder, place) for place in places if kind != "array"), *wanted]:
        fields = {part for path in group.format.flat_paths for part in path}
        make = DECODERS.get(name) or STEPS[name]
        if wrap == "" and name in NEED_ONE_SIZE and not has_one_size:
            wrap = "cameras"
        step = make(fields)
        if wrap != "":
            step = each_camera(step) if wrap == "cameras" else DataGroupInPathAppliedStep(step, ("cameras", wrap))
        try:
            group = chain_format(group, [step])
        except FormatError:
            continue  # it does not fit those before
        steps.append(step)
        has_one_size = has_one_size and not (name in CHANGE_SIZES and wrap == 0)
    event(", ".join(type(step._processing_step_to_apply or step).__name__ for step in steps[:2]))
    return steps, samples


def require_same(found: Sequence[StepRun], expected: Sequence[StepRun], tolerance: float = 0.0) -> None:
    """Compare outputs; images may differ by a share of their range, but for a few pixels at edges."""
    for one, other in zip(found, expected, strict=True):
        assert one.output.format.flat_paths == other.output.format.flat_paths
        for path, leaf in zip(one.output.format.flat_paths, one.output.format.flat_leaves, strict=True):
            value, wanted = one.output.get_item_in_path(path), other.output.get_item_in_path(path)
            if not tolerance or path[-1] != "image":
                np.testing.assert_array_equal(value, wanted, err_msg=str(path), strict=True)
                continue
            assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
            low, high = leaf.content.value_range or (0, 255)
            difference = np.abs(value.astype(float) - wanted) / (high - low)
            assert not value.size or np.quantile(difference, 0.9) <= tolerance, path


@settings(deadline=None, max_examples=examples(25, 400))
@given(case=chains(), folds=st.booleans(), has_conditionals=st.booleans(), seed=st.integers(0, 9))
def test_divided_steps_give_what_whole_steps_give(
    case: tuple[list[PipelineStepBase], list[SampleDataGroup]], folds: bool, has_conditionals: bool, seed: int
) -> None:
    steps, samples = case
    how: dict[str, Any] = {"seed": seed, "fold_arrays": folds, "enable_conditionals": has_conditionals}
    with untraced():
        divided = run_step(steps, samples, run="pixels", **how)
        whole = run_step(steps, samples, run="graph", **how)
        require_same(divided, whole)
        assert [run.layouts for run in divided] == [run.layouts for run in whole]
        assert [run.draws.keys() for run in divided] == [run.draws.keys() for run in whole]
        replayed = run_step(steps, samples, run="pixels", draws=[run.draws for run in whole], **how | {"seed": 77})
        require_same(replayed, whole)
        if all(step.has_array_form for step in steps):
            tolerances = [step.image_tolerance for step in steps]
            on_arrays = run_step(steps, samples, run="workers", seed=seed)
            require_same(on_arrays, divided, 2 * sum(tolerances) + 0.02)
