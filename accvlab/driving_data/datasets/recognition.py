# SPDX-License-Identifier: Apache-2.0
"""Which data set a folder holds, by the files that its makers have put there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from accvlab.dali_pipeline_framework.errors import SettingError

from .driving.driving_provider import DrivingProvider
from .navsim.logs import CAMERAS
from .navsim.navsim_provider import NavsimSettings
from .navsim.scene_filter import SceneFilter

_Open = Callable[..., DrivingProvider]

_NAVSIM: Final = "navsim_logs/*/[!.]*.pkl"


def _of_nuscenes(provider: Any, root: Path, **fields: Any) -> DrivingProvider:
    versions = [path.parent.name for path in sorted(root.glob("*/sample_data.json"))]
    if len(versions) > 1:
        problem = f"The folder {str(root)!r} has several versions of nuScenes ({', '.join(versions)})"
        advice = f"Name a function that returns NuScenesProvider({str(root)!r}, {versions[0]!r})."
        raise SettingError(f"{problem}. {advice}")
    found: DrivingProvider = provider(root, versions[0], **fields)
    return found


def _of_navsim(provider: Any, root: Path, **fields: Any) -> DrivingProvider:
    splits = sorted({path.parent.name for path in root.glob(_NAVSIM)})
    if len(splits) > 1:
        problem = f"The folder {str(root)!r} has several splits of NAVSIM ({', '.join(splits)})"
        raise SettingError(
            f"{problem}. Name a function that returns NavsimProvider({str(root)!r}, {splits[0]!r})."
        )
    known = NavsimSettings.__annotations__
    settings = {name: value for name, value in fields.items() if name in known}
    folders = {path.name for path in (root / "sensor_blobs" / splits[0]).glob("*/*")}
    current = [SceneFilter().num_history_frames - 1]
    sensors = {camera: current for camera in CAMERAS if camera in folders}  # of parts of it, some
    found: DrivingProvider = provider(root, splits[0], sensors=sensors or None, **settings)
    return found


def _of_physical_ai(provider: Any, root: Path, **fields: Any) -> DrivingProvider:
    return _of_root(provider, root, missing="drop", **fields)  # a log line counts what was left out


def _of_root(provider: Any, root: Path, **fields: Any) -> DrivingProvider:
    found: DrivingProvider = provider(root, **fields)
    return found


def _of_lerobot(provider: Any, root: Path, **_: Any) -> DrivingProvider:
    return _of_root(provider, root)  # its fields are those of the data set


# A file that only this data set has, the class and its module, and how it is made.
KINDS: Final[tuple[tuple[str, str, str, _Open], ...]] = (
    ("*/sample_data.json", "nuscenes.nuscenes_provider", "NuScenesProvider", _of_nuscenes),
    ("meta/info.json", "lerobot.lerobot_provider", "LeRobotProvider", _of_lerobot),
    ("city_SE3_egovehicle.feather", "argoverse", "ArgoverseProvider", _of_root),
    ("*/city_SE3_egovehicle.feather", "argoverse", "ArgoverseProvider", _of_root),
    ("*/*/city_SE3_egovehicle.feather", "argoverse", "ArgoverseProvider", _of_root),
    ("sequences/*/calib.txt", "kitti", "KittiOdometryProvider", _of_root),
    ("calib/[!.]*.txt", "kitti", "KittiTrackingProvider", _of_root),
    ("*.arrow", "arrow_logs", "ArrowLogProvider", _of_root),
    ("*/*.arrow", "arrow_logs", "ArrowLogProvider", _of_root),
    ("clip_index.parquet", "physical_ai.physical_ai_provider", "PhysicalAiProvider", _of_physical_ai),
    ("*/*/*.arrow", "arrow_logs", "ArrowLogProvider", _of_root),
    (_NAVSIM, "navsim.navsim_provider", "NavsimProvider", _of_navsim),
)


def provider_of_folder(root: Path, **fields: Any) -> DrivingProvider:
    """Open the data set in a folder.

    Args:
        root: The folder that the provider would be given.
        **fields: Settings of the fields; the defaults of the provider for those that are left out.

    Raises:
        SettingError: It is not that of a data set that is known here, or holds several.
        FileError: A file of the data set cannot be read.
    """
    for pattern, module, name, make in KINDS:
        if next(root.glob(pattern), None) is not None:
            return make(getattr(importlib.import_module(f"{__package__}.{module}"), name), root, **fields)
    known = ", ".join(dict.fromkeys(name.removesuffix("Provider") for _, _, name, _ in KINDS))
    raise SettingError(
        f"The folder {str(root)!r} is not recognised as a data set ({known}). Give the folder that its provider "
        f"takes, or a function that returns the provider, as module:function or file.py:function."
    )
