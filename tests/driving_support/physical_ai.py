"""A small data set in the published layout of PhysicalAI-AV, in ZIP files, whose cameras are not synchronous."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.videos import make_video

from accvlab.driving_data.datasets.driving import poses

from .clip_data import write_parquet

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


def write_published(root: Path, *, compression: int = zipfile.ZIP_STORED) -> Path:
    """Write the data set."""
    for chunk in sorted(set(CLIPS.values())):
        of_chunk = [clip for clip in CLIPS if CLIPS[clip] == chunk]
        for camera in CAMERAS:
            _write_camera(root, chunk, of_chunk, camera, compression)
        _zip_tables(
            root / f"labels/egomotion/egomotion.chunk_{chunk:04d}.zip",
            {f"{clip}.egomotion.parquet": _ego_motion() for clip in of_chunk},
        )
        _write_calibration(root, chunk, of_chunk)
    write_features(root)
    write_clip_index(root)
    return root


FEATURE_COLUMNS = ("feature", "directory", "chunk_path", "clip_files_in_zip")


def write_features(root: Path, names: Sequence[str] = FEATURE_COLUMNS) -> None:
    """Write the table of features, whose columns have these names."""
    rows = []
    for camera in CAMERAS:
        stem = f"{{clip_id}}.{camera}"
        members = {"video": f"{stem}.mp4", "frame_timestamps": f"{stem}.timestamps.parquet"}
        chunk = f"camera/{camera}/{camera}.chunk_{{chunk_id:04d}}.zip"
        rows.append([camera, "camera", chunk, json.dumps(members)])
    members = {"egomotion": "{clip_id}.egomotion.parquet"}
    chunk = "labels/egomotion/egomotion.chunk_{chunk_id:04d}.zip"
    rows.append(["egomotion", "labels", chunk, json.dumps(members)])
    for name in ("camera_intrinsics", "sensor_extrinsics", "vehicle_dimensions"):
        chunk = f"calibration/{name}/{name}.chunk_{{chunk_id:04d}}.parquet"
        rows.append([name, "calibration", chunk, ""])
    with (root / "features.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def write_clip_index(root: Path, **others: Any) -> None:
    """Write the list of clips; columns that are None are left out."""
    columns: dict[str, Any] = {
        "clip_id": [*CLIPS],
        "chunk": [*CLIPS.values()],
        "event_t0s": [*EVENTS_US.values()],
        "end_timestamp": [2_000_000] * len(CLIPS),
    }
    kept = {name: column for name, column in {**columns, **others}.items() if column is not None}
    write_parquet(root / "clip_index.parquet", kept)


def unpacked(root: Path, target: Path) -> Path:
    """Write the same data set with its archives unpacked, each in its folder."""
    for path in root.rglob("*"):
        place = target / path.relative_to(root)
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(place.parent)
        elif path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return target


def _write_camera(root: Path, chunk: int, clips: list[str], camera: str, compression: int) -> None:
    folder = root / "camera" / camera
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{camera}.chunk_{chunk:04d}.zip", "w", compression) as archive:
        for clip in clips:
            video = make_video(
                folder / "made.mp4", NUM_FRAMES, "libx264", first_number=first_number(clip, camera), rate=30
            )
            archive.write(video, f"{clip}.{camera}.mp4")
            video.unlink()
            table = folder / "made.parquet"
            write_parquet(table, {"timestamp": frame_times(camera)})
            archive.write(table, f"{clip}.{camera}.timestamps.parquet")
            table.unlink()


def _zip_tables(path: Path, tables: dict[str, dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, columns in tables.items():
            table = path.with_suffix(".parquet")
            write_parquet(table, columns)
            archive.write(table, name)
            table.unlink()


def _ego_motion() -> dict[str, Any]:
    times = ego_times()
    known = world_from_ego(times)
    quaternions = poses.quaternion_of_rotation(known[..., :3])
    columns = dict(zip(("qw", "qx", "qy", "qz"), quaternions.T, strict=True))
    return {"timestamp": times, **columns, **dict(zip("xyz", known[..., 3].T, strict=True))}


def mounted(camera: str) -> np.ndarray:
    """Where a camera is on the vehicle, ``(3, 4)``."""
    turn = poses.rotation_of_quaternion(poses.quaternion_of_yaw(CAMERAS[camera][0]))
    axes = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])
    return poses.pose(turn @ axes, [1.7, 0.0, 1.4])


def _write_calibration(root: Path, chunk: int, clips: list[str]) -> None:
    pairs = [(clip, camera) for clip in clips for camera in CAMERAS]
    ids, cameras = [clip for clip, _ in pairs], [camera for _, camera in pairs]
    names = ["width", "height", "cx", "cy", *(f"{way}_poly_{power}" for way in ("bw", "fw") for power in range(5))]
    lens = {name: [value] * len(pairs) for name, value in zip(names, LENS, strict=True)}
    place = np.stack([mounted(camera) for camera in cameras])
    quaternions = poses.quaternion_of_rotation(place[..., :3])
    outside = dict(zip(("qw", "qx", "qy", "qz"), quaternions.T, strict=True))
    outside |= dict(zip("xyz", place[..., 3].T, strict=True))
    sizes = ["length", "width", "height", "rear_axle_to_bbox_center", "wheelbase", "track_width"]
    tables: dict[str, dict[str, Any]] = {
        "camera_intrinsics": {"clip_id": ids, "camera_name": cameras, **lens},
        "sensor_extrinsics": {"clip_id": ids, "sensor_name": cameras, **outside},
        "vehicle_dimensions": {
            "clip_id": clips,
            **{name: [value] * len(clips) for name, value in zip(sizes, VEHICLE, strict=True)},
        },
    }
    for name, columns in tables.items():
        write_parquet(root / f"calibration/{name}/{name}.chunk_{chunk:04d}.parquet", columns)
