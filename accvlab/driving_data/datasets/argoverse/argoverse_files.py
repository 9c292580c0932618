# SPDX-License-Identifier: Apache-2.0
"""The files of one sensor log of Argoverse 2, as arrays. Times are nanoseconds."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving.arrow_files import poses_of_columns, read_columns, sizes_of_columns
from ..driving.trajectory import Trajectory, require_ascending

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

POSES = "city_SE3_egovehicle.feather"
_POSE = dict.fromkeys(("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m"), "number")
_SIZE = ("length_m", "width_m", "height_m")
_MOST_DEPTH = 2


def find_logs(root: Path) -> list[Path]:
    """Find the folders of logs: the folder itself, those in it, or those in the splits in it.

    Raises:
        FileError: There is none.
    """
    for depth in range(_MOST_DEPTH + 1):
        found = sorted(path.parent for path in root.glob("*/" * depth + POSES))
        if found:
            return found
    raise FileError(f"There is no log of Argoverse 2 in {str(root)!r}: no folder in it has a {POSES}.")


class ArgoverseLog:
    """One log. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        folder: Its folder.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; files are read when they are needed."""
        self.folder = folder

    @cached_property
    def ego(self) -> Trajectory:
        """Pose of the vehicle in the city."""
        path = self.folder / POSES
        columns = read_columns(path, {"timestamp_ns": "whole", **_POSE})
        if not len(columns["timestamp_ns"]):
            raise FileError(f"The file {str(path)!r} has no poses.")
        order = np.argsort(columns["timestamp_ns"], kind="stable")
        return Trajectory(columns["timestamp_ns"][order], poses_of_columns(columns, path, [*_POSE])[order])

    @cached_property
    def sensors(self) -> dict[str, Float64Array]:
        """Place of each sensor on the vehicle, ``(3, 4)``."""
        path = self.folder / "calibration" / "egovehicle_SE3_sensor.feather"
        columns = read_columns(path, {"sensor_name": "text", **_POSE})
        return dict(zip(columns["sensor_name"].tolist(), poses_of_columns(columns, path, [*_POSE]), strict=True))

    @cached_property
    def intrinsics(self) -> dict[str, Float64Array]:
        """Matrix of each camera, ``(3, 3)``; without distortion, which is small."""
        path = self.folder / "calibration" / "intrinsics.feather"
        names = ("fx_px", "fy_px", "cx_px", "cy_px")
        columns = read_columns(path, {"sensor_name": "text", **dict.fromkeys(names, "number")})
        found = {}
        for row, sensor in enumerate(columns["sensor_name"].tolist()):
            fx, fy, cx, cy = (float(columns[name][row]) for name in names)
            if not np.isfinite([fx, fy, cx, cy]).all() or fx <= 0 or fy <= 0:
                raise FileError(
                    f"Row {row} of {str(path)!r} must be a calibration with focal lengths above 0, got fx {fx}, "
                    f"fy {fy}, cx {cx}, cy {cy}."
                )
            found[sensor] = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        return found

    def calibration(self, camera: str) -> tuple[Float64Array, Float64Array]:
        """Intrinsics of a camera, and its place on the vehicle."""
        for name, known in (("intrinsics", self.intrinsics), ("egovehicle_SE3_sensor", self.sensors)):
            if camera not in known:
                path = self.folder / "calibration" / f"{name}.feather"
                raise FileError(
                    f"{str(path)!r} has no sensor {camera!r}, which has images. It has: {listed(known)}."
                )
        return self.intrinsics[camera], self.sensors[camera]

    @cached_property
    def cameras(self) -> list[str]:
        """Names of the cameras that have images, by name."""
        folder = self.folder / "sensors" / "cameras"
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def image_times(self, camera: str) -> Int64Array:
        """Times of the images of a camera, in order."""
        return _times_in(self.folder / "sensors" / "cameras" / camera, ".jpg")

    @cached_property
    def lidar_times(self) -> Int64Array:
        """Times of the lidar records, in order."""
        return _times_in(self.folder / "sensors" / "lidar", ".feather")

    @cached_property
    def annotations(self) -> dict[str, npt.NDArray[Any]] | None:
        """Columns of the boxes; None where the log has none (the split ``test``)."""
        path = self.folder / "annotations.feather"
        if not path.exists():
            return None
        columns = read_columns(
            path,
            {
                "timestamp_ns": "whole",
                "track_uuid": "text",
                "category": "text",
                **dict.fromkeys(_SIZE, "number"),
                **_POSE,
                "num_interior_pts": "whole",
            },
            or_none=["num_interior_pts"],
        )
        size = sizes_of_columns(columns, path, _SIZE)
        return {**columns, "size": size, "pose": poses_of_columns(columns, path, [*_POSE])}

    @cached_property
    def frame_times(self) -> Int64Array:
        """Times of the frames: of the lidar, or where there is none, of the boxes."""
        if len(self.lidar_times):
            return self.lidar_times
        if self.annotations is not None and len(self.annotations["timestamp_ns"]):
            return np.unique(self.annotations["timestamp_ns"])
        raise FileError(f"The log {str(self.folder)!r} has neither lidar (sensors/lidar) nor annotations.feather.")

    @property
    def sources(self) -> list[Path]:
        """Files and folders that the index depends on."""
        calibration = self.folder / "calibration"
        cameras = [self.folder / "sensors" / "cameras" / camera for camera in self.cameras]
        further = [self.folder / "sensors" / "lidar", self.folder / "annotations.feather"]
        return [
            self.folder / POSES,
            calibration / "egovehicle_SE3_sensor.feather",
            calibration / "intrinsics.feather",
            *cameras,
            *(path for path in further if path.exists()),
        ]


def _times_in(folder: Path, ending: str) -> Int64Array:
    names = [name for name in os.listdir(folder) if name.endswith(ending)] if folder.is_dir() else []
    try:
        times = np.array(sorted(int(name.removesuffix(ending)) for name in names), np.int64)
    except ValueError:
        raise FileError(
            f"Files in {str(folder)!r} must be named by their time in nanoseconds, got {listed(sorted(names), 3)}."
        ) from None
    require_ascending(times, f"The folder {str(folder)!r}", strictly=True)
    return times
