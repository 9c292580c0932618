"""Driving scenes as a data set in the format of nuScenes, with the points that a lidar would measure."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from accvlab.driving_data.datasets import (
    CameraImage,
    DrivingFrame,
    DrivingIndex,
    LidarColumns,
    ObjectBox,
    index_of_frames,
    names_column,
    poses,
)
from accvlab.driving_data.testing import made_drive
from driving_scenes.frames import DrivingScenes, Frame
from driving_scenes.geometry import rotation_about_z

__all__ = ["cast_rays", "drive_of", "export_nuscenes", "lidar_points"]

Floats = NDArray[np.float64]

# By the categories of driving_scenes: the name, and the attributes of objects that move and of objects that stand.
_CATEGORIES = {
    "car": ("vehicle.car", "vehicle.moving", "vehicle.stopped"),
    "truck": ("vehicle.truck", "vehicle.moving", "vehicle.stopped"),
    "pedestrian": ("human.pedestrian.adult", "pedestrian.moving", "pedestrian.standing"),
    "cyclist": ("vehicle.bicycle", "cycle.with_rider", "cycle.with_rider"),
}
_ATTRIBUTES = [*dict.fromkeys(name for of in _CATEGORIES.values() for name in of[1:])]
_MOVES_MPS = 0.2
# As in nuScenes: the lidar is above the vehicle and looks to the right, so that its y axis points ahead.
_EGO_FROM_LIDAR = poses.pose(rotation_about_z(-0.5 * math.pi), [0.94, 0.0, 1.84])
_RING_ANGLES = np.radians(np.linspace(-30.0, 10.0, 32))
_RAYS_PER_TURN = 360
_RANGE_M = 70.0


def export_nuscenes(scenes: DrivingScenes, root: Path) -> Path:
    """Write a data set in the format of nuScenes; the folder, which must be free, appears when all is written."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=root.parent) as folder:
        os.replace(made_drive(Path(folder) / "made", "nuscenes", *drive_of(scenes)), root)
    return root


def drive_of(scenes: DrivingScenes) -> tuple[DrivingIndex, dict[str, Any]]:
    """The index of scenes, and contents of the files that it names.

    Objects have boxes where the lidar or a camera sees them.
    """
    records, boxes, files = [], [], {}
    for frame in scenes.frames:
        points, num_points = lidar_points(frame)
        files[_lidar_file(frame)] = points
        cameras = {}
        for number, name in enumerate(scenes.camera_names):
            file = f"samples/CAM_{name}/{frame.index:06d}.jpg"
            files[file] = frame.jpegs[number].tobytes()
            cameras[f"CAM_{name}"] = CameraImage(
                file=file, intrinsics=frame.intrinsics[number], ego_from_camera=frame.ego_from_camera[number]
            )
        visible = frame.visibility.max(axis=1, initial=0.0)
        rows = np.flatnonzero((visible > 0.0) | (num_points > 0)).tolist()
        names = [_CATEGORIES[scenes.category_names[frame.category_ids[row]]] for row in rows]
        records.append(
            DrivingFrame(
                scene=f"scene-{frame.sequence_index + 1:04d}",
                token=f"frame-{frame.index:06d}",
                time=frame.timestamp_s,
                world_from_ego=frame.world_from_ego,
                cameras=cameras,
                boxes=[
                    ObjectBox(
                        center=frame.centres[row],
                        size=frame.sizes[row],
                        yaw=float(frame.yaws[row]),
                        category=of_row[0],
                        track=int(frame.track_ids[row]),
                        velocity=frame.velocities[row],
                    )
                    for row, of_row in zip(rows, names, strict=True)
                ],
            )
        )
        for row, (_, moving, standing) in zip(rows, names, strict=True):
            is_moving = np.linalg.norm(frame.velocities[row]) > _MOVES_MPS
            level = 1 + int(np.searchsorted([0.4, 0.6, 0.8], visible[row]))
            boxes.append((_ATTRIBUTES.index(moving if is_moving else standing), level, num_points[row]))
    drive = index_of_frames(
        records, categories=[of[0] for of in _CATEGORIES.values()], ego_from_lidar=_EGO_FROM_LIDAR
    )
    return _completed(drive, scenes, np.array(boxes, np.int32).reshape(-1, 3)), files


