# SPDX-License-Identifier: Apache-2.0
"""Tables of nuScenes: CAN messages, the conversion to an index, and the provider."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import choice, file_path, listed, shown, text
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import StoragePath, parse_json, read_table

from ..driving import poses
from ..driving.array_types import Float64, Int64
from ..driving.driving_fields import most_sweeps
from ..driving.driving_index import DrivingIndex
from ..driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from ..driving.requested_parts import RequestedParts, index_of_parts
from ..driving.scene_parts import box2d_columns
from . import sensors
from .annotations import Annotations, box_columns, boxes_of_frames
from .sensors import KEYFRAMES, LIDAR
from .splits import DETECTION_CLASSES, chosen_by_split, class_mapping, names_of_split
from .tables import TABLES, not_found, read_records, tables_folder

_KINDS = ("pose", "steeranglefeedback")
_MOTION = ("accel", "rotation_rate", "vel")
_POSE = {"pos": 3, "orientation": 4, **dict.fromkeys(_MOTION, 3)}


def can_files(folder: Path) -> list[Path]:
    """The files of a folder that are read."""
    return sorted(file for kind in _KINDS for file in folder.glob(f"*_{kind}.json"))


def can_columns(
    folder: Path, scenes: Sequence[str], first_of_scene: Int64, microseconds: Int64, parts: RequestedParts
) -> tuple[Float64, Float64]:
    """``can_bus (F, 18)`` and ``ego_status (F, 10)`` of all frames; zeros in scenes without messages.

    Raises:
        FileError: A file is damaged.
    """
    can_bus, ego_status = np.zeros((len(microseconds), 18)), np.zeros((len(microseconds), 10))
    for number, scene in enumerate(scenes):
        frames = slice(int(first_of_scene[number]), int(first_of_scene[number + 1]))
        path, of_steering = (folder / f"{scene}_{kind}.json" for kind in _KINDS)
        if not path.is_file():
            continue
        wanted, messages = microseconds[frames], parts.read("can_bus", lambda: _messages(path, _POSE))  # noqa: B023
        if messages is None:
            continue
        time, values = messages
        # Position and orientation of the last message before, the rest of the first message after it.
        behind = np.searchsorted(time, wanted, side="right")
        before, behind = np.maximum(behind - 1, 0), np.minimum(behind, len(time) - 1)
        can_bus[frames, :7] = np.column_stack([values["pos"][before], values["orientation"][before]])
        can_bus[frames, 7:16] = np.column_stack([values[name][behind] for name in _MOTION])
        messages = None
        if of_steering.is_file():
            messages = parts.read("ego_status", lambda: _messages(of_steering, {"value": 1}))  # noqa: B023
        if messages is not None:
            steering_time, steering = messages
            measured = [values[name][_nearest(time, wanted)] for name in _MOTION]
            measured.append(steering["value"][_nearest(steering_time, wanted)])
            ego_status[frames] = np.column_stack(measured).astype(np.float32)  # as SparseDrive stores it
    return can_bus, ego_status


def _nearest(time: Int64, wanted: Int64) -> Int64:
    """Numbers of the messages nearest in time; the later one of two."""
    after = np.searchsorted(time, wanted)
    before, behind = np.maximum(after - 1, 0), np.minimum(after, len(time) - 1)
    is_before = (after == len(time)) | ((after > 0) & (wanted - time[before] < time[behind] - wanted))
    return np.where(is_before, before, behind)


def _messages(path: Path, fields: dict[str, int]) -> tuple[Int64, dict[str, Float64]]:
    """Times, and the values of fields, of all messages of a file."""
    try:
        messages: list[dict[str, Any]] = parse_json(read_table(path))
        if not messages:
            raise ValueError("it has no messages")
        time = np.array([message["utime"] for message in messages], np.int64)
        values = {
            name: np.array([message[name] for message in messages], np.float64).reshape(len(messages), length)
            for name, length in fields.items()
        }
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        also = [type(error)] if isinstance(error, OSError) else []
        what = f"a message lacks {shown(error.args[0])}" if isinstance(error, KeyError) else error
        message = f"The CAN messages {str(path)!r} cannot be used: {what}."
        advice = "Unpack the expansion again, or remove it."
        raise error_that_is_also(FileError, also, f"{message} {advice}") from error
    backwards = np.flatnonzero(np.diff(time) < 0) + 1
    if len(backwards):
        rule = f"The CAN messages {str(path)!r} must be in the order of time"
        raise FileError(f"{rule}: message {backwards[0]} goes back.")
    return time, values


# What the columns of points of the lidar are.
POINT_COLUMNS = ("x", "y", "z", "intensity", "ring")


@attrs.frozen
class Conversion:
    """How tables become an index.

    Attributes:
        tables: Folder of the tables.
        frames: ``"keyframes"``, or the sensor of which each record is a frame.
        boxes_2d: Whether boxes are projected into the images.
        max_sweeps: At most how many lidar sweeps belong to a frame.
        can_bus: Folder of the CAN messages; None to read none.
    """

    tables: Path
    frames: str
    boxes_2d: bool
    max_sweeps: int
    can_bus: Path | None

    def sources(self) -> list[Path]:
        """The files that are read, where they are there."""
        tables = (self.tables / f"{name}.json" for name in TABLES)
        return [*tables, *(can_files(self.can_bus) if self.can_bus else ())]

    def make_index(self, parts: RequestedParts) -> DrivingIndex:
        """Read the tables.

        Raises:
            FileError: They are damaged.
            SettingError: There is no sensor for the frames that are requested.
        """
        scenes = sensors.Scenes.read(self.tables, parts)
        calibrations = sensors.Calibrations.read(self.tables, scenes, parts)
        cameras = calibrations.cameras
        reference = sensors.reference_channel(self.frames, (*({LIDAR} & {*calibrations.channel}), *cameras))
        is_by_sample = self.frames == KEYFRAMES
        data = sensors.SensorRecords.read(
            self.tables, scenes, calibrations, cameras if is_by_sample else (), parts
        )
        if not is_by_sample:
            data.require_all(reference)
        with parts.reading("sweeps"):
            data.require_all(LIDAR)
        frames = sensors.make_frames(scenes, data, reference, only_keyframes=is_by_sample)
        columns = sensors.frame_columns(scenes, data, calibrations, frames, by_sample=is_by_sample)
        world_from_base = poses.joined(columns.world_from_ego, columns.ego_from_base)
        images = sensors.camera_columns(data, calibrations, frames, world_from_base, len(scenes))
        annotations, boxes = None, None
        with parts.reading("boxes"):
            annotations = Annotations.read(self.tables, scenes)
            world_boxes = boxes_of_frames(annotations, scenes, data, frames)
            boxes = box_columns(annotations, world_boxes, world_from_base)
        if self.can_bus:
            microseconds = np.rint(columns.time * 1e6).astype(np.int64)
            names = [str(record["name"]) for record in scenes.records]
            can_bus, ego_status = can_columns(self.can_bus, names, columns.first_of_scene, microseconds, parts)
            columns = attrs.evolve(columns, can_bus=can_bus, ego_status=ego_status)
        boxes_2d = None
        if self.boxes_2d and images is not None and boxes is not None:
            boxes_2d = box2d_columns(boxes, images, _image_sizes(data, frames, cameras))
        lidar = sensors.lidar_columns(data, calibrations, frames, self.max_sweeps)
        found = {"scenes": self._logs(scenes)}
        return DrivingIndex(
            base="ego" if lidar is None else "lidar",
            frames=columns,
            cameras=images,
            lidar=lidar,
            boxes=boxes,
            boxes_2d=boxes_2d,
            camera_names=cameras,
            categories=annotations.categories if annotations else (),
            attributes=annotations.attributes if annotations else (),
            point_columns=POINT_COLUMNS if lidar is not None else (),
            origin={"data set": "nuScenes", "tables": str(self.tables), "frames": self.frames, **found},
        )

    def _logs(self, scenes: sensors.Scenes) -> dict[str, dict[str, Any]]:
        """Of each scene: where, when, and with which vehicle it was recorded."""
        path, facts = self.tables / "log.json", ("logfile", "vehicle", "date_captured", "location")
        logs = {str(log["token"]): log for log in read_records(path, "token")} if path.is_file() else {}
        of_scenes = {str(record["name"]): logs.get(str(record["log_token"])) for record in scenes.records}
        return {scene: {name: log.get(name) for name in facts} for scene, log in of_scenes.items() if log}


def _image_sizes(
    data: sensors.SensorRecords, frames: sensors.Frames, cameras: tuple[str, ...]
) -> np.ndarray[Any, Any]:
    """Width and height of all images, ``(F, C, 2)``."""
    records = frames.records[:, : len(cameras)]  # of the channels, cameras are the first
    is_used = np.zeros(len(data.table), bool)
    is_used[records[records >= 0]] = True
    width, height = data.table["width"], data.table["height"]
    data.table.refuse(
        is_used & ((width <= 0) | (height <= 0)),
        "must have the size of its image as width and height, which 2D boxes (`boxes_2d`) are cut with",
        "width",
    )
    return np.stack([width[records], height[records]], axis=-1)


class NuScenesProvider(DrivingProvider):
    """Frames of nuScenes: its published tables and files, or others of the same format, full or mini.

    Samples are as `DrivingProvider` has them. The first time, the tables are turned into an index, which takes a
    minute or two for all of nuScenes; the index is kept (see ``index_cache``), and opened by all processes in a
    fraction of a second. The devkit is not needed.

    - The reference frame is LIDAR_TOP's at the time of its record, or with ``frames`` at the time of a record of
      the sensor that is named there; the pose of the vehicle is that of the same record. If the tables have no
      LIDAR_TOP, the reference frame is the vehicle's at the time of the first camera.
    - Categories are the names of the data set, or classes of the detection task: ``classes="detection"`` for all
      ten in the order ``car, truck, construction_vehicle, bus, trailer, barrier, motorcycle, bicycle, pedestrian,
      traffic_cone``, a list with some of their names, or a mapping of them to names of your own.
    - Velocities are the devkit's: from the annotation before to the one after; NaN without a neighbor, or if the
      two annotations are more than 1.5 s apart (3 s, if the object has both neighbors).
    - 2D boxes are around the hulls of the projected corners of 3D boxes, cut to the image.
    - ``can_bus`` and ``ego_status`` are the values in the info files of BEVFormer and SparseDrive; zeros in scenes
      without messages.

    Example::

        provider = NuScenesProvider("/data/nuscenes", split="train", classes="detection", lidar=True, num_sweeps=9)
        sweeps = NuScenesProvider("/data/nuscenes", "v1.0-mini", frames="LIDAR_TOP", cameras=["CAM_FRONT"])
    """

    @with_provider_settings
    def __init__(
        self,
        root: str | os.PathLike[str],
        version: str = "v1.0-trainval",
        *,
        split: str | os.PathLike[str] | None = None,
        frames: str = KEYFRAMES,
        data_root: StoragePath | None = None,
        can_bus_root: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Read the tables, or open the index that was made of them.

        Args:
            root: Folder of the data set, with the folder of the tables in it.
            version: Name of the folder of the tables: ``"v1.0-trainval"``, ``"v1.0-mini"``, ``"v1.0-test"``, ...
            split: ``"train"``, ``"val"``, ``"test"``, ``"mini_train"``, ``"mini_val"``, ``"train_detect"`` or
                ``"train_track"``: the scenes of it that the tables have (a warning is logged where some are
                missing). Or a file with names of scenes: a list in JSON, or text. None for all scenes.
            frames: ``"keyframes"``, or a sensor, such as ``"LIDAR_TOP"`` or ``"CAM_FRONT"``, each record of which
                is a frame. Between keyframes, images and points are the nearest in time; positions and
                angles of boxes are interpolated as by the devkit, and their other values are those of the next
                keyframe. The pose of the vehicle is that of the sensor's record.
            data_root: Folder or URL to which the names of images and points are relative; None: ``root``.
            can_bus_root: Folder of the CAN bus expansion; None for ``can_bus`` in ``root``, where that exists.
            storage_options: Arguments of the remote file system of ``data_root``.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: Tables are missing or damaged; the message names file, record and field.
            SettingError: An argument breaks its rule, the data set lacks requested parts, or frames have no image
                of a camera.
        """
        folder = Path(file_path(root, "root")).expanduser().absolute()
        has_boxes = settings.get("boxes") is not False or bool(settings.get("boxes_2d"))
        tables = tables_folder(folder, text(version, "version"), boxes=has_boxes)
        if split is not None and settings.get("scenes") is not None:
            raise SettingError("`split` and `scenes` both choose scenes: give one of them.")
        conversion = Conversion(
            tables=tables,
            frames=text(frames, "frames"),
            boxes_2d=bool(settings.get("boxes_2d")),
            max_sweeps=most_sweeps(settings),
            can_bus=_can_folder(folder, can_bus_root),
        )
        key = {"format": "nuscenes 3", **attrs.asdict(conversion)}
        of_split = None if split is None else names_of_split(split)
        index = index_of_parts(conversion.make_index, conversion.sources(), key, settings, of_split=of_split)
        if split is not None:
            settings["scenes"] = chosen_by_split(split, [os.fsdecode(bytes(name)) for name in index.frames.scene])
        classes = settings.get("classes")
        if isinstance(classes, str):
            if classes in (*DETECTION_CLASSES, *index.categories):
                raise SettingError(f"`classes` must be a list of names, got one: write [{classes!r}].")
            choice(classes, "classes", ("detection",))
        if classes is not None and index.boxes is not None:
            settings["classes"] = class_mapping(classes, index.categories)
        top = folder if data_root is None else data_root
        super().__init__(index, top, storage_options=storage_options, **settings)
        self._refuse_missing_files(f"{index.origin['tables']}/sample_data.json")
        self._check_files(
            repr(str(tables)), " Or give the folder that has `samples` in it, as `root` or `data_root`."
        )

    @property
    def scene_logs(self) -> Mapping[str, Mapping[str, str]]:
        """For each scene by its name: ``logfile``, ``vehicle``, ``date_captured``, ``location``.

        Raises:
            FileError: The tables have no log of a scene.
        """
        logs = self._index.origin["scenes"]
        missing = [name for name in self.scene_names if name not in logs]
        if missing:
            where = f"{self._index.origin['tables']}/log.json"
            raise FileError(f"{where!r} has no log of {listed(missing, 3)}. Unpack the metadata again.")
        return {name: logs[name] for name in self.scene_names}


def _can_folder(root: Path, given: str | os.PathLike[str] | None) -> Path | None:
    if given is None:
        folder = root / "can_bus"
        return folder if can_files(folder) else None
    folder = Path(file_path(given, "can_bus_root")).expanduser().absolute()
    if not can_files(folder):
        rule = "`can_bus_root` must be a folder with CAN messages (scene-0001_pose.json, ...)"
        raise not_found(f"{rule}: {str(folder)!r} has none.")
    return folder
