# SPDX-License-Identifier: Apache-2.0
"""The index of logs of py123d."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import listed
from ...errors import FileError, SettingError
from ...providers.files.storage import is_url, joined_url
from ..driving import poses
from ..driving.driving_index import (
    BoxColumns,
    CameraColumns,
    DrivingIndex,
    FrameColumns,
    LidarColumns,
    first_column,
    names_column,
)
from .camera_models import intrinsic_matrix
from .label_names import LABEL_NAMES
from .lidar_content import point_columns_of
from .log_files import BOXES, EGO, SYNC, LogFiles, pose_of, static_pose

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


@attrs.frozen(kw_only=True)
class ArrowLogSettings:
    """How an index of logs is made.

    Attributes:
        sensor_roots: Where images lie that are stored as paths: by name of the data set, or "" for all.
        label_names: Names of the labels of classes that py123d does not have, by name of the class.
        lidar_sensor: Name of the lidar; None for the merged one, or else the first.
        most_sweeps: Number of earlier lidar records of each frame at most.
    """

    sensor_roots: Mapping[str, str]
    label_names: Mapping[str, Sequence[str]]
    lidar_sensor: str | None
    most_sweeps: int


def make_index(folders: Sequence[str], settings: ArrowLogSettings) -> DrivingIndex:
    """Make the index of some logs.

    Raises:
        SettingError: Something that a log needs is not set.
        FileError: A file cannot be read, or is not as it should be.
    """
    logs = [LogFiles(folder) for folder in folders]
    names = [_scene_name(log) for log in logs]
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise SettingError(f"Each log must have a name of its own, several are called {listed(repeated)}.")
    frames = FrameColumns(
        scene=names_column(names),
        first_of_scene=first_column([len(log.frame_times) for log in logs]),
        token=names_column([token for log in logs for token in log.frame_tokens]),
        time=_joined([log.frame_times for log in logs], np.int64) / 1e6,
        world_from_ego=np.concatenate([log.ego.at(log.frame_times) for log in logs]),
        ego_from_base=poses.identity(sum(len(log.frame_times) for log in logs)),
        can_bus=_can_bus(logs),
    )
    camera_names = sorted({name for log in logs for name in log.cameras})
    cameras, camera_models = _cameras(logs, camera_names, settings) if camera_names else (None, {})
    lidar, point_columns = _lidar(logs, settings)
    boxes, categories = _boxes(logs, settings)
    return DrivingIndex(
        base="ego",
        frames=frames,
        cameras=cameras,
        lidar=lidar,
        boxes=boxes,
        camera_names=camera_names,
        categories=categories,
        point_columns=point_columns,
        origin={"format": "py123d", "logs": list(folders), "camera_models": camera_models},
    )


def _scene_name(log: LogFiles) -> str:
    metadata = log.metadata(SYNC)
    missing = [name for name in ("dataset", "split", "log_name") if name not in metadata]
    if missing:
        raise FileError(f"The metadata of {log.path(SYNC)!r} must have {listed(missing)}.")
    return f"{metadata['split']}/{metadata['log_name']}"


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)


def _can_bus(logs: Sequence[LogFiles]) -> Float64Array | None:
    """Position, orientation, acceleration, rotation rate, velocity (in the vehicle), heading (radians, degrees).

    None where a log does not have the motion of the vehicle.
    """
    parts = []
    for log in logs:
        if f"{EGO}.dynamic_state_se3" not in log.file(EGO).names:
            return None
        motion = log.lists(EGO, "dynamic_state_se3", 9)
        times = log.times(EGO)
        rows = np.clip(np.searchsorted(times, log.frame_times), 0, len(times) - 1)
        velocity, acceleration, rotation_rate = np.split(motion[rows], 3, axis=1)
        world_from_ego = log.ego.at(log.frame_times)
        quaternion = poses.quaternion_of_rotation(world_from_ego[..., :3])
        heading = poses.yaw_of_quaternion(quaternion)[:, np.newaxis] % (2 * np.pi)
        parts.append(
            np.concatenate(
                [
                    world_from_ego[..., 3],
                    quaternion,
                    acceleration,
                    rotation_rate,
                    velocity,
                    heading,
                    np.degrees(heading),
                ],
                axis=1,
            )
        )
    can_bus = _joined(parts, np.float64)
    return can_bus if np.isfinite(can_bus).all() else None


# --- cameras ----------------------------------------------------------------------------------------------


def _cameras(
    logs: Sequence[LogFiles], names: Sequence[str], settings: ArrowLogSettings
) -> tuple[CameraColumns, dict[str, Any]]:
    num_frames = sum(len(log.frame_times) for log in logs)
    shape = (num_frames, len(names))
    time, files = np.zeros(shape), [[""] * len(names) for _ in range(num_frames)]
    intrinsics = np.broadcast_to(np.eye(3), (*shape, 3, 3)).copy()
    camera_from_base, ego_from_camera = poses.identity(*shape), poses.identity(*shape)
    video_frame, row = np.full(shape, -1, np.int64), np.full(shape, -1, np.int64)
    models: dict[str, Any] = {}
    first = 0
    for log in logs:
        own = slice(first, first + len(log.frame_times))
        time[own] = (log.frame_times / 1e6)[:, np.newaxis]
        world_from_ego = log.ego.at(log.frame_times)
        for place, name in enumerate(names):
            if name not in log.cameras:
                continue
            key = f"camera.{name}"
            metadata = log.metadata(key)
            models.setdefault(name, metadata)
            rows = log.sync_rows(key)
            has = np.flatnonzero(rows >= 0)
            taken = rows[has]
            times = log.times(key)[taken]
            mounted = static_pose(metadata, "camera_to_imu_se3", log.path(key))
            time[first + has, place] = times / 1e6
            intrinsics[own, place] = intrinsic_matrix(metadata, log.path(key))
            ego_from_camera[own, place] = mounted
            known = log.lists(key, "camera_to_global_se3", 7)[taken]
            world_from_camera = poses.joined(log.ego.at(times), mounted)  # as py123d does where none is stored
            is_known = np.isfinite(known).all(axis=1)
            world_from_camera[is_known] = pose_of(known[is_known])
            camera_from_base[first + has, place] = poses.joined(
                poses.inverse(world_from_camera), world_from_ego[has]
            )
            kind, numbers, paths = _images(log, key, taken, settings)
            for frame, path in zip(has, paths, strict=True):
                files[first + frame][place] = path
            (video_frame if kind == "video" else row)[first + has, place] = numbers
        first = own.stop
    columns = CameraColumns(
        file=names_column([file for of_frame in files for file in of_frame]).reshape(shape),
        time=time,
        intrinsics=intrinsics,
        camera_from_base=camera_from_base,
        ego_from_camera=ego_from_camera,
        video_frame=video_frame if (video_frame >= 0).any() else None,
        row=row,
    )
    return columns, models


def _images(
    log: LogFiles, key: str, rows: Int64Array, settings: ArrowLogSettings
) -> tuple[str, Int64Array, list[str]]:
    """How the images of a camera are stored (``"file"``, ``"table"``, ``"video"``), their numbers and files."""
    stored = str(log.file(key).type_of(f"{key}.data"))
    if stored in ("binary", "large_binary"):
        return "table", rows, [log.path(key)] * len(rows)
    if stored == "int32":
        column = log.column(key, "data").fill_null(-1)
        return (
            "video",
            column.to_numpy().astype(np.int64)[rows],
            [os.path.join(log.folder, f"{key}.mp4")] * len(rows),
        )
    if stored != "string":
        raise FileError(
            f"The column '{key}.data' of {log.path(key)!r} must hold paths (string), images (binary) or numbers "
            f"of frames (int32), got {stored}."
        )
    data_set = str(log.metadata(SYNC)["dataset"])
    root = settings.sensor_roots.get(data_set, settings.sensor_roots.get(""))
    if root is None:
        raise SettingError(
            f"The images of {key!r} in {log.folder!r} are stored as paths: `sensor_root` must say where the data "
            f"set {data_set!r} lies."
        )
    paths = log.column(key, "data").to_pylist()
    join = joined_url if is_url(root) else os.path.join
    return "file", np.full(len(rows), -1, np.int64), [join(root, paths[r]) if paths[r] else "" for r in rows]


# --- lidar ------------------------------------------------------------------------------------------------


def _lidar(logs: Sequence[LogFiles], settings: ArrowLogSettings) -> tuple[LidarColumns | None, tuple[str, ...]]:
    """Records of the lidars. py123d stores points in coordinates of the IMU, at the time of the record."""
    wanted = settings.lidar_sensor
    if wanted is not None and not any(wanted in log.lidars for log in logs):
        known = sorted({name for log in logs for name in log.lidars})
        raise SettingError(f"`lidar_sensor` is {wanted!r}, which no log has. There are: {listed(known)}.")
    if not any(log.lidars for log in logs):
        return None, ()
    files: list[str] = []
    times: list[Int64Array] = []
    world_from_lidar: list[Float64Array] = []
    row: list[Int64Array] = []
    of_frame: list[Int64Array] = []
    sweeps: list[Int64Array] = []
    columns: list[tuple[str, ...]] = []
    first = 0
    for log in logs:
        name = wanted if wanted in log.lidars else None if wanted else next(iter(log.lidars), None)
        if name is None:
            of_frame.append(np.full(len(log.frame_times), -1, np.int64))
            sweeps += [np.zeros(0, np.int64)] * len(log.frame_times)
            continue
        key = f"lidar.{name}"
        of_log, record_times = log.sync_rows(key), log.times(key)
        columns.append(point_columns_of(log.file(key), f"{key}.data"))
        files += [log.path(key)] * len(record_times)
        times.append(record_times)
        world_from_lidar.append(log.ego.at(record_times))
        row.append(np.arange(len(record_times)))
        of_frame.append(np.where(of_log >= 0, of_log + first, -1))
        for record in of_log:
            last = max(int(record) - settings.most_sweeps, 0)
            sweeps.append(np.arange(int(record) - 1, last - 1, -1, dtype=np.int64) + first)
        first += len(record_times)
    shared = [name for name in columns[0] if all(name in others for others in columns)]
    lidar = LidarColumns(
        file=names_column(files),
        time=_joined(times, np.int64) / 1e6,
        world_from_lidar=np.concatenate(world_from_lidar),
        of_frame=_joined(of_frame, np.int64),
        first_sweep=first_column([len(of_one) for of_one in sweeps]),
        sweep=_joined(sweeps, np.int64),
        row=_joined(row, np.int64),
    )
    return lidar, tuple(shared)


# --- boxes ------------------------------------------------------------------------------------------------


def _boxes(logs: Sequence[LogFiles], settings: ArrowLogSettings) -> tuple[BoxColumns | None, list[str]]:
    if not any(BOXES in log.modalities for log in logs):
        return None, []
    number_of: dict[str, int] = {}
    parts = []
    counts: list[Int64Array] = []
    for log in logs:
        if BOXES not in log.modalities:
            counts.append(np.zeros(len(log.frame_times), np.int64))
            continue
        label_names = _label_names(log, settings)
        numbers = np.array([number_of.setdefault(name, len(number_of)) for name in label_names], np.int32)
        count, part = _boxes_of_log(log, numbers, label_names)
        counts.append(count)
        parts.append(part)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return BoxColumns(first=first_column(np.concatenate(counts)), **columns), list(number_of)


def _label_names(log: LogFiles, settings: ArrowLogSettings) -> Sequence[str]:
    path = log.path(BOXES)
    qualified = log.metadata(BOXES).get("box_detection_label_class")
    if not isinstance(qualified, str):
        raise FileError(f"The metadata of {path!r} must have 'box_detection_label_class', got {qualified!r}.")
    name = qualified.rsplit(".", 1)[-1]
    names = settings.label_names.get(name, LABEL_NAMES.get(name))
    if names is None:
        raise SettingError(
            f"The labels of {path!r} are of the class {qualified!r}, whose names are not known: pass "
            f"`label_names={{{name!r}: [names, in the order of their numbers]}}`. Known: "
            f"{listed(sorted(LABEL_NAMES))}."
        )
    return names


def _boxes_of_log(
    log: LogFiles, numbers: npt.NDArray[np.int32], label_names: Sequence[str]
) -> tuple[Int64Array, dict[str, npt.NDArray[Any]]]:
    """Number of boxes of each frame, and the columns of all."""
    path = log.path(BOXES)
    rows = log.sync_rows(BOXES)
    boxes = log.column(BOXES, "bounding_box_se3")
    if not str(boxes.type).startswith("list<"):
        raise FileError(f"The column '{BOXES}.bounding_box_se3' of {path!r} must hold lists, got {boxes.type}.")
    offsets = np.asarray(boxes.offsets.to_numpy(), np.int64)
    values = log.lists(BOXES, "bounding_box_se3", 10, boxes.values)
    flat: dict[str, Any] = {}
    for name in ("track_token", "label", "velocity_3d", "num_lidar_points"):
        column = log.column(BOXES, name)
        if not str(column.type).startswith("list<") or not np.array_equal(column.offsets.to_numpy(), offsets):
            raise FileError(
                f"The column '{BOXES}.{name}' of {path!r} must have a list of as many elements as "
                f"'{BOXES}.bounding_box_se3' in each row."
            )
        flat[name] = column.values
    counts = np.where(rows >= 0, np.diff(offsets)[rows] if len(offsets) > 1 else 0, 0)
    taken = (
        np.concatenate([np.arange(offsets[r], offsets[r + 1]) for r in rows[rows >= 0]])
        if (rows >= 0).any()
        else np.zeros(0, np.int64)
    ).astype(np.int64)
    labels = np.asarray(flat["label"].fill_null(len(numbers)).to_numpy(), np.int64)[taken]
    if len(labels) and labels.max() >= len(numbers):
        raise FileError(
            f"The column '{BOXES}.label' of {path!r} has the label {labels.max()}, there are {len(numbers)}: "
            f"{listed(label_names)}."
        )
    ego_from_world = np.repeat(poses.inverse(log.ego.at(log.frame_times)), counts, axis=0)
    turn = poses.quaternion_of_rotation(ego_from_world[..., :3])
    chosen = values[taken]
    if not np.isfinite(chosen).all():
        raise FileError(
            f"The column '{BOXES}.bounding_box_se3' of {path!r} has boxes with values that are no numbers."
        )
    velocity = log.lists(BOXES, "velocity_3d", 3, flat["velocity_3d"])[taken]
    tokens = np.array([str(token) for token in flat["track_token"].to_pylist()], np.str_)[taken]
    known_points = flat["num_lidar_points"].fill_null(-1).to_numpy()
    return counts, {
        "center": poses.moved(ego_from_world, chosen[:, :3]),
        "size": chosen[:, 7:],
        "rotation": poses.product_of_quaternions(turn, _unit(chosen[:, 3:7])),
        "velocity": poses.turned(ego_from_world, velocity),
        "category": numbers[labels],
        "instance": np.unique(tokens, return_inverse=True)[1].astype(np.int64).reshape(-1),
        "num_lidar_points": np.asarray(known_points, np.int32)[taken],
    }


def _unit(quaternions: Float64Array) -> Float64Array:
    return np.asarray(quaternions / np.linalg.norm(quaternions, axis=-1, keepdims=True))
