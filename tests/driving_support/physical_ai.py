"""A small data set in the published layout of PhysicalAI-AV, in ZIP files, whose cameras are not synchronous."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.videos import encoded_video

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.testing.layouts import physical_ai_files
from accvlab.driving_data.testing.written_files import write_files

CAMERAS = {  # with the bearing of their axis, and how much later than others they are, microseconds
    "camera_cross_left_120fov": (np.pi / 3, 4_000),
    "camera_front_wide_120fov": (0.0, 0),
    "camera_front_tele_30fov": (0.0, 21_000),
}
LEFT, FRONT, TELE = CAMERAS
CLIPS = {"clip-a": 0, "clip-b": 0, "clip-c": 7}  # with their chunks
NUM_FRAMES = 45
PERIOD_US = 33_333
FIRST_US = 500_000
GAP_US = 100_000  # of the wide camera, after frame 20
EVENTS_US = {"clip-a": [800_000, 1_500_000, 1_200_000], "clip-b": [1_333_333], "clip-c": [100_000]}
LENS = [96.0, 64.0, 48.0, 32.0, 0.0, 0.02, 1e-5, 0.0, 0.0, 0.0, 50.0, -1.0, 0.5, 0.0]
VEHICLE = [4.8, 2.0, 1.5, 1.4, 2.8, 1.6]


def frame_times(camera: str) -> np.ndarray:
    """Times of the frames of a camera, microseconds."""
    times = FIRST_US + CAMERAS[camera][1] + np.arange(NUM_FRAMES) * PERIOD_US
    return times + GAP_US * (np.arange(NUM_FRAMES) > 20) * (camera == FRONT)


def first_number(clip: str, camera: str) -> int:
    """Number in the picture of the first frame of a video."""
    return 300 * [*CLIPS].index(clip) + 100 * [*CAMERAS].index(camera)


def world_from_ego(times_us: Any) -> np.ndarray:
    """Poses, ``(..., 3, 4)``, on a curve that climbs, while the vehicle pitches."""
    seconds = np.asarray(times_us) / 1e6
    yaw, pitch = 0.2 + 0.3 * seconds, 0.05 * np.sin(seconds)
    zero = np.zeros_like(seconds)
    about_y = np.stack([np.cos(pitch / 2), zero, np.sin(pitch / 2), zero], axis=-1)
    quaternion = poses.product_of_quaternions(poses.quaternion_of_yaw(yaw), about_y)
    place = [40 * np.sin(0.3 * seconds), -40 * np.cos(0.3 * seconds), 0.2 * seconds**2]
    return poses.pose_of_quaternion(quaternion, np.stack(place, axis=-1))


def ego_times() -> np.ndarray:
    """Times of the known poses: every 10 ms, but for some noise, from 0.2 to 2.6 s."""
    noise = np.random.default_rng(0).integers(-400, 400, 241)
    return 200_000 + np.arange(241) * 10_000 + noise


def write_published(root: Path) -> Path:
    """Write the data set."""
    write_files(root, _files())
    write_clip_index(root)
    return root


def _files(video_of: Callable[[str, str], bytes] | None = None) -> dict[str, Any]:
    times = ego_times()
    return physical_ai_files(
        CLIPS,
        {camera: mounted(camera) for camera in CAMERAS},
        video_of=video_of or _video,
        times_of=frame_times,
        motion=(times, world_from_ego(times)),
        lens=LENS,
        vehicle=VEHICLE,
    )


def _video(clip: str, camera: str) -> bytes:
    first = first_number(clip, camera)
    return encoded_video(NUM_FRAMES, "libx264", "mp4", first_number=first, rate=30).tobytes()


def write_features(root: Path, names: Sequence[str] | None = None) -> None:
    """Write the table of features, whose columns may have other names."""
    first, *rows = _files(lambda clip, camera: b"")["features.csv"]
    write_files(root, {"features.csv": [names or first, *rows]})


def write_clip_index(root: Path, **others: Any) -> None:
    """Write the list of clips; columns that are None are left out."""
    columns: dict[str, Any] = {
        "clip_id": [*CLIPS],
        "chunk": [*CLIPS.values()],
        "event_t0s": [*EVENTS_US.values()],
        "end_timestamp": [2_000_000] * len(CLIPS),
    }
    kept = {name: column for name, column in {**columns, **others}.items() if column is not None}
    write_files(root, {"clip_index.parquet": kept})


def unpacked(root: Path, target: Path) -> Path:
    """Write the same data set with its archives unpacked, each in its folder."""
    shutil.copytree(root, target)
    for path in [*target.rglob("*.zip")]:
        shutil.unpack_archive(path, path.parent)
        path.unlink()
    return target


def mounted(camera: str) -> np.ndarray:
    """Where a camera is on the vehicle, ``(3, 4)``."""
    turn = poses.rotation_of_quaternion(poses.quaternion_of_yaw(CAMERAS[camera][0]))
    axes = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    return poses.pose(turn @ axes, [1.7, 0.0, 1.4])
