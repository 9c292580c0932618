# SPDX-License-Identifier: Apache-2.0
"""Frames of the videos of a data set, by file and number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from accvlab.dali_pipeline_framework.errors import VideoError
from accvlab.dali_pipeline_framework.extension import FrameReaderPool, KeptFrames, located
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.video import FrameReader, VideoIndex, cached_video_index

from .array_types import UInt8

FrameKey: TypeAlias = tuple[str, int]

_MOST_OPEN = 32
_MOST_INDICES = 4096


class VideoFrames:
    """Frames of any number of videos. Open decoders go on where they stopped; at most 32 are open.

    What is found about a video is kept in files, for other processes.
    """

    def __init__(self, index_folder: Path, storage_options: Mapping[str, Any] | None = None) -> None:
        """Set up; nothing is opened.

        Args:
            index_folder: Folder of what is found; it is made when it is needed.
            storage_options: Arguments of the remote file system, for videos that are named by URLs.
        """
        self._index_folder = index_folder
        self._storage_options = storage_options
        self._storages: dict[str, Storage] = {}
        self._numbers: dict[str, int] = {}
        self._indices: LRUCache[str, VideoIndex] = LRUCache(_MOST_INDICES)
        self._pool = FrameReaderPool(self._opened, _MOST_OPEN)
        self._shared: dict[FrameKey, UInt8] = {}
        self._uses: Counter[FrameKey] = Counter()

    def _opened(self, video: int) -> FrameReader:
        path = [*self._numbers][video]
        return FrameReader(self._located(path), self.index(path), kept=KeptFrames(1, passed=False, pixels=False))

    def _located(self, path: str) -> Any:
        return located(path, self._storage_options, self._storages)

    def index(self, path: str) -> VideoIndex:
        """What is known of a video.

        Raises:
            SettingError: PyAV is missing.
            FileError: The video cannot be opened.
            VideoError: It is not a video, or incomplete.
        """
        index = self._indices.get(path)
        if index is None:
            self._indices[path] = index = cached_video_index(self._index_folder, self._located(path))
            index.warn_of_doubts(repr(path))
        return index

    def frame(self, path: str, number: int) -> UInt8:
        """Get a frame, ``(H, W, 3)`` uint8, RGB.

        Raises:
            VideoError: The video has no such frame, or it cannot be decoded.
            FileError: The video cannot be opened.
        """
        key = (path, number)
        if key not in self._shared:
            decoded: UInt8 = self.frames(path, [number])[0]
            return decoded
        self._uses[key] -= 1
        return self._shared[key].copy() if self._uses[key] > 0 else self._shared.pop(key)

    def frames(self, path: str, numbers: npt.ArrayLike) -> UInt8:
        """Get frames of one video, ``(n, H, W, 3)``, in any order, in one pass; see `frame`."""
        wanted = np.asarray(numbers, np.int64)
        num_frames = self.index(path).num_frames
        wrong = wanted[(wanted < 0) | (wanted >= num_frames)]
        if len(wrong):
            raise VideoError(
                f"The data set asks for frame {wrong[0]} of the video {path!r}, whose frames are "
                f"0 to {num_frames - 1}: the video was cut short, or is not the one that the data set was made "
                f"with."
            )
        video = self._numbers.setdefault(path, len(self._numbers))
        return self._pool.read(video, wanted)

    @contextmanager
    def shared(self, keys: Iterable[FrameKey]) -> Iterator[None]:
        """Decode what is requested several times, or not in order, once and in order. Keys are in order of use."""
        by_path: dict[str, list[int]] = {}
        for path, number in keys:
            by_path.setdefault(path, []).append(number)
        try:
            for path, numbers in by_path.items():
                distinct = sorted(set(numbers))
                if numbers == distinct:
                    continue
                with suppress(OSError, ValueError):  # raised again for the sample that needs the frame
                    for number, frame in zip(distinct, self.frames(path, distinct), strict=True):
                        self._shared[path, number] = frame
                        self._uses[path, number] = numbers.count(number)
            yield
        finally:
            self._shared.clear()
            self._uses.clear()

    def close(self) -> None:
        """Close the decoders; they are opened again when they are needed."""
        self._pool.close()
