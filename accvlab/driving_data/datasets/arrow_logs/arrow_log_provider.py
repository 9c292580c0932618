# SPDX-License-Identifier: Apache-2.0
"""A provider for logs of py123d."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_path, listed
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import StoragePath, checked_path, is_url
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving.arrow_files import ArrowFile
from ..driving.driving_fields import DrivingFieldSettings, most_sweeps, with_driving_fields
from ..driving.driving_index import CameraColumns, LidarColumns
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cached_index
from .arrow_log_index import ArrowLogSettings, make_index
from .lidar_content import read_points
from .log_files import LogFiles, find_logs

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ArrowLogProvider(DrivingProvider):
    """Logs of py123d, which converts nuScenes, nuPlan, Argoverse 2, Waymo, KITTI-360, PandaSet and others.

    One sample per row of ``sync.arrow``; samples are as `DrivingProvider` has them. Names of scenes are
    ``<split>/<log>``, tokens the ``uuid`` of the frame, names of cameras those of py123d (``pcam_f0``), names of
    categories those of the labels, in lower case. The files are read as version 0.7 of py123d writes them.

    - The vehicle is the IMU, as py123d places it (mostly the rear axle); it is the base, also of the lidar, whose
      points py123d stores so. Its pose at a frame lies between the two that are nearest in time.
    - Images are stored as JPEG or PNG files in a cell (delivered as they are, from the mapped file), as paths (in
      ``sensor_root``) or as an MP4 file of the log (delivered decoded). Cameras of a sample must be all encoded,
      or all videos.
    - ``intrinsics`` of fisheye cameras are those around the optical axis, and distortion is in none;
      ``origin["camera_models"]`` has what the files say.
    - Boxes are in the world, at their own time; they are moved into the base at the frame's time.
    - Lidar points must be stored as Arrow streams (``lidar_codec="ipc"``, ``"ipc_lz4"``, ``"ipc_zstd"``). Their
      ``timestamps`` are left out.

    The files are mapped: they must not be cut short while they are in use.

    Example::

        provider = ArrowLogProvider("/data/123d/logs/nuscenes_train", sensor_root="/data/nuscenes", lidar=True)
    """

    @explains_unknown_arguments()
    @with_driving_fields
    def __init__(
        self,
        logs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        sensor_root: StoragePath | Mapping[str, StoragePath] | None = None,
        lidar_sensor: str | None = None,
        label_names: Mapping[str, Sequence[str]] | None = None,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Find the logs and open their index; it is made where it is not there.

        Args:
            logs: A folder with logs at any depth, a log, or several of them.
            sensor_root: Where images lie that are stored as paths: a folder or a URL; for several data sets a
                mapping of their names.
            lidar_sensor: Name of the lidar, e.g. ``"lidar_top"``; None for the merged one, or else the first.
            label_names: Names of the labels of boxes, in the order of their numbers, for classes of labels that
                are not those of py123d, by name of the class.
            scenes: Names of the scenes, in the order wanted; None for all.
            index_cache: Folder where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else
                ``~/.cache/accvlab/driving``.
            storage_options: Arguments of the remote file system of ``sensor_root``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: There are no logs, or a file cannot be read or is not as it should be.
            SettingError: pyarrow is missing, or the logs lack what is asked for.
        """
        given = [logs] if isinstance(logs, str | os.PathLike) else list(logs)
        folders = [folder for each in given for folder in find_logs(file_path(each, "logs"))]
        settings = ArrowLogSettings(
            sensor_roots=_sensor_roots(sensor_root),
            label_names={name: list(names) for name, names in (label_names or {}).items()},
            lidar_sensor=lidar_sensor,
            most_sweeps=most_sweeps(fields),
        )
        index = cached_index(
            lambda: make_index(folders, settings),
            [source for folder in folders for source in LogFiles(folder).sources],
            {"reader": "arrow_logs 1", "folders": folders, **attrs.asdict(settings)},
            index_cache,
        )
        self._index_cache = index_cache
        super().__init__(index, os.path.sep, scenes=scenes, storage_options=storage_options, **fields)
        self._require_one_form()

    @cached_property
    def _file(self) -> Callable[[str], ArrowFile]:
        return lru_cache(maxsize=256)(ArrowFile)  # open files, of this process

    # --- images -----------------------------------------------------------------------------------------

    def _is_video_of_cameras(self, cameras: CameraColumns) -> npt.NDArray[np.bool_]:
        """Whether each camera of the samples has videos in the chosen scenes, and whether it has others."""
        numbers = np.asarray(cameras.video_frame)[self._frames][:, self._camera_numbers]
        has_file = np.asarray(cameras.file)[self._frames][:, self._camera_numbers] != b""
        return np.array([(has_file & (numbers >= 0)).any(axis=0), (has_file & (numbers < 0)).any(axis=0)])

    def _require_one_form(self) -> None:
        cameras = self._index.cameras
        if cameras is None or cameras.video_frame is None or not self._camera_numbers:
            return
        of_video, of_files = self._is_video_of_cameras(cameras)
        if of_video.any() and of_files.any():
            kinds = [
                f"{name}: {'videos and files' if video and file else 'videos' if video else 'files'}"
                for name, video, file in zip(self.camera_names, of_video, of_files, strict=True)
            ]
            raise SettingError(
                f"The images of a sample must be all encoded or all of videos: choose `cameras` or `scenes` that "
                f"go together. There are: {listed(kinds)}."
            )

    @cached_property
    def _is_video(self) -> bool:
        cameras = self._index.cameras
        if cameras is None or cameras.video_frame is None or not self._camera_numbers:
            return False
        return bool(self._is_video_of_cameras(cameras)[0].any())

    def _image(self, cameras: CameraColumns, frame: int, camera: int) -> Any:
        row = -1 if cameras.row is None else int(cameras.row[frame, camera])
        if row < 0:
            return super()._image(cameras, frame, camera)
        path = os.fsdecode(bytes(cameras.file[frame, camera]))
        name = self._index.camera_names[camera]
        content = self._file(path).content(f"camera.{name}.data", row)
        if content is None or not len(content):
            raise FileError(f"The image in row {row} of {path!r} is empty.")
        return content

    def _points(self, lidar: LidarColumns, record: int) -> npt.NDArray[np.float32]:
        path = os.fsdecode(bytes(lidar.file[record]))
        column = f"{os.path.basename(path).removesuffix('.arrow')}.data"
        row = record if lidar.row is None else int(lidar.row[record])
        return read_points(self._file(path), column, row, self.point_columns)


def _sensor_roots(given: StoragePath | Mapping[str, StoragePath] | None) -> dict[str, str]:
    if given is None:
        return {}
    by_name = given if isinstance(given, Mapping) else {"": given}
    paths = {name: checked_path(path, "sensor_root") for name, path in by_name.items()}
    return {name: path if is_url(path) else os.path.abspath(path) for name, path in paths.items()}
