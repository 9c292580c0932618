"""Settings of all steps: numbers of NumPy are taken, ``bool`` is no number, nothing is a bare TypeError."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nvidia.dali.types import DALIImageType
from support.arrays import DT

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer, PipelineStepBase, TensorSizeAdder

STRETCH = AffineTransformer.ResizingMode.STRETCH
INNER = TensorSizeAdder("image", "_hw")
GRAY = DALIImageType.GRAY
DISTORTION = {
    "min_max_brightness": [-3, 3],
    "min_max_hue": [-9, 9],
    "min_max_contrast": [0.5, 1],
    "min_max_saturation": [0.5, 1],
    **{f"prob_{what}_aug": 0.5 for what in ("brightness", "hue", "contrast", "saturation")},
    "prob_swap_channels": 0.5,
}
BEV_NAMES = [
    "points",
    "velocities",
    "sizes",
    "orientation",
    "proj_matrices_and_extrinsics",
    "ego_to_world",
    "world_to_ego",
]
# Settings of each step that can be made; those that are left out have their defaults.
GOOD: dict[str, dict[str, Any]] = {
    "AffineTransformer": {"output_hw": [4, 5], "resizing_mode": STRETCH, "image_field_names": "image"},
    "AnnotationElementConditionEval": {
        "annotation_field_name": "a",
        "condition": "x = y < 2",
        "remove_data_fields_used_in_condition": False,
    },
    "AxesLayoutSetter": {"names_fields_to_set": "image", "layout_to_set": "HWC"},
    "BEVBBoxesTransformer3D": {
        **{f"data_field_names_{kind}": kind for kind in BEV_NAMES},
        "rotation_range": [0, 1],
        "rotation_axis": 2,
        "scaling_range": [0.5, 1],
        "translation_max_abs": [1, 1, 1],
    },
    "BoundingBoxToHeatmapConverter": {
        "annotation_field_name": "a",
        "bboxes_in_name": "b",
        "heatmap_out_name": "h",
        "heatmap_hw": [4, 5],
        "image_hw_field_name": "hw",
        "categories_in_name": "c",
        "num_categories": 2,
        "min_object_size": [1, 1],
    },
    "BEVMaskAdder": {"mask_path": "m", "x_range": (-3, 3), "y_range": (-3, 3), "cell_size": 1.0, "lines": [0]},
    "BoxAreaFilter": {"box_names": "boxes"},
    "BoxFormatConverter": {"box_names": "boxes", "from_format": "xyxy", "to_format": "xywh"},
    "ConditionalElementRemover": {
        "annotation_field_name": "a",
        "mask_field_name": "m",
        "field_names_to_process": ["x"],
        "field_dims_to_process": [0],
        "fields_to_process_num_dims": [1],
        "remove_mask_field": True,
    },
    "CoordinateCropper": {"points_fields_name": "p", "minimum_point": [0], "maximum_point": [1]},
    "DataGroupArrayInPathElementsAppliedStep": {
        "processing_step_to_apply": INNER,
        "path_to_array_to_apply_to": "a",
    },
    "DataGroupArrayWithNameElementsAppliedStep": {
        "processing_step_to_apply": INNER,
        "name_of_arrays_to_apply_to": "a",
    },
    "DataGroupInPathAppliedStep": {"processing_step_to_apply": INNER, "path_to_apply_to": "a"},
    "DataGroupsWithNameAppliedStep": {"processing_step_to_apply": INNER, "names_of_groups_to_apply_to": "a"},
    "FrameSequenceDecoder": {},
    "FutureTrajectoryAdder": {"future_names": "f", "known_name": "k", "offset_name": "o", "mask_name": "m"},
    "GridMasker": {"image_names": "image"},
    "HorizontalFlipper": {"image_names": "image"},
    "ImageBrightnessContrastJitter": {"image_names": "image"},
    "ImageColorSpaceConverter": {
        "image_names": "image",
        "from_image_type": DALIImageType.RGB,
        "to_image_type": GRAY,
    },
    "ImageDecoder": {"image_name": "image", "use_device_mixed": False},
    "ImageGaussianBlurrer": {"image_names": "image"},
    "ImageJpegDistorter": {"image_names": "image"},
    "ImageMeanStdDevNormalizer": {"image_name": "image", "mean": 1, "std_dev": 2},
    "ImageRange01Normalizer": {"image_name": "image"},
    "ImageResizeCropFlipper": {"image_names": "image", "output_hw": [4, 5], "scale_range": (0.5, 1)},
    "ImageResizer": {"image_names": "image", "output_hw": [4, 5]},
    "ImageToTileSizePadder": {"image_name": "image", "tile_size_to_pad_to": 4},
    "LambdaStep": {"function": abs, "input_names": "a", "output_types": {"b": DT.FLOAT}},
    "LidarDepthMapAdder": {
        "projection_names": "p",
        "point_path": "points",
        "image_hw": [4, 5],
        "strides": {"d": 2},
    },
    "LidarSweepAggregator": {"num_sweeps": 2, "age_column": 4},
    "MapLineVectorizer": {"point_names": "p", "count_name": "n", "vector_name": "v"},
    "MapStep": {"function": abs, "input_names": "a"},
    "PaddingToUniform": {},
    "PhotoMetricDistorter": {"image_name": "image", **DISTORTION},
    "PointCloudRangeFilter": {"point_names": "p", "point_range": ([0], [1])},
    "PointsInRangeCheck": {
        "points_fields_name": "p",
        "is_inside_field_name": "i",
        "minimum_point": [0],
        "maximum_point": [1],
    },
    "PointsPadder": {"point_names": "p", "num_points": 4},
    "RandomEraser": {"image_names": "image"},
    "TensorSizeAdder": {"tensor_name": "image", "size_postfix": "_hw"},
    "TimeDifferenceAdder": {"timestamp_names": "t", "reference_path": "r", "difference_name": "d"},
    "UnneededFieldRemover": {"unneeded_field_names": ["a"]},
    "VisibleBboxSelector": {
        "bboxes_field_name": "b",
        "resulting_mask_field_path": "m",
        "image_hw": [4, 5],
        "depths_field_name": "d",
        "minimum_bbox_size": 2,
    },
}
WHOLE_NUMBERS = {"age_column", "num_points", "num_rectangles", "num_categories", "num_sweeps", "rotation_axis"}
NUMBERS = {
    "cell_size",
    "close_distance",
    "closing_distance",
    "command_distance",
    "fill_value",
    "flip_prob",
    "flip_prob_x",
    "flip_prob_y",
    "hw_decoder_load",
    "line_width",
    "max_radius",
    "mean",
    "min_fraction_area_clipping",
    "min_radius",
    "minimum_bbox_size",
    "prob",
    "radius_scaling_factor",
    "radius_to_sigma_factor",
    "std_dev",
    "unit",
    *(name for name in DISTORTION if name.startswith("prob_")),
}
RANGES = {
    "angle_range",
    "area_range",
    "bottom_crop_range",
    "brightness_range",
    "contrast_range",
    "crop_x_range",
    "depth_range",
    "quality_range",
    "ratio_range",
    "rotation_range",
    "scale_range",
    "scaling_range",
    "sigma_range",
    "tile_range",
    "x_range",
    "y_range",
    *(name for name in DISTORTION if name.startswith("min_max_")),
}
LISTS_OF_WHOLE_NUMBERS = {
    "field_dims_to_process",
    "fields_to_process_num_dims",
    "heatmap_hw",
    "output_hw",
    "tile_size_to_pad_to",
}
LISTS = LISTS_OF_WHOLE_NUMBERS | {
    "image_hw",
    "maximum_point",
    "min_object_size",
    "minimum_point",
    "point_range",
    "translation_max_abs",
}


def made(step: str, **other: Any) -> PipelineStepBase:
    cls: Callable[..., PipelineStepBase] = getattr(processing_steps, step)
    return cls(**{**GOOD[step], **other})


def settings_of(step: str, names: set[str] | None = None) -> list[str]:
    parameters = inspect.signature(getattr(processing_steps, step)).parameters
    return [name for name in parameters if names is None or name in names]


def default_of(step: str, setting: str) -> Any:
    if setting in GOOD[step]:
        return GOOD[step][setting]
    return inspect.signature(getattr(processing_steps, step)).parameters[setting].default


def refused(step: str, setting: str, value: Any) -> bool:
    try:
        made(step, **{setting: value})
    except FrameworkError as error:
        return f"`{setting}` must be" in str(error)
    return False


def test_no_step_is_left_out() -> None:
    no_steps = {"DrawRecording", "ImageUse", "ArrayStep", "GroupToApplyToSelectedStepBase", "PipelineStepBase"}
    of_other_packages = {"AlbumentationsStep", "TorchvisionStep"}  # see test_image_library_steps.py
    assert GOOD.keys() | no_steps | of_other_packages == {*processing_steps.__all__}
    for step in GOOD:
        assert made(step)
    numbers = WHOLE_NUMBERS | NUMBERS | RANGES | LISTS
    assert {name for step in GOOD for name in settings_of(step, numbers)} == numbers


OWN = [
    "BoxAreaFilter",
    "BoxFormatConverter",
    "FrameSequenceDecoder",
    "GridMasker",
    "FutureTrajectoryAdder",
    "HorizontalFlipper",
    "ImageBrightnessContrastJitter",
    "ImageColorSpaceConverter",
    "ImageGaussianBlurrer",
    "ImageJpegDistorter",
    "ImageResizeCropFlipper",
    "ImageResizer",
    "LambdaStep",
    "LidarDepthMapAdder",
    "MapLineVectorizer",
    "MapStep",
    "PointCloudRangeFilter",
    "PointsPadder",
    "RandomEraser",
    "TimeDifferenceAdder",
]


@pytest.mark.parametrize("step", OWN)
def test_own_steps_have_one_vocabulary(step: str) -> None:
    first, *others = inspect.signature(getattr(processing_steps, step)).parameters.values()
    assert first.name == "function" if step in ("LambdaStep", "MapStep") else first.name.endswith("_names")
    assert first.kind is first.POSITIONAL_OR_KEYWORD
    assert {one.kind for one in others} == {inspect.Parameter.KEYWORD_ONLY}
    for one in others:
        assert not re.search("^(min|max|minimum|maximum)_|field_name|_on_gpu$|use_", one.name)
        # Two numbers are a range.
        assert one.name.endswith("_range") == (
            isinstance(one.default, tuple) or one.name in ("scale_range", "point_range")
        )


@pytest.mark.parametrize(
    ("step", "wrong", "meant"),
    [
        ("ImageResizer", "box_name", "box_names"),
        ("RandomEraser", "probs", "prob"),
        ("ImageDecoder", "bgr", "as_bgr"),
    ],
)
def test_an_unknown_argument_is_told_with_a_similar_one(step: str, wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"`{wrong}` is not an argument of {step}. Did you mean '{meant}'"):
        made(step, **{wrong: 1})


VALUES = [np.int64(1), np.float32(1), True, "a", None, math.nan, b"a", [], {}, object()]
each_step = pytest.mark.parametrize("step", [*GOOD])


@each_step
def test_a_value_is_taken_or_refused_by_a_rule_with_its_name(step: str) -> None:
    for setting in settings_of(step):
        for value in VALUES:
            try:
                made(step, **{setting: value})
            except FrameworkError as error:
                told = str(error)
                assert "`" in told or "path" in told or "condition" in told


@each_step
def test_what_is_no_number_is_refused(step: str) -> None:
    for setting in settings_of(step, WHOLE_NUMBERS | NUMBERS):
        assert refused(step, setting, True)
        assert refused(step, setting, np.True_)
        assert refused(step, setting, "a")
        pads_with_nan = step in ("PointsPadder", "PaddingToUniform") and setting == "fill_value"
        assert refused(step, setting, math.nan) != pads_with_nan


@each_step
def test_lists_of_what_is_no_number_are_refused(step: str) -> None:
    for setting in settings_of(step, RANGES | LISTS):
        [_, *others] = np.ravel(default_of(step, setting)).tolist()
        assert refused(step, setting, True)
        for value in (True, "a", None, math.nan):
            assert refused(step, setting, [value, *others])


@each_step
def test_numbers_of_numpy_are_taken(step: str) -> None:
    for setting in settings_of(step, WHOLE_NUMBERS | NUMBERS | RANGES | LISTS):
        good = default_of(step, setting)
        is_whole = all(float(one).is_integer() for one in np.ravel(good)) and not isinstance(good, float)
        types = [np.int64, np.int32] if is_whole else [np.float64]
        if setting not in WHOLE_NUMBERS | LISTS_OF_WHOLE_NUMBERS:
            types.append(np.float32)
        for dtype in types:
            array = np.array(good, dtype)
            for value in (array[()],) if array.ndim == 0 else (array, tuple(array), [*array]):
                assert made(step, **{setting: value})


@pytest.mark.parametrize(("step", "setting"), [("PointsPadder", "num_points"), ("RandomEraser", "num_rectangles")])
def test_settings_are_kept_as_plain_numbers(step: str, setting: str) -> None:
    assert f"{setting}=3" in repr(made(step, **{setting: np.int64(3)}))
