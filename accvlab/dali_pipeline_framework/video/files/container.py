# SPDX-License-Identifier: Apache-2.0
"""End of a video file as its container states it: FFmpeg and DALI read files that were cut short silently."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from .video_file import opened

_MP4_STARTS = (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip")
_EBML_MAGIC = b"\x1a\x45\xdf\xa3"


def missing_bytes(source: object) -> int:
    """Count the bytes that an MP4, MOV, Matroska, WebM or AVI file lacks at its end, see `opened`.

    0 where the file is complete or does not tell.
    """
    try:
        with opened(source) as file:
            size = file.seek(0, os.SEEK_END)
            return max(0, _stated_end(file, size) - size)
    except (OSError, ValueError, struct.error, IndexError, AttributeError):
        return 0


def _stated_end(file: BinaryIO, size: int) -> int:
    file.seek(0)
    start = file.read(12)
    if start[:4] == b"RIFF" and start[8:] == b"AVI ":
        return 8 + int(struct.unpack("<I", start[4:8])[0])
    if start[:4] == _EBML_MAGIC:
        return _end_of_matroska(file)
    return _end_of_mp4(file, size) if start[4:8] in _MP4_STARTS else 0


def _end_of_mp4(file: BinaryIO, size: int) -> int:
    end = 0
    while end + 8 <= size:  # boxes, one after the other
        file.seek(end)
        head = file.read(16)
        length = int(struct.unpack_from(">I", head)[0])
        if length == 1:
            (length,) = struct.unpack_from(">Q", head, 8)
        if length < 8:  # 0: up to the end
            break
        end += length
    return end


def _end_of_matroska(file: BinaryIO) -> int:
    file.seek(4)
    file.seek(_ebml_number(file)[0], os.SEEK_CUR)
    file.seek(4, os.SEEK_CUR)  # the identifier of the segment, which holds all the rest
    length, is_unknown = _ebml_number(file)
    return 0 if is_unknown else file.tell() + length


def _ebml_number(file: BinaryIO) -> tuple[int, bool]:
    """Read an EBML variable-length integer (vint), and whether it stands for "unknown", as in live recordings."""
    first = file.read(1)[0]
    num_bytes = 9 - first.bit_length()
    value = int.from_bytes(bytes([first & (0xFF >> num_bytes)]) + file.read(num_bytes - 1), "big")
    return value, value == (1 << 7 * num_bytes) - 1
