"""A setting of each public step, and two small samples that it works on."""

from __future__ import annotations

import inspect
from collections.abc import Set
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    AxesLayoutSetter,
    BoundingBoxToHeatmapConverter,
    BoxAreaFilter,
    ConditionalElementRemover,
    CoordinateCropper,
    DataGroupArrayInPathElementsAppliedStep,
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    DataGroupsWithNameAppliedStep,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    MapStep,
    PaddingToUniform,
    PipelineStepBase,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    PointsPadder,
    TensorSizeAdder,
    UnneededFieldRemover,
    VideoDecoder,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.sample_data import ImageContent
from support.arrays import encoded_image, gradient
from support.random_steps import RANDOM_STEPS, camera, filled, used_fields
from support.videos import encoded_video

DT = types.DALIDataType


@attrs.frozen
class StepCase:
    """A step, samples, and what is to be known for a check of it."""

    step: PipelineStepBase
    samples: list[SampleDataGroup]
    options: dict[str, Any] = attrs.field(factory=dict)


def halved_as_float(value: Any) -> Any:
    return fn.cast(value, dtype=DT.FLOAT) * 0.5


def halved_array(value: Any, gain: Any) -> Any:
    return np.asarray(value, np.float32) * np.float32(0.5) * gain


def _cameras(*names: str) -> list[SampleDataGroup]:
    """Images of different sizes, and 3 or 0 boxes."""
    return [camera(names, 24, 36, 3), camera(names, 20, 30, 0)]


def _grouped(name: str, groups: list[SampleDataGroup], **beside: Any) -> list[SampleDataGroup]:
    samples = []
    for group in groups:
        sample = filled(beside)
        sample.add_data_group_field(name, group)
        sample[name] = group
        samples.append(sample)
    return samples


def _rigs() -> list[SampleDataGroup]:
    samples = []
    for element in _cameras("image", "boxes"):
        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", element, 2)
        for number in range(2):
            sample["cameras"][number] = element.get_copy()
        samples.append(sample)
    return samples


def _annotations() -> list[SampleDataGroup]:
    groups = [
        filled(
            {
                "boxes": (DT.FLOAT, np.array([[1, 2, 9, 8], [0, 0, 3, 3], [5, 5, 20, 18]][:count]).reshape(-1, 4)),
                "categories": (DT.INT32, np.arange(count)),
                "depths": (DT.FLOAT, np.arange(count) + 3.5),
                "is_kept": (DT.BOOL, np.arange(count) % 2 == 0),
            }
        )
        for count in (3, 0)
    ]
    return _grouped("annotation", groups, image_hw=(DT.INT32, [24, 36]))


def _encoded(kind: str = "JPEG") -> list[SampleDataGroup]:
    return [filled({"image": (DT.UINT8, encoded_image(gradient(8, width), kind))}) for width in (12, 16)]


def _videos() -> list[SampleDataGroup]:
    samples = []
    for numbers in ([2, 0], [3, 3]):
        sample = SampleDataGroup()
        content = ImageContent(is_encoded=True, codecs=("vp9 yuv420p",))
        sample.add_data_field("image", DT.UINT8, ndim=1, content=content)
        sample.add_data_field("image_to_decode", DT.INT32, ndim=1)
        sample["image"], sample["image_to_decode"] = encoded_video(5), numbers
        samples.append(sample)
    return samples


def _points() -> list[SampleDataGroup]:
    return [
        filled({"points": (DT.FLOAT, np.linspace(-3, 3, 3 * n).reshape(-1, 3)), "ages": (DT.INT64, [4] * n)})
        for n in (4, 0)
    ]


def untried_steps(room: ModuleType, cases: Set[str]) -> set[str]:
    """Names of the steps of a package that have no case, and of cases that are no steps of it."""
    steps = {name: getattr(room, name) for name in room.__all__}
    made = {name for name, it in steps.items() if isinstance(it, type) and issubclass(it, PipelineStepBase)}
    return {name for name in made if not inspect.isabstract(steps[name])} ^ cases


