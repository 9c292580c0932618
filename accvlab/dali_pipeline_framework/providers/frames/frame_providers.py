# SPDX-License-Identifier: Apache-2.0
"""Data sets of folders of frames."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...draws.keyed_draws import Int64Array
from ...sample_data import FieldPath, FieldValue, SampleDataGroup
from ...sample_data.conversion import encoded
from ...sample_data.formats import ENCODED_IMAGE
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ...url_secrets import without_secrets
from ..data_provider import FieldColumns, WantedFields
from ..files.storage import StoragePath, as_utf8
from .camera_rigs import OptionalField, RigProviderBase, TimeArray
from .frame_folders import FrameFolders, frame_folders, index_frames


class FrameDataProvider(RigProviderBase):
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
                left out are numbered, too.
            timestamp_name: Name for the time stamp, ``()``; INT64 if all are whole numbers, else FLOAT64.

        Raises:
            FileError: The root is missing, or a folder cannot be read.
            SettingError: There are no frames; no recording has the folder of a camera; or a file name lacks its
                time stamp, or two have the same one.
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        folders = frame_folders(folders)
        self._index = index = index_frames(folders, timestamp_name is not None)
        self._reference, self._timestamp_unit_s = folders.reference, folders.timestamp_unit_s
        is_whole = index.timestamps is not None and index.timestamps.dtype == np.int64
        time_type = types.DALIDataType.INT64 if is_whole else types.DALIDataType.FLOAT64
        self._image_name, self._path_name, self._timestamp_name = image_name, path_name, timestamp_name
        of_camera = SampleDataGroup()
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=1, content=ENCODED_IMAGE)
        of_frame = [(path_name, types.DALIDataType.STRING, None), (timestamp_name, time_type, 0)]
        self._place_names = recording_name, recording_number_name, frame_number_name
        place_types = types.DALIDataType.STRING, types.DALIDataType.INT32, types.DALIDataType.INT32
        of_sample: list[OptionalField] = [*zip(self._place_names, place_types, (None, 0, 0), strict=True)]
        self._set_format(index.camera_names, of_camera, of_frame, of_sample, index.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of frames; of a rig, the number of points in time."""
        return int(self._index.edges[-1])

    def describe_sample(self, sample_index: int) -> str:
        """Get the path of a frame; of a rig, of its first camera."""
        return without_secrets(self._path(sample_index, 0))

    def _path(self, frame: int, camera: int) -> str:
        return self._index.storage.path(self._index.name(frame, camera))

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
        """Number of frames of each sequence, ``(S,)`` int64: recordings, cut by ``missing="drop"`` at gaps."""
        return np.diff(self._index.edges)

    @property
    def timestamps(self) -> TimeArray | None:
        """Time stamps, ``(N, num_cameras)`` int64 or float64, in units of ``timestamp_unit_s``.

        None where neither ``timestamp_name`` nor ``align="time"`` was given.
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
