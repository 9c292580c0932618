# SPDX-License-Identifier: Apache-2.0
"""The most pixels of an image that is decoded.

A file of a few hundred bytes can claim an image of gigabytes. Decoders reserve that memory before they find out
that the file holds nothing of it, and the process is killed. So the header is read first.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from .file_limits import IMAGE_PIXELS
from .image_headers import claimed_size


def too_many_pixels(height: int, width: int) -> str:
    """Say how large an image is, and how large it may be, as part of a sentence; empty where it may be."""
    return IMAGE_PIXELS.excess(height * width, f"{width} x {height} pixels")


def too_large(encoded: npt.NDArray[Any]) -> str:
    """Say why an image file, ``(num_bytes,)``, is not decoded, as part of a sentence; empty where it may be."""
    size = claimed_size(encoded)
    if size is None:
        return ""
    excess = too_many_pixels(*size)
    return f"the file of {encoded.size} bytes claims an image of {excess}" if excess else ""
