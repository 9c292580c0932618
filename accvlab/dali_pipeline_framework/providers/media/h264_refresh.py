# SPDX-License-Identifier: Apache-2.0
"""H.264 without key frames: streams that refresh the picture piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

_SLICES, _SUPPLEMENTS, _RECOVERY_POINT = (1, 2, 5), 6, 6


def begins_refresh(packet: bytes) -> bool:
    """Whether a picture only begins to be refreshed here, so that the whole picture is right some frames later.

    Containers mark such packets as key frames. But a decoder that begins there can come out with wrong frames and
    no error (FFmpeg does where the counter of frames in the stream is 0).

    Args:
        packet: An access unit, with start codes or with lengths of four bytes.
    """
    for unit in units_of(packet):
        kind = unit[0] & 0x1F if unit else 0
        if kind in _SLICES:
            return False
        if kind == _SUPPLEMENTS:
            payload = _recovery_point(unit)
            if payload:  # begins with the number of frames until then, of which 0 is the bit 1
                return not payload[0] & 0x80
    return False


def units_of(packet: bytes) -> Iterator[bytes]:
    """Get the units of a packet, which has start codes or lengths of four bytes."""
    if packet.startswith((b"\0\0\1", b"\0\0\0\1")):
        yield from packet.split(b"\0\0\1")[1:]
        return
    position = 0
    while position + 4 < len(packet):
        end = position + 4 + int.from_bytes(packet[position : position + 4], "big")
        yield packet[position + 4 : end]
        position = end


def _recovery_point(unit: bytes) -> bytes:
    position = 1
    while position + 2 < len(unit):
        numbers = []  # type and size
        for _ in range(2):
            number = 0
            while position < len(unit) - 1 and unit[position] == 0xFF:
                number += 255
                position += 1
            numbers.append(number + unit[position])
            position += 1
        kind, size = numbers
        if kind == _RECOVERY_POINT:
            return unit[position : position + size]
        position += size
    return b""
