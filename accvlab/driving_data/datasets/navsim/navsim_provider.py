# SPDX-License-Identifier: Apache-2.0
"""A data provider for NAVSIM: what an agent gets, and what it is to do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import attrs
import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework import SampleDataGroup, checks
from accvlab.dali_pipeline_framework.checks import did_you_mean, file_path, listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import StoragePath
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments, has_settings

from ..driving import driving_index as tables
from ..driving import poses
from ..driving.array_types import Array, Float32, Float64, Int64
from ..driving.driving_provider import DrivingProvider, Unpack
from ..driving.requested_parts import index_of_parts
from . import logs
from .point_clouds import points_of
from .scene_filter import SceneFilter

_VERSION = 2  # of the index
_LIDAR = "LIDAR_PC"
_DT = types.DALIDataType

Sensors = Mapping[str, bool | Sequence[int]]
"""For each sensor, the frames of a scene, from 0, or all (True) or none (False) of its history."""


class NavsimSettings(TypedDict, total=False):
    """The settings that `NavsimProvider` passes on to `DrivingProvider`."""

    boxes: bool | None
    classes: Sequence[str] | Mapping[str, str] | None
    num_future_frames: int
    reference: str | None
    index_cache: str | os.PathLike[str] | None


class NavsimProvider(DrivingProvider):
    """Scenes of NAVSIM, one per sample: what an agent gets at its current frame, and where the vehicle went next.

    Samples have the fields of `DrivingProvider` at the current frame; their ``scene`` is the name of the log. They
    also have the fields below, of H frames of history, which end with the current one, and of F future frames::

        cameras[...]
            distortion               FLOAT64 (5,)      k1, k2, p1, p2, k3; images are as the camera took them
        ego_history                                    of the last frames, the last one is the current frame
            positions, rotations, times                as `DrivingProvider` has them
            poses                    FLOAT64 (H, 3)    x, y, heading, where the current pose is 0
            velocities               FLOAT (H, 2)      m/s, along x and y of the vehicle
            accelerations            FLOAT (H, 2)      m/s^2
            commands                 INT64 (H, 4)      left, straight, right, unknown: one of them 1
        ego_future
            positions, rotations, times
            poses                    FLOAT64 (F, 3)    0.5 s apart

    ``sensors`` says which frames of the history are loaded, as ``SensorConfig`` of NAVSIM: ``cameras`` has an
    element for each image, camera by camera, the oldest first, with its own ``timestamp``, and
    ``camera_from_reference`` with the motion up to the current frame. ``lidar`` is the current point cloud,
    ``sweeps`` are earlier ones.

    The files, relative to the root::

        navsim_logs/SPLIT/LOG.pkl
        sensor_blobs/SPLIT/LOG/CAM_F0/TOKEN.jpg
        sensor_blobs/SPLIT/LOG/MergedPointCloud/TOKEN.pcd

    Headings are computed as in NAVSIM's ``ego_pose``, ``atan2(2(wz - xy), 1 - 2(y^2 + z^2))``, which differs from
    the direction of the x axis on an inclined road. Logs come by name, scenes by time. A log is read once, without
    running anything in it; its index is kept and mapped by all processes.

    Example::

        scenes = SceneFilter.from_yaml("navtrain.yaml")
        provider = NavsimProvider("/data/openscene", "trainval", scenes, sensors={"cam_f0": [3], "lidar_pc": [3]})
    """

    @explains_unknown_arguments
    @has_settings(NavsimSettings, DrivingProvider)
    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str,
        scene_filter: SceneFilter | None = None,
        *,
        sensors: Sensors | None = None,
        blobs: StoragePath | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **settings: Unpack[NavsimSettings],
    ) -> None:
        """Read the logs, which are indexed on first use, and choose the scenes.

        Args:
            root: The folder with ``navsim_logs`` and ``sensor_blobs``.
            split: The folder in both: ``"mini"``, ``"trainval"``, ``"test"``.
            scene_filter: Which scenes; None for `SceneFilter` with its defaults.
            sensors: For each sensor, such as ``"cam_f0"`` or ``"lidar_pc"``, the frames of the scene that are
                loaded: numbers from 0, or all of the history (True). Those not named are not loaded. None: the
                current images of all cameras.
            blobs: Where the folders of logs with their images are, a folder or a URL, in place of
                ``sensor_blobs/SPLIT``.
            storage_options: Arguments of the remote file system of ``blobs``.
            **settings: ``boxes``, ``classes``, ``num_future_frames``, ``reference``: see `DrivingFields`;
                ``index_cache``: see `DrivingProvider`.

        Raises:
            FileError: There are no logs, or one cannot be read, or is of another version.
            SettingError: A log, token or sensor is not there, or no scene is left.
        """
        top = Path(file_path(root, "root")).absolute()
        name = checks.text(split, "split")
        self._filter = checks.instance(scene_filter or SceneFilter(), "scene_filter", SceneFilter)
        files = logs.log_files(top / "navsim_logs" / name, self._filter.log_names)
        key = {"reader": "navsim", "version": _VERSION}
        self._frames_back = _frames_back(sensors, self._filter.num_history_frames)
        clouds = self._frames_back.pop(_LIDAR, [])
        of_sensors: dict[str, Any] = {"cameras": [*self._frames_back], "lidar": bool(clouds)}
        requested = {**settings, **of_sensors, "has_route": self._filter.has_route}
        index = index_of_parts(lambda parts: logs.make_index(files, parts), files, key, requested)
        self._chosen_frames = self._filter.current_frames(index)
        of_log = np.searchsorted(index.frames.first_of_scene, self._chosen_frames, side="right") - 1
        numbers, counts = np.unique(of_log, return_counts=True)
        self._scenes_per_log = tuple(counts.tolist())
        self._clouds_back = sorted(back for back in clouds if back)
        super().__init__(
            index,
            blobs if blobs is not None else top / "sensor_blobs" / name,
            scenes=[os.fsdecode(index.frames.scene[number]) for number in numbers],
            storage_options=storage_options,
            **of_sensors,
            num_sweeps=len(self._clouds_back),
            **settings,
        )
        self._check_files(f"the logs in {self.origin['folder']!r}")

    def __getstate__(self) -> dict[str, Any]:
        """As that of `DrivingProvider`, without the 100,000 names that a filter may have."""
        numbers = attrs.evolve(self._filter, tokens=None, log_names=None)
        return {**super().__getstate__(), "_filter": numbers}

    @property
    def scene_filter(self) -> SceneFilter:
        """Filter that has chosen the scenes; in workers, without its ``tokens`` and ``log_names``."""
        return self._filter

    @property
    def current_cameras(self) -> tuple[str, ...]:
        """Names of the cameras whose images at the current frame are loaded."""
        return tuple(camera for camera, frames_back in self._frames_back.items() if 0 in frames_back)

    @property
    def map_names(self) -> tuple[str, ...]:
        """Name of the map of each log, in the order of `scene_names`.

        Raises:
            FileError: A log has none.
        """
        names = tuple(self.origin["maps"][scene] for scene in self._scenes)
        if not all(names):
            log = self.scene_names[names.index("")]
            raise FileError(
                f"The log {log!r} of {self.origin['folder']!r} has no 'map_location', the name of its map."
            )
        return names

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of scenes of each log, in the order of the samples."""
        return self._scenes_per_log

    @property
    def _frames(self) -> Int64:
        return self._chosen_frames

    def __repr__(self) -> str:
        """Summarise what was found."""
        sensors = {name: len(back) for name, back in self._frames_back.items()}
        sensors |= {_LIDAR: 1 + len(self._clouds_back)} if self.fields.lidar else {}
        images = ", ".join(f"{name}: {count}" for name, count in sensors.items()) or "none"
        return (
            f"{type(self).__name__}({self.get_number_of_samples()} scenes of {self._filter.num_history_frames} + "
            f"{self._filter.num_future_frames} frames in {len(self._scenes)} log(s), sensors: {images})"
        )

    def ego_columns(self, sample_indices: Sequence[int]) -> dict[str, dict[str, Array]]:
        """Read ``ego_history`` and ``ego_future`` of B samples at once: ``(B, ...)`` each, by group and name."""
        frames, num_history = self._index.frames, self._filter.num_history_frames
        current = self._chosen_frames[np.asarray(sample_indices)][:, np.newaxis]
        rows = current + np.arange(1 - num_history, self._filter.num_future_frames + 1)  # (B, H + F)
        world_from_ego = frames.world_from_ego[rows]
        now_from_then = poses.joined(poses.inverse(frames.world_from_ego[current]), world_from_ego)
        own = planar_poses(world_from_ego)
        columns = {
            "positions": now_from_then[..., 3],
            "rotations": now_from_then[..., :3],
            "times": frames.time[rows] - frames.time[current],
            "poses": seen_from(own[:, num_history - 1 : num_history], own),
        }
        history = {name: column[:, :num_history] for name, column in columns.items()}
        motion = _required(frames.motion)[rows[:, :num_history]]
        history |= {"velocities": motion[..., :2], "accelerations": motion[..., 2:]}
        history["commands"] = _required(frames.driving_command)[rows[:, :num_history]]
        return {
            "ego_history": history,
            "ego_future": {name: column[:, num_history:] for name, column in columns.items()},
        }

    def names_of(self, sample_indices: Sequence[int]) -> list[tuple[bytes, bytes]]:
        """Tokens and logs of samples."""
        frames, chosen = self._index.frames, self._chosen_frames[np.asarray(sample_indices)]
        logs_of = np.searchsorted(frames.first_of_scene, chosen, side="right") - 1
        return [*zip(frames.token[chosen].tolist(), frames.scene[logs_of].tolist(), strict=True)]

    # --- samples ----------------------------------------------------------------------------------------

    @cached_property
    def _blueprint(self) -> SampleDataGroup:
        views = [self._index.camera_names[camera] for camera, _ in self._views]
        sample = attrs.evolve(self._fields, cameras=views).blueprint()
        for camera in sample["cameras"].values() if views else ():
            camera.add_data_field("distortion", _DT.FLOAT64, ndim=1)
        for group, fields in _OF_EGO.items():
            sample.add_data_group_field(group, SampleDataGroup())
            for name, (dtype, ndim) in fields.items():
                sample[group].add_data_field(name, dtype, ndim=ndim)
        return sample

    @cached_property
    def _views(self) -> list[tuple[int, int]]:
        known = self._index.camera_names
        return [(known.index(camera), back) for camera, frames in self._frames_back.items() for back in frames]

    def _earlier_records(self, lidar: tables.LidarColumns, frame: int) -> list[int]:
        return [int(lidar.of_frame[frame - back]) for back in self._clouds_back]

    def _others(self, sample_index: int) -> list[object]:
        groups = self.ego_columns([sample_index]).values()
        return [column[0] for columns in groups for column in columns.values()]

    def _camera(self, cameras: tables.CameraColumns, frame: int, camera: int, back: int) -> list[object]:
        distortion = np.array(_required(cameras.distortion)[frame - back, camera])
        return [*super()._camera(cameras, frame, camera, back), distortion]

    def _points(self, lidar: tables.LidarColumns, record: int) -> Float32:
        name = os.fsdecode(bytes(lidar.file[record]))
        return points_of(self._storage.read_bytes(name), self.point_columns, self._storage.path(name))


