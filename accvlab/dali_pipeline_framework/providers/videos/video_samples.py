# SPDX-License-Identifier: Apache-2.0
"""Samples of videos: their fields and values."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
from nvidia.dali import types

from ...checks import whole_number
from ...errors import SettingError
from ...sample_data import Name, SampleDataGroup
from ...sample_data.image_content import DECODED_CLIP, DECODED_IMAGE
from ...sample_data.strings import encoded
from ..files.storage import as_utf8
from ..optional_fields import with_fields
from .indexed_videos import IndexedVideos
from .video_decoding import UInt8Array
from .video_index import Int64Array
from .video_tracks import VideoTracks

FrameNumbers: TypeAlias = Literal["none", "scalar", "sequence"]


@attrs.frozen
class VideoFields:
    """Names of the fields of a sample; None for one that is not there.

    Attributes:
        frames: The pixels.
        label: The label; it is left out where the videos have none.
        frame_number: Numbers of the frames in their video.
        times: Their times in seconds.
        path: Path of the video.
        video_number: Number of the video as listed, or of the drive.
        holds_one_frame: Whether a sample is one frame instead of a sequence: then pixels, number and time have
            one dimension less.
        has_all_numbers: Whether there is a number for each frame, or for the first one only.
    """

    frames: Name
    label: Name
    frame_number: Name | None
    times: Name | None
    path: Name | None
    video_number: Name | None
    holds_one_frame: bool
    has_all_numbers: bool = True


class VideoSamples:
    """Makes samples of frames at positions in tracks."""

    def __init__(
        self, videos: IndexedVideos, tracks: VideoTracks, fields: VideoFields, fill_value: UInt8Array
    ) -> None:
        """Make the blueprint.

        Args:
            videos: The videos.
            tracks: The runs of frames.
            fields: Names of the fields.
            fill_value: ``(C,)``, the pixels of frames that are made up.

        Raises:
            DuplicateFieldError: Two fields have the same name.
            NameTypeError: A name is neither ``str`` nor ``int``.
        """
        self.videos = videos
        self.tracks = tracks
        self._fields = fields
        self._fill_value = fill_value
        self._blueprint = self._make_blueprint()

    def _make_blueprint(self) -> SampleDataGroup:
        fields = self._fields
        num_more = 0 if fields.holds_one_frame else 1
        label = (fields.label if self.tracks.labels is not None else None, types.DALIDataType.INT32, 1)
        video_number = (fields.video_number, types.DALIDataType.INT32, 0)
        content = DECODED_IMAGE if fields.holds_one_frame else DECODED_CLIP
        of_frames = [
            (fields.frame_number, types.DALIDataType.INT32, num_more),
            (fields.times, types.DALIDataType.FLOAT64, num_more),
            (fields.path, types.DALIDataType.STRING, None),
        ]
        of_camera = SampleDataGroup()
        of_camera.add_data_field(fields.frames, types.DALIDataType.UINT8, ndim=3 + num_more, content=content)
        if self.tracks.camera_names is None:
            return with_fields(of_camera, [label, *of_frames, video_number])
        with_fields(of_camera, of_frames)
        blueprint = SampleDataGroup()
        for camera in self.tracks.camera_names:
            blueprint.add_data_group_field(camera, of_camera)
        return with_fields(blueprint, [label, video_number])

    @property
    def blueprint(self) -> SampleDataGroup:
        """An empty sample."""
        return self._blueprint.get_empty_like_self()

    def make(self, track: int, positions: Int64Array) -> SampleDataGroup:
        """Decode a sample.

        Args:
            track: The run.
            positions: ``(F,)`` positions in it, -1 for frames that are made up.

        Raises:
            FileError: A video cannot be opened.
            VideoError: A frame cannot be decoded.
        """
        fields, tracks = self._fields, self.tracks
        of_all: list[Any] = []
        if tracks.labels is not None:
            of_all.append(tracks.labels[track : track + 1])
        if fields.video_number is not None:
            of_all.append(np.int32(tracks.numbers[track]))
        flat: list[Any] = []
        for camera in range(tracks.num_cameras):
            of_camera = self._of_camera(track, camera, positions)
            if tracks.camera_names is None and tracks.labels is not None:
                of_camera.insert(1, of_all.pop(0))
            flat += of_camera
        sample = self.blueprint
        sample.set_data([*flat, *of_all])
        return sample

    def _of_camera(self, track: int, camera: int, positions: Int64Array) -> list[Any]:
        fields, video = self._fields, int(self.tracks.videos[track, camera])
        frames = self.tracks.frames(track, camera, positions)
        pixels = self._pixels(video, frames)
        values: list[Any] = [pixels]
        if fields.frame_number is not None:
            numbers = frames.astype(np.int32)
            values.append(numbers if fields.has_all_numbers else numbers[:1])
        if fields.times is not None:
            values.append(self.tracks.times_s(track, camera, frames, self.videos.index(video)))
        if fields.holds_one_frame:
            values = [value[0] for value in values]
        if fields.path is not None:
            values.append(encoded(as_utf8(self.videos.path(video))))
        return values

    def _pixels(self, video: int, frames: Int64Array) -> UInt8Array:
        is_real = frames >= 0
        if is_real.all():
            return self.videos.read(video, frames)
        index = self.videos.index(video)
        pixels = np.empty((len(frames), index.height, index.width, self.videos.num_channels), np.uint8)
        pixels[is_real] = self.videos.read(video, frames[is_real])
        pixels[~is_real] = self._fill_value
        return pixels


def checked_frame_numbers(value: Any) -> FrameNumbers:
    """Return which frame numbers are asked for, or raise a `SettingError`."""
    for known, same in (("none", False), ("scalar", True), ("sequence", "sequence")):
        if value is same or (isinstance(value, str) and value == known):
            return known  # type: ignore[return-value]
    raise SettingError(
        f"`enable_frame_num` must be 'none' (or False), 'scalar' (or True) or 'sequence', got {value!r}."
    )


def checked_fill(value: Any, num_channels: int) -> UInt8Array:
    """Return the pixel ``(C,)`` of frames that are made up, or raise a `SettingError`."""
    given = np.atleast_1d(np.asarray(value, object)).tolist()
    numbers = [whole_number(each, "fill_value", at_least=0) for each in given]
    if len(numbers) not in (1, num_channels) or max(numbers) > 255:
        raise SettingError(
            f"`fill_value` must be one number in [0, 255], or one for each of {num_channels} channel(s), got "
            f"{value!r}."
        )
    return np.broadcast_to(np.array(numbers, np.uint8), (num_channels,)).copy()
