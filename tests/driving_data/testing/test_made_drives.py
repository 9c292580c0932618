"""Made drives are opened by the providers of their layouts, and keep the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import (
    ArgoverseProvider,
    ArrowLogProvider,
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
from accvlab.driving_data.testing import made_drive

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


@pytest.mark.parametrize("layout", OPENED)
def test_each_layout_is_opened(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "cache"))
    count, make = OPENED[layout]
    root = made_drive(tmp_path / "drive", layout)
    provider = make(root)
    assert len(provider) == count
    check_provider(provider, num_workers=0)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match=r"`layout` must be one of 'index', 'folders', 'nuscenes', .*Did you mean 'nuscenes'"
    ):
        made_drive(tmp_path, "nuscene")
    assert list(tmp_path.iterdir()) == []
