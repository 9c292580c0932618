# SPDX-License-Identifier: Apache-2.0
"""Index of the frames of extracted streams: their files, and the sequences that they form."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import SettingError, error_that_is_also
from ..files.file_table import FileTable, FileTableBuilder
from ..files.storage import Storage, StoragePath
from ..rigs.frame_times import Int64Array, TimeArray, TimestampParser, TimestampRule, as_times
from ..rigs.rig_times import Alignment, MissingFrame, RigTimes, align_by_name, align_by_time, describe_missing
from .stream_folders import Cameras, RigLayout, StreamFolders, checked_cameras, checked_layout

MissingPolicy: TypeAlias = Literal["drop", "bridge", "raise"]

_logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class FrameSettings:
    """Settings for finding the frames of a data set, see `FrameDataProvider`.

    Attributes:
        cameras: Names of the cameras and their folders, or None.
        layout: Which folder is in which.
        align: By what frames of different cameras belong together.
        timestamp: How to read time stamps.
        has_timestamps: Whether time stamps are kept.
        tolerance: How far a frame may be from its point in time.
        reference: Number of the camera whose frames are the points in time.
        missing: What becomes of points in time at which a camera has no frame.
    """

    cameras: dict[str, str] | None
    layout: RigLayout
    align: Alignment
    timestamp: TimestampParser
    has_timestamps: bool
    tolerance: float
    reference: int
    missing: MissingPolicy

    @classmethod
    def checked(
        cls,
        cameras: Cameras | None,
        layout: str,
        align: str,
        timestamp: TimestampRule | None,
        has_timestamps: bool,
        tolerance: float | None,
        reference_camera: str | None,
        missing: str,
    ) -> FrameSettings:
        """Check arguments of a provider.

        Raises:
            SettingError: One is not what it must be, or does not go with another.
        """
        folders = checked_cameras(cameras)
        names = [*folders] if folders is not None else []
        if align not in ("name", "time"):
            raise SettingError(f"`align` must be 'name' or 'time', got {align!r}.")
        if missing not in ("drop", "bridge", "raise"):
            raise SettingError(f"`missing` must be 'drop', 'bridge' or 'raise', got {missing!r}.")
        if timestamp is not None and align != "time" and not has_timestamps:
            raise SettingError(
                "`timestamp` is for `align='time'` and `timestamp_name`, and neither is given: leave it out."
            )
        if align == "time" and len(names) > 1 and tolerance is None:
            raise SettingError(
                "`align='time'` with several cameras needs a `tolerance`: how far, in the unit of the time "
                "stamps, a frame may be from the reference camera's. Half the time from one frame to the next "
                "is the most that makes sense."
            )
        if (tolerance is not None or reference_camera is not None) and align != "time":
            raise SettingError("`tolerance` and `reference_camera` are for `align='time'`; names match or do not.")
        is_number = tolerance is None or (isinstance(tolerance, int | float) and math.isfinite(tolerance))
        if not is_number or (tolerance is not None and tolerance < 0):
            raise SettingError(f"`tolerance` must be a number of at least 0, got {tolerance!r}.")
        if reference_camera is not None and reference_camera not in names:
            raise SettingError(
                f"`reference_camera` must be one of `cameras` ({names!r}), got {reference_camera!r}."
            )
        return cls(
            cameras=folders,
            layout=checked_layout(layout),
            align="time" if align == "time" else "name",
            timestamp=TimestampParser(timestamp),
            has_timestamps=has_timestamps,
            tolerance=tolerance or 0,
            reference=0 if reference_camera is None else names.index(reference_camera),
            missing="drop" if missing == "drop" else "bridge" if missing == "bridge" else "raise",
        )


class FrameIndex:
    """The frames in the folders of the streams, listed once.

    Frames of all sequences lie one after the other. A frame here is one point in time; each of the cameras has a
    file for it. Objects are immutable; memory is that of the names and 16 bytes per frame (with time stamps 8
    more per camera).
    """

    def __init__(
        self, root: StoragePath, settings: FrameSettings, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """List the folders.

        Raises:
            FileError: A folder cannot be read.
            SettingError: There are no frames, or the names of frames are not as the settings need them.
        """
        self.storage = Storage(root, storage_options)
        self.settings = settings
        self.camera_names: tuple[str, ...] = tuple(settings.cameras or ())
        _Scan(self, StreamFolders(self.storage, settings.cameras, settings.layout)).run()

    # Set by the scan.
    stream_names: tuple[str, ...]
    """Names of the streams that have frames."""
    edges: Int64Array
    """First frame of each sequence, and the number of frames: ``(S + 1,)``."""
    streams: npt.NDArray[np.int32]
    """Number of the stream of each sequence: ``(S,)``."""
    numbers: Int64Array
    """Number of each frame in its stream, ``(N,)``, counting points in time that are left out."""
    missing: tuple[MissingFrame, ...]
    """Missing frames of cameras."""
    unused: dict[tuple[str, str], int]
    """Number of frames near no point in time, by stream and camera."""
    _files: FileTable  # the name of frame f of camera c is in row f * num_cameras + c
    _timestamps: TimeArray | None  # (N, num_cameras)

    @property
    def num_cameras(self) -> int:
        """Number of files per frame."""
        return max(1, len(self.camera_names))

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return int(self.edges[-1])

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence: ``(S,)`` int64."""
        return np.diff(self.edges)

    def sequence_of(self, frame: int) -> int:
        """Get the sequence of a frame."""
        return int(self.edges.searchsorted(frame, side="right")) - 1

    def stream_of(self, frame: int) -> int:
        """Get the number of the stream of a frame."""
        return int(self.streams[self.sequence_of(frame)])

    def name(self, frame: int, camera: int) -> str:
        """Get the name of a file, relative to the root."""
        return self._files.name(frame * self.num_cameras + camera)

    def path(self, frame: int, camera: int) -> str:
        """Get the path or URL of a file."""
        return self.storage.path(self.name(frame, camera))

    def describe(self, frames: Sequence[int]) -> str:
        """The paths of frames, of the first camera; of many the first and the last."""
        paths = [self.path(frame, 0) for frame in dict.fromkeys(frames)]
        return ", ".join(paths) if len(paths) <= 8 else f"{paths[0]} to {paths[-1]}"

    def timestamp(self, frame: int, camera: int) -> Any:
        """Get the time stamp of a file, ``()`` int64 or float64."""
        if self._timestamps is None:
            raise SettingError("Time stamps are kept only with `timestamp_name` or `align='time'`.")
        return self._timestamps[frame, camera]

    @property
    def timestamps(self) -> TimeArray | None:
        """Time stamps, ``(N, num_cameras)`` int64 or float64, or None where they are not kept."""
        return self._timestamps

    def read(self, frame: int, camera: int) -> npt.NDArray[np.uint8]:
        """Read a file.

        Raises:
            FileError: It cannot be read.
        """
        return self.storage.read_bytes(self.name(frame, camera))

    def check_frame(self, frame: int, of_what: str = "frame") -> None:
        """Check that there is a frame of this number.

        Raises:
            SettingError: Also an IndexError.
        """
        if not 0 <= frame < self.num_frames:
            raise error_that_is_also(
                SettingError,
                (IndexError,),
                f"`sample_index` must be in [0, {self.num_frames - 1}], got {frame}: there are "
                f"{self.num_frames} {of_what}s.",
            )

    def __getstate__(self) -> dict[str, Any]:
        # The rule for time stamps is not needed any more, and may be a function that cannot be pickled.
        return {**self.__dict__, "settings": attrs.evolve(self.settings, timestamp=TimestampParser(None))}


