# SPDX-License-Identifier: Apache-2.0
"""Data sets of folders of frames: where they are, the index of the frames in them, and the provider."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import listed, number, one_of, setting_error, valid
from ...draws.keyed_draws import Int64Array
from ...errors import SettingError
from ...sample_data import FieldPath, FieldValue, SampleDataGroup
from ...sample_data.conversion import encoded
from ...sample_data.formats import ENCODED_IMAGE
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ...url_secrets import repr_without_secrets, without_secrets
from ..data_provider import FieldColumns, WantedFields
from ..files.file_scan import IMAGE_EXTENSIONS, FileTable
from ..files.remote_reading import StorageOptions
from ..files.storage import Storage, StoragePath, as_utf8
from . import camera_rigs as rigs
from .camera_rigs import TimeArray

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
        align: Matching of frames of different cameras, ``"name"`` or ``"time"``. With ``"time"``, their time
            stamps also give the order of the frames.
        timestamp: How to read a time stamp off a file name: a regular expression with one group, a function of the
            file name, or None where the name without its extension is the number.
        timestamp_unit_s: Seconds per unit of the time stamps, e.g. ``1e-6`` for microseconds.
        tolerance_s: With ``align="time"``, how far a frame may be from the reference camera's, in seconds; None
            for half the median interval of the reference camera. The comparison is exact: tolerance, unit and time
            stamps count as the decimals that were written.
        reference_camera: With ``align="time"``, name of the camera whose frames are the points in time; None for
            the first.
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


def has_image_extension(name: str) -> bool:
    """Whether a file counts as a frame, by its extension."""
    return os.path.splitext(name)[1].lower() in IMAGE_EXTENSIONS


_logger = logging.getLogger(__name__)


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

    def __init__(self, folders: FrameFolders, has_timestamps: bool = False) -> None:
        """List the frames, with time stamps if requested; for errors see `FrameDataProvider`."""
        has_timestamps = has_timestamps or folders.align == "time"
        if folders.timestamp is not None and not has_timestamps:
            uses = "`align='time'` and `timestamp_name`"
            raise SettingError(f"`timestamp` is for {uses}, and neither is given: leave it out.")
        self.storage, self.camera_names = Storage(folders.file_root, folders.storage_options), folders.camera_names
        self._files = FileTable()  # the name of frame f of camera c is in row f * num_cameras + c
        found = [name for name, is_folder in self.storage.list_folder() if is_folder and not name.startswith(".")]
        # DALI sorts whole paths, in which a "/" follows the folder.
        found.sort(key=lambda name: os.fsencode(name) + b"/")
        names: list[str] = []
        recordings: list[int] = []
        runs: list[Int64Array] = []
        missing: list[rigs.MissingFrame] = []
        stamps: list[int | float] = []
        skipped: list[str] = []
        num_times = 0
        for recording in found:
            cameras = _listed(folders, self.storage, recording)
            matched, times = _by_time(cameras, folders) if folders.align == "time" else _by_name(cameras)
            sequences, lacking = folders.sequences(recording, matched, times)
            recordings += [len(names)] * len(sequences)
            names += [recording] * bool(sequences)
            runs += sequences
            missing += lacking
            for row in (row for run in sequences for row in matched[run].tolist()):
                for camera, place in zip(cameras, row, strict=True):
                    self._files.add(f"{camera.folder}/{camera.files[place]}")
                    if has_timestamps:
                        stamps.append(camera.stamp(camera.files[place]))
            skipped += [path for camera in cameras for path in camera.skipped]
            num_times += len(matched)
        advice = ""
        if skipped:
            others = "file(s) or folder(s) among the frames do not have the extension of an image and are left out"
            advice = f"{len(skipped)} {others}, e.g. {skipped[0]!r}."
            _logger.warning("In %s, %s", self.storage.shown(), advice)
        where = f" in {self.storage.shown()}"
        rigs.report_missing(folders, missing, num_times, is_empty=not runs, where=where)
        if not runs:
            raise _nothing_found(folders, self.storage, "frame" if found else "folder of a recording", advice)
        self.recording_names, self.missing = tuple(names), tuple(missing)
        self.edges = np.cumsum([0, *map(len, runs)])
        self.recordings, self.numbers = np.array(recordings, np.int32), np.concatenate(runs)
        self.timestamps = rigs.as_times(stamps).reshape(len(self.numbers), -1) if has_timestamps else None

    def name(self, frame: int, camera: int) -> str:
        """Get the name of a file in the root."""
        return self._files.name(frame * max(1, len(self.camera_names)) + camera)

    def place(self, frame: int) -> tuple[FieldValue, FieldValue, FieldValue]:
        """Get name and number of the recording of a frame, and its number there."""
        recording = int(self.recordings[int(self.edges.searchsorted(frame, side="right")) - 1])
        name = encoded(as_utf8(self.recording_names[recording]))
        return name, np.int32(recording), self.numbers[frame].astype(np.int32)


def _nothing_found(folders: FrameFolders, storage: Storage, what: str, advice: str) -> SettingError:
    camera = "" if folders.cameras is None else "<camera>/"
    expected = repr_without_secrets(f"{storage.root}/<recording>/{camera}<frame>.jpg")
    at_top = listed(sorted(repr(name) for name, _ in storage.list_folder()), 10)
    return SettingError(
        f"There is no {what} in {storage.shown()}: frames must lie as {expected}, with the extension of an image. "
        f"At the top are {at_top}. {advice}"
    )


@attrs.frozen
class _Camera:
    """The frames of a camera in a recording.

    Attributes:
        folder: Their folder in the root.
        path: Its full path, for messages.
        read_stamp: Reads a time stamp off a file name.
        files: The file names, in the order of their bytes.
        skipped: Full paths of what else is in the folder.
    """

    folder: str
    path: str
    read_stamp: Callable[[str], int | float]
    files: list[str] = attrs.field(factory=list)
    skipped: list[str] = attrs.field(factory=list)

    def stamp(self, name: str) -> int | float:
        """Read the time stamp off a file name."""
        try:
            return self.read_stamp(name)
        except SettingError as error:
            raise SettingError(f"{error} The folder is {self.path!r}.") from error


def _listed(folders: FrameFolders, storage: Storage, recording: str) -> list[_Camera]:
    """List the frames of the cameras of a recording."""
    cameras = []
    for place in ("",) if folders.cameras is None else folders.cameras.values():  # "": directly in the recording
        folder = f"{recording}/{place}".rstrip("/")
        camera = _Camera(folder, storage.path(folder), rigs.timestamp_reader(folders.timestamp))
        try:
            for name, is_folder in storage.list_folder(folder, follows_links=False):
                if not is_folder and has_image_extension(name) and not name.startswith("."):
                    camera.files.append(name)
                elif not name.startswith("."):
                    camera.skipped.append(storage.path(f"{folder}/{name}"))
        except FileNotFoundError:
            if folders.cameras is None:
                raise
            _logger.warning("There is no folder %s.", storage.shown(folder))
        camera.files.sort(key=os.fsencode)
        cameras.append(camera)
    return cameras


def _by_name(cameras: Sequence[_Camera]) -> tuple[Int64Array, list[str]]:
    """Match frames by their file names without extension, in the order of the first file name of each.

    Returns:
        ``(T, C)`` int64, the number of each camera's file at each point in time, -1 where it has none; and what
        the points in time are called.
    """
    if len(cameras) == 1:
        return np.arange(len(cameras[0].files))[:, None], cameras[0].files
    places: list[dict[str, int]] = []
    for camera in cameras:
        places.append({})
        for place, name in enumerate(camera.files):
            other = places[-1].setdefault(rigs.without_extension(name), place)
            if other != place:
                rule = "Frames are aligned by their names without extension, so they must differ in them"
                got = f"{camera.files[other]!r} and {name!r} in {camera.path!r}"
                raise SettingError(f"{rule}, got {got}. Remove one.")
    names = sorted({name for camera in cameras for name in camera.files}, key=os.fsencode)
    stems = [*dict.fromkeys(map(rigs.without_extension, names))]
    rows = [[of_camera.get(stem, -1) for of_camera in places] for stem in stems]
    return np.array(rows, np.int64).reshape(-1, len(cameras)), stems


def _by_time(cameras: Sequence[_Camera], folders: FrameFolders) -> tuple[Int64Array, list[str]]:
    """Match frames by nearest time stamp, see `align_times`, and sort the files by time; returns as `_by_name`."""
    times = []
    for camera in cameras:
        camera.files.sort(key=camera.stamp)
        stamps = rigs.as_times([camera.stamp(name) for name in camera.files])
        for place in np.flatnonzero(stamps[1:] == stamps[:-1])[:1].tolist():
            first, second = camera.files[place : place + 2]
            raise SettingError(
                f"The time stamps of a camera must differ, got {stamps[place]} for both {first!r} and {second!r} "
                f"in {camera.path!r}."
            )
        times.append(rigs.CameraTimes.of(stamps, rigs.exact(folders.timestamp_unit_s)))
    matched = rigs.align_times(times, folders.reference, folders.tolerance_s)
    return matched, cameras[folders.reference].files


class FrameDataProvider(rigs.RigProviderBase):
    """Sample ``i`` is frame ``i`` of folders of frames, or all cameras of a rig at a point in time.

    Frames of all recordings are numbered one after the other; `Windows` makes samples of
    several frames. Fields of a sample, those in brackets only if they are given a name::

        one camera                        cameras={"front": ..., "rear": ...}
          image: UINT8                      front
          [path: STRING]                      image: UINT8
          [timestamp: INT64 or FLOAT64]       [path, timestamp]
          [recording: STRING]               rear
          [recording number: INT32]           image: UINT8
          [frame number: INT32]               [path, timestamp]
                                            [recording, recording number, frame number]

    The folders are listed once, here. Files are read in the workers. ``missing_frames`` lists the missing frames
    of cameras.

    Example::

        provider = FrameDataProvider(FrameFolders("train", cameras={"front": "CAM_FRONT", "rear": "CAM_BACK"}))
        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        definition = PipelineDefinition(
            SamplerInputCallable(provider, sampler), [ImageDecoder("image", use_device_mixed=True)]
        )
    """

    @explains_unknown_arguments
    def __init__(
        self,
        folders: FrameFolders | StoragePath,
        *,
        image_name: Name = "image",
        path_name: Name | None = None,
        recording_name: Name | None = None,
        recording_number_name: Name | None = None,
        frame_number_name: Name | None = None,
        timestamp_name: Name | None = None,
    ) -> None:
        """Find the frames.

        Args:
            folders: The folders of the frames; a root alone for one camera.
            image_name: Name for the bytes of the image file, ``(num_bytes,)``.
            path_name: Name for the full path or URL.
            recording_name: Name for the folder name of the recording.
            recording_number_name: Name for the number of the recording in `recording_names`, ``()``.
            frame_number_name: Name for the number of the frame in its recording, ``()``; points in time that are
                left out are numbered, too.
            timestamp_name: Name for the time stamp, ``()``; INT64 if all are whole numbers, else FLOAT64.

        Raises:
            FileError: The root is missing, or a folder cannot be read.
            SettingError: There are no frames; no recording has the folder of a camera; or a file name lacks its
                time stamp, or with ``align="time"`` two of a camera have the same one.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        folders = folders if isinstance(folders, FrameFolders) else FrameFolders(folders)
        self._index = index = FrameIndex(folders, timestamp_name is not None)
        self._reference, self._timestamp_unit_s = folders.reference, folders.timestamp_unit_s
        is_whole = index.timestamps is not None and index.timestamps.dtype == np.int64
        time_type = types.DALIDataType.INT64 if is_whole else types.DALIDataType.FLOAT64
        self._image_name, self._path_name, self._timestamp_name = image_name, path_name, timestamp_name
        of_camera = SampleDataGroup()
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=1, content=ENCODED_IMAGE)
        of_frame = [(path_name, types.DALIDataType.STRING, None), (timestamp_name, time_type, 0)]
        self._place_names = recording_name, recording_number_name, frame_number_name
        place_types = types.DALIDataType.STRING, types.DALIDataType.INT32, types.DALIDataType.INT32
        of_sample: list[rigs.OptionalField] = [*zip(self._place_names, place_types, (None, 0, 0), strict=True)]
        self._set_format(index.camera_names, of_camera, of_frame, of_sample, index.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of frames; of a rig, the number of points in time."""
        return int(self._index.edges[-1])

    def describe_sample(self, sample_index: int) -> str:
        """Get the path of a frame; for a rig, the path of the first camera's frame."""
        return without_secrets(self._path(sample_index, 0))

    def _path(self, frame: int, camera: int) -> str:
        return self._index.storage.path(self._index.name(frame, camera))

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Read a frame, of all cameras.

        Raises:
            SettingError: There is no such frame; the error is also an IndexError.
            FileError: A file cannot be read.
        """
        frame = self._checked(sample_index)
        sample = self.new_sample()
        sample.set_data([self._value(path, frame) for path in self._blueprint.format.flat_paths])
        return sample

    def _value(self, path: FieldPath, frame: int) -> FieldValue:
        index, name = self._index, path[-1]
        if len(path) > 1 or not index.camera_names:
            camera = index.camera_names.index(str(path[0])) if len(path) > 1 else 0
            if name == self._image_name:
                return index.storage.read_bytes(index.name(frame, camera))
            if name == self._path_name:
                return encoded(as_utf8(self._path(frame, camera)))
            if name == self._timestamp_name and index.timestamps is not None:
                return index.timestamps[frame, camera]
        return index.place(frame)[self._place_names.index(name)]

    def load_fields(self, wanted: WantedFields) -> FieldColumns:
        """Load some fields of some frames; files are read only where images are wanted, each once."""
        columns = {}
        for path, frames in wanted.items():
            values = {frame: self._value(path, self._checked(frame)) for frame in dict.fromkeys(frames)}
            columns[path] = [values[frame] for frame in frames]
        return columns

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence, ``(S,)`` int64.

        A sequence is a recording; with ``FrameFolders(missing="drop")``, recordings are cut at gaps.
        """
        return np.diff(self._index.edges)

    @property
    def timestamps(self) -> TimeArray | None:
        """Time stamps, ``(N, num_cameras)`` int64 or float64, in the unit of the `FrameFolders`.

        None where neither ``timestamp_name`` nor ``FrameFolders(align="time")`` was given.
        """
        return self._index.timestamps

    def frame_times_s(self, path: FieldPath = ()) -> npt.NDArray[np.float64] | None:
        """Get the time stamps of the reference camera, or of a field's camera, in seconds; None if unknown."""
        if self.timestamps is None:
            return None
        camera = self._index.camera_names.index(str(path[0])) if len(path) > 1 else self._reference
        return np.asarray(self.timestamps[:, camera] * self._timestamp_unit_s, np.float64)

    @property
    def recording_names(self) -> tuple[str, ...]:
        """Folder names of the recordings that have frames."""
        return self._index.recording_names

    def __repr__(self) -> str:
        """Summarise the frames that were found."""
        index = self._index
        cameras = f" of {len(index.camera_names)} cameras" if index.camera_names else ""
        recordings = f"{len(index.recording_names)} recording(s), {len(index.recordings)} sequence(s)"
        return f"{type(self).__name__}({index.storage.shown()}: {len(self)} frames{cameras} in {recordings})"
