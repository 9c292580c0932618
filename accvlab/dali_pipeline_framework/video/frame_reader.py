# SPDX-License-Identifier: Apache-2.0
"""Frame-exact random access to an indexed video."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
from cachetools import LRUCache
from nvidia.dali import types

from ..errors import FileError, SettingError, VideoError, error_that_is_also
from .files.video_file import RemoteVideo, located
from .video_decoding import FrameConverter, UInt8Array, VideoDecoder, VideoSource, source_name
from .video_index import VideoIndex

if TYPE_CHECKING:
    import av

_MOST_SEEKS = 3  # for one frame


@attrs.frozen
class KeptFrames:
    """Which decoded frames a reader caches.

    Attributes:
        number: How many: the last ones.
        passed: Whether frames count that were decoded only to get to others.
        pixels: Whether the pixels of delivered frames are kept. Otherwise they are converted again: slower, and
            half the memory.
    """

    number: int = 0
    passed: bool = True
    pixels: bool = True


class FrameReader:
    """Frames of one video by their numbers, from one open decoder.

    Frames that lie ahead of the decoder are decoded on the way, unless a key frame lies in between: then the
    decoder goes to the last key frame at or before the wanted one. Either way the frame is found by its exact
    time, so it is the same one that decoding from the start gives.

    Attributes:
        num_delivered: Number of frames that were asked for, repeated ones once.
        num_seeks: Number of times that the decoder went elsewhere.
    """

    def __init__(
        self,
        source: VideoSource,
        index: VideoIndex,
        *,
        stream: int = 0,
        num_threads: int = 1,
        image_type: types.DALIImageType = types.DALIImageType.RGB,
        kept: KeptFrames = KeptFrames(),
        name: str | None = None,
    ) -> None:
        """Open the video; for errors see `VideoDecoder`.

        Args:
            source: Path, URL, bytes, or an open binary file.
            index: Its index.
            stream: Number of the video stream, that of the index.
            num_threads: Number of threads that decode.
            image_type: ``RGB``, ``BGR`` or ``GRAY``.
            kept: Which frames are kept: for clips that overlap or are repeated.
            name: What messages call the video; None for its path.
        """
        source = located(source)
        if isinstance(source, RemoteVideo):
            source = source.as_indexed(index.file_state)
        self._source, self._stream, self._num_threads, self._name = source, stream, num_threads, name
        self._index = index
        self._converter = FrameConverter(image_type)
        self._keeps = kept
        self._kept: LRUCache[int, UInt8Array | av.VideoFrame] = LRUCache(kept.number)
        # A seek flushes the frames in the decoder, so it pays only for more frames than these.
        self._worth_a_seek = index.num_reordered + num_threads - 1
        self._num_decoded_before = 0
        self.num_delivered = 0
        self.num_seeks = 0
        self._decoder = self._open()
        self._next_frame = 0
        self._damaged: int | None = None  # a frame since the last key frame

    def _open(self) -> VideoDecoder:
        self._require_unchanged()
        return VideoDecoder(
            self._source,
            stream=self._stream,
            num_threads=self._num_threads,
            name=self._name,
            size=(self._index.width, self._index.height),
        )

    def _require_unchanged(self) -> None:
        if self._index.file_state is not None and isinstance(self._source, (str, os.PathLike)):
            self._index.file_state.require(self._source, self._name or source_name(self._source))

    @property
    def next_frame(self) -> int:
        """Number of the frame that is decoded next."""
        return self._next_frame

    @property
    def num_decoded(self) -> int:
        """Number of frames that were decoded."""
        return self._num_decoded_before + self._decoder.num_decoded

    def continues_to(self, frame: int) -> bool:
        """Whether a frame is cached, or reached by decoding on, without a seek to a key frame in between."""
        if frame in self._kept:
            return True
        ahead = frame - self._next_frame
        if ahead < 0:
            return False
        key = self._index.key_before(frame)
        return ahead <= self._worth_a_seek or key is None or key <= int(self._index.pts[self._next_frame])

    def frames(self, numbers: npt.ArrayLike) -> UInt8Array:
        """Get frames: ``(n, height, width, C)`` uint8.

        Args:
            numbers: Numbers of the frames, ``(n,)``, in [0, number of frames), in any order, repeated or not.

        Raises:
            SettingError: There is no such frame.
            FileError: The file cannot be read. Also the builtin exception of the cause.
            VideoError: A frame cannot be decoded, or the file was changed.
        """
        wanted = np.asarray(numbers, np.int64).reshape(-1)
        is_wrong = (wanted < 0) | (wanted >= self._index.num_frames)
        if is_wrong.any():
            raise SettingError(
                f"Frames of {self._decoder.name} are numbered 0 to {self._index.num_frames - 1}, got "
                f"{int(wanted[is_wrong][0])}."
            )
        shape = (self._index.height, self._index.width, self._converter.num_channels)
        out = np.empty((len(wanted), *shape), np.uint8)
        distinct, places = np.unique(wanted, return_index=True)
        for frame, place in zip(distinct.tolist(), places.tolist(), strict=True):
            self._get(frame, out[place])
        self.num_delivered += len(distinct)
        if len(distinct) < len(wanted):
            source_places = places[distinct.searchsorted(wanted)]
            for place in np.flatnonzero(source_places != np.arange(len(wanted))):
                out[place] = out[source_places[place]]
        return out

    def _get(self, number: int, out: UInt8Array) -> None:
        frame = self._kept.get(number)
        if isinstance(frame, np.ndarray):
            np.copyto(out, frame)
            return
        if frame is None:
            try:
                frame = self._decode(number)
            except FileError as error:
                message = f"{self._frame_text(number)} cannot be read: {error}"
                raise error_that_is_also(FileError, [type(error)], message) from error
        self._converter.convert(frame, out)
        self._keep(number, out.copy() if self._keeps.pixels and self._keeps.number else frame)

    def _keep(self, number: int, frame: UInt8Array | av.VideoFrame) -> None:
        if self._keeps.number:
            self._kept[number] = frame

    # --- decoding up to a frame -------------------------------------------------------------------------

    def _decode(self, number: int) -> av.VideoFrame:
        if self.continues_to(number):
            frame, _ = self._try_to_decode(number, 0)
            if frame is not None:
                return frame
        error: VideoError | None = None
        for start in self._starts_before(number):
            frame, error = self._try_to_decode(number, self._go_to(start))
            if frame is not None:
                return frame
        why = "the file is damaged, or was changed after it was indexed." if error is None else str(error)
        raise VideoError(f"{self._frame_text(number)} cannot be decoded: {why}") from error

    def _try_to_decode(self, number: int, valid_from: int) -> tuple[av.VideoFrame | None, VideoError | None]:
        try:
            return self._decode_up_to(number, valid_from), None
        except VideoError as error:
            # Frames may refer to some before the seek point: a start further back can decode them.
            self._next_frame = self._index.num_frames
            return None, error

    def _starts_before(self, number: int) -> list[int | None]:
        """Where to start decoding, best first: numbers of key frames; None for the start of the file."""
        if not self._index.is_seekable:
            return [None]
        last = int(self._index.key_pts.searchsorted(self._index.pts[number], side="right"))
        # In some containers a seek lands behind its target; then an earlier key frame is tried.
        starts: list[int | None] = [*range(last - 1, max(last - 1 - _MOST_SEEKS, -1), -1)]
        return starts if len(starts) == _MOST_SEEKS else [*starts, None]

    def _go_to(self, start: int | None) -> int:
        """Seek to a key frame, or reopen the file; return the first frame that can be decoded from there."""
        self.num_seeks += 1
        self._damaged = None
        if start is not None:
            self._require_unchanged()
            self._decoder.seek(int(self._index.seek_points[start]))
            # Frames after a key frame in decoding order but before it in display order refer to frames before it.
            self._next_frame = int(self._index.pts.searchsorted(self._index.key_pts[start]))
            return self._next_frame
        self._decoder.close()
        self._num_decoded_before += self._decoder.num_decoded
        self._decoder = self._open()
        self._next_frame = 0
        return 0

    def _decode_up_to(self, number: int, valid_from: int) -> av.VideoFrame | None:
        """Decode up to a frame; None if the decoder was already behind it."""
        while True:
            frame = self._decoder.next_frame()
            if frame is None:
                self._next_frame = self._index.num_frames
                return None
            place = self._number_of(frame)
            if place is None:
                continue
            self._next_frame = place + 1
            if place > number:
                return None
            if place >= valid_from:
                self._check_damage(place, number, frame)
            if place >= valid_from and self._damaged is None and self._keeps.passed:
                self._keep(place, frame)
            if place == number:
                return frame

    def _check_damage(self, place: int, number: int, frame: av.VideoFrame) -> None:
        """Refuse a damaged frame, and those up to the next key frame, which can refer to it."""
        if frame.key_frame:
            self._damaged = None
        if frame.is_corrupt:
            self._damaged = place
        if self._damaged == number:
            raise VideoError("it is damaged.")
        if self._damaged is not None and place == number:
            raise VideoError(f"frame {self._damaged}, which it can refer to, is damaged.")

    def _number_of(self, frame: av.VideoFrame) -> int | None:
        if not self._index.is_seekable:
            return self._next_frame if self._next_frame < self._index.num_frames else None
        if frame.pts is None:
            return None
        place = int(self._index.pts.searchsorted(frame.pts))
        is_known = place < self._index.num_frames and int(self._index.pts[place]) == frame.pts
        return place if is_known else None

    def _frame_text(self, number: int) -> str:
        of_time = f", at {self._index.times_s[number]:.3f} s," if self._index.is_seekable else ""
        return f"Frame {number} of the video {self._decoder.name}{of_time}"

    def close(self) -> None:
        """Close the file; may be called again."""
        self._kept.clear()
        self._decoder.close()
