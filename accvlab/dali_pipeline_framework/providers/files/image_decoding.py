# SPDX-License-Identifier: Apache-2.0
"""Decoding of images in the process that loads them."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FileError, MissingPackageError
from ...limits.image_limits import too_large, too_many_pixels


def pillow_image_module() -> ModuleType:
    """Import Pillow, or raise a `SettingError` where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(
            "Images are decoded by Pillow, which is not installed. Install it with: "
            "pip install 'accvlab.dali_pipeline_framework[images]', or leave decoding to the step ImageDecoder."
        ) from error
    return Image


def decoded_rgb(content: npt.NDArray[np.uint8], path: str) -> npt.NDArray[np.uint8]:
    """Decode an image as DALI's decoders do: turned as its EXIF data say, gray as RGB, without alpha channel.

    Args:
        content: ``(num_bytes,)``, the bytes of the file.
        path: Name of the file, for messages.

    Returns:
        ``(H, W, 3)`` uint8, RGB; values of 16 bits are scaled to 8.

    Raises:
        FileError: It is no image that Pillow can decode, or broken; or one of floating-point values.
        SettingError: Pillow is not installed.
    """
    problem = too_large(content)
    if problem:
        raise FileError(f"The file {path!r} cannot be decoded as an image: {problem}.")
    image_module = pillow_image_module()
    from PIL import ImageOps

    try:
        with image_module.open(io.BytesIO(content.data)) as image:
            excess = too_many_pixels(image.height, image.width)  # also of formats that only Pillow knows
            if excess:
                raise ValueError(f"it claims an image of {excess}")
            return _as_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # Pillow raises all kinds on broken files
        raise FileError(f"The file {path!r} cannot be decoded as an image: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    text = str(error).rstrip(".") or type(error).__name__
    return "Pillow knows no format that begins like it" if "cannot identify image file" in text else text


def _as_rgb(image: Any) -> npt.NDArray[np.uint8]:
    if image.mode == "F":
        raise ValueError("its values are floating-point numbers, of which no range is known")
    if image.mode == "I" or image.mode.startswith("I;16"):
        # Pillow would clip values above 255.
        gray = np.asarray(image).astype(np.uint32)
        gray = ((gray * 255 + 32767) // 65535).astype(np.uint8)
        return np.repeat(gray[:, :, np.newaxis], 3, axis=2)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns of any other way
    return np.array(image.convert("RGB"))
