# SPDX-License-Identifier: Apache-2.0
"""Frame-exact random access to indexed videos: readers of one video, a pool of them, and all of a data set."""

from __future__ import annotations

import contextlib
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
from cachetools import LRUCache
from nvidia.dali import types

from ..checks import bullets, shown
from ..errors import FileError, FrameworkError, SettingError, VideoError, error_that_is_also
from ..forks import keep_forever, left_to_parent
from ..providers.files.remote_reading import ChangedFileError
from ..providers.files.storage import Storage
from ..providers.frame_counts import count_frames
from ..url_secrets import without_secrets
from .encoded_clips import EncodedClip, cut_clip
from .files.stored_videos import FileState, StoredVideo, is_remote_video, located
from .frame_converter import Colors, FrameConverter, PixelArray
from .frame_memory import FrameMemory
from .video_decoding import NOT_THERE, VideoSource, VideoStreamDecoder, import_av, source_name
from .video_index import VideoIndex, advice_for, cached_video_index, make_index, quarter_turns
from .videos import Videos

if TYPE_CHECKING:
    import av


class FrameReader:
    """Frames of one video by their numbers, from one open decoder.

    Frames that lie ahead of the decoder are decoded on the way, unless a key frame lies in between: then the
    decoder goes to the last key frame at or before the wanted one. Either way the frame is found by its exact
    time, so it is the frame that decoding from the start gives.

    Attributes:
        num_delivered: Number of frames that were requested, repeated ones once.
        num_seeks: Number of seeks of the decoder.
        next_frame: Number of the frame that is decoded next.
    """

    def __init__(
        self,
        source: VideoSource,
        index: VideoIndex,
        *,
        stream: int | None = None,
        num_threads: int = 1,
        image_type: types.DALIImageType = types.DALIImageType.RGB,
        colors: Colors = "stream",
        as_codes: bool = False,
        num_kept: int = 0,
        name: str | None = None,
        upright: bool = False,
    ) -> None:
        """Open the video; for errors see `VideoStreamDecoder`.

        Args:
            source: Path, URL, bytes, or an open binary file.
            index: Index of the video.
            stream: Number of the video stream, as for the index.
            num_threads: Number of threads that decode.
            image_type: ``RGB``, ``BGR`` or ``GRAY``.
            colors: How colors are converted, see `FrameConverter`.
            as_codes: In place of colors, the values of gray videos, such as depth, as they are coded: uint16.
            num_kept: Number of frames that are kept, for clips that overlap or are repeated: the last ones that
                were decoded, also those decoded on the way to another; 0 counts as 1. With more than 1, the
                delivered ones among them are kept as converted pixels, which saves a second conversion.
            name: What messages call the video; None for its path.
            upright: Whether frames are turned as players do.
        """
        source = located(source)
        if isinstance(source, StoredVideo):
            source = source.as_indexed(index.file_state, index.known_file)
        self._source, self._index, self._name = source, index, name
        self._require_unchanged()
        size = index.width, index.height
        try:
            self._decoder = VideoStreamDecoder(
                source, stream=stream, num_threads=num_threads, name=name, size=size
            )
        except VideoError:
            self._require_unchanged(has_failed=True)
            raise
        # That of MPEG-4 leaves out frames that are not coded, too.
        self._drops_damaged = self._decoder.codec_name == "h264"
        self._converter = FrameConverter(image_type, colors, as_codes=as_codes)
        if upright:
            self._converter.quarter_turns = quarter_turns(index)
            self._converter.is_mirrored = index.is_mirrored
        self._hw = size if self._converter.quarter_turns % 2 else size[::-1]
        self._keeps_pixels = num_kept > 1
        self._kept: LRUCache[int, PixelArray | av.VideoFrame] = LRUCache(max(num_kept, 1))
        # A seek flushes the frames in the decoder, so it pays only for more frames than these.
        self._worth_a_seek = index.num_reordered + num_threads - 1
        self.num_delivered = self.num_seeks = self.next_frame = 0
        self._until = 0  # the last frame that is wanted now
        self._valid_from = 0  # the first frame that can be decoded from the last key frame
        self._damaged: int | None = None  # a frame since the last key frame

    def _require_unchanged(self, *, has_failed: bool = False) -> None:
        """Look whether the file was changed; of a stored one, which is a request, only after a failure."""
        state, name = self._index.file_state, self._name or source_name(self._source)
        if state is not None and isinstance(self._source, (str, os.PathLike)):
            state.require_same(FileState.of_video(self._source, name), name)
        elif state is not None and has_failed and isinstance(self._source, StoredVideo):
            state.require_same(self._source.state(), name)

    @property
    def num_decoded(self) -> int:
        """Number of frames that were decoded."""
        return self._decoder.num_decoded

    def continues_to(self, frame: int) -> bool:
        """Whether a frame is cached, or reached by decoding on, without a seek to a key frame in between."""
        if frame in self._kept:
            return True
        ahead = frame - self.next_frame
        if ahead < 0:
            return False
        key = self._index.key_before(frame)
        return ahead <= self._worth_a_seek or key is None or key <= int(self._index.pts[self.next_frame])

    def frames(self, numbers: npt.ArrayLike, memory: FrameMemory | None = None) -> PixelArray:
        """Get frames: ``(n, height, width, C)`` uint8; codes ``(n, height, width, 1)`` uint16.

        Args:
            numbers: Numbers of the frames, ``(n,)``, in [0, number of frames), in any order, repeated or not.
            memory: Where the array lies; None for fresh memory.

        Raises:
            SettingError: There is no such frame, or none is requested.
            FileError: The file cannot be read.
            VideoError: A frame cannot be decoded or converted, or the file was changed.
        """
        wanted = self._checked(numbers)
        distinct, places = np.unique(wanted, return_inverse=True)
        self._until = int(distinct[-1])
        self.num_delivered += len(distinct)
        if len(wanted) == 1 and not self._keeps_pixels:
            return np.ascontiguousarray(self._get(int(wanted[0])))[None]  # a copy only if there is padding
        shape, dtype = (len(wanted), *self._hw, self._converter.num_channels), self._converter.dtype
        out = memory.array(shape) if memory and dtype == np.uint8 else np.empty(shape, dtype)
        for place, number in enumerate(distinct.tolist()):
            pixels = self._get(number)
            for target in np.flatnonzero(places == place):
                out[target] = pixels
        return out

    def _checked(self, numbers: npt.ArrayLike) -> npt.NDArray[np.int64]:
        given = np.asarray(numbers)
        if given.dtype.kind not in "iu" or not given.size:
            rule = "must be whole numbers, at least one"
            raise SettingError(f"Numbers of frames of {self._decoder.name} {rule}, got {shown(numbers)}.")
        wanted = given.astype(np.int64).reshape(-1)
        is_wrong = (wanted < 0) | (wanted >= self._index.num_frames)
        if is_wrong.any():
            last, wrong = self._index.num_frames - 1, int(wanted[is_wrong][0])
            raise SettingError(f"Frames of {self._decoder.name} are numbered 0 to {last}, got {wrong}.")
        return wanted

    def cut(self, numbers: npt.ArrayLike) -> EncodedClip:
        """Cut frames out as a file, without decoding; for arguments and errors, see `frames`."""
        wanted = self._checked(numbers)
        first, last = int(wanted.min()), int(wanted.max())
        self._until = last
        with self._naming(last, "cut out"):
            self._go_to(first)
            self.next_frame = self._index.num_frames  # the decoder has to seek again
            return cut_clip(self._decoder, self._index.key_before(first), self._index.pts[wanted])

    @contextlib.contextmanager
    def _naming(self, number: int, action: str) -> Iterator[None]:
        """Name the frame in errors."""
        what = f"Frame {number} of the video {self._decoder.name}, at {self._index.times_s[number]:.3f} s,"
        try:
            yield
        except FileError as error:
            raise error_that_is_also(FileError, [error], f"{what} cannot be read: {error}") from error
        except VideoError as error:
            self.next_frame = self._index.num_frames  # the decoder has to seek again
            if not isinstance(error.__cause__, ChangedFileError):
                self._require_unchanged(has_failed=True)
            raise VideoError(f"{what} cannot be {action}: {error}") from error

    def _get(self, number: int) -> PixelArray:
        frame = self._kept.get(number)
        if isinstance(frame, np.ndarray):
            return frame
        if frame is None:
            with self._naming(number, "decoded"):
                if not self.continues_to(number):
                    self._go_to(number)
                frame = self._decode_up_to(number)
        with self._naming(number, "converted"):
            pixels = self._converter.convert(frame)
        self._kept[number] = pixels if self._keeps_pixels else frame
        return pixels

    # --- decoding up to a frame -------------------------------------------------------------------------

    def _go_to(self, number: int) -> None:
        """Seek to the last key frame at or before a frame."""
        index = self._index
        self.num_seeks += 1
        self._damaged = None
        self._require_unchanged()
        key = int(index.key_pts.searchsorted(index.pts[number], side="right")) - 1
        self._decoder.seek(int(index.seek_points[key]))
        self._decoder.fetch(int(index.key_pts[key]), int(index.pts[self._until]), self._worth_a_seek)
        # Frames after a key frame in decoding order but before it in display order refer to frames before it.
        self.next_frame = self._valid_from = int(index.pts.searchsorted(index.key_pts[key]))

    def _decode_up_to(self, number: int) -> av.VideoFrame:
        index = self._index
        for frame in self._decoder:
            place = index.num_frames if frame.pts is None else int(index.pts.searchsorted(frame.pts))
            if place == index.num_frames or index.pts[place] != frame.pts:
                continue
            expected, self.next_frame = self.next_frame, place + 1
            if place > number:
                break
            if place < self._valid_from:
                continue
            # Frames up to the next key frame can refer to a damaged one.
            if frame.is_corrupt:
                self._damaged = place
            elif frame.key_frame:
                self._damaged = None
            elif self._drops_damaged and self._valid_from <= expected < place and self._damaged is None:
                self._damaged = expected
            if self._damaged is None:
                self._kept[place] = frame
            if place == number:
                if self._damaged is not None:
                    other = f"frame {self._damaged}, which it can refer to, is damaged."
                    raise VideoError("it is damaged." if self._damaged == number else other)
                return frame
        raise VideoError(NOT_THERE)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._kept.clear()
        self._decoder.close()


