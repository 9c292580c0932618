# SPDX-License-Identifier: Apache-2.0
"""Codec and end of a video file, from its container (MP4, MOV, Matroska, WebM, AVI), also without PyAV."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, TypeVar

from .video_file import opened

_MOST_ELEMENTS = 100_000  # bounds the walk through a damaged file
_MP4_CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
_MP4_STARTS = (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip")
_NAMES = {
    **dict.fromkeys(("avc1", "avc3", "h264", "x264", "V_MPEG4/ISO/AVC"), "h264"),
    **dict.fromkeys(("hvc1", "hev1", "hevc", "h265", "V_MPEGH/ISO/HEVC"), "hevc"),
    **dict.fromkeys(("vp09", "vp90", "V_VP9"), "vp9"),
    **dict.fromkeys(("vp08", "vp80", "V_VP8"), "vp8"),
    **dict.fromkeys(("av01", "V_AV1"), "av1"),
    **dict.fromkeys(("jpeg", "mjpg", "V_MJPEG"), "mjpeg"),
    **dict.fromkeys(("xvid", "divx", "dx50", "fmp4", "V_MPEG4/ISO/ASP"), "mpeg4"),
}
_EBML_MAGIC = b"\x1a\x45\xdf\xa3"
_SEGMENT, _TRACKS, _TRACK, _TRACK_TYPE, _CODEC_ID = 0x18538067, 0x1654AE6B, 0xAE, 0x83, 0x86
_T = TypeVar("_T")


def sniff_codec(source: Any) -> str | None:
    """Find the codec of the first video stream in an MP4, MOV, Matroska, WebM or AVI file, see `opened`.

    Returns:
        FFmpeg's name for the codec, else what the container calls it; None where that cannot be found out.
    """
    found = _asked(source, _codec)
    return None if found is None else _NAMES.get(found, _NAMES.get(found.lower(), found))


def _asked(source: Any, question: Callable[[BinaryIO, bytes, int], _T]) -> _T | None:
    """Ask about an open file, its first 12 bytes, and its size; None where it is damaged or cannot be read."""
    try:
        with opened(source) as file:
            file.seek(0)
            start = file.read(12)
            return question(file, start, file.seek(0, os.SEEK_END))
    except (OSError, ValueError, struct.error, IndexError, AttributeError):
        return None


def _codec(file: BinaryIO, start: bytes, size: int) -> str | None:
    if start[:4] == b"RIFF" and start[8:] == b"AVI ":
        return _in_avi(file)
    if start[:4] == _EBML_MAGIC:
        return _in_matroska(file, size)
    return _in_mp4(file, size) if start[4:8] in _MP4_STARTS else None


def _in_avi(file: BinaryIO) -> str | None:
    file.seek(0)
    headers = file.read(65536)
    stream = headers.find(b"vids", headers.find(b"strh"))
    format_chunk = headers.find(b"strf", stream)
    if stream < 0 or format_chunk < 0:
        return None
    return _text(headers[format_chunk + 24 : format_chunk + 28])  # biCompression of the BITMAPINFOHEADER


def _in_mp4(file: BinaryIO, size: int) -> str | None:
    is_video = False
    for name, content, _ in mp4_boxes(file, size, _MP4_CONTAINERS):
        if name == b"hdlr" and content[4:8] != b"dhlr":  # else how MOV stores the data
            is_video = content[8:12] == b"vide"
        elif name == b"stsd" and is_video:
            return _text(content[12:16])
    return None


def _in_matroska(file: BinaryIO, size: int) -> str | None:
    position, is_video, codec = 0, False, None
    for _ in range(_MOST_ELEMENTS):
        if position >= size:
            return None
        file.seek(position)
        element, length = _ebml_number(file, keeps_marker=True), _ebml_number(file)
        position = file.tell()
        if element in (_SEGMENT, _TRACKS, _TRACK):
            is_video, codec = False, None
            continue
        if element == _TRACK_TYPE:
            is_video = file.read(length)[-1] == 1
        elif element == _CODEC_ID:
            codec = _text(file.read(min(length, 64)))
        if is_video and codec is not None:
            return codec
        position += length
    return None


def _text(raw: bytes) -> str | None:
    text = raw.rstrip(b"\0 ").decode("latin-1")
    return text if text.isprintable() and text else None


def missing_bytes(source: object) -> int:
    """Count the bytes that an MP4, MOV, Matroska, WebM or AVI file lacks at its end, see `opened`.

    0 where the file is complete or does not tell.
    """
    return _asked(source, lambda file, start, size: max(0, _stated_end(file, start, size) - size)) or 0


def _stated_end(file: BinaryIO, start: bytes, size: int) -> int:
    if start[:4] == b"RIFF" and start[8:] == b"AVI ":
        return 8 + int(struct.unpack("<I", start[4:8])[0])
    if start[:4] == _EBML_MAGIC:
        file.seek(4)
        file.seek(_ebml_number(file), os.SEEK_CUR)
        _ebml_number(file, keeps_marker=True)  # the segment, which holds all the rest
        length_at = file.tell()
        length = _ebml_number(file)
        num_bits = 7 * (file.tell() - length_at)
        is_unknown = length == (1 << num_bits) - 1  # as in live recordings
        return 0 if is_unknown else file.tell() + length
    if start[4:8] in _MP4_STARTS:
        return max((end for _, _, end in mp4_boxes(file, size, ())), default=0)
    return 0


def mp4_boxes(
    file: BinaryIO, end: int, entered: Collection[bytes], most: int = _MOST_ELEMENTS
) -> Iterator[tuple[bytes, bytes, int]]:
    """Walk the boxes of an MP4 file: name, first bytes of the content (16 or more) and end of each.

    Boxes that contain others are entered, or else skipped. After so many boxes at most, it is no longer walked.
    """
    start = 0
    for _ in range(most):
        if start + 8 > end:
            return
        file.seek(start)
        head = file.read(32)
        length, name = struct.unpack_from(">I4s", head)
        header = 8
        if length == 1:
            (length,), header = struct.unpack_from(">Q", head, 8), 16
        stop = end if length == 0 else start + length
        if stop < start + header:
            return
        yield name, head[header:], stop
        start = start + header if name in entered else stop


def _ebml_number(file: BinaryIO, keeps_marker: bool = False) -> int:
    """Read an EBML variable-length integer (vint)."""
    first = file.read(1)[0]
    num_bytes = 9 - first.bit_length()
    value = first if keeps_marker else first & (0xFF >> num_bytes)
    return int.from_bytes(bytes([value]) + file.read(num_bytes - 1), "big")
