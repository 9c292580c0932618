# SPDX-License-Identifier: Apache-2.0
"""Interlaced H.264 whose frames are coded as two field pictures each, which can be packets of their own."""

from __future__ import annotations

from .h264_refresh import units_of

_SLICES, _SEQUENCE_SETTINGS = (1, 2, 5), 7
_PROFILES_WITH_CHROMA = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
_MOST_BYTES = 400  # of a unit that are looked at


class FieldPictureSearch:
    """Looks for field pictures in a stream. Most streams have none, which their settings tell at once.

    Attributes:
        is_possible: Whether the settings that were seen allow for field pictures.
    """

    def __init__(self, extradata: bytes | None) -> None:
        """Begin.

        Args:
            extradata: The settings of the stream as the container has them.
        """
        self.is_possible = False
        self._settings: set[bytes] = set()
        self._counter_bits = 4
        self._has_colour_planes = False
        for unit in _units_of_extradata(extradata or b""):
            self._take_settings(unit)

    def is_found_in(self, packet: bytes) -> bool:
        """Whether a packet (with start codes or lengths) has a field picture."""
        for unit in units_of(packet):
            kind = unit[0] & 0x1F if unit else 0
            if kind == _SEQUENCE_SETTINGS:
                self._take_settings(unit)
            elif kind in _SLICES and self.is_possible:
                return self._is_of_field(unit)
        return False

    def _take_settings(self, unit: bytes) -> None:
        if unit in self._settings:
            return
        self._settings.add(unit)
        bits = _Bits(unit[1:_MOST_BYTES])
        profile = bits.fixed(8)
        bits.fixed(16)
        bits.counted()
        self._has_colour_planes = False
        if profile in _PROFILES_WITH_CHROMA:
            chroma = bits.counted()
            if chroma == 3:
                self._has_colour_planes = bool(bits.fixed(1))
            bits.counted()
            bits.counted()
            bits.fixed(1)
            if bits.fixed(1):
                for number in range(12 if chroma == 3 else 8):
                    if bits.fixed(1):
                        bits.pass_scaling_list(16 if number < 6 else 64)
        self._counter_bits = bits.counted() + 4
        order_kind = bits.counted()
        if order_kind == 0:
            bits.counted()
        elif order_kind == 1:
            bits.fixed(1)
            bits.counted()
            bits.counted()
            for _ in range(bits.counted()):
                bits.counted()
        bits.counted()
        bits.fixed(1)
        bits.counted()
        bits.counted()
        self.is_possible = self.is_possible or not bits.fixed(1)

    def _is_of_field(self, unit: bytes) -> bool:
        if len(self._settings) > 1:
            return True  # which of them count here is not looked for
        bits = _Bits(unit[1:32])
        for _ in range(3):
            bits.counted()
        bits.fixed(2 * self._has_colour_planes + self._counter_bits)
        return bool(bits.fixed(1))


def _units_of_extradata(extradata: bytes) -> list[bytes]:
    if extradata[:1] != b"\1":
        return [*units_of(extradata)]
    units: list[bytes] = []
    position = 6
    for _ in range(extradata[5] & 0x1F if len(extradata) > 5 else 0):
        end = position + 2 + int.from_bytes(extradata[position : position + 2], "big")
        units.append(extradata[position + 2 : end])
        position = end
    return [unit for unit in units if unit and unit[0] & 0x1F == _SEQUENCE_SETTINGS]


class _Bits:
    """Reads numbers from the bits of a unit; behind its end they are 1."""

    def __init__(self, content: bytes) -> None:
        content = content.replace(b"\0\0\3", b"\0\0")  # bytes that keep start codes from occurring within
        self._value = int.from_bytes(content + b"\xff" * 16, "big")
        self._num_left = 8 * (len(content) + 16)

    def fixed(self, width: int) -> int:
        self._num_left = max(self._num_left - width, 0)
        return self._value >> self._num_left & ((1 << width) - 1)

    def counted(self) -> int:
        """Exp-Golomb code."""
        num_zeros = 0
        while num_zeros < 32 and not self.fixed(1):
            num_zeros += 1
        return (1 << num_zeros) - 1 + self.fixed(num_zeros)

    def pass_scaling_list(self, length: int) -> None:
        last = following = 8
        for _ in range(length):
            if following:
                code = self.counted()
                following = (last + (code + 1) // 2 * (1 if code % 2 else -1)) % 256
            last = following or last