class DecodingStatistics(NamedTuple):
    """Numbers of frames and seeks of the decoders of one process.

    Attributes:
        num_delivered: Frames that were requested; repeated ones in one request (a sample, or windows of a batch)
            count once.
        num_decoded: Frames that were decoded to deliver these, with frames decoded on the way.
        num_seeks: Number of seeks of all decoders.
        num_opened: How often a video was opened.
    """

    num_delivered: int = 0
    num_decoded: int = 0
    num_seeks: int = 0
    num_opened: int = 0


@attrs.define(eq=False)
class _Entry:
    video: int
    reader: FrameReader
    has_continued: bool = False
    counted: DecodingStatistics = attrs.field(factory=DecodingStatistics)


class FrameReaderPool:
    """Frames of several videos, with at most so many open decoders.

    There can be several decoders of one video. A request for frames gets the decoder that is closest before
    them and can continue to them, so several readers of one video (slots of a batch, or cameras) each have
    theirs. Otherwise a new one is opened; at the limit, the least recently used decoder is closed for it (LRU).

    Threads may ask at the same time: each gets another decoder. After a fork the child process begins with none.

    Attributes:
        num_open: Number of open decoders.
        statistics: What was decoded in this process until now.
    """

    def __init__(self, open_reader: Callable[[int], FrameReader], max_open: int) -> None:
        """Create a pool without decoders; it opens videos by their numbers, and keeps at most so many open.

        While threads read, one per thread may be open in any case.
        """
        self._open_reader = open_reader
        self._max_open = max_open
        self._idle: list[_Entry] = []  # least recently used first
        self._start()
        weakref.finalize(self, _close_all, self._idle)
        left_to_parent(self, FrameReaderPool._leave)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what makes the same pool, without decoders."""
        return FrameReaderPool, (self._open_reader, self._max_open)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self.num_open = 0
        self.statistics = DecodingStatistics()
        self._memory = FrameMemory()

    def _leave(self) -> None:
        # In a child of a fork: the threads of the decoders are in its parent, so that to close one blocks forever.
        for entry in self._idle:
            keep_forever(entry.reader)
        self._idle.clear()
        self._start()

    def read(self, video: int, numbers: npt.NDArray[np.int64]) -> PixelArray:
        """Get frames of a video, see `FrameReader.frames`."""
        with self._lent(video, int(numbers.min())) as reader:
            return reader.frames(numbers, self._memory)

    def cut(self, video: int, numbers: npt.NDArray[np.int64]) -> EncodedClip:
        """Cut frames out of a video, see `FrameReader.cut`."""
        with self._lent(video, None) as reader:
            return reader.cut(numbers)

    @contextlib.contextmanager
    def _lent(self, video: int, first: int | None) -> Iterator[FrameReader]:
        """Lend a reader of a video; one that continues to the first frame, if there is one."""
        with self._lock:
            entry = self._taken(video, first)
            self.num_open += entry is None
        try:
            if entry is None or entry.video != video:
                if entry is not None:
                    entry.reader.close()
                entry = _Entry(video, self._open_reader(video))
            yield entry.reader
        except BaseException:
            with self._lock:
                self.num_open -= 1
                self._count(entry)
            if entry is not None:
                entry.reader.close()
            raise
        with self._lock:
            self._count(entry)
            self._idle.append(entry)

    def _count(self, entry: _Entry | None) -> None:
        if entry is not None:
            reader, before = entry.reader, entry.counted
            entry.counted = DecodingStatistics(reader.num_delivered, reader.num_decoded, reader.num_seeks, 1)
            added = [*map(operator.sub, entry.counted, before)]
            self.statistics = DecodingStatistics(*map(operator.add, self.statistics, added))
            count_frames(*added[:2])

    def _taken(self, video: int, first: int | None) -> _Entry | None:
        """Take a decoder to go on with, or to be closed for a new one; None where there is room for that."""
        of_video = [entry for entry in self._idle if entry.video == video]
        able = [entry for entry in of_video if first is None or entry.reader.continues_to(first)]
        if able:
            entry = max(able, key=lambda entry: min(entry.reader.next_frame, first or 0))
            entry.has_continued = True
        elif not self._idle or self.num_open < self._max_open:
            return None
        else:
            # One of the same video needs no opening, unless it has continued: then some slot will go on with it.
            entry = next((entry for entry in of_video if not entry.has_continued), self._idle[0])
            entry.has_continued = False
        self._idle.remove(entry)
        return entry

    def close(self) -> None:
        """Close the decoders; others are opened when they are needed."""
        with self._lock:
            self.num_open -= len(self._idle)
            _close_all(self._idle)


def _close_all(entries: list[_Entry]) -> None:
    while entries:
        entries.pop().reader.close()


_MOST_INDEXING_THREADS = 8  # indexing is bound by I/O
_MOST_NAMED = 10


class IndexedVideos:
    """Videos by number: their indices, and frames of them.

    The indices are made here, once; workers get them. Decoders are opened in the process that reads frames.

    Attributes:
        numbers: ``(N,)`` int64, the number of each path as given.
        paths: Path or URL of each video.
        indices: Index of each video.
        pool: Its decoders.
        cutters: Open videos that clips are cut out of; these seek each time, so they are no decoders of the pool.
    """

    def __init__(self, paths: Sequence[str], settings: Videos, num_kept: int) -> None:
        """Make the indices. Videos that cannot be used are all listed in one `VideoError`.

        Args:
            paths: Path or URL of each video; equal ones are one.
            settings: How they are decoded.
            num_kept: How many frames each decoder keeps.
        """
        self._settings: dict[str, Any] = {
            "stream": settings.stream,
            "num_threads": settings.num_decoder_threads,
            "image_type": settings.image_type,
            "colors": settings.colors,
            "upright": bool(settings.upright),
            "num_kept": num_kept,
        }
        self.paths = tuple(dict.fromkeys(paths))
        places = {path: place for place, path in enumerate(self.paths)}
        self.numbers = np.array([places[path] for path in paths], np.int64)
        storages: dict[str, Storage] = {}
        self._sources = [located(path, settings.storage_options, storages) for path in self.paths]
        import_av(self.paths[0])
        self.indices = _indices_of(self._sources, settings.stream, settings.index_cache)
        advice = advice_for(settings.upright)  # each once: all videos of a camera may be alike
        for video, index in enumerate(self.indices):
            index.warn_of_choices(repr(self.name(video)), advice)
            if index.rotation_deg or index.is_mirrored:
                advice.pop("rotation", None)
            if index.num_candidates > 1:
                advice.pop("streams", None)
        self.pool = FrameReaderPool(self._open, settings.max_open_decoders)
        self.cutters = FrameReaderPool(self._open, settings.max_open_decoders)

    def name(self, video: int) -> str:
        """Path of a video, or its URL, for messages."""
        return without_secrets(self.paths[video])

    def is_remote(self, video: int) -> bool:
        """Whether a video is in remote storage."""
        return is_remote_video(self._sources[video])

    def _open(self, video: int) -> FrameReader:
        return FrameReader(self._sources[video], self.indices[video], **self._settings)


def _indices_of(sources: Sequence[Any], stream: int | None, cache: str | None) -> tuple[VideoIndex, ...]:
    def index(source: Any) -> VideoIndex | FrameworkError:
        try:
            return make_index(source, stream) if cache is None else cached_video_index(cache, source, stream)
        except FrameworkError as error:
            return error

    with ThreadPoolExecutor(min(_MOST_INDEXING_THREADS, len(sources))) as threads:
        results = list(threads.map(index, sources))
    errors = [result for result in results if isinstance(result, FrameworkError)]
    if len(errors) == 1 or any(isinstance(error, SettingError) for error in errors):
        raise next((error for error in errors if isinstance(error, SettingError)), errors[0])
    if errors:
        counts = f"{len(errors)} of {len(sources)}"
        text = f"{counts} videos cannot be used:\n{bullets(errors, _MOST_NAMED)}"
        raise error_that_is_also(VideoError, errors, text) from errors[0]
    return tuple(result for result in results if isinstance(result, VideoIndex))
