"""Made drives are opened by the providers of their layouts, and keep the contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import index_of
from driving_support.kinds_of_drives import NUSCENES, make_drive
from support.laws import spread
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import (
    ArgoverseProvider,
    ArrowLogProvider,
    CameraImage,
    DrivingFrame,
    DrivingProvider,
    InfosProvider,
    KittiTrackingProvider,
    LeRobotProvider,
    Moments,
    NavsimProvider,
    NuScenesProvider,
    PhysicalAiProvider,
    SceneFilter,
    index_of_frames,
)
from accvlab.driving_data.datasets.driving.poses import yaw_of_quaternion
from accvlab.driving_data.testing import made_drive
from accvlab.driving_data.testing.layouts import with_lidar

OPENED: dict[str, tuple[int, Callable[[Path], Any]]] = {
    "index": (6, lambda root: DrivingProvider(root / "index", root, boxes_2d=True, can_bus=True, lidar=True)),
    "nuscenes": (8, lambda root: NuScenesProvider(root, "v1.0-mini", lidar=True)),
    "infos": (4, lambda root: InfosProvider(root / "infos.pkl", root, boxes_convention="w,l,h,-yaw-pi/2")),
    "navsim": (
        3,
        lambda root: NavsimProvider(
            root, "trainval", SceneFilter.from_yaml(root / "navtrain.yaml"), sensors={"CAM_F0": [3]}
        ),
    ),
    "argoverse": (2, lambda root: ArgoverseProvider(root / "train")),
    "kitti": (2, lambda root: KittiTrackingProvider(root / "training", cameras=["image_02"])),
    "py123d": (3, lambda root: ArrowLogProvider(root / "logs/made_train")),
    "physical_ai": (2, lambda root: PhysicalAiProvider(root, moments=Moments(at=[2.0]))),
    "lerobot": (45, LeRobotProvider),
}


@spread("layout", OPENED, 3)
def test_each_layout_is_opened(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "cache"))
    count, make = OPENED[layout]
    root = made_drive(tmp_path / "drive", layout)
    provider = make(root)
    assert len(provider) == count
    check_provider(provider, num_workers=0)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    words = "`layout` must be one of 'index', 'folders', 'nuscenes', ...Did you mean 'nuscenes'"
    assert_refused(lambda: made_drive(tmp_path, "nuscene"), words)
    assert list(tmp_path.iterdir()) == []


READ: dict[str, Callable[[Path], DrivingProvider]] = {
    "index": lambda root: DrivingProvider(root / "index", root),
    "nuscenes": lambda root: NuScenesProvider(root, "v1.0-mini"),
    "infos": lambda root: InfosProvider(root / "infos.pkl", root, boxes_convention="w,l,h,-yaw-pi/2"),
    "navsim": lambda root: NavsimProvider(
        root, "trainval", SceneFilter(num_history_frames=1, num_future_frames=0, has_route=False), sensors={}
    ),
}


@pytest.mark.parametrize("layout", READ)
def test_a_drive_of_ones_own_is_read_as_it_was(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "cache"))
    names = [f"CAM_{name}" for name in ("F0", "L0", "L1", "L2", "R0", "R1", "R2", "B0")]
    cameras = {
        name: (0.5 * number, 0, 1, number / 9, 1.5, 64, 48, 70 + number) for number, name in enumerate(names)
    }
    kind = attrs.evolve(NUSCENES, cameras=cameras if layout == "navsim" else NUSCENES.cameras)
    drive = with_lidar(make_drive(tmp_path, kind), "LIDAR/{number}.pcd.bin")
    given = np.unique(drive.cameras.file) if drive.cameras else []
    files: dict[str, Any] = {name.decode(): (tmp_path / name.decode()).read_bytes() for name in given}
    files |= {f"LIDAR/{number}.pcd.bin": np.full((3, 5), number) for number in range(24)}
    found = index_of(READ[layout](made_drive(tmp_path / "made", layout, drive, files)))
    for table, columns in {
        "frames": ("time", "token", "world_from_ego", "ego_from_base"),
        "cameras": ("intrinsics", "camera_from_base", "ego_from_camera", "time"),
        "boxes": ("first", "center", "size"),
    }.items():
        for column in columns:
            one, other = (getattr(getattr(index, table), column) for index in (found, drive))
            if column == "token":
                assert one.tolist() == other.tolist()
            else:
                np.testing.assert_allclose(one, other, atol=2e-5, err_msg=column)
    expected, yaw = (yaw_of_quaternion(index.boxes.rotation) for index in (drive, found))  # type: ignore[union-attr]
    np.testing.assert_allclose(np.exp(1j * yaw), np.exp(1j * expected), atol=1e-6)


def test_drives_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    frame = DrivingFrame(scene="a", time=0.0, cameras={"F": CameraImage(file="f.jpg")}, boxes=[])
    drive = index_of_frames([frame])
    wrong: Any = 5
    for layout, given, words in (
        ("kitti", drive, "`drive` must be None with the layout 'kitti'; it may be given with inde"),
        ("folders", drive, "lacks 'f.jpg'"),
        ("navsim", drive, "with a lidar for this layout"),
        ("nuscenes", wrong, "with cameras and boxes, got 5"),
        ("nuscenes", attrs.evolve(drive, boxes=None), "with cameras and boxes"),
    ):
        assert_refused(partial(made_drive, tmp_path, layout, given), words)
