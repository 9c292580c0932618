"""Small clips of PhysicalAI-AV, and a data set of LeRobot."""

from __future__ import annotations

import json
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


LENGTHS = (4, 3, 5)


def write_lerobot(root: Path, left_out: str = "", length_of_quaternion: int = 1, **info: Any) -> Path:
    """Write three episodes: two in the first video, and one in another."""
    feature = "observation.images.front"
    head = {
        "codebase_version": "v3.0",
        "fps": 25,
        "features": {
            feature: {"dtype": "video", "shape": [64, 96, 3]},
            "observation.pose": {"dtype": "float32", "shape": [7]},
            "action": {"dtype": "float32", "shape": [2]},
        },
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps({**head, **info}))
    folder = root / "videos" / feature / "chunk-000"
    folder.mkdir(parents=True)
    make_video(folder / "file-000.mp4", 7, "libx264")
    make_video(folder / "file-001.mp4", 5, "libx264", first_number=50)
    starts, files = np.array([0, 4, 0]) / 25, [0, 0, 1]
    episodes: dict[str, Any] = {
        "episode_index": [0, 1, 2],
        "length": list(LENGTHS),
        "data/chunk_index": [0, 0, 0],
        "data/file_index": [0, 0, 0],
        f"videos/{feature}/chunk_index": [0, 0, 0],
        f"videos/{feature}/file_index": files,
        f"videos/{feature}/from_timestamp": starts,
        f"videos/{feature}/to_timestamp": starts + np.array(LENGTHS) / 25,
    }
    write_parquet(
        root / "meta/episodes/chunk-000/file-000.parquet",
        {name: column for name, column in episodes.items() if name != left_out},
    )
    number = np.concatenate([np.full(length, k) for k, length in enumerate(LENGTHS)])
    frame = np.concatenate([np.arange(length) for length in LENGTHS])
    pose = np.zeros((len(frame), 7), np.float32)
    pose[:, 0], pose[:, 3] = 10 * number + frame, length_of_quaternion
    data = {
        "observation.pose": list(pose),
        "action": list(np.zeros((len(frame), 2), np.float32)),
        "timestamp": (frame / 25).astype(np.float32),
        "frame_index": frame,
        "episode_index": number,
        "index": np.arange(len(frame)),
    }
    write_parquet(
        root / "data/chunk-000/file-000.parquet",
        {name: column for name, column in data.items() if name != left_out},
    )
    return root
