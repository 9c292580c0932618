# SPDX-License-Identifier: Apache-2.0
"""The index of sensor logs of Argoverse 2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.extension import exact, nearest

from ..driving import poses
from ..driving.driving_index import DrivingIndex
from ..driving.scene_parts import Scene, SceneImages, SceneRecords, index_of_scenes, moving_camera
from ..driving.trajectory import half_period
from .argoverse_files import ArgoverseLog

POINT_COLUMNS = ("x", "y", "z", "intensity", "laser_number", "offset_ns")


def make_index(
    root: Path, logs: Sequence[ArgoverseLog], tolerance_s: float | None, most_sweeps: int
) -> DrivingIndex:
    """Make the index of some logs.

    Raises:
        FileError: A file cannot be read, or is not as it should be.
    """
    annotations = [log.annotations for log in logs if log.annotations is not None]
    categories = sorted({name for columns in annotations for name in columns["category"]})
    has_lidar = any(len(log.lidar_times) for log in logs)
    return index_of_scenes(
        [_scene(root, log, categories, tolerance_s) for log in logs],
        base="ego",
        camera_names=sorted({camera for log in logs for camera in log.cameras}),
        most_sweeps=most_sweeps,
        categories=categories,
        point_columns=POINT_COLUMNS if has_lidar else (),
        origin={"format": "Argoverse 2 sensor", "root": str(root)},
    )


def _scene(root: Path, log: ArgoverseLog, categories: Sequence[str], tolerance_s: float | None) -> Scene:
    times = log.frame_times
    world_from_ego = log.ego.at(times)
    relative = log.folder.relative_to(root).as_posix()
    folder = "sensors" if relative == "." else f"{relative}/sensors"
    images = {}
    for camera in log.cameras:
        intrinsics, mounted = log.calibration(camera)
        image_times = log.image_times(camera)
        within = half_period(image_times) if tolerance_s is None else math.floor(exact(tolerance_s) * 10**9)
        image = nearest(image_times, times, within)
        has = np.flatnonzero(image >= 0)
        taken = image_times[image[has]]
        images[camera] = SceneImages(
            frames=has,
            file=[f"{folder}/cameras/{camera}/{time}.jpg" for time in taken],
            time=taken / 1e9,
            intrinsics=intrinsics,
            camera_from_base=moving_camera(mounted, has, poses.joined(log.ego.at(taken), mounted), world_from_ego),
            ego_from_camera=mounted,
        )
    lidar = None
    if len(log.lidar_times):  # a frame is a record then
        lidar = SceneRecords(
            file=[f"{folder}/lidar/{time}.feather" for time in times],
            time=times / 1e9,
            world_from_lidar=world_from_ego,
            of_frame=np.arange(len(times)),
            num_before=np.arange(len(times)),
        )
    num_boxes, boxes = (None, None) if log.annotations is None else _boxes(times, log.annotations, categories)
    return Scene(
        name=log.folder.name,
        token=[f"{log.folder.name}/{time}" for time in times],
        time=times / 1e9,
        world_from_ego=world_from_ego,
        images=images,
        lidar=lidar,
        num_boxes=num_boxes,
        boxes=boxes,
    )


def _boxes(
    times: npt.NDArray[np.int64], columns: Mapping[str, npt.NDArray[Any]], categories: Sequence[str]
) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
    """Boxes at the times of frames; those at other times are left out."""
    frame = nearest(times, columns["timestamp_ns"], 0)
    rows = np.flatnonzero(frame >= 0)
    rows = rows[np.argsort(frame[rows], kind="stable")]
    num_points = columns.get("num_interior_pts", np.full(len(frame), -1))
    return np.bincount(frame[rows], minlength=len(times)), {
        "center": columns["pose"][rows][..., 3],
        "size": columns["size"][rows],
        "rotation": poses.quaternion_of_rotation(columns["pose"][rows][..., :3]),
        "velocity": np.full((len(rows), 3), np.nan),
        "category": np.searchsorted(categories, columns["category"][rows]).astype(np.int32),
        "instance": np.unique(columns["track_uuid"], return_inverse=True)[1].reshape(-1)[rows],
        "num_lidar_points": num_points[rows].astype(np.int32),
    }
