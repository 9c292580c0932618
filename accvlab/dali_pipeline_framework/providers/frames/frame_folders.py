# SPDX-License-Identifier: Apache-2.0
"""Folders of recordings and cameras, and the index of the frames in them."""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import listed, number, one_of, setting_error, valid
from ...draws.keyed_draws import Int64Array
from ...errors import SettingError
from ...sample_data.conversion import FieldValue, encoded
from ...unknown_arguments import explains_unknown_arguments
from ...url_secrets import repr_without_secrets
from ..files.file_scan import FileTable
from ..files.remote_reading import StorageOptions
from ..files.storage import Storage, StoragePath, as_utf8
from . import camera_rigs as rigs

Alignment: TypeAlias = Literal["name", "time"]


def _cameras(cameras: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    if cameras is None:
        return None
    if isinstance(cameras, str) or not isinstance(cameras, Mapping | Sequence):
        rule = "a dict such as {'front': 'CAM_FRONT'} (name and folder), or a list of folders"
        raise setting_error("cameras", rule, cameras)
    pairs = [*cameras.items()] if isinstance(cameras, Mapping) else [(folder, folder) for folder in cameras]
    for pair in pairs:
        if not all(isinstance(part, str) and part for part in pair) or pair[1].strip("/") != pair[1]:
            rule = "names and folders, both texts, the folders without a '/' at their ends"
            raise setting_error("cameras", rule, pair)
    folders = [folder for _, folder in pairs]
    if not folders or len(set(folders)) != len(folders):
        raise setting_error("cameras", "at least one, each with a folder of its own", folders)
    return dict(pairs)


@explains_unknown_arguments
@attrs.frozen
class FrameFolders(rigs.CameraRig):
    r"""Folders of frames, one for each recording, or one for each recording and camera.

    Frames are files in these folders, in the order of the bytes of their names, as DALI's ``fn.readers.sequence``
    finds them. Files without the extension of an image, and names that begin with a dot, are left out::

        one camera                cameras={"front": "F", "rear": "R"}
        root/<recording>/1.jpg    root/<recording>/F/1.jpg
        root/<recording>/2.jpg    root/<recording>/R/1.jpg

    Frames of different cameras belong together by their file names without extension (``align="name"``), or by
    time stamps in the file names (``"time"``): a frame belongs to the frame of the reference camera if each is the
    nearest to the other, and they are within the tolerance. So no frame is used twice. Points in time at which a
    camera has no frame are left out, counted in the log, and listed in the provider's ``missing_frames``.

    Attributes:
        file_root: Folder of the recordings, a local path or a URL (see `FileDataProvider`).
        cameras: Name and folder of each camera, or the folders alone, in the order of the cameras in a sample.
            None: the frames lie directly in the folders of the recordings.
        align: How frames of different cameras are matched. By time, frames are also in the order of their time
            stamps.
        timestamp: How to read a time stamp off a file name: a regular expression with one group, a function of the
            file name, or None where the name without its extension is the number.
        timestamp_unit_s: Seconds per unit of the time stamps, e.g. ``1e-6`` for microseconds.
        tolerance_s: By time, how far a frame may be from the reference camera's, at most, in seconds; None for
            half the usual interval of the reference camera. The comparison is exact: tolerance, unit and time
            stamps count as the decimals that were written.
        reference_camera: By time, name of the camera whose frames are the points in time; None for the first.
        missing: At points in time at which a camera has no frame, ``"drop"`` ends a sequence, and the next one
            begins after it, so that neighbours in a sequence are neighbours in time; ``"bridge"`` continues;
            ``"raise"`` refuses the data set.
        storage_options: Arguments of a remote file system, see `FileDataProvider`.

    Raises:
        SettingError: An argument is not valid, or does not go with another.

    Example:
        >>> FrameFolders("train", cameras={"front": "CAM_FRONT", "rear": "CAM_BACK"}).camera_names
        ('front', 'rear')
    """

    file_root: StoragePath = attrs.field(kw_only=False, repr=repr_without_secrets)
    cameras: dict[str, str] | None = attrs.field(default=None, converter=_cameras, kw_only=True)
    align: Alignment = attrs.field(default="name", validator=one_of(Alignment), kw_only=True)
    timestamp: rigs.TimestampRule | None = attrs.field(default=None, kw_only=True)
    timestamp_unit_s: float = attrs.field(default=1.0, validator=valid(number, above=0), kw_only=True)
    storage_options: StorageOptions | None = attrs.field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        rigs.timestamp_reader(self.timestamp)
        rigs.CameraRig.__attrs_post_init__(self)
        if (self.tolerance_s is not None or self.reference_camera is not None) and self.align != "time":
            raise SettingError("`tolerance_s` and `reference_camera` are for `align='time'`; names match or not.")


def frame_folders(source: FrameFolders | StoragePath) -> FrameFolders:
    """Convert a root alone to folders of frames of one camera."""
    return source if isinstance(source, FrameFolders) else FrameFolders(source)


# Those of DALI's reader of sequences, in lower and upper case.
_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".pnm", ".ppm", ".pgm", ".pbm", ".jp2", ".webp",
)  # fmt: skip


