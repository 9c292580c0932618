# SPDX-License-Identifier: Apache-2.0
"""Logs of py123d: their files as arrays, their index, and the provider.

A log is a folder with one Arrow IPC file per modality, named after it, whose columns are ``<modality>.<name>``;
what does not change is in the metadata of the schema (msgpack). ``sync.arrow`` says, for each frame, which
row of each modality belongs to it. Poses are ``x, y, z, qw, qx, qy, qz``, of the IMU or the camera in the world;
times are microseconds.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_paths, listed, setting_error, shown, text
from accvlab.dali_pipeline_framework.errors import FileError, MissingPackageError, SettingError, file_error
from accvlab.dali_pipeline_framework.extension import StoragePath, checked_path, is_url, joined_url
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from .driving import arrow_files, poses
from .driving import driving_index as tables
from .driving.array_types import Array, Float32, Float64, Int64, UInt8
from .driving.arrow_files import ArrowFile, Kind, ListsOf, Tensors
from .driving.driving_fields import checked_names, most_sweeps
from .driving.driving_index import DrivingIndex
from .driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from .driving.poses import Trajectory, require_ascending, require_known
from .driving.requested_parts import RequestedParts, index_of_parts, requested_scenes
from .driving.scene_parts import Scene, SceneImages, SceneRecords, index_of_scenes, moving_camera

SYNC = "sync"
EGO = "ego_state_se3"
BOXES = "box_detections_se3"
_CAMERA, _LIDAR = "camera.", "lidar."
_LOGS = "a folder with logs, a log, or several of them"
_FLOAT = np.dtype(np.float64)
_POSE, _MOTION = Tensors(_FLOAT, (7,)), Tensors(_FLOAT, (9,))
_LACKING = "lacking"  # in the origin of an index: by log, modalities that have no file


def find_logs(root: str | os.PathLike[str]) -> list[str]:
    """Find the folders of logs in a folder, at any depth, by name; or the folder itself.

    Raises:
        FileError: There is none.
    """
    top = os.path.abspath(root)
    found: list[str] = []
    seen: set[str] = set()  # links may go in a circle

    def refuse(error: OSError) -> None:
        raise file_error(f"The folder {error.filename!r} cannot be read", error) from error

    for folder, below, names in os.walk(top, onerror=refuse, followlinks=True):
        is_new, is_log = os.path.realpath(folder) not in seen, f"{SYNC}.arrow" in names
        seen.add(os.path.realpath(folder))
        found += [folder] * (is_new and is_log)
        below[:] = below if is_new and not is_log else []
    if not found:
        raise FileError(f"There is no log in {top!r}: no folder in it has a {SYNC}.arrow.")
    return sorted(found)


class LogFiles:
    """One log. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        folder: Its folder.
    """

    def __init__(self, folder: str) -> None:
        """Name the folder; files are opened when they are needed."""
        self.folder = folder
        self._open: dict[str, ArrowFile] = {}

    def path(self, modality: str) -> str:
        """File of a modality."""
        return os.path.join(self.folder, f"{modality}.arrow")

    @cached_property
    def modalities(self) -> list[str]:
        """Names of all that has a file, by name."""
        return sorted(path.stem for path in Path(self.folder).glob("[!.]*.arrow"))

    def file(self, modality: str) -> ArrowFile:
        """File of a modality, open."""
        if modality not in self._open:
            self._open[modality] = ArrowFile(self.path(modality))
        return self._open[modality]

    def metadata(self, modality: str) -> dict[str, Any]:
        """What a file says about its modality."""
        file = self.file(modality)
        try:
            import msgpack
        except ImportError as error:
            raise MissingPackageError(
                f"Logs of py123d need msgpack, which cannot be imported ({error}). Install it: "
                f"pip install pyarrow msgpack."
            ) from error
        try:
            return dict(msgpack.unpackb(file.metadata[b"metadata"], raw=False, strict_map_key=False))
        except (KeyError, TypeError, ValueError, msgpack.exceptions.UnpackException) as error:
            what = f"The metadata of {file.path!r} cannot be read ({type(error).__name__}: {error})"
            raise FileError(f"{what}. Is it a file of py123d?") from error

    # --- columns ----------------------------------------------------------------------------------------

    def columns(self, modality: str, kinds: Mapping[str, Kind], empty: object = None) -> list[Any]:
        """Columns of a modality, see `read_columns`; ``empty`` is what empty cells are."""
        whole = {f"{modality}.{name}": kind for name, kind in kinds.items()}
        return [*arrow_files.read_columns(self.file(modality), whole, empty=dict.fromkeys(whole, empty)).values()]

    def times(self, modality: str) -> Int64:
        """Times of a modality, ``(n,)`` microseconds."""
        times: Int64 = self.columns(modality, {"timestamp_us": "whole"})[0]
        where = f"The column '{modality}.timestamp_us' of {self.path(modality)!r}"
        require_ascending(times, where)
        return times

    def sync_rows(self, modality: str) -> Int64:
        """Row of a modality at each frame, ``(num_frames,)``; -1 for none."""
        file = self.file(SYNC)
        if modality not in file.names:
            return np.full(len(self.frame_times), -1, np.int64)
        rows: Int64 = arrow_files.read_columns(file, {modality: "whole"}, empty={modality: -1})[modality]
        num_rows = self.file(modality).num_rows
        rule = f"name rows of {self.path(modality)!r}, which has {num_rows}, in {modality!r}"
        arrow_files.refuse_rows((rows >= num_rows) | (rows < -1), file.path, rule, rows)
        return rows

    # --- what is in the log -----------------------------------------------------------------------------

    @cached_property
    def frame_times(self) -> Int64:
        """Time of each frame, microseconds."""
        return self.times(SYNC)

    @cached_property
    def frame_tokens(self) -> list[str]:
        """Name of each frame: the ``uuid`` that py123d gives it."""
        column = self.file(SYNC).column("sync.uuid")
        try:
            found = column.to_pylist()
            return [str(each if isinstance(each, uuid.UUID) else uuid.UUID(bytes=each)) for each in found]
        except (TypeError, ValueError, OverflowError) as error:
            rule = f"'sync.uuid' of {self.file(SYNC).path!r} must have a UUID of 16 bytes for each frame"
            raise FileError(f"{rule}, got {column.type}: {error}.") from error

    @cached_property
    def ego(self) -> Trajectory:
        """Pose of the IMU in the world."""
        if EGO not in self.modalities:
            rule = f"The log {self.folder!r} has no {EGO}.arrow: frames need the pose of the vehicle"
            raise FileError(f"{rule}. It has: {listed(self.modalities)}.")
        times, (values,) = self.times(EGO), self.columns(EGO, {"imu_se3": _POSE}, np.nan)
        is_known = np.isfinite(values).all(axis=1)
        if not is_known.any():
            raise FileError(f"The file {self.path(EGO)!r} has no poses.")
        return Trajectory(times[is_known], pose_of(values[is_known]))

    @property
    def lacking(self) -> list[str]:
        """Names of the modalities whose rows the frames name, and which have no file."""
        sync = self.file(SYNC)
        named = [name for name in sync.names if not name.startswith(f"{SYNC}.") and name not in self.modalities]
        return [name for name in named if sync.column(name).null_count < sync.num_rows]

    @property
    def cameras(self) -> list[str]:
        """Names of the cameras; depth and label images are none."""
        return [name.removeprefix(_CAMERA) for name in self.modalities if name.startswith(_CAMERA)]

    @property
    def lidars(self) -> list[str]:
        """Names of the lidars; the merged one first."""
        found = [name.removeprefix(_LIDAR) for name in self.modalities if name.startswith(_LIDAR)]
        return sorted(found, key=lambda name: (name != "lidar_merged", name))

    @property
    def sources(self) -> list[str]:
        """All files."""
        return [self.path(modality) for modality in self.modalities]


def pose_of(values: npt.ArrayLike) -> Float64:
    """Poses of ``x, y, z, qw, qx, qy, qz``."""
    values = np.asarray(values, np.float64)
    return poses.pose_of_quaternion(values[..., 3:7], values[..., :3])


def static_pose(metadata: Mapping[str, Any], name: str, path: str) -> Float64:
    """A pose of the metadata of a file.

    Raises:
        FileError: It is missing or of another form.
    """
    values = metadata.get(name)
    if not isinstance(values, list) or len(values) != 7 or not any(values[3:]):
        rule = "x, y, z and a quaternion that is not 0, 7 numbers"
        raise FileError(f"The metadata of {path!r} must have {name!r}, {rule}, got {values!r}.")
    return pose_of(values)


def intrinsic_matrix(camera: Mapping[str, Any], path: str) -> Float64:
    """Matrix of a camera by its metadata, ``(3, 3)``, camera coordinates to pixels times depth.

    Of a pinhole camera, as it is; distortion is not contained. Of fisheye cameras (``fisheye_mei``, ``ftheta``),
    the one that is right around the optical axis: the derivative of the projection there.

    Raises:
        FileError: The calibration cannot be used.
    """
    model = str(camera.get("camera_model")).lower()
    try:
        if model == "pinhole":
            fx, fy, cx, cy, skew = np.asarray(camera["intrinsics"], np.float64)
        elif model == "ftheta":
            cx, cy, _, fx = np.asarray(camera["intrinsics"], np.float64)[:4]  # pixels per radian at angle 0
            fy, skew = fx, 0.0
        elif model == "fisheye_mei":
            fx, fy, cx, cy = np.asarray(camera["projection"], np.float64)
            fx, fy, skew = *(np.array([fx, fy]) / (1 + float(camera["mirror_parameter"]))), 0.0
        else:
            raise ValueError(f"the camera model must be pinhole, fisheye_mei or ftheta, got {model!r}")
    except (KeyError, TypeError, ValueError) as error:
        what = f"The calibration in {path!r} cannot be used: {error}"
        raise FileError(f"{what}. Its metadata is {shown(dict(camera))}.") from error
    return np.array([[fx, skew, cx], [0, fy, cy], [0, 0, 1]], np.float64)


_STREAM = b"\xff\xff\xff\xff"
_PLACE = ("x", "y", "z")
_CONVERT = (
    "Convert the logs with lidar_store_option='binary' and lidar_codec='ipc', 'ipc_lz4' or 'ipc_zstd', or leave "
    "`lidar` off."
)
# Microseconds since 1970 do not fit into float32.
_LEFT_OUT = ("timestamps",)


def point_columns_of(file: ArrowFile, column: str) -> tuple[str, ...]:
    """What the points of a file have: of its first record that has any.

    Raises:
        FileError: They are stored in another form.
    """
    found = (_batch(file, column, row) for row in range(file.num_rows))
    names = next((batch.schema.names for batch in found if batch is not None), _PLACE)
    return (*_PLACE, *(name for name in names if name not in (*_PLACE, *_LEFT_OUT)))


def read_points(file: ArrowFile, column: str, row: int, names: Sequence[str]) -> Float32:
    """Read the points of a record, ``(P, K)`` float32; ``(0, K)`` where there are none.

    Raises:
        FileError: They cannot be read, or lack a column.
    """
    batch = _batch(file, column, row)
    points = np.empty((0 if batch is None else batch.num_rows, len(names)), np.float32)
    for place, name in enumerate(names if batch is not None else ()):
        try:
            points[:, place] = batch.column(name).to_numpy(zero_copy_only=False)
        except (KeyError, ValueError, TypeError) as error:
            what = f"The points in row {row} of {file.path!r} must have numbers as {name!r}"
            raise FileError(f"{what}, got {str(batch.schema).replace(chr(10), ', ')}.") from error
    return points


def _batch(file: ArrowFile, column: str, row: int) -> Any:
    """The points of a record, as pyarrow has them; None where there are none."""
    stored = str(file.type_of(column))
    if stored != "binary":
        what = f"The lidar points of {file.path!r} are stored as paths of files of the data set ({stored})"
        raise FileError(f"{what}. {_CONVERT}")
    content = file.content(column, row)
    if content is None:
        return None
    where = f"The points in row {row} of {file.path!r}"
    if content[:4].tobytes() != _STREAM:
        raise FileError(f"{where} are no Arrow stream (LAZ or Draco, maybe). {_CONVERT}")
    with arrow_files.reading(where, file.path) as arrow:
        reader = arrow.ipc.open_stream(arrow.py_buffer(content))
        batch = reader.read_next_batch()
        batch.validate(full=True)
        arrow_files.require_memory(batch.nbytes)
        return batch


# By name of the class of labels, in the order of their numbers.
LABEL_NAMES: dict[str, list[str]] = json.loads(
    files(__package__).joinpath("label_names.json").read_text(encoding="utf-8")
)


@attrs.frozen(kw_only=True)
class ArrowLogSettings:
    """How an index of logs is made.

    Attributes:
        sensor_roots: Where images lie that are stored as paths: by name of the data set, or "" for all.
        label_names: Names of the labels of classes that py123d does not have, by name of the class.
        lidar_sensor: Name of the lidar; None for the merged one, or else the first.
        most_sweeps: Number of earlier lidar records of each frame at most.
    """

    sensor_roots: Mapping[str, str]
    label_names: Mapping[str, Sequence[str]]
    lidar_sensor: str | None
    most_sweeps: int


def make_index(folders: Sequence[str], settings: ArrowLogSettings, parts: RequestedParts) -> DrivingIndex:
    """Make the index of some logs.

    Raises:
        SettingError: Something that a log needs is not set.
        FileError: A file cannot be read, or is not as it should be.
    """
    logs = [LogFiles(folder) for folder in folders]
    names = [_scene_name(log) for log in logs]
    wanted, known = settings.lidar_sensor, sorted({name for log in logs for name in log.lidars})
    if wanted is not None and wanted not in known:
        raise SettingError(f"`lidar_sensor` is {wanted!r}, which no log has. There are: {listed(known)}.")
    number_of: dict[str, int] = {}
    scenes = [_scene(log, name, settings, number_of, parts) for log, name in zip(logs, names, strict=True)]
    pairs = [(log, key) for log in logs if (key := _lidar_of(log, wanted))]
    columns = parts.read("lidar", lambda: [point_columns_of(log.file(key), f"{key}.data") for log, key in pairs])
    point_columns = [name for name in (columns or [()])[0] if all(name in others for others in columns or ())]
    models = {  # of each camera, that of the first log that has it
        name: parts.read(f"cameras/{name}", partial(log.metadata, f"{_CAMERA}{name}"))
        for log in reversed(logs)
        for name in log.cameras
    }
    return index_of_scenes(
        scenes,
        base="ego",
        camera_names=sorted({name for log in logs for name in log.cameras}),
        most_sweeps=settings.most_sweeps,
        categories=list(number_of),
        point_columns=point_columns,
        origin={
            "format": "py123d",
            "logs": list(folders),
            "camera_models": models,
            _LACKING: {log.folder: names for log in logs if (names := log.lacking)},
        },
    )


def _labels_given(given: object) -> dict[str, list[str]]:
    if not isinstance(given, Mapping):
        rule = "a mapping of classes to the names of their labels"
        raise setting_error("label_names", rule, given, "Write {'Class': ['name of label 0', ...]}.")
    names = {name: f"label_names[{name!r}]" for name in given}
    return {
        name: [text(label, setting) for label in checked_names(given[name], setting) or ()]
        for name, setting in names.items()
    }


def _names_of_logs(folders: Sequence[str], scenes: Sequence[object]) -> dict[str, str]:
    """Names of the scenes of logs by folder; without logs that cannot be read, if others have the scenes."""
    names, error = {}, None
    for folder in folders:
        try:
            names[folder] = _scene_name(LogFiles(folder))
        except FileError as found:
            error = error or found
    if error is not None and not {*map(str, scenes)} <= {*names.values()}:
        raise error
    return names


def _scene_name(log: LogFiles) -> str:
    metadata = log.metadata(SYNC)
    try:
        return f"{metadata['split']}/{metadata['log_name']}"
    except KeyError as error:
        raise FileError(f"The metadata of {log.path(SYNC)!r} must have {error}.") from error


def _scene(
    log: LogFiles, name: str, settings: ArrowLogSettings, number_of: dict[str, int], parts: RequestedParts
) -> Scene:
    require_known(log.ego.times, log.frame_times, 1e6, f"The file {log.path(EGO)!r}")
    world_from_ego = log.ego.at(log.frame_times)
    lidar = _lidar_of(log, settings.lidar_sensor)
    images = {}
    for camera in log.cameras:
        with parts.reading(f"cameras/{camera}"):
            images[camera] = _images(log, f"camera.{camera}", settings, world_from_ego)
    has_boxes = BOXES in log.modalities
    return Scene(
        name=name,
        token=log.frame_tokens,
        time=log.frame_times / 1e6,
        world_from_ego=world_from_ego,
        can_bus=parts.read("can_bus", lambda: _can_bus(log, world_from_ego)),
        images=images,
        lidar=parts.read("lidar", lambda: _records(log, lidar)) if lidar else None,
        boxes=parts.read("boxes", lambda: _boxes(log, settings, number_of)) if has_boxes else None,
    )


def _can_bus(log: LogFiles, world_from_ego: Float64) -> Float64 | None:
    """Position, orientation, acceleration, rotation rate, velocity (in the vehicle), heading (radians, degrees).

    None where the log does not have the motion of the vehicle.
    """
    if f"{EGO}.dynamic_state_se3" not in log.file(EGO).names:
        return None
    (motion,), times = log.columns(EGO, {"dynamic_state_se3": _MOTION}, np.nan), log.times(EGO)
    rows = np.clip(np.searchsorted(times, log.frame_times), 0, len(times) - 1)
    velocity, acceleration, rotation_rate = np.split(motion[rows], 3, axis=1)
    quaternion = poses.quaternion_of_rotation(world_from_ego[..., :3])
    heading = poses.yaw_of_quaternion(quaternion)[:, np.newaxis] % (2 * np.pi)
    columns = [world_from_ego[..., 3], quaternion, acceleration, rotation_rate, velocity]
    can_bus = np.concatenate([*columns, heading, np.degrees(heading)], axis=1)
    return can_bus if np.isfinite(can_bus).all() else None


# --- cameras and lidar ------------------------------------------------------------------------------------


def _images(log: LogFiles, key: str, settings: ArrowLogSettings, world_from_ego: Float64) -> SceneImages:
    metadata, rows = log.metadata(key), log.sync_rows(key)
    has = np.flatnonzero(rows >= 0)
    taken = rows[has]
    times = log.times(key)[taken]
    mounted = static_pose(metadata, "camera_to_imu_se3", log.path(key))
    known = log.columns(key, {"camera_to_global_se3": _POSE}, np.nan)[0][taken]
    world_from_camera = poses.joined(log.ego.at(times), mounted)  # as py123d does where none is stored
    is_known = np.isfinite(known).all(axis=1)
    world_from_camera[is_known] = pose_of(known[is_known])
    return SceneImages(
        frames=has,
        time=times / 1e6,
        intrinsics=intrinsic_matrix(metadata, log.path(key)),
        camera_from_base=moving_camera(mounted, has, world_from_camera, world_from_ego),
        ego_from_camera=mounted,
        image_wh=_size_of(metadata),
        **_files(log, key, taken, settings),
    )


def _size_of(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """Width and height of images; None where the metadata do not say them."""
    width, height = metadata.get("width"), metadata.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _files(log: LogFiles, key: str, rows: Int64, settings: ArrowLogSettings) -> dict[str, Any]:
    """Where the images of a camera are: columns of `SceneImages`."""
    stored = str(log.file(key).type_of(f"{key}.data"))
    if stored in ("binary", "large_binary"):
        return {"file": [log.path(key)] * len(rows), "row": rows}
    if stored == "int32":
        (numbers,) = log.columns(key, {"data": "whole"}, -1)
        # Where rows are the frames one by one, there are as many: another number would be another recording.
        is_each = np.array_equal(numbers, np.arange(len(numbers)))
        return {
            "file": [os.path.join(log.folder, f"{key}.mp4")] * len(rows),
            "video_frame": numbers[rows],
            "frame_times": log.times(key) if is_each else None,
        }
    if stored != "string":
        rule = "must hold paths (string), images (binary) or numbers of frames (int32)"
        raise FileError(f"The column '{key}.data' of {log.path(key)!r} {rule}, got {stored}.")
    data_set = str(log.metadata(SYNC).get("dataset"))
    root = settings.sensor_roots.get(data_set, settings.sensor_roots.get(""))
    if root is None:
        what = f"The images of {key!r} in {log.folder!r} are stored as paths"
        raise SettingError(f"{what}: `sensor_root` must say where the data set {data_set!r} lies.")
    join = joined_url if is_url(root) else os.path.join
    paths = log.columns(key, {"data": "text"}, "")[0][rows].tolist()
    return {"file": [join(root, path) if path else "" for path in paths]}


def _lidar_of(log: LogFiles, wanted: str | None) -> str | None:
    """Modality of the lidar of a log: the one that is wanted, or the first; None where it has none."""
    name = next((name for name in log.lidars if wanted in (None, name)), None)
    return None if name is None else f"lidar.{name}"


def _records(log: LogFiles, key: str) -> SceneRecords:
    """Records of a lidar. py123d stores points in coordinates of the IMU, at the time of the record."""
    of_frame, times = log.sync_rows(key), log.times(key)
    return SceneRecords(
        file=[log.path(key)] * len(times),
        time=times / 1e6,
        world_from_lidar=log.ego.at(times),
        of_frame=of_frame,
        num_before=np.where(of_frame >= 0, of_frame, np.searchsorted(times, log.frame_times)),
        row=np.arange(len(times)),
    )


# --- boxes ------------------------------------------------------------------------------------------------


def _label_names(log: LogFiles, settings: ArrowLogSettings) -> Sequence[str]:
    path, qualified = log.path(BOXES), log.metadata(BOXES).get("box_detection_label_class")
    if not isinstance(qualified, str):
        raise FileError(f"The metadata of {path!r} must have 'box_detection_label_class', got {qualified!r}.")
    name = qualified.rsplit(".", 1)[-1]
    names = settings.label_names.get(name, LABEL_NAMES.get(name))
    if names is None:
        raise SettingError(
            f"The labels of {path!r} are of the class {qualified!r}, whose names are not known: pass "
            f"`label_names={{{name!r}: [names, in the order of their numbers]}}`. Known: "
            f"{listed(sorted(LABEL_NAMES))}."
        )
    return names


def _boxes(log: LogFiles, settings: ArrowLogSettings, number_of: dict[str, int]) -> dict[str, Array]:
    """Columns of the boxes; ``number_of`` the categories is completed."""
    label_names = _label_names(log, settings)
    numbers = np.array([number_of.setdefault(name, len(number_of)) for name in label_names], np.int32)
    path, rows = log.path(BOXES), log.sync_rows(BOXES)
    columns = log.columns(
        BOXES,
        {
            "bounding_box_se3": ListsOf(Tensors(_FLOAT, (10,))),
            "velocity_3d": ListsOf(Tensors(_FLOAT, (3,)), np.nan),
            "label": ListsOf("whole", len(numbers)),
            "track_token": ListsOf("text", "None"),
            "num_lidar_points": ListsOf("whole", -1),
        },
    )
    of_rows = columns[0].counts
    if not all(np.array_equal(column.counts, of_rows) for column in columns):
        raise FileError(f"Lists in the columns of {path!r} must have as many elements as there are boxes.")
    frames = np.flatnonzero(rows >= 0)
    first, counts = tables.first_column(of_rows)[rows[frames]], of_rows[rows[frames]]
    frame, taken = np.repeat(frames, counts), tables.rows_from(first, counts)
    boxes, velocity, labels, tokens, num_points = (column.values[taken] for column in columns)
    if labels.max(initial=0) >= len(numbers):
        what = f"The column '{BOXES}.label' of {path!r} has the label {labels.max()}"
        raise FileError(f"{what}, there are {len(numbers)}: {listed(label_names)}.")
    ego_from_world = poses.inverse(log.ego.at(log.frame_times))[frame]
    turn = poses.quaternion_of_rotation(ego_from_world[..., :3])
    with np.errstate(invalid="ignore"):  # such boxes are refused with the index
        rotation = boxes[:, 3:7] / np.linalg.norm(boxes[:, 3:7], axis=1, keepdims=True)
    return {
        "frame": frame,
        "center": poses.moved(ego_from_world, boxes[:, :3]),
        "size": boxes[:, 7:],
        "rotation": poses.product_of_quaternions(turn, rotation),
        "velocity": poses.turned(ego_from_world, velocity),
        "category": numbers[labels],
        "instance": np.unique(tokens, return_inverse=True)[1].astype(np.int64).reshape(-1),
        "num_lidar_points": num_points.astype(np.int32),
    }


class ArrowLogProvider(DrivingProvider):
    """Logs of py123d, which converts nuScenes, nuPlan, Argoverse 2, Waymo, KITTI-360, PandaSet and others.

    One sample per row of ``sync.arrow``; samples are as `DrivingProvider` has them. Scenes are named
    ``<split>/<log>``, cameras as in py123d (``pcam_f0``), categories as their labels in lower case; tokens are the
    ``uuid`` of the frame. The files are read as version 0.7 of py123d writes them.

    - The reference frame, also of lidar points, is the vehicle's: that of the IMU, as py123d places it (mostly at
      the rear axle). The pose of the vehicle at a frame is interpolated between the two poses nearest in time.
    - Images are stored as JPEG or PNG files in cells of the table (delivered as they are, from the mapped file),
      as paths (in ``sensor_root``) or as an MP4 file of the log (delivered as ``images`` says). The cameras
      of a sample must all be stored as image files, or all as videos.
    - ``intrinsics`` are pinhole matrices: they leave out the distortion of the lens, and are accurate for fisheye
      cameras only around the optical axis. The full models, each from the first log with the camera, are in
      ``origin["camera_models"]``.
    - Boxes are stored in the world, at times of their own; they are moved into the frame of the vehicle at the
      time of the sample.
    - Lidar points must be stored as Arrow streams (``lidar_codec="ipc"``, ``"ipc_lz4"``, ``"ipc_zstd"``). Their
      ``timestamps`` are left out.

    The files are mapped: they must not be cut short while they are in use. A file that is written again is an
    error; a provider that is opened after that reads the new file.

    Example::

        provider = ArrowLogProvider("/data/123d/logs/nuscenes_train", sensor_root="/data/nuscenes", lidar=True)
    """

    @with_provider_settings
    def __init__(
        self,
        logs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        sensor_root: StoragePath | Mapping[str, StoragePath] | None = None,
        lidar_sensor: str | None = None,
        label_names: Mapping[str, Sequence[str]] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Find the logs and open their index, which is made on first use.

        Args:
            logs: A folder with logs at any depth, a log, or several of them.
            sensor_root: Where images lie that are stored as paths: a folder or a URL; for several data sets a
                mapping from their names to folders or URLs.
            lidar_sensor: Name of the lidar, e.g. ``"lidar_top"``; None for the merged one, or else the first.
            label_names: For label classes that py123d does not have: name of the class -> names of its labels, in
                the order of their numbers.
            storage_options: Arguments of the remote file system of ``sensor_root``.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no logs, or a file cannot be read or is damaged.
            SettingError: pyarrow is missing, or the logs lack a requested part.
        """
        given = file_paths(logs, "logs", _LOGS)
        if not given:
            raise setting_error("logs", _LOGS, logs, "Name at least one.")
        folders = [folder for each in given for folder in find_logs(each)]
        of_logs = ArrowLogSettings(
            sensor_roots=_sensor_roots(sensor_root),
            label_names=_labels_given({} if label_names is None else label_names),
            lidar_sensor=lidar_sensor,
            most_sweeps=most_sweeps(settings),
        )
        if (scenes := settings.get("scenes")) is not None:
            name_of = _names_of_logs(folders, scenes)
            wanted = requested_scenes([*name_of.values()], settings)
            folders = [folder for folder in folders if name_of.get(folder) in wanted]
        sources = [source for folder in folders for source in LogFiles(folder).sources]
        key = {"reader": "arrow_logs 4", "folders": folders, **attrs.asdict(of_logs)}
        self._last_change_ns = max(changed_ns for _, _, changed_ns in tables.states_of(sources))
        index = index_of_parts(lambda parts: make_index(folders, of_logs, parts), sources, key, settings)
        super().__init__(index, os.path.sep, storage_options=storage_options, **settings)
        self._warn_of_missing_modalities(RequestedParts(settings), lidar_sensor)
        place = listed(map(repr, given))
        self._refuse_missing_files(place, also_images=False)
        self._check_files(place)

    def _warn_of_missing_modalities(self, parts: RequestedParts, lidar: str | None) -> None:
        """Warn of files that logs say they have, and that samples would have; ``lidar`` is the one chosen."""

        def is_wanted(modality: str) -> bool:
            kind, _, name = modality.partition(".")
            part = {"camera": f"cameras/{name}", "lidar": "lidar", BOXES: "boxes"}.get(kind, "")
            return parts.wants(part) and (kind != "lidar" or lidar in (None, name))

        of_logs = self.origin[_LACKING].items()
        lacking = [f"{folder}/{name}.arrow" for folder, names in of_logs for name in names if is_wanted(name)]
        if lacking:
            warn_user(
                f"{len(lacking)} file(s) that `{SYNC}.arrow` of the logs name are not there, e.g. {lacking[0]!r}: "
                f"samples are without them. Get them, or choose what is there (`cameras`, `lidar`, `boxes`)."
            )

    @cached_property
    def _file(self) -> Callable[[str], ArrowFile]:
        # Open files, of this process.
        return lru_cache(maxsize=256)(partial(ArrowFile, last_change_ns=self._last_change_ns))

    # --- images -----------------------------------------------------------------------------------------

    def _image(self, cameras: tables.CameraColumns, frame: int, camera: int) -> UInt8:
        row = -1 if cameras.row is None else int(cameras.row[frame, camera])
        if row < 0:
            return super()._image(cameras, frame, camera)
        path = os.fsdecode(bytes(cameras.file[frame, camera]))
        content = self._file(path).content(f"camera.{self._index.camera_names[camera]}.data", row)
        if content is None or not len(content):
            raise FileError(f"The image in row {row} of {path!r} is empty.")
        return content

    def _points(self, lidar: tables.LidarColumns, record: int) -> Float32:
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
