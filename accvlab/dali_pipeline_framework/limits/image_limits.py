# SPDX-License-Identifier: Apache-2.0
"""Limits on the pixels of images and the elements of arrays, by their headers."""

from __future__ import annotations

import importlib
import io
import re
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .file_limits import IMAGE_PIXELS, LfsPointerError, require_no_pointer

_MOST_LOOKED_AT: Final = 2048
_JPEG: Final = b"\xff\xd8"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_MARKER: Final = re.compile(rb"\xff([^\x00\xff])")  # libjpeg skips all that is between segments
_WITHOUT_SIZE: Final = (0xC4, 0xC8, 0xCC)  # DHT, JPG, DAC: of the markers C0 to CF, those that begin no frame
_WITHOUT_CONTENT: Final = (0x01, *range(0xD0, 0xD9))  # TEM, RST, SOI
_LAST_BEFORE_PIXELS: Final = (0xD9, 0xDA)  # EOI, SOS
# Not WebP: Pillow reserves the pixels with the header, and there are at most 16383 x 16383.
_BY_PILLOW: Final = {
    **{b"BM": "BMP", b"II": "TIFF", b"MM": "TIFF", b"\0\0": "JPEG2000", b"\xff\x4f": "JPEG2000"},
    **dict.fromkeys((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"), "PPM"),
}


def claimed_size(encoded: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    """Read the height and width that an image file claims, without decoding.

    Args:
        encoded: ``(num_bytes,)`` uint8: JPEG or PNG; with Pillow also BMP, TIFF, PNM or JPEG 2000.

    Returns:
        Height and width in pixels as stored; None for other files, and for files with a damaged header, which no
        decoder accepts.
    """
    if encoded.ndim != 1:
        return None
    array: Any = encoded if encoded.flags.c_contiguous else np.ascontiguousarray(encoded)
    content = memoryview(array)
    head = bytes(content[: len(_PNG)])
    try:
        if head.startswith(_JPEG):
            return _jpeg(content)
        if head == _PNG:
            return _png(content)
    except (struct.error, IndexError):
        return None
    name = _BY_PILLOW.get(head[:2])
    found = None if name is None else _by_pillow(content, name)
    return None if found is None else found[0]


def no_image_file(image: npt.NDArray[np.generic]) -> str:
    """Explain that an image to decode is an array of pixels, or a pointer of Git LFS; else empty."""
    if image.ndim == 1:
        try:
            require_no_pointer(image[:_MOST_LOOKED_AT].tobytes())
        except LfsPointerError as error:
            return str(error)
        return ""
    return (
        f"it looks decoded already: the bytes of an image file have one dimension, this has the shape "
        f"{image.shape}. Leave out ImageDecoder, or `is_encoded` of a step that resizes"
    )


def _jpeg(content: memoryview) -> tuple[int, int] | None:
    """Read the size in the frame header; of several, any of which may be decoded, the largest of each axis."""
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


def _png(content: memoryview) -> tuple[int, int]:
    position = len(_PNG)
    while True:  # libpng takes unknown chunks before the header
        length, name = struct.unpack_from(">I4s", content, position)
        if name == b"IHDR":
            width, height = struct.unpack_from(">II", content, position + 8)
            return height, width
        position += 12 + length


def pillow_mode(encoded: npt.NDArray[np.uint8]) -> str:
    """Read Pillow's mode of a BMP, TIFF, PNM or JPEG 2000 file; empty for others, and without Pillow."""
    name = _BY_PILLOW.get(encoded[:2].tobytes()) if encoded.ndim == 1 else None
    array: Any = np.ascontiguousarray(encoded)
    found = None if name is None else _by_pillow(memoryview(array), name)
    return "" if found is None else found[1]


def _by_pillow(content: memoryview, name: str) -> tuple[tuple[int, int], str] | None:
    """Read size and mode with Pillow; None without Pillow, or where it refuses the file."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        Image.init()
        # Not by `Image.open`, which has its own limit, and warns below it.
        with Image.OPEN[name][0](io.BytesIO(content), "") as image:
            return (image.height, image.width), image.mode
    except Exception:  # Pillow raises all kinds on broken files
        return None


def jpeg_damage(encoded: npt.NDArray[np.uint8]) -> str:
    """Explain how the compressed data of a JPEG file, ``(num_bytes,)``, are damaged; empty if none is found.

    Decoders make pixels of such files, DALI without an error. All compressed data are read, and few pixels made,
    which takes about half as long as to decode it. Damage that leaves valid codes cannot be found. Other files
    are not looked at: damage that their decoders notice is an error everywhere.

    Raises:
        ImportError: simplejpeg is not installed.
    """
    if encoded.ndim != 1 or encoded[:2].tobytes() != _JPEG:
        return ""
    simplejpeg: Any = importlib.import_module("simplejpeg")
    content = np.ascontiguousarray(encoded)
    try:
        height, width, color_space, _ = simplejpeg.decode_jpeg_header(content)
        colors = "CMYK" if color_space in ("CMYK", "YCCK") else "GRAY"
        simplejpeg.decode_jpeg(content, colors, min_height=-(-height // 8), min_width=-(-width // 8))
    except ValueError as error:
        return f"the JPEG file of {encoded.size} bytes is damaged: {error}"
    return ""


def too_many_pixels(height: int, width: int) -> str:
    """Describe the excess of an image over the limit, as part of a sentence; empty if there is none."""
    return IMAGE_PIXELS.excess(height * width, f"{width} x {height} pixels")


def too_large(encoded: npt.NDArray[np.uint8]) -> str:
    """Explain why an image file, ``(num_bytes,)``, is too large, as part of a sentence; empty if it is not."""
    size = claimed_size(encoded)
    if size is None:
        return ""
    excess = too_many_pixels(*size)
    return f"the file of {encoded.size} bytes claims an image of {excess}" if excess else ""
