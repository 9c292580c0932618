"""Settings of all steps: numbers of NumPy are taken, ``bool`` is no number, and each refusal has its rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.arrays import DT
from support.step_settings import StepSettings, of_each_step

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import TensorSizeAdder
from accvlab.dali_pipeline_framework.sample_data.formats import DECODED_IMAGE

STRETCH, PAD = A.ResizingMode.STRETCH, A.ResizingMode.PAD
INNER = TensorSizeAdder("image", "_hw")
DISTORTION = {
    "min_max_brightness": [-3, 3],
    "min_max_hue": [-9, 9],
    "min_max_contrast": [0.5, 1],
    "min_max_saturation": [0.5, 1],
    **{f"prob_{what}_aug": 0.5 for what in ("brightness", "hue", "contrast", "saturation")},
    "prob_swap_channels": 0.5,
}
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
        **{
            f"data_field_names_{kind}": kind
            for kind in ("points", "velocities", "sizes", "orientation", "ego_to_world", "world_to_ego")
        },
        "data_field_names_proj_matrices_and_extrinsics": "matrices",
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
    processing_steps, GOOD, takes_nan={("PointsPadder", "fill_value"), ("PaddingToUniform", "fill_value")}
)


def test_no_step_is_left_out() -> None:
    of_other_packages = ("AlbumentationsStep", "TorchvisionStep")  # see test_image_library_steps.py
    SETTINGS.assert_all_are_known(*of_other_packages)


@of_each_step(SETTINGS)
def test_values(check: Callable[[str], None], step: str) -> None:
    check(step)


def test_settings_are_kept_as_plain_numbers() -> None:
    assert "num_points=3" in repr(SETTINGS.made("PointsPadder", num_points=np.int64(3)))


def two_results(a: Any, b: Any) -> Any:
    return a, b


# Settings in place of the good ones, and what the error says. What is no number: see `test_values`.
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "AffineTransformer": [
        ({"image_field_names": ()}, "Give `image_field_names` or `image_hw_field_names`"),
        ({"image_field_names": None, "image_hw_field_names": "a", "mask_names": "b"}, "`mask_names` needs"),
        ({"point_field_names": ["a", "image"]}, r"these names are given twice: \['image'\]"),
        ({"output_hw": [4, 0]}, r"`output_hw` must be \[height, width\]"),
        ({"resizing_mode": 0}, "`resizing_mode` must be one of ResizingMode.STRETCH"),
        ({"resizing_mode": PAD, "resizing_anchor": 0}, "`resizing_anchor` must be one of None, "),
        ({"resizing_anchor": A.ResizingAnchor.CENTER}, "must be left out with STRETCH"),
        ({"resizing_mode": PAD}, "must be given with PAD"),
        *(
            ({"transformation_steps": steps}, "`transformation_steps` must be a transformation step or a sequence")
            for steps in ([1], 1)
        ),
        ({"key": "camera", "transformation_steps": [A.Rotation(0.5, 1)]}, "The `key` of a draw must be one of"),
    ],
    "AnnotationElementConditionEval": [
        *(({"condition": condition}, "") for condition in ("r = x)", None)),
        ({"condition": "r = 1 < 2"}, "`condition` needs at least one field, got 'r = 1 < 2'"),
    ],
    "AxesLayoutSetter": [
        ({"names_fields_to_set": []}, r"must be a name .* or a sequence of names, got"),
        ({"layout_to_set": None}, "`layout_to_set` must be a text"),
    ],
    "BEVBBoxesTransformer3D": [
        ({"rotation_axis": None}, "`rotation_axis` must be 0, 1 or 2"),
        ({"rotation_axis": 3}, r"`rotation_axis` must be in \[0, 2\], got 3"),
        ({"rotation_range": [1, -1]}, "`rotation_range` must be two numbers, least <= greatest"),
        ({"scaling_range": [0, 1]}, "`scaling_range` must be two numbers, 0 < least"),
        ({"translation_max_abs": [1, 2]}, "`translation_max_abs` must be three numbers"),
        ({"flip_prob_x": 2}, r"`flip_prob_x` must be in \[0, 1\]"),
        ({"rotation_axis": 0, "flip_prob_y": 0.5}, "cannot be mirrored"),
        ({"data_field_names_ego_to_world": "points"}, r"these names are given twice: \['points'\]"),
    ],
    "BoundingBoxToHeatmapConverter": [
        ({"image_field_name": "image"}, "one of `image_field_name` and `image_hw_field_name`"),
        ({"image_hw_field_name": None}, "one of `image_field_name` and `image_hw_field_name`"),
        ({"num_categories": None}, "need both `categories_in_name` and `num_categories`"),
        ({"num_categories": 0}, "`num_categories` must be a whole number of at least 1"),
        ({"per_category_min_object_sizes": [[1, 1]] * 2}, "not both"),
        *(
            (
                {"min_object_size": None, "per_category_min_object_sizes": sizes},
                "height and width of each category",
            )
            for sizes in ([[1, 1]] * 3, [1, 1])
        ),
        ({"min_object_size": 3}, "`min_object_size` must be a height and a width"),
        ({"heatmap_hw": (0, 4)}, r"`heatmap_hw` must be \[height, width\] in whole pixels of at least 1"),
        ({"min_radius": 0}, "`min_radius` must be a number above 0, got 0"),
        (
            {"min_radius": 3, "max_radius": 2},
            "`max_radius` must be a number of at least 3, got 2. `min_radius` is its limit",
        ),
    ],
    "BoxAreaFilter": [
        ({"area_range": (3, 2)}, r"`area_range` must be two numbers, 0 <= least <= greatest, got \(3, 2\)"),
        ({"box_format": "ltrb"}, "`box_format` must be one of"),
    ],
    "ConditionalElementRemover": [
        ({"field_dims_to_process": [0, 1]}, "same length, got 1, 2 and 1"),
        ({"field_dims_to_process": [1]}, r"Field 'x' has no axis 1: .* \[-n, n\)"),
        ({"field_dims_to_process": [-2]}, "Field 'x' has no axis -2"),
        (
            {
                "field_names_to_process": ["x"] * 2,
                "field_dims_to_process": [0] * 2,
                "fields_to_process_num_dims": [2] * 2,
            },
            "name each field once",
        ),
    ],
    "CoordinateCropper": [
        ({"minimum_point": [0, 0]}, "one number per axis each, got 2 and 1"),
        ({"minimum_point": [2]}, "must be at most"),
        ({"minimum_point": 0, "maximum_point": 1}, "`minimum_point` must be a list of numbers"),
    ],
    "GridMasker": [
        ({"prob": -0.1}, r"`prob` must be in \[0, 1\]"),
        ({"tile_range": (0, 5)}, "`tile_range` must be two numbers, 1 <= least"),
        ({"tile_range": (1.5, 5)}, "`tile_range` must be two whole numbers"),
        ({"ratio_range": (0.5, 1.5)}, "`ratio_range`.* two numbers, 0 <= least <= greatest <= 1"),
    ],
    "HorizontalFlipper": [
        ({"prob": 1.1}, r"`prob` must be in \[0, 1\]"),
        ({"image_names": ()}, "Give `image_names`"),
    ],
    "ImageDecoder": [({"hw_decoder_load": 1.01}, r"`hw_decoder_load` must be in \[0, 1\], got")],
    "ImageMeanStdDevNormalizer": [
        ({"std_dev": [1, 0, 1]}, "Standard deviation must be greater than 0"),
        ({"mean": []}, "`mean` must be a number, or one per channel"),
        ({"mean": [[1, 2], [3, 4]]}, "`mean` must be a number, or one per channel"),
        ({"mean": [1, 2], "std_dev": [1, 2, 3]}, "same number of channels, got 2 and 3"),
        ({"output_type": DT.BOOL}, "`output_type` must be one of .*FLOAT"),
        ({"output_layout": "WHC"}, "`output_layout` must be one of"),
    ],
    "ImageResizeCropFlipper": [
        ({"scale_range": (0, 1)}, "`scale_range` must be two numbers, 0 < least"),
        ({"bottom_crop_range": (0, 1.5)}, "`bottom_crop_range` must be two numbers, 0 <= least <= greatest <= 1"),
        ({"flip_prob": 2}, r"`flip_prob` must be in \[0, 1\]"),
        ({"crop_x_range": (0.5, 1.5)}, "`crop_x_range` must be two numbers, 0 <= least <= greatest <= 1"),
    ],
    "ImageResizer": [
        ({"mode": "fill"}, "`mode` must be one of 'stretch', 'pad', 'crop', got 'fill'"),
        ({"anchor": "left"}, "`anchor` must be one of 'center', 'top_or_left', 'bottom_or_right', got 'left'"),
        ({"image_names": None}, "Give `image_names` or `hw_names`"),
        ({"box_names": "image"}, "given twice"),
        ({"reduced_decoding": True}, "needs `is_encoded=True`"),
    ],
    "ImageToTileSizePadder": [
        ({"tile_size_to_pad_to": tile}, "`tile_size_to_pad_to` must be a whole number of at least 1")
        for tile in (0, (1, 2, 3), 2.5, [[1], [2, 3]])
    ],
    "LambdaStep": [
        ({"function": 3}, "`function` must be callable"),
        *(({"output_types": types}, "at least one name and type") for types in ({}, ["b"], {"b": np.float32})),
        *(({"input_names": names}, "`input_names` must be a name") for names in (1.5, [("a", ())])),
        *(({"output_types": {name: DT.FLOAT}}, "`output_types` must be a name") for name in ((), ("b", 1.5))),
        *(
            ({"output_types": {"image": DT.UINT8}, "output_contents": contents}, "must be a dict of names")
            for contents in ({"other": DECODED_IMAGE}, {"image": "CHW"}, "CHW")
        ),
    ],
    "MapStep": [
        ({"input_names": []}, "at least one, got none"),
        ({"output_types": {}}, "at least one name and type"),
        ({"output_contents": {"b": DECODED_IMAGE}}, "names in `input_names`"),
        ({"function": two_results}, r"must take 1 argument\(s\), which .* does not"),
        ({"function": np.fliplr, "draws": [UniformDraw("gain")]}, "and gain by name, which"),
        ({"function": len, "draws": "gain"}, "`draws` must be a list of draws, got 'gain'"),
        ({"function": len, "draws": [UniformDraw("a")] * 2}, "'a' twice"),
    ],
    "PhotoMetricDistorter": [
        ({"min_max_brightness": [1, -1]}, "`min_max_brightness` must be two numbers, least <= greatest, got"),
        ({"min_max_hue": 3}, "`min_max_hue` must be two numbers"),
        ({"min_max_contrast": [-1, 1]}, "`min_max_contrast` must be two numbers, 0 <= least <= greatest"),
        ({"min_max_saturation": [-1, 1]}, "`min_max_saturation` must be two numbers, 0 <= least <= greatest"),
        ({"prob_hue_aug": 1.5}, r"`prob_hue_aug` must be in \[0, 1\], got 1.5"),
    ],
    "PointsInRangeCheck": [({"minimum_point": [2]}, "must be at most")],
    "PointsPadder": [({"num_points": 0}, "`num_points` must be a whole number of at least 1, got")],
    "TensorSizeAdder": [
        ({"tensor_name": 1}, "must be a text"),
        ({"size_postfix": ""}, "must be a text"),
        ({"store_size_as_type": DT.BOOL}, "`store_size_as_type` must be one of DALIDataType.INT8, "),
    ],
    "UnneededFieldRemover": [
        ({"unneeded_field_names": names}, "`unneeded_field_names` must be") for names in ("a", {"a"}, [1.5])
    ],
    "VideoDecoder": [({"device": "mixed"}, "`device` must be"), ({"colors": "rgb"}, "`colors` must be")],
    "VisibleBboxSelector": [
        ({"image_hw": None}, "Exactly one of"),
        ({"image_field_name": "image"}, "Exactly one of"),
        ({"check_for_bbox_occlusion": False, "check_for_minimum_size": False}, "must be true"),
        ({"minimum_bbox_size": None}, "needs `minimum_bbox_size`"),
        ({"depths_field_name": None}, "needs `depths_field_name`"),
        ({"image_hw": (0, 5)}, "two positive numbers"),
        ({"resulting_mask_field_path": ()}, "must not be empty"),
    ],
    **{
        step: [({"processing_step_to_apply": TensorSizeAdder}, "must be a PipelineStepBase, got")]
        for step in GOOD
        if step.startswith("DataGroup")
    },
}


@pytest.mark.parametrize(
    ("step", "changed", "rule"), [(step, *refused) for step, rows in REFUSED.items() for refused in rows]
)
def test_settings_that_are_refused(step: str, changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(SettingError) as caught:
        SETTINGS.made(step, **changed)
    assert re.search(rule, str(caught.value))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: A.Translation(1.5, [0, 0]), "`prob` must be in [0, 1], got 1.5"),
        (lambda: A.Rotation(1, "a"), "needs finite numbers, got 'a'"),
        (lambda: A.Rotation(1, 5, 4), "Rotation: the minimum must not exceed the maximum, got 5.0 and 4.0"),
        (lambda: A.Translation(1, 3), "needs two numbers, for x and y; got 3"),
        (lambda: A.Translation(1, [0, 1], [1, 0]), "Translation: no minimum may exceed its maximum"),
        (lambda: A.UniformScaling(1, 0), "UniformScaling: a factor must not be 0"),
        (lambda: A.NonUniformScaling(1, [1, 0]), "NonUniformScaling: a factor must not be 0"),
        (lambda: A.Shearing(1, [90, 0]), "between -90 and 90"),
        (lambda: A.ShiftToAlignWithOriginalImageBorder(1, 0), "`border` must be one of"),
        (lambda: A.Selection(1, [0.5], []), "must have the same length, got 1 and 0"),
        (lambda: A.Selection(1, [0.5, 0.4], [[], []]), "sum up to 1, got [0.5, 0.4]"),
        (lambda: A.Selection(1, [1.5, -0.5], [[], []]), "must be at least 0"),
        (lambda: A.Selection(1, [1.0], [3]), "Each of the `options` must be a transformation step"),
    ],
)
def test_settings_of_transformations_that_are_refused(make: Callable[[], Any], rule: str) -> None:
    with pytest.raises(SettingError) as caught:
        make()
    assert rule in str(caught.value)
