# SPDX-License-Identifier: Apache-2.0
"""Data sets of folders of frames: a sample is one frame, or a sequence of frames."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import SupportsIndex, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import choice, whole_number
from ...draws.keyed_draws import Int64Array
from ...errors import FileError, SettingError
from ...limits.image_limits import claimed_size
from ...sample_data import FieldPath, FieldValue, SampleDataGroup
from ...sample_data.formats import ENCODED_IMAGE, ENCODED_NAME
from ...sample_data.names import Name
from ...sampling.plans.clips import Clips, ClipTail, PlayedClips
from ...unknown_arguments import explains_unknown_arguments
from ..data_provider import FieldColumns, WantedFields
from ..files.storage import StoragePath
from ..sample_loading import add_note
from .camera_rigs import OptionalField, RigProviderBase, TimeArray
from .frame_folders import FrameFolders, FrameIndex, frame_folders, index_frames


class FrameProviderBase(RigProviderBase):
    """A data set of folders of frames."""

    _index: FrameIndex

    def _fields_of_place(self, *names: Name | None) -> list[OptionalField]:
        """Make the fields of `FrameIndex.places`, by their names."""
        self._place_names = names
        string, int32 = types.DALIDataType.STRING, types.DALIDataType.INT32
        return [*zip(names, (string, int32, int32), (None, 0, 0), strict=True)]

    def _places(self, frame: int) -> list[FieldValue]:
        return self._index.places(frame, [name is not None for name in self._place_names])

    @property
    def recording_names(self) -> tuple[str, ...]:
        """Folder names of the recordings that have frames."""
        return self._index.recording_names

    @property
    def num_unused_frames(self) -> Mapping[tuple[str, str], int]:
        """Number of unmatched frames with ``align="time"``, by recording and camera."""
        return MappingProxyType(self._index.unused)


class FrameDataProvider(FrameProviderBase):
    """Sample ``i`` is frame ``i`` of folders of frames, or all cameras of a rig at a point in time.

    Frames of all recordings are numbered one after the other; samplers and `Clips` need `sequence_lengths`. Fields
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
        self._image_name, self._path_name, self._timestamp_name = image_name, path_name, timestamp_name
        of_camera = SampleDataGroup()
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=1, content=ENCODED_IMAGE)
        of_frame = [(path_name, types.DALIDataType.STRING, None), (timestamp_name, time_type, 0)]
        of_sample = self._fields_of_place(recording_name, recording_number_name, frame_number_name)
        self._set_format(index.camera_names, of_camera, of_frame, of_sample, index.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of frames; of a rig, the number of points in time."""
        return self._index.num_frames

    def describe_sample(self, sample_index: int) -> str:
        """Get the path of a frame."""
        return self._index.describe([sample_index])

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Read a frame, of all cameras.

        Raises:
            SettingError: Also an IndexError; there is no such frame.
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
                return index.read(frame, camera)
            if name == self._path_name:
                return index.encoded_path(frame, camera)
            if name == self._timestamp_name and index.timestamps is not None:
                return index.timestamps[frame, camera]
        return index.places(frame, [each == name for each in self._place_names])[0]

    def load_fields(self, wanted: WantedFields) -> FieldColumns:
        """Load some fields of some frames; files are read only where images are wanted, each once."""
        columns = {}
        for path, frames in wanted.items():
            values = {frame: self._value(path, self._checked(frame)) for frame in dict.fromkeys(frames)}
            columns[path] = [values[frame] for frame in frames]
        return columns

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence, ``(S,)`` int64: recordings, cut where points in time are left out."""
        return self._index.sequence_lengths

    @property
    def timestamps(self) -> TimeArray | None:
        """Time stamps, ``(N, num_cameras)`` int64 or float64.

        None where neither ``timestamp_name`` nor ``align="time"`` was given. A column of it is what `Clips` needs.
        """
        return self._index.timestamps

    def __repr__(self) -> str:
        """Summarise the frames that were found."""
        found = self._index.summary(f"{self._index.num_frames} frames")
        return f"{type(self).__name__}({found}, {len(self._index.recordings)} sequence(s))"


UInt8Array = npt.NDArray[np.uint8]
Sizes: TypeAlias = dict[tuple[int, int], tuple[int, int]]  # (frame, camera) -> (height, width)


class FrameSequenceDataProvider(FrameProviderBase):
    """Sample ``n`` is sequence ``n`` of DALI's ``fn.readers.sequence``, from the same folders.

    A sequence has ``sequence_length`` frames of one recording, ``stride`` frames apart; sequences start every
    ``step`` frames, and only complete ones count (see `Clips`, whose ``tail`` also keeps others). They do not
    reach over points in time that are left out, unless the folders have ``missing="bridge"``.

    `FrameSequenceDecoder` makes ``(F, H, W, C)`` images of the group of frames of each camera. Fields of a
    sample, those in brackets only if they are given a name::

        one camera                             cameras={"front": ..., "rear": ...}
          frames                                 front
            encoded: [0], [1], ...: UINT8          frames: encoded
          [paths: [0], [1], ...: STRING]           [paths]
          [padding: BOOL, (F,)]                  rear: as front
          [recording: STRING]                    [padding, recording, recording number, first frame number]
          [recording number: INT32]
          [first frame number: INT32]

    Attributes:
        clips: Which frames the sequences have.

    Example::

        provider = FrameSequenceDataProvider("train", sequence_length=4, step=2)
        data_input = ShuffledShardedInputCallable(provider, batch_size=8, shuffle=True)
        definition = PipelineDefinition(data_input, [FrameSequenceDecoder("frames", on_gpu=True)])
    """

    @explains_unknown_arguments
    def __init__(
        self,
        folders: FrameFolders | StoragePath,
        sequence_length: SupportsIndex,
        *,
        step: SupportsIndex = 1,
        stride: SupportsIndex = 1,
        tail: ClipTail = "drop",
        frames_name: Name = "frames",
        paths_name: Name | None = None,
        padding_name: Name | None = None,
        recording_name: Name | None = None,
        recording_number_name: Name | None = None,
        first_frame_number_name: Name | None = None,
    ) -> None:
        """Find the frames.

        Args:
            folders: The folders of the frames; a root alone for one camera.
            sequence_length: Frames per sequence, ``F``.
            step: Frames from the start of a sequence to the start of the next one of the recording.
            stride: Frames from one frame of a sequence to the next.
            tail: Policy for sequences that are not complete at the end of a recording, see `Clips`.
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
        advice = "It counts forward; with `sequence_length * stride`, sequences do not overlap."
        step = whole_number(step, "step", at_least=1, advice=advice)
        choice(tail, "tail", get_args(ClipTail))
        self._index = index = index_frames(frame_folders(folders))
        try:
            self.clips = Clips(index.sequence_lengths, length, stride=stride, step=step, tail=tail)
        except SettingError as error:
            raise SettingError(f"{error} {_describe_longest(index)}") from error
        self._has_paths, self._has_padding = paths_name is not None, padding_name is not None
        frames = SampleDataGroup()
        frames.add_data_field_array(ENCODED_NAME, types.DALIDataType.UINT8, length, ndim=1, content=ENCODED_IMAGE)
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

    # --- loading ----------------------------------------------------------------------------------------

    def describe_sample(self, sample_index: int) -> str:
        """List the paths of the frames of a sequence."""
        return self._index.describe(self._play(sample_index).frames[0].tolist())

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Read one sequence.

        Raises:
            SettingError: Also an IndexError; there is no such sequence.
            FileError: A file cannot be read, or two frames of a camera have different sizes.
        """
        played = self._play(sample_index)
        frames = played.frames[0].tolist()
        flat: list[FieldValue] = []
        for camera in range(self._index.num_cameras):
            files = {frame: self._read(frame, camera) for frame in dict.fromkeys(frames)}
            self._check_sizes(files, camera)
            flat += [files[frame] for frame in frames]
            if self._has_paths:
                flat += [self._index.encoded_path(frame, camera) for frame in frames]
        if self._has_padding:
            flat.append(played.is_padding[0])
        sample = self.new_sample()
        sample.set_data([*flat, *self._places(frames[0])])
        return sample

    def _play(self, sample_index: int) -> PlayedClips:
        return self.clips.play(np.array([self._checked(sample_index)], np.int64))

    def _read(self, frame: int, camera: int) -> UInt8Array:
        index = self._index
        try:
            return index.read(frame, camera)
        except FileError as error:
            recording = index.recording_names[index.recording_of(frame)]
            add_note(error, f"which is frame {index.numbers[frame]} of recording {recording!r}")
            raise

    def _check_sizes(self, files: Mapping[int, UInt8Array], camera: int) -> None:
        """Raise for frames of different sizes, as far as known: errors in the graph do not name the files."""
        sizes = {frame: claimed_size(content) for frame, content in files.items()}
        known = {frame: size for frame, size in sizes.items() if size is not None}
        # Sorted, since decoders may rotate an image by its EXIF orientation.
        if len({(min(size), max(size)) for size in known.values()}) > 1:
            raise FileError(self._describe_sizes(camera, known))

    def _describe_sizes(self, camera: int, known: Mapping[int, tuple[int, int]]) -> str:
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
        """Summarise the frames that were found."""
        clips = self.clips
        found = self._index.summary(f"{clips.num_clips} sequences of {clips.sequence_length} frames")
        return f"{type(self).__name__}({found})"


def _describe_longest(index: FrameIndex) -> str:
    longest = int(np.argmax(index.sequence_lengths))
    recording = index.recording_names[index.recordings[longest]]
    return f"The longest sequence of frames, {index.sequence_lengths[longest]}, is in recording {recording!r}."
