# SPDX-License-Identifier: Apache-2.0
"""The index of a data set of LeRobot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checks import did_you_mean, listed
from ...errors import FileError, SettingError
from ..driving import poses
from ..driving.arrow_files import read_columns
from ..driving.driving_index import CameraColumns, DrivingIndex, FrameColumns, first_column, names_column
from ..driving.trajectory import half_period, nearest, require_ascending
from ..driving.video_frames import VideoFrames
from .lerobot_files import LeRobotFiles

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


def make_index(
    files: LeRobotFiles,
    videos: VideoFrames,
    pose_feature: str | None,
    calibrations: Mapping[str, tuple[Float64Array, Float64Array]],
) -> DrivingIndex:
    """Make the index.

    Raises:
        SettingError: A feature or camera is not there.
        FileError: A file cannot be read, or is not as it should be.
    """
    cameras = sorted(files.video_features)
    unknown = [camera for camera in calibrations if camera not in cameras]
    if unknown:
        raise SettingError(
            f"`calibration` names {unknown[0]!r}, which is no camera.{did_you_mean(unknown[0], cameras)} There "
            f"are: {listed(cameras)}."
        )
    features = files.info["features"]
    if pose_feature is not None and pose_feature not in features:
        raise SettingError(
            f"`pose_feature` is {pose_feature!r}, which is no feature.{did_you_mean(pose_feature, features)} "
            f"There are: {listed(features)}."
        )
    numbers = files.episodes["episode_index"]
    tables: dict[str, dict[str, npt.NDArray[Any]]] = {}
    times, world_from_ego, video_files, video_frames = [], [], [], []
    for row in range(len(numbers)):
        data = _data_of(files, row, pose_feature, tables)
        times.append(data["timestamp"])
        count = len(data["timestamp"])
        world_from_ego.append(
            poses.identity(count) if pose_feature is None else _poses_of(data[pose_feature], pose_feature)
        )
        of_cameras = [_frames_of(files, videos, row, camera, data["timestamp"]) for camera in cameras]
        video_files += [[name for name, _ in of_cameras]] * count
        video_frames.append(
            np.stack([found for _, found in of_cameras], axis=-1) if cameras else np.zeros((count, 0))
        )
    time = np.concatenate(times) if times else np.zeros(0)
    shape = (len(time), len(cameras))
    matrices = [calibrations.get(camera, (np.eye(3), np.eye(3, 4))) for camera in cameras]
    intrinsics = np.broadcast_to(
        np.array([matrix for matrix, _ in matrices]).reshape(-1, 3, 3), (*shape, 3, 3)
    ).copy()
    places = np.broadcast_to(np.array([place for _, place in matrices]).reshape(-1, 3, 4), (*shape, 3, 4)).copy()
    names = [f"episode-{number:06d}" for number in numbers]
    return DrivingIndex(
        base="ego",
        camera_names=cameras,
        origin={"format": "LeRobot", "root": str(files.root), "fps": files.info.get("fps")},
        frames=FrameColumns(
            scene=names_column(names),
            first_of_scene=first_column([len(of_episode) for of_episode in times]),
            token=names_column(
                [f"{name}/{k}" for name, of_one in zip(names, times, strict=True) for k in range(len(of_one))]
            ),
            time=time,
            world_from_ego=np.concatenate(world_from_ego) if world_from_ego else poses.identity(0),
            ego_from_base=poses.identity(len(time)),
        ),
        cameras=CameraColumns(
            file=names_column([name for of_frame in video_files for name in of_frame]).reshape(shape),
            time=np.repeat(time[:, np.newaxis], len(cameras), axis=1),
            intrinsics=intrinsics,
            camera_from_base=poses.inverse(places),
            ego_from_camera=places,
            video_frame=np.concatenate(video_frames).astype(np.int64),
        )
        if cameras
        else None,
    )


def _data_of(
    files: LeRobotFiles, row: int, pose_feature: str | None, tables: dict[str, dict[str, npt.NDArray[Any]]]
) -> dict[str, npt.NDArray[Any]]:
    """Rows of an episode; tables that were read are kept for the next."""
    episodes = files.episodes
    number = int(episodes["episode_index"][row])
    name = files.data_file(int(episodes["data/chunk_index"][row]), int(episodes["data/file_index"][row]))
    path = files.root / name
    if name not in tables:
        tables.clear()
        kinds = {"timestamp": "number", "episode_index": "whole"}
        tables[name] = read_columns(path, kinds | ({pose_feature: "numbers"} if pose_feature else {}))
    of_episode = np.flatnonzero(tables[name]["episode_index"] == number)
    if len(of_episode) != episodes["length"][row]:
        raise FileError(
            f"{str(path)!r} has {len(of_episode)} rows of the episode {number}, whose 'length' is "
            f"{episodes['length'][row]}."
        )
    data = {column: values[of_episode] for column, values in tables[name].items()}
    require_ascending(data["timestamp"], f"'timestamp' of the episode {number} in {str(path)!r}", strictly=True)
    return data


def _poses_of(values: Float64Array, feature: str) -> Float64Array:
    if values.shape[1] != 7:
        raise SettingError(
            f"`pose_feature` must have 7 numbers (x, y, z, qw, qx, qy, qz), {feature!r} has {values.shape[1]}."
        )
    lengths = np.linalg.norm(values[:, 3:], axis=1)
    wrong = lengths[~(np.abs(lengths - 1) < 1e-2)]
    if len(wrong):
        raise FileError(f"The quaternions of {feature!r} must have the length 1, got {wrong[:1]}.")
    return poses.pose_of_quaternion(values[:, 3:], values[:, :3])


def _frames_of(
    files: LeRobotFiles, videos: VideoFrames, row: int, camera: str, times: Float64Array
) -> tuple[str, Int64Array]:
    """Video of a camera for an episode, and the number of the frame of each row."""
    feature, episodes = files.video_features[camera], files.episodes
    place = [int(episodes[f"videos/{feature}/{part}"][row]) for part in ("chunk_index", "file_index")]
    first, end = (float(episodes[f"videos/{feature}/{part}_timestamp"][row]) for part in ("from", "to"))
    name = files.video_file(feature, *place)
    index = videos.index(str(files.root / name))
    known = index.times_s
    tolerance = min(half_period(known), 0.5)
    found = nearest(known, first + times, tolerance)
    is_wrong = (found < 0) | (first + times > end + tolerance)
    if is_wrong.any():
        wrong = int(np.flatnonzero(is_wrong)[0])
        raise FileError(
            f"Row {wrong} of the episode {int(episodes['episode_index'][row])} is at {first + times[wrong]:.4f} "
            f"s of the video {name!r}, where there is no frame of it: the episode is from {first:.4f} to "
            f"{end:.4f} s, and the video ends at {index.duration_s:.4f} s."
        )
    return name, found
