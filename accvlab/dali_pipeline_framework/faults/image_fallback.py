# SPDX-License-Identifier: Apache-2.0
"""Images that DALI cannot decode, decoded by another library and encoded again without loss, as PNG."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError, MissingPackageError, SettingError
from .fault_policy import FallbackDecoder

_Image = npt.NDArray[np.uint8]
_EXTRAS = {"pillow": ("PIL", "images"), "opencv": ("cv2", "cpu")}


def re_encoded(encoded: npt.NDArray[np.uint8], decoder: FallbackDecoder) -> npt.NDArray[np.uint8]:
    """Decode an image file by another library, and encode it as PNG.

    The pixels are those that DALI would decode: eight bits, turned as the EXIF data say, alpha dropped.

    Args:
        encoded: ``(num_bytes,)``, the bytes of the file.
        decoder: Which library.

    Returns:
        ``(num_bytes,)`` uint8: a PNG file, gray or RGB.

    Raises:
        FieldValueError: The library cannot decode it either.
        SettingError: The library is not installed.
    """
    decode = _by_pillow if decoder == "pillow" else _by_opencv
    try:
        image = decode(encoded.tobytes())
    except SettingError:
        raise
    except Exception as error:  # whatever a decoder raises about broken bytes
        raise FieldValueError(f"{decoder} cannot decode it: {type(error).__name__}: {error}") from error
    return np.frombuffer(_png(image), np.uint8)


def require_decoder(decoder: FallbackDecoder) -> None:
    """Raise a `SettingError` where the library is not installed."""
    package, extra = _EXTRAS[decoder]
    try:
        __import__(package)
    except ImportError as error:
        raise MissingPackageError(
            f"fallback_decoder={decoder!r} needs {package}, which is not installed. Install the extra `{extra}`."
        ) from error


def _by_pillow(content: bytes) -> _Image:
    require_decoder("pillow")
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as file:
        file.load()
        image = cast(Any, ImageOps.exif_transpose(file))
        if image.mode in ("1", "L", "LA", "La"):
            return np.array(image.convert("L"))
        if image.mode.startswith("I;16") or image.mode in ("I", "F"):
            return _eight_bits(np.array(image))
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA")
        return np.array(image.convert("RGB"))


def _by_opencv(content: bytes) -> _Image:
    require_decoder("opencv")
    import cv2

    bgr = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    if bgr is None:
        raise ValueError("no image of a kind that it knows")
    return np.ascontiguousarray(_eight_bits(bgr)[..., ::-1])


def _eight_bits(image: npt.NDArray[Any]) -> _Image:
    if image.dtype == np.uint8:
        return image
    if np.issubdtype(image.dtype, np.floating):  # of unknown range, usually [0, 1]
        scale = 255.0 if image.size and image.max() <= 1 else 1.0
        return np.clip(np.rint(image * scale), 0, 255).astype(np.uint8)
    return np.clip((image.astype(np.int64) + 128) // 257, 0, 255).astype(np.uint8)


def _png(image: _Image) -> bytes:
    """Write ``(H, W)`` or ``(H, W, 3)`` as PNG: a dozen lines spare a dependency on either library."""
    height, width = image.shape[:2]
    rows = np.zeros((height, 1 + image[0].size), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if image.ndim == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
