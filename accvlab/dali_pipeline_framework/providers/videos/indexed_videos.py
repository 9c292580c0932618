# SPDX-License-Identifier: Apache-2.0
"""The videos of a data set, their indices, and the open decoders of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, SupportsIndex

from nvidia.dali import types

from ...checks import whole_number
from ...errors import FrameworkError, SettingError, VideoError
from .frame_reader import FrameReader, KeptFrames
from .frame_reader_pool import DecodingStatistics, FrameReaderPool
from .video_decoding import FrameConverter, UInt8Array, import_av
from .video_index import Int64Array, VideoIndex, index_video
from .video_index_cache import VideoIndexCache

_MOST_INDEXING_THREADS = 8  # indexing is bound by I/O
_MOST_NAMED = 10

_first_use = threading.Lock()


class IndexedVideos:
    """Video streams by number: their indices, and frames of them.

    The indices are made here, once; workers get them. Decoders are opened in the process that reads frames, on
    first use.
    """

    def __init__(
        self,
        streams: Sequence[tuple[str, int]],
        *,
        image_type: types.DALIImageType,
        num_decoder_threads: SupportsIndex,
        max_open_decoders: SupportsIndex,
        index_cache: str | os.PathLike[str] | None,
        kept: KeptFrames,
    ) -> None:
        """Make the indices.

        Args:
            streams: Path of the video and number of the stream in it, for each.
            image_type: ``RGB``, ``BGR`` or ``GRAY``.
            num_decoder_threads: Threads per decoder.
            max_open_decoders: How many decoders a process keeps open.
            index_cache: Folder for the indices, or None.
            kept: Which frames each decoder keeps.

        Raises:
            SettingError: PyAV is missing, an argument is out of its range, or a stream is not there.
            FileError: A file cannot be opened.
            VideoError: A file is not a video, or incomplete. All of them are listed.
        """
        self._num_channels = FrameConverter(image_type).num_channels
        self._image_type = image_type
        self._num_threads = whole_number(num_decoder_threads, "num_decoder_threads", at_least=1)
        self._max_open = whole_number(max_open_decoders, "max_open_decoders", at_least=1)
        self._kept = kept
        self._streams = tuple(streams)
        import_av(self._streams[0][0])
        cache = None if index_cache is None else VideoIndexCache(index_cache)
        self._indices = _indices_of(self._streams, cache)
        self._pool: FrameReaderPool | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def path(self, video: int) -> str:
        """Path of a video."""
        return self._streams[video][0]

    def index(self, video: int) -> VideoIndex:
        """Index of a video."""
        return self._indices[video]

    def read(self, video: int, numbers: Int64Array) -> UInt8Array:
        """Get ``(n, height, width, C)`` uint8 frames of a video by their ``(n,)`` numbers.

        Raises:
            FileError: The file cannot be opened.
            VideoError: A frame cannot be decoded.
        """
        with _first_use:
            if self._pool is None:
                self._pool = FrameReaderPool(self._open, self._max_open)
        return self._pool.read(video, numbers)

    def _open(self, video: int) -> FrameReader:
        path, stream = self._streams[video]
        return FrameReader(
            path,
            self._indices[video],
            stream=stream,
            num_threads=self._num_threads,
            image_type=self._image_type,
            kept=self._kept,
        )

    @property
    def num_channels(self) -> int:
        """Number of channels of the frames."""
        return self._num_channels

    @property
    def statistics(self) -> DecodingStatistics:
        """What was decoded in this process."""
        return DecodingStatistics() if self._pool is None else self._pool.statistics

    def close(self) -> None:
        """Close the decoders; they are opened again when they are needed."""
        if self._pool is not None:
            self._pool.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}


def _indices_of(streams: Sequence[tuple[str, int]], cache: VideoIndexCache | None) -> tuple[VideoIndex, ...]:
    def index(stream: tuple[str, int]) -> VideoIndex | FrameworkError:
        try:
            return index_video(*stream) if cache is None else cache.index(*stream)
        except FrameworkError as error:
            return error

    with ThreadPoolExecutor(min(_MOST_INDEXING_THREADS, len(streams))) as threads:
        results = list(threads.map(index, streams))
    errors = [result for result in results if isinstance(result, FrameworkError)]
    if len(errors) == 1 or any(isinstance(error, SettingError) for error in errors):
        raise next((error for error in errors if isinstance(error, SettingError)), errors[0])
    if errors:
        more = f"\n  - and {len(errors) - _MOST_NAMED} more" if len(errors) > _MOST_NAMED else ""
        named = "".join(f"\n  - {error}" for error in errors[:_MOST_NAMED])
        raise VideoError(f"{len(errors)} of {len(streams)} videos cannot be used:{named}{more}") from errors[0]
    return tuple(result for result in results if isinstance(result, VideoIndex))
