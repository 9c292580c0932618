# SPDX-License-Identifier: Apache-2.0
"""Decoding of a video stream on the CPU, with PyAV."""

from __future__ import annotations

import contextlib
import io
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from .. import errors
from ..checks import whole_number
from ..errors import FileError, FrameworkError, SettingError, VideoError
from ..limits.file_limits import IMAGE_PIXELS, opened_file, require_no_pointer
from ..limits.image_limits import too_many_pixels
from ..providers.files.remote_reading import ChangedFileError
from .files import stored_videos

if TYPE_CHECKING:
    import av
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

UInt8Array: TypeAlias = npt.NDArray[np.uint8]
VideoSource: TypeAlias = "str | os.PathLike[str] | bytes | BinaryIO | stored_videos.StoredVideo"

_T = TypeVar("_T")

NOT_THERE = "it is not there; the file is damaged, or was changed after it was indexed."

_OLDEST_PYAV, _NEWEST_PYAV = 17, 18
_MOST_LOOKED_AT = 2048


def import_av(source: VideoSource | None = None) -> ModuleType:
    """Import PyAV, or raise a `SettingError` where it is not installed, or of a version that is not supported.

    With the video to decode, the message names it.
    """
    try:
        import av
    except ImportError as error:
        what = "Videos" if source is None else source_name(source)
        raise errors.MissingPackageError(
            f"{what} can be decoded on the CPU only with PyAV, which cannot be imported ({error}). Install it: "
            f"pip install 'av>=17,<19'. Without PyAV, DALI's own reader "
            f"(`fn.experimental.readers.video`) decodes VP8, VP9 and MJPEG on the CPU, and other codecs on a GPU."
        ) from error
    if not _OLDEST_PYAV <= int(av.__version__.split(".")[0]) <= _NEWEST_PYAV:
        rule = f"PyAV must be {_OLDEST_PYAV} or {_NEWEST_PYAV} (others treat colors or damage differently)"
        raise SettingError(f"{rule}, got {av.__version__}: pip install 'av>=17,<19'.")
    return cast(ModuleType, av)


def _area_of(stream: Any) -> int:
    context = stream.codec_context
    return 0 if context is None else int(context.width * context.height)


def _kind_of(stream: Any) -> str:
    context = stream.codec_context
    return "of an unknown codec" if context is None else f"{context.name} {context.width} x {context.height}"


def display_of(frame: av.VideoFrame) -> tuple[int, bool]:
    """Get what players do with a frame: mirror it left to right, and then turn it clockwise.

    Returns:
        The angle in degrees, in [0, 360), and whether it is mirrored.
    """
    found = next((bytes(data) for data in frame.side_data if data.type.name == "DISPLAYMATRIX"), None)
    if found is None:
        return 0, False
    a, b, _, c, d = struct.unpack("=5i", found[:20])
    is_mirrored = a * d < b * c
    sign = -1 if is_mirrored else 1
    return round(math.degrees(math.atan2(sign * b, sign * a))) % 360, is_mirrored


def source_name(source: VideoSource) -> str:
    """Name of a video in messages: its path or URL, or a substitute."""
    if isinstance(source, stored_videos.StoredVideo):
        return repr(source.name)
    if isinstance(source, (str, os.PathLike)):
        return repr(os.fspath(source))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return f"the video of {len(source)} bytes"
    return f"the video in {source!r}"


class WatchedFile:
    """An open file that FFmpeg reads, and the error that it met.

    FFmpeg takes a file that cannot be read for damaged, for shorter than it is, or goes on looking for its parts.
    So after an error there is nothing more to read, and who called FFmpeg looks at the error.

    Attributes:
        error: The first error; None where there was none.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Watch a file that can seek."""
        self._file = file
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes; none after an error."""
        return self.tried(lambda: self._file.read(size), b"")

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte; returns where that is."""
        return self.tried(lambda: self._file.seek(offset, whence), 0)

    def tell(self) -> int:
        """Where the next byte is read."""
        return self.tried(self._file.tell, 0)

    def tried(self, action: Callable[[], _T], otherwise: _T) -> _T:
        """Do something with the file; another value after an error."""
        if self.error is None:
            try:
                return action()
            except BaseException as error:  # also an interrupt: FFmpeg could not pass it on
                self.error = error
        return otherwise


