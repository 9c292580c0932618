# SPDX-License-Identifier: Apache-2.0
"""A data set of folders of frames: one frame is one sample."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...sample_data import SampleDataGroup
from ...sample_data.formats import ENCODED_IMAGE
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments, in_settings
from ..files.storage import StoragePath
from ..rigs.camera_rig import RigProviderBase
from ..rigs.frame_times import Int64Array, TimeArray
from .frame_index import FrameIndex, index_frames
from .recording_folders import FrameFolders, frame_folders


class FrameProviderBase(RigProviderBase):
    """A data set of folders of frames."""

    _index: FrameIndex

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
        names = (recording_name, recording_number_name, frame_number_name)
        self._has_places = [name is not None for name in names]
        of_camera = SampleDataGroup()
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=1, content=ENCODED_IMAGE)
        self._set_format(
            index.camera_names,
            of_camera,
            [(path_name, types.DALIDataType.STRING, None), (timestamp_name, time_type, 0)],
            [
                (recording_name, types.DALIDataType.STRING, None),
                (recording_number_name, types.DALIDataType.INT32, 0),
                (frame_number_name, types.DALIDataType.INT32, 0),
            ],
            index.missing,
        )

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
        sample = self.sample_data_structure
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
