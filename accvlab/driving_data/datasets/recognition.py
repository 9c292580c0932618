# SPDX-License-Identifier: Apache-2.0
"""Which data set a folder holds, by the files that its makers have put there."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from accvlab.dali_pipeline_framework.errors import SettingError

from .driving.driving_provider import DrivingProvider
from .navsim.logs import CAMERAS
from .navsim.navsim_provider import NavsimSettings
from .navsim.scene_filter import SceneFilter

_Open = Callable[..., Any]

_NAVSIM: Final = "navsim_logs/*/[!.]*.pkl"
_ARGOVERSE: Final = "city_SE3_egovehicle.feather"


def _only(found: Iterable[str], what: str, root: Path, provider: str) -> str:
    names = sorted({*found})
    if len(names) > 1:
        raise SettingError(
            f"The folder {str(root)!r} has several {what} ({', '.join(names)}). Name a function that returns "
            f"{provider}({str(root)!r}, {names[0]!r})."
        )
    return names[0]


def _of_nuscenes(provider: Any, root: Path, **fields: Any) -> Any:
    found = (path.parent.name for path in root.glob("*/sample_data.json"))
    return provider(root, _only(found, "versions of nuScenes", root, "NuScenesProvider"), **fields)


def _of_navsim(provider: Any, root: Path, **fields: Any) -> Any:
    found = (path.parent.name for path in root.glob(_NAVSIM))
    split = _only(found, "splits of NAVSIM", root, "NavsimProvider")
    settings = {name: value for name, value in fields.items() if name in NavsimSettings.__annotations__}
    folders = {path.name for path in (root / "sensor_blobs" / split).glob("*/*")}
    current = [SceneFilter().num_history_frames - 1]
    sensors = {camera: current for camera in CAMERAS if camera in folders}  # of parts of it, some
    return provider(root, split, sensors=fields.get("sensors", sensors or None), **settings)


def _of_physical_ai(provider: Any, root: Path, **fields: Any) -> Any:
    return provider(root, missing="drop", **fields)  # a log line counts what was left out


def _of_root(provider: Any, root: Path, **fields: Any) -> Any:
    return provider(root, **fields)


def _of_lerobot(provider: Any, root: Path, **_: Any) -> Any:
    return provider(root)  # its fields are those of the data set


# Files that only this data set has, the class and its module, and how it is made. The first found counts.
KINDS: Final[tuple[tuple[str, str, str, _Open], ...]] = (
    ("*/sample_data.json", "nuscenes.nuscenes_provider", "NuScenesProvider", _of_nuscenes),
    ("meta/info.json", "lerobot.lerobot_provider", "LeRobotProvider", _of_lerobot),
    *((f"{depth}{_ARGOVERSE}", "argoverse", "ArgoverseProvider", _of_root) for depth in ("", "*/", "*/*/")),
    ("sequences/*/calib.txt", "kitti", "KittiOdometryProvider", _of_root),
    ("calib/[!.]*.txt", "kitti", "KittiTrackingProvider", _of_root),
    *((f"{depth}*.arrow", "arrow_logs", "ArrowLogProvider", _of_root) for depth in ("", "*/")),
    ("clip_index.parquet", "physical_ai.physical_ai_provider", "PhysicalAiProvider", _of_physical_ai),
    ("*/*/*.arrow", "arrow_logs", "ArrowLogProvider", _of_root),
    (_NAVSIM, "navsim.navsim_provider", "NavsimProvider", _of_navsim),
)


def provider_of_folder(root: Path, **fields: Any) -> DrivingProvider:
    """Open the data set in a folder.

    Args:
        root: The folder that the provider would be given.
        **fields: Settings of the fields; the defaults of the provider for others. ``sensors`` is
            passed to `NavsimProvider` only.

    Raises:
        SettingError: It is not that of a data set that is known here, or holds several.
        FileError: A file of the data set cannot be read.
    """
    for pattern, module, name, make in KINDS:
        if next(root.glob(pattern), None) is not None:
            provider = getattr(importlib.import_module(f"{__package__}.{module}"), name)
            if make is not _of_navsim:
                fields.pop("sensors", None)
            found: DrivingProvider = make(provider, root, **fields)
            return found
    known = ", ".join(dict.fromkeys(name.removesuffix("Provider") for _, _, name, _ in KINDS))
    raise SettingError(
        f"The folder {str(root)!r} is not recognised as a data set ({known}). Give the folder that its provider "
        f"takes, or a function that returns the provider, as module:function or file.py:function."
    )
