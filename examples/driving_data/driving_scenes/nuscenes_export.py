"""Driving scenes in the format of nuScenes: the thirteen tables, pictures, and what a lidar would measure."""

import hashlib
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from driving_scenes.errors import DatasetExistsError, SettingsError
from driving_scenes.frames import DrivingScenes, Frame
from driving_scenes.geometry import rotation_about_z, transform_points, yaw_of

__all__ = ["export_nuscenes", "lidar_points"]

Floats = NDArray[np.float64]
Record = dict[str, Any]

# By the categories of driving_scenes: the name, and the attributes of what moves and of what stands.
_CATEGORIES = {
    "car": ("vehicle.car", "vehicle.moving", "vehicle.stopped"),
    "truck": ("vehicle.truck", "vehicle.moving", "vehicle.stopped"),
    "pedestrian": ("human.pedestrian.adult", "pedestrian.moving", "pedestrian.standing"),
    "cyclist": ("vehicle.bicycle", "cycle.with_rider", "cycle.with_rider"),
}
_LEVELS = ("v0-40", "v40-60", "v60-80", "v80-100")
_MOVES_MPS = 0.2
# As in nuScenes: the lidar stands above the vehicle and looks to the right, so that its y axis points ahead.
_EGO_FROM_LIDAR = np.eye(4)
_EGO_FROM_LIDAR[:3, :3] = rotation_about_z(-0.5 * math.pi)
_EGO_FROM_LIDAR[:3, 3] = (0.94, 0.0, 1.84)
_RING_ANGLES = np.radians(np.linspace(-30.0, 10.0, 32))
_RAYS_PER_TURN = 360
_RANGE_M = 70.0


def export_nuscenes(
    scenes: DrivingScenes, root: str | Path, *, version: str = "v1.0-mini", frames_per_keyframe: int = 1
) -> Path:
    """Write a data set in the format of nuScenes. The folder appears when everything is written.

    Objects are annotated where the lidar or a camera sees them. Their velocities, and boxes between keyframes,
    follow from the annotations, as in nuScenes.

    Args:
        scenes: what is written.
        root: a folder that is free.
        version: the name of the folder of the tables.
        frames_per_keyframe: every how many-th frame is a keyframe; those between become sweeps, without boxes.

    Returns:
        The folder.

    Raises:
        DatasetExistsError: the folder is not free.
        SettingsError: `frames_per_keyframe` is not positive.

    Example:
        >>> import tempfile
        >>> from driving_scenes import export_nuscenes, generate_scenes
        >>> scenes = generate_scenes(num_sequences=1, image_hw=(32, 48))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     root = export_nuscenes(scenes, f"{folder}/nuscenes")
        ...     sorted(path.stem for path in (root / "v1.0-mini").iterdir())[:4]
        ['attribute', 'calibrated_sensor', 'category', 'ego_pose']
    """
    if frames_per_keyframe < 1:
        raise SettingsError(f"frames_per_keyframe must be at least 1, got {frames_per_keyframe}; 1 has no sweeps.")
    root = Path(root).absolute()
    if root.exists() and any(root.iterdir()):
        raise DatasetExistsError(f"The target must be free: '{root}' holds something. Choose another folder.")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=root.parent) as folder:
        made = Path(folder) / "made"
        export = _Export(scenes, made, frames_per_keyframe)
        for sequence in range(len(scenes.sequence_names)):
            export.add_scene(sequence)
        export.write(version)
        os.replace(made, root)
    return root


def lidar_points(frame: Frame) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """What a spinning lidar would measure: rays that end at the ground or at a box.

    Args:
        frame: the frame.

    Returns:
        Points (P, 5) in coordinates of the lidar: x, y, z, intensity, ring; and how many lie on each box (N,).
    """
    azimuths = np.linspace(0.0, 2.0 * math.pi, _RAYS_PER_TURN, endpoint=False)
    rings, azimuths = (grid.ravel() for grid in np.meshgrid(np.arange(len(_RING_ANGLES)), azimuths, indexing="ij"))
    heights = _RING_ANGLES[rings]
    rays = np.stack(
        [np.cos(heights) * np.cos(azimuths), np.cos(heights) * np.sin(azimuths), np.sin(heights)], axis=-1
    )
    origin = _EGO_FROM_LIDAR[:3, 3]
    rays_ego = rays @ _EGO_FROM_LIDAR[:3, :3].T
    distances = np.where(rays_ego[:, 2] < -1e-6, -origin[2] / np.minimum(rays_ego[:, 2], -1e-6), np.inf)
    hits = np.full(len(rays), -1)
    for row, (centre, size, yaw) in enumerate(zip(frame.centres, frame.sizes, frame.yaws, strict=True)):
        to_box = rotation_about_z(-yaw)
        start, direction = to_box @ (origin - centre), rays_ego @ to_box.T
        with np.errstate(divide="ignore", invalid="ignore"):
            slabs = np.stack([(side * 0.5 * size - start) / direction for side in (-1.0, 1.0)])
        enters, leaves = slabs.min(axis=0).max(axis=1), slabs.max(axis=0).min(axis=1)
        is_nearer = (enters < leaves) & (enters > 0.0) & (enters < distances)
        distances[is_nearer], hits[is_nearer] = enters[is_nearer], row
    kept = distances < _RANGE_M
    intensities = np.where(hits < 0, 12.0, 60.0)
    points = np.column_stack([rays[kept] * distances[kept, None], intensities[kept], rings[kept]])
    return points.astype(np.float32), np.bincount(hits[kept & (hits >= 0)], minlength=len(frame.centres))


