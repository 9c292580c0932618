# SPDX-License-Identifier: Apache-2.0
"""The files of one clip of PhysicalAI-AV, as arrays. Times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.extension import nearest

from ..driving.arrow_files import column_names, poses_of_columns, read_columns, require_column, sizes_of_columns
from ..driving.trajectory import Trajectory, half_period, require_ascending
from .clip_layout import ClipLayout

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

# Labels are about 0.1 s apart.
_MOST_LABEL_DISTANCE_US = 50_000
_POSE = dict.fromkeys(("qw", "qx", "qy", "qz", "x", "y", "z"), "number")
_CLIP_COLUMNS = ("clip_id", "__index_level_0__")
_SENSOR_COLUMNS = ("sensor_name", "camera_name", "__index_level_1__")


def _first_of(names: Sequence[str], known: Sequence[str]) -> str:
    """The first of some names that is known, or else the first."""
    return next((name for name in names if name in known), names[0])


class ChunkCalibration:
    """Calibrations of the clips of a chunk: one row for each clip and sensor.

    What is missing, cannot be read, or is not as it should be, is a `FileError`.
    """

    def __init__(self, path: Path, kinds: dict[str, str]) -> None:
        """Read the file."""
        known = column_names(path)
        clip, sensor = _first_of(_CLIP_COLUMNS, known), _first_of(_SENSOR_COLUMNS, known)
        for name in (clip, sensor):
            require_column(path, name, known)
        self._path = path
        self._columns = read_columns(path, {clip: "text", sensor: "text", **kinds})
        keys = zip(self._columns[clip].tolist(), self._columns[sensor].tolist(), strict=True)
        self._row_of = {key: row for row, key in enumerate(keys)}

    def row(self, clip: str, sensor: str) -> dict[str, float]:
        """What is known of a sensor."""
        row = self._row_of.get((clip, sensor))
        if row is None:
            known = [name for of_clip, name in self._row_of if of_clip == clip]
            raise FileError(
                f"{str(self._path)!r} has no sensor {sensor!r} of the clip {clip!r}. It has: {listed(known)}."
            )
        return {name: float(column[row]) for name, column in self._columns.items() if column.dtype == np.float64}


@attrs.frozen(eq=False)
class ClipFiles:
    """One clip. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        root: The folder of the data set.
        layout: Where its files lie.
        name: Its name.
        cameras: Cameras that have a video.
    """

    root: Path
    layout: ClipLayout
    name: str
    cameras: list[str]

    def path(self, field: str, camera: str = "") -> Path:
        """A file of the clip."""
        return self.root / self.layout.named(field, clip=self.name, camera=camera)

    def frame_times(self, camera: str) -> Int64Array:
        """Times of the frames of a camera."""
        path = self.path("times", camera)
        times: Int64Array = read_columns(path, {"timestamp": "whole"})["timestamp"]
        require_ascending(times, f"The column 'timestamp' of {str(path)!r}", strictly=True)
        if not len(times):
            raise FileError(f"The file {str(path)!r} has no times.")
        return times

    def ego(self) -> Trajectory:
        """Pose of the vehicle in the world."""
        path = self.path("ego_motion")
        columns = read_columns(path, {"timestamp": "whole", **_POSE})
        require_ascending(columns["timestamp"], f"The column 'timestamp' of {str(path)!r}")
        if not len(columns["timestamp"]):
            raise FileError(f"The file {str(path)!r} has no poses.")
        return Trajectory(columns["timestamp"], poses_of_columns(columns, path, [*_POSE]))

    def obstacles(self) -> dict[str, npt.NDArray[Any]] | None:
        """Columns of the boxes, each in the vehicle at its own time; None where there are none."""
        path = self.path("obstacles")
        if not path.exists():
            return None
        numbers = [f"{what}_{axis}" for what in ("center", "orientation", "size") for axis in "xyz"]
        known = column_names(path)
        track_is_text = "track_id" not in known or _is_text(path)
        columns = read_columns(
            path,
            {
                "timestamp_us": "whole",
                "track_id": "text" if track_is_text else "whole",
                "label_class": "text",
                **dict.fromkeys([*numbers, "orientation_w"], "number"),
            },
        )
        size = sizes_of_columns(columns, path, [f"size_{axis}" for axis in "xyz"])
        names = [*(f"orientation_{axis}" for axis in "wxyz"), *(f"center_{axis}" for axis in "xyz")]
        return {**columns, "size": size, "pose": poses_of_columns(columns, path, names)}


def _is_text(path: Path) -> bool:
    try:
        read_columns(path, {"track_id": "whole"})
    except FileError:
        return True
    return False


class ClipCalibration:
    """Calibrations of all clips, by chunks; errors are as of `ChunkCalibration`."""

    def __init__(self, root: Path, layout: ClipLayout) -> None:
        """Name the files; they are read when they are needed."""
        self._root, self._layout = root, layout
        self._intrinsics: dict[int, ChunkCalibration] = {}
        self._extrinsics: dict[int, ChunkCalibration] = {}

    @cached_property
    def _chunks(self) -> dict[str, int]:
        path = self._root / self._layout.clips
        clip = _first_of(_CLIP_COLUMNS, column_names(path))
        columns = read_columns(path, {clip: "text", "chunk": "whole"})
        return dict(zip(columns[clip].tolist(), columns["chunk"].tolist(), strict=True))

    def chunk(self, clip: str) -> int:
        """Number of the chunk of a clip; 0 where names have no chunks."""
        if "{chunk}" not in self._layout.intrinsics + self._layout.extrinsics:
            return 0
        if clip not in self._chunks:
            raise FileError(f"The clip {clip!r} is not in {str(self._root / self._layout.clips)!r}.")
        return self._chunks[clip]

    def paths(self, clip: str) -> list[Path]:
        """Files of the calibration of a clip."""
        chunk = self.chunk(clip)
        return [
            self._root / self._layout.named(field, clip=clip, chunk=chunk)
            for field in ("intrinsics", "extrinsics")
        ]

    def camera(self, clip: str, camera: str) -> tuple[Float64Array, Float64Array, dict[str, float]]:
        """Matrix of a camera around its axis, its place on the vehicle, and its whole calibration."""
        chunk = self.chunk(clip)
        inside, outside = self.paths(clip)
        if chunk not in self._intrinsics:
            polynomial = dict.fromkeys(("cx", "cy", *(f"fw_poly_{power}" for power in range(5))), "number")
            self._intrinsics[chunk] = ChunkCalibration(inside, polynomial)
            self._extrinsics[chunk] = ChunkCalibration(outside, _POSE)
        lens = self._intrinsics[chunk].row(clip, camera)
        focal = lens["fw_poly_1"]  # pixels per radian at angle 0
        if not focal > 0:
            raise FileError(f"{str(inside)!r}: fw_poly_1 of {camera!r} of {clip!r} must be above 0, got {focal}.")
        matrix = np.array([[focal, 0, lens["cx"]], [0, focal, lens["cy"]], [0, 0, 1]])
        place = self._extrinsics[chunk].row(clip, camera)
        columns = {name: np.array([value]) for name, value in place.items()}
        return matrix, poses_of_columns(columns, outside, [*_POSE])[0], lens


def rows_of_frames(columns: dict[str, npt.NDArray[Any]], frame_times: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Which box of each track is the nearest in time to each frame: frames and rows, ``(n,)`` each, by frame."""
    frames, rows = [], []
    for track in np.unique(columns["track_id"]):
        of_track = np.flatnonzero(columns["track_id"] == track)
        of_track = of_track[np.argsort(columns["timestamp_us"][of_track], kind="stable")]
        times = columns["timestamp_us"][of_track]
        found = nearest(times, frame_times, min(half_period(times), _MOST_LABEL_DISTANCE_US))
        has = np.flatnonzero(found >= 0)
        frames.append(has)
        rows.append(of_track[found[has]])
    if not frames:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    frame, row = np.concatenate(frames), np.concatenate(rows)
    order = np.argsort(frame, kind="stable")
    return frame[order], row[order]
