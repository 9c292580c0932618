# SPDX-License-Identifier: Apache-2.0
"""The files of one log of py123d, as arrays: modalities, calibrations, lidar points, names of labels.

A log is a folder with one Arrow IPC file per modality, named after it, whose columns are ``<modality>.<name>``;
what does not change stands in the metadata of the schema (msgpack). ``sync.arrow`` says, for each frame, which
row of each modality belongs to it. Poses are ``x, y, z, qw, qx, qy, qz``, of the IMU or the camera in the world;
times are microseconds.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, MissingPackageError, file_error

from ..driving import poses
from ..driving.arrow_files import ArrowFile, import_pyarrow, require_memory
from ..driving.driving_index import Float64, Int64
from ..driving.poses import Trajectory, require_ascending

SYNC = "sync"
EGO = "ego_state_se3"
BOXES = "box_detections_se3"
_CAMERA, _LIDAR = "camera.", "lidar."


def find_logs(root: str | os.PathLike[str]) -> list[str]:
    """Find the folders of logs in a folder, at any depth, by name; or the folder itself.

    Raises:
        FileError: There is none.
    """
    top = os.path.abspath(root)
    found, waiting = [], [top]
    seen: set[str] = set()  # links may go in a circle
    while waiting:
        folder = waiting.pop()
        if os.path.realpath(folder) in seen:
            continue
        seen.add(os.path.realpath(folder))
        if os.path.exists(os.path.join(folder, f"{SYNC}.arrow")):
            found.append(folder)
            continue
        try:
            with os.scandir(folder) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir()]
        except OSError as error:
            raise file_error(f"The folder {folder!r} cannot be read", error) from error
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
        return sorted(path.stem for path in Path(self.folder).glob("*.arrow"))

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
                f"pip install 'accvlab.dali_pipeline_framework[arrow]'."
            ) from error
        packed = file.metadata.get(b"metadata")
        try:
            if packed is None:
                raise ValueError("it has none")
            found = msgpack.unpackb(packed, raw=False, strict_map_key=False)
            if not isinstance(found, dict):
                raise ValueError(f"it must be a mapping, got {type(found).__name__}")
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise FileError(
                f"The metadata of {file.path!r} cannot be read: {error}. Is it a file of py123d?"
            ) from error
        return found

    # --- columns ----------------------------------------------------------------------------------------

    def column(self, modality: str, name: str) -> Any:
        """A column of a modality, of pyarrow."""
        return self.file(modality).column(f"{modality}.{name}")

    def times(self, modality: str) -> Int64:
        """Times of a modality, ``(n,)`` microseconds."""
        column = self.column(modality, "timestamp_us")
        where = f"The column '{modality}.timestamp_us' of {self.path(modality)!r}"
        if str(column.type) not in ("int64", "uint64") or column.null_count:
            raise FileError(f"{where} must be int64 without empty cells, got {column.type}.")
        times = np.asarray(column.to_numpy(), np.int64)
        require_ascending(times, where)
        return times

    def lists(self, modality: str, name: str, length: int, column: Any = None) -> Float64:
        """Lists of numbers, ``(n, length)`` float64; NaN where there is none."""
        column = self.column(modality, name) if column is None else column
        if str(column.type).split("[")[0] != "fixed_size_list<item: double>" or column.type.list_size != length:
            raise FileError(
                f"The column '{modality}.{name}' of {self.path(modality)!r} must hold lists of {length} float64, "
                f"got {column.type}."
            )
        values = np.asarray(column.values.to_numpy(zero_copy_only=False), np.float64).reshape(-1, length)
        values = values[column.offset : column.offset + len(column)]
        return np.where(np.asarray(column.is_valid())[:, np.newaxis], values, np.nan)

    def sync_rows(self, modality: str) -> Int64:
        """Row of a modality at each frame, ``(num_frames,)``; -1 for none."""
        file = self.file(SYNC)
        if modality not in file.names:
            return np.full(len(self.frame_times), -1, np.int64)
        column = file.column(modality)
        where = f"The column {modality!r} of {file.path!r}"
        if str(column.type) != "int64":
            raise FileError(f"{where} must be int64, got {column.type}: write the log with py123d 0.7 or later.")
        rows = np.asarray(column.fill_null(-1).to_numpy(), np.int64)
        num_rows = self.file(modality).num_rows if modality in self.modalities else 0
        if len(rows) and rows.max() >= num_rows:
            frame = int(np.argmax(rows))
            raise FileError(
                f"{where} names row {rows[frame]} at frame {frame}, but {self.path(modality)!r} has {num_rows} "
                "rows."
            )
        return rows

    # --- what is in the log -----------------------------------------------------------------------------

    @cached_property
    def frame_times(self) -> Int64:
        """Time of each frame, microseconds."""
        return self.times(SYNC)

    @cached_property
    def frame_tokens(self) -> list[str]:
        """Name of each frame: the ``uuid`` that py123d gives it."""
        column = self.column(SYNC, "uuid")
        storage = getattr(column, "storage", column)
        try:
            return [str(uuid.UUID(bytes=bytes(value))) for value in storage.to_pylist()]
        except (TypeError, ValueError) as error:
            raise FileError(
                f"The column 'sync.uuid' of {self.path(SYNC)!r} must hold uuids of 16 bytes, got {column.type}."
            ) from error

    @cached_property
    def ego(self) -> Trajectory:
        """Pose of the IMU in the world."""
        if EGO not in self.modalities:
            raise FileError(
                f"The log {self.folder!r} has no {EGO}.arrow: frames need the pose of the vehicle. It has: "
                f"{listed(self.modalities)}."
            )
        values = self.lists(EGO, "imu_se3", 7)
        times = self.times(EGO)
        is_known = np.isfinite(values).all(axis=1)
        if not is_known.any():
            raise FileError(f"The file {self.path(EGO)!r} has no poses.")
        return Trajectory(times[is_known], pose_of(values[is_known]))

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
    values: Sequence[float] | None = metadata.get(name)
    if values is None or len(values) != 7:
        raise FileError(f"The metadata of {path!r} must have {name!r}, 7 numbers, got {values!r}.")
    return pose_of(values)


def intrinsic_matrix(camera: Mapping[str, Any], path: str) -> npt.NDArray[np.float64]:
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
            gamma_x, gamma_y, cx, cy = np.asarray(camera["projection"], np.float64)
            mirror = float(camera["mirror_parameter"])
            fx, fy, skew = gamma_x / (1 + mirror), gamma_y / (1 + mirror), 0.0
        else:
            raise ValueError(f"the camera model must be pinhole, fisheye_mei or ftheta, got {model!r}")
        matrix = np.array([[fx, skew, cx], [0, fy, cy], [0, 0, 1]], np.float64)
        if not np.isfinite(matrix).all() or fx <= 0 or fy <= 0:
            raise ValueError(f"focal lengths must be above 0, got {fx} and {fy}")
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"The calibration in {path!r} cannot be used: {error}. Its metadata is {shown(dict(camera))}."
        ) from error
    return matrix


_STREAM = b"\xff\xff\xff\xff"
_PLACE = ("x", "y", "z")
# Microseconds since 1970 do not fit into float32.
_LEFT_OUT = ("timestamps",)


def point_columns_of(file: ArrowFile, column: str) -> tuple[str, ...]:
    """What the points of a file have: of its first record that has any.

    Raises:
        FileError: They are stored in another form.
    """
    stored = str(file.type_of(column))
    if stored == "string":
        # The files are those of the data set, each with another format.
        return _PLACE
    if stored != "binary":
        raise FileError(f"The column {column!r} of {file.path!r} must hold points (binary), got {stored}.")
    for row in range(file.num_rows):
        content = file.content(column, row)
        if content is not None:
            _, names = _batch(file, row, content)
            return (*_PLACE, *(name for name in names if name not in (*_PLACE, *_LEFT_OUT)))
    return _PLACE


def read_points(file: ArrowFile, column: str, row: int, names: Sequence[str]) -> npt.NDArray[np.float32]:
    """Read the points of a record, ``(P, K)`` float32; ``(0, K)`` where there are none.

    Raises:
        FileError: They cannot be read, or lack a column.
    """
    if str(file.type_of(column)) == "string":
        raise FileError(
            f"The lidar points of {file.path!r} are stored as paths of files of the data set. Convert the logs "
            f"with lidar_store_option='binary' and lidar_codec='ipc', or leave `lidar` off."
        )
    content = file.content(column, row)
    if content is None:
        return np.zeros((0, len(names)), np.float32)
    batch, known = _batch(file, row, content)
    missing = [name for name in names if name not in known]
    if missing:
        raise FileError(f"The points in row {row} of {file.path!r} have no {listed(missing)}.")
    points = np.empty((batch.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        values = batch.column(batch.schema.get_field_index(name))
        try:
            points[:, place] = values.to_numpy(zero_copy_only=False)
        except (ValueError, TypeError) as error:
            raise FileError(
                f"The points in row {row} of {file.path!r} must have numbers as {name!r}, got {values.type}."
            ) from error
    return points


def _batch(file: ArrowFile, row: int, content: npt.NDArray[np.uint8]) -> tuple[Any, list[str]]:
    arrow = import_pyarrow(file.path)
    if content[:4].tobytes() != _STREAM:
        raise FileError(
            f"The points in row {row} of {file.path!r} are no Arrow stream (LAZ or Draco, maybe). Convert the "
            f"logs with lidar_store_option='binary' and lidar_codec='ipc', 'ipc_lz4' or 'ipc_zstd', or leave "
            "`lidar` off."
        )
    try:
        with arrow.ipc.open_stream(arrow.py_buffer(content)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
        require_memory(batch.nbytes)
        return batch, list(batch.schema.names)
    except (arrow.ArrowException, StopIteration, OSError, MemoryError, UnicodeDecodeError) as error:
        raise file_error(f"The points in row {row} of {file.path!r} cannot be read", error) from error


# By name of the class of labels, in the order of their numbers.
LABEL_NAMES: dict[str, list[str]] = json.loads(
    files(__package__).joinpath("label_names.json").read_text(encoding="utf-8")
)
