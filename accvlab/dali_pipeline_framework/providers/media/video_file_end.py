# SPDX-License-Identifier: Apache-2.0
"""Detection of truncated video files."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from .container_elements import ebml_number, mp4_boxes, opened


def missing_bytes(source: object) -> int:
    """Count the bytes that an MP4, MOV, Matroska, WebM or AVI file lacks at its end.

    Args:
        source: A path, bytes, or an open binary file, whose position stays.

    Returns:
        Number of bytes, 0 where the file is complete or does not tell.
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
    if start[:4] == b"\x1a\x45\xdf\xa3":  # EBML
        file.seek(4)
        file.seek(ebml_number(file), os.SEEK_CUR)
        ebml_number(file, keeps_marker=True)  # the segment, which holds all the rest
        length_at = file.tell()
        length = ebml_number(file)
        num_bits = 7 * (file.tell() - length_at)
        is_unknown = length == (1 << num_bits) - 1  # as in live recordings
        return 0 if is_unknown else file.tell() + length
    if start[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip"):
        return max((end for _, _, end in mp4_boxes(file, 0, size, enters=False)), default=0)
    return 0
