"""A small sensor log of Argoverse 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from accvlab.driving_data.datasets.driving import poses

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
        folder = root / name
        (folder / "calibration").mkdir(parents=True)
        xyz, wxyz = ("tx_m", "ty_m", "tz_m"), ("qw", "qx", "qy", "qz")
        self._write(
            folder / "city_SE3_egovehicle.feather",
            {"timestamp_ns": self.pose_times}
            | dict(zip(wxyz, self.quaternions.T, strict=True))
            | dict(zip(xyz, self.places.T, strict=True)),
        )
        rotations = np.array([rotation for rotation, _ in self.sensors.values()])
        mounted = np.array([place for _, place in self.sensors.values()])
        self._write(
            folder / "calibration/egovehicle_SE3_sensor.feather",
            {"sensor_name": list(self.sensors)}
            | dict(zip(wxyz, poses.quaternion_of_rotation(rotations).T, strict=True))
            | dict(zip(xyz, mounted.T, strict=True)),
        )
        names = ("fx_px", "fy_px", "cx_px", "cy_px")
        self._write(
            folder / "calibration/intrinsics.feather",
            {"sensor_name": list(self.intrinsics)}
            | dict(zip(names, np.array(list(self.intrinsics.values())).T, strict=True))
            | {"k1": np.zeros(len(self.intrinsics)), "height_px": [48] * 2, "width_px": [64] * 2},
        )
        columns = [list(column) for column in zip(*self.boxes, strict=True)]
        self._write(
            folder / "annotations.feather",
            {
                "timestamp_ns": LIDAR_TIMES[columns[0]],
                "track_uuid": columns[1],
                "category": columns[2],
                **dict(zip(("length_m", "width_m", "height_m"), columns[3:6], strict=True)),
                **dict(zip(wxyz, poses.quaternion_of_yaw(columns[6]).T, strict=True)),
                **dict(zip(xyz, columns[7:10], strict=True)),
                "num_interior_pts": columns[10],
            },
        )
        for camera, times in IMAGE_TIMES.items():
            (folder / "sensors/cameras" / camera).mkdir(parents=True)
            for number, time in enumerate(times):
                image = np.full((48, 64, 3), 10 * number, np.uint8)
                cv2.imwrite(str(folder / f"sensors/cameras/{camera}/{time}.jpg"), image)
        (folder / "sensors/lidar").mkdir(parents=True)
        for number, time in enumerate(LIDAR_TIMES):
            self._write(folder / f"sensors/lidar/{time}.feather", self.points(number))
        return folder

    def points(self, number: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(number)
        place = rng.normal(size=(3, 4 + number)).astype(np.float16)
        rest = {"intensity": rng.integers(0, 255, 4 + number).astype(np.uint8)}
        rest["laser_number"] = rng.integers(0, 63, 4 + number).astype(np.uint8)
        rest["offset_ns"] = rng.integers(0, 10**8, 4 + number).astype(np.int32)
        return dict(zip(("x", "y", "z"), place, strict=True)) | rest

    def _write(self, path: Path, columns: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.feather

        kept = {name: column for name, column in columns.items() if f"{path.name}:{name}" not in self.left_out}
        pyarrow.feather.write_feather(pa.table(kept), str(path), compression="zstd")
