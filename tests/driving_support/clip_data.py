"""Small clips of PhysicalAI-AV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.videos import make_video

from accvlab.driving_data.datasets.driving import poses

FRONT, LEFT = "camera_front_wide_120fov", "camera_cross_left_120fov"
NUM_FRAMES = 8
FRAME_TIMES = 1_000_000 + np.arange(NUM_FRAMES) * 33_000
LEFT_TIMES = FRAME_TIMES[:6] + 5_000  # it ends earlier
AXES = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pa.table(columns), str(path))


def world_from_ego(time_us: float) -> np.ndarray:
    """As the vehicle drives: a curve about z."""
    seconds = time_us / 1e6
    yaw = 0.1 + 0.3 * seconds
    pose = np.eye(4)
    pose[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    pose[:3, 3] = [20 * seconds, 3 - seconds, 0.1 * seconds]
    return pose


def write_physical_ai(root: Path, clip: str = "clip-1", left_out: str = "", ego_end: int = 1_400_000) -> Path:
    """Write a clip; ``left_out`` is a column."""

    def write(name: str, columns: dict[str, Any]) -> None:
        write_parquet(root / name, {key: value for key, value in columns.items() if key != left_out})

    for camera, times, first in ((FRONT, FRAME_TIMES, 0), (LEFT, LEFT_TIMES, 100)):
        folder = root / "camera" / camera
        folder.mkdir(parents=True, exist_ok=True)
        make_video(folder / f"{clip}.{camera}.mp4", len(times), "libx264", first_number=first)
        write(f"camera/{camera}/{clip}.{camera}.timestamps.parquet", {"timestamp": times})
    ego_times = np.arange(990_000, ego_end, 10_000)
    known = np.stack([world_from_ego(time) for time in ego_times])
    quaternions = poses.quaternion_of_rotation(known[:, :3, :3])
    write(
        f"labels/egomotion/{clip}.egomotion.parquet",
        {"timestamp": ego_times}
        | dict(zip("xyz", known[:, :3, 3].T, strict=True))
        | dict(zip(("qw", "qx", "qy", "qz"), quaternions.T, strict=True)),
    )
    write(
        "calibration/camera_intrinsics/camera_intrinsics.chunk_0003.parquet",
        {
            "clip_id": [clip] * 2,
            "camera_name": [FRONT, LEFT],
            "width": [96] * 2,
            "height": [64] * 2,
            **{f"bw_poly_{k}": [float(k == 1) / 60] * 2 for k in range(5)},
            "cx": [48.0, 47.0],
            "cy": [32.0, 31.0],
            **{f"fw_poly_{k}": [[0.0, 60.0, 1.0, 0.0, 0.0][k], [0.0, 61.0, 2.0, 0.0, 0.0][k]] for k in range(5)},
        },
    )
    quaternion = poses.quaternion_of_rotation(AXES)
    write(
        "calibration/sensor_extrinsics/sensor_extrinsics.chunk_0003.parquet",
        {"clip_id": [clip] * 2, "sensor_name": [FRONT, LEFT], "x": [1.7, 1.5], "y": [0.0, 0.4], "z": [1.4, 1.3]}
        | {name: [value] * 2 for name, value in zip(("qw", "qx", "qy", "qz"), quaternion, strict=True)},
    )
    write("clip_index.parquet", {"clip_id": [clip], "chunk": [3], "split": ["train"]})
    yaw = poses.quaternion_of_yaw([0.2, 0.25, -1.0])
    write(
        f"labels/obstacle.offline/{clip}.obstacle.offline.parquet",
        {
            "timestamp_us": [1_010_000, 1_110_000, 1_020_000],
            "track_id": [11, 11, 12],
            "label_class": ["Automobile", "Automobile", "person"],
            "center_x": [15.0, 13.0, 8.0],
            "center_y": [1.0, 1.0, -4.0],
            "center_z": [0.8, 0.8, 0.9],
            "size_x": [4.4, 4.4, 0.6],
            "size_y": [1.9, 1.9, 0.7],
            "size_z": [1.5, 1.5, 1.8],
        }
        | {f"orientation_{axis}": column for axis, column in zip("wxyz", yaw.T, strict=True)},
    )
    return root
