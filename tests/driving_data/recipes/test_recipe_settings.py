"""Settings of recipes: what is wrong is refused when they are made, and every setting has a check."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from support.refusals import assert_refused

from accvlab.driving_data import recipes
from accvlab.driving_data.recipes import (
    AlpamayoSettings,
    BEVFormerSettings,
    BEVFusionSettings,
    Detection2DSettings,
    EgoStatusSettings,
    ImageAugmentation,
    RasterClass,
    SparseDriveSettings,
    StreamPETRSettings,
    TransFuserSettings,
)
from accvlab.driving_data.recipes.recipe_parts import DetectorSettings

SETTINGS: dict[str, Any] = {name: getattr(recipes, name) for name in recipes.__all__ if name.endswith("Settings")}
OF_DETECTORS = [name for name, settings in SETTINGS.items() if issubclass(settings, DetectorSettings)]
DEGREES = (-22.5, 22.5)
RADIANS = "must be two numbers, -6.28319 <= least <= greatest <= 6.28319, got (-22.5, 22.5)"
TURNED = ImageAugmentation(rotation_range_deg=(-1, 1))
CELLS = "`range_m` times `cells_per_meter` must be a whole number of cells, got 10.1 times 4."
KEY = "The `key` of a draw must be one of 'sample', "
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (ImageAugmentation, {"scale_range": (0, 1)}, "`scale_range`"),
    (ImageAugmentation, {"flip_prob": 2}, "`flip_prob`"),
    (StreamPETRSettings, {"bev_rotation_range": DEGREES}, f"`bev_rotation_range` {RADIANS}"),
    (StreamPETRSettings, {"bev_scale_range": (0, 1)}, "`bev_scale_range`"),
    (StreamPETRSettings, {"classes": ("car", "car")}, "`classes` may name a class once only, got several times"),
    (StreamPETRSettings, {"classes": ("car", "wheel")}, "`image_classes` must have all `classes`, it lacks wheel"),
    (StreamPETRSettings, {"key": "scene"}, KEY),
    (StreamPETRSettings, {"mean": (1, 2)}, "`mean` must be 3 numbers, or one for all channels, got (1, 2)"),
    (StreamPETRSettings, {"std_dev": (58, 0, 57)}, "`std_dev` must be above 0, got (58, 0, 57)"),
    (StreamPETRSettings, {"num_random_frames": -1}, "`num_random_frames` must be a whole number of at least 0"),
    (StreamPETRSettings, {"num_random_frames": 1}, "without `queue_length` there are none, got 1."),
    (StreamPETRSettings, {"output_hw": 7}, "`output_hw` must be [height, width] of at least 1, got 7"),
    (StreamPETRSettings, {"split": 0}, "`split` must be a whole number of at least 1, got 0"),
    (StreamPETRSettings, {"split": "each"}, "`split` must be one of 'all', got 'each'"),
    (SparseDriveSettings, {"circle_range": 0}, "`circle_range`"),
    (SparseDriveSettings, {"classes": "car"}, "`classes` must be a list of names, got one: write ['car']"),
    (SparseDriveSettings, {"classes": {"car"}}, "`classes` must be a list of names, or a mapping of them, got"),
    (SparseDriveSettings, {"classes": ()}, "`classes` must be a list of names, got ()"),
    (SparseDriveSettings, {"depth_strides": (0,)}, "`depth_strides`"),
    (BEVFormerSettings, {"box_layout": "w,l,h,yaw"}, "`box_layout` must be one of"),
    (BEVFormerSettings, {"point_cloud_range": [1, 2]}, "`point_cloud_range` must be"),
    (BEVFusionSettings, {"age_column": 2}, "`age_column` must be a whole number of at least 3, got 2"),
    (BEVFusionSettings, {"num_sweeps": -1}, "`num_sweeps` must be"),
    (Detection2DSettings, {"stride": 5}, "`output_hw` must be multiples of `stride` 5, got [256, 704]"),
    (Detection2DSettings, {"images": TURNED}, "no rotation and no `crop_x_range`"),
    (AlpamayoSettings, {"camera_numbers": 3}, "`camera_numbers` must be of the class Mapping, got 3"),
    (AlpamayoSettings, {"image_times": ()}, "`image_times` must be a list of seconds, ...at least one, got ()"),
    (EgoStatusSettings, {"num_poses": 0}, "`num_poses` must be a whole number of at least 1, got 0"),
    (RasterClass, {"kind": "area", "names": ["LANE"]}, "`kind` must be one of 'polygon', 'line', 'box', got"),
    (RasterClass, {"kind": "line", "names": "LANE"}, "`names` must be a list of names, got 'LANE'"),
    (TransFuserSettings, {"crops": ["CAM_F0"]}, "`crops` must be of the class Mapping, got ['CAM_F0']"),
    (TransFuserSettings, {"maps": 5}, "`maps` must be of the class MapSource, got 5"),
    (TransFuserSettings, {"raster_classes": ()}, "`raster_classes` must be a list of `RasterClass`, at least one"),
    (TransFuserSettings, {"range_m": 10.1}, CELLS),
]


@pytest.mark.parametrize(("make", "given", "words"), REFUSED)
def test_what_is_refused(make: Any, given: dict[str, Any], words: str) -> None:
    assert_refused(lambda: make(**given), words)


def test_limits_are_taken() -> None:
    StreamPETRSettings(bev_rotation_range=(-6.28, 6.28), split="all", queue_length=1, key=("scene",))
    SparseDriveSettings(split=-1, depth_strides=())


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_a_check(name: str) -> None:
    for field in attrs.fields(SETTINGS[name]):
        assert field.validator is not None or field.converter is not None, field.name


@pytest.mark.parametrize("name", OF_DETECTORS)
def test_means_and_deviations_are_for_images_in_0_255(name: str) -> None:
    of_fractions = {"mean": (0.485, 0.456, 0.406), "std_dev": (0.229, 0.224, 0.225)}
    message = (
        f"{name}: `mean` 0.485 and `std_dev` 0.229 are for images with values 0..1, but the values are 0..255. "
        "Multiply both by 255: mean=[123.675, 116.28, 103.53], std_dev=[58.395, 57.12, 57.375]."
    )
    assert str(assert_refused(lambda: SETTINGS[name](**of_fractions), name)) == message
