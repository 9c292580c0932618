# SPDX-License-Identifier: Apache-2.0
"""Parts of videos as small files in memory: cut out without decoding, and decoded to pixels."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from ..draws.keyed_draws import Int64Array
from ..errors import FieldValueError, VideoError
from ..providers.frame_counts import count_frames
from .files.packets import pictures_in
from .frame_converter import Colors, FrameConverter
from .video_decoding import UInt8Array, VideoStreamDecoder, import_av

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

Int32Array = npt.NDArray[np.int32]

# What DALI reads on a GPU is MP4; other codecs are decoded by PyAV, or do not care.
_MP4_CODECS = ("h264", "hevc", "av1", "vp9", "mpeg4")
_TIME_BASE = Fraction(1, 25)


@attrs.frozen(eq=False)
class EncodedClip:
    """Frames of a video, as a file.

    Attributes:
        file: The file: the packets from a key frame to the last frame, in their order.
        numbers: ``(F,)`` int32, the numbers of the frames among those of the file, in the order of presentation.
    """

    file: bytes
    numbers: Int32Array


class FileOfClip(np.ndarray[Any, np.dtype[np.uint8]]):
    """The file of an `EncodedClip`, in the process that has cut it: an array that knows another way to its pixels.

    Views of it, also as plain arrays, refer to it by their ``base``.

    Attributes:
        colors: How colors are converted on that way. ``"bt601"`` is what ``"stream"`` means for the file.
        decoded: Gets the frames of the clip, ``(F, H, W, 3)``, from the decoders that this process keeps open;
            None if the file is decoded.
    """

    colors: Colors
    decoded: Callable[[], UInt8Array] | None = None

    @classmethod
    def of(cls, file: bytes, colors: Colors, decoded: Callable[[], UInt8Array] | None) -> FileOfClip:
        """Show the bytes of a file as such an array."""
        known = cls((len(file),), np.uint8, file)
        known.colors, known.decoded = colors, decoded
        return known


def cut_clip(decoder: VideoStreamDecoder, key_pts: int | None, wanted: Int64Array) -> EncodedClip | None:
    """Cut frames out of a video, from the position of its decoder on.

    Times and edit lists are not kept: the frames of the file are numbered one after the other. Leading pictures
    (decoded after the key frame, and shown before it) are left out. They can refer to what was before the key
    frame, so that decoders skip them, and DALI's on a GPU would take each frame for another one.

    Args:
        decoder: Open video, at or before the key frame.
        key_pts: Time of the key frame to begin with; None for the first one.
        wanted: ``(F,)`` times of the frames, in any order, repeated or not; none before the key frame.

    Returns:
        The clip; None where not all of these packets come.

    Raises:
        FileError: The file cannot be read. Also the builtin exception.
        VideoError: A packet is damaged.
    """
    packets: list[Packet[VideoStream]] = []
    missing = {*wanted.tolist()}
    for packet in decoder.packets():
        if not packet.size or packet.pts is None:
            continue
        if not packets and not (packet.is_keyframe and key_pts in (None, packet.pts)):
            continue
        if packet.is_corrupt:
            raise VideoError(f"the packet at {float(packet.pts * decoder.time_base):.3f} s is damaged.")
        if packets and packet.pts < (packets[0].pts or 0):
            continue
        packets.append(packet)
        missing.discard(packet.pts)
        if not missing:
            shown, numbers = _places(packets, decoder.codec_name)
            places = shown.searchsorted(wanted)
            return EncodedClip(_file_of(decoder, packets, numbers), places.astype(np.int32))
    return None


def _places(packets: Sequence[Packet[VideoStream]], codec_name: str) -> tuple[Int64Array, Int64Array]:
    """Get the times of the frames that packets show, sorted; and the place of each packet's time among them."""
    pts = np.array([packet.pts for packet in packets], np.int64)
    shown = np.unique(pts[[pictures_in(memoryview(packet), codec_name)[1] for packet in packets]])
    return shown, shown.searchsorted(pts)


