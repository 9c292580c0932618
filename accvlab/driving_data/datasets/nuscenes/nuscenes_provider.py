# SPDX-License-Identifier: Apache-2.0
"""A data provider for nuScenes, and data sets in its format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accvlab.dali_pipeline_framework.checks import choice, file_path, text
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import StoragePath
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving.driving_fields import DrivingFieldSettings, most_sweeps, with_driving_fields
from ..driving.driving_index import DrivingIndex
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cached_index
from .can_bus import can_files
from .conversion import Conversion
from .frames import KEYFRAMES
from .splits import DETECTION_CLASSES, chosen_by_split, class_mapping
from .tables import tables_folder

if TYPE_CHECKING:
    from typing_extensions import Unpack


class NuScenesProvider(DrivingProvider):
    """Frames of nuScenes: its published tables and files, or others of the same format, full or mini.

    Samples are those of `DrivingProvider`. The first time, the tables are turned into an index, which takes a
    minute or two for all of nuScenes; the index is kept (see `index_cache`), and opened by all processes in a
    fraction of a second. The devkit is not needed.

    - The reference frame is LIDAR_TOP's at the time of its record; the pose of the vehicle is that of the same
      record. Where the tables have no LIDAR_TOP, it is the vehicle's at the time of the first camera.
    - Categories are those of the data set, or classes of the detection task: ``classes="detection"`` for all ten
      in the order ``car, truck, construction_vehicle, bus, trailer, barrier, motorcycle, bicycle, pedestrian,
      traffic_cone``, a list with some of their names, or a mapping of them to names of your own.
    - Velocities are the devkit's: from the annotation before to the one after; NaN where there is neither, or
      where they are more than 1.5 s (3 s with both) apart.
    - 2D boxes are around the hulls of the projected corners of 3D boxes, cut with the images.
    - ``can_bus`` and ``ego_status`` are what the info files of BEVFormer and SparseDrive hold; zeros in scenes
      without messages.

    .. code-block:: python

        provider = NuScenesProvider("/data/nuscenes", split="train", classes="detection", lidar=True, num_sweeps=9)
        sweeps = NuScenesProvider("/data/nuscenes", "v1.0-mini", frames="LIDAR_TOP", cameras=["CAM_FRONT"])
    """

    @explains_unknown_arguments()
    @with_driving_fields
    def __init__(
        self,
        root: str | os.PathLike[str],
        version: str = "v1.0-trainval",
        *,
        split: str | os.PathLike[str] | None = None,
        frames: str = KEYFRAMES,
        data_root: StoragePath | None = None,
        can_bus_root: str | os.PathLike[str] | None = None,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Read the tables, or open the index that was made of them.

        Args:
            root: Folder of the data set, with the folder of the tables in it.
            version: Name of the folder of the tables: ``"v1.0-trainval"``, ``"v1.0-mini"``, ``"v1.0-test"``, ...
            split: ``"train"``, ``"val"``, ``"test"``, ``"mini_train"``, ``"mini_val"``, ``"train_detect"`` or
                ``"train_track"``: the scenes of it that the tables have (a warning is logged where some are
                missing). Or a file with names of scenes: a list in JSON, or text. None for all scenes.
            frames: ``"keyframes"``, or a sensor, such as ``"LIDAR_TOP"`` or ``"CAM_FRONT"``, each record of which
                is a frame. Between keyframes, images and points are those nearest in time, and boxes are moved
                along as the devkit does; all else of them is that of the keyframe that follows. The pose of a
                frame is that of the sensor's record.
            data_root: What the names of images and points are relative to, where that is not ``root``: a folder or
                URL.
            can_bus_root: Folder of the CAN bus expansion; None for ``can_bus`` in ``root``, where that exists.
            scenes: Names of the scenes, in the order wanted; None for those of ``split``, in the order of the
                tables.
            index_cache: Where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else ``accvlab/driving`` in
                ``$XDG_CACHE_HOME`` or ``~/.cache``.
            storage_options: Arguments of the remote file system of ``data_root``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: Tables are missing or damaged; the message names file, record and field.
            SettingError: An argument breaks its rule, the data set lacks what is asked for, or frames have no
                image of a camera.
        """
        folder = Path(file_path(root, "root")).expanduser().absolute()
        tables = tables_folder(folder, text(version, "version"))
        if split is not None and scenes is not None:
            raise SettingError("`split` and `scenes` both choose scenes: give one of them.")
        conversion = Conversion(
            tables=tables,
            frames=text(frames, "frames"),
            boxes_2d=bool(fields.get("boxes_2d")),
            max_sweeps=most_sweeps(fields),
            can_bus=_can_folder(folder, can_bus_root),
        )
        index_folder = cached_index(
            conversion.make_index, conversion.sources(), conversion.settings(), index_cache
        )
        index = self._index = DrivingIndex.open(index_folder)  # once, though both constructors need it
        if split is not None:
            scenes = chosen_by_split(split, [os.fsdecode(bytes(name)) for name in index.frames.scene])
        classes = fields.get("classes")
        if isinstance(classes, str):
            if classes in (*DETECTION_CLASSES, *index.categories):
                raise SettingError(f"`classes` must be a list of names, got one: write [{classes!r}].")
            choice(classes, "classes", ("detection",))
            classes = list(DETECTION_CLASSES)
        if classes is not None:
            fields["classes"] = class_mapping(classes, index.categories)
        super().__init__(
            index_folder,
            folder if data_root is None else data_root,
            scenes=scenes,
            storage_options=storage_options,
            **fields,
        )
        missing = index.origin["missing_images"]
        if missing:
            self._refuse_missing_images(missing, f"{index.origin['tables']}/sample_data.json")

    @property
    def scene_logs(self) -> Mapping[str, Mapping[str, str]]:
        """Of each scene by its name: ``logfile``, ``vehicle``, ``date_captured``, ``location``."""
        logs = self._index.origin["scenes"]
        return {name: logs[name] for name in self.scene_names}


def _can_folder(root: Path, given: str | os.PathLike[str] | None) -> Path | None:
    if given is None:
        folder = root / "can_bus"
        return folder if can_files(folder) else None
    folder = Path(file_path(given, "can_bus_root")).expanduser().absolute()
    if not can_files(folder):
        raise error_that_is_also(
            FileError,
            [FileNotFoundError],
            f"`can_bus_root` must be a folder with CAN messages (scene-0001_pose.json, ...): {str(folder)!r} "
            f"has none.",
        )
    return folder
