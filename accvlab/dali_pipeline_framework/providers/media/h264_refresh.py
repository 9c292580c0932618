# SPDX-License-Identifier: Apache-2.0
"""NAL units of H.264 packets, and where gradual decoder refresh begins (ITU-T H.264)."""

from __future__ import annotations

from collections.abc import Iterator

# nal_unit_type
SLICES = (1, 2, 5)  # non-IDR, data partition A, IDR
SEI = 6
SPS = 7
_RECOVERY_POINT = 6  # payloadType of an SEI message


def begins_refresh(packet: bytes) -> bool:
    """Whether gradual decoder refresh begins here: the whole picture is right only some frames later.

    Containers mark such packets as key frames. But a decoder that starts there can deliver wrong frames without
    an error (FFmpeg does where ``frame_num`` is 0).

    Args:
        packet: An access unit, in Annex B format (start codes) or with NAL unit lengths of four bytes.
    """
    for unit in nal_units(packet):
        unit_type = nal_unit_type(unit)
        if unit_type in SLICES:
            return False
        if unit_type == SEI:
            payload = _recovery_point(unit)
            if payload:  # begins with recovery_frame_cnt, an Exp-Golomb code: 0 is the single bit 1
                return not payload[0] & 0x80
    return False


def nal_units(packet: bytes) -> Iterator[bytes]:
    """Split a packet in Annex B format, or with lengths of four bytes, into its NAL units."""
    if packet.startswith((b"\0\0\1", b"\0\0\0\1")):
        yield from packet.split(b"\0\0\1")[1:]
        return
    position = 0
    while position + 4 < len(packet):
        end = position + 4 + int.from_bytes(packet[position : position + 4], "big")
        yield packet[position + 4 : end]
        position = end


def nal_unit_type(unit: bytes) -> int:
    """Get the type of a NAL unit; 0 of an empty one."""
    return unit[0] & 0x1F if unit else 0


def _recovery_point(unit: bytes) -> bytes:
    """Payload of the recovery point message in an SEI NAL unit; empty where there is none."""
    position = 1
    while position + 2 < len(unit):
        numbers = []  # payloadType and payloadSize, each coded as 0xFF bytes and a last byte
        for _ in range(2):
            number = 0
            while position < len(unit) - 1 and unit[position] == 0xFF:
                number += 255
                position += 1
            numbers.append(number + unit[position])
            position += 1
        payload_type, size = numbers
        if payload_type == _RECOVERY_POINT:
            return unit[position : position + size]
        position += size
    return b""
