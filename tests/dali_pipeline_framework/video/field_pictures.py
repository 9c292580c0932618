"""H.264 whose frames are coded as two field pictures each, which no encoder at hand makes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from support.videos import draw_number

_COLUMNS, _ROWS = 6, 4  # macroblocks of a frame: 96 x 64 pixels
_COUNTER_BITS = 8  # of frames, and of their order
_KEY_INTERVAL = 12


class _Bits:
    def __init__(self) -> None:
        self.text = ""

    def fixed(self, value: int, width: int) -> None:
        self.text += f"{value:0{width}b}" if width else ""

    def counted(self, value: int) -> None:
        """Exp-Golomb code."""
        code = f"{value + 1:b}"
        self.text += "0" * (len(code) - 1) + code

    def align(self) -> None:
        self.text += "0" * (-len(self.text) % 8)

    def unit(self, header: int) -> bytes:
        self.text += "1"
        self.align()
        content = int(self.text, 2).to_bytes(len(self.text) // 8, "big")
        escaped = bytearray([header])
        for byte in content:
            if byte <= 3 and escaped[-2:] == b"\0\0":
                escaped.append(3)
            escaped.append(byte)
        return bytes(b"\0\0\0\1" + escaped)


def _parameter_sets() -> bytes:
    bits = _Bits()
    bits.fixed(77 << 16 | 0 << 8 | 30, 24)  # main profile, level 3
    for value in (0, _COUNTER_BITS - 4, 0, _COUNTER_BITS - 4, 1):
        bits.counted(value)  # id, counter of frames, kind and counter of their order, reference frames
    bits.fixed(0, 1)
    bits.counted(_COLUMNS - 1)
    bits.counted(_ROWS // 2 - 1)
    bits.fixed(0b00100, 5)  # not only frames, not adaptive, direct 8x8, no cropping, no VUI
    sequence = bits.unit(0x67)
    bits = _Bits()
    bits.counted(0)
    bits.counted(0)
    bits.fixed(0, 2)
    for value in (0, 0, 0):
        bits.counted(value)
    bits.fixed(0, 3)
    for _ in range(3):
        bits.counted(0)
    bits.fixed(0b100, 3)  # a slice says how it is deblocked
    return sequence + bits.unit(0x68)


def _field(planes: list[np.ndarray], number: int, is_bottom: bool) -> bytes:
    """A field with its pixels as they are; but for key frames its lower half is that of the frame before."""
    since_key = number % _KEY_INTERVAL
    is_key = since_key == 0 and not is_bottom
    bits = _Bits()
    for value in (0, 5 if since_key else 7, 0):
        bits.counted(value)
    bits.fixed(since_key, _COUNTER_BITS)
    bits.fixed(0b10 | is_bottom, 2)
    if is_key:
        bits.counted(number // _KEY_INTERVAL % 2)
    bits.fixed(2 * since_key + is_bottom, _COUNTER_BITS)
    bits.fixed(0, (2 if since_key else 0) + (2 if is_key else 1))
    bits.counted(0)
    bits.counted(1)  # no deblocking
    for place in range(_COLUMNS if since_key else _COLUMNS * _ROWS // 2):
        row, column = divmod(place, _COLUMNS)
        if since_key:
            bits.counted(0)  # none is passed over
        bits.counted(30 if since_key else 25)  # samples as they are
        bits.align()
        for plane, size in zip(planes, (16, 8, 8), strict=True):
            block = plane[row * size : (row + 1) * size, column * size : (column + 1) * size]
            bits.text += "".join(f"{value:08b}" for value in block.reshape(-1).tolist())
    if since_key:
        bits.counted(_COLUMNS)
    return bits.unit(0x65 if is_key else 0x61)


def field_picture_packets(num_frames: int, is_joined: bool) -> list[bytes]:
    """Make packets of frames that show their numbers, below 64.

    Args:
        num_frames: Number of frames; each 12th is a key frame.
        is_joined: Whether both fields of a frame are one packet.
    """
    packets = []
    for number in range(num_frames):
        image = av.VideoFrame.from_ndarray(draw_number(number), format="rgb24").reformat(format="yuv420p")
        pixels = image.to_ndarray()  # (96, 96): Y, then U and V with two rows in one
        chroma = pixels[64:].reshape(2, 32, 48)
        planes = [np.clip(plane, 1, 255) for plane in (pixels[:64], chroma[0], chroma[1])]
        head = _parameter_sets() if number % _KEY_INTERVAL == 0 else b""
        top, bottom = (_field([plane[parity::2] for plane in planes], number, bool(parity)) for parity in (0, 1))
        packets += [head + top + bottom] if is_joined else [head + top, bottom]
    return packets


def make_field_pictures(path: Path, num_frames: int, *, is_joined: bool) -> Path:
    """Write a video of field pictures, see `field_picture_packets`; a raw stream for ``.h264``."""
    packets = field_picture_packets(num_frames, is_joined)
    if path.suffix == ".h264":
        path.write_bytes(b"".join(packets))
        return path
    raw = path.with_suffix(".h264")
    raw.write_bytes(b"".join(packets[:2]))
    rate = 25 if is_joined else 50
    with av.open(str(raw)) as source, av.open(str(path), "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        stream.time_base = Fraction(1, 90000)
        for number, content in enumerate(packets):
            packet = av.Packet(content)
            packet.stream = stream
            packet.time_base = Fraction(1, 90000)
            packet.pts = packet.dts = number * 90000 // rate
            packet.duration = 90000 // rate
            packet.is_keyframe = content[4] & 0x1F == 7
            container.mux(packet)
    raw.unlink()
    return path
