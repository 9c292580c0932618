# SPDX-License-Identifier: Apache-2.0
"""The files of one log of py123d, as arrays.

A log is a folder with one Arrow IPC file per modality, named after it, whose columns are ``<modality>.<name>``;
what does not change stands in the metadata of the schema (msgpack). ``sync.arrow`` says, for each frame, which
row of each modality belongs to it. Poses are ``x, y, z, qw, qx, qy, qz``, of the IMU or the camera in the world;
times are microseconds.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError, MissingPackageError, file_error

from ..driving import poses
from ..driving.arrow_files import ArrowFile
from ..driving.trajectory import Trajectory, require_ascending

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

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

    def times(self, modality: str) -> Int64Array:
        """Times of a modality, ``(n,)`` microseconds."""
        column = self.column(modality, "timestamp_us")
        where = f"The column '{modality}.timestamp_us' of {self.path(modality)!r}"
        if str(column.type) not in ("int64", "uint64") or column.null_count:
            raise FileError(f"{where} must be int64 without empty cells, got {column.type}.")
        times = np.asarray(column.to_numpy(), np.int64)
        require_ascending(times, where)
        return times

    def lists(self, modality: str, name: str, length: int, column: Any = None) -> Float64Array:
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

    def sync_rows(self, modality: str) -> Int64Array:
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
    def frame_times(self) -> Int64Array:
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


def pose_of(values: npt.ArrayLike) -> Float64Array:
    """Poses of ``x, y, z, qw, qx, qy, qz``."""
    values = np.asarray(values, np.float64)
    return poses.pose_of_quaternion(values[..., 3:7], values[..., :3])


def static_pose(metadata: Mapping[str, Any], name: str, path: str) -> Float64Array:
    """A pose of the metadata of a file.

    Raises:
        FileError: It is missing or of another form.
    """
    values: Sequence[float] | None = metadata.get(name)
    if values is None or len(values) != 7:
        raise FileError(f"The metadata of {path!r} must have {name!r}, 7 numbers, got {values!r}.")
    return pose_of(values)
