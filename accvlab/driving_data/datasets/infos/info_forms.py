# SPDX-License-Identifier: Apache-2.0
"""The two forms of info pickles: ``infos`` and ``metadata``, or ``data_list`` and ``metainfo``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError

from .info_rows import Rows

# In the order of the converters' own labels, which is not that of the classes of every model.
CATEGORIES = (
    *("car", "truck", "trailer", "bus", "construction_vehicle"),
    *("bicycle", "motorcycle", "pedestrian", "traffic_cone", "barrier"),
)

# The present spelling, and those of releases before.
_CATEGORY_KEYS = ("categories", "classes", "CLASSES")


@attrs.frozen(eq=False)
class InfoPickle:
    """The frames of a pickle, as they are stored.

    Attributes:
        path: The pickle.
        form: ``"infos"`` or ``"data_list"``.
        frames: The frames.
        tokens: Name of each.
        categories: Names of the categories, by label.
        prefixes: Folders of the files of sensors.
    """

    path: str
    form: str
    frames: Rows
    tokens: Sequence[str]
    categories: Sequence[str]
    prefixes: Mapping[str, str]


def info_pickle(content: Any, path: str) -> InfoPickle:
    """Recognise the content of a pickle.

    Raises:
        FileError: It is no info pickle, or its frames are no dicts.
    """
    _refuse_other_kinds(content, path)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = {"infos": content}
    if not isinstance(content, dict) or not ("infos" in content or "data_list" in content):
        found = f"keys {listed(map(repr, content))}" if isinstance(content, dict) else shown(content)
        raise FileError(
            f"The pickle {path!r} must be a dict with the key 'infos' or 'data_list', as the converters of "
            f"mmdetection3d and of projects built on it write it; it has {found}."
        )
    form = "infos" if "infos" in content else "data_list"
    infos = content[form]
    if not isinstance(infos, list | tuple) or not infos:
        raise FileError(f"The pickle {path!r} must have frames in {form!r}, got {shown(infos)}.")
    names = _category_names(content.get("metainfo"), path) if form == "data_list" else CATEGORIES
    stored = Rows.of(infos, lambda row: f"{path!r}: {form}[{row}]")
    tokens = [str(row if given is None else given) for row, given in enumerate(stored.find("token", "sample_idx"))]
    frames = Rows(infos, lambda row: f"{path!r}: {form}[{row}] (token {tokens[row]!r})")
    return InfoPickle(path, form, frames, tokens, names, _folder_prefixes(content.get("metainfo")))


_NO_POSES = "which have neither times nor poses of the vehicle"
_OTHERS = {
    "kitti": f"one of KITTI's object detection, {_NO_POSES}: the sequences of KITTI are opened by "
    "`KittiTrackingProvider` and `KittiOdometryProvider`",
    "waymo": "one of Waymo, with its own frames of reference: convert its records by py123d, whose logs "
    "`ArrowLogProvider` opens",
    "dbinfos": "a database of objects for pasting (`dbinfos`), without frames: give the pickle with the frames",
}


def _refuse_other_kinds(content: Any, path: str) -> None:
    """Refuse pickles of other data sets by name."""
    kind, meta = None, content.get("metainfo", content.get("metadata")) if isinstance(content, dict) else None
    frames = content.get("infos", content.get("data_list")) if isinstance(content, dict) else content
    first = frames[0] if isinstance(frames, list | tuple) and frames else None
    values = [meta[key] for key in ("dataset", "DATASET") if key in meta] if isinstance(meta, dict) else []
    stated = str(next(iter(values), "")).lower()
    if "kitti" in stated or "waymo" in stated:
        kind = "kitti" if "kitti" in stated else "waymo"
    elif isinstance(first, dict):
        kind = _kind_of_frame(first)
    elif isinstance(content, dict) and frames is None:
        lists = [value for value in content.values() if isinstance(value, list) and value]
        if lists and all(isinstance(one[0], dict) and "box3d_lidar" in one[0] for one in lists):
            kind = "dbinfos"
    if kind is not None:
        raise FileError(
            f"The pickle {path!r} is {_OTHERS[kind]}. InfosProvider reads pickles of nuScenes, and of others that "
            f"are made as those."
        )


def _kind_of_frame(frame: Mapping[Any, Any]) -> str | None:
    """Recognise a frame of KITTI or Waymo by what only theirs have."""
    parts = [frame, *(frame[key] for key in ("point_cloud", "images") if isinstance(frame.get(key), dict))]
    keys = {key for part in parts for key in part}
    is_old = {"image", "point_cloud"} <= keys and not keys & {"cams", "pts_path"}
    if keys & {"cam_sync_instances", "CAM_SIDE_LEFT"} or (is_old and keys & {"lidar_sequence", "pose"}):
        return "waymo"
    # KITTI has no poses of the vehicle.
    return "kitti" if is_old or "R0_rect" in keys or ("CAM2" in keys and "ego2global" not in keys) else None


def _category_names(metainfo: Any, path: str) -> Sequence[str]:
    """Names of the categories by label, of ``metainfo``."""
    given = metainfo if isinstance(metainfo, dict) else {}
    values = next((given[name] for name in _CATEGORY_KEYS if given.get(name) is not None), None)
    if isinstance(values, dict):
        labels = [int(label) if str(label).isdecimal() else -1 for label in values.values()]
        by_label = dict(zip(labels, map(str, values), strict=True))
        if sorted(by_label) != list(range(len(by_label))) or len(by_label) != len(values):
            rule = f"{path!r}: metainfo['categories'] must number its {len(values)} names from 0"
            raise FileError(f"{rule}, got {shown(values)}.")
        return [by_label[label] for label in range(len(by_label))]
    if isinstance(values, list | tuple | np.ndarray):
        names = [str(name) for name in values]
        if len(set(names)) < len(names):
            raise FileError(f"{path!r}: metainfo must name each category once, got {shown(values)}.")
        return names
    keys = " or ".join(map(repr, _CATEGORY_KEYS))
    raise FileError(
        f"{path!r}: metainfo must have the key {keys}, a dict or list of names, got {shown(metainfo)}."
    )


def _folder_prefixes(metainfo: object) -> dict[str, str]:
    """Folders of the files of sensors, where ``metainfo`` names them."""
    given = metainfo.get("data_prefix") if isinstance(metainfo, dict) else None
    if not isinstance(given, dict):
        return {}
    return {str(name): f"{str(folder).rstrip('/')}/" for name, folder in given.items() if folder}
