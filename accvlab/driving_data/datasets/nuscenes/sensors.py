# SPDX-License-Identifier: Apache-2.0
"""What the tables tell of scenes, samples and sensors: records of cameras and lidar, where they were, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses
from .tables import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBERS_3,
    NUMBERS_4,
    TOKEN,
    Record,
    Rows,
    Table,
    read_records,
    read_table,
)

Float64 = npt.NDArray[np.float64]

LIDAR = "LIDAR_TOP"
# The order of most detectors; other cameras follow, in the order of their table.
_CAMERAS = ("CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_FRONT_LEFT", "CAM_BACK", "CAM_BACK_LEFT", "CAM_BACK_RIGHT")


@attrs.frozen(eq=False)
class Scenes:
    """Scenes and samples (keyframes).

    Attributes:
        records: Of each scene.
        samples: The table of the samples.
        scene: Number of the scene of each sample.
        previous: Row of the sample before each; -1 for none.
    """

    records: list[Record]
    samples: Table
    scene: Rows
    previous: Rows

    @classmethod
    def read(cls, folder: Path) -> Scenes:
        """Read scenes and samples.

        Raises:
            FileError: They are damaged, or the times of a scene go backwards.
        """
        columns = {"token": TOKEN, "timestamp": INTEGER, "scene_token": TOKEN, "prev": TOKEN, "next": TOKEN}
        samples = read_table(folder / "sample.json", columns)
        path = folder / "scene.json"
        records = read_records(path, "token", "name", "first_sample_token", "log_token")
        scenes = read_table(path, {"token": TOKEN, "first_sample_token": TOKEN, "name": TOKEN})
        if not len(scenes) or not len(samples):
            raise FileError(f"There are no scenes in {str(path)!r}, or no samples in {str(samples.path)!r}.")
        samples.rows_of(scenes["first_sample_token"], scenes, "first_sample_token")
        scene = scenes.rows_of(samples["scene_token"], samples, "scene_token")
        previous = samples.rows_of(samples["prev"], samples, "prev", may_be_empty=True)
        samples.rows_of(samples["next"], samples, "next", may_be_empty=True)
        has_previous, time = previous >= 0, samples["timestamp"]
        samples.refuse(
            has_previous & (time <= time[previous]),
            "must be later than the sample before it (`prev`): times go backwards in its scene",
            "timestamp",
        )
        samples.refuse(has_previous & (scene != scene[previous]), "must be of the scene of the sample before it")
        return cls(records, samples, scene, previous)

    def __len__(self) -> int:
        """Get the number of scenes."""
        return len(self.records)


@attrs.frozen(eq=False)
class Calibrations:
    """Calibrated sensors.

    Attributes:
        table: Their table.
        channel: Name of the sensor of each.
        is_camera: Whether that is a camera.
        ego_from_sensor: Where it is mounted.
        intrinsics: Of the cameras.
    """

    table: Table
    channel: list[str]
    is_camera: npt.NDArray[np.bool_]
    ego_from_sensor: Float64
    intrinsics: Float64

    @classmethod
    def read(cls, folder: Path) -> Calibrations:
        """Read the calibrated sensors, with their sensors.

        Raises:
            FileError: A calibration cannot be used.
        """
        sensors = read_table(folder / "sensor.json", {"token": TOKEN, "channel": TOKEN, "modality": TOKEN})
        path = folder / "calibrated_sensor.json"
        columns = {"token": TOKEN, "sensor_token": TOKEN, "translation": NUMBERS_3, "rotation": NUMBERS_4}
        table = read_table(path, columns)
        sensor = sensors.rows_of(table["sensor_token"], table, "sensor_token")
        channel = [name.decode() for name in sensors["channel"][sensor].tolist()]
        is_camera = sensors["modality"][sensor] == b"camera"
        intrinsics = np.broadcast_to(np.eye(3), (len(table), 3, 3)).copy()
        for row, record in enumerate(read_records(path, "token", "camera_intrinsic")):
            if is_camera[row]:
                intrinsics[row] = _intrinsics(record, channel[row], path)
        return cls(table, channel, is_camera, checked_poses(table), intrinsics)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        there = dict.fromkeys(name for name, is_one in zip(self.channel, self.is_camera, strict=True) if is_one)
        return (*(name for name in _CAMERAS if name in there), *(name for name in there if name not in _CAMERAS))


def _intrinsics(record: Record, channel: str, path: Path) -> Float64:
    try:
        matrix = np.array(record["camera_intrinsic"], np.float64)
    except (ValueError, TypeError):
        matrix = np.zeros(0)
    if matrix.shape == (3, 3) and np.isfinite(matrix).all() and np.linalg.matrix_rank(matrix) == 3:
        return matrix
    raise FileError(
        f"The record {record['token']!r} of {str(path)!r}, of {channel}, must have 3 x 3 finite numbers that "
        f"can be inverted as camera_intrinsic, got {shown(record['camera_intrinsic'])}. Correct the calibration, "
        "or leave the scene out of the tables."
    )


def checked_poses(table: Table) -> Float64:
    """Poses of the columns ``rotation`` and ``translation``, ``(n, 3, 4)``.

    Raises:
        FileError: A quaternion of length 0, or numbers that are not finite.
    """
    length = np.linalg.norm(table["rotation"], axis=1)
    table.refuse(
        ~(np.isfinite(length) & (length > 1e-6)), "must have a quaternion that is not 0 as rotation", "rotation"
    )
    table.refuse(~np.isfinite(table["translation"]).all(axis=1), "must have a finite translation", "translation")
    return poses.pose_of_quaternion(table["rotation"], table["translation"])


@attrs.frozen(eq=False)
class SensorRecords:
    """Records (``sample_data``) of the cameras and the lidar.

    Attributes:
        table: Their table.
        channels: Names of the sensors.
        channel: Number in ``channels`` of each.
        calibration: Row of its calibration.
        sample: Row of its sample.
        scene: Number of its scene.
        world_from_ego: Where the vehicle was.
    """

    table: Table
    channels: tuple[str, ...]
    channel: npt.NDArray[np.int64]
    calibration: Rows
    sample: Rows
    scene: Rows
    world_from_ego: Float64

    @classmethod
    def read(
        cls, folder: Path, scenes: Scenes, calibrations: Calibrations, only_keyframes_of: tuple[str, ...]
    ) -> SensorRecords:
        """Read the records of the tables in a folder; of some channels, only those that are keyframes.

        Raises:
            FileError: They are damaged, or the times of a scene go backwards.
        """
        channels = (*calibrations.cameras, *({LIDAR} & {*calibrations.channel}))
        tokens = calibrations.table["token"].tolist()
        channel_of = {token.decode(): name for token, name in zip(tokens, calibrations.channel, strict=True)}
        left_out = {token for token, name in channel_of.items() if name not in channels}
        between = {token for token, name in channel_of.items() if name in only_keyframes_of}

        def is_kept(record: Record) -> bool:
            token = str(record.get("calibrated_sensor_token"))  # what is no text is refused later
            return token not in left_out and (bool(record.get("is_key_frame")) or token not in between)

        table = read_table(
            folder / "sample_data.json",
            {
                "token": TOKEN,
                "sample_token": TOKEN,
                "ego_pose_token": TOKEN,
                "calibrated_sensor_token": TOKEN,
                "timestamp": INTEGER,
                "is_key_frame": FLAG,
                "filename": TOKEN,
                "prev": TOKEN,
                "width": COUNT,
                "height": COUNT,
            },
            is_kept,
        )
        calibration = calibrations.table.rows_of(
            table["calibrated_sensor_token"], table, "calibrated_sensor_token"
        )
        number_of = {name: number for number, name in enumerate(channels)}
        channel = np.array([number_of.get(name, -1) for name in calibrations.channel], np.int64)[calibration]
        sample = scenes.samples.rows_of(table["sample_token"], table, "sample_token")
        records = cls(
            table, channels, channel, calibration, sample, scenes.scene[sample], _ego_poses(folder, table)
        )
        records._check_times()
        return records

    def _check_times(self) -> None:
        """Refuse records that are not later than the one before them, where that was read."""
        order = np.argsort(self.table["token"])
        known, prev = self.table["token"][order], self.table["prev"]
        place = np.minimum(np.searchsorted(known, prev), len(known) - 1)
        previous, time = order[place], self.table["timestamp"]
        goes_back = (known[place] == prev) & (time <= time[previous])
        self.table.refuse(
            goes_back,
            "must be later than the record before it (`prev`): times go backwards in its scene",
            "timestamp",
        )

    def of(self, channel: str) -> Rows:
        """Rows of a sensor."""
        return np.flatnonzero(self.channel == self.channels.index(channel))


def _ego_poses(folder: Path, table: Table) -> Float64:
    columns: dict[str, Any] = {"token": TOKEN, "translation": NUMBERS_3, "rotation": NUMBERS_4}
    wanted = set(table["ego_pose_token"].tolist())
    ego = read_table(folder / "ego_pose.json", columns, lambda record: str(record.get("token")).encode() in wanted)
    return checked_poses(ego)[ego.rows_of(table["ego_pose_token"], table, "ego_pose_token")]
