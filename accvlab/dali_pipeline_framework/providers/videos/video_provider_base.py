# SPDX-License-Identifier: Apache-2.0
"""Base class of the video providers."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import SupportsIndex

from ...errors import SettingError, error_that_is_also
from ...sample_data import SampleDataGroup
from ..data_provider import DataProvider
from .frame_reader_pool import DecodingStatistics
from .video_index import Int64Array, VideoIndex
from .video_samples import VideoSamples
from .video_tracks import MissingVideoFrame

_MOST_DESCRIBED = 8


class VideoProviderBase(DataProvider):
    """A data set of videos. A sample is one or more frames of a track (`VideoTracks`)."""

    def __init__(self, samples: VideoSamples, num_batch_threads: int) -> None:
        """Set up.

        Args:
            samples: Makes the samples.
            num_batch_threads: How many samples of a batch are decoded at once, at least 1.
        """
        self._samples = samples
        self._tracks = samples.tracks
        self._videos = samples.videos
        self._num_batch_threads = num_batch_threads

    @abstractmethod
    def _locate(self, sample: int) -> tuple[int, Int64Array]:
        """Get the track of a sample, and ``(F,)`` positions in it, -1 for padding."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample, see the class."""
        return self._samples.blueprint

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
        return self._samples.make(*self._locate(self._checked(sample_index)))

    def describe_sample(self, sample_index: int) -> str:
        """Name the files and frames of a sample, e.g. ``"drive/front.mp4, frames 4, 6, 8"``; of each camera.

        Raises:
            SettingError: Also an IndexError; there is no such sample.
        """
        track, positions = self._locate(self._checked(sample_index))
        return "; ".join(
            _described(self._videos.path(int(self._tracks.videos[track, camera])), frames[frames >= 0].tolist())
            for camera in range(self._tracks.num_cameras)
            for frames in [self._tracks.frames(track, camera, positions)]
        )

    def _checked(self, sample_index: int) -> int:
        sample, num_samples = operator.index(sample_index), self.get_number_of_samples()
        if not 0 <= sample < num_samples:
            raise error_that_is_also(
                SettingError,
                (IndexError,),
                f"`sample_index` must be in [0, {num_samples - 1}], got {sample_index!r}.",
            )
        return sample

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Decode the samples of a batch, ``num_batch_threads`` at once.

        Args:
            sample_indices: The samples.
            slots: Their numbers in the batch.
        """
        with ThreadPoolExecutor(min(self._num_batch_threads, max(len(sample_indices), 1))) as threads:
            yield from threads.map(self.get_data, sample_indices)

    @property
    def missing_frames(self) -> tuple[MissingVideoFrame, ...]:
        """Missing frames of cameras at times of the reference camera."""
        return self._tracks.missing

    def video_index(self, video: SupportsIndex, camera: str | None = None) -> VideoIndex:
        """Get the index of a video as listed, or of a camera's video of a drive.

        Raises:
            SettingError: There is no such video or camera.
        """
        return self._videos.index(self._tracks.video_of(video, camera))

    @property
    def statistics(self) -> DecodingStatistics:
        """Decoding statistics of this object in this process."""
        return self._videos.statistics

    def close(self) -> None:
        """Close the decoders of this process; they are opened again when they are needed."""
        self._videos.close()


def _described(path: str, frames: list[int]) -> str:
    listed = ", ".join(map(str, frames)) if len(frames) <= _MOST_DESCRIBED else f"{frames[0]} to {frames[-1]}"
    return f"{path}, frame{'' if len(frames) == 1 else 's'} {listed}"
