"""Small logs of NAVSIM, with images and point clouds, as they are published."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

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


def frame_of(number: int, frame: int, hw: tuple[int, int]) -> dict[str, Any]:
    name = token(number, frame)
    w, z = np.cos(heading(frame) / 2), np.sin(heading(frame) / 2)
    objects = [
        ("vehicle", 12.0, 2.0),
        ("pedestrian", 8.0, -6.0),
        ("vehicle", -40.0, 1.0),
        ("traffic_cone", 5.0, 3.0),
    ]
    sizes = {"vehicle": (4.5, 1.9, 1.6), "pedestrian": (0.6, 0.7, 1.7), "traffic_cone": (0.4, 0.4, 0.8)}
    boxes = [(x, y, 0.6, *sizes[kind], 0.1) for kind, x, y in objects]
    command = [0, 0, 0, 0]
    command[frame % 4] = 1
    return {
        "token": name,
        "timestamp": 1_620_000_000_000_000 + 500_000 * frame + 10_000_000_000 * number,
        "log_name": log_name(number),
        "map_location": "us-nv-las-vegas-strip",
        "roadblock_ids": [] if frame == 5 else ["101", "102"],
        "lidar_path": f"{log_name(number)}/MergedPointCloud/{name}.pcd",
        "lidar2ego_translation": np.zeros(3),
        "lidar2ego_rotation": np.array([1.0, 0, 0, 0]),
        "ego2global_translation": place(frame),
        "ego2global_rotation": np.array([w, 0, 0, z]),
        "ego_dynamic_state": [SPEED, 0.1, 0.2 + frame, -0.3],
        "driving_command": np.array(command),
        "cams": {camera: _camera(number, camera, angle, name, hw) for camera, angle in CAMERAS.items()},
        "anns": {
            "gt_boxes": np.array(boxes, np.float32),
            "gt_names": np.array([kind for kind, _, _ in objects]),
            "gt_velocity_3d": np.array([[SPEED, 0, 0]] * len(boxes), np.float32),
            "track_tokens": [f"track-{each}" for each in range(len(boxes))],
        },
    }


def _camera(number: int, camera: str, angle_deg: float, name: str, hw: tuple[int, int]) -> dict[str, Any]:
    (height, width), rotation = hw, turn(np.deg2rad(angle_deg))
    return {
        "data_path": f"{log_name(number)}/{camera}/{name}.jpg",
        "sensor2lidar_rotation": rotation @ CAMERA_AXES,
        "sensor2lidar_translation": rotation @ [1.2, 0, 0] + [0, 0, 1.5],
        "cam_intrinsic": np.array([[0.8 * width, 0, width / 2], [0, 0.8 * width, height / 2], [0, 0, 1]]),
        "distortion": np.array([-0.35, 0.17, -0.002, 0.0004, -0.05]),
    }


def textured(height: int, width: int, seed: int) -> np.ndarray:
    """An image of patches and fine noise, ``(height, width, 3)`` uint8."""
    rng = np.random.default_rng(seed)
    image = np.zeros((height, width, 3), np.float32)
    for scale, strength in ((64, 60), (8, 10), (2, 1.5)):
        patches = rng.normal(0, strength, (height // scale + 2, width // scale + 2, 3)).astype(np.float32)
        image += cv2.resize(patches, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.clip(image + 110, 0, 255).astype(np.uint8)


def cloud_of(frame: int, count: int = 500) -> np.ndarray:
    """Points ``(count, 3)`` float32."""
    rng = np.random.default_rng(frame)
    return rng.uniform([-40, -40, -1], [40, 40, 5], (count, 3)).astype(np.float32)


def pcd(points: np.ndarray) -> bytes:
    fields = [(axis, "<f4") for axis in "xyz"] + [(name, "u1") for name in ("intensity", "ring", "lidar_info")]
    rows = np.zeros(len(points), np.dtype(fields))
    for axis, column in zip("xyz", points.T, strict=True):
        rows[axis] = column
    rows["intensity"] = np.arange(len(points)) % 200
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS x y z intensity ring lidar_info\n"
        "SIZE 4 4 4 1 1 1\nTYPE F F F U U U\nCOUNT 1 1 1 1 1 1\n"
        f"WIDTH {len(points)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(points)}\nDATA binary\n"
    )
    return header.encode() + rows.tobytes()


def write_navsim(
    root: Path,
    *,
    num_logs: int = 1,
    num_frames: int = 16,
    hw: tuple[int, int] = (108, 192),
    cameras: tuple[str, ...] = ("CAM_F0", "CAM_L0", "CAM_R0"),
    num_points: int = 500,
    change: Callable[[list[dict[str, Any]]], Any] = lambda frames: frames,
) -> Path:
    """Write logs, and images of some cameras, one for all frames.

    Args:
        root: The folder, which gets ``navsim_logs/mini`` and ``sensor_blobs/mini``.
        num_logs: Number of logs.
        num_frames: Frames of each.
        hw: Height and width of the images.
        cameras: Cameras that have files.
        num_points: Points of a cloud.
        change: May change what is pickled.
    """
    images = {
        name: cv2.imencode(".jpg", textured(*hw, seed), [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
        for seed, name in enumerate(cameras)
    }
    for number in range(num_logs):
        frames = [frame_of(number, frame, hw) for frame in range(num_frames)]
        blobs = root / "sensor_blobs" / "mini" / log_name(number)
        for folder in (*cameras, "MergedPointCloud"):
            (blobs / folder).mkdir(parents=True)
        for frame in range(num_frames):
            (blobs / "MergedPointCloud" / f"{token(number, frame)}.pcd").write_bytes(
                pcd(cloud_of(frame, num_points))
            )
            for camera, image in images.items():
                (blobs / camera / f"{token(number, frame)}.jpg").write_bytes(image)
        logs = root / "navsim_logs" / "mini"
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"{log_name(number)}.pkl").write_bytes(pickle.dumps(change(frames)))
    return root
