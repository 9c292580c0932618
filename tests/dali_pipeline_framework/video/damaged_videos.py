"""Videos that are damaged in the ways that FFmpeg does not report."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import av


def zeroed(source: Path, path: Path, position: int, length: int = 200) -> Path:
    """Copy a file with some bytes set to 0."""
    content = bytearray(source.read_bytes())
    content[position : position + length] = bytes(len(content[position : position + length]))
    path.write_bytes(content)
    return path


def without_packets(source: Path, path: Path, dropped: Collection[int]) -> Path:
    """Copy a video without some of its packets, numbered in the order of decoding."""
    with av.open(str(source)) as original, av.open(str(path), "w") as copy:
        stream = original.streams.video[0]
        target = copy.add_stream_from_template(stream)
        for number, packet in enumerate(original.demux(stream)):
            if packet.size and number not in dropped:
                packet.stream = target
                copy.mux(packet)
    return path
