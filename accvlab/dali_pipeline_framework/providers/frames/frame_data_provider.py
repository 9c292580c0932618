# SPDX-License-Identifier: Apache-2.0
"""A data set of extracted streams: one frame is one sample."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...sample_data import Name, SampleDataGroup
from ...sample_data.image_content import ENCODED_IMAGE
from ...sample_data.strings import encoded
from ...unknown_arguments import explains_unknown_arguments
from ..files.storage import StoragePath, as_utf8
from ..optional_fields import OptionalField, with_fields
from ..rigs.frame_times import Int64Array, TimeArray, TimestampRule
from ..rigs.rig_times import Alignment
from .frame_index import FrameIndex, FrameSettings, MissingPolicy
from .frame_provider_base import FrameProviderBase
from .stream_folders import Cameras, RigLayout


class FrameDataProvider(FrameProviderBase):
    """Sample ``i`` is frame ``i`` of a folder of extracted streams, or all cameras of a rig at a point in time.

    Streams are folders, frames are files in them, in the order of the bytes of their names; those that DALI's
    ``fn.readers.sequence`` finds, in its order. Files without the extension of an image, and names that begin
    with a dot, are left out::

        one camera             cameras={"front": "F", "rear": "R"}     layout="camera/stream"
        root/<stream>/1.jpg    root/<stream>/F/1.jpg                   root/F/<stream>/1.jpg
        root/<stream>/2.jpg    root/<stream>/R/1.jpg                   root/R/<stream>/1.jpg

    Frames of all streams lie one after the other; `sequence_lengths` is what samplers and `Clips` need. Fields of
    a sample, those in brackets only if they are given a name::

        one camera                        cameras={"front": ..., "rear": ...}
          image: UINT8                      front
          [path: STRING]                      image: UINT8
          [timestamp: INT64 or FLOAT64]       [path, timestamp]
          [stream: STRING]                  rear
          [stream number: INT32]              image: UINT8
          [frame number: INT32]               [path, timestamp]
                                            [stream, stream number, frame number]

    **Rigs.** Frames of different cameras belong together by their file names without extension
    (``align="name"``), or by time stamps in the file names (``"time"``): each camera's frame that is nearest to
    the reference camera's, and to no other one of it, if it is within the tolerance. So no frame is used twice.
    Points in time at which a camera has no frame are left out; they are counted in the log, and listed in
    `missing_frames`. With ``missing="drop"`` a sequence ends there and the next one begins behind it, so that
    neighbours in a sequence are neighbours in time; with ``"bridge"`` the sequence goes on.

    The folders are looked into once, here. Files are read in the workers.

    Example::

        provider = FrameDataProvider("train", cameras={"front": "CAM_FRONT", "rear": "CAM_BACK"})
        sampler = StreamingSequenceSampler(provider.sequence_lengths, seed=1)
        definition = PipelineDefinition(
            SamplerInputCallable(provider, sampler), [ImageDecoder("image", use_device_mixed=True)]
        )
    """

    @explains_unknown_arguments()
    def __init__(
        self,
        file_root: StoragePath,
        *,
        cameras: Cameras | None = None,
        layout: RigLayout = "stream/camera",
        align: Alignment = "name",
        timestamp: TimestampRule | None = None,
        tolerance: float | None = None,
        reference_camera: str | None = None,
        missing: MissingPolicy = "drop",
        image_name: Name = "image",
        path_name: Name | None = None,
        stream_name: Name | None = None,
        stream_number_name: Name | None = None,
        frame_number_name: Name | None = None,
        timestamp_name: Name | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Find the frames.

        Args:
            file_root: Folder of the streams, a local path or a URL (see `FileDataProvider`).
            cameras: Name and folder of each camera, or the folders alone; their order is that of the groups. None:
                the frames lie directly in the folders of the streams.
            layout: ``"stream/camera"`` or ``"camera/stream"``: which folder is in which.
            align: ``"name"`` or ``"time"``, see above. By time, frames are also in the order of their time stamps.
            timestamp: How to read a time stamp off a file name: a regular expression with one group, a function
                of the file name, or None where the name without its extension is the number. Any unit.
            tolerance: With ``align="time"``, how far a frame may be from the reference camera's, in that unit.
            reference_camera: With ``align="time"``, name of the camera whose frames are the points in time; None
                for the first.
            missing: What becomes of points in time at which a camera has no frame: ``"drop"``, ``"bridge"``, or
                ``"raise"``.
            image_name: Name for the bytes of the image file, ``(num_bytes,)``.
            path_name: Name for the full path or URL.
            stream_name: Name for the folder name of the stream.
            stream_number_name: Name for the number of the stream in `stream_names`, ``()``.
            frame_number_name: Name for the number of the frame in its stream, ``()``; points in time that are left
                out count.
            timestamp_name: Name for the time stamp, ``()``; INT64 if all are whole numbers, else FLOAT64.
            storage_options: See `FileDataProvider`.

        Raises:
            FileError: The root is missing, or a folder cannot be read.
            SettingError: An argument is not what it must be; there are no frames; a folder of a camera is nowhere;
                or names do not have the time stamps that they must have, or have the same twice.
        """
        settings = FrameSettings.checked(
            cameras,
            layout,
            align,
            timestamp,
            timestamp_name is not None,
            tolerance,
            reference_camera,
            missing,
        )
        index = FrameIndex(file_root, settings, storage_options)
        self._has = {
            "path": path_name is not None,
            "timestamp": timestamp_name is not None,
            "stream": stream_name is not None,
            "stream number": stream_number_name is not None,
            "frame number": frame_number_name is not None,
        }
        of_camera = SampleDataGroup()
        of_camera.add_data_field(image_name, types.DALIDataType.UINT8, ndim=1, content=ENCODED_IMAGE)
        with_fields(
            of_camera,
            [
                (path_name, types.DALIDataType.STRING, None),
                (timestamp_name, timestamp_type(index), 0),
            ],
        )
        of_sample: list[OptionalField] = [
            (stream_name, types.DALIDataType.STRING, None),
            (stream_number_name, types.DALIDataType.INT32, 0),
            (frame_number_name, types.DALIDataType.INT32, 0),
        ]
        super().__init__(index, of_camera, of_sample)

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
        index = self._index
        frame = operator.index(sample_index)
        index.check_frame(frame)
        flat: list[Any] = []
        for camera in range(index.num_cameras):
            flat.append(index.read(frame, camera))
            if self._has["path"]:
                flat.append(encoded(as_utf8(index.path(frame, camera))))
            if self._has["timestamp"]:
                flat.append(index.timestamp(frame, camera))
        stream = index.stream_of(frame)
        if self._has["stream"]:
            flat.append(encoded(as_utf8(index.stream_names[stream])))
        if self._has["stream number"]:
            flat.append(np.int32(stream))
        if self._has["frame number"]:
            flat.append(index.numbers[frame].astype(np.int32))
        sample = self.sample_data_structure
        sample.set_data(flat)
        return sample

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of frames of each sequence, ``(S,)`` int64: streams, cut where points in time are left out."""
        return self._index.sequence_lengths

    @property
    def stream_of_sequence(self) -> npt.NDArray[np.int64]:
        """Number of the stream of each sequence, ``(S,)`` int64."""
        return self._index.streams.astype(np.int64)

    @property
    def timestamps(self) -> TimeArray | None:
        """Time stamps, ``(N, num_cameras)`` int64 or float64.

        None where neither ``timestamp_name`` nor ``align="time"`` was given. A column of it is what `Clips` needs.
        """
        return self._index.timestamps

    def __repr__(self) -> str:
        """Summarise what was found."""
        index = self._index
        cameras = f" of {len(index.camera_names)} cameras" if index.camera_names else ""
        return (
            f"{type(self).__name__}({index.storage.root!r}: {index.num_frames} frames{cameras} in "
            f"{len(index.stream_names)} stream(s), {len(index.streams)} sequence(s))"
        )


def timestamp_type(index: FrameIndex) -> types.DALIDataType:
    """Type of the field of the time stamps."""
    is_whole = index.timestamps is not None and index.timestamps.dtype == np.int64
    return types.DALIDataType.INT64 if is_whole else types.DALIDataType.FLOAT64
