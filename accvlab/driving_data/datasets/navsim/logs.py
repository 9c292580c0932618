# SPDX-License-Identifier: Apache-2.0
"""Logs of NAVSIM: pickles of frames, two per second, as an index. They are checked, and nothing in them is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import did_you_mean, elements, listed
from accvlab.dali_pipeline_framework.errors import FileError, SettingError

from ..driving import poses
from ..driving.array_types import Array, Float64, Int64
from ..driving.driving_index import DrivingIndex
from ..driving.poses import require_ascending
from ..driving.requested_parts import RequestedParts
from ..driving.scene_parts import Scene, SceneImages, SceneRecords, index_of_scenes
from ..infos.info_files import no_garbage_collected, plain_pickle
from ..infos.info_rows import Rows

CAMERAS = ("CAM_F0", "CAM_L0", "CAM_L1", "CAM_L2", "CAM_R0", "CAM_R1", "CAM_R2", "CAM_B0")
"""Cameras, in the order of the published code."""

CATEGORIES = ("vehicle", "pedestrian", "bicycle", "traffic_cone", "barrier", "czone_sign", "generic_object")
"""Categories of boxes; others that a log has come after them."""

POINT_COLUMNS = ("x", "y", "z", "intensity", "ring", "lidar_info")
_ADVICE = "Download the logs that the scripts of NAVSIM download, those of OpenScene 1.1"


@attrs.frozen(eq=False, kw_only=True)
class Log:
    """Columns of one log of n frames, that `Scene` has no place for.

    Attributes:
        scene: The others.
        motion: Velocity and acceleration, ``(n, 4)``: see `FrameColumns`.
        driving_command: ``(n, 4)``.
        has_route: ``(n,)``.
        distortion: Of each camera, ``(n, 5)``.
        map_name: Name of its map; empty where the log does not say it.
    """

    scene: Scene
    motion: Float64
    driving_command: Int64
    has_route: Array
    distortion: Mapping[str, Float64]
    map_name: str


def log_files(folder: Path, names: Sequence[str] | None) -> list[Path]:
    """Find the pickles of logs in a folder, by name.

    Raises:
        FileError: There are none.
        SettingError: There is none of some name.
    """
    found = {path.stem: path for path in sorted(folder.glob("[!.]*.pkl"))}
    if not found:
        raise FileError(
            f"There are no logs (.pkl) in {str(folder)!r}. `root` must have the folders `navsim_logs` and "
            f"`sensor_blobs`, as the download of NAVSIM leaves them, and `split` be a folder in them."
        )
    if names is not None and not names:
        raise SettingError("`log_names` must name at least one log, or be None for all, got an empty list.")
    missing = [name for name in names or () if name not in found]
    if missing:
        hint = did_you_mean(missing[0], list(found))
        raise SettingError(
            f"`log_names` must be logs of {str(folder)!r}, {len(missing)} of {len(names or ())} are not: "
            f"{listed(map(repr, missing), 5)}.{hint} There are {len(found)} logs. Download the rest, or leave the "
            f"names out."
        )
    return [*found.values()] if names is None else [found[name] for name in sorted({*names})]


def make_index(paths: Sequence[Path], parts: RequestedParts) -> DrivingIndex:
    """Read logs and make their index.

    Raises:
        FileError: One cannot be read, or something in it is missing or wrong.
    """
    logs = [_read(path, parts) for path in paths]
    names = {name for log in logs if log.scene.boxes for name in np.unique(log.scene.boxes["category"]).tolist()}
    index = index_of_scenes(
        [log.scene for log in logs],
        base="lidar",
        camera_names=CAMERAS,
        categories=[*CATEGORIES, *sorted(names.difference(CATEGORIES))],
        point_columns=POINT_COLUMNS,
        origin={
            "format": "NAVSIM",
            "folder": str(paths[0].parent),
            "logs": [path.stem for path in paths],
            "maps": [log.map_name for log in logs],
        },
    )
    frames = attrs.evolve(
        index.frames,
        **{name: np.concatenate([getattr(log, name) for log in logs]) for name in ("motion", "driving_command")},
        has_route=np.concatenate([log.has_route for log in logs]),
    )
    distortion = np.concatenate(
        [
            np.stack([log.distortion.get(name, np.zeros((len(log.scene.time), 5))) for name in CAMERAS], axis=1)
            for log in logs
        ]
    )
    cameras = index.cameras and attrs.evolve(index.cameras, distortion=distortion)
    return attrs.evolve(index, frames=frames, cameras=cameras)


@no_garbage_collected()
def _read(path: Path, parts: RequestedParts) -> Log:
    with plain_pickle(path) as stored:
        if not isinstance(stored, list) or not stored:
            kind = "an empty list" if stored == [] else f"a {type(stored).__name__}"
            raise FileError(f"The log {str(path)!r} must be a list of frames, got {kind}. {_ADVICE}.")

        def place(number: int) -> str:
            token = stored[number].get("token") if isinstance(stored[number], dict) else None
            return f"The frame {number} (token {token!r}) of {str(path)!r}"

        try:
            return _log(path, Rows.of(stored, place), parts)
        except FileError as error:
            raise FileError(f"{error} {_ADVICE}.") from error


def _log(path: Path, frames: Rows, parts: RequestedParts) -> Log:
    time = frames.array("timestamp") / 1e6
    require_ascending(time, f"'timestamp' of {str(path)!r}", strictly=True)
    world_from_ego, ego_from_lidar = (
        frames.poses(name, f"'{name}_rotation' with '{name}_translation'") for name in ("ego2global", "lidar2ego")
    )
    if np.abs(ego_from_lidar - ego_from_lidar[0]).max() > 1e-9:
        raise FileError(f"'lidar2ego_rotation' and '_translation' of {str(path)!r} must be those of all frames.")
    has_route = parts.read("has_route", lambda: [len(ids) > 0 for ids in _lists(frames, "roadblock_ids")])
    commands = frames.array("driving_command", 4)
    is_unknown = np.asarray(~np.isfinite(commands).all(axis=1))
    frames.refuse(is_unknown, "['driving_command'] must be finite", commands.tolist())
    images, distortion = _images(frames, time, ego_from_lidar[0], parts)
    world_from_lidar = poses.joined(world_from_ego, ego_from_lidar)
    return Log(
        scene=Scene(
            name=path.stem,
            token=[str(token) for token in frames.need("token")],
            time=time,
            world_from_ego=world_from_ego,
            ego_from_base=ego_from_lidar[0],
            images=images,
            lidar=parts.read("lidar", lambda: _records(frames, time, world_from_lidar)),
            boxes=parts.read("boxes", lambda: _boxes(frames)),
        ),
        motion=frames.array("ego_dynamic_state", 4),
        driving_command=commands.astype(np.int64),
        has_route=np.ones(len(frames), bool) if has_route is None else np.array(has_route),
        distortion=distortion,
        map_name=str(frames.find("map_location")[0] or ""),
    )


def _records(frames: Rows, time: Float64, world_from_lidar: Float64) -> SceneRecords:
    numbers = np.arange(len(frames))
    return SceneRecords(
        file=[str(name) for name in frames.need("lidar_path")],
        time=time,
        world_from_lidar=world_from_lidar,
        of_frame=numbers,
        num_before=numbers,
    )


def _lists(rows: Rows, name: str) -> list[list[Any]]:
    values = rows.need(name)
    found = [elements(value) for value in values]
    rows.refuse(np.array([one is None for one in found]), f"[{name!r}] must be a list", values)
    return [one or [] for one in found]


def _images(
    frames: Rows, time: Float64, ego_from_lidar: Float64, parts: RequestedParts
) -> tuple[dict[str, SceneImages], dict[str, Float64]]:
    """Images of the cameras, and their distortion."""
    images, distortion = {}, {}
    for name in CAMERAS:
        with parts.reading(f"cameras/{name}"):
            cameras = frames.dicts("cams").dicts(name)
            lidar_from_camera = cameras.poses("sensor2lidar", f"'sensor2lidar_rotation' of {name}")
            of_lens = cameras.array("distortion", 5)
            images[name] = SceneImages(
                frames=np.arange(len(frames)),
                file=[str(path) for path in cameras.need("data_path")],
                time=time,
                intrinsics=cameras.array("cam_intrinsic", 3, 3),
                camera_from_base=poses.inverse(lidar_from_camera),
                ego_from_camera=poses.joined(ego_from_lidar, lidar_from_camera),
            )
            distortion[name] = of_lens
    return images, distortion


def _boxes(frames: Rows) -> dict[str, Array]:
    annotations = frames.dicts("anns")
    box, counts = annotations.lists("gt_boxes", annotations.need("gt_boxes"), 7)
    names = {}
    for key in ("gt_names", "track_tokens"):
        values = _lists(annotations, key)
        is_off = np.array([len(one) for one in values]) != counts
        annotations.refuse(is_off, f"[{key!r}] must have as many elements as 'gt_boxes'", values)
        names[key] = np.array([str(value) for value in chain.from_iterable(values)], np.str_)
    return {
        "frame": np.repeat(np.arange(len(counts)), counts),
        "center": box[:, :3],
        "size": box[:, 3:6],
        "rotation": poses.quaternion_of_yaw(box[:, 6]),
        "velocity": annotations.joined("gt_velocity_3d", annotations.need("gt_velocity_3d"), counts, 3),
        "category": names["gt_names"],
        "instance": np.unique(names["track_tokens"], return_inverse=True)[1].reshape(-1),
    }
