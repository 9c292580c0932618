# SPDX-License-Identifier: Apache-2.0
"""Parts of videos as small files in memory, cut out without decoding."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from ..draws.keyed_draws import Int64Array
from ..errors import VideoError
from .files.packets import pictures_in
from .video_decoding import NOT_THERE, VideoStreamDecoder, import_av

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


def cut_clip(decoder: VideoStreamDecoder, key_pts: int | None, wanted: Int64Array) -> EncodedClip:
    """Cut frames out of a video, from the position of its decoder on.

    Times and edit lists are not kept: the frames of the file are numbered one after the other. Leading pictures
    (decoded after the key frame, and shown before it) are left out. They can refer to what was before the key
    frame, so that decoders skip them, and DALI's on a GPU would take each frame for another one.

    Args:
        decoder: Open video, at or before the key frame.
        key_pts: Time of the key frame to begin with; None for the first one.
        wanted: ``(F,)`` times of the frames, in any order, repeated or not; none before the key frame.

    Raises:
        FileError: The file cannot be read.
        VideoError: A packet is damaged, or not all of them come.
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
            pts = np.array([packet.pts for packet in packets], np.int64)
            is_shown = [pictures_in(memoryview(packet), decoder.codec_name)[1] for packet in packets]
            shown = np.unique(pts[is_shown])
            file = _file_of(decoder, packets, shown.searchsorted(pts))
            return EncodedClip(file, shown.searchsorted(wanted).astype(np.int32))
    raise VideoError(NOT_THERE)


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
