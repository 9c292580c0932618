# SPDX-License-Identifier: Apache-2.0
"""Data sets of folders of frames: a sample is one frame, or a sequence of frames."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsIndex, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import choice, flag, whole_number
from ...errors import FileError, SettingError
from ...limits.image_limits import claimed_size
from ...sample_data import SampleDataGroup
from ...sample_data.formats import ENCODED_IMAGE, ENCODED_NAME, MOST_FRAMES_TO_SHARE, PLACES_NAME
from ...sample_data.names import Name
from ...sampling.plans.clips import Clips, ClipTail, PlayedClips
from ...unknown_arguments import explains_unknown_arguments, in_settings
from ..files.storage import StoragePath
from ..sample_loading import add_note, name_sample
from .camera_rigs import Int64Array, OptionalField, RigProviderBase, TimeArray
from .frame_folders import FrameFolders, FrameIndex, frame_folders, index_frames


class FrameProviderBase(RigProviderBase):
    """A data set of folders of frames."""

    _index: FrameIndex

    def _fields_of_place(self, *names: Name | None) -> list[OptionalField]:
        """The fields of `FrameIndex.places`, by their names."""
        self._has_places = [name is not None for name in names]
        string, int32 = types.DALIDataType.STRING, types.DALIDataType.INT32
        return [*zip(names, (string, int32, int32), (None, 0, 0), strict=True)]

    @property
    def recording_names(self) -> tuple[str, ...]:
        """Folder names of the recordings that have frames."""
        return self._index.recording_names

    @property
    def num_unused_frames(self) -> Mapping[tuple[str, str], int]:
        """With ``align="time"``, number of unmatched frames, by recording and camera."""
        return MappingProxyType(self._index.unused)


class FrameDataProvider(FrameProviderBase):
    """Sample ``i`` is frame ``i`` of folders of frames, or all cameras of a rig at a point in time.

    Frames of all recordings lie one after the other; `sequence_lengths` is what samplers and `Clips` need. Fields
    of a sample, those in brackets only if they are given a name::

        one camera                        cameras={"front": ..., "rear": ...}
          image: UINT8                      front
          [path: STRING]                      image: UINT8
          [timestamp: INT64 or FLOAT64]       [path, timestamp]
          [recording: STRING]               rear
          [recording number: INT32]           image: UINT8
          [frame number: INT32]               [path, timestamp]
                                            [recording, recording number, frame number]

    The folders are listed once, here. Files are read in the workers.

    Example::

        provider = FrameDataProvider(FrameFolders("train", cameras={"front": "CAM_FRONT", "rear": "CAM_BACK"}))
        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        definition = PipelineDefinition(
            SamplerInputCallable(provider, sampler), [ImageDecoder("image", use_device_mixed=True)]
        )
    """

    @explains_unknown_arguments(in_settings(FrameFolders))
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
            folders: Where the frames lie; a root alone for one camera.
            image_name: Name for the bytes of the image file, ``(num_bytes,)``.
            path_name: Name for the full path or URL.
            recording_name: Name for the folder name of the recording.
            recording_number_name: Name for the number of the recording in `recording_names`, ``()``.
            frame_number_name: Name for the number of the frame in its recording, ``()``; points in time that are
                left out count.
            timestamp_name: Name for the time stamp, ``()``; INT64 if all are whole numbers, else FLOAT64.

        Raises:
            FileError: The root is missing, or a folder cannot be read.
            SettingError: There are no frames; a folder of a camera is nowhere; or names do not have the time
                stamps that they must have, or have the same twice.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        self._index = index = index_frames(frame_folders(folders), timestamp_name is not None)
        is_whole = index.timestamps is not None and index.timestamps.dtype == np.int64
        time_type = types.DALIDataType.INT64 if is_whole else types.DALIDataType.FLOAT64
        self._has_path, self._has_timestamp = path_name is not None, timestamp_name is not None
        of_camera = SampleDataGroup()
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=1, content=ENCODED_IMAGE)
        of_frame = [(path_name, types.DALIDataType.STRING, None), (timestamp_name, time_type, 0)]
        of_sample = self._fields_of_place(recording_name, recording_number_name, frame_number_name)
        self._set_format(index.camera_names, of_camera, of_frame, of_sample, index.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of frames; of a rig, the number of points in time."""
        return self._index.num_frames

    def describe_sample(self, sample_index: int) -> str:
        """The path of a frame."""
        return self._index.describe([sample_index])

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Read a frame, of all cameras.

        Raises:
            SettingError: Also an IndexError; there is no such frame.
            FileError: A file cannot be read.
        """
        index, frame = self._index, self._checked(sample_index)
        flat: list[Any] = []
        for camera in range(index.num_cameras):
            flat.append(index.read(frame, camera))
            if self._has_path:
                flat.append(index.encoded_path(frame, camera))
            if self._has_timestamp and index.timestamps is not None:
                flat.append(index.timestamps[frame, camera])
        sample = self.new_sample()
        sample.set_data([*flat, *index.places(frame, self._has_places)])
        return sample

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence, ``(S,)`` int64: recordings, cut where points in time are left out."""
        return self._index.sequence_lengths

    @property
    def recording_of_sequence(self) -> npt.NDArray[np.int64]:
        """Number of the recording of each sequence, ``(S,)`` int64."""
        return self._index.recordings.astype(np.int64)

    @property
    def timestamps(self) -> TimeArray | None:
        """Time stamps, ``(N, num_cameras)`` int64 or float64.

        None where neither ``timestamp_name`` nor ``align="time"`` was given. A column of it is what `Clips` needs.
        """
        return self._index.timestamps

    def __repr__(self) -> str:
        """Summarise what was found."""
        found = self._index.summary(f"{self._index.num_frames} frames")
        return f"{type(self).__name__}({found}, {len(self._index.recordings)} sequence(s))"


