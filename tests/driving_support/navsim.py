"""Small logs of NAVSIM, with images and point clouds, as they are published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import cv2
import numpy as np
from support.arrays import photograph

from accvlab.driving_data.datasets import (
    CameraImage,
    DrivingFrame,
    DrivingIndex,
    ObjectBox,
    index_of_frames,
    poses,
)
from accvlab.driving_data.testing.layouts import Content, navsim_files, with_lidar
from accvlab.driving_data.testing.written_files import bytes_of, write_files

CAMERAS = {
    "CAM_F0": 0,
    "CAM_L0": 55,
    "CAM_L1": 95,
    "CAM_L2": 140,
    "CAM_R0": -55,
    "CAM_R1": -95,
    "CAM_R2": -140,
    "CAM_B0": 180,
}
HW = (108, 192)  # of images
SPEED = 4.0  # m/s
PERIOD_S = 0.5
CAMERA_AXES = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


def log_name(number: int) -> str:
    return f"2021.05.12.0{number}.00.00_veh-35_00000_00100"


def token(number: int, frame: int) -> str:
    return f"{number:04x}{frame:012x}"


def turn(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


def heading(frame: int) -> float:
    return 0.3 + 0.02 * frame


def place(frame: int) -> np.ndarray:
    angles = np.array([heading(each) for each in range(frame)])
    way = np.array([np.cos(angles).sum(), np.sin(angles).sum(), 0])
    return np.array([300000.0, 4000000, 12]) + SPEED * PERIOD_S * way


def log_of(number: int, num_frames: int) -> DrivingIndex:
    """The index of a log, whose files are named as below ``sensor_blobs``."""
    (height, width), name = HW, log_name(number)
    objects = [("vehicle", 12, 2), ("pedestrian", 8, -6), ("vehicle", -40, 1), ("traffic_cone", 5, 3)]
    sizes = {"vehicle": (4.5, 1.9, 1.6), "pedestrian": (0.6, 0.7, 1.7), "traffic_cone": (0.4, 0.4, 0.8)}
    cameras = {camera: turn(np.deg2rad(angle)) for camera, angle in CAMERAS.items()}
    index = index_of_frames(
        [
            DrivingFrame(
                scene=name,
                token=token(number, frame),
                time=1_620_000_000 + 0.5 * frame + 10_000 * number,
                world_from_ego=poses.pose(turn(heading(frame)), place(frame)),
                cameras={
                    camera: CameraImage(
                        file=f"{name}/{camera}/{token(number, frame)}.jpg",
                        intrinsics=[[0.8 * width, 0, width / 2], [0, 0.8 * width, height / 2], [0, 0, 1]],
                        ego_from_camera=poses.pose(rotation @ CAMERA_AXES, rotation @ [1.2, 0, 0] + [0, 0, 1.5]),
                    )
                    for camera, rotation in cameras.items()
                },
                boxes=[
                    ObjectBox(
                        center=[x, y, 0.6],
                        size=sizes[kind],
                        yaw=0.1,
                        category=kind,
                        track=row,
                        velocity=[SPEED, 0, 0],
                    )
                    for row, (kind, x, y) in enumerate(objects)
                ],
            )
            for frame in range(num_frames)
        ],
        ego_from_lidar=np.eye(3, 4),
    )
    numbers = np.arange(num_frames)
    motion = np.stack([[SPEED, 0.1, 0.2 + frame, -0.3] for frame in numbers])
    command = np.eye(4, dtype=np.int64)[numbers % 4]
    distortion = np.tile([-0.35, 0.17, -0.002, 0.0004, -0.05], (num_frames, len(CAMERAS), 1))
    index = attrs.evolve(
        index,
        frames=attrs.evolve(index.frames, motion=motion, driving_command=command, has_route=numbers != 5),
        cameras=attrs.evolve(index.cameras, distortion=distortion),
    )
    return with_lidar(index, f"{name}/MergedPointCloud/{{token}}.pcd")


def cloud_of(frame: int) -> np.ndarray:
    """Points ``(500, 3)`` float32."""
    rng = np.random.default_rng(frame)
    return rng.uniform([-40, -40, -1], [40, 40, 5], (500, 3)).astype(np.float32)


def pcd(points: np.ndarray) -> bytes:
    """File of points ``(n, 3)`` with intensities."""
    rows = np.column_stack([points, np.arange(len(points)) % 200, np.zeros((len(points), 2))])
    return bytes_of("points.pcd", rows)


def write_navsim(
    root: Path,
    *,
    num_logs: int = 1,
    num_frames: int = 16,
    cameras: tuple[str, ...] = ("CAM_F0", "CAM_L0", "CAM_R0"),
    change: Callable[[list[dict[str, Any]]], Any] = lambda frames: frames,
) -> Path:
    """Write logs, and images of some cameras, one for all frames.

    Args:
        root: The folder, which gets ``navsim_logs/mini`` and ``sensor_blobs/mini``.
        num_logs: Number of logs.
        num_frames: Frames of each.
        cameras: Cameras that have files.
        change: May change what is pickled.
    """
    images = {
        name: cv2.imencode(".jpg", photograph(*HW, seed), [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
        for seed, name in enumerate(cameras)
    }
    for number in range(num_logs):
        name, files = log_name(number), {}
        for frame in range(num_frames):
            of_frame = token(number, frame)
            files[f"{name}/MergedPointCloud/{of_frame}.pcd"] = pcd(cloud_of(frame))
            files |= {f"{name}/{camera}/{of_frame}.jpg": image for camera, image in images.items()}
        content = navsim_files(Content(log_of(number, num_frames), files), "mini")
        path = f"navsim_logs/mini/{name}.pkl"
        write_files(root, {**content, path: change(content[path])})
    return root
