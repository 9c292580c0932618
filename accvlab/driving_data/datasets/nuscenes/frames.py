# SPDX-License-Identifier: Apache-2.0
"""Which records make a frame: those of a keyframe, or those nearest to each record of a sensor."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import did_you_mean, listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import nearest

from ..driving import poses
from ..driving.driving_index import CameraColumns, FrameColumns, LidarColumns, first_column
from ..driving.scene_parts import sweep_columns
from .sensors import LIDAR, Calibrations, Scenes, SensorRecords
from .tables import Rows

Float64 = npt.NDArray[np.float64]

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
    is_key: npt.NDArray[np.bool_]
    records: Rows


def reference_channel(frames: str, channels: tuple[str, ...]) -> str:
    """Name of the sensor whose time and ego pose are those of the frames.

    Raises:
        SettingError: ``frames`` names none.
    """
    if frames != KEYFRAMES:
        if frames not in channels:
            raise SettingError(
                f"`frames` must be {KEYFRAMES!r} or the sensor that gives the rate, one of {listed(channels)}, "
                f"got {shown(frames)}.{did_you_mean(frames, channels)}"
            )
        return frames
    if not channels:
        raise SettingError("The tables have neither cameras nor LIDAR_TOP.")
    return LIDAR if LIDAR in channels else channels[0]


def make_frames(scenes: Scenes, data: SensorRecords, reference: str, *, only_keyframes: bool) -> Frames:
    """Find the frames and their records.

    A keyframe has the records of its sample; another frame the ones of its scene that are nearest in time.

    Raises:
        FileError: A keyframe has no record of the reference.
    """
    rows = data.of(reference)
    is_key = data.table["is_key_frame"]
    time = data.table["timestamp"]
    if only_keyframes:
        rows = rows[is_key[rows]]
        record_of_sample = _of_samples(data, rows, len(scenes.samples))
        scenes.samples.refuse(record_of_sample < 0, f"must have a keyframe of {reference} in sample_data.json")
        rows = record_of_sample
        order = np.lexsort((scenes.samples["timestamp"], scenes.scene))
    else:
        order = np.lexsort((time[rows], data.scene[rows]))
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
        is_wrong, "must be later than that of the keyframe before: times go backwards in its scene", "timestamp"
    )


def _of_samples(data: SensorRecords, rows: Rows, num_samples: int) -> Rows:
    record_of_sample = np.full(num_samples, -1, np.int64)
    record_of_sample[data.sample[rows]] = rows
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
    tokens, times = scenes.samples["token"][frames.sample], scenes.samples["timestamp"][frames.sample]
    if not by_sample:
        tokens = data.table["token"][frames.reference]
        times = data.table["timestamp"][frames.reference]
    ego_from_base = poses.identity(len(frames.reference))
    if LIDAR in data.channels:
        record = frames.records[:, data.channels.index(LIDAR)]
        if (record < 0).any():
            frame = int(np.flatnonzero(record < 0)[0])
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
        time=times / 1e6,
        world_from_ego=data.world_from_ego[frames.reference],
        ego_from_base=ego_from_base,
    )


def camera_columns(
    data: SensorRecords, calibrations: Calibrations, frames: Frames, world_from_base: Float64
) -> CameraColumns | None:
    """Columns of the images."""
    names = calibrations.cameras
    if not names:
        return None
    records = frames.records[:, [data.channels.index(name) for name in names]]
    is_there = records >= 0
    calibration = data.calibration[records]
    ego_from_camera = calibrations.ego_from_sensor[calibration]
    world_from_camera = poses.joined(data.world_from_ego[records], ego_from_camera)
    return CameraColumns(
        file=np.where(is_there, data.table["filename"][records], b""),
        time=data.table["timestamp"][records] / 1e6,
        intrinsics=calibrations.intrinsics[calibration],
        camera_from_base=poses.joined(poses.inverse(world_from_camera), world_from_base[:, np.newaxis]),
        ego_from_camera=ego_from_camera,
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
