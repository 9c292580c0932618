# SPDX-License-Identifier: Apache-2.0
"""The most pixels of an image that is decoded.

A file of a few hundred bytes can claim an image of gigabytes. Decoders reserve that memory before they find out
that the file holds nothing of it, and the process is killed. So the header is read first.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy.typing as npt

from ..checks import whole_number
from ..errors import SettingError
from .image_headers import claimed_size

VARIABLE: Final = "ACCVLAB_MOST_IMAGE_PIXELS"
_DEFAULT: Final = 1 << 28

_most: int | None = None  # of this process, once it is known


def most_image_pixels() -> int:
    """Most pixels of an image, height times width: 2**28, or what ``$ACCVLAB_MOST_IMAGE_PIXELS`` says.

    Raises:
        SettingError: The variable is no whole number of at least 1.
    """
    global _most
    if _most is None:
        text = os.environ.get(VARIABLE)
        try:
            _most = _DEFAULT if text is None else whole_number(int(text), VARIABLE, at_least=1)
        except ValueError as error:
            raise SettingError(f"${VARIABLE} must be a whole number of at least 1, got {text!r}.") from error
    return _most


def set_most_image_pixels(count: int) -> None:
    """Set the most pixels of an image, for this process and those that it starts later.

    Args:
        count: Height times width, at most.

    Raises:
        SettingError: It is no whole number of at least 1.
    """
    global _most
    _most = whole_number(count, "count", at_least=1)
    os.environ[VARIABLE] = str(_most)


def too_many_pixels(height: int, width: int) -> str:
    """Say how large an image is, and how large it may be, as part of a sentence; empty where it may be."""
    most = _most or most_image_pixels()
    if height * width <= most:
        return ""
    return (
        f"{width} x {height} pixels, more than the limit of {most}. Where it is meant, raise the limit: "
        f"`limits.set_most_image_pixels`, or ${VARIABLE}"
    )


def too_large(encoded: npt.NDArray[Any]) -> str:
    """Say why an image file, ``(num_bytes,)``, is not decoded, as part of a sentence; empty where it may be."""
    size = claimed_size(encoded)
    if size is None:
        return ""
    height, width = size
    if height * width <= (_most or most_image_pixels()):
        return ""
    return f"the file of {encoded.size} bytes claims an image of {too_many_pixels(height, width)}"