class VideoStreamDecoder:
    """One video stream of a container, decoded frame after frame in the order of presentation::

        with VideoStreamDecoder("monday.mp4") as decoder:
            converter = FrameConverter()
            for frame in decoder:
                pixels = converter.convert(frame)     # (height, width, 3) uint8

    PyAV releases the GIL while it reads and decodes, so decoders in several threads run at the same time. One
    decoder must not be used by two threads at once, nor after a fork.

    Attributes:
        codec_name: Name of the codec, as FFmpeg calls it: ``"h264"``, ``"hevc"``, ``"vp9"``, ``"mjpeg"``, ...
        stream: The stream, as PyAV has it.
        container_name: FFmpeg's names for the format of the container: ``"matroska,webm"``, ``"avi"``, ...
        pixel_format: FFmpeg's name for the format of the pixels, as the container or a decoded frame states it.
        width: Width of the frames in pixels, as coded: rotations for display are not applied. Until a frame was
            decoded, the value that the container or the caller states.
        height: Height of the frames in pixels.
        time_base: Seconds per unit of a frame's ``pts``.
        num_decoded: Number of frames that were decoded, over all seeks.
        stored_file: The open file in remote storage or in an archive; None for other sources.
        color_matrix: Number of the color matrix that the first frame states (ISO/IEC 23091-2); 2 for none.
        is_interlaced: Whether the first decoded frame is of two fields.
        is_size_known: Whether width and height come from a decoded frame, or were given.
        rotation_deg: By how many degrees players turn the frames clockwise, in [0, 360); 0 before the first frame
            was decoded.
        is_mirrored: Whether players mirror the frames left to right before they turn them.
        other_streams: Which video streams there are and which one was chosen; empty if there is one, or the
            caller has chosen.
        num_candidates: Number of video streams that could have been chosen; 1 if the caller has chosen.
    """

    def __init__(
        self,
        source: VideoSource,
        *,
        stream: int | None = None,
        num_threads: int = 1,
        name: str | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Open a video.

        Args:
            source: Path or URL of a file, its bytes, or an open binary file that can seek. The encoded bytes must
                not change while the decoder is open.
            stream: Number of the video stream, counted from 0 among the video streams of the container. None for
                the one with the largest frames: of several, the one that the container marks as default, else the
                first. Cover pictures do not count.
            num_threads: Number of threads that decode this stream, at least 1. With more than one the codec
                works on several frames at once: more throughput, and as many frames more in memory.
            name: Name of the video in messages; None for its path.
            size: Width and height that all frames must have; None for the size of the first decoded frame.

        Raises:
            SettingError: PyAV is missing, or there is no such video stream.
            FileError: The file cannot be opened or read.
            VideoError: It is not a video, is incomplete, or is of an unknown codec.
        """
        source = stored_videos.located(source)
        self.name = source_name(source) if name is None else name
        self.num_decoded = 0
        self.other_streams, self.num_candidates = "", 1
        num_threads = whole_number(num_threads, "num_threads", at_least=1)
        self._av = import_av(source)
        self.stored_file = source.open() if isinstance(source, stored_videos.StoredVideo) else None
        with contextlib.ExitStack() as closing:
            if self.stored_file is not None:
                closing.callback(self.stored_file.close)
            self._container = self._open(source if self.stored_file is None else self.stored_file)
            closing.callback(self._container.close)
            self.stream = self._choose_stream(stream)
            self._closing = closing.pop_all()
        context = self.stream.codec_context
        self.stream.thread_type = "AUTO" if num_threads > 1 else "SLICE"
        self.stream.thread_count = num_threads
        self.codec_name: str = context.codec.canonical_name
        context.options = {"max_pixels": str(IMAGE_PIXELS.most)}
        if self.codec_name in ("hevc", "mjpeg"):
            # Their decoders would silently deliver frames with errors. (That of H.264 marks such frames, and
            # would fail on frames before a key frame in display order, after a seek to it.)
            context.options = {**context.options, "err_detect": "explode"}
        elif self.codec_name == "h264":
            # If the depth of reordering is not stated, its decoder would guess it, and leave out frames.
            context.options = {**context.options, "strict": "1"}
        self.container_name: str = self._container.format.name
        self.pixel_format: str = context.pix_fmt or ""
        self._colors_of_container = int(context.colorspace), int(context.color_range)
        self.is_size_known = size is not None
        self.width, self.height = size or (context.width, context.height)
        self.color_matrix, self.is_interlaced, self.rotation_deg, self.is_mirrored = 2, False, 0, False
        self.time_base: Fraction = self.stream.time_base or Fraction(1, 1_000_000)
        self._frames: Iterator[av.VideoFrame] = self._decoded(self.packets())

    def _open(self, source: Any) -> InputContainer:
        self._watched: WatchedFile | None = None
        file: Any
        try:
            if isinstance(source, (str, os.PathLike)):
                descriptor, _ = opened_file(source, is_limited=False)
                self._head = os.pread(descriptor, _MOST_LOOKED_AT, 0)
                os.close(descriptor)
                # Without "file:", FFmpeg takes the part of a name before a colon for a protocol.
                file = f"file:{os.fspath(source)}"
            else:
                is_buffer = isinstance(source, (bytes, bytearray, memoryview))
                file = self._watched = WatchedFile(io.BytesIO(source) if is_buffer else source)
                file.seek(0)  # FFmpeg counts from where it begins
                self._head = file.read(_MOST_LOOKED_AT)
                file.seek(0)
                require_no_pointer(self._head)
            self._require_read()
            if not self._head:
                raise VideoError(f"The video {self.name} is empty: it has 0 bytes.")
            # Metadata need not be UTF-8.
            options = {"max_pixels": str(IMAGE_PIXELS.most)}
            container = self._av.open(file, mode="r", options=options, metadata_errors="replace")
            self._require_read()
        except OSError as error:
            self._require_read()
            advice = stored_videos.path_advice(source)
            message = f"Cannot open the video {self.name}: {errors.reason_of(error)}.{advice}"
            raise errors.error_that_is_also(FileError, [error], message) from error
        except self._av.error.FFmpegError as error:
            self._require_read()
            why = f"{error.strerror}. Is it a video, and complete?"
            raise VideoError(f"Cannot open {self.name} as a video: {why}") from error
        return cast("InputContainer", container)

    def _require_read(self) -> None:
        """Raise the error that an open file met while it was read."""
        error = None if self._watched is None else self._watched.error
        if error is None:
            return
        if isinstance(error, FrameworkError) or not isinstance(error, Exception):
            raise error
        if isinstance(error, ChangedFileError):
            raise VideoError(f"The video {self.name} was changed after it was indexed: {error}.") from error
        message = f"Cannot read {self.name} after {self.num_decoded} decoded frames: {errors.reason_of(error)}."
        raise errors.error_that_is_also(FileError, [error], message) from error

    def _choose_stream(self, number: int | None) -> VideoStream:
        videos = [stream for stream in self._container.streams if stream.type == "video"]
        if number is not None and whole_number(number, "stream", at_least=0) >= len(videos) > 0:
            rule = f"the number of a video stream, 0 to {len(videos) - 1} in {self.name}"
            raise SettingError(f"`stream` must be {rule}, got {number}.")
        chosen: Any = self._best_of(videos) if number is None or not videos else videos[number]
        if chosen.codec_context is None:
            raise VideoError(f"PyAV {self._av.__version__} does not know the codec of {self.name}.")
        excess = too_many_pixels(chosen.codec_context.height, chosen.codec_context.width)
        if excess:
            raise VideoError(f"The video {self.name} is not decoded: it claims frames of {excess}.")
        return cast("VideoStream", chosen)

    def _best_of(self, videos: Sequence[Any]) -> Any:
        kinds = self._av.stream.Disposition
        pictures, default = kinds.attached_pic | kinds.timed_thumbnails, kinds.default
        candidates = [stream for stream in videos if not stream.disposition & pictures]
        listed = ", ".join(
            f"{number}: {_kind_of(stream)}{'' if stream in candidates else ', a cover picture'}"
            for number, stream in enumerate(videos)
        )
        if not candidates:
            others = listed or ", ".join(stream.type or "unknown" for stream in self._container.streams) or "none"
            raise VideoError(f"There is no video stream in {self.name}; its streams are: {others}.")
        best = max(candidates, key=lambda stream: (_area_of(stream), bool(stream.disposition & default)))
        if len(videos) > 1:
            self.other_streams = f"{listed}; {videos.index(best)} is read"
            self.num_candidates = len(candidates)
        return best

    @property
    def stated_num_packets(self) -> int:
        """Number of packets that the tables of an MP4 or MOV file have; 0 for other containers."""
        entries = self.stream.index_entries if "mp4" in self.container_name else ()
        return sum(entry.size > 0 for entry in entries)  # an edit list can leave some out

    @property
    def is_cut_short(self) -> bool:
        """Whether a Matroska or AVI file is shorter than its header states; False for other containers."""
        if self.container_name == "avi":
            return self._container.size < 8 + int.from_bytes(self._head[4:8], "little")
        if "matroska" not in self.container_name:
            return False
        end = is_unknown = 0
        # The header and the segment: an identifier of 4 bytes, and the size with its length in bits.
        for _ in range(2):
            end += 4
            num_bytes = 9 - self._head[end].bit_length()
            most = (1 << 7 * num_bytes) - 1
            size = int.from_bytes(self._head[end : end + num_bytes], "big") & most
            end, is_unknown = end + num_bytes + size, size == most  # as in live recordings
        return not is_unknown and self._container.size < end

    @property
    def stated_duration_s(self) -> float | None:
        """Duration of the stream in seconds as Matroska states it, or None."""
        try:
            hours, minutes, seconds = self.stream.metadata.get("DURATION", "").split(":")  # "00:00:08.840000000"
            return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        except ValueError:
            return None

    # --- reading ----------------------------------------------------------------------------------------

    def packets(self) -> Iterator[Packet[VideoStream]]:
        """Get the packets of the stream from its position on, in the order of decoding, without decoding them.

        The last packet is empty: decoding it gives the frames that the codec still holds.

        Raises:
            FileError: The file cannot be read.
            VideoError: It is damaged here.
        """
        demuxed = self._container.demux(self.stream)
        has_ended = False
        while True:
            try:
                packet = next(demuxed, None)
                self._require_read()
            except self._av.error.FFmpegError as error:
                raise self._failure("Cannot read", error) from error
            except IndexError as error:  # of PyAV, where the file has more streams in the end than at its start
                if has_ended:
                    return
                raise self._failure("Cannot read", error) from error
            if packet is None:
                return
            has_ended = not packet.size and packet.dts is None
            yield packet

    def next_frame(self) -> av.VideoFrame | None:
        """Decode the next frame in the order of presentation; None after the last one.

        Raises:
            FileError: The file cannot be read.
            VideoError: The stream is damaged here, or the frame has another size than those before.
        """
        frame = next(self._frames, None)
        if frame is None:
            return None
        self._take_size(frame)
        if (frame.width, frame.height) != (self.width, self.height):
            at = "" if frame.pts is None else f", at {float(frame.pts * self.time_base):.3f} s"
            raise VideoError(
                f"All frames of a video must have one size, but {self.name} changes from {self.width} x "
                f"{self.height} to {frame.width} x {frame.height} pixels after {self.num_decoded} decoded "
                f"frames{at}."
            )
        self.num_decoded += 1
        return frame

    def _decoded(self, packets: Iterator[Packet[VideoStream]]) -> Iterator[av.VideoFrame]:
        for packet in packets:
            try:
                yield from packet.decode()
            except self._av.error.FFmpegError as error:
                self._frames = self._decoded(packets)  # the next call goes on after this packet
                raise self._failure("Cannot decode", error) from error

    def _take_size(self, frame: av.VideoFrame) -> None:
        matrix, color_range = self._colors_of_container  # FFmpeg's decoders of VP9 and AV1 forget them
        if int(frame.colorspace) == 2 and matrix not in (0, 2):
            frame.colorspace = matrix
        if not int(frame.color_range) and color_range:
            frame.color_range = color_range
        if not self.is_size_known:  # the container can state another one than the frames have
            self.rotation_deg, self.is_mirrored = display_of(frame)
            self.pixel_format, self.color_matrix = frame.format.name, int(frame.colorspace)
            self.is_interlaced = bool(frame.interlaced_frame)
            self.width, self.height, self.is_size_known = frame.width, frame.height, True

    def take_size_of(self, packet: Packet[VideoStream]) -> None:
        """Take the size of the frames from a packet, which is decoded, if the size is not known yet."""
        if not self.is_size_known:
            with contextlib.suppress(self._av.error.FFmpegError):  # reported when the frame is read
                for frame in packet.decode()[:1]:
                    self._take_size(frame)

    def fetch(self, key_pts: int, last_pts: int, num_delayed: int) -> None:
        """Request at once the packets from a key frame to a given frame, if the container lists its packets.

        Args:
            key_pts: Time of the key frame.
            last_pts: Time of the frame.
            num_delayed: Number of further packets that the decoder takes before it gives this frame.
        """
        file, watched, entries = self.stored_file, self._watched, self.stream.index_entries
        if file is None or watched is None or not len(entries):
            return
        start = max(entries.search_timestamp(key_pts, backward=True), 0)
        stop = max(entries.search_timestamp(last_pts, backward=True, any_frame=True), start) + 1
        stop += num_delayed if entries[start].size else 0  # Matroska lists key frames alone, without sizes
        first, last = entries[start].pos, entries[min(stop, len(entries) - 1)].pos
        if 0 <= first < last:
            # With the sound of that time, and what FFmpeg reads at once.
            watched.tried(lambda: file.fetch(max(first - 2**16, 0), last + 2**15), None)
            self._require_read()

    def __iter__(self) -> Iterator[av.VideoFrame]:
        """Decode all frames from its position on."""
        return iter(self.next_frame, None)

    def seek(self, pts: int) -> None:
        """Go to a key frame at or before a time in units of `time_base`, to decode from there.

        Without B-frames, the next frame is at or before this time. With B-frames, it can be later, or refer to
        missing frames: seek to one of ``VideoIndex.seek_points``, and skip frames whose ``pts`` is before the
        wanted one.
        """
        self._frames = self._decoded(self.packets())
        try:
            self._container.seek(pts, stream=self.stream, backward=True, any_frame=False)
            self._require_read()
        except self._av.error.FFmpegError as error:
            raise self._failure(f"Cannot go to {float(pts * self.time_base):.3f} s of", error) from error

    def _failure(self, what: str, error: Any) -> VideoError:
        self._require_read()
        reason = getattr(error, "strerror", None) or str(error)
        return VideoError(
            f"{what} {self.name} after {self.num_decoded} decoded frames: {reason}. The file is damaged "
            f"or incomplete."
        )

    def close(self) -> None:
        """Close the file; may be called again."""
        self._frames = iter(())
        self._closing.close()

    def __enter__(self) -> VideoStreamDecoder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
