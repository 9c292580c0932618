# SPDX-License-Identifier: Apache-2.0
"""How large an image file says that its image is, from its headers.

They are looked for wherever the decoders find them: what is skipped on the way may be of any length.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_MARKER: Final = re.compile(rb"\xff([^\x00\xff])")  # libjpeg skips all that is between segments
_MOST_TAGS: Final = 1024
_WITHOUT_SIZE: Final = (0xC4, 0xC8, 0xCC)  # DHT, JPG, DAC: of the markers C0 to CF, those that begin no frame
_WITHOUT_CONTENT: Final = (0x01, *range(0xD0, 0xD9))  # TEM, RST, SOI
_LAST_BEFORE_PIXELS: Final = (0xD9, 0xDA)  # EOI, SOS
_TIFF_NUMBERS: Final = {1: "B", 3: "H", 4: "I", 16: "Q"}  # types of numbers, as `struct` calls them


def claimed_size(encoded: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    """Read the height and width that an image file claims, without decoding.

    Args:
        encoded: ``(num_bytes,)`` uint8: JPEG, PNG, WebP, BMP, TIFF, JPEG 2000, GIF or PNM.

    Returns:
        Height and width in pixels as stored; None for other files, and for those that are damaged there, which no
        decoder takes.
    """
    if encoded.ndim != 1:
        return None
    array: Any = encoded if encoded.flags.c_contiguous else np.ascontiguousarray(encoded)
    content = memoryview(array)
    head = bytes(content[:12])
    read = _READERS.get(head[:2])
    try:
        return None if read is None else read(content, head)
    except (struct.error, IndexError, ValueError):
        return None


def decoded_already(image: npt.NDArray[np.generic]) -> str:
    """Say that what is to be decoded is an array of pixels; empty where it may be the bytes of a file."""
    if image.ndim == 1:
        return ""
    return (
        f"it looks decoded already: the bytes of an image file have one dimension, this has the shape "
        f"{image.shape}. Leave out ImageDecoder, or `is_encoded` of a step that resizes"
    )


def _jpeg(content: memoryview, head: bytes) -> tuple[int, int] | None:
    """The size in the frame header; of several, of which decoders may take either, the largest of each axis."""
    found: tuple[int, int] | None = None
    position, size = 2, len(content)
    while position + 4 <= size:
        at_once = content[position] == 0xFF and content[position + 1] not in (0, 0xFF)  # the usual case
        next_one = None if at_once else _MARKER.search(content, position)
        if not at_once:
            if next_one is None:
                break
            position = next_one.start()
        marker = content[position + 1]
        if marker in _LAST_BEFORE_PIXELS:
            break
        position += 2
        if marker in _WITHOUT_CONTENT:
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _WITHOUT_SIZE and position + 7 <= size:
            height, width = struct.unpack_from(">HH", content, position + 3)
            found = (height, width) if found is None else (max(height, found[0]), max(width, found[1]))
        length = content[position] << 8 | content[position + 1] if position + 2 <= size else 0
        position += max(length, 2)
    return found


def _png(content: memoryview, head: bytes) -> tuple[int, int] | None:
    if head[:8] != _PNG:
        return None
    position = len(_PNG)
    while True:  # libpng takes unknown chunks before the header
        length, name = struct.unpack_from(">I4s", content, position)
        if name == b"IHDR":
            width, height = struct.unpack_from(">II", content, position + 8)
            return height, width
        position += 12 + length


def _gif(content: memoryview, head: bytes) -> tuple[int, int] | None:
    width, height = struct.unpack_from("<HH", content, 6)
    return height, width


def _webp(content: memoryview, head: bytes) -> tuple[int, int] | None:
    if head[:4] != b"RIFF" or head[8:] != b"WEBP":
        return None
    kind = bytes(content[12:16])
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[start : start + 3], "little") + 1 for start in (24, 27))
        return height, width
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", content, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return height & 0x3FFF, width & 0x3FFF
    return None


def _bmp(content: memoryview, head: bytes) -> tuple[int, int] | None:
    (header_size,) = struct.unpack_from("<I", content, 14)
    width, height = struct.unpack_from("<HH" if header_size == 12 else "<ii", content, 18)
    return abs(height), abs(width)  # negative where the first row is the topmost


def _tiff(content: memoryview, head: bytes) -> tuple[int, int] | None:
    order, is_big = "<" if head[:1] == b"I" else ">", b"+" in head[2:4]
    if is_big:
        (position,) = struct.unpack_from(f"{order}Q", content, 8)
        (count,) = struct.unpack_from(f"{order}Q", content, position)
        first, step, value_at = position + 8, 20, 12
    else:
        (position,) = struct.unpack_from(f"{order}I", content, 4)
        (count,) = struct.unpack_from(f"{order}H", content, position)
        first, step, value_at = position + 2, 12, 8
    found: dict[int, int] = {}
    for entry in range(min(count, _MOST_TAGS)):
        start = first + step * entry
        tag, kind = struct.unpack_from(f"{order}HH", content, start)
        if tag in (256, 257) and kind in _TIFF_NUMBERS:
            (found[tag],) = struct.unpack_from(order + _TIFF_NUMBERS[kind], content, start + value_at)
        if len(found) == 2:
            return found[257], found[256]
    return None


def _jpeg_2000(content: memoryview, head: bytes) -> tuple[int, int] | None:
    if head != b"\0\0\0\x0cjP  \r\n\x87\n" and head[:4] != b"\xff\x4f\xff\x51":
        return None
    start = 0
    if content[0] == 0:  # in boxes
        start = bytes(content[:4096]).find(b"\xff\x4f\xff\x51")
        header = bytes(content[:4096]).find(b"ihdr")
        if header >= 0:
            height, width = struct.unpack_from(">II", content, header + 4)
            if start < 0:
                return height, width
            inner = _code_stream(content, start)
            return max(height, inner[0]), max(width, inner[1])
    return None if start < 0 else _code_stream(content, start)


def _code_stream(content: memoryview, start: int) -> tuple[int, int]:
    right, bottom, left, top = struct.unpack_from(">IIII", content, start + 8)
    return max(0, bottom - top), max(0, right - left)


def _pnm(content: memoryview, head: bytes) -> tuple[int, int] | None:
    if not head[2:3].isspace():
        return None
    words: list[bytes] = []
    for line in bytes(content[:1024]).split(b"\n"):
        words += line.partition(b"#")[0].split()
        if len(words) >= 3:
            return int(words[2][:20]), int(words[1][:20])
    return None


_READERS: Final[dict[bytes, Callable[[memoryview, bytes], tuple[int, int] | None]]] = {
    b"\xff\xd8": _jpeg,
    b"\x89P": _png,
    b"RI": _webp,
    b"BM": _bmp,
    b"II": _tiff,
    b"MM": _tiff,
    b"\0\0": _jpeg_2000,
    b"\xff\x4f": _jpeg_2000,
    b"GI": _gif,
    **dict.fromkeys((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"), _pnm),
}
