# SPDX-License-Identifier: Apache-2.0
"""Data sets of LeRobot, version 3: their tables, the index, and the provider."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import did_you_mean, file_path, listed, shown, text
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import nearest, parse_json, read_table

from .driving import poses
from .driving.array_types import Array, Float64, Int64
from .driving.arrow_files import read_columns, refused
from .driving.driving_index import DrivingIndex, cache_folder, cached_index
from .driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from .driving.poses import half_period, require_ascending
from .driving.scene_parts import Scene, SceneImages, index_of_scenes
from .driving.video_frames import VideoFrames

_IMAGES = "observation.images."
_BRACES = re.compile(r"\{[^{}]*\}?")
_PLACE = re.compile(r"\{(video_key|chunk_index|file_index)(:0?\d?d?)?\}")


class LeRobotFiles:
    """The tables of a data set. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        root: Its folder.
    """

    def __init__(self, root: Path) -> None:
        """Name the folder; tables are read when they are needed."""
        self.root = root

    @cached_property
    def info(self) -> dict[str, Any]:
        """``meta/info.json``."""
        path = self.root / "meta" / "info.json"
        try:
            info = parse_json(read_table(path))
        except (OSError, ValueError) as error:
            raise refused(path, error) from error
        version = str(info.get("codebase_version")) if isinstance(info, dict) else "none"
        if not version.startswith("v3"):
            rule = f"{str(path)!r} must be of version 3 of LeRobot ('codebase_version': 'v3.0')"
            raise FileError(f"{rule}, got {version!r}: convert the data set with LeRobot.")
        missing = [name for name in ("features", "data_path") if name not in info]
        if missing:
            raise FileError(f"{str(path)!r} must have {listed(missing)}.")
        features = info["features"]
        if not isinstance(features, dict) or not all(isinstance(one, dict) for one in features.values()):
            raise FileError(f"'features' of {str(path)!r} must be objects by their names, got {shown(features)}.")
        return dict(info)

    @cached_property
    def video_features(self) -> dict[str, str]:
        """Features that are videos, by name of the camera."""
        features = [name for name, one in self.info["features"].items() if one.get("dtype") == "video"]
        return {name.removeprefix(_IMAGES): name for name in features}

    @cached_property
    def episode_files(self) -> list[Path]:
        """Tables of the episodes, in order."""
        found = sorted((self.root / "meta" / "episodes").rglob("*.parquet"))
        if not found:
            raise FileError(f"There are no tables of episodes in {str(self.root / 'meta' / 'episodes')!r}.")
        return found

    @cached_property
    def episodes(self) -> dict[str, Array]:
        """Columns of the episodes, by their number."""
        kinds = dict.fromkeys(("episode_index", "length", "data/chunk_index", "data/file_index"), "whole")
        for video in (f"videos/{feature}" for feature in self.video_features.values()):
            kinds |= {f"{video}/chunk_index": "whole", f"{video}/file_index": "whole"}
            kinds |= {f"{video}/from_timestamp": "number", f"{video}/to_timestamp": "number"}
        parts = [read_columns(path, kinds) for path in self.episode_files]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in kinds}
        order = np.argsort(columns["episode_index"], kind="stable")
        return {name: column[order] for name, column in columns.items()}

    def file_of(self, row: int, feature: str = "") -> str:
        """Name of the table of frames of an episode, or of its video of a feature."""
        field, what = ("video_path", f"videos/{feature}") if feature else ("data_path", "data")
        chunk, file = (int(self.episodes[f"{what}/{part}_index"][row]) for part in ("chunk", "file"))
        return self.named(field, feature or "data", chunk, file)

    def named(self, field: str, feature: str, chunk: int, file: int) -> str:
        """Name of a table of frames (``"data_path"``) or of a video (``"video_path"``)."""
        pattern = str(self.info.get(field, ""))
        try:
            # A format of its own could ask for a name of gigabytes, or for attributes.
            if not all(_PLACE.fullmatch(place) for place in _BRACES.findall(pattern)):
                raise ValueError("other places")
            return pattern.format(video_key=feature, chunk_index=chunk, file_index=file)
        except (KeyError, IndexError, ValueError) as error:
            where, rule = str(self.root / "meta/info.json"), "{video_key}, {chunk_index} and {file_index}"
            raise FileError(f"{field!r} of {where!r} must be a name with {rule}, got {pattern!r}.") from error

    @property
    def sources(self) -> list[Path]:
        """Files that the index depends on."""
        rows, features = range(len(self.episodes["length"])), ("", *self.video_features.values())
        names = {self.file_of(row, feature) for feature in features for row in rows}
        return [self.root / "meta/info.json", *self.episode_files, *(self.root / name for name in sorted(names))]


def make_index(
    files: LeRobotFiles,
    videos: VideoFrames,
    pose_feature: str | None,
    calibrations: Mapping[str, tuple[Float64, Float64]],
) -> DrivingIndex:
    """Make the index.

    Raises:
        SettingError: A feature or camera is not there.
        FileError: A file cannot be read, or is not as it should be.
    """
    cameras = sorted(files.video_features)
    for camera in calibrations:
        _require_known(f"`calibration` names {camera!r}, which is no camera.", camera, cameras)
    if pose_feature is not None:
        rule = f"`pose_feature` is {pose_feature!r}, which is no feature."
        _require_known(rule, pose_feature, list(files.info["features"]))
    tables: dict[str, dict[str, Array]] = {}
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
        places = _poses_of(data[pose_feature], pose_feature) if pose_feature else poses.identity(len(times))
        token = [f"{name}/{frame}" for frame in range(len(times))]
        scenes.append(Scene(name=name, token=token, time=times, world_from_ego=places, images=images))
    origin = {"format": "LeRobot", "root": str(files.root), "fps": files.info.get("fps")}
    return index_of_scenes(scenes, base="ego", camera_names=cameras, origin=origin)


def _require_known(rule: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise SettingError(f"{rule}{did_you_mean(name, known)} There are: {listed(known)}.")


def _data_of(
    files: LeRobotFiles, row: int, pose_feature: str | None, tables: dict[str, dict[str, Array]]
) -> dict[str, Array]:
    """Rows of an episode; tables that were read are kept for the next."""
    number, length = int(files.episodes["episode_index"][row]), files.episodes["length"][row]
    name = files.file_of(row)
    path = files.root / name
    if name not in tables:
        tables.clear()
        kinds = {"timestamp": "number", "episode_index": "whole"}
        tables[name] = read_columns(path, kinds | ({pose_feature: "numbers"} if pose_feature else {}))
    of_episode = np.flatnonzero(tables[name]["episode_index"] == number)
    if len(of_episode) != length:
        got = f"{str(path)!r} has {len(of_episode)} rows of the episode {number}"
        raise FileError(f"{got}, whose 'length' is {length}.")
    data = {column: values[of_episode] for column, values in tables[name].items()}
    require_ascending(data["timestamp"], f"'timestamp' of the episode {number} in {str(path)!r}", strictly=True)
    return data


def _poses_of(values: Float64, feature: str) -> Float64:
    if values.shape[1] != 7:
        rule = "`pose_feature` must have 7 numbers (x, y, z, qw, qx, qy, qz)"
        raise SettingError(f"{rule}, {feature!r} has {values.shape[1]}.")
    lengths = np.linalg.norm(values[:, 3:], axis=1)
    wrong = lengths[~(np.abs(lengths - 1) < 1e-2)]
    if len(wrong):
        raise FileError(f"The quaternions of {feature!r} must have the length 1, got {wrong[:1]}.")
    return poses.pose_of_quaternion(values[:, 3:], values[:, :3])


def _frames_of(
    files: LeRobotFiles, videos: VideoFrames, row: int, camera: str, times: Float64
) -> tuple[str, Int64]:
    """Video of a camera for an episode, and the number of the frame of each row."""
    feature, episodes = files.video_features[camera], files.episodes
    first, end = (float(episodes[f"videos/{feature}/{part}_timestamp"][row]) for part in ("from", "to"))
    name = files.file_of(row, feature)
    index = videos.index(str(files.root / name))
    tolerance = min(half_period(index.times_s), 0.5)
    found = nearest(index.times_s, first + times, tolerance)
    wrong = np.flatnonzero((found < 0) | (first + times > end + tolerance))
    if len(wrong):
        raise FileError(
            f"Row {wrong[0]} of the episode {episodes['episode_index'][row]} is at {first + times[wrong[0]]:.4f} "
            f"s of the video {name!r}, where there is no frame of it: the episode is from {first:.4f} to "
            f"{end:.4f} s, and the video ends at {index.duration_s:.4f} s."
        )
    return name, found


class LeRobotProvider(DrivingProvider):
    """Episodes of a data set of LeRobot, version 3: several in one video per camera (extras ``arrow``, ``video``).

    The files, relative to the root; ``info.json`` names those of data and videos::

        meta/info.json
        meta/episodes/chunk-000/file-000.parquet         which rows, and which part of which video, each has
        data/chunk-000/file-000.parquet                  a row per frame
        videos/<feature>/chunk-000/file-000.mp4

    One sample per row, as `DrivingProvider` has them; each episode is a scene, ``"episode-000000"``. Cameras are
    the features of type ``video``, by what follows ``observation.images.``. A frame of a video is found by
    its exact time: the start of the episode in the video, and the ``timestamp`` of the row.

    LeRobot says nothing of cameras and vehicles: without ``pose_feature`` the vehicle stays at the origin, and
    without ``calibration`` matrices are those of unity. States and actions are not in the samples.

    Example::

        provider = LeRobotProvider("/data/lerobot/drives", pose_feature="observation.state.pose")
    """

    @with_provider_settings
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        pose_feature: str | None = None,
        calibration: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Read the tables and open the index, which is made on first use.

        Args:
            root: The folder of the data set.
            pose_feature: Feature with the pose of the vehicle in the world: ``x, y, z, qw, qx, qy, qz``.
            calibration: By camera: intrinsics ``(3, 3)``, and the place of the camera on the vehicle,
                ``ego_from_camera`` ``(4, 4)``.
            **settings: What the samples hold, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: A file cannot be read or is not as it should be.
            SettingError: pyarrow is missing, or the data set lacks what is requested.
        """
        files = LeRobotFiles(Path(file_path(root, "root")).absolute())
        if pose_feature is not None:
            text(pose_feature, "pose_feature")
        calibrations = _calibrations(calibration or {})
        cache = settings.get("index_cache")
        videos = VideoFrames(cache_folder(cache) / "videos")
        key: dict[str, Any] = {"reader": "lerobot 1", "root": str(files.root), "pose_feature": pose_feature}
        key["calibration"] = {camera: [each.tolist() for each in pair] for camera, pair in calibrations.items()}
        index = cached_index(
            lambda: make_index(files, videos, pose_feature, calibrations), files.sources, key, cache
        )
        super().__init__(index, files.root, **settings)


def _calibrations(given: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]) -> dict[str, tuple[Float64, Float64]]:
    found = {}
    for camera, pair in given.items():
        try:
            matrix, place = (np.asarray(each, np.float64) for each in pair)
            is_right = matrix.shape == (3, 3) and place.shape in ((3, 4), (4, 4))
            if not is_right or not np.allclose(place[:3, :3] @ place[:3, :3].T, np.eye(3), atol=1e-5):
                raise ValueError
        except (TypeError, ValueError):
            raise SettingError(
                f"`calibration` must have a (3, 3) and a (4, 4) matrix for each camera, the second of a rotation "
                f"and a place, got {shown(pair)} for {camera!r}."
            ) from None
        found[camera] = (matrix, place[:3])
    return found
