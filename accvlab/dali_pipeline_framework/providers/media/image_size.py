# SPDX-License-Identifier: Apache-2.0
"""Image size from the header of a JPEG or PNG file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_SEGMENTS = 64
_WITHOUT_SIZE = (
    0xC4,
    0xC8,
    0xCC,
)  # DHT, JPG, DAC: of the markers C0 to CF, those that are no start of frame (SOF)
_WITHOUT_CONTENT = (0x01, *range(0xD0, 0xD8))


def image_size(content: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    """Read height and width, in pixels as stored, of a JPEG or PNG file, ``(num_bytes,)`` uint8, without decoding.

    None for other formats, and for files that are damaged where the size should be.
    """
    if content[:8].tobytes() == _PNG and len(content) >= 24:
        width, height = content[16:24].view(">u4").tolist()
        return height, width
    if content[:2].tobytes() == b"\xff\xd8":
        return _jpeg_size(content)
    return None


def _jpeg_size(content: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    position = 2
    for _ in range(_MOST_SEGMENTS):
        head = content[position : position + 9].tolist()
        if len(head) < 9 or head[0] != 0xFF:
            return None
        marker = head[1]
        if marker == 0xFF:  # fill byte
            position += 1
        elif marker in _WITHOUT_CONTENT:
            position += 2
        elif 0xC0 <= marker <= 0xCF and marker not in _WITHOUT_SIZE:
            return head[5] << 8 | head[6], head[7] << 8 | head[8]
        else:
            position += 2 + (head[2] << 8 | head[3])
    return None
