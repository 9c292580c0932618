"""Drives that make sense, as data sets of several kinds have them: rigs, rates, axes, labels, noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from support.arrays import encoded_image, gradient

from accvlab.driving_data.datasets import (
    CameraImage,
    DrivingFrame,
    DrivingIndex,
    ObjectBox,
    index_of_frames,
    poses,
)

CAMERA_AXES = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])
CATEGORIES = ("car", "truck", "pedestrian", "barrier")
SIZES = np.array([[4.5, 1.9, 1.6], [8.0, 2.5, 3.0], [0.7, 0.7, 1.8], [0.6, 2.4, 1.0]])


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of data set.

    Attributes:
        cameras: Yaw and pitch in degrees, x, y, z, width, height and field of view in degrees of each.
        base: As in `DrivingIndex`; the lidar's x axis points to ``lidar_yaw_deg``.
        period_s: Between frames.
        has_velocities: Whether they are known.
        is_seen_only: Whether only objects in the first camera have boxes.
        noise_m: Of the centers of boxes, of z less; a tenth of that, in radians, of their yaws.
        num_moving: Number of objects that move, of `num_objects`.
        speed: Of the vehicle, m/s.
        turn: Of the vehicle, at most, rad/s.
    """

    cameras: dict[str, tuple[float, ...]]
    base: str = "ego"
    lidar_yaw_deg: float = 0.0
    period_s: float = 0.1
    has_velocities: bool = False
    is_seen_only: bool = False
    noise_m: float = 0.03
    num_objects: int = 40
    num_moving: int = 16
    speed: float = 8.0
    turn: float = 0.25
    num_frames: int = 8
    num_scenes: int = 3


NUSCENES = Kind(
    cameras={
        "CAM_FRONT": (0, 0, 1.7, 0, 1.5, 320, 180, 65),
        "CAM_FRONT_RIGHT": (-55, 0, 1.5, -0.5, 1.5, 320, 180, 65),
        "CAM_FRONT_LEFT": (55, 0, 1.5, 0.5, 1.5, 320, 180, 65),
        "CAM_BACK": (180, 0, 0, 0, 1.5, 320, 180, 90),
        "CAM_BACK_LEFT": (110, 0, 1, 0.5, 1.5, 320, 180, 65),
        "CAM_BACK_RIGHT": (-110, 0, 1, -0.5, 1.5, 320, 180, 65),
    },
    base="lidar",
    lidar_yaw_deg=-90,
    period_s=0.5,
    has_velocities=True,
)
KITTI = Kind(
    cameras={"image_02": (0, 0, 1.1, 0.06, 0.7, 414, 125, 82), "image_03": (0, 0, 1.1, -0.48, 0.7, 414, 125, 82)},
    base="lidar",
    is_seen_only=True,
)
ARGOVERSE = Kind(
    cameras={
        "ring_front_center": (0, 0, 1.6, 0, 1.4, 155, 205, 48),
        "ring_front_left": (45, 0, 1.5, 0.2, 1.4, 205, 155, 63),
        "ring_front_right": (-45, 0, 1.5, -0.2, 1.4, 205, 155, 63),
        "ring_side_left": (99, 0, 1.3, 0.3, 1.4, 205, 155, 63),
        "ring_side_right": (-99, 0, 1.3, -0.3, 1.4, 205, 155, 63),
        "ring_rear_left": (153, 0, 1.1, 0.2, 1.4, 205, 155, 63),
        "ring_rear_right": (-153, 0, 1.1, -0.2, 1.4, 205, 155, 63),
        "stereo_front_left": (0, 0, 1.6, 0.25, 1.2, 205, 155, 63),
        "stereo_front_right": (0, 0, 1.6, -0.25, 1.2, 205, 155, 63),
    }
)


def make_drive(root: Path, kind: Kind, seed: int = 0) -> DrivingIndex:
    """Make a drive; each camera has one file for all of its images."""
    rng = np.random.default_rng(seed)
    for name, (*_, width, height, _) in kind.cameras.items():
        image = encoded_image(gradient(int(height), int(width), 0), "JPEG")
        (root / f"{name}.jpg").write_bytes(bytes(image))
    ego_from_lidar = poses.pose_of_quaternion(
        poses.quaternion_of_yaw(np.deg2rad(kind.lidar_yaw_deg)), [0.9, 0, 1.8]
    )
    frames = [frame for number in range(kind.num_scenes) for frame in scene_of(rng, kind, number)]
    return index_of_frames(
        frames, categories=CATEGORIES, ego_from_lidar=ego_from_lidar if kind.base == "lidar" else None
    )


