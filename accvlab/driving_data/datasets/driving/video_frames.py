# SPDX-License-Identifier: Apache-2.0
"""Frames of the videos of a data set, by file and number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from accvlab.dali_pipeline_framework.errors import FileError, VideoError
from accvlab.dali_pipeline_framework.extension import Colors, FileOfClip, FrameReaderPool, is_remote_video, located
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.video import DecodingStatistics, FrameReader, VideoIndex, cached_video_index

from .array_types import Array, Float64, Int32, Int64, UInt8

FrameKey: TypeAlias = tuple[str, int]

_ADVICE = {  # where readers have no settings for it: calibration is that of the stored frames
    "rotation": "Turn them in a step of your own, or encode the video anew without that angle",
    "streams": "If another one is meant, write a file with that stream only",
}
_MOST_OPEN = 32
_MOST_INDICES = 4096
_MOST_TRIED = 3  # videos of a camera


class VideoFrames:
    """Frames of any number of videos. Open decoders go on where they stopped; at most 32 are open.

    What is found about a video is kept in files, for other processes.
    """

    def __init__(
        self,
        index_folder: Path,
        storage_options: Mapping[str, Any] | None = None,
        colors: Colors = "bt601",
        *,
        unchanged_since_ns: int | None = None,
    ) -> None:
        """Set up; nothing is opened.

        Args:
            index_folder: Folder of what is found; it is made when it is needed.
            storage_options: Arguments of the remote file system, for videos that are named by URLs.
            colors: How colors are converted, see `FrameConverter`.
            unchanged_since_ns: When the data set was opened: local videos that were written later are refused,
                whose frames may be in another order than it says.
        """
        self._colors: Colors = colors
        self._unchanged_since_ns = unchanged_since_ns
        self._index_folder = index_folder
        self._storage_options = storage_options
        self._storages: dict[str, Storage] = {}
        self._numbers: dict[tuple[str, bool], int] = {}
        self._indices: LRUCache[str, VideoIndex] = LRUCache(_MOST_INDICES)
        self._stated: LRUCache[str, int] = LRUCache(_MOST_INDICES)
        self._times: LRUCache[str, Float64] = LRUCache(_MOST_INDICES)
        self._pool = FrameReaderPool(self._opened, _MOST_OPEN)
        self._cutters = FrameReaderPool(self._opened, _MOST_OPEN)  # they seek each time, so they are no decoders
        # Videos of which some frames are decoded at once: the numbers of these, and what decodes them.
        self._together: dict[int, tuple[dict[int, Int64], Callable[[int], Array | None]]] = {}

    def _opened(self, video: int) -> FrameReader:
        path, as_codes = [*self._numbers][video]
        return FrameReader(self._located(path), self.index(path), colors=self._colors, as_codes=as_codes)

    def _located(self, path: str) -> Any:
        return located(path, self._storage_options, self._storages)

    def index(self, path: str) -> VideoIndex:
        """What is known of a video.

        Raises:
            SettingError: PyAV is missing.
            FileError: The video cannot be opened.
            VideoError: It is not a video, or incomplete.
        """
        if path not in self._indices:
            index = cached_video_index(self._index_folder, self._located(path))
            self._require_unchanged(path)
            self._indices[path] = index
            index.warn_of_choices(repr(path), _ADVICE)
        return self._indices[path]

    def _require_unchanged(self, path: str) -> None:
        if self._unchanged_since_ns is None or self._located(path) is not path:
            return
        status = os.stat(path)
        # Of the two times, copies may keep the first of another machine, and other names change the second.
        if min(status.st_mtime_ns, status.st_ctime_ns) > self._unchanged_since_ns:
            raise VideoError(
                f"The video {path!r} was written again after its data set was opened, so that its frames may be "
                f"others. Make the provider anew, and keep files unchanged while they are in use."
            )

    def times_s(self, path: str) -> Float64:
        """Get the times at which frames are shown; for errors see `index`."""
        if path not in self._times:
            index = self.index(path)
            self._times[path] = np.asarray(index.pts * float(index.time_base), np.float64)
        return self._times[path]

    def expect(self, path: str, num_times: int) -> None:
        """Refuse frames of a video from now on if the data set has another number of times for it."""
        self._stated[path] = num_times

    def frame(self, path: str, number: int) -> UInt8:
        """Get a frame, ``(H, W, 3)`` uint8, RGB.

        Raises:
            VideoError: The video has no such frame, or it cannot be decoded.
            FileError: The video cannot be opened.
        """
        return np.asarray(self.frames(path, [number])[0])

    def frames(self, path: str, numbers: npt.ArrayLike, *, as_codes: bool = False) -> Array:
        """Get frames of one video, ``(n, H, W, 3)``, in any order, in one pass; see `frame`.

        ``as_codes`` gives the values of gray videos as they are coded, ``(n, H, W, 1)`` uint16.
        """
        return self._read(*self._place(path, numbers, as_codes=as_codes))

    def encoded_frames(self, path: str, numbers: Sequence[int], kinds: Sequence[str]) -> tuple[UInt8, Int32]:
        """Get a small video file that holds frames, ``(num_bytes,)`` uint8, and their numbers in it, ``(n,)``.

        Raises:
            VideoError: As `frame`, or they cannot be cut out, or the video is of none of the kinds, see `kind`.
            FileError: The video cannot be opened.
        """
        place = self._place(path, [*numbers])
        if kinds and self.kind(path) not in kinds:
            raise VideoError(
                f"Frame {numbers[0]} of the video {path!r} is {self.kind(path)}, and the videos that were looked "
                f"at are {' or '.join(kinds)}. With images='decoded', videos of a data set can be of any kind."
            )
        clip = self._cutters.cut(*place)
        # Of remote videos, another decoder would request the same bytes again.
        decoded = None if is_remote_video(self._located(path)) else partial(self._read, *place)
        return FileOfClip.of(clip, self._colors, decoded), clip.numbers

    def kind(self, path: str) -> str:
        """What decides where a video can be decoded, see `VideoIndex.kind`; for errors see `index`."""
        return self.index(path).kind_by(self._colors)

    def kinds(self, of_cameras: Iterable[Iterable[str]]) -> tuple[str, ...]:
        """Get the kinds of videos, of the first of each camera that can be read: of few, since each is read.

        Paths of a camera are different ones.
        """
        kinds: set[str] = set()
        for paths in of_cameras:
            for path in islice(paths, _MOST_TRIED):
                with suppress(FileError, VideoError):  # raised again for the samples that need it
                    kinds.add(self.kind(path))
                    break
        return tuple(sorted(kinds))

    def _place(self, path: str, numbers: npt.ArrayLike, *, as_codes: bool = False) -> tuple[int, Int64]:
        """Get the number of a video, and those of frames in it."""
        wanted = np.asarray(numbers, np.int64)
        num_frames = self.index(path).num_frames
        stated = self._stated.get(path, num_frames)
        if stated != num_frames:
            raise VideoError(
                f"The data set has {stated} time stamps of the video {path!r}, which has {num_frames} frames, so "
                f"that it is not known when each was taken. Copy both again, or leave the scene (`scenes`) out."
            )
        wrong = wanted[(wanted < 0) | (wanted >= num_frames)]
        if len(wrong):
            raise VideoError(
                f"The data set asks for frame {wrong[0]} of the video {path!r}, whose frames are "
                f"0 to {num_frames - 1}: the video was cut short, or is not the one that the data set was made "
                f"with."
            )
        return self._numbers.setdefault((path, as_codes), len(self._numbers)), wanted

    @contextmanager
    def shared(self, keys: Iterable[FrameKey]) -> Iterator[None]:
        """Decode what is requested several times, or not in order, once and in order. Keys are in order of use."""
        wanted: dict[int, list[int]] = {}
        for path, number in keys:
            with suppress(OSError, ValueError):  # raised again for the sample that needs the frame
                video, numbers = self._place(path, [number])
                wanted.setdefault(video, []).extend(numbers.tolist())
        several = {video: np.unique(of) for video, of in wanted.items() if (np.diff(of) <= 0).any()}

        @cache
        def decoded(video: int) -> Array | None:
            with suppress(OSError, ValueError):  # raised again for the sample that needs the frame
                return self._pool.read(video, several[video])
            return None

        self._together[id(several)] = several, decoded  # other parts of a batch may have theirs
        try:
            yield
        finally:
            del self._together[id(several)]

    def _read(self, video: int, numbers: Int64) -> Array:
        for wanted, decoded in self._together.values():
            if video in wanted and np.isin(numbers, wanted[video]).all() and (found := decoded(video)) is not None:
                return np.asarray(found[wanted[video].searchsorted(numbers)])
        return self._pool.read(video, numbers)

    @property
    def statistics(self) -> DecodingStatistics:
        """What this process has decoded."""
        return self._pool.statistics

    def close(self) -> None:
        """Close the decoders; they are opened again when they are needed."""
        self._pool.close()
        self._cutters.close()
