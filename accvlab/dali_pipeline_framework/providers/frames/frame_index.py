# SPDX-License-Identifier: Apache-2.0
"""Index of the frames in folders: their files, and the sequences that they form."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import SettingError
from ...sample_data.conversion import encoded
from ...url_secrets import without_secrets
from ..files.file_table import FileTable, FileTableBuilder
from ..files.storage import Storage, as_utf8
from ..rigs.camera_rig import MissingFrame, RigAccount
from ..rigs.frame_times import (
    Int64Array,
    RigTimes,
    TimeArray,
    TimestampParser,
    align_by_name,
    align_by_time,
    as_times,
    stamp_of,
)
from .recording_folders import FrameFolders, RecordingFolders

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class FrameIndex:
    """The frames of all recordings, listed once, one sequence after the other.

    A frame here is one point in time; each of the cameras has a file for it. Memory is that of the names and 16
    bytes per frame (with time stamps 8 more per camera).

    Attributes:
        storage: The root.
        camera_names: Names of the cameras; none for a single one without a name.
        recording_names: Names of the recordings that have frames.
        edges: ``(S + 1,)``, first frame of each sequence, and the number of frames.
        recordings: ``(S,)`` int32, number of the recording of each sequence.
        numbers: ``(N,)``, number of each frame in its recording, counting points in time that are left out.
        timestamps: ``(N, num_cameras)`` int64 or float64, or None where they are not kept.
        missing: Missing frames of cameras.
        unused: Number of frames near no point in time, by recording and camera.
    """

    storage: Storage
    camera_names: tuple[str, ...]
    recording_names: tuple[str, ...]
    edges: Int64Array
    recordings: npt.NDArray[np.int32]
    numbers: Int64Array
    timestamps: TimeArray | None
    missing: tuple[MissingFrame, ...]
    unused: dict[tuple[str, str], int]
    _files: FileTable  # the name of frame f of camera c is in row f * num_cameras + c

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

    def recording_of(self, frame: int) -> int:
        """Get the number of the recording of a frame."""
        return int(self.recordings[int(self.edges.searchsorted(frame, side="right")) - 1])

    def path(self, frame: int, camera: int) -> str:
        """Get the path or URL of a file."""
        return self.storage.path(self._files.name(frame * self.num_cameras + camera))

    def encoded_path(self, frame: int, camera: int) -> npt.NDArray[np.uint8]:
        """Get the path or URL of a file as the value of a field."""
        return encoded(as_utf8(self.path(frame, camera)))

    def places(self, frame: int, has: Sequence[bool]) -> list[Any]:
        """Get name and number of the recording of a frame, and its number there, as far as there are fields."""
        recording = self.recording_of(frame)
        values = (
            encoded(as_utf8(self.recording_names[recording])),
            np.int32(recording),
            self.numbers[frame].astype(np.int32),
        )
        return [value for value, is_there in zip(values, has, strict=True) if is_there]

    def describe(self, frames: Sequence[int]) -> str:
        """The paths of frames, of the first camera; of many the first and the last."""
        paths = [without_secrets(self.path(frame, 0)) for frame in dict.fromkeys(frames)]
        return ", ".join(paths) if len(paths) <= 8 else f"{paths[0]} to {paths[-1]}"

    def summary(self, samples: str) -> str:
        """Say what was found: ``'train': 9 frames of 2 cameras in 3 recording(s)``."""
        cameras = f" of {len(self.camera_names)} cameras" if self.camera_names else ""
        root, num_recordings = without_secrets(self.storage.root), len(self.recording_names)
        return f"{root!r}: {samples}{cameras} in {num_recordings} recording(s)"

    def read(self, frame: int, camera: int) -> npt.NDArray[np.uint8]:
        """Read a file."""
        return self.storage.read_bytes(self._files.name(frame * self.num_cameras + camera))


def index_frames(folders: FrameFolders, has_timestamps: bool = False) -> FrameIndex:
    """List the frames, with time stamps if asked for; for errors see `FrameDataProvider`."""
    if folders.timestamp is not None and folders.align != "time" and not has_timestamps:
        raise SettingError(
            "`timestamp` is for `align='time'` and `timestamp_name`, and neither is given: leave it out."
        )
    return _Scan(folders, has_timestamps or folders.align == "time").run()


class _Scan:
    """Builds an index."""

    def __init__(self, settings: FrameFolders, keeps_timestamps: bool) -> None:
        self._settings = settings
        self._storage = Storage(settings.file_root, settings.storage_options)
        self._folders = RecordingFolders(self._storage, settings.cameras, settings.layout)
        self._cameras: list[str | None] = [*settings.camera_names] or [None]
        self._parser = TimestampParser(settings.timestamp)
        self._keeps_timestamps = keeps_timestamps
        self._files = FileTableBuilder()
        self._edges = array("q", [0])
        self._recordings = array("i")
        self._names: list[str] = []
        self._numbers = array("q")
        self._timestamps: list[int | float] = []
        self._account = RigAccount()
        self._unused: dict[tuple[str, str], int] = {}

    def run(self) -> FrameIndex:
        recordings = self._folders.recordings()
        for recording in recordings:
            self._add_recording(recording)
        if self._folders.num_skipped:
            _logger.warning(
                "%d file(s) or folder(s) among the frames of %r do not have the extension of an image and are "
                "left out, e.g. %r.",
                self._folders.num_skipped,
                without_secrets(self._storage.root),
                self._folders.skipped,
            )
        self._account.report(self._settings, not self._numbers, f" in {self._storage.root!r}")
        if not len(self._numbers):
            raise SettingError(self._folders.why_there_is_no_frame(recordings))
        timestamps = as_times(self._timestamps).reshape(-1, len(self._cameras)) if self._timestamps else None
        return FrameIndex(
            self._storage,
            self._settings.camera_names,
            tuple(self._names),
            np.array(self._edges, np.int64),
            np.array(self._recordings, np.int32),
            np.array(self._numbers, np.int64),
            timestamps,
            tuple(self._account.missing),
            self._unused,
            self._files.finish(),
        )

    def _add_recording(self, recording: str) -> None:
        files: list[list[str]] = []
        for camera in self._cameras:
            found = self._folders.frames(recording, camera)
            if found is None:
                self._account.note(recording, f"no folder of {camera}")
                self._account.lacks_folders = True
            files.append(found or [])
        times = self._aligned(recording, files)
        for camera, num_unused in zip(self._cameras, times.num_unused, strict=True):
            if num_unused and camera is not None:
                self._unused[recording, camera] = num_unused
                self._account.note(recording, f"{num_unused} frame(s) of {camera} near no point in time")
        self._add_times(recording, times)

    def _aligned(self, recording: str, files: list[list[str]]) -> RigTimes:
        where = [self._storage.path(self._folders.folder(recording, camera)) for camera in self._cameras]
        settings = self._settings
        if settings.align == "name":
            return align_by_name(files, where)
        return align_by_time(files, where, self._parser, settings.reference, settings.tolerance)

    def _add_times(self, recording: str, times: RigTimes) -> None:
        self._account.num_times += len(times.rows)
        for number, (row, label) in enumerate(zip(times.rows, times.labels, strict=True)):
            self._account.missing += [
                MissingFrame(recording, str(camera), number, label)
                for camera, name in zip(self._cameras, row, strict=True)
                if name is None
            ]
        prefixes = [f"{self._folders.folder(recording, camera)}/" for camera in self._cameras]
        runs = self._settings.runs(np.array([None not in row for row in times.rows], np.bool_))
        self._names += [recording] * bool(runs)
        for run in runs:
            self._recordings.append(len(self._names) - 1)
            self._edges.append(self._edges[-1] + len(run))
            self._numbers.extend(run.tolist())
            for number in run.tolist():
                for prefix, name in zip(prefixes, times.rows[number], strict=True):
                    self._files.add(f"{prefix}{name}")
                    if self._keeps_timestamps:
                        folder = self._storage.path(prefix[:-1])
                        self._timestamps.append(stamp_of(str(name), folder, self._parser))