class _Export:
    """The tables that grow with each scene."""

    def __init__(self, scenes: DrivingScenes, root: Path, frames_per_keyframe: int) -> None:
        self._scenes, self._root, self._stride = scenes, root, frames_per_keyframe
        names = dict.fromkeys(name for of in _CATEGORIES.values() for name in of[1:])
        self._tables: dict[str, list[Record]] = {
            "category": [_named("category", of[0], description="") for of in _CATEGORIES.values()],
            "attribute": [_named("attribute", name, description="") for name in names],
            "visibility": [
                {"token": str(number), "level": level, "description": ""}
                for number, level in enumerate(_LEVELS, start=1)
            ],
            "sensor": [],
            "calibrated_sensor": [],
            **{name: [] for name in ("ego_pose", "instance", "log", "map", "sample", "sample_annotation")},
            **{name: [] for name in ("sample_data", "scene")},
        }
        self._channels = [f"CAM_{name}" for name in scenes.camera_names] + ["LIDAR_TOP"]
        for channel in self._channels:
            modality = "lidar" if channel == "LIDAR_TOP" else "camera"
            record = {"token": _token("sensor", channel), "channel": channel, "modality": modality}
            self._tables["sensor"].append(record)
            for kind in ("samples", "sweeps"):
                (root / kind / channel).mkdir(parents=True, exist_ok=True)

    def add_scene(self, sequence: int) -> None:
        """Write the files of a sequence, and add its records."""
        scenes, tables = self._scenes, self._tables
        first = sum(scenes.sequence_lengths[:sequence])
        frames = range(first, first + scenes.sequence_lengths[sequence])
        keyframes = frames[:: self._stride]
        frames = frames[: keyframes[-1] - first + 1]  # nuScenes ends with a keyframe
        scene, log = _token("scene", sequence), _token("log", sequence)
        samples = [_token("sample", index) for index in keyframes]
        name = f"scene-{sequence + 1:04d}"
        tables["scene"].append(
            {
                **{"token": scene, "log_token": log, "name": name, "description": scenes.sequence_names[sequence]},
                **{"nbr_samples": len(samples), "first_sample_token": samples[0]},
                "last_sample_token": samples[-1],
            }
        )
        tables["log"].append(
            {
                **{"token": log, "logfile": f"generated-{name}", "vehicle": "generated"},
                **{"date_captured": "2020-09-13", "location": "arc-road"},
            }
        )
        for place, index in enumerate(frames):
            frame = scenes.frames[index]
            number = -(-place // self._stride)  # sweeps belong to the keyframe that follows
            is_key = place % self._stride == 0
            if place == 0:
                self._add_calibrations(sequence, frame)
            if is_key:
                record = {"token": samples[number], "timestamp": _microseconds(frame), "scene_token": scene}
                tables["sample"].append({**record, **_neighbours(samples, number)})
            self._add_records(sequence, frame, samples[number], list(frames), place, is_key=is_key)

    def _add_calibrations(self, sequence: int, frame: Frame) -> None:
        for number, channel in enumerate(self._channels):
            is_camera = channel != "LIDAR_TOP"
            matrix = frame.ego_from_camera[number] if is_camera else _EGO_FROM_LIDAR
            record = {"token": _token("calibration", sequence, channel), "sensor_token": _token("sensor", channel)}
            intrinsics = frame.intrinsics[number].tolist() if is_camera else []
            self._tables["calibrated_sensor"].append({**record, **_pose(matrix), "camera_intrinsic": intrinsics})

    def _add_records(
        self, sequence: int, frame: Frame, sample: str, frames: list[int], place: int, *, is_key: bool
    ) -> None:
        pose = _token("ego_pose", frame.index)
        self._tables["ego_pose"].append(
            {"token": pose, "timestamp": _microseconds(frame), **_pose(frame.world_from_ego)}
        )
        points, num_points = lidar_points(frame)
        for number, channel in enumerate(self._channels):
            is_camera = channel != "LIDAR_TOP"
            suffix = "jpg" if is_camera else "pcd.bin"
            file = f"{'samples' if is_key else 'sweeps'}/{channel}/{frame.index:06d}.{suffix}"
            if is_camera:
                (self._root / file).write_bytes(frame.jpegs[number].tobytes())
            else:
                points.tofile(self._root / file)
            height, width = (int(side) for side in frame.image_hw[number]) if is_camera else (0, 0)
            tokens = [_token("data", channel, index) for index in frames]
            self._tables["sample_data"].append(
                {
                    **{"token": tokens[place], "sample_token": sample, "ego_pose_token": pose},
                    "calibrated_sensor_token": _token("calibration", sequence, channel),
                    **{"timestamp": _microseconds(frame), "fileformat": suffix.split(".")[0]},
                    **{"is_key_frame": is_key, "height": height, "width": width, "filename": file},
                    **_neighbours(tokens, place),
                }
            )
        if is_key:
            self._add_annotations(frame, sample, num_points)

    def _add_annotations(self, frame: Frame, sample: str, num_points: NDArray[np.int64]) -> None:
        centres = transform_points(frame.world_from_ego, frame.centres)
        yaws = frame.yaws + yaw_of(frame.world_from_ego)
        visible = frame.visibility.max(axis=1, initial=0.0)
        for row in np.flatnonzero((visible > 0.0) | (num_points > 0)):
            category = self._scenes.category_names[frame.category_ids[row]]
            name, moving, standing = _CATEGORIES[category]
            speed = float(np.linalg.norm(frame.velocities[row]))
            length, width, height = frame.sizes[row].tolist()
            self._tables["sample_annotation"].append(
                {
                    "token": _token("annotation", frame.index, int(frame.track_ids[row])),
                    **{"sample_token": sample, "instance_token": _token("instance", int(frame.track_ids[row]))},
                    "category_token": _token("category", name),
                    "visibility_token": str(1 + int(np.searchsorted([0.4, 0.6, 0.8], visible[row]))),
                    "attribute_tokens": [_token("attribute", moving if speed > _MOVES_MPS else standing)],
                    **{"translation": centres[row].tolist(), "size": [width, length, height]},
                    "rotation": _quaternion(float(yaws[row])),
                    **{"num_lidar_pts": int(num_points[row]), "num_radar_pts": 0},
                }
            )

    def write(self, version: str) -> None:
        """Write the tables."""
        tables = self._tables
        tracks: dict[str, list[Record]] = {}
        for annotation in tables["sample_annotation"]:
            tracks.setdefault(annotation["instance_token"], []).append(annotation)
        for instance, annotations in tracks.items():
            tokens = [annotation["token"] for annotation in annotations]
            for place, annotation in enumerate(annotations):
                category = annotation.pop("category_token")
                annotation.update(_neighbours(tokens, place))
            record = {"token": instance, "category_token": category, "nbr_annotations": len(tokens)}
            tables["instance"].append(
                {**record, "first_annotation_token": tokens[0], "last_annotation_token": tokens[-1]}
            )
        (self._root / "maps").mkdir()
        Image.new("L", (1, 1)).save(self._root / "maps" / "blank.png")
        record = {"token": _token("map"), "category": "semantic_prior", "filename": "maps/blank.png"}
        tables["map"].append({**record, "log_tokens": [log["token"] for log in tables["log"]]})
        folder = self._root / version
        folder.mkdir()
        for name, records in tables.items():
            (folder / f"{name}.json").write_text(json.dumps(records, indent=0), encoding="utf-8")


def _token(*parts: object) -> str:
    return hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def _named(kind: str, name: str, **more: str) -> Record:
    return {"token": _token(kind, name), "name": name, **more}


def _neighbours(tokens: list[str], place: int) -> Record:
    return {
        "prev": tokens[place - 1] if place else "",
        "next": tokens[place + 1] if place + 1 < len(tokens) else "",
    }


def _microseconds(frame: Frame) -> int:
    return round(frame.timestamp_s * 1e6)


def _quaternion(yaw: float) -> list[float]:
    return [math.cos(0.5 * yaw), 0.0, 0.0, math.sin(0.5 * yaw)]


def _pose(matrix: Floats) -> Record:
    """Translation, and rotation as a quaternion, w first: of the largest eigenvalue (Bar-Itzhack, 2000)."""
    r = matrix[:3, :3]
    k = np.array(
        [
            [r[0, 0] - r[1, 1] - r[2, 2], 0, 0, 0],
            [r[0, 1] + r[1, 0], r[1, 1] - r[0, 0] - r[2, 2], 0, 0],
            [r[0, 2] + r[2, 0], r[1, 2] + r[2, 1], r[2, 2] - r[0, 0] - r[1, 1], 0],
            [r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1], r[0, 0] + r[1, 1] + r[2, 2]],
        ]
    )
    x, y, z, w = np.linalg.eigh(k)[1][:, -1].tolist()
    sign = -1.0 if w < 0.0 else 1.0
    return {"translation": matrix[:3, 3].tolist(), "rotation": [sign * part for part in (w, x, y, z)]}