def _file_of(decoder: VideoStreamDecoder, packets: Sequence[Packet[VideoStream]], places: Int64Array) -> bytes:
    # A frame is shown so much later that none is shown before it is decoded.
    delay = max(int((np.arange(len(packets)) - places).max()), 0)
    is_mp4 = decoder.codec_name in _MP4_CODECS
    buffer = io.BytesIO()
    options = {"use_editlist": "0"} if is_mp4 else {}
    with import_av().open(buffer, "w", format="mp4" if is_mp4 else "matroska", options=options) as file:
        stream = file.add_stream_from_template(decoder.stream, opaque=True)
        stream.time_base = _TIME_BASE
        for number, (packet, place) in enumerate(zip(packets, places.tolist(), strict=True)):
            packet.stream, packet.time_base = stream, _TIME_BASE
            packet.pts, packet.dts, packet.duration = place + delay, number, 1
        file.mux(packets)
    return buffer.getvalue()


def decoded_clip(file: UInt8Array, numbers: npt.ArrayLike, colors: Colors = "stream") -> UInt8Array:
    """Decode frames of a video file in memory.

    Args:
        file: ``(num_bytes,)`` uint8. Its frames are numbered in the order of presentation.
        numbers: ``(F,)`` numbers of frames, in any order, repeated or not.
        colors: How colors are converted, see `FrameConverter`.

    Returns:
        ``(F, H, W, 3)`` uint8, RGB.

    Raises:
        FieldValueError: There are no such frames.
        VideoError: It is no video, or a frame cannot be decoded.
    """
    wanted = np.asarray(numbers, np.int64).reshape(-1)
    short_way = _short_way(file, colors)
    if short_way is not None:
        return short_way()
    with _opened(file) as decoder:
        packets = [packet for packet in decoder.packets() if packet.size]
        if not packets or None in [packet.pts for packet in packets]:
            raise VideoError("the encoded video has no packets, or they have no times: it is damaged.")
        shown, _ = _places(packets, decoder.codec_name)
        if not len(wanted) or wanted.min() < 0 or wanted.max() >= len(shown):
            last = len(shown) - 1
            raise FieldValueError(f"frames of the encoded video are numbered 0 to {last}, got {wanted.tolist()}")
        if not packets[0].is_keyframe:
            raise VideoError("the encoded video does not begin with a key frame. Cut it from one on.")
        pending = dict[int, list[int]]()
        for place, number in enumerate(wanted.tolist()):
            pending.setdefault(int(shown[number]), []).append(place)
        decoder.seek(min(packet.pts or 0 for packet in packets))
        frames = _decoded(decoder, pending, len(wanted), int(packets[0].pts or 0), colors)
        count_frames(len({*wanted.tolist()}), decoder.num_decoded)
        return frames


def size_of_clip(file: UInt8Array) -> tuple[int, int]:
    """Get height and width of a video file in memory, from its header; for errors see `decoded_clip`."""
    with _opened(file) as decoder:
        return decoder.height, decoder.width


def _opened(file: UInt8Array) -> VideoStreamDecoder:
    return VideoStreamDecoder(file.tobytes(), name="the encoded video")


def _decoded(
    decoder: VideoStreamDecoder, pending: dict[int, list[int]], num_frames: int, key_pts: int, colors: Colors
) -> UInt8Array:
    """Decode frames up to the last wanted one; ``pending`` has the places of each time in the result."""
    converter, frames, is_damaged = FrameConverter(colors=colors), None, False
    for frame in decoder:
        if frame.pts is None or frame.pts < key_pts:
            continue
        is_damaged = frame.is_corrupt or (is_damaged and not frame.key_frame)
        if is_damaged and frame.pts in pending:
            _fail(pending, "it, or a frame that it can refer to, is damaged")
        places = pending.pop(frame.pts, ())
        if places:
            if frames is None:
                frames = np.empty((num_frames, frame.height, frame.width, converter.num_channels), np.uint8)
            frames[places[0]] = converter.convert(frame)
            frames[places[1:]] = frames[places[0]]
        if not pending:
            break
    if frames is None or pending:
        _fail(pending, "its packets are damaged")
    return frames


def _fail(pending: dict[int, list[int]], why: str) -> NoReturn:
    places = sorted(place for each in pending.values() for place in each)
    raise VideoError(f"frame(s) {places} of the clip cannot be decoded from the encoded video: {why}.")


def _short_way(file: Any, colors: Colors) -> Callable[[], UInt8Array] | None:
    while file is not None:  # a view refers to what it shows
        if isinstance(file, FileOfClip) and file.decoded is not None:
            is_same = file.colors == colors or (file.colors == "bt601" and colors == "stream")
            return file.decoded if is_same else None
        file = getattr(file, "base", None)
    return None