def _image(name: str, values: tuple[float, ...]) -> CameraImage:
    yaw, pitch = np.deg2rad(values[:2])
    width, height, field_deg = values[5:]
    down = np.array([[np.cos(pitch), 0, np.sin(pitch)], [0, 1, 0], [-np.sin(pitch), 0, np.cos(pitch)]])
    turn = poses.rotation_of_quaternion(poses.quaternion_of_yaw(yaw))
    focal = width / 2 / np.tan(np.deg2rad(field_deg / 2))
    return CameraImage(
        file=f"{name}.jpg",
        intrinsics=np.array([[focal, 0, 0.51 * width], [0, focal, 0.49 * height], [0, 0, 1]]),
        ego_from_camera=poses.pose(turn @ down @ CAMERA_AXES, values[2:5]),
    )


def scene_of(rng: np.random.Generator, kind: Kind, number: int) -> Iterator[DrivingFrame]:
    """A vehicle that brakes and turns, among objects of a road that keeps its first direction."""
    moments = kind.period_s * np.arange(kind.num_frames)
    turn = rng.uniform(0.6, 1) * kind.turn * rng.choice([-1, 1])
    start, first_yaw = rng.uniform(-800, 800, 2), rng.uniform(-np.pi, np.pi)
    yaw = first_yaw + turn * moments
    speed = kind.speed * rng.uniform(0.7, 1.2) * (1 - 0.15 * np.sin(1.5 * moments))
    steps = kind.period_s * speed[:, np.newaxis] * np.column_stack([np.cos(yaw), np.sin(yaw)])
    place = np.column_stack([start + np.cumsum(steps, axis=0) - steps[0], np.zeros(kind.num_frames)])
    count = kind.num_objects
    category = rng.choice(4, count, p=[0.6, 0.1, 0.15, 0.15])
    category[: kind.num_moving] = rng.choice(3, kind.num_moving, p=[0.7, 0.1, 0.2])
    along = np.column_stack([rng.uniform(-50, 60, count), rng.uniform(-25, 25, count)])
    along_road = np.array([np.cos(first_yaw), np.sin(first_yaw)])
    across = np.array([-along_road[1], along_road[0]])
    heading = first_yaw + rng.choice([0, 0, np.pi, np.pi / 2, -np.pi / 2], count) + 0.1 * rng.normal(size=count)
    fast = np.where(np.arange(count) < kind.num_moving, rng.uniform(3, 12, count), 0.0)
    fast[category == 2] = np.minimum(fast[category == 2], 1.5)
    velocity = np.column_stack([np.cos(heading), np.sin(heading), np.zeros(count)]) * fast[:, np.newaxis]
    first = np.column_stack([start + along[:, :1] * along_road + along[:, 1:] * across, SIZES[category, 2] / 2])
    world_from_ego = poses.pose_of_quaternion(poses.quaternion_of_yaw(yaw), place)
    cameras = {name: _image(name, values) for name, values in kind.cameras.items()}
    for frame, elapsed in enumerate(moments.tolist()):
        ego_from_world = poses.inverse(world_from_ego[frame])
        center = first + velocity * elapsed + kind.noise_m * rng.normal(size=(count, 3)) * [1, 1, 0.3]
        center = poses.moved(ego_from_world, center)
        is_there = np.linalg.norm(center[:, :2], axis=1) < 70
        if kind.is_seen_only:
            is_there &= (center[:, 0] > 4) & (np.abs(center[:, 1]) < center[:, 0] * 0.85)
        size = SIZES[category] * rng.uniform(0.9, 1.1, (count, 3))
        yaws = heading - yaw[frame] + 0.1 * kind.noise_m * rng.normal(size=count)
        over_ground = poses.turned(ego_from_world, velocity)
        yield DrivingFrame(
            scene=f"scene-{number}",
            time=1e9 + 1000 * number + elapsed,
            world_from_ego=world_from_ego[frame],
            cameras=cameras,
            boxes=[
                ObjectBox(
                    center=center[row],
                    size=size[row],
                    yaw=float(yaws[row]),
                    category=CATEGORIES[category[row]],
                    track=row,
                    velocity=over_ground[row] if kind.has_velocities else None,
                )
                for row in np.flatnonzero(is_there).tolist()
            ],
        )
