# SPDX-License-Identifier: Apache-2.0
"""Records of cameras and lidar in the tables, and the frames and columns of the index that are made of them.

A frame has the records of a keyframe, or those nearest to each record of a sensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import did_you_mean, listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import nearest

from ..driving import poses
from ..driving.array_types import Bool, Float64, Int64
from ..driving.driving_index import CameraColumns, FrameColumns, LidarColumns, first_column
from ..driving.requested_parts import RequestedParts
from ..driving.scene_parts import sweep_columns
from .tables import Record, Rows, Table, read_records, read_table

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
        tokens: Tokens of the samples, where these are not all of the tables; else None.
    """

    records: list[Record]
    samples: Table
    scene: Rows
    previous: Rows
    tokens: frozenset[str] | None = None

    @classmethod
    def read(cls, folder: Path, parts: RequestedParts) -> Scenes:
        """Read scenes and samples.

        Raises:
            FileError: They are damaged, or the times of a scene go backwards.
            SettingError: There is none of the requested scenes.
        """
        path = folder / "scene.json"
        records = read_records(path, "token", "name", "first_sample_token", "log_token")
        is_wanted, tokens = None, None
        if parts.scenes is not None:
            records = [records[place] for place in parts.of_scenes([str(each["name"]) for each in records])]
            kept = {str(record["token"]) for record in records}  # what is no text is refused below
            names = {str(record["name"]) for record in records}
            is_wanted = lambda record: str(record.get("name")) in names  # noqa: E731
        samples = read_table(
            folder / "sample.json",
            *("token", "timestamp", "scene_token", "prev", "next"),
            is_kept=None if is_wanted is None else lambda record: str(record.get("scene_token")) in kept,
        )
        if is_wanted is not None:
            tokens = frozenset(token.decode() for token in samples["token"].tolist())
        scenes = read_table(
            path, "token", "first_sample_token", "last_sample_token", "name", "nbr_samples", is_kept=is_wanted
        )
        if not len(scenes) or not len(samples):
            raise FileError(f"There are no scenes in {str(path)!r}, or no samples in {str(samples.path)!r}.")
        samples.rows_of(scenes, "first_sample_token")
        samples.rows_of(scenes, "last_sample_token", may_be_empty=True)
        scene = scenes.rows_of(samples, "scene_token")
        scenes.refuse_fewer(np.bincount(scene, minlength=len(scenes)), "nbr_samples", "samples")
        previous = samples.rows_of(samples, "prev", may_be_empty=True)
        samples.rows_of(samples, "next", may_be_empty=True)
        samples.refuse_times(previous, "sample")
        is_of_other_scene = (previous >= 0) & (scene != scene[previous])
        samples.refuse(is_of_other_scene, "must be of the scene of the sample before it")
        return cls(records, samples, scene, previous, tokens)

    def keeps(self, record: Record) -> bool:
        """Whether a record of another table is of these samples."""
        return self.tokens is None or str(record.get("sample_token")) in self.tokens

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
    is_camera: Bool
    ego_from_sensor: Float64
    intrinsics: Float64

    @classmethod
    def read(cls, folder: Path, scenes: Scenes, parts: RequestedParts) -> Calibrations:
        """Read the calibrated sensors, with their sensors; those of some scenes where these are not all.

        Raises:
            FileError: A calibration cannot be used.
        """
        sensors = read_table(folder / "sensor.json", "token", "channel", "modality")
        path, is_kept = folder / "calibrated_sensor.json", None
        if scenes.tokens is not None:
            records = read_table(
                folder / "sample_data.json", "token", "calibrated_sensor_token", is_kept=scenes.keeps
            )
            used = {*records["calibrated_sensor_token"].tolist()}
            is_kept = lambda record: str(record.get("token")).encode() in used  # noqa: E731
        table = read_table(path, "token", "sensor_token", "translation", "rotation", is_kept=is_kept)
        sensor = sensors.rows_of(table, "sensor_token")
        channel = [name.decode() for name in sensors["channel"][sensor].tolist()]
        is_camera = sensors["modality"][sensor] == b"camera"
        intrinsics = np.broadcast_to(np.eye(3), (len(table), 3, 3)).copy()
        records_of = read_records(path, "token", "camera_intrinsic")
        for row, record in enumerate(filter(is_kept, records_of) if is_kept else records_of):
            if is_camera[row]:
                with parts.reading(f"cameras/{channel[row]}"):
                    intrinsics[row] = _intrinsics(record, channel[row], path)
        return cls(table, channel, is_camera, checked_poses(table, channel, parts), intrinsics)

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


