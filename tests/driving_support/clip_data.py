"""Small clips of PhysicalAI-AV."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
from support.videos import encoded_video

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.testing.layouts import physical_ai_files
from accvlab.driving_data.testing.written_files import write_files

FRONT, LEFT = "camera_front_wide_120fov", "camera_cross_left_120fov"
NUM_FRAMES = 8
FRAME_TIMES = 1_000_000 + np.arange(NUM_FRAMES) * 33_000
LEFT_TIMES = FRAME_TIMES[:6] + 5_000  # it ends earlier
AXES = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


def world_from_ego(time_us: float) -> np.ndarray:
    """As the vehicle drives: a curve about z."""
    seconds = time_us / 1e6
    yaw = 0.1 + 0.3 * seconds
    pose = np.eye(4)
    pose[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    pose[:3, 3] = [20 * seconds, 3 - seconds, 0.1 * seconds]
    return pose


def write_physical_ai(root: Path, left_out: str = "", ego_end: int = 1_400_000) -> Path:
    """Write a clip, unpacked; ``left_out`` is a column."""
    times = {FRONT: FRAME_TIMES, LEFT: LEFT_TIMES}
    first = {FRONT: 0, LEFT: 100}
    ego_times = np.arange(990_000, ego_end, 10_000)
    backward, forward = [0.0, 1 / 60, 0.0, 0.0, 0.0], [0.0, [60.0, 61.0], [1.0, 2.0], 0.0, 0.0]
    packed = physical_ai_files(
        {"clip-1": 3},
        {FRONT: poses.pose(AXES, [1.7, 0.0, 1.4]), LEFT: poses.pose(AXES, [1.5, 0.4, 1.3])},
        video_of=lambda clip, camera: encoded_video(
            len(times[camera]), "libx264", "mp4", first_number=first[camera]
        ).tobytes(),
        times_of=lambda camera: times[camera],
        motion=(ego_times, np.stack([world_from_ego(time)[:3] for time in ego_times])),
        lens=[96, 64, [48.0, 47.0], [32.0, 31.0], *backward, *forward],
        vehicle=[4.8, 2.0, 1.5, 1.4, 2.8, 1.6],
        split=["train"],
    )
    files = {
        str(PurePosixPath(name).with_name(member)): content
        for name, archive in packed.items()
        for member, content in (archive if name.endswith(".zip") else {Path(name).name: archive}).items()
    }
    del files["features.csv"]
    yaw = poses.quaternion_of_yaw([0.2, 0.25, -1.0])
    files["labels/obstacle.offline/clip-1.obstacle.offline.parquet"] = {
        "timestamp_us": [1_010_000, 1_110_000, 1_020_000],
        "track_id": [11, 11, 12],
        "label_class": ["Automobile", "Automobile", "person"],
        "center_x": [15.0, 13.0, 8.0],
        "center_y": [1.0, 1.0, -4.0],
        "center_z": [0.8, 0.8, 0.9],
        "size_x": [4.4, 4.4, 0.6],
        "size_y": [1.9, 1.9, 0.7],
        "size_z": [1.5, 1.5, 1.8],
        **{f"orientation_{axis}": column for axis, column in zip("wxyz", yaw.T, strict=True)},
    }
    for content in files.values():
        if isinstance(content, dict):
            content.pop(left_out, None)
    return write_files(root, files)