_PLACES = {"positions": (_DT.FLOAT, 2), "rotations": (_DT.FLOAT, 3), "times": (_DT.FLOAT64, 1)}
_PLACES["poses"] = (_DT.FLOAT64, 2)
_STATES = {"velocities": (_DT.FLOAT, 2), "accelerations": (_DT.FLOAT, 2), "commands": (_DT.INT64, 2)}
_OF_EGO = {"ego_history": {**_PLACES, **_STATES}, "ego_future": _PLACES}
_T = TypeVar("_T")


def _required(column: _T | None) -> _T:
    """A column that each index of this reader has."""
    if column is None:
        raise FileError("The index is not one of NAVSIM: name another `index_cache`.")
    return column


def _frames_back(sensors: Sensors | None, num_history: int) -> dict[str, list[int]]:
    """How many frames before the current one those of each sensor are that are loaded, the oldest first."""
    if sensors is None:
        return {camera: [0] for camera in logs.CAMERAS}
    checks.instance(sensors, "sensors", Mapping)
    known, found = [*logs.CAMERAS, _LIDAR], {}
    for given, frames in sensors.items():
        name = str(given).upper()
        if name not in known:
            hint = f"{did_you_mean(name, known)} There are: {listed(known)}."
            raise SettingError(f"`sensors` names {shown(given)}, which is no sensor.{hint}")
        if name in found:
            raise SettingError(f"`sensors` names {name} twice.")
        if isinstance(frames, bool):
            frames = range(num_history) if frames else ()
        asked = checks.elements(frames)
        is_right = asked is not None and all(
            not isinstance(frame, bool) and frame in range(num_history) for frame in asked
        )
        if not is_right or (name == _LIDAR and asked and num_history - 1 not in asked):
            rule = f"must be frames of the history, from 0 to {num_history - 1}, True or False"
            with_current = f"; those of {_LIDAR} with the current one, {num_history - 1}" * (name == _LIDAR)
            raise SettingError(f"`sensors[{given!r}]` {rule}{with_current}, got {shown(frames)}.")
        if asked:
            found[name] = sorted({num_history - 1 - frame for frame in asked}, reverse=True)
    cameras = {name: found[name] for name in logs.CAMERAS if name in found}
    return {**cameras, **{name: found[name] for name in [_LIDAR] if name in found}}


def planar_poses(world_from_ego: Float64) -> Float64:
    """``ego_pose`` of NAVSIM, x, y and heading ``(..., 3)``, of poses ``(..., 3, 4)``."""
    heading = np.arctan2(-world_from_ego[..., 0, 1], world_from_ego[..., 0, 0])
    return np.stack([world_from_ego[..., 0, 3], world_from_ego[..., 1, 3], heading], axis=-1)


def seen_from(origin: Float64, planar: Float64) -> Float64:
    """Planar poses ``(..., 3)`` where that of the origin is 0; headings are in [-pi, pi]."""
    x, y, turn = np.moveaxis(planar - origin, -1, 0)
    cos, sin = np.cos(origin[..., 2]), np.sin(origin[..., 2])
    turn = np.arctan2(np.sin(turn), np.cos(turn))
    return np.stack([cos * x + sin * y, cos * y - sin * x, turn], axis=-1)
