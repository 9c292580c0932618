"""Small sequences of KITTI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.arrays import encoded_image

from accvlab.driving_data.testing.written_files import write_files

P2 = np.array([[70.0, 0, 32, 4.5], [0, 70, 24, 0.2], [0, 0, 1, 0.003]])
P3 = np.array([[70.0, 0, 32, -30], [0, 70, 24, 0.1], [0, 0, 1, 0.002]])
AXES = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])  # of the lidar, in the camera
NUM_FRAMES = 4
# frame, track, type, truncated, occluded, alpha, x1 y1 x2 y2, h w l, x y z, rotation_y
LABELS = """\
0 5 Car 0 0 -1.5 10.5 12.25 20 30 1.5 1.75 4.25 1.5 1.625 10.0 -1.25
0 -1 DontCare -1 -1 -10 1 2 3 4 -1 -1 -1 -1000 -1000 -1000 -10
0 7 Pedestrian 1 2 0.2 30 10 36 28 1.8 0.6 0.8 -2 1.5 8 2.5
2 7 Pedestrian 2 3 0.2 31 10 36 28 1.8 0.6 0.8 -2.5 1.5 8 2.25
"""


def turn(axis: int, angle: float) -> np.ndarray:
    first, second = [k for k in range(3) if k != axis]
    matrix = np.eye(3)
    matrix[[first, second], [first, second]] = np.cos(angle)
    sign = -1 if axis == 1 else 1
    matrix[first, second], matrix[second, first] = -sign * np.sin(angle), sign * np.sin(angle)
    return matrix


R_RECT = turn(0, 0.01) @ turn(1, -0.02)
TR_VELO_CAM = np.c_[AXES @ turn(2, 0.03), [0.02, -0.06, -0.33]]
TR_IMU_VELO = np.c_[turn(2, -0.015), [-0.8, 0.3, -0.8]]


def text_of(matrix: np.ndarray) -> str:
    return " ".join(f"{value:.12e}" for value in np.ravel(matrix))


def images(folder: str, shade: int) -> dict[str, bytes]:
    shown = {number: np.full((48, 64, 3), shade + number, np.uint8) for number in range(NUM_FRAMES)}
    return {f"{folder}/{number:06d}.png": bytes(encoded_image(image, "PNG")) for number, image in shown.items()}


def points(folder: str, numbers: Sequence[int]) -> dict[str, np.ndarray]:
    generators = {number: np.random.default_rng(number) for number in numbers}
    return {f"{folder}/{number:06d}.bin": rng.normal(size=(5 + number, 4)) for number, rng in generators.items()}


def oxts_rows() -> np.ndarray:
    rows = np.zeros((NUM_FRAMES, 30))
    rows[:, 0] = 49.0 + 1e-5 * np.arange(NUM_FRAMES)
    rows[:, 1] = 8.4 + 2e-5 * np.arange(NUM_FRAMES)
    rows[:, 2] = 110 + 0.1 * np.arange(NUM_FRAMES)
    rows[:, 3], rows[:, 4] = 0.02, -0.01
    rows[:, 5] = 0.5 + 0.05 * np.arange(NUM_FRAMES)
    return rows


def write_tracking(root: Path, name: str = "0000", labels: str = LABELS) -> Path:
    lines = [f"P{k}: {text_of(matrix)}" for k, matrix in enumerate((P2, P2, P2, P3))]
    lines += [
        f"R_rect {text_of(R_RECT)}",
        f"Tr_velo_cam {text_of(TR_VELO_CAM)}",
        f"Tr_imu_velo {text_of(TR_IMU_VELO)}",
    ]
    files = {
        f"calib/{name}.txt": "\n".join(lines) + "\n",
        f"label_02/{name}.txt": labels,
        f"oxts/{name}.txt": "\n".join(map(text_of, oxts_rows())) + "\n",
        **images(f"image_02/{name}", 20),
        **images(f"image_03/{name}", 120),
        **points(f"velodyne/{name}", [0, 1, 3]),  # as in the published data, some are missing
    }
    return write_files(root, files)


def odometry_poses() -> np.ndarray:
    """Of camera 0."""
    return np.stack([np.c_[turn(1, 0.1 * k), [0.1 * k, -0.02 * k, 1.5 * k]] for k in range(NUM_FRAMES)])


def write_odometry(root: Path, name: str = "00", with_poses: bool = True) -> Path:
    folder = f"sequences/{name}"
    lines = [f"P{k}: {text_of(matrix)}" for k, matrix in enumerate((P2, P2, P2, P3))]
    files = {
        **images(f"{folder}/image_2", 30),
        **points(f"{folder}/velodyne", range(NUM_FRAMES)),
        f"{folder}/calib.txt": "\n".join([*lines, f"Tr: {text_of(TR_VELO_CAM)}"]) + "\n",
        f"{folder}/times.txt": "".join(f"{0.104 * k:e}\n" for k in range(NUM_FRAMES)),
    }
    if with_poses:
        files[f"poses/{name}.txt"] = "\n".join(map(text_of, odometry_poses())) + "\n"
    return write_files(root, files)