def _by_name() -> dict[str, StepCase]:
    images = _cameras("image")
    flip = HorizontalFlipper("image", prob=1.0, box_names="boxes")
    cases = {name: StepCase(make("sample"), _cameras(*used_fields(name))) for name, make in RANDOM_STEPS.items()}
    return {
        **cases,
        "AnnotationElementConditionEval": StepCase(
            AnnotationElementConditionEval("annotation", "is_near = depths < 5 and categories != 1", True),
            _annotations(),
        ),
        "AxesLayoutSetter": StepCase(AxesLayoutSetter("image", "HWC"), images),
        "BoundingBoxToHeatmapConverter": StepCase(
            BoundingBoxToHeatmapConverter(
                "annotation", "boxes", "heatmap", [6, 9], image_hw_field_name="image_hw",
                categories_in_name="categories", num_categories=3, is_active_opt_out_name="is_active",
            ),
            _annotations(),
        ),
        "BoxAreaFilter": StepCase(
            BoxAreaFilter("boxes", area_range=(10.0, 100.0), further_names=["depths"]), _annotations()
        ),
        "ConditionalElementRemover": StepCase(
            ConditionalElementRemover("annotation", "is_kept", ["boxes", "depths"], [0, 0], [2, 1], True),
            _annotations(),
        ),
        "CoordinateCropper": StepCase(CoordinateCropper("points", [-1, -1, -1], [1, 2, 2]), _points()),
        "DataGroupArrayInPathElementsAppliedStep": StepCase(
            DataGroupArrayInPathElementsAppliedStep(flip, "cameras"), _rigs()
        ),
        "DataGroupArrayWithNameElementsAppliedStep": StepCase(
            DataGroupArrayWithNameElementsAppliedStep(flip, "cameras"), _rigs()
        ),
        "DataGroupInPathAppliedStep": StepCase(DataGroupInPathAppliedStep(flip, ("cameras", 1)), _rigs()),
        "DataGroupsWithNameAppliedStep": StepCase(
            DataGroupsWithNameAppliedStep(
                CoordinateCropper("boxes", [0, 0, 0, 0], [9, 9, 9, 9]), "annotation"
            ),
            _annotations(),
        ),
        "ImageDecoder": StepCase(ImageDecoder("image", False), _encoded()),
        "ImageMeanStdDevNormalizer": StepCase(ImageMeanStdDevNormalizer("image", 100.0, 50.0), images),
        "ImageRange01Normalizer": StepCase(ImageRange01Normalizer("image"), images),
        "ImageResizer": StepCase(
            ImageResizer("image", output_hw=[10, 12], box_names="boxes", point_names="points"),
            _cameras("image", "boxes", "points"),
        ),
        "ImageToTileSizePadder": StepCase(
            ImageToTileSizePadder("image", 16, hw_names="hw"), _cameras("image", "hw")
        ),
        "LambdaStep": StepCase(
            LambdaStep(halved_as_float, input_names="points", output_types={"halves": DT.FLOAT}), _points()
        ),
        "MapStep": StepCase(
            MapStep(
                halved_array, input_names="points", output_types={"halves": DT.FLOAT}, draws=[UniformDraw("gain")]
            ),
            _points(),
        ),
        "PaddingToUniform": StepCase(PaddingToUniform(["points"], -1), _points(), {"per_sample": False}),
        "PointCloudRangeFilter": StepCase(
            PointCloudRangeFilter("points", point_range=([-1, -2, -2], [2, 2, 2]), further_names="ages"), _points()
        ),
        "PointsInRangeCheck": StepCase(
            PointsInRangeCheck("points", "is_inside", [-1, -2, -2], [2, 2, 2]), _points()
        ),
        "PointsPadder": StepCase(
            PointsPadder("points", num_points=3, mask_name="is_point", fill_value=-1), _points()
        ),
        "TensorSizeAdder": StepCase(TensorSizeAdder("image", "_hw"), images),
        "UnneededFieldRemover": StepCase(UnneededFieldRemover(["boxes", "no such field"]), _annotations()),
        "VideoDecoder": StepCase(VideoDecoder("image", colors="dali"), _videos()),
        "VisibleBboxSelector": StepCase(
            VisibleBboxSelector(
                "boxes", ("annotation", "is_visible"), image_hw_field_name="image_hw", depths_field_name="depths",
                minimum_bbox_size=3.5,
            ),
            _annotations(),
        ),
    }  # fmt: skip


PUBLIC_STEPS = _by_name()
STEPS_ON_IMAGES = {name for name, case in PUBLIC_STEPS.items() if case.samples[0].has_child("image")}
