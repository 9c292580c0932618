# SPDX-License-Identifier: Apache-2.0
"""The index of a data set of LeRobot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import did_you_mean, listed
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import nearest

from ..driving import poses
from ..driving.arrow_files import read_columns
from ..driving.driving_index import DrivingIndex
from ..driving.scene_parts import Scene, SceneImages, index_of_scenes
from ..driving.trajectory import half_period, require_ascending
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
    tables: dict[str, dict[str, npt.NDArray[Any]]] = {}
    scenes = []
    for row, number in enumerate(files.episodes["episode_index"]):
        data = _data_of(files, row, pose_feature, tables)
        times, name = data["timestamp"], f"episode-{number:06d}"
        images = {}
        for camera in cameras:
            video, frames = _frames_of(files, videos, row, camera, times)
            matrix, place = calibrations.get(camera, (np.eye(3), np.eye(3, 4)))
            images[camera] = SceneImages(
                frames=np.arange(len(times)),
                file=[video] * len(times),
                time=times,
                intrinsics=matrix,
                camera_from_base=poses.inverse(place),
                ego_from_camera=place,
                video_frame=frames,
            )
        scenes.append(
            Scene(
                name=name,
                token=[f"{name}/{frame}" for frame in range(len(times))],
                time=times,
                world_from_ego=_poses_of(data[pose_feature], pose_feature)
                if pose_feature
                else poses.identity(len(times)),
                images=images,
            )
        )
    origin = {"format": "LeRobot", "root": str(files.root), "fps": files.info.get("fps")}
    return index_of_scenes(scenes, base="ego", camera_names=cameras, origin=origin)


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
