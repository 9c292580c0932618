# SPDX-License-Identifier: Apache-2.0
"""The index of sensor logs of Argoverse 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
from ..driving.trajectory import half_period, nearest
from .argoverse_files import ArgoverseLog

POINT_COLUMNS = ("x", "y", "z", "intensity", "laser_number", "offset_ns")


def make_index(
    root: Path, logs: Sequence[ArgoverseLog], tolerance_s: float | None, most_sweeps: int
) -> DrivingIndex:
    """Make the index of some logs.

    Raises:
        FileError: A file cannot be read, or is not as it should be.
    """
    times = [log.frame_times for log in logs]
    time = np.concatenate(times) / 1e9
    world_from_ego = np.concatenate([log.ego.at(of_log) for log, of_log in zip(logs, times, strict=True)])
    camera_names = sorted({camera for log in logs for camera in log.cameras})
    boxes, categories = _boxes(logs)
    lidar = _lidar(root, logs, most_sweeps)
    return DrivingIndex(
        base="ego",
        camera_names=camera_names,
        categories=categories,
        point_columns=POINT_COLUMNS if lidar is not None else (),
        origin={"format": "Argoverse 2 sensor", "root": str(root)},
        frames=FrameColumns(
            scene=names_column([log.folder.name for log in logs]),
            first_of_scene=first_column([len(of_log) for of_log in times]),
            token=names_column(
                [f"{log.folder.name}/{frame}" for log, of_log in zip(logs, times, strict=True) for frame in of_log]
            ),
            time=time,
            world_from_ego=world_from_ego,
            ego_from_base=poses.identity(len(time)),
        ),
        cameras=_cameras(root, logs, camera_names, tolerance_s) if camera_names else None,
        lidar=lidar,
        boxes=boxes,
    )


def _folder(root: Path, log: ArgoverseLog) -> str:
    relative = log.folder.relative_to(root).as_posix()
    return "" if relative == "." else f"{relative}/"


def _cameras(
    root: Path, logs: Sequence[ArgoverseLog], names: Sequence[str], tolerance_s: float | None
) -> CameraColumns:
    shape = (sum(len(log.frame_times) for log in logs), len(names))
    files = np.full(shape, "", object)
    time = np.concatenate([log.frame_times for log in logs])[:, np.newaxis] / 1e9 * np.ones(len(names))
    intrinsics = np.broadcast_to(np.eye(3), (*shape, 3, 3)).copy()
    camera_from_base, ego_from_camera = poses.identity(*shape), poses.identity(*shape)
    first = 0
    for log in logs:
        own = slice(first, first + len(log.frame_times))
        world_from_ego = log.ego.at(log.frame_times)
        for place, camera in enumerate(names):
            if camera not in log.cameras:
                continue
            intrinsics[own, place], mounted = log.calibration(camera)
            ego_from_camera[own, place] = mounted
            times = log.image_times(camera)
            within = half_period(times) if tolerance_s is None else tolerance_s * 1e9
            image = nearest(times, log.frame_times, within)
            has = np.flatnonzero(image >= 0)
            taken = times[image[has]]
            folder = f"{_folder(root, log)}sensors/cameras/{camera}"
            files[first + has, place] = [f"{folder}/{one}.jpg" for one in taken]
            time[first + has, place] = taken / 1e9
            world_from_camera = poses.joined(log.ego.at(taken), mounted)
            camera_from_base[own, place] = poses.inverse(mounted)
            camera_from_base[first + has, place] = poses.joined(
                poses.inverse(world_from_camera), world_from_ego[has]
            )
        first = own.stop
    return CameraColumns(
        file=names_column(files.reshape(-1).tolist()).reshape(shape),
        time=time,
        intrinsics=intrinsics,
        camera_from_base=camera_from_base,
        ego_from_camera=ego_from_camera,
    )


def _lidar(root: Path, logs: Sequence[ArgoverseLog], most_sweeps: int) -> LidarColumns | None:
    if not any(len(log.lidar_times) for log in logs):
        return None
    files: list[str] = []
    of_frame: list[int] = []
    sweeps: list[list[int]] = []
    for log in logs:
        first = len(files)
        files += [f"{_folder(root, log)}sensors/lidar/{time}.feather" for time in log.lidar_times]
        for frame in range(len(log.frame_times)):
            record = first + frame if len(log.lidar_times) else -1
            of_frame.append(record)
            sweeps.append(list(range(record - 1, max(first, record - most_sweeps) - 1, -1)) if record >= 0 else [])
    times = [log.lidar_times for log in logs if len(log.lidar_times)]
    return LidarColumns(
        file=names_column(files),
        time=np.concatenate(times) / 1e9,
        world_from_lidar=np.concatenate([log.ego.at(log.lidar_times) for log in logs if len(log.lidar_times)]),
        of_frame=np.array(of_frame, np.int64),
        first_sweep=first_column([len(earlier) for earlier in sweeps]),
        sweep=np.array([record for earlier in sweeps for record in earlier], np.int64),
    )


def _boxes(logs: Sequence[ArgoverseLog]) -> tuple[BoxColumns | None, list[str]]:
    """Boxes at the times of frames; those at other times are left out."""
    annotated = [log.annotations for log in logs]
    if all(columns is None for columns in annotated):
        return None, []
    categories = sorted({name for columns in annotated if columns for name in columns["category"].tolist()})
    counts: list[npt.NDArray[np.int64]] = []
    parts: list[dict[str, npt.NDArray[np.generic]]] = []
    for log, columns in zip(logs, annotated, strict=True):
        if columns is None:
            counts.append(np.zeros(len(log.frame_times), np.int64))
            continue
        frame = nearest(log.frame_times, columns["timestamp_ns"], 0)
        rows = np.flatnonzero(frame >= 0)
        rows = rows[np.argsort(frame[rows], kind="stable")]
        counts.append(np.bincount(frame[rows], minlength=len(log.frame_times)))
        num_points = columns.get("num_interior_pts", np.full(len(frame), -1))
        parts.append(
            {
                "center": columns["pose"][rows][..., 3],
                "size": columns["size"][rows],
                "rotation": poses.quaternion_of_rotation(columns["pose"][rows][..., :3]),
                "velocity": np.full((len(rows), 3), np.nan),
                "category": np.searchsorted(categories, columns["category"][rows]).astype(np.int32),
                "instance": np.unique(columns["track_uuid"], return_inverse=True)[1].reshape(-1)[rows],
                "num_lidar_points": num_points[rows].astype(np.int32),
            }
        )
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return BoxColumns(first=first_column(np.concatenate(counts)), **joined), categories