Int32Array = npt.NDArray[np.int32]


class FrameLayout(NamedTuple):
    """Which frames the samples of a batch carry, and where each window finds its own.

    Attributes:
        carried: ``(n, F)`` int64, the frame in each field of a window's sample, -1 for none.
        places: ``(n, 3, F)`` int32. Row 0: whether each field carries a frame (1 or 0). Row 1, 2: the slot of the
            window that carries each frame of the window, in the order of play, and the field in which it does. In
            windows that do not share, row 1 is -1: they carry their own frames, in that order.
        complete_with: ``(n,)`` int64, the last of the windows that carry a frame of each window.
    """

    carried: Int64Array
    places: Int32Array
    complete_with: Int64Array


def lay_out_frames(frames: Int64Array, sequences: Int64Array, slots: Int64Array) -> FrameLayout:
    """Lay out the frames of the windows of one batch.

    Windows share if a frame of theirs occurs more than once in the batch. The distinct frames of all of them in a
    sequence, in order, are assigned to these windows in turns: a field is decoded for all samples at once, by
    several threads, so the first fields should be full. With four windows, of which the third does not share::

        window    frames               fields carry         places
          0       10  11  12  13       10  13   -   -       0.0 1.0 3.0 0.1
          1       11  12  13  14       11  14   -   -       1.0 3.0 0.1 1.1
          2       40  41  42  43       40  41  42  43
          3       12  13  14  15       12  15   -   -       3.0 0.1 1.1 3.1

    Args:
        frames: ``(n, F)`` int64, the frames of each window.
        sequences: ``(n,)`` int64, the sequence of each window. Windows borrow only within their sequence, so that
            frames of different sizes do not meet.
        slots: ``(n,)`` int64, the position of each window in the whole batch.
    """
    length = frames.shape[1]
    layout = lay_out_alone(frames)
    _, inverse, counts = np.unique(frames, return_inverse=True, return_counts=True)
    is_sharing = (counts[inverse.reshape(frames.shape)] > 1).any(axis=1)
    for sequence in np.unique(sequences[is_sharing]):
        windows = np.flatnonzero(is_sharing & (sequences == sequence))
        distinct, positions = np.unique(frames[windows], return_inverse=True)
        positions = positions.reshape(-1, length)  # (windows, F), in `distinct`
        dealt = np.full((length, len(windows)), -1, np.int64)
        dealt.flat[: len(distinct)] = distinct
        carriers = windows[positions % len(windows)]  # (windows, F)
        layout.carried[windows] = dealt.T
        layout.places[windows, 0] = layout.carried[windows] >= 0
        layout.places[windows, 1] = slots[carriers]
        layout.places[windows, 2] = positions // len(windows)
        layout.complete_with[windows] = carriers.max(axis=1)
    return layout


