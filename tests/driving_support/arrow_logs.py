"""Logs as py123d 0.7 writes them, made with pyarrow alone."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from accvlab.driving_data.datasets.driving import poses

START_US = 1_600_000_000_000_000
PERIOD_US = 100_000
NUM_FRAMES = 4
CAMERAS = ("pcam_f0", "pcam_l0")
WIDTH, HEIGHT = 64, 48


def values_of(pose: np.ndarray) -> np.ndarray:
    """x, y, z, qw, qx, qy, qz."""
    return np.concatenate([pose[..., 3], poses.quaternion_of_rotation(pose[..., :3])], axis=-1)


class ArrowLog:
    """What is in a log, and the files of it. Change what you like, then `write`."""

    def __init__(self, seed: int = 0, split: str = "made_train", name: str = "log-a") -> None:
        rng = np.random.default_rng(seed)
        self.head: dict[str, Any] = {"dataset": "made", "split": split, "log_name": name, "location": "here"}
        self.times = START_US + np.arange(NUM_FRAMES) * PERIOD_US
        self.ego_times = START_US + np.arange(-2, 2 * NUM_FRAMES + 2) * (PERIOD_US // 2)
        turn = 0.02 * np.arange(len(self.ego_times))
        self.world_from_ego = poses.pose(
            poses.rotation_of_quaternion(poses.quaternion_of_yaw(0.4 + turn)),
            np.stack([100 + 3.0 * np.arange(len(turn)), 50 + 0.5 * turn, np.full(len(turn), 1.0)], axis=-1),
        )
        self.motion = rng.normal(size=(len(self.ego_times), 9))
        axes = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])  # x right, y down, z ahead
        left = poses.rotation_of_quaternion(poses.quaternion_of_yaw(np.pi / 3)) @ axes
        self.ego_from_camera = {
            "pcam_f0": poses.pose(axes, [1.5, 0.1, 1.6]),
            "pcam_l0": poses.pose(left, [1.2, 0.5, 1.6]),
        }
        self.camera_metadata: dict[str, dict[str, Any]] = {
            camera: {
                "camera_model": "pinhole",
                "camera_name": camera.upper(),
                "camera_id": number,
                "intrinsics": [60.0 + number, 61.0, 32.0, 24.0, 0.0],
                "distortion": None,
                "width": WIDTH,
                "height": HEIGHT,
                "camera_to_imu_se3": values_of(self.ego_from_camera[camera]).tolist(),
                "is_undistorted": True,
            }
            for number, camera in enumerate(CAMERAS)
        }
        self.camera_times = {camera: self.times + 10_000 * (k + 1) for k, camera in enumerate(CAMERAS)}
        self.images: dict[str, list[Any]] = {
            camera: [jpeg(10 * number + k) for number in range(NUM_FRAMES)] for k, camera in enumerate(CAMERAS)
        }
        self.points = [rng.normal(size=(5 + n, 4)).astype(np.float32) for n in range(NUM_FRAMES)]
        self.boxes = [  # in the vehicle: x, y, z, yaw, l, w, h
            [(12.0 + n, 1.0, 0.5, 0.3, 4.5, 2.0, 1.6), (20.0, 14.0, 0.2, -2.0, 0.8, 0.7, 1.8)][: 2 - n % 2]
            for n in range(NUM_FRAMES)
        ]
        self.tracks = [["car-1", "person-7"][: len(boxes)] for boxes in self.boxes]
        self.labels = [[18, 16][: len(boxes)] for boxes in self.boxes]
        self.label_class = "py123d.parser.registry.AV2SensorBoxDetectionLabel"
        self.sync: dict[str, list[Any]] = {}
        self.left_out: set[str] = set()
        self.columns: dict[str, tuple[list[Any], Any]] = {}  # that are others than by these values
        self.compression: str | None = None
        self.stored_poses = True

    def ego_at_frames(self) -> np.ndarray:
        return self.world_from_ego[2::2][:NUM_FRAMES]

    def ego_at(self, time_us: int) -> np.ndarray:
        """On the straight line between two poses, turning evenly about z: without quaternions."""
        part = (time_us - self.ego_times[0]) / (PERIOD_US // 2)
        before = int(part)
        place = self.world_from_ego[before, :, 3] * (1 - part % 1)
        place += self.world_from_ego[before + 1, :, 3] * (part % 1)
        yaw = 0.4 + 0.02 * part
        rotation = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
        return np.concatenate([rotation, place[:, None]], axis=1)

    def global_boxes(self, frame: int) -> np.ndarray:
        """x, y, z, qw, qx, qy, qz, l, w, h of the boxes of a frame, in the world."""
        ego = self.ego_at_frames()[frame]
        rows = []
        for x, y, z, yaw, *size in self.boxes[frame]:
            box = poses.pose_of_quaternion(poses.quaternion_of_yaw(yaw), [x, y, z])
            rows.append([*values_of(poses.joined(ego, box)), *size])
        return np.array(rows).reshape(-1, 10)

    def write(self, root: Path) -> Path:
        import pyarrow as pa

        folder = root / self.head["split"] / self.head.get("log_name", "log")
        folder.mkdir(parents=True, exist_ok=True)
        ms, times, ego = pa.int64(), self.times.tolist(), "ego_state_se3"
        tables: dict[str, tuple[dict[str, Any], dict[str, tuple[list[Any], Any]]]] = {
            ego: (
                {"vehicle_name": "made"},
                {
                    "timestamp_us": (self.ego_times.tolist(), ms),
                    "imu_se3": (values_of(self.world_from_ego).tolist(), pa.list_(pa.float64(), 7)),
                    "dynamic_state_se3": (self.motion.tolist(), pa.list_(pa.float64(), 9)),
                },
            ),
            **{
                f"camera.{camera}": (metadata, self._camera(camera))
                for camera, metadata in self.camera_metadata.items()
            },
            "lidar.lidar_merged": (
                {},
                {"timestamp_us": (times, ms), "data": ([_cloud(each) for each in self.points], pa.binary())},
            ),
            "box_detections_se3": ({"box_detection_label_class": self.label_class}, self._boxes()),
        }
        for modality, (metadata, columns) in tables.items():
            if modality not in self.left_out:
                named = {f"{modality}.{name}": column for name, column in columns.items()}
                self._write(folder / modality, metadata, named)
        rows = list(range(NUM_FRAMES))
        ids = [uuid.uuid5(uuid.NAMESPACE_URL, f"{self.head}{n}").bytes for n in rows]
        keys = [path.stem for path in sorted(folder.glob("*.arrow")) if path.stem != "sync"]
        sync = dict.fromkeys(keys, rows) | {ego: [2 + 2 * n for n in rows]} | self.sync
        if "sync" not in self.left_out:
            of_frames = {"sync.uuid": (ids, pa.binary(16)), "sync.timestamp_us": (times, ms)}
            self._write(folder / "sync", self.head, of_frames | {key: (each, ms) for key, each in sync.items()})
        return folder

    def _camera(self, camera: str) -> dict[str, tuple[list[Any], Any]]:
        import pyarrow as pa

        images, times = self.images[camera], self.camera_times[camera]
        stored: list[Any] = [None] * len(times)
        if self.stored_poses:
            mounted = self.ego_from_camera[camera]
            stored = [values_of(poses.joined(self.ego_at(time), mounted)).tolist() for time in times]
        return {
            "timestamp_us": (times.tolist(), pa.int64()),
            "data": (images, {str: pa.string(), bytes: pa.binary(), int: pa.int32()}[type(images[0])]),
            "camera_to_global_se3": (stored, pa.list_(pa.float64(), 7)),
        }

    def _boxes(self) -> dict[str, tuple[list[Any], Any]]:
        import pyarrow as pa

        def of_frames(values: list[Any]) -> list[list[Any]]:
            return [values[: len(boxes)] for boxes in self.boxes]

        return {
            "timestamp_us": (self.times.tolist(), pa.int64()),
            "bounding_box_se3": (
                [self.global_boxes(frame).tolist() for frame in range(NUM_FRAMES)],
                pa.list_(pa.list_(pa.float64(), 10)),
            ),
            "track_token": (self.tracks, pa.list_(pa.string())),
            "label": (self.labels, pa.list_(pa.uint16())),
            "velocity_3d": (of_frames([[1.0, 2.0, 0.5], None]), pa.list_(pa.list_(pa.float64(), 3))),
            "num_lidar_points": (of_frames([7, None]), pa.list_(pa.int32())),
        }

    def _write(self, path: Path, metadata: dict[str, Any], columns: dict[str, tuple[list[Any], Any]]) -> None:
        import msgpack
        import pyarrow as pa

        kept = {name: self.columns.get(name, each) for name, each in columns.items() if name not in self.left_out}
        schema = pa.schema(
            [(name, dtype) for name, (_, dtype) in kept.items()], metadata={b"metadata": msgpack.packb(metadata)}
        )
        options = pa.ipc.IpcWriteOptions(compression=self.compression)
        num_rows = len(next(iter(kept.values()))[0])
        rows_per_batch = 3 if path.name.startswith("camera.") else 100
        with pa.ipc.new_file(f"{path}.arrow", schema, options=options) as writer:
            for first in range(0, num_rows, rows_per_batch):
                rows = slice(first, first + rows_per_batch)
                arrays = [pa.array(values[rows], dtype) for values, dtype in kept.values()]
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def _cloud(points: np.ndarray) -> bytes:
    import pyarrow as pa

    names = ("x", "y", "z", "intensity")
    batch = pa.RecordBatch.from_pydict(dict(zip(names, points.T.copy(), strict=True)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def jpeg(grey: int, extension: str = ".jpg") -> bytes:
    """An image of one grey level."""
    done, content = cv2.imencode(extension, np.full((HEIGHT, WIDTH, 3), grey, np.uint8))
    assert done
    return content.tobytes()