def checked_poses(
    table: Table,
    channel: Sequence[str] | None = None,
    parts: RequestedParts | None = None,
    rows: Rows | None = None,
) -> Float64:
    """Poses of the columns ``rotation`` and ``translation``, ``(n, 3, 4)``.

    Args:
        table: The table.
        channel: Sensor of each user of a pose; poses that only those have which are not requested may be wrong,
            and mean nothing then.
        parts: The requested parts.
        rows: The row that each user has, -1 for none; None where each row has one user.

    Raises:
        FileError: A quaternion of length 0, or numbers that are not finite.
    """
    length = np.linalg.norm(table["rotation"], axis=1)
    is_null = np.asarray(~(np.isfinite(length) & (length > 1e-6)))
    is_off = np.asarray(~np.isfinite(table["translation"]).all(axis=1))
    names = np.array(channel or [LIDAR] * len(table), np.str_)
    rows = np.arange(len(table)) if rows is None else rows
    has_wrong = (rows >= 0) & np.isin(rows, np.flatnonzero(is_null | is_off))
    for name in np.unique(names[has_wrong]).tolist():
        with reading_sensor(name, parts):
            of_sensor = np.zeros(len(table), bool)
            of_sensor[rows[has_wrong & (names == name)]] = True
            table.refuse(is_null & of_sensor, "must have a quaternion that is not 0 as rotation", "rotation")
            table.refuse(is_off & of_sensor, "must have a finite translation", "translation")
    with np.errstate(invalid="ignore"):
        return poses.pose_of_quaternion(table["rotation"], table["translation"])


