"""What selects by names or numbers, and is no list of them, is refused by the argument's name."""

from functools import partial

import numpy as np
import pytest
from support.laws import spread

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets import (
    ArgoverseProvider,
    ArrowLogProvider,
    DrivingFields,
    DrivingProvider,
    InfosProvider,
    KittiTrackingProvider,
    LeRobotProvider,
    Moments,
    NavsimProvider,
    NuScenesProvider,
    PhysicalAiProvider,
    SceneFilter,
)
from accvlab.driving_data.recipes import DETECTION_2D, BEVFormerQueues, SparseDriveSettings
from accvlab.driving_data.testing import made_drive


class Broken:
    """What fails when it is looked at."""

    def __iter__(self):
        raise RuntimeError("broken")

    def __repr__(self):
        return "Broken()"


OPEN = {
    "index": lambda root, **given: DrivingProvider(root / "index", root, **given),
    "nuscenes": lambda root, **given: NuScenesProvider(root, "v1.0-mini", **given),
    "infos": lambda root, **given: InfosProvider(
        root / "infos.pkl", root, boxes_convention="w,l,h,-yaw-pi/2", **given
    ),
    "argoverse": ArgoverseProvider,
    "kitti": lambda root, **given: KittiTrackingProvider(root / "training", **given),
    "py123d": lambda root, **given: ArrowLogProvider(given.pop("logs", root / "logs"), **given),
    "physical_ai": PhysicalAiProvider,
    "lerobot": LeRobotProvider,
    "navsim": lambda root, **given: NavsimProvider(root, "trainval", **given),
}
OF_FRAMES = ("cameras", "scenes", "classes")
ARGUMENTS = {
    **dict.fromkeys(("index", "infos", "argoverse", "kitti"), OF_FRAMES),
    "nuscenes": (*OF_FRAMES, "split", "frames"),
    "py123d": (*OF_FRAMES, "logs", "lidar_sensor", "label_names"),
    "physical_ai": (*OF_FRAMES, "chunks", "reference_camera"),
    "lerobot": ("episodes", "fields"),
    "navsim": ("classes", "sensors"),
}
VALUES = (5, b"ab", {"a": 1}, [["a", "b"]], [np.array([1, 2])], np.array([["a", "b"]]), np.array("a"), Broken())


def assert_refused(make, name, value):
    with pytest.raises(
        SettingError, match=rf"(?s)`{name}(\[.*\])?` (must be .*, got|(is|names) .*, which)|- {name}: "
    ):
        make(**{name: value})


@spread("layout", OPEN, 4)
def test_providers_refuse_what_is_no_list(layout, tmp_path):
    root = made_drive(tmp_path / "drive", layout)
    for name in ARGUMENTS[layout]:
        for value in VALUES:
            if not (name == "logs" and isinstance(value, dict)):  # several folders
                assert_refused(lambda **given: OPEN[layout](root, **given), name, value)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (DrivingFields, ("cameras", "classes", "image_times", "ego_history", "ego_future")),
        (SceneFilter, ("log_names", "tokens")),
        (Moments, ("at",)),
        (SparseDriveSettings, ("classes", "depth_strides")),
    ],
)
def test_settings_refuse_what_is_no_list(make, names):
    for name in names:
        for value in VALUES:
            if not (make is SceneFilter and isinstance(value, dict)):
                assert_refused(make, name, value)


def test_recipes_refuse_extra_fields_that_are_no_list(tmp_path):
    root = made_drive(tmp_path)
    provider = DrivingProvider(root / "index", root, boxes_2d=True, classes=["car"])
    queued = DrivingProvider(root / "index", root, boxes=False, can_bus=True)
    for value in (*VALUES, None, "token"):
        for method in (DETECTION_2D.steps, DETECTION_2D.format, DETECTION_2D.loader):
            assert_refused(partial(method, provider, is_training=False), "extra_fields", value)
        assert_refused(partial(BEVFormerQueues, queued, is_training=False), "extra_fields", value)


def test_names_may_come_in_an_array(tmp_path):
    root = made_drive(tmp_path)
    provider = DrivingProvider(root / "index", root, cameras=np.array(["REAR"]), scenes=np.array(["road"]))
    assert (provider.camera_names, provider.scene_names) == (("REAR",), ("road",))