def lay_out_alone(frames: Int64Array) -> FrameLayout:
    """Lay out windows, ``(n, F)`` frames, each of which carries its own frames."""
    num_windows, length = frames.shape
    places = np.empty((num_windows, 3, length), np.int32)
    places[:, 0], places[:, 1], places[:, 2] = 1, -1, np.arange(length)
    return FrameLayout(frames.copy(), places, np.arange(num_windows))


def can_overlap(sequence_length: int, stride: int, step: int) -> bool:
    """Whether two windows of a data set can have a frame in common."""
    # Starts that differ by d frames share some iff d is a multiple of both, and smaller than the span.
    return math.lcm(stride, step) <= (sequence_length - 1) * stride


UInt8Array = npt.NDArray[np.uint8]
Sizes: TypeAlias = dict[tuple[int, int], tuple[int, int]]  # (frame, camera) -> (height, width)

# An image of one pixel (a PPM file), for fields that carry no frame.
_NO_FRAME: UInt8Array = np.frombuffer(b"P6\n1 1\n255\n\0\0\0", np.uint8)


class _UnreadableFrame(Exception):  # noqa: N818
    def __init__(self, frame: int, error: FileError) -> None:
        super().__init__(frame)
        self.frame = frame
        self.error = error


class FrameSequenceDataProvider(FrameProviderBase):
    """Sample ``n`` is sequence ``n`` of DALI's ``fn.readers.sequence``, from the same folders.

    A sequence has ``sequence_length`` frames of one recording, ``stride`` frames apart; sequences start every
    ``step`` frames, and only complete ones count (see `Clips`, whose ``tail`` also keeps others). They do not
    reach over points in time that are left out, unless the folders have ``missing="bridge"``.

    `FrameSequenceDecoder` makes ``(F, H, W, C)`` images of the group of frames of each camera. Fields of a
    sample, those in brackets only if they are given a name::

        one camera                             cameras={"front": ..., "rear": ...}
          frames                                 front
            encoded: [0], [1], ...: UINT8          frames
            places: INT32, with sharing              encoded, places
          [paths: [0], [1], ...: STRING]           [paths]
          [padding: BOOL, (F,)]                  rear: as front
          [recording: STRING]                    [padding, recording, recording number, first frame number]
          [recording number: INT32]
          [first frame number: INT32]

    **Sharing.** With ``share_frames``, sequences of a batch that overlap share their frames: each frame is read,
    sent and decoded once per batch. The fields ``encoded`` then hold the frames of the batch in any order, and
    ``places`` says where those of each sequence are. The inputs of this package load such samples by
    `load_batch`, also behind the providers of this package that wrap others. A sample of `get_data` has all of its
    frames.

    Attributes:
        clips: Which frames the sequences have.

    Example::

        provider = FrameSequenceDataProvider("train", sequence_length=4, step=2)
        data_input = ShuffledShardedInputCallable(provider, batch_size=8, shuffle=True)
        definition = PipelineDefinition(data_input, [FrameSequenceDecoder("frames", on_gpu=True)])
    """

    @explains_unknown_arguments(in_settings(FrameFolders))
    def __init__(
        self,
        folders: FrameFolders | StoragePath,
        sequence_length: SupportsIndex,
        *,
        step: SupportsIndex = 1,
        stride: SupportsIndex = 1,
        tail: ClipTail = "drop",
        share_frames: bool | None = None,
        frames_name: Name = "frames",
        paths_name: Name | None = None,
        padding_name: Name | None = None,
        recording_name: Name | None = None,
        recording_number_name: Name | None = None,
        first_frame_number_name: Name | None = None,
    ) -> None:
        """Find the frames.

        Args:
            folders: Where the frames lie; a root alone for one camera.
            sequence_length: Frames per sequence, ``F``.
            step: Frames from the start of a sequence to the start of the next one of the recording.
            stride: Frames from one frame of a sequence to the next.
            tail: What happens to sequences that are not complete at the end of a recording, see `Clips`.
            share_frames: Whether sequences of a batch share frames; they have at most 64 frames then. None: if
                two sequences of the data set can have a frame in common.
            frames_name: Name of the group of frames.
            paths_name: Name for the array of the full paths or URLs.
            padding_name: Name for which frames are padding, ``(F,)``; some are only with ``tail="mark"``.
            recording_name: Name for the folder name of the recording.
            recording_number_name: Name for the number of the recording in `recording_names`, ``()``.
            first_frame_number_name: Name for the number of the first frame in its recording, ``()``.

        Raises:
            FileError: The root is missing, or a folder cannot be read.
            SettingError: As in `FrameDataProvider`; or no recording is long enough for a sequence.
        """
        length = whole_number(sequence_length, "sequence_length", at_least=1)
        stride = whole_number(stride, "stride", at_least=1)
        advice = "It counts forward; with `sequence_length * stride` sequences lie one behind the other."
        step = whole_number(step, "step", at_least=1, advice=advice)
        choice(tail, "tail", get_args(ClipTail))
        is_too_long = length > MOST_FRAMES_TO_SHARE
        if share_frames and is_too_long:
            rule = f"Sequences of more than {MOST_FRAMES_TO_SHARE} frames cannot share them"
            raise SettingError(f"{rule}, got `sequence_length={length}` and `share_frames={share_frames!r}`.")
        if share_frames is None:
            share_frames = not is_too_long and can_overlap(length, stride, step)
        self._shares = flag(share_frames, "share_frames")
        self._index = index = index_frames(frame_folders(folders))
        try:
            self.clips = Clips(index.sequence_lengths, length, stride=stride, step=step, tail=tail)
        except SettingError as error:
            raise SettingError(f"{error} {_describe_longest(index)}") from error
        self._has_paths, self._has_padding = paths_name is not None, padding_name is not None
        frames = SampleDataGroup()
        frames.add_data_field_array(ENCODED_NAME, types.DALIDataType.UINT8, length, ndim=1, content=ENCODED_IMAGE)
        if self._shares:
            frames.add_data_field(PLACES_NAME, types.DALIDataType.INT32, ndim=2)
        of_camera = SampleDataGroup()
        of_camera.add_data_group_field(frames_name, frames)
        if paths_name is not None:
            of_camera.add_data_field_array(paths_name, types.DALIDataType.STRING, length)
        of_sample: list[OptionalField] = [
            (padding_name, types.DALIDataType.BOOL, 1),
            *self._fields_of_place(recording_name, recording_number_name, first_frame_number_name),
        ]
        self._set_format(index.camera_names, of_camera, [], of_sample, index.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of sequences."""
        return self.clips.num_clips

    @property
    def loads_batches(self) -> bool:
        """Whether sequences of a batch share frames."""
        return self._shares

    # --- loading ----------------------------------------------------------------------------------------

    def describe_sample(self, sample_index: int) -> str:
        """The paths of the frames of a sequence."""
        return self._index.describe(self._play([sample_index]).frames[0].tolist())

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Read one sequence, which shares frames with no other.

        Raises:
            SettingError: Also an IndexError; there is no such sequence.
            FileError: A file cannot be read, or two frames of a camera have different sizes.
        """
        played = self._play([sample_index])
        return next(self._load([sample_index], played, lay_out_alone(played.frames)))

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Read the sequences of a batch, each frame once if they share frames, see `get_data`."""
        if not self._shares:
            return map(self.get_data, sample_indices)
        played = self._play(sample_indices)
        layout = lay_out_frames(played.frames, played.sequences, np.asarray(slots, np.int64))
        return self._load(sample_indices, played, layout)

    def _load(
        self, sample_indices: Sequence[int], played: PlayedClips, layout: FrameLayout
    ) -> Iterator[SampleDataGroup]:
        sizes: Sizes = {}
        for window in range(len(played.frames)):
            try:
                files = self._read_all(layout.carried[window].tolist(), sizes)
            except _UnreadableFrame as unreadable:
                # The frame may be carried for other sequences than this one.
                users = np.flatnonzero((played.frames == unreadable.frame).any(axis=1))
                name_sample(unreadable.error, sample_indices[users[0]])
                raise unreadable.error from unreadable.error.__cause__
            for complete in np.flatnonzero(layout.complete_with == window).tolist():
                try:
                    self._check_sizes(played.frames[complete], sizes)
                except FileError as error:
                    name_sample(error, sample_indices[complete])
                    raise
            yield self._make_sample(files, layout.places[window], played.frames[window], played.is_padding[window])

    def _play(self, sample_indices: Sequence[int]) -> PlayedClips:
        return self.clips.play(np.array([self._checked(sample) for sample in sample_indices], np.int64))

    def _read_all(self, frames: list[int], sizes: Sizes) -> list[list[UInt8Array]]:
        """Read the files of frames for each camera, a repeated one once; -1 is none."""
        files: list[list[UInt8Array]] = []
        for camera in range(self._index.num_cameras):
            read: dict[int, UInt8Array] = {-1: _NO_FRAME}
            for frame in frames:
                if frame not in read:
                    read[frame] = self._read(frame, camera, sizes)
            files.append([read[frame] for frame in frames])
        return files

    def _read(self, frame: int, camera: int, sizes: Sizes) -> UInt8Array:
        index = self._index
        try:
            content = index.read(frame, camera)
        except FileError as error:
            recording = index.recording_names[index.recording_of(frame)]
            add_note(error, f"which is frame {index.numbers[frame]} of recording {recording!r}")
            raise _UnreadableFrame(frame, error) from error
        size = claimed_size(content)
        if size is not None:
            sizes[frame, camera] = size
        return content

    def _make_sample(
        self,
        files: list[list[UInt8Array]],
        places: Int32Array,
        frames: Int64Array,
        is_padding: npt.NDArray[np.bool_],
    ) -> SampleDataGroup:
        flat: list[Any] = []
        for camera, of_camera in enumerate(files):
            flat += of_camera
            if self._shares:
                flat.append(places)
            if self._has_paths:
                flat += [self._index.encoded_path(frame, camera) for frame in frames.tolist()]
        if self._has_padding:
            flat.append(is_padding)
        sample = self.new_sample()
        sample.set_data([*flat, *self._index.places(int(frames[0]), self._has_places)])
        return sample

    def _check_sizes(self, frames: Int64Array, sizes: Sizes) -> None:
        """Raise for frames of different sizes, where they are known here: errors in the graph name no files."""
        for camera in range(self._index.num_cameras):
            known = {frame: sizes[frame, camera] for frame in frames.tolist() if (frame, camera) in sizes}
            # Sorted, since decoders may rotate an image by its EXIF orientation.
            if len({(min(size), max(size)) for size in known.values()}) > 1:
                raise FileError(self._describe_sizes(camera, known))

    def _describe_sizes(self, camera: int, known: dict[int, tuple[int, int]]) -> str:
        index = self._index
        first = next(iter(known))
        other = next(frame for frame in known if sorted(known[frame]) != sorted(known[first]))
        (height, width), (other_height, other_width) = known[first], known[other]
        return (
            f"The frames of a sequence must have the same size, but in recording "
            f"{index.recording_names[index.recording_of(first)]!r} {index.path(first, camera)!r} has {width} x "
            f"{height} and {index.path(other, camera)!r} has {other_width} x {other_height} pixels. Put frames of "
            f"different sizes into different recordings."
        )

    # --- what was found ---------------------------------------------------------------------------------

    @property
    def samples_per_recording(self) -> Int64Array:
        """Number of samples of each recording in `recording_names`: ``(num_recordings,)`` int64."""
        num_recordings = len(self._index.recording_names)
        return np.bincount(self._index.recordings, self.clips.clips_per_sequence, num_recordings).astype(np.int64)

    def __repr__(self) -> str:
        """Summarise what was found."""
        clips = self.clips
        found = self._index.summary(f"{clips.num_clips} sequences of {clips.sequence_length} frames")
        return f"{type(self).__name__}({found}{', frames are shared' if self._shares else ''})"


def _describe_longest(index: FrameIndex) -> str:
    longest = int(np.argmax(index.sequence_lengths))
    recording = index.recording_names[index.recordings[longest]]
    return f"The longest sequence of frames, {index.sequence_lengths[longest]}, is in recording {recording!r}."
