# SPDX-License-Identifier: Apache-2.0
"""What the files of a clip say. What is missing, cannot be read, or is not as it should be, is a `FileError`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.extension import StoredFile
from accvlab.dali_pipeline_framework.providers import Storage

from ..driving import arrow_files
from ..driving.array_types import Array, Float64, Int64
from ..driving.arrow_files import Kind, Lists, ListsOf
from ..driving.ego_motion import SmoothTrajectory
from .layout import ClipLayout

_POSE = dict.fromkeys(("qw", "qx", "qy", "qz", "x", "y", "z"), "number")
_ALSO_CALLED = {"clip_id": ["__index_level_0__"], "sensor_name": ["camera_name", "__index_level_1__"]}
_NONE = np.zeros(0, np.int64)
_NOTHING: Mapping[str, object] = {}
# Of columns of the list of clips: attribute of a clip, kind, and what empty cells are, which say nothing.
_OF_LIST: Mapping[str, tuple[str, Kind, object]] = {
    "event_t0s": ("events", ListsOf("whole"), None),
    "end_timestamp": ("end", "whole", 0),
    "clip_is_valid": ("is_valid", "flag", False),
    "split": ("split", "text", ""),
}


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

    def missing(self, file: StoredFile, camera: str = "") -> FileError:
        """Make the error of a file that is missing."""
        others = f"the camera {camera!r} (`cameras`), " * bool(camera) + "the clip (`scenes`)"
        return FileError(
            f"The file {os.fspath(file)!r} of the clip {self.name!r} is missing. Download it, or leave out "
            f"{others} or the chunk {self.chunk} (`chunks`). missing='drop' leaves out all clips that lack a file."
        )

    def columns(
        self, field: str, kinds: Mapping[str, Kind], camera: str = "", empty: Mapping[str, object] = _NOTHING
    ) -> dict[str, Array]:
        """Columns of a table of the clip, or of its chunk; see `read_columns`."""
        return arrow_files.read_columns(self.file(field, camera), kinds, also_called=_ALSO_CALLED, empty=empty)

    def frame_times(self, camera: str) -> Int64:
        """Times of the frames of a camera."""
        times: Int64 = self.columns("times", {"timestamp": "whole"}, camera)["timestamp"]
        arrow_files.require_times(times, self.file("times", camera), "timestamp")
        return times

    def ego(self) -> SmoothTrajectory:
        """Pose of the vehicle in the world."""
        columns, path = self.columns("ego_motion", {"timestamp": "whole", **_POSE}), self.file("ego_motion")
        arrow_files.require_times(columns["timestamp"], path, "timestamp")
        return SmoothTrajectory.through(
            columns["timestamp"], arrow_files.poses_of_columns(columns, path, [*_POSE])
        )

    def obstacles(self) -> dict[str, Array] | None:
        """Columns of the boxes, each in the vehicle at its own time; None where there are none."""
        path = self.file("obstacles")
        if not all(self.storage.exists(file.name) for file in (self.source("obstacles"), path)):
            return None
        sizes = [f"size_{axis}" for axis in "xyz"]
        names = [*(f"orientation_{axis}" for axis in "wxyz"), *(f"center_{axis}" for axis in "xyz")]
        kinds = {"timestamp_us": "whole", "track_id": "text or whole", "label_class": "text"}
        columns = self.columns("obstacles", kinds | dict.fromkeys([*sizes, *names], "number"))
        pose, size = (
            arrow_files.poses_of_columns(columns, path, names),
            arrow_files.numbers_of(columns, path, sizes),
        )
        return {**columns, "pose": pose, "size": size}


def listed_clips(
    storage: Storage, layout: ClipLayout, cameras: Sequence[str], wanted: Sequence[str]
) -> list[ClipFiles]:
    """Read the list of clips, in its order, with some of its optional columns."""
    columns = arrow_files.read_columns(
        StoredFile(storage, layout.clips),
        {"clip_id": "text", "chunk": "whole", **{name: _OF_LIST[name][1] for name in wanted}},
        or_none=wanted,
        also_called=_ALSO_CALLED,
        empty={name: empty for name, (_, _, empty) in _OF_LIST.items()},
    )
    lists: dict[str, Any] = {"name": columns["clip_id"].tolist(), "chunk": columns["chunk"].tolist()}
    for column in columns.keys() & _OF_LIST.keys():
        values = columns[column]
        of_clips = (
            np.split(values.values, values.counts.cumsum())[:-1] if isinstance(values, Lists) else values.tolist()
        )
        lists[_OF_LIST[column][0]] = of_clips
    return [
        ClipFiles(storage, layout, cameras=cameras, **dict(zip(lists, row, strict=True)))
        for row in zip(*lists.values(), strict=True)
    ]


_LENS = ["width", "height", "cx", "cy", *(f"{way}_poly_{power}" for way in ("bw", "fw") for power in range(5))]
_AXIS = ["cx", "cy", "fw_poly_1"]
_VEHICLE = ["length", "width", "height", "rear_axle_to_bbox_center", "wheelbase", "track_width"]


class ClipCalibration:
    """Calibrations of clips, by chunk."""

    def __init__(self) -> None:
        """Begin without any; tables are read when they are needed."""
        self._tables: dict[str, tuple[dict[str, Array], dict[tuple[str, ...], list[int]]]] = {}

    def _row(
        self, clip: ClipFiles, field: str, names: Sequence[str], **sensor: str
    ) -> tuple[dict[str, Array], StoredFile, Sequence[str], slice]:
        """A table with one row for each clip, or clip and sensor; and which row is that of one."""
        path, keys = clip.file(field), {"clip_id": clip.name, **sensor}
        known = self._tables.get(os.fspath(path))
        if known is None:
            kinds = dict.fromkeys(keys, "text") | dict.fromkeys(names, "number")
            table = clip.columns(field, kinds, empty=dict.fromkeys(names, arrow_files.NONE_IS_NAN))
            known = self._tables[os.fspath(path)] = table, arrow_files.rows_by(table, [*keys])
        return known[0], path, names, arrow_files.row_of(known[1], path, keys)

    def camera(self, clip: ClipFiles, camera: str, *, has_lens: bool) -> tuple[Float64, Float64, Float64 | None]:
        """Matrix of a camera around its axis, its place on the vehicle, and its lens, see `CameraColumns`."""
        names = _LENS if has_lens else _AXIS
        lens = arrow_files.numbers_of(*self._row(clip, "intrinsics", names, sensor_name=camera))[0]
        cx, cy, focal = lens[[names.index(name) for name in _AXIS]]  # pixels per radian at angle 0
        mounted = arrow_files.poses_of_columns(*self._row(clip, "extrinsics", [*_POSE], sensor_name=camera))[0]
        return np.array([[focal, 0, cx], [0, focal, cy], [0, 0, 1]]), mounted, lens if has_lens else None

    def vehicle_size(self, clip: ClipFiles) -> Float64:
        """Sizes of the vehicle, see `FrameColumns`."""
        sizes: Float64 = arrow_files.numbers_of(*self._row(clip, "vehicle", _VEHICLE))[0]
        return sizes