def has_image_extension(name: str) -> bool:
    """Whether a file counts as a frame, by its extension."""
    return os.path.splitext(name)[1].lower() in _EXTENSIONS


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
    """

    storage: Storage
    camera_names: tuple[str, ...]
    recording_names: tuple[str, ...]
    edges: Int64Array
    recordings: npt.NDArray[np.int32]
    numbers: Int64Array
    timestamps: rigs.TimeArray | None
    missing: tuple[rigs.MissingFrame, ...]
    _files: FileTable  # the name of frame f of camera c is in row f * num_cameras + c

    def name(self, frame: int, camera: int) -> str:
        """Get the name of a file in the root."""
        return self._files.name(frame * max(1, len(self.camera_names)) + camera)

    def place(self, frame: int) -> tuple[FieldValue, FieldValue, FieldValue]:
        """Get name and number of the recording of a frame, and its number there."""
        recording = int(self.recordings[int(self.edges.searchsorted(frame, side="right")) - 1])
        name = encoded(as_utf8(self.recording_names[recording]))
        return name, np.int32(recording), self.numbers[frame].astype(np.int32)


def index_frames(folders: FrameFolders, has_timestamps: bool = False) -> FrameIndex:
    """List the frames, with time stamps if requested; for errors see `FrameDataProvider`."""
    if folders.timestamp is not None and folders.align != "time" and not has_timestamps:
        uses = "`align='time'` and `timestamp_name`"
        raise SettingError(f"`timestamp` is for {uses}, and neither is given: leave it out.")
    return _Scan(folders, has_timestamps or folders.align == "time").run()


class _Scan:
    """Builds an index."""

    def __init__(self, settings: FrameFolders, keeps_timestamps: bool) -> None:
        self._settings = settings
        self._storage = Storage(settings.file_root, settings.storage_options)
        self._folders = {"": ""} if settings.cameras is None else settings.cameras  # "": directly in the recording
        self._read_stamp = rigs.timestamp_reader(settings.timestamp) if keeps_timestamps else None
        self._files = FileTable()
        self._edges = array("q", [0])
        self._recordings = array("i")
        self._names: list[str] = []
        self._numbers = array("q")
        self._timestamps: list[int | float] = []
        self._missing: list[rigs.MissingFrame] = []
        self._num_times = 0
        self._skipped: list[str] = []

    def run(self) -> FrameIndex:
        entries = self._storage.list_folder()
        recordings = [name for name, is_folder in entries if is_folder and not name.startswith(".")]
        # DALI sorts whole paths, in which a "/" follows the folder.
        recordings.sort(key=lambda name: os.fsencode(name) + b"/")
        for recording in recordings:
            self._add_recording(recording)
        where, skipped = f" in {self._storage.shown()}", ""
        if self._skipped:
            others = "file(s) or folder(s) among the frames do not have the extension of an image and are left out"
            skipped = f"{len(self._skipped)} {others}, e.g. {self._skipped[0]!r}."
            _logger.warning("In %s, %s", self._storage.shown(), skipped)
        is_empty = not self._numbers
        rigs.report_missing(self._settings, self._missing, self._num_times, is_empty=is_empty, where=where)
        if is_empty:
            lacking = "frame" if recordings else "folder of a recording"
            camera = "" if self._settings.cameras is None else "<camera>/"
            expected = repr_without_secrets(f"{self._storage.root}/<recording>/{camera}<frame>.jpg")
            at_top = listed(sorted(repr(name) for name, _ in self._storage.list_folder()), 10)
            raise SettingError(
                f"There is no {lacking}{where}: frames must lie as {expected}, with the extension of an image. "
                f"At the top are {at_top}. {skipped}"
            )
        timestamps = None if self._read_stamp is None else rigs.as_times(self._timestamps)
        return FrameIndex(
            self._storage,
            self._settings.camera_names,
            tuple(self._names),
            np.array(self._edges, np.int64),
            np.array(self._recordings, np.int32),
            np.array(self._numbers, np.int64),
            None if timestamps is None else timestamps.reshape(-1, len(self._folders)),
            tuple(self._missing),
            self._files,
        )

    def _frames(self, folder: str) -> list[str]:
        """List the file names of the frames in a folder, in the order of their bytes."""
        names: list[str] = []
        try:
            for name, is_folder in self._storage.list_folder(folder, follows_links=False):
                if not is_folder and has_image_extension(name) and not name.startswith("."):
                    names.append(name)
                elif not name.startswith("."):
                    self._skipped.append(self._storage.path(f"{folder}/{name}"))
        except FileNotFoundError:
            if self._settings.cameras is None:
                raise
            _logger.warning("There is no folder %s.", self._storage.shown(folder))
        return sorted(names, key=os.fsencode)

    def _stamp(self, folder: str, name: str) -> int | float:
        try:
            return self._read_stamp(name) if self._read_stamp else 0
        except SettingError as error:
            raise SettingError(f"{error} The folder is {self._storage.path(folder)!r}.") from error

    def _add_recording(self, recording: str) -> None:
        settings = self._settings
        folders = [f"{recording}/{folder}".rstrip("/") for folder in self._folders.values()]
        files, where = [self._frames(folder) for folder in folders], [*map(self._storage.path, folders)]
        if settings.align == "name":
            times = rigs.align_by_name(files, where)
        else:
            stamps = [
                rigs.as_times([self._stamp(folder, name) for name in names])
                for folder, names in zip(folders, files, strict=True)
            ]
            aligned_by = settings.timestamp_unit_s, settings.reference, settings.tolerance_s
            times = rigs.align_by_time(files, stamps, where, *aligned_by)
        self._num_times += len(times.rows)
        for frame, (row, label) in enumerate(zip(times.rows, times.labels, strict=True)):
            self._missing += [
                rigs.MissingFrame(recording, camera, frame, label)
                for camera, name in zip(self._folders, row, strict=True)
                if name is None
            ]
        runs = settings.runs(np.array([None not in row for row in times.rows], np.bool_))
        self._names += [recording] * bool(runs)
        for run in runs:
            self._recordings.append(len(self._names) - 1)
            self._edges.append(self._edges[-1] + len(run))
            self._numbers.extend(run.tolist())
            for frame in run.tolist():
                for folder, name in zip(folders, times.rows[frame], strict=True):
                    self._files.add(f"{folder}/{name}")
                    if self._read_stamp is not None:
                        self._timestamps.append(self._stamp(folder, str(name)))
