"""A small sensor log of Argoverse 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.testing.written_files import picture, write_files

START = 315_966_265_000_000_000
LIDAR_TIMES = START + np.arange(3) * 100_000_000
IMAGE_TIMES = {
    "ring_front_center": START + np.arange(6) * 50_000_000 + 12_000_000,
    "ring_side_left": START + np.array([-20, 30, 80, 180]) * 1_000_000,
}
AXES = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


class ArgoverseData:
    """What the tables of a log hold. Change what you like, then `write`."""

    def __init__(self) -> None:
        all_times = np.concatenate([LIDAR_TIMES, *IMAGE_TIMES.values()])
        self.pose_times = np.sort(all_times)
        part = (self.pose_times - START) / 1e9
        self.quaternions = poses.quaternion_of_yaw(0.3 + 0.2 * part)
        self.places = np.stack([1000 + 10 * part, 2000 - 2 * part, 15 + part], axis=-1)
        self.sensors = {
            "ring_front_center": (AXES, [1.6, 0.0, 1.4]),
            "ring_side_left": (poses.rotation_of_quaternion(poses.quaternion_of_yaw(1.5)) @ AXES, [1.3, 0.3, 1.4]),
            "up_lidar": (np.eye(3), [1.35, 0, 1.6]),
        }
        self.intrinsics: dict[str, list[float]] = {
            "ring_front_center": [80.0, 80.0, 32.0, 24.0],
            "ring_side_left": [70.0, 71.0, 31.0, 25.0],
        }
        self.boxes: list[tuple[Any, ...]] = [  # frame, track, category, l w h, yaw, x y z, points
            (0, "track-b", "REGULAR_VEHICLE", 4.5, 2.0, 1.6, 0.25, 12.0, 2.0, 0.75, 30),
            (2, "track-b", "REGULAR_VEHICLE", 4.5, 2.0, 1.6, 0.3, 9.0, 2.0, 0.75, 0),
            (0, "track-a", "PEDESTRIAN", 0.7, 0.6, 1.8, -3.0, 2.0, 20.0, 0.9, 4),
        ]
        self.left_out: set[str] = set()

    def write(self, root: Path, name: str = "log-1") -> Path:
        wxyz, xyz = ("qw", "qx", "qy", "qz"), ("tx_m", "ty_m", "tz_m")
        rotations = np.array([rotation for rotation, _ in self.sensors.values()])
        mounted = np.array([place for _, place in self.sensors.values()])
        columns = [list(column) for column in zip(*self.boxes, strict=True)]
        tables = {
            "city_SE3_egovehicle.feather": {
                "timestamp_ns": self.pose_times,
                **_named(wxyz, self.quaternions),
                **_named(xyz, self.places),
            },
            "calibration/egovehicle_SE3_sensor.feather": {
                "sensor_name": list(self.sensors),
                **_named(wxyz, poses.quaternion_of_rotation(rotations)),
                **_named(xyz, mounted),
            },
            "calibration/intrinsics.feather": {
                "sensor_name": list(self.intrinsics),
                **_named(("fx_px", "fy_px", "cx_px", "cy_px"), np.array(list(self.intrinsics.values()))),
                "k1": np.zeros(len(self.intrinsics)),
                "height_px": [48] * 2,
                "width_px": [64] * 2,
            },
            "annotations.feather": {
                "timestamp_ns": LIDAR_TIMES[columns[0]],
                "track_uuid": columns[1],
                "category": columns[2],
                **dict(zip(("length_m", "width_m", "height_m"), columns[3:6], strict=True)),
                **_named(wxyz, poses.quaternion_of_yaw(columns[6])),
                **dict(zip(xyz, columns[7:10], strict=True)),
                "num_interior_pts": columns[10],
            },
            **{f"sensors/lidar/{time}.feather": self.points(k) for k, time in enumerate(LIDAR_TIMES)},
        }
        kept = {
            path: {key: column for key, column in table.items() if f"{Path(path).name}:{key}" not in self.left_out}
            for path, table in tables.items()
        }
        images = {
            f"sensors/cameras/{camera}/{time}.jpg": picture((48, 64), number)
            for camera, times in IMAGE_TIMES.items()
            for number, time in enumerate(times)
        }
        return write_files(root / name, kept | images)

    def points(self, number: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(number)
        place = rng.normal(size=(3, 4 + number)).astype(np.float16)
        rest = {"intensity": rng.integers(0, 255, 4 + number).astype(np.uint8)}
        rest["laser_number"] = rng.integers(0, 63, 4 + number).astype(np.uint8)
        rest["offset_ns"] = rng.integers(0, 10**8, 4 + number).astype(np.int32)
        return dict(zip(("x", "y", "z"), place, strict=True)) | rest


def _named(names: tuple[str, ...], values: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(names, values.T, strict=True))