def _completed(drive: DrivingIndex, scenes: DrivingScenes, boxes: NDArray[np.int32]) -> DrivingIndex:
    """Add attributes, visibilities and numbers of points of boxes, sizes of images, and the lidar."""
    numbers, image_hw = np.arange(drive.num_frames), scenes.frames[0].image_hw
    lidar = LidarColumns(
        file=names_column([_lidar_file(frame) for frame in scenes.frames]),
        time=drive.frames.time,
        world_from_lidar=poses.joined(drive.frames.world_from_ego, drive.frames.ego_from_base),
        of_frame=numbers,
        first_sweep=np.zeros(drive.num_frames + 1, np.int64),
        sweep=np.zeros(0, np.int64),
    )
    columns = dict(zip(("attribute", "visibility", "num_lidar_points"), boxes.T, strict=True))
    sizes = np.tile(image_hw[:, ::-1], (len(drive.frames.scene), 1, 1))
    return attrs.evolve(
        drive,
        attributes=_ATTRIBUTES,
        boxes=attrs.evolve(drive.boxes, **columns),
        cameras=attrs.evolve(drive.cameras, image_wh=sizes),
        lidar=lidar,
    )


def _lidar_file(frame: Frame) -> str:
    return f"samples/LIDAR_TOP/{frame.index:06d}.pcd.bin"


def lidar_points(frame: Frame) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points of a spinning lidar: rays that end at the ground or at a box.

    Returns:
        Points (P, 5) in coordinates of the lidar: x, y, z, intensity, ring; and how many lie on each box (N,).
    """
    azimuths = np.linspace(0.0, 2.0 * math.pi, _RAYS_PER_TURN, endpoint=False)
    rings, azimuths = (grid.ravel() for grid in np.meshgrid(np.arange(len(_RING_ANGLES)), azimuths, indexing="ij"))
    heights = _RING_ANGLES[rings]
    rays = np.stack(
        [np.cos(heights) * np.cos(azimuths), np.cos(heights) * np.sin(azimuths), np.sin(heights)], axis=-1
    )
    distances, hits = cast_rays(frame, _EGO_FROM_LIDAR[:, 3], rays @ _EGO_FROM_LIDAR[:, :3].T)
    kept = distances < _RANGE_M
    intensities = np.where(hits < 0, 12.0, 60.0)
    points = np.column_stack([rays[kept] * distances[kept, None], intensities[kept], rings[kept]])
    return points.astype(np.float32), np.bincount(hits[kept & (hits >= 0)], minlength=len(frame.centres))


def cast_rays(frame: Frame, origin: Floats, rays: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Where rays (R, 3) of the ego frame end: distances (R,), infinite for none, and rows of boxes; -1: no box."""
    distances = np.where(rays[:, 2] < -1e-6, -origin[2] / np.minimum(rays[:, 2], -1e-6), np.inf)
    hits = np.full(len(rays), -1)
    for row, (centre, size, yaw) in enumerate(zip(frame.centres, frame.sizes, frame.yaws, strict=True)):
        to_box = rotation_about_z(-yaw)
        start, directions = to_box @ (origin - centre), np.ascontiguousarray((rays @ to_box.T).T)
        with np.errstate(divide="ignore", invalid="ignore"):
            one, other = ((side * 0.5 * size - start)[:, None] / directions for side in (-1.0, 1.0))
        enters, leaves = np.minimum(one, other).max(axis=0), np.maximum(one, other).min(axis=0)
        is_nearer = (enters < leaves) & (enters > 0.0) & (enters < distances)
        distances[is_nearer], hits[is_nearer] = enters[is_nearer], row
    return distances, hits
