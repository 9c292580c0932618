# SPDX-License-Identifier: Apache-2.0
"""What the first bits of packets state: gradual refresh in H.264, and pictures without a packet of their own."""

from __future__ import annotations

_SLICES = (1, 2, 5)  # nal_unit_type: non-IDR, data partition A, IDR
_SEI = 6
_RECOVERY_POINT = 6  # payloadType of an SEI message
_AV1_HEADERS = (3, 6)  # obu_type: frame header, frame


def begins_refresh(packet: bytes) -> bool:
    """Whether gradual decoder refresh begins here: the whole picture is right only some frames later.

    Containers mark such packets as key frames. But a decoder that starts there can deliver wrong frames without
    an error (FFmpeg does where ``frame_num`` is 0).

    Args:
        packet: An access unit of H.264, with start codes or with NAL unit lengths of four bytes.
    """
    for unit in _nal_units(packet):
        unit_type = unit[0] & 0x1F if unit else 0
        if unit_type in _SLICES:
            return False
        payload = _recovery_point(unit) if unit_type == _SEI else b""
        if payload:  # begins with recovery_frame_cnt, an Exp-Golomb code: 0 is the single bit 1
            return not payload[0] & 0x80
    return False


def _nal_units(packet: bytes) -> list[bytes]:
    units: list[bytes] = []
    position = 0
    while position + 4 < len(packet):
        end = position + 4 + int.from_bytes(packet[position : position + 4], "big")
        units.append(packet[position + 4 : end])
        position = end
    # A length from 256 to 511 begins as a start code does.
    if position != len(packet) and packet.startswith((b"\0\0\1", b"\0\0\0\1")):
        return packet.split(b"\0\0\1")[1:]
    return units


def _recovery_point(unit: bytes) -> bytes:
    """Payload of the recovery point message in an SEI NAL unit; empty if there is none."""
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


def pictures_in(packet: bytes | memoryview, codec_name: str) -> tuple[int, bool]:
    """Get the number of pictures that a packet decodes, and whether it shows a frame.

    Of most codecs that is ``(1, True)``. VP8, VP9 and AV1 have pictures that are only referred to; VP9 and AV1
    also packets that show again what was decoded before: ``(0, True)``.
    """
    if codec_name == "vp8":
        return 1, bool(packet[0] & 0x10)
    if codec_name == "vp9":
        if packet[-1] & 0xE0 == 0xC0:  # the marker at the end of several frames in one packet
            return (packet[-1] & 7) + 1, True
        # From the highest bit: marker (2 bits), profile (2, and 1 more with profile 3), show_existing_frame,
        # frame_type, show_frame.
        bits = packet[0] << 1 if packet[0] & 0x30 == 0x30 else packet[0]
        return (0, True) if bits & 0x08 else (1, bool(bits & 0x02))
    if codec_name == "av1":  # a temporal unit, which shows one frame
        return sum(not first & 0x80 for first in _first_bytes_of_av1_frames(packet)), True
    return 1, True


def _first_bytes_of_av1_frames(packet: bytes | memoryview) -> list[int]:
    """Get the first byte of each frame header, whose highest bit is ``show_existing_frame``."""
    found, position = [], 0
    while position < len(packet):
        header = packet[position]
        position += 2 if header & 0x04 else 1  # obu_extension_flag
        size, shift = len(packet) - position, 0
        if header & 0x02:  # obu_has_size_field: LEB128
            size = 0
            while position < len(packet):
                byte = packet[position]
                size |= (byte & 0x7F) << shift
                position, shift = position + 1, shift + 7
                if not byte & 0x80:
                    break
        if header >> 3 & 0x0F in _AV1_HEADERS and position < len(packet):
            found.append(packet[position])
        position += size
    return found