def reading_sensor(channel: str, parts: RequestedParts | None) -> AbstractContextManager[None]:
    """As `RequestedParts.reading`, for a sensor: the lidar, which is the base, is always needed."""
    is_needed = parts is None or channel == LIDAR
    return nullcontext() if is_needed or parts is None else parts.reading(f"cameras/{channel}")


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
    channel: Int64
    calibration: Rows
    sample: Rows
    scene: Rows
    world_from_ego: Float64

    @classmethod
    def read(
        cls,
        folder: Path,
        scenes: Scenes,
        calibrations: Calibrations,
        only_keyframes_of: tuple[str, ...],
        parts: RequestedParts,
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
            is_used = token not in left_out and (bool(record.get("is_key_frame")) or token not in between)
            return is_used and scenes.keeps(record)

        table = read_table(
            folder / "sample_data.json",
            *("token", "sample_token", "ego_pose_token", "calibrated_sensor_token", "prev", "filename"),
            *("timestamp", "is_key_frame", "width", "height"),
            is_kept=is_kept,
        )
        calibration = calibrations.table.rows_of(table, "calibrated_sensor_token")
        number_of = {name: number for number, name in enumerate(channels)}
        channel = np.array([number_of.get(name, -1) for name in calibrations.channel], np.int64)[calibration]
        sample = scenes.samples.rows_of(table, "sample_token")
        names = [channels[number] for number in channel.tolist()]
        world_from_ego = _ego_poses(folder, table, names, parts)
        table.refuse_times(table.found(table["prev"]), "record")  # the one before may not have been kept
        return cls(table, channels, channel, calibration, sample, scenes.scene[sample], world_from_ego)

    def of(self, channel: str) -> Rows:
        """Rows of a sensor."""
        return np.flatnonzero(self.channel == self.channels.index(channel))

    def require_all(self, channel: str) -> None:
        """Refuse tables that lack records of a sensor, of which all are kept: those that others name (`prev`).

        Raises:
            FileError: They do.
        """
        before = self.table["prev"]
        is_wrong = (before != b"") & (self.table.found(before) < 0)
        is_wrong &= self.channel == (self.channels.index(channel) if channel in self.channels else -1)
        rule = f"must have the record of {channel} before it (`prev`) in the same table, which lacks that"
        self.table.refuse(is_wrong, rule, "prev")


def _ego_poses(folder: Path, table: Table, channel: Sequence[str], parts: RequestedParts) -> Float64:
    wanted = set(table["ego_pose_token"].tolist())
    ego = read_table(
        folder / "ego_pose.json",
        *("token", "translation", "rotation"),
        is_kept=lambda record: str(record.get("token")).encode() in wanted,
    )
    rows, names = ego.found(table["ego_pose_token"]), np.array(channel, np.str_)
    for name in np.unique(names[rows < 0]).tolist():
        with reading_sensor(name, parts):
            ego.rows_of(table.taken(np.asarray(names == name)), "ego_pose_token")
    found: Float64 = checked_poses(ego, channel, parts, rows)[rows]
    return found


KEYFRAMES = "keyframes"


@attrs.frozen(eq=False)
class Frames:
    """Frames, scene by scene, by time.

    Attributes:
        reference: Row of the record whose time and ego pose are those of the frame.
        sample: Row of its sample.
        scene: Number of its scene.
        is_key: Whether it is a keyframe.
        records: Row of the record of each channel, ``(F, channels)``; -1 for none.
    """

    reference: Rows
    sample: Rows
    scene: Rows
    is_key: Bool
    records: Rows


def reference_channel(frames: str, channels: tuple[str, ...]) -> str:
    """Name of the sensor whose time and ego pose are those of the frames.

    Raises:
        SettingError: ``frames`` names none.
    """
    if frames in channels:
        return frames
    if frames != KEYFRAMES:
        raise SettingError(
            f"`frames` must be {KEYFRAMES!r} or the sensor that gives the rate, one of {listed(channels)}, "
            f"got {shown(frames)}.{did_you_mean(frames, channels)}"
        )
    if not channels:
        raise SettingError("The tables have neither cameras nor LIDAR_TOP.")
    return channels[0]  # the lidar, where there is one


def make_frames(scenes: Scenes, data: SensorRecords, reference: str, *, only_keyframes: bool) -> Frames:
    """Find the frames and their records.

    A keyframe has the records of its sample; another frame the ones of its scene that are nearest in time.

    Raises:
        FileError: A keyframe has no record of the reference.
    """
    rows, is_key = data.of(reference), data.table["is_key_frame"]
    if only_keyframes:
        rows = _of_samples(data, rows[is_key[rows]], len(scenes.samples))
        scenes.samples.refuse(rows < 0, f"must have a keyframe of {reference} in sample_data.json")
        order = np.lexsort((scenes.samples["timestamp"], scenes.scene))
    else:
        order = np.lexsort((data.table["timestamp"][rows], data.scene[rows]))
    rows = rows[order]
    records = np.stack([_records_of(scenes, data, channel, rows) for channel in data.channels], axis=1)
    frames = Frames(rows, data.sample[rows], data.scene[rows], is_key[rows], records)
    if only_keyframes:
        _check_times(data, frames)
    return frames


def _check_times(data: SensorRecords, frames: Frames) -> None:
    """Refuse records of a keyframe that are not later than those of the keyframe before."""
    time, (before, after) = data.table["timestamp"], (frames.records[:-1], frames.records[1:])
    goes_back = (time[after] <= time[before]) & (before >= 0) & (after >= 0)
    goes_back &= (frames.scene[1:] == frames.scene[:-1])[:, np.newaxis]
    is_wrong = np.zeros(len(data.table), bool)
    is_wrong[after[goes_back]] = True
    data.table.refuse(
        is_wrong, "must be later than in the keyframe before: times go backwards in its scene", "timestamp"
    )


def _of_samples(data: SensorRecords, rows: Rows, num_samples: int) -> Rows:
    record_of_sample = np.full(num_samples, -1, np.int64)
    record_of_sample[data.sample[rows]] = rows
    is_wrong = np.zeros(len(data.table), bool)
    is_wrong[rows] = record_of_sample[data.sample[rows]] != rows
    data.table.refuse(is_wrong, "must not be a keyframe: its sensor has another one in its sample")
    return record_of_sample


def _records_of(scenes: Scenes, data: SensorRecords, channel: str, reference: Rows) -> Rows:
    rows = data.of(channel)
    is_key, time = data.table["is_key_frame"], data.table["timestamp"]
    found = _of_samples(data, rows[is_key[rows]], len(scenes.samples))[data.sample[reference]]
    is_between = np.flatnonzero(~is_key[reference])
    if not len(is_between):
        return found
    found[is_between] = -1
    rows = rows[np.lexsort((time[rows], data.scene[rows]))]
    for scene in range(len(scenes)):
        wanted = is_between[data.scene[reference[is_between]] == scene]
        first, end = np.searchsorted(data.scene[rows], [scene, scene + 1])
        if first < end and len(wanted):
            found[wanted] = rows[first + nearest(time[rows[first:end]], time[reference[wanted]], np.inf)]
    return found


# --- columns of the index -----------------------------------------------------------------------------------


def frame_columns(
    scenes: Scenes, data: SensorRecords, calibrations: Calibrations, frames: Frames, *, by_sample: bool
) -> FrameColumns:
    """Columns of the frames; the base is the lidar, where there is one, at the time of the frame."""
    table, rows = (scenes.samples, frames.sample) if by_sample else (data.table, frames.reference)
    tokens = table["token"][rows]
    ego_from_base = poses.identity(len(frames.reference))
    if LIDAR in data.channels:
        record = frames.records[:, data.channels.index(LIDAR)]
        if (record < 0).any():
            frame = int(np.argmax(record < 0))
            raise FileError(
                f"The frame {tokens[frame].decode()!r} must have a record of {LIDAR} in "
                f"{str(data.table.path)!r}, as others have; {int((record < 0).sum())} frame(s) have none. Leave "
                "their scenes out of the tables."
            )
        ego_from_base = calibrations.ego_from_sensor[data.calibration[record]]
    return FrameColumns(
        scene=np.array([str(record["name"]).encode() for record in scenes.records]),
        first_of_scene=first_column(np.bincount(frames.scene, minlength=len(scenes))),
        token=tokens,
        time=table["timestamp"][rows] / 1e6,
        world_from_ego=data.world_from_ego[frames.reference],
        ego_from_base=ego_from_base,
    )


def camera_columns(
    data: SensorRecords, calibrations: Calibrations, frames: Frames, world_from_base: Float64, num_scenes: int
) -> CameraColumns | None:
    """Columns of the images; the size of those of a scene is that of its first frame."""
    names = calibrations.cameras
    if not names:
        return None
    records = frames.records[:, : len(names)]  # of the channels, cameras are the first
    calibration = data.calibration[records]
    ego_from_camera = calibrations.ego_from_sensor[calibration]
    world_from_camera = poses.joined(data.world_from_ego[records], ego_from_camera)
    image_wh = np.stack([data.table["width"][records], data.table["height"][records]], axis=-1)
    image_wh[(records < 0) | (image_wh <= 0).any(axis=-1)] = 0
    first_frames = np.searchsorted(frames.scene, np.arange(num_scenes)).clip(max=len(records) - 1)
    return CameraColumns(
        file=np.where(records >= 0, data.table["filename"][records], b""),
        time=data.table["timestamp"][records] / 1e6,
        intrinsics=calibrations.intrinsics[calibration],
        camera_from_base=poses.joined(poses.inverse(world_from_camera), world_from_base[:, np.newaxis]),
        ego_from_camera=ego_from_camera,
        image_wh=image_wh[first_frames],
    )


def lidar_columns(
    data: SensorRecords, calibrations: Calibrations, frames: Frames, max_sweeps: int
) -> LidarColumns | None:
    """Columns of the lidar: records before that of a frame, in its scene, are its sweeps."""
    if LIDAR not in data.channels:
        return None
    rows = data.of(LIDAR)
    rows = rows[np.lexsort((data.table["timestamp"][rows], data.scene[rows]))]
    number = np.full(len(data.table), -1, np.int64)
    number[rows] = np.arange(len(rows))
    of_frame = number[frames.records[:, data.channels.index(LIDAR)]]
    first_of_scene = np.searchsorted(data.scene[rows], frames.scene)
    num_sweeps = np.minimum(of_frame - first_of_scene, max_sweeps)
    first_sweep, sweep = sweep_columns(of_frame, num_sweeps)
    return LidarColumns(
        file=data.table["filename"][rows],
        time=data.table["timestamp"][rows] / 1e6,
        world_from_lidar=poses.joined(
            data.world_from_ego[rows], calibrations.ego_from_sensor[data.calibration[rows]]
        ),
        of_frame=of_frame,
        first_sweep=first_sweep,
        sweep=sweep,
    )
