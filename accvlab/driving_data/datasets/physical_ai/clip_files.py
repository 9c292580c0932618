# SPDX-License-Identifier: Apache-2.0
"""What the files of a clip say. What is missing, cannot be read, or is not as it should be, is a `FileError`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.extension import StoredFile
from accvlab.dali_pipeline_framework.providers import Storage

from ..driving.array_types import Array, Float64, Int64
from ..driving.arrow_files import (
    NONE_IS_NAN,
    poses_of_columns,
    read_columns,
    refuse_repeated,
    sizes_of_columns,
)
from ..driving.ego_motion import SmoothTrajectory
from ..driving.poses import require_ascending
from .layout import ClipLayout

_POSE = dict.fromkeys(("qw", "qx", "qy", "qz", "x", "y", "z"), "number")
_ALSO_CALLED = {"clip_id": ["__index_level_0__"], "sensor_name": ["camera_name", "__index_level_1__"]}
_NONE = np.zeros(0, np.int64)
_NOTHING: Mapping[str, object] = {}
_EMPTY = {"clip_is_valid": False, "split": "", "end_timestamp": 0}  # of the list of clips: nothing is said


@attrs.frozen(eq=False)
class ClipFiles:
    """One clip.

    Attributes:
        storage: The folder of the data set.
        layout: Where its files lie.
        name: Its name.
        cameras: Its cameras.
        chunk: Its chunk; 0 where that is not known.
        events: Its events, microseconds.
        end: When it ends, microseconds.
        is_valid: Whether the list of clips calls it valid.
        split: Its split in the list of clips; empty where that has none.
    """

    storage: Storage
    layout: ClipLayout
    name: str
    cameras: Sequence[str]
    chunk: int = 0
    events: Int64 = _NONE
    end: int = 0
    is_valid: bool = True
    split: str = ""

    def file(self, field: str, camera: str = "") -> StoredFile:
        """A file of the clip."""
        name = self.layout.named(field, clip=self.name, camera=camera, chunk=self.chunk)
        return StoredFile(self.storage, name)

    def source(self, field: str, camera: str = "") -> StoredFile:
        """The same, or the archive that it is in."""
        file = self.file(field, camera)
        archive, _, member = file.name.partition(".zip/")
        return StoredFile(self.storage, f"{archive}.zip") if member else file

    def require(self, file: StoredFile, camera: str = "") -> None:
        """Refuse a file that is missing."""
        if not self.storage.exists(file.name):
            raise self.missing(file, camera)

    def missing(self, file: StoredFile, camera: str = "") -> FileError:
        """Make the error of a file that is missing."""
        others = f"the camera {camera!r} (`cameras`), " * bool(camera) + "the clip (`scenes`)"
        return FileError(
            f"The file {os.fspath(file)!r} of the clip {self.name!r} is missing. Download it, or leave out "
            f"{others} or the chunk {self.chunk} (`chunks`). missing='drop' leaves out all clips that lack a file."
        )

    def columns(
        self, field: str, kinds: Mapping[str, str], camera: str = "", empty: Mapping[str, object] = _NOTHING
    ) -> dict[str, Array]:
        """Columns of a table of the clip, or of its chunk; see `read_columns`."""
        file = self.file(field, camera)
        try:
            return read_columns(file, kinds, also_called=_ALSO_CALLED, empty=empty)
        except FileError:
            self.require(file, camera)
            raise

    def frame_times(self, camera: str) -> Int64:
        """Times of the frames of a camera."""
        times: Int64 = self.columns("times", {"timestamp": "whole"}, camera)["timestamp"]
        path = os.fspath(self.file("times", camera))
        require_ascending(times, f"The column 'timestamp' of {path!r}", strictly=True)
        if not len(times):
            raise FileError(f"The file {path!r} has no times.")
        return times

    def ego(self) -> SmoothTrajectory:
        """Pose of the vehicle in the world."""
        columns, path = self.columns("ego_motion", {"timestamp": "whole", **_POSE}), self.file("ego_motion")
        where = repr(os.fspath(path))
        require_ascending(columns["timestamp"], f"The column 'timestamp' of {where}", strictly=True)
        if not len(columns["timestamp"]):
            raise FileError(f"The file {where} has no poses.")
        return SmoothTrajectory.through(columns["timestamp"], poses_of_columns(columns, path, [*_POSE]))

    def obstacles(self) -> dict[str, Array] | None:
        """Columns of the boxes, each in the vehicle at its own time; None where there are none."""
        path = self.file("obstacles")
        if not all(self.storage.exists(file.name) for file in (self.source("obstacles"), path)):
            return None
        numbers = [f"{what}_{axis}" for what in ("center", "orientation", "size") for axis in "xyz"]
        kinds = {"timestamp_us": "whole", "track_id": "text or whole", "label_class": "text"}
        columns = self.columns("obstacles", kinds | dict.fromkeys([*numbers, "orientation_w"], "number"))
        size = sizes_of_columns(columns, path, [f"size_{axis}" for axis in "xyz"])
        names = [*(f"orientation_{axis}" for axis in "wxyz"), *(f"center_{axis}" for axis in "xyz")]
        return {**columns, "size": size, "pose": poses_of_columns(columns, path, names)}


class ListedFiles:
    """Whether files exist, by lists of their folders and archives, each of which is read once."""

    def __init__(self) -> None:
        """Begin without lists."""
        self._names: dict[str, set[str]] = {}

    def has(self, file: StoredFile) -> bool:
        """Whether there is a file."""
        storage, (folder, _, name) = file.storage, file.name.rpartition("/")
        if storage.is_remote and ".zip" not in folder:
            return storage.exists(file.name)
        if folder not in self._names:
            try:
                entries = storage.list_folder(f"{folder}/" if folder else "")
                self._names[folder] = {entry.name for entry in entries if not entry.is_folder}
            except (FileNotFoundError, NotADirectoryError):
                self._names[folder] = set()
        return name in self._names[folder]

    def has_any(self, file: StoredFile) -> bool:
        """Whether there is any file next to one that was looked for."""
        return bool(self._names.get(file.name.rpartition("/")[0]))


@attrs.frozen
class ListedColumns:
    """Which columns of the list of clips are read.

    Attributes:
        events: Whether events are, and when clips end.
        validity: Whether that is.
        split: Whether splits are.
    """

    events: bool
    validity: bool
    split: bool

    @property
    def kinds(self) -> dict[str, str]:
        """What they must hold; each may be missing."""
        kinds = {"event_t0s": "whole lists", "end_timestamp": "whole"} if self.events else {}
        kinds |= {"clip_is_valid": "flag"} if self.validity else {}
        return kinds | ({"split": "text"} if self.split else {})


def listed_clips(
    storage: Storage, layout: ClipLayout, cameras: Sequence[str], wanted: ListedColumns
) -> list[ClipFiles]:
    """Read the list of clips, in its order."""
    columns = read_columns(
        StoredFile(storage, layout.clips),
        {"clip_id": "text", "chunk": "whole", **wanted.kinds},
        or_none=[*wanted.kinds],
        also_called=_ALSO_CALLED,
        empty=_EMPTY,
    )
    names = columns["clip_id"].tolist()
    events = columns.get("event_t0s", [_NONE] * len(names))
    others = [
        columns[name].tolist() if name in columns else [default] * len(names)
        for name, default in (("end_timestamp", 0), ("clip_is_valid", True), ("split", ""))
    ]
    rows = zip(names, columns["chunk"].tolist(), events, *others, strict=True)
    return [ClipFiles(storage, layout, name, cameras, *row) for name, *row in rows]


_LENS = ["width", "height", "cx", "cy", *(f"{way}_poly_{power}" for way in ("bw", "fw") for power in range(5))]
_AXIS = ["cx", "cy", "fw_poly_1"]
_VEHICLE = ["length", "width", "height", "rear_axle_to_bbox_center", "wheelbase", "track_width"]


class ClipCalibration:
    """Calibrations of clips, by chunk."""

    def __init__(self) -> None:
        """Begin without any; tables are read when they are needed."""
        self._tables: dict[str, dict[tuple[str, ...], list[dict[str, float]]]] = {}

    def _row(self, clip: ClipFiles, field: str, names: Sequence[str], *sensor: str) -> dict[str, float]:
        """What a table, with one row for each clip, or clip and sensor, says of one."""
        path, row = os.fspath(clip.file(field)), (clip.name, *sensor)
        if path not in self._tables:
            keys = ["clip_id", "sensor_name"][: len(row)]
            kinds = dict.fromkeys(keys, "text") | dict.fromkeys(names, "number")
            columns = clip.columns(field, kinds, empty=dict.fromkeys(names, NONE_IS_NAN))
            values = zip(*(columns[name].tolist() for name in names), strict=True)
            self._tables[path] = {}
            for key, each in zip(zip(*(columns[key].tolist() for key in keys), strict=True), values, strict=True):
                self._tables[path].setdefault(key, []).append(dict(zip(names, each, strict=True)))
        table = self._tables[path]
        if row not in table:
            what = f"sensor {sensor[0]!r}" if sensor else "row"
            known = listed([" ".join(others) for of_clip, *others in table if of_clip == clip.name])
            raise FileError(f"{path!r} has no {what} of the clip {clip.name!r}. It has: {known}.")
        found, what = table[row], "clip and sensor" if sensor else "clip"
        refuse_repeated([" ".join(row)] * len(found), path, what)
        unknown = [name for name, value in found[0].items() if np.isnan(value)]
        if unknown:
            raise FileError(f"{path!r} has no value as {listed(unknown)} of the {what} {' '.join(row)!r}.")
        return found[0]

    def camera(self, clip: ClipFiles, camera: str, *, has_lens: bool) -> tuple[Float64, Float64, Float64 | None]:
        """Matrix of a camera around its axis, its place on the vehicle, and its lens, see `CameraColumns`."""
        names = _LENS if has_lens else _AXIS
        lens = self._row(clip, "intrinsics", names, camera)
        focal = lens["fw_poly_1"]  # pixels per radian at angle 0
        if not focal > 0:
            where = repr(os.fspath(clip.file("intrinsics")))
            raise FileError(f"{where}: fw_poly_1 of {camera!r} of {clip.name!r} must be above 0, got {focal}.")
        matrix = np.array([[focal, 0, lens["cx"]], [0, focal, lens["cy"]], [0, 0, 1]])
        row = self._row(clip, "extrinsics", [*_POSE], camera)
        place = {name: np.array([value]) for name, value in row.items()}
        mounted = poses_of_columns(place, clip.file("extrinsics"), [*_POSE])[0]
        return matrix, mounted, np.array([*lens.values()]) if has_lens else None

    def vehicle_size(self, clip: ClipFiles) -> Float64:
        """Sizes of the vehicle, see `FrameColumns`."""
        return np.array([*self._row(clip, "vehicle", _VEHICLE).values()])
