# SPDX-License-Identifier: Apache-2.0
"""The videos of a data set, their indices, and the open decoders of a process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..checks import bullets
from ..errors import FrameworkError, SettingError, VideoError
from ..providers.files.storage import Storage
from ..url_secrets import without_secrets
from .files.video_file import located
from .frame_reader import FrameReader, KeptFrames
from .frame_reader_pool import DecodingStatistics, FrameReaderPool
from .video_decoding import FrameConverter, UInt8Array, import_av
from .video_index import Int64Array, VideoIndex, make_index
from .video_index_cache import cached_video_index
from .videos import Videos

_MOST_INDEXING_THREADS = 8  # indexing is bound by I/O
_MOST_NAMED = 10

_first_use = threading.Lock()


class IndexedVideos:
    """Video streams by number: their indices, and frames of them.

    The indices are made here, once; workers get them. Decoders are opened in the process that reads frames, on
    first use.
    """

    def __init__(self, streams: Sequence[tuple[str, int]], settings: Videos, kept: KeptFrames) -> None:
        """Make the indices. Videos that cannot be used are all listed in one `VideoError`.

        Args:
            streams: Path or URL of the video and number of the stream in it, for each.
            settings: How they are decoded.
            kept: Which frames each decoder keeps.
        """
        self.num_channels = FrameConverter(settings.image_type).num_channels
        self._image_type, self._kept = settings.image_type, kept
        self._num_threads, self._max_open = settings.num_decoder_threads, settings.max_open_decoders
        self._streams = tuple(streams)
        storages: dict[str, Storage] = {}
        self._sources = tuple(located(path, settings.storage_options, storages) for path, _ in streams)
        import_av(self._streams[0][0])
        numbers = [stream for _, stream in streams]
        self._indices = _indices_of([*zip(self._sources, numbers, strict=True)], settings.index_cache)
        for video, index in enumerate(self._indices):
            index.warn_of_doubts(repr(self.name(video)))
        self._pool: FrameReaderPool | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def path(self, video: int) -> str:
        """Path or URL of a video."""
        return self._streams[video][0]

    def name(self, video: int) -> str:
        """Path of a video, or its URL, as messages tell it."""
        return without_secrets(self.path(video))

    def index(self, video: int) -> VideoIndex:
        """Index of a video."""
        return self._indices[video]

    def read(self, video: int, numbers: Int64Array) -> UInt8Array:
        """Get ``(n, height, width, C)`` uint8 frames of a video by their ``(n,)`` numbers."""
        with _first_use:
            if self._pool is None:
                self._pool = FrameReaderPool(self._open, self._max_open)
        return self._pool.read(video, numbers)

    def _open(self, video: int) -> FrameReader:
        _, stream = self._streams[video]
        return FrameReader(
            self._sources[video],
            self._indices[video],
            stream=stream,
            num_threads=self._num_threads,
            image_type=self._image_type,
            kept=self._kept,
        )

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


def _indices_of(streams: Sequence[tuple[Any, int]], cache: str | None) -> tuple[VideoIndex, ...]:
    def index(stream: tuple[Any, int]) -> VideoIndex | FrameworkError:
        try:
            return make_index(*stream) if cache is None else cached_video_index(cache, *stream)
        except FrameworkError as error:
            return error

    with ThreadPoolExecutor(min(_MOST_INDEXING_THREADS, len(streams))) as threads:
        results = list(threads.map(index, streams))
    errors = [result for result in results if isinstance(result, FrameworkError)]
    if len(errors) == 1 or any(isinstance(error, SettingError) for error in errors):
        raise next((error for error in errors if isinstance(error, SettingError)), errors[0])
    if errors:
        raise VideoError(
            f"{len(errors)} of {len(streams)} videos cannot be used:\n{bullets(errors, _MOST_NAMED)}"
        ) from errors[0]
    return tuple(result for result in results if isinstance(result, VideoIndex))
