# SPDX-License-Identifier: Apache-2.0
"""Argoverse 2: the files of sensor logs, their index, and the provider. Times are nanoseconds."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from accvlab.dali_pipeline_framework.checks import file_path, listed, number
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.extension import exact

from .driving import arrow_files, poses
from .driving.array_types import Array, Float32, Float64, Int64
from .driving.driving_fields import most_sweeps
from .driving.driving_index import DrivingIndex, LidarColumns
from .driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from .driving.poses import Trajectory, half_period, require_ascending, require_known
from .driving.requested_parts import RequestedParts, index_of_parts, requested_scenes
from .driving.scene_parts import Scene, SceneImages, SceneRecords, images_near, index_of_scenes

POSES = "city_SE3_egovehicle.feather"
_POSE = dict.fromkeys(("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m"), "number")
_TIME, _NAME = "timestamp_ns", "sensor_name"
_BOXES = {_TIME: "whole", "track_uuid": "text", "category": "text"}
_CALIBRATION = ("egovehicle_SE3_sensor", "intrinsics")
_SIZE = ("length_m", "width_m", "height_m")
_SIZE_PX = ("width_px", "height_px")
_LENS_PX = ("fx_px", "fy_px", "cx_px", "cy_px")
_MOST_DEPTH = 2


def find_logs(root: Path) -> list[Path]:
    """Find the folders of logs: the folder itself, those in it, or those in the splits in it.

    Raises:
        FileError: There is none.
    """
    for depth in range(_MOST_DEPTH + 1):
        found = sorted(path.parent for path in root.glob("[!.]*/" * depth + POSES))
        if found:
            return found
    raise FileError(f"There is no log of Argoverse 2 in {str(root)!r}: no folder in it has a {POSES}.")


class ArgoverseLog:
    """One log. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        folder: Its folder.
        parts: What is requested of it.
    """

    def __init__(self, folder: Path, parts: RequestedParts) -> None:
        """Name the folder; files are read when they are needed."""
        self.folder = folder
        self.parts = parts
        self._calibration_files = [folder / "calibration" / f"{name}.feather" for name in _CALIBRATION]

    @cached_property
    def ego(self) -> Trajectory:
        """Pose of the vehicle in the city."""
        path = self.folder / POSES
        columns = arrow_files.read_columns(path, {_TIME: "whole", **_POSE})
        order = np.argsort(columns[_TIME], kind="stable")
        times: Int64 = columns[_TIME][order]
        arrow_files.require_times(times, path, _TIME)
        return Trajectory(times, arrow_files.poses_of_columns(columns, path, [*_POSE])[order])

    @cached_property
    def _calibration(self) -> list[dict[str, Array]]:
        """Columns of the places of sensors on the vehicle, and of the intrinsics of cameras."""
        kinds = [_POSE, dict.fromkeys((*_LENS_PX, *_SIZE_PX), "number")]
        return [
            arrow_files.read_columns(
                path,
                {_NAME: "text", **numbers},
                or_none=_SIZE_PX,
                empty=dict.fromkeys(numbers, arrow_files.NONE_IS_NAN),
            )
            for path, numbers in zip(self._calibration_files, kinds, strict=True)
        ]

    def calibration(self, camera: str) -> tuple[Float64, tuple[int, int], Float64]:
        """Intrinsics of a camera, width and height of its images (0 for unknown), its place on the vehicle.

        The matrix is without distortion, which is small.
        """
        (mounted_in, lenses_in), (mounted, lenses) = self._calibration_files, self._calibration
        own = arrow_files.row_of(arrow_files.rows_by(lenses, [_NAME]), lenses_in, {_NAME: camera})
        fx, fy, cx, cy = arrow_files.numbers_of(lenses, lenses_in, _LENS_PX, own)[0]
        width, height = (int(np.nan_to_num(lenses[name][own])[0]) if name in lenses else 0 for name in _SIZE_PX)
        own = arrow_files.row_of(arrow_files.rows_by(mounted, [_NAME]), mounted_in, {_NAME: camera})
        place = arrow_files.poses_of_columns(mounted, mounted_in, [*_POSE], own)[0]
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), (width, height), place

    @cached_property
    def cameras(self) -> list[str]:
        """Names of the cameras that have images, by name."""
        folder = self.folder / "sensors" / "cameras"
        found = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        return sorted(name for name in found if not name.startswith((".", "__")))  # as `__MACOSX`

    def image_times(self, camera: str) -> Int64:
        """Times of the images of a camera, in order."""
        return _times_in(self.folder / "sensors" / "cameras" / camera, ".jpg")

    @cached_property
    def lidar_times(self) -> Int64:
        """Times of the lidar records, in order."""
        return _times_in(self.folder / "sensors" / "lidar", ".feather")

    @cached_property
    def annotations(self) -> dict[str, Array] | None:
        """Columns of the boxes; None where the log has none (the split ``test``)."""
        path = self.folder / "annotations.feather"
        return self.parts.read("boxes", lambda: self._annotations(path)) if path.exists() else None

    def _annotations(self, path: Path) -> dict[str, Array]:
        kinds = {**_BOXES, **dict.fromkeys(_SIZE, "number"), **_POSE, "num_interior_pts": "whole"}
        columns = arrow_files.read_columns(path, kinds, or_none=["num_interior_pts"])
        records = np.unique(columns[_TIME])
        missing = np.setdiff1d(records, self.lidar_times)
        if len(self.lidar_times) and len(missing):
            raise FileError(
                f"{str(path)!r} has boxes of {len(records)} lidar records, of which {len(missing)} have no file "
                f"in 'sensors/lidar', e.g. {missing[0]}.feather. Download the log again, or leave the scene "
                f"(`scenes`) or the boxes (`boxes=False`) out."
            )
        names, pose = columns["category"], arrow_files.poses_of_columns(columns, path, [*_POSE])
        return {  # of all logs at once: names of tracks would take most of the memory
            _TIME: columns[_TIME],
            "center": pose[..., 3],
            "size": np.stack([columns[name] for name in _SIZE], axis=-1),
            "rotation": poses.quaternion_of_rotation(pose[..., :3]),
            "category": names,
            "instance": np.unique(columns["track_uuid"], return_inverse=True)[1].reshape(-1),
            "num_lidar_points": columns.get("num_interior_pts", np.full(len(names), -1)).astype(np.int32),
        }

    @cached_property
    def frame_times(self) -> Int64:
        """Times of the frames: of the lidar, or where there is none, of the boxes."""
        if len(self.lidar_times):
            return self.lidar_times
        if self.annotations is not None and len(self.annotations[_TIME]):
            return np.unique(self.annotations[_TIME])
        raise FileError(f"The log {str(self.folder)!r} has neither lidar (sensors/lidar) nor annotations.feather.")

    @property
    def sources(self) -> list[Path]:
        """Files and folders that the index depends on, as far as they are there."""
        names = [POSES, *(f"sensors/cameras/{camera}" for camera in self.cameras)]
        others = [self.folder / name for name in (*names, "sensors/lidar", "annotations.feather")]
        return [*self._calibration_files, *others]


def _times_in(folder: Path, ending: str) -> Int64:
    found = sorted(name for name in os.listdir(folder) if not name.startswith(".")) if folder.is_dir() else []
    names = [name for name in found if name.endswith(ending)]
    strange = [name for name in names if not name.removesuffix(ending).isdecimal()]
    if strange or (found and not names):
        rule = f"be named by their time in nanoseconds, as 315966265259836000{ending}"
        raise FileError(f"Files in {str(folder)!r} must {rule}, got {listed(strange or found, 3)}.")
    times = np.array(sorted(int(name.removesuffix(ending)) for name in names), np.int64)
    require_ascending(times, f"The folder {str(folder)!r}", strictly=True)
    return times


POINT_COLUMNS = ("x", "y", "z", "intensity", "laser_number", "offset_ns")


def make_index(
    root: Path, logs: Sequence[ArgoverseLog], tolerance_s: float | None, most_sweeps: int
) -> DrivingIndex:
    """Make the index of some logs.

    Raises:
        FileError: A file cannot be read, or is not as it should be.
    """
    annotations = [log.annotations for log in logs if log.annotations is not None]
    has_lidar = any(len(log.lidar_times) for log in logs)
    return index_of_scenes(
        [_scene(root, log, tolerance_s) for log in logs],
        base="ego",
        camera_names=sorted({camera for log in logs for camera in log.cameras}),
        most_sweeps=most_sweeps,
        categories=sorted({name for columns in annotations for name in columns["category"]}),
        point_columns=POINT_COLUMNS if has_lidar else (),
        origin={"format": "Argoverse 2 sensor", "root": str(root)},
    )


def _scene(root: Path, log: ArgoverseLog, tolerance_s: float | None) -> Scene:
    times = log.frame_times
    require_known(log.ego.times, times, 1e9, f"The file {str(log.folder / POSES)!r}")
    world_from_ego = log.ego.at(times)
    folder = (log.folder / "sensors").relative_to(root).as_posix()
    images = {}
    for camera in log.cameras:
        with log.parts.reading(f"cameras/{camera}"):
            intrinsics, image_wh, mounted = log.calibration(camera)
            image_times = log.image_times(camera)
            within = half_period(image_times) if tolerance_s is None else math.floor(exact(tolerance_s) * 10**9)
            chosen, columns = images_near(
                image_times, within, times, world_from_ego, log.ego, mounted, per_second=1e9
            )
            files = [f"{folder}/cameras/{camera}/{time}.jpg" for time in image_times[chosen]]
            images[camera] = SceneImages(file=files, intrinsics=intrinsics, image_wh=image_wh, **columns)
    lidar = None
    if len(log.lidar_times):  # a frame is a record then
        lidar = SceneRecords(
            file=[f"{folder}/lidar/{time}.feather" for time in times],
            time=times / 1e9,
            world_from_lidar=world_from_ego,
            of_frame=np.arange(len(times)),
            num_before=np.arange(len(times)),
        )
    boxes = dict(log.annotations or {})
    if boxes:  # each is at the time of a frame
        boxes["frame"] = times.searchsorted(boxes.pop(_TIME))
    return Scene(
        name=log.folder.name,
        token=[f"{log.folder.name}/{time}" for time in times],
        time=times / 1e9,
        world_from_ego=world_from_ego,
        images=images,
        lidar=lidar,
        boxes=boxes or None,
    )


class ArgoverseProvider(DrivingProvider):
    """Sensor logs of Argoverse 2, as published (extra ``arrow``).

    The files of each log, below the root or a split in it; sensors may be missing::

        <log>/city_SE3_egovehicle.feather, annotations.feather
        <log>/calibration/intrinsics.feather, egovehicle_SE3_sensor.feather
        <log>/sensors/cameras/ring_front_center/315966265259836000.jpg, ...
        <log>/sensors/lidar/315966265360032000.feather

    One sample per lidar record (per time that has boxes, if the log has no lidar), as `DrivingProvider` has
    them. The reference frame is the vehicle's, also for the points, as they are published. A frame has, from
    each camera, the image nearest in time, within the tolerance; the motion of the vehicle between the two times
    is in ``camera_from_reference``. Velocities are not known; ``num_lidar_points`` is ``num_interior_pts``. No
    matrix contains the distortion of a lens.

    Example::

        provider = ArgoverseProvider("/data/av2/sensor/train", cameras=["ring_front_center"], lidar=True)
    """

    @with_provider_settings
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        tolerance_s: float | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Find the logs and open their index, which is made on first use.

        Args:
            root: A log, a folder of logs, or a folder of splits.
            tolerance_s: How far the image of a camera may be from its frame; None for half the median interval of
                that camera.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no logs, or a file cannot be read or is damaged.
            SettingError: pyarrow is missing, or the logs lack a requested part.
        """
        top = Path(file_path(root, "root")).absolute()
        tolerance = None if tolerance_s is None else number(tolerance_s, "tolerance_s", at_least=0)
        folders = find_logs(top)
        names, sweeps = requested_scenes([folder.name for folder in folders], settings), most_sweeps(settings)
        folders = [folder for folder in folders if folder.name in names]
        sources = [source for folder in folders for source in ArgoverseLog(folder, RequestedParts({})).sources]
        key = {"reader": "argoverse 2", "root": str(top), "tolerance_s": tolerance, "most_sweeps": sweeps}

        def make(parts: RequestedParts) -> DrivingIndex:
            return make_index(top, [ArgoverseLog(folder, parts) for folder in folders], tolerance, sweeps)

        super().__init__(index_of_parts(make, sources, key, settings), top, **settings)
        self._refuse_missing_files(repr(str(top)), also_images=False)

    def _points(self, lidar: LidarColumns, record: int) -> Float32:
        path = self._storage.path(os.fsdecode(bytes(lidar.file[record])))
        names = self.point_columns
        columns: dict[str, Array] = arrow_files.read_columns(path, dict.fromkeys(names, "number"))
        return np.stack([columns[name] for name in names], axis=-1).astype(np.float32)
