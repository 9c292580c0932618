# SPDX-License-Identifier: Apache-2.0
"""Base class of the video providers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, SupportsIndex

import numpy as np
from nvidia.dali import types

from ..providers.files.storage import as_utf8
from ..providers.frames.camera_rigs import OptionalField, RigProviderBase
from ..sample_data import SampleDataGroup
from ..sample_data.formats import DECODED_CLIP, DECODED_IMAGE
from ..sample_data.names import Name
from .frame_reader import KeptFrames
from .frame_reader_pool import DecodingStatistics
from .video_decoding import UInt8Array
from .video_index import Int64Array, VideoIndex
from .video_tracks import tracks_of
from .video_windows import VideoWindows
from .videos import Videos

_MOST_DESCRIBED = 8
_BLACK: UInt8Array = np.zeros(1, np.uint8)


class VideoProviderBase(RigProviderBase, ABC):
    """A data set of videos. A sample is one or more frames of a track (`VideoTracks`)."""

    def __init__(
        self,
        videos: Videos,
        windows: VideoWindows,
        kept: KeptFrames,
        *,
        frames: Name,
        label: Name | None,
        recording_number: Name | None,
        of_frames: Mapping[str, Name | None],
        holds_one_frame: bool,
        fill_value: UInt8Array = _BLACK,
    ) -> None:
        """Index the videos, and make the blueprint.

        Args:
            videos: The videos.
            windows: Which sequences they have.
            kept: Which frames each decoder keeps.
            frames: Name of the pixels.
            label: Name of the label; None for no such field, as below.
            recording_number: Name of the number of the recording.
            of_frames: Names of ``first_frame_number``, ``frame_numbers``, ``timestamps`` and ``path``.
            holds_one_frame: Whether a sample is one frame instead of a sequence: then pixels, number and time have
                one dimension less.
            fill_value: ``(C,)``, the pixels of frames that are made up.
        """
        self._videos, self._tracks = tracks_of(videos, kept)
        self._num_batch_threads = videos.num_batch_threads
        self._windows, self._fill_value = windows, fill_value
        self._counts = windows.counts(self._tracks.ends - self._tracks.starts)  # (S,)
        self._first = np.concatenate(([0], np.cumsum(self._counts)))  # (S + 1,), sample of each track
        num_more = 0 if holds_one_frame else 1
        content = DECODED_IMAGE if holds_one_frame else DECODED_CLIP
        further: list[OptionalField] = [
            (of_frames.get("first_frame_number"), types.DALIDataType.INT32, 1),
            (of_frames.get("frame_numbers"), types.DALIDataType.INT32, num_more),
            (of_frames.get("timestamps"), types.DALIDataType.FLOAT64, num_more),
            (of_frames.get("path"), types.DALIDataType.STRING, None),
        ]
        of_sample: list[OptionalField] = [(recording_number, types.DALIDataType.INT32, 0)]
        label = None if self._tracks.labels is None else label
        (of_sample if self._tracks.camera_names else further).insert(0, (label, types.DALIDataType.INT32, 1))
        self._frames_name, self._label_name, self._recording_number_name = frames, label, recording_number
        self._names_of_frames = {kind: name for kind, name in of_frames.items() if name is not None}
        self._chosen = 0 if holds_one_frame else slice(None)
        of_camera = SampleDataGroup()
        of_camera.add_data_field(frames, types.DALIDataType.UINT8, ndim=3 + num_more, content=content)
        self._set_format(self._tracks.camera_names, of_camera, further, of_sample, self._tracks.missing)

    def get_number_of_samples(self) -> int:
        """Get the number of samples of all recordings."""
        return int(self._first[-1])

    def _locate(self, sample_index: int) -> tuple[int, Int64Array]:
        """Get the track of a sample, and ``(F,)`` positions in it, -1 for frames that are made up."""
        sample = self._checked(sample_index)
        track = int(self._first.searchsorted(sample, side="right")) - 1
        start, end = int(self._tracks.starts[track]), int(self._tracks.ends[track])
        return track, self._windows.frames(start, end, sample - int(self._first[track]))

    @property
    def loads_batches(self) -> bool:
        """Whether several samples of a batch are decoded at once."""
        return self._num_batch_threads > 1

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Decode one sample.

        Raises:
            SettingError: Also an IndexError; there is no such sample.
            FileError: A video cannot be opened. Also the builtin exception of the cause.
            VideoError: A frame cannot be decoded.
        """
        track, positions = self._locate(sample_index)
        tracks = self._tracks
        sample = self.sample_data_structure
        for camera, name in enumerate(tracks.camera_names or (None,)):
            self._fill(sample if name is None else sample[name], track, camera, positions)
        if self._label_name is not None and tracks.labels is not None:
            sample[self._label_name] = tracks.labels[track : track + 1]
        if self._recording_number_name is not None:
            sample[self._recording_number_name] = np.int32(tracks.numbers[track])
        return sample

    def _fill(self, group: SampleDataGroup, track: int, camera: int, positions: Int64Array) -> None:
        video = int(self._tracks.videos[track, camera])
        frames = self._tracks.frames(track, camera, positions)
        group[self._frames_name] = self._pixels(video, frames)[self._chosen]
        for kind, name in self._names_of_frames.items():
            value: Any
            if kind == "path":
                value = as_utf8(self._videos.path(video))
            elif kind == "timestamps":
                value = self._tracks.times_s(track, camera, frames, self._videos.index(video))[self._chosen]
            else:
                numbers = frames.astype(np.int32)
                value = numbers[:1] if kind == "first_frame_number" else numbers[self._chosen]
            group[name] = value

    def _pixels(self, video: int, frames: Int64Array) -> UInt8Array:
        is_real = frames >= 0
        if is_real.all():
            return self._videos.read(video, frames)
        index = self._videos.index(video)
        pixels = np.empty((len(frames), index.height, index.width, self._videos.num_channels), np.uint8)
        pixels[is_real] = self._videos.read(video, frames[is_real])
        pixels[~is_real] = self._fill_value
        return pixels

    def describe_sample(self, sample_index: int) -> str:
        """Name the files and frames of a sample, e.g. ``"monday/front.mp4, frames 4, 6, 8"``; of each camera."""
        track, positions = self._locate(sample_index)
        return "; ".join(
            _described(self._videos.name(int(self._tracks.videos[track, camera])), frames[frames >= 0].tolist())
            for camera in range(self._tracks.num_cameras)
            for frames in [self._tracks.frames(track, camera, positions)]
        )

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Decode the samples of a batch, ``num_batch_threads`` at once."""
        with ThreadPoolExecutor(min(self._num_batch_threads, max(len(sample_indices), 1))) as threads:
            yield from threads.map(self.get_data, sample_indices)

    # --- what was found ---------------------------------------------------------------------------------

    @property
    def sequence_lengths(self) -> Int64Array:
        """Number of samples of each track that has any, ``(S,)`` int64, for samplers of sequences.

        A track is a video, or its range in the list; with ``cameras``, contiguous points in time of a recording.
        """
        return self._counts[self._counts > 0]

    @property
    def samples_per_recording(self) -> Int64Array:
        """Number of samples of each recording: ``(V,)`` int64; 0 where it is too short."""
        return np.bincount(self._tracks.numbers, self._counts, self._tracks.num_videos).astype(np.int64)

    def video_index(self, recording: SupportsIndex, camera: str | None = None) -> VideoIndex:
        """Get the index of the video of a recording, of one of its cameras."""
        return self._videos.index(self._tracks.video_of(recording, camera))

    @property
    def statistics(self) -> DecodingStatistics:
        """Decoding statistics of this object in this process."""
        return self._videos.statistics

    def close(self) -> None:
        """Close the decoders of this process; they are opened again when they are needed."""
        self._videos.close()

    def _repr(self, samples: str) -> str:
        return f"{type(self).__name__}({samples}, {self._tracks.describe(self._videos)})"


def _described(path: str, frames: list[int]) -> str:
    listed = ", ".join(map(str, frames)) if len(frames) <= _MOST_DESCRIBED else f"{frames[0]} to {frames[-1]}"
    return f"{path}, frame{'' if len(frames) == 1 else 's'} {listed}"
