# SPDX-License-Identifier: Apache-2.0
"""Decoding of a video stream on the CPU, with PyAV."""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import math
import os
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..checks import whole_number
from ..errors import (
    FileError,
    FrameworkError,
    MissingPackageError,
    SettingError,
    VideoError,
    error_that_is_also,
    file_error,
)
from ..limits.file_limits import IMAGE_PIXELS
from ..limits.image_limits import too_many_pixels
from ..providers.files.remote_reading import ChangedFileError
from ..providers.files.storage import reason_of
from .files import stored_videos, video_file

if TYPE_CHECKING:
    import av
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

UInt8Array: TypeAlias = npt.NDArray[np.uint8]
VideoSource: TypeAlias = "str | os.PathLike[str] | bytes | BinaryIO | stored_videos.StoredVideo"

_OLDEST_PYAV, _NEWEST_PYAV = 17, 18


def import_av(source: VideoSource | None = None) -> ModuleType:
    """Import PyAV, or raise a `SettingError` where it is not installed, or of a version that is not supported.

    With the video to decode, the message names it.
    """
    try:
        import av
    except ImportError as error:
        what = "Videos" if source is None else source_name(source)
        raise MissingPackageError(
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


class VideoStreamDecoder:
    """One video stream of a container, decoded frame after frame in the order of presentation.

    ::

        with VideoStreamDecoder("monday.mp4") as decoder:
            converter = FrameConverter()
            for frame in decoder:
                pixels = converter.convert(frame)     # (height, width, 3) uint8

    PyAV releases the GIL while it reads and decodes, so decoders in several threads run at the same time. One
    decoder must not be used by two threads at once, nor after a fork.

    Attributes:
        codec_name: Name of the codec, as FFmpeg calls it: ``"h264"``, ``"hevc"``, ``"vp9"``, ``"mjpeg"``, ...
        container_name: FFmpeg's names for the format of the container: ``"matroska,webm"``, ``"avi"``, ...
        extradata: Settings of the codec as the container has them, or None.
        pixel_format: FFmpeg's name for the format of the pixels, as the container or a decoded frame states it.
        width: Width of the frames in pixels, as coded: rotations for display are not applied. Until a frame was
            decoded, the value that the container or the caller states.
        height: Height of the frames in pixels.
        time_base: Seconds per unit of a frame's ``pts``.
        average_rate: Frames per second as the container states it, or None.
        stated_num_frames: Number of frames as the container states it; 0 if it does not.
        num_decoded: Number of frames that were decoded, over all seeks.
        stored_file: The open file in remote storage or in an archive; None of others.
        color_matrix: Number of the color matrix that the first frame states (ISO/IEC 23091-2); 2 for none.
        is_interlaced: Whether the first decoded frame is of two fields.
        is_size_known: Whether width and height come from a decoded frame, or were given.
        rotation_deg: By how many degrees players turn the frames clockwise, in [0, 360); 0 until one was decoded.
        is_mirrored: Whether they mirror them left to right before.
        other_streams: Which video streams there are and which one was chosen; empty if there is one, or the
            caller has chosen.
        num_candidates: Between how many streams the choice was.
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
            FileError: The file cannot be opened or read. Also the builtin exception, e.g. `FileNotFoundError`.
            VideoError: It is not a video, is incomplete, or is of an unknown codec.
        """
        source = stored_videos.located(source)
        self.name = source_name(source) if name is None else name
        self.num_decoded = 0
        self._stream_number = None if stream is None else whole_number(stream, "stream", at_least=0)
        self.other_streams = ""
        self.num_candidates = 1
        self.rotation_deg, self.is_mirrored = 0, False
        num_threads = whole_number(num_threads, "num_threads", at_least=1)
        self._av = import_av(source)
        self.stored_file = source.open() if isinstance(source, stored_videos.StoredVideo) else None
        self._source: Any = source if self.stored_file is None else self.stored_file
        self._watched: video_file.WatchedFile | None = None
        if not isinstance(self._source, (str, os.PathLike, bytes, bytearray, memoryview)):
            self._watched = video_file.WatchedFile(cast(BinaryIO, self._source))
            self._source = self._watched
        with contextlib.ExitStack() as closing:
            if self.stored_file is not None:
                closing.callback(self.stored_file.close)
            self._container = self._open()
            closing.callback(self._container.close)
            self._require_read()
            self._stream = stream_ = self._choose_stream()
            stream_.thread_type = "AUTO" if num_threads > 1 else "SLICE"
            stream_.thread_count = num_threads
            context = stream_.codec_context
            excess = too_many_pixels(context.height, context.width)
            if excess:
                raise VideoError(f"The video {self.name} is not decoded: it claims frames of {excess}.")
            context.options = {"max_pixels": str(IMAGE_PIXELS.most)}
            self.codec_name: str = context.codec.canonical_name
            if self.codec_name in ("hevc", "mjpeg"):
                # Their decoders would silently deliver frames with errors. (That of H.264 marks such frames, and
                # would fail on frames before a key frame in display order, after a seek to it.)
                context.options = {**context.options, "err_detect": "explode"}
            self._closing = closing.pop_all()
        self.container_name: str = self._container.format.name
        self.extradata: bytes | None = context.extradata
        self.pixel_format: str = context.pix_fmt or ""
        self.is_size_known = size is not None
        self.color_matrix, self.is_interlaced = 2, False
        self._colors_of_container = int(context.colorspace), int(context.color_range)
        self.width, self.height = size or (context.width, context.height)
        self.time_base: Fraction = stream_.time_base or Fraction(1, 1_000_000)
        self.average_rate: Fraction | None = stream_.average_rate
        self.stated_num_frames: int = stream_.frames
        self._packets: Iterator[Packet[VideoStream]] | None = None
        self._ready: collections.deque[av.VideoFrame] = collections.deque()

    def _open(self) -> InputContainer:
        source = file = self._source
        pointer = video_file.pointer_error(source)  # FFmpeg opens some by the end of their name
        if pointer is not None:
            raise file_error(f"Cannot open the video {self.name}", pointer) from pointer
        if isinstance(source, (bytes, bytearray, memoryview)):
            file = io.BytesIO(source)
        elif isinstance(source, (str, os.PathLike)):
            if not video_file.is_file_or_missing(source):
                raise FileError(f"Cannot open the video {self.name}: it is no regular file.")
            # Without "file:", FFmpeg takes the part of a name before a colon for a protocol.
            file = f"file:{os.fspath(source)}"
        else:
            file.seek(0)  # FFmpeg counts from where it begins
        try:
            # Metadata need not be UTF-8.
            options = {"max_pixels": str(IMAGE_PIXELS.most)}
            container = self._av.open(file, mode="r", options=options, metadata_errors="replace")
        except self._av.error.FFmpegError as error:
            failure = self._opening_failure(error)
            self._require_read()
            raise failure from error
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
        message = f"Cannot read {self.name} after {self.num_decoded} decoded frames: {reason_of(error)}."
        raise error_that_is_also(FileError, [error], message) from error

    def _opening_failure(self, error: Any) -> FrameworkError:
        source = self._source
        of_system = [cls for cls in type(error).__mro__ if cls.__module__ == "builtins" and cls is not ValueError]
        if of_system and issubclass(of_system[0], OSError):  # FileNotFoundError, PermissionError, ...
            message = f"Cannot open the video {self.name}: {error.strerror}.{video_file.path_advice(source)}"
            return error_that_is_also(FileError, of_system[:1], message)
        with contextlib.suppress(OSError, ValueError, AttributeError), video_file.opened(source) as file:
            if not file.read(1):
                return VideoError(f"The video {self.name} is empty: it has 0 bytes.")
        num_missing = video_file.missing_bytes(source)
        why = f"{num_missing} bytes are missing at its end" if num_missing else "Is it a video?"
        return VideoError(f"Cannot open {self.name} as a video: {error.strerror}. {why}")

    def _choose_stream(self) -> VideoStream:
        streams = self._container.streams
        videos = [stream for stream in streams if stream.type == "video"]
        if not videos:
            kinds = ", ".join(stream.type or "unknown" for stream in streams) or "none at all"
            num_missing = video_file.missing_bytes(self._source)
            lacking = f", and {num_missing} bytes are missing at its end" if num_missing else ""
            raise VideoError(f"There is no video stream in {self.name}; its streams are: {kinds}{lacking}.")
        if self._stream_number is None:
            chosen = self._best_of(videos)
        elif self._stream_number < len(videos):
            chosen = videos[self._stream_number]
        else:
            rule = f"the number of a video stream, 0 to {len(videos) - 1} in {self.name}"
            raise SettingError(f"`stream` must be {rule}, got {self._stream_number}.")
        if chosen.codec_context is None:
            raise VideoError(f"PyAV {self._av.__version__} does not know the codec of {self.name}.")
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
            raise VideoError(f"There is no video in {self.name}, only a cover picture (stream {listed}).")
        best = max(candidates, key=lambda stream: (_area_of(stream), bool(stream.disposition & default)))
        if len(videos) > 1:
            self.other_streams = f"{listed}; {videos.index(best)} is read"
            self.num_candidates = len(candidates)
        return best

    def count_missing_bytes(self) -> int:
        """Count the bytes that the file lacks at its end; 0 if it is complete, or does not record its length.

        Raises:
            FileError: The file cannot be read. Also the builtin exception.
        """
        count = video_file.missing_bytes(self._source)
        self._require_read()
        return count

    @property
    def stated_duration_s(self) -> float | None:
        """Duration of the stream in seconds as the container states it, or None."""
        if self._stream.duration is not None:
            return float(self._stream.duration * self.time_base)
        text = self._stream.metadata.get("DURATION", "")  # Matroska: "00:00:08.840000000"
        try:
            hours, minutes, seconds = text.split(":")
            return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        except ValueError:
            return None

    # --- reading ----------------------------------------------------------------------------------------

    def packets(self) -> Iterator[Packet[VideoStream]]:
        """Get the packets of the stream from its position on, in the order of decoding, without decoding them.

        The last one is empty: to decode it brings out the frames that the codec still holds.

        Raises:
            FileError: The file cannot be read. Also the builtin exception.
            VideoError: It is damaged here.
        """
        demuxed = self._container.demux(self._stream)
        has_ended = False
        while True:
            try:
                packet = next(demuxed, None)
                self._require_read()
            except self._av.error.FFmpegError as error:
                self._require_read()
                raise self._failure("Cannot read", error) from error
            except IndexError as error:  # of PyAV, where the file has more streams in the end than at its start
                if has_ended:
                    return
                raise self._failure("Cannot read", error) from error
            if packet is None:
                return
            has_ended = not packet.size and packet.dts is None
            yield packet

    @property
    def stream(self) -> VideoStream:
        """The stream, as PyAV has it."""
        return self._stream

    def next_frame(self) -> av.VideoFrame | None:
        """Decode the next frame in the order of presentation; None after the last one.

        Raises:
            FileError: The file cannot be read. Also the builtin exception.
            VideoError: The stream is damaged here, or the frame has another size than those before.
        """
        if self._packets is None:
            self._packets = self.packets()
        while not self._ready:
            packet = next(self._packets, None)
            if packet is None:
                return None
            try:
                self._ready.extend(packet.decode())
            except self._av.error.FFmpegError as error:
                raise self._failure("Cannot decode", error) from error
        frame = self._ready.popleft()
        self._take_size(frame)
        if (frame.width, frame.height) != (self.width, self.height):
            raise VideoError(
                f"All frames of a video must have one size, but {self.name} changes from {self.width} x "
                f"{self.height} to {frame.width} x {frame.height} pixels after {self.num_decoded} decoded "
                f"frames{self._time_of(frame)}."
            )
        self.num_decoded += 1
        return frame

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
        """Decode a packet, until one gave a frame: all frames have its size."""
        if self.is_size_known:
            return
        try:
            for frame in packet.decode()[:1]:
                self._take_size(frame)
        except self._av.error.FFmpegError:
            pass  # reported when the frame is read

    def has_field_packets(self, pts: int) -> bool:
        """Whether packets after a key frame are fields, two of which make a frame: 16 of them are decoded."""
        self.seek(pts)
        num_packets = num_frames = 0
        for packet in itertools.islice(self.packets(), 16):
            num_packets += bool(packet.size)
            num_frames += len(packet.decode())
        num_frames += len(self._stream.decode(None))
        return 4 * num_frames < 3 * num_packets

    def fetch(self, key_pts: int, last_pts: int, num_delayed: int) -> None:
        """Request the bytes of the packets from a key frame to a frame at once, where the container lists them.

        Args:
            key_pts: Time of the key frame.
            last_pts: Time of the frame.
            num_delayed: How many more packets the decoder takes before it gives that.
        """
        file, watched, entries = self.stored_file, self._watched, self._stream.index_entries
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
        while (frame := self.next_frame()) is not None:
            yield frame

    def seek(self, pts: int) -> None:
        """Go to a key frame at or before a time in units of `time_base`; the next frame is one at or before it.

        In streams whose frames are not decoded in the order of presentation it can also be a later one, or a
        frame that refers to missing ones: choose the time of a key frame, and look at ``frame.pts``.
        """
        self._packets = None
        self._ready.clear()
        try:
            self._container.seek(pts, stream=self._stream, backward=True, any_frame=False)
            self._require_read()
        except self._av.error.FFmpegError as error:
            self._require_read()
            raise self._failure(f"Cannot go to {float(pts * self.time_base):.3f} s of", error) from error

    def _failure(self, what: str, error: Any) -> VideoError:
        reason = getattr(error, "strerror", None) or str(error)
        return VideoError(
            f"{what} {self.name} after {self.num_decoded} decoded frames: {reason}. The file is damaged "
            f"or incomplete."
        )

    def _time_of(self, frame: av.VideoFrame) -> str:
        return "" if frame.pts is None else f", at {float(frame.pts * self.time_base):.3f} s"

    def close(self) -> None:
        """Close the file; may be called again."""
        self._packets = None
        self._ready.clear()
        self._closing.close()

    def __enter__(self) -> VideoStreamDecoder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
