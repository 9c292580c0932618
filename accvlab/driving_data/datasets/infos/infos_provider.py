# SPDX-License-Identifier: Apache-2.0
"""A data provider for info pickles of the mmdetection3d family."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Mapping
from typing import Any

import attrs

from accvlab.dali_pipeline_framework.checks import bullets, choice, file_path
from accvlab.dali_pipeline_framework.errors import FileError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import StoragePath
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from ..driving.driving_index import DrivingIndex
from ..driving.driving_provider import LIDAR, DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from ..driving.requested_parts import RequestedParts, index_of_parts
from .box_convention import LAYOUTS, Z_PLACES
from .info_files import FileResolver
from .info_sequences import GAPS
from .infos_index import IndexSettings, index_of_pickle

_logger = logging.getLogger(__name__)

# Of what is made of a pickle: a change of it is another version.
_VERSION = 6
# The folder of the lidar in nuScenes.
_LIDAR = "LIDAR_TOP"


class InfosProvider(DrivingProvider):
    """Frames of info pickles; samples as `DrivingProvider` describes them.

    Pickles are written by the converters of StreamPETR, SparseDrive, Sparse4D, BEVFormer, VAD, UniAD, DETR3D,
    BEVFusion and mmdetection3d. Both forms are read: ``infos`` with ``metadata`` (mmdetection3d before 1.1 and
    projects built on it), and ``data_list`` with ``metainfo`` (from 1.1). A pickle is read once for each
    combination of conventions and requested contents (boxes, lidar, 2D boxes, map lines); the index for this
    combination is kept, and mapped by all processes.

    - **Boxes.** Pickles do not say what columns 3 to 6 of boxes are: state it as ``boxes_convention``. It may be
      left out if only ``"l,w,h,yaw"`` is possible: for a ``data_list``, or if vehicles are longer in column 3
      than in column 4. A convention that contradicts sizes, directions of moving objects, or the ground is an
      error.
    - **Order.** ``infos`` are sorted by time, ``data_list`` stays as it is stored, as in the reference data
      sets.
    - **Scenes** are found by ``scene_token``; or else by the tokens of the frames before (``prev``,
      ``prev_token``), by ``frame_idx``, by pauses and frames that have no sweeps, or by pauses alone. Without a
      token, a scene has the token of its first frame as its name.
    - **Files.** A path is looked for below ``data_root``, then without its first part, its first two, and so on;
      then as a name in ``samples/SENSOR``, ``sweeps/SENSOR`` and ``SENSOR``; then as it is, if it is absolute.
      Where a folder lies is found by a few of the requested files in it.
    - **Times** are microseconds in ``infos`` and seconds in ``data_list``.
    - **Velocities** are known along x and y; along z they count as 0.
    - **2D boxes** carry the converters' own labels (car, truck, trailer, ...), which are mapped by name, and
      belong to the 3D box whose center is at the same place.

    The pickle may hold plain values and NumPy arrays only: nothing in it is ever run.

    Example::

        provider = InfosProvider("nuscenes2d_temporal_infos_train.pkl", "/data/nuscenes", cameras=["CAM_FRONT"])
        print(provider.describe())
    """

    @with_provider_settings
    def __init__(
        self,
        path: str | os.PathLike[str],
        data_root: StoragePath,
        *,
        boxes_convention: str | None = None,
        z: str | None = None,
        order: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Open a pickle.

        Args:
            path: The pickle.
            data_root: Where the files are: a folder or a URL.
            boxes_convention: What columns 3 to 6 of boxes are: ``"l,w,h,yaw"``, ``"w,l,h,-yaw-pi/2"``, or
                ``"w,l,h,yaw"``; None: ``"l,w,h,yaw"``, if no other one is possible (see the class).
            z: Point of a box to which its z refers, ``"center"`` or ``"bottom"``; None: the center.
            order: ``"time"``: all frames by time; ``"stored"``: as they are stored; ``"scene"``: scenes by the
                time of their first frame, their frames by time, for scenes recorded at the same time. None:
                ``"time"`` for ``infos``, ``"stored"`` for ``data_list``.
            storage_options: Arguments of the remote file system of ``data_root``.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`. With ``boxes=False``, boxes of the pickle are not looked at.

        Raises:
            FileError: The pickle cannot be read, is damaged, holds anything but plain values, lacks something, has
                scenes that are interleaved or times that go backwards; or none of the files of a sensor is there.
            SettingError: The boxes contradict their convention, or it must be stated; the data set lacks requested
                parts, frames have no image of a camera, or there are no frames.
        """
        _check_places(file_path(path, "path"), data_root)
        self._pickle = os.path.abspath(path)
        of_boxes_and_order = IndexSettings(
            boxes_convention=choice(boxes_convention, "boxes_convention", (None, *LAYOUTS)),
            z=choice(z, "z", (None, *Z_PLACES)) or Z_PLACES[0],
            order=choice(order, "order", (None, "time", "stored", "scene")),
            boxes=settings.get("boxes") is not False,
            boxes_2d=bool(settings.get("boxes_2d")),
            lidar=bool(settings.get("lidar")),
            map_lines=bool(settings.get("map_lines")),
        )
        made: list[DrivingIndex] = []

        def make(parts: RequestedParts) -> DrivingIndex:
            made.append(index_of_pickle(self._pickle, of_boxes_and_order, parts))
            return made[-1]

        key = {"infos": _VERSION, **attrs.asdict(of_boxes_and_order)}
        index = index_of_parts(make, [self._pickle], key, settings)
        self._folders: dict[tuple[str, str], str] = {}
        super().__init__(index, data_root, storage_options=storage_options, **settings)
        self._warn_of_gaps()
        self._refuse_missing_files(repr(self._pickle))
        self._find_folders()
        self._check_files(repr(self._pickle))
        if made:
            _logger.info("%s", self.describe())

    def _warn_of_gaps(self) -> None:
        gaps = {name: where for name in self.scene_names if (where := self.origin[GAPS].get(name))}
        if gaps:
            name, where = next(iter(gaps.items()))
            warn_user(
                f"{self._pickle!r} lacks frames of {len(gaps)} of {len(self.scene_names)} scenes, as the others "
                f"say (`frame_idx`, `prev`), e.g. in {name!r} {where}, which are no neighbours in time. Make the "
                f"pickle again, or leave these scenes out (`scenes`)."
            )

    def _find_folders(self) -> None:
        """Find out which folders are meant by those in the pickle, for the files that are requested.

        Raises:
            FileError: None of the files of a sensor is there.
        """
        resolver = FileResolver(self._storage)
        for sensor, (_, names) in self._wanted_files().items():
            paths, channel = [os.fsdecode(name) for name in names], _LIDAR if sensor == LIDAR else sensor
            found = resolver.folders(paths, channel)
            if paths and not found:
                raise FileError(
                    f"{self._pickle!r} names the file {paths[0]!r} of {channel}, which is not below "
                    f"`data_root={self._storage.root!r}`, nor are others of it. Tried:\n"
                    f"{bullets(resolver.tried(paths[0], channel))}\nGive the folder that has `samples` in it as "
                    f"`data_root`; or leave out what is not there: the sensor (`cameras`, `lidar`), or its scenes "
                    f"(`scenes`)."
                )
            self._folders |= {(folder, sensor): target for folder, target in found.items()}

    def _file_name(self, name: bytes, sensor: str) -> str:
        folder, _, file = os.fsdecode(bytes(name)).rpartition("/")
        return posixpath.join(self._folders.get((folder, sensor), folder), file)

    def _origin_lines(self) -> list[str]:
        origin = self.origin
        lines = [
            f"{origin['pickle']}: {self._index.num_frames} frames ({origin['form']!r}, order: {origin['order']})",
            f"{len(self._index.frames.scene)} scene(s), found by: {origin['scenes']}",
        ]
        if "boxes_convention" in origin:
            lines.append(f"boxes: x, y, z of the {origin['z']}, {origin['boxes_convention']}")
        return lines

    def __repr__(self) -> str:
        """Summarise what was found."""
        origin, boxes = self.origin, ""
        if "boxes_convention" in origin:
            boxes = f", boxes: {origin['boxes_convention']!r}, z: {origin['z']!r}"
        return f"{super().__repr__()[:-1]}{boxes})"


def _check_places(path: str, data_root: StoragePath) -> None:
    """Refuse a folder in the place of the pickle, and a file in the place of the folder."""
    root = os.fspath(data_root) if isinstance(data_root, str | os.PathLike) else ""
    is_folder, is_file = os.path.isdir(path), os.path.isfile(root)
    problems = [f"`path` must be a pickle file, but {path!r} is a folder."] * is_folder
    problems += [f"`data_root` must be a folder or URL, but {root!r} is a file."] * is_file
    problems += ["Exchange the two arguments."] * (is_folder and is_file)
    if problems:
        raise error_that_is_also(FileError, [IsADirectoryError] * is_folder, " ".join(problems))
