"""Settings of all steps: numbers of NumPy are taken, ``bool`` is no number, nothing is a bare TypeError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nvidia.dali.types import DALIImageType
from support.arrays import DT
from support.step_settings import StepSettings, of_each_step

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer, TensorSizeAdder

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
    "BoxAreaFilter": {"box_names": "boxes"},
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
    "GridMasker": {"image_names": "image"},
    "HorizontalFlipper": {"image_names": "image"},
    "ImageDecoder": {"image_name": "image", "use_device_mixed": False},
    "ImageMeanStdDevNormalizer": {"image_name": "image", "mean": 1, "std_dev": 2},
    "ImageRange01Normalizer": {"image_name": "image"},
    "ImageResizeCropFlipper": {"image_names": "image", "output_hw": [4, 5], "scale_range": (0.5, 1)},
    "ImageResizer": {"image_names": "image", "output_hw": [4, 5]},
    "ImageToTileSizePadder": {"image_name": "image", "tile_size_to_pad_to": 4},
    "LambdaStep": {"function": abs, "input_names": "a", "output_types": {"b": DT.FLOAT}},
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
    "TensorSizeAdder": {"tensor_name": "image", "size_postfix": "_hw"},
    "UnneededFieldRemover": {"unneeded_field_names": ["a"]},
    "VideoDecoder": {"image_name": "image"},
    "VisibleBboxSelector": {
        "bboxes_field_name": "b",
        "resulting_mask_field_path": "m",
        "image_hw": [4, 5],
        "depths_field_name": "d",
        "minimum_bbox_size": 2,
    },
}
SETTINGS = StepSettings(
    processing_steps,
    GOOD,
    whole_numbers={"num_points", "num_categories", "rotation_axis"},
    numbers={
        "fill_value",
        "flip_prob",
        "flip_prob_x",
        "flip_prob_y",
        "hw_decoder_load",
        "max_radius",
        "mean",
        "min_fraction_area_clipping",
        "min_radius",
        "minimum_bbox_size",
        "prob",
        "radius_scaling_factor",
        "radius_to_sigma_factor",
        "std_dev",
        *(name for name in DISTORTION if name.startswith("prob_")),
    },
    ranges={
        "angle_range",
        "area_range",
        "bottom_crop_range",
        "crop_x_range",
        "ratio_range",
        "rotation_range",
        "scale_range",
        "scaling_range",
        "tile_range",
        *(name for name in DISTORTION if name.startswith("min_max_")),
    },
    lists_of_whole_numbers={
        "field_dims_to_process",
        "fields_to_process_num_dims",
        "heatmap_hw",
        "output_hw",
        "tile_size_to_pad_to",
    },
    lists={
        "image_hw",
        "maximum_point",
        "min_object_size",
        "minimum_point",
        "point_range",
        "translation_max_abs",
    },
    takes_nan={("PointsPadder", "fill_value"), ("PaddingToUniform", "fill_value")},
)


def test_no_step_is_left_out() -> None:
    no_steps = ("ImageUse", "FieldUse", "ArrayStep", "GroupToApplyToSelectedStepBase")
    no_steps += ("PipelineStepBase", "for_each")
    of_other_packages = ("AlbumentationsStep", "TorchvisionStep")  # see test_image_library_steps.py
    SETTINGS.assert_all_are_known(*no_steps, *of_other_packages)


OWN = [
    "BoxAreaFilter",
    "GridMasker",
    "HorizontalFlipper",
    "ImageResizeCropFlipper",
    "ImageResizer",
    "LambdaStep",
    "MapStep",
    "PointCloudRangeFilter",
    "PointsPadder",
]


@pytest.mark.parametrize("step", OWN)
def test_own_steps_have_one_vocabulary(step: str) -> None:
    SETTINGS.assert_vocabulary(step)


@of_each_step(SETTINGS)
def test_values(check: Callable[[str], None], step: str) -> None:
    check(step)


@pytest.mark.parametrize(
    ("step", "wrong", "meant"),
    [
        ("ImageResizer", "box_name", "box_names"),
        ("GridMasker", "probs", "prob"),
        ("ImageDecoder", "bgr", "as_bgr"),
    ],
)
def test_an_unknown_argument_is_told_with_a_similar_one(step: str, wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"`{wrong}` is not an argument of {step}. Did you mean '{meant}'"):
        SETTINGS.made(step, **{wrong: 1})


def test_settings_are_kept_as_plain_numbers() -> None:
    assert "num_points=3" in repr(SETTINGS.made("PointsPadder", num_points=np.int64(3)))
