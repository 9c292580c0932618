# SPDX-License-Identifier: Apache-2.0
"""Reading of video files: MP4 boxes, EBML numbers, and checks of paths."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

MOST_ELEMENTS = 100_000  # bounds the walk through a damaged file
_MP4_CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl")


@contextlib.contextmanager
def opened(source: Any) -> Iterator[BinaryIO]:
    """Open a path or bytes, or lend an open binary file, whose position is restored."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield io.BytesIO(source)
    elif isinstance(source, (str, os.PathLike)):
        if not is_file_or_missing(source):
            raise OSError("no regular file")
        with open(source, "rb") as file:
            yield file
    else:
        position = source.tell()
        try:
            yield source
        finally:
            source.seek(position)


def is_file_or_missing(path: str | os.PathLike[str]) -> bool:
    """Whether to open a path cannot block: pipes wait for a writer, and devices may have no end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # to open it tells why
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def is_empty(source: Any) -> bool:
    """Whether a path, bytes, or an open binary file has no bytes at all; False where it cannot be read."""
    try:
        with opened(source) as file:
            return file.seek(0, os.SEEK_END) == 0
    except (OSError, ValueError, AttributeError):
        return False


def path_advice(path: Any) -> str:
    """Advice on a path that cannot be opened, with a leading space; empty where there is none."""
    if not isinstance(path, (str, os.PathLike)):
        return ""
    if "://" in str(path):
        return (
            " Videos are read from local folders only, and this is a URL: download it, or mount its storage as a "
            "folder. (Files and frames can be remote, see FileDataProvider and FrameSequenceDataProvider.)"
        )
    if os.path.isdir(path):
        return f" Name the videos in the folder, e.g. sorted(Path({os.fspath(path)!r}).glob('*.mp4'))."
    if "*" in str(path):
        return " Patterns are not expanded: name the files, e.g. sorted(Path().glob(pattern))."
    return ""


def mp4_boxes(file: BinaryIO, start: int, end: int, *, enters: bool = True) -> Iterator[tuple[bytes, int, int]]:
    """Walk the boxes of an MP4 file: name, start and end of the content of each.

    Args:
        enters: Whether to walk also the boxes within those that lead to the codec.
    """
    for _ in range(MOST_ELEMENTS):
        if start + 8 > end:
            return
        file.seek(start)
        length, name = struct.unpack(">I4s", file.read(8))
        header = 8
        if length == 1:
            length, header = struct.unpack(">Q", file.read(8))[0], 16
        stop = end if length == 0 else start + length
        if stop < start + header:
            return
        yield name, start + header, stop
        # Enter boxes that contain boxes; skip the content of others.
        start = start + header if enters and name in _MP4_CONTAINERS else stop


def ebml_number(file: BinaryIO, keeps_marker: bool = False) -> int:
    """Read an EBML variable-length integer (vint)."""
    first = file.read(1)[0]
    num_bytes = 9 - first.bit_length()
    value = first if keeps_marker else first & (0xFF >> num_bytes)
    return int.from_bytes(bytes([value]) + file.read(num_bytes - 1), "big")