class _Scan:
    """Builds an index."""

    def __init__(self, index: FrameIndex, folders: StreamFolders) -> None:
        self._index = index
        self._folders = folders
        self._settings = index.settings
        self._cameras: list[str | None] = [*index.camera_names] or [None]
        self._files = FileTableBuilder()
        self._edges = array("q", [0])
        self._streams = array("i")
        self._stream_names: list[str] = []
        self._numbers = array("q")
        self._timestamps: list[int | float] = []
        self._missing: list[MissingFrame] = []
        self._absent: list[tuple[str, str]] = []
        self._unused: dict[tuple[str, str], int] = {}
        self._num_times = 0
        self._num_dropped = 0

    def run(self) -> None:
        streams = self._folders.streams()
        for stream in streams:
            self._add_stream(stream)
        self._report()
        if not len(self._numbers):
            if self._missing:
                raise SettingError(
                    f"At no point in time all of the cameras {[*self._index.camera_names]!r} have a frame in "
                    f"{self._index.storage.root!r}:\n{self._account()}"
                )
            raise SettingError(self._folders.why_there_is_no_frame(streams))
        index = self._index
        index.stream_names = tuple(self._stream_names)
        index.edges = np.frombuffer(self._edges, np.int64).copy()
        index.streams = np.frombuffer(self._streams, np.int32).copy()
        index.numbers = np.frombuffer(self._numbers, np.int64).copy()
        index.missing = tuple(self._missing)
        index.unused = self._unused
        index._files = self._files.finish()
        index._timestamps = None
        if self._keeps_timestamps:
            index._timestamps = as_times(self._timestamps).reshape(-1, index.num_cameras)

    @property
    def _keeps_timestamps(self) -> bool:
        return self._settings.has_timestamps or self._settings.align == "time"

    def _add_stream(self, stream: str) -> None:
        files: list[list[str]] = []
        for camera in self._cameras:
            found = self._folders.frames(stream, camera)
            if found is None and camera is not None:
                self._absent.append((stream, camera))
            files.append(found or [])
        times = self._aligned(stream, files)
        self._num_times += len(times.rows)
        for camera, num_unused in zip(self._cameras, times.num_unused, strict=True):
            if num_unused and camera is not None:
                self._unused[stream, camera] = num_unused
        self._add_times(stream, times)

    def _aligned(self, stream: str, files: list[list[str]]) -> RigTimes:
        where = [self._index.storage.path(self._folders.folder(stream, camera)) for camera in self._cameras]
        settings = self._settings
        if settings.align == "name":
            return align_by_name(files, where)
        return align_by_time(files, where, settings.timestamp, settings.reference, settings.tolerance)

    def _add_times(self, stream: str, times: RigTimes) -> None:
        prefixes = [f"{self._folders.folder(stream, camera)}/" for camera in self._cameras]
        is_running = False
        num_before = len(self._numbers)
        for number, (row, label) in enumerate(zip(times.rows, times.labels, strict=True)):
            names = [name for name in row if name is not None]
            if len(names) < len(row):
                self._missing += [
                    MissingFrame(stream, str(camera), label)
                    for camera, name in zip(self._cameras, row, strict=True)
                    if name is None
                ]
                self._num_dropped += 1
                is_running = is_running and self._settings.missing == "bridge"
                continue
            if not is_running:
                self._begin_sequence(stream, len(self._numbers) == num_before)
                is_running = True
            self._numbers.append(number)
            self._edges[-1] += 1
            for prefix, name in zip(prefixes, names, strict=True):
                self._files.add(prefix + name)
                if self._keeps_timestamps:
                    self._timestamps.append(self._stamp(prefix, name))

    def _stamp(self, prefix: str, name: str) -> int | float:
        try:
            return self._settings.timestamp(name)
        except SettingError as error:
            raise SettingError(f"{error} The folder is {self._index.storage.path(prefix[:-1])!r}.") from error

    def _begin_sequence(self, stream: str, is_first: bool) -> None:
        if is_first:
            self._stream_names.append(stream)
        self._edges.append(self._edges[-1])
        self._streams.append(len(self._stream_names) - 1)

    def _account(self) -> str:
        return describe_missing(self._missing, self._absent, self._unused)

    def _report(self) -> None:
        if self._folders.num_skipped:
            _logger.warning(
                "%d file(s) or folder(s) among the frames of %r do not have the extension of an image and are "
                "left out, e.g. %r.",
                self._folders.num_skipped,
                self._index.storage.root,
                self._folders.skipped,
            )
        if not (self._missing or self._absent or self._unused):
            return
        text = (
            f"Not all cameras have a frame at {self._num_dropped} of {self._num_times} points in time in "
            f"{self._index.storage.root!r}"
        )
        if self._settings.missing == "raise" and (self._missing or self._absent):
            raise SettingError(
                f"{text}:\n{self._account()}\nUse `missing='drop'` to leave these points in time out."
            )
        _logger.warning("%s; they are left out:\n%s", text, self._account())
