# SPDX-License-Identifier: Apache-2.0
"""The most that a file may have, or may become when it is read.

A table of 100 kilobytes can be unpacked to gigabytes. So what a file claims is looked at first.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from ..checks import shown, whole_number
from ..errors import SettingError


class FileTooLargeError(OSError):
    """A file has more than it may."""


class Limit:
    """A number that can be set, for this process and the workers that it starts afterwards."""

    def __init__(self, most: int, setter: str) -> None:
        """Set the default; ``setter`` is the name of the function of `limits`, for messages."""
        self.most, self._setter = most, setter

    def get(self) -> int:
        """Get the limit."""
        return self.most

    def set(self, count: int) -> None:
        """Set the limit, for this process and the workers that it starts afterwards.

        Raises:
            SettingError: It is no whole number of at least 1.
        """
        self.most = whole_number(count, "count", at_least=1)

    def excess(self, count: int, what: str) -> str:
        """Say that something has more than may be, in words like ``"it has {} bytes"``; empty where it has not."""
        if count <= self.most:
            return ""
        return (
            f"{what.format(count)}, more than the limit of {self.most}. Where it is meant, raise the limit: "
            f"`limits.{self._setter}`"
        )

    def require(self, count: int, what: str) -> None:
        """Raise a `FileTooLargeError` where something has more than may be, see `excess`."""
        excess = self.excess(count, what)
        if excess:
            raise FileTooLargeError(errno.EFBIG, excess)


FILE_BYTES: Final = Limit(1 << 33, "set_most_file_bytes")
"""Bytes of a file that is read as a whole."""

UNPACKED_BYTES: Final = Limit(1 << 31, "set_most_unpacked_bytes")
"""Bytes that what is compressed may become: a file in an archive, a table, a batch of records of a log."""

IMAGE_PIXELS: Final = Limit(1 << 28, "set_most_image_pixels")
"""Pixels of an image, height times width."""

most_file_bytes, set_most_file_bytes = FILE_BYTES.get, FILE_BYTES.set
most_unpacked_bytes, set_most_unpacked_bytes = UNPACKED_BYTES.get, UNPACKED_BYTES.set
most_image_pixels, set_most_image_pixels = IMAGE_PIXELS.get, IMAGE_PIXELS.set

_ALL: Final = (FILE_BYTES, UNPACKED_BYTES, IMAGE_PIXELS)


def all_limits() -> list[int]:
    """Get all limits, for `set_all_limits` in a process that was not forked."""
    return [limit.most for limit in _ALL]


def set_all_limits(counts: Iterable[int]) -> None:
    """Set all limits, as `all_limits` has returned them in another process."""
    for limit, count in zip(_ALL, counts, strict=True):
        limit.most = count


def opened_file(path: str | os.PathLike[str], *, is_limited: bool = True) -> tuple[int, os.stat_result]:
    """Open a local file for reading: its descriptor, and what the system says of it.

    Raises:
        OSError: It cannot be opened, is too large (`FileTooLargeError`), or is no regular file: to read a pipe
            could take for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would block
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if is_limited:
            FILE_BYTES.require(status.st_size, "it has {} bytes")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def open_table(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a local file for reading, see `opened_file`."""
    return os.fdopen(opened_file(path)[0], "rb")


def read_table(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Read a text file.

    Raises:
        OSError: See `open_table`.
        UnicodeDecodeError: It is no such text.
    """
    with io.TextIOWrapper(open_table(path), encoding=encoding) as file:
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: It is none (a `json.JSONDecodeError` where a place in it is wrong), or its values are nested
            too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None


_MOST: Final = 1024
# What a worker takes at least, beside what all share: one that only hands on numbers, without PyTorch.
_FORKED_BYTES: Final = 8 * 2**20
_OWN_BYTES: Final = 48 * 2**20


def is_start_method(value: object) -> TypeGuard[str]:
    """Whether it is a way to start processes."""
    return isinstance(value, str) and str.__str__(value) in ("fork", "spawn", "forkserver")


def checked_worker_count(value: object, name: str, start_method: object, *, at_least: int = 0) -> int:
    """Check a number of worker processes: at most 1024, and as many as the memory could hold at all.

    Raises:
        SettingError: It is no whole number of at least ``at_least``, or larger than that.
    """
    count = whole_number(value, name, at_least=at_least)
    least_bytes = (
        _FORKED_BYTES if is_start_method(start_method) and str.__str__(start_method) == "fork" else _OWN_BYTES
    )
    memory = all_memory()
    most = max(1, min(_MOST, memory // least_bytes))
    if count <= most:
        return count
    cores = len(os.sched_getaffinity(0))
    raise SettingError(
        f"`{name}` must be at most {most} here, got {shown(count)}: each worker is a process that takes at least "
        f"{least_bytes >> 20} MiB, of {memory >> 20} MiB in all, and there may be no more than {_MOST}. Usually a "
        f"worker for each core that this process can use ({cores}) is the most that is of use."
    )


def all_memory() -> int:
    """Bytes of memory that this process could have at most: those of the machine, or of its control group."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)


_JPEG: Final = b"\xff\xd8"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_MARKER: Final = re.compile(rb"\xff([^\x00\xff])")  # libjpeg skips all that is between segments
_WITHOUT_SIZE: Final = (0xC4, 0xC8, 0xCC)  # DHT, JPG, DAC: of the markers C0 to CF, those that begin no frame
_WITHOUT_CONTENT: Final = (0x01, *range(0xD0, 0xD9))  # TEM, RST, SOI
_LAST_BEFORE_PIXELS: Final = (0xD9, 0xDA)  # EOI, SOS
# Not WebP: Pillow reserves the pixels with the header, and there are at most 16383 x 16383.
_BY_PILLOW: Final = {
    **{b"BM": "BMP", b"II": "TIFF", b"MM": "TIFF", b"\0\0": "JPEG2000", b"\xff\x4f": "JPEG2000"},
    **dict.fromkeys((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"), "PPM"),
}


def claimed_size(encoded: npt.NDArray[np.uint8]) -> tuple[int, int] | None:
    """Read the height and width that an image file claims, without decoding.

    Args:
        encoded: ``(num_bytes,)`` uint8: JPEG or PNG; with Pillow also BMP, TIFF, PNM or JPEG 2000.

    Returns:
        Height and width in pixels as stored; None for other files, and for those that are damaged there, which no
        decoder takes.
    """
    if encoded.ndim != 1:
        return None
    array: Any = encoded if encoded.flags.c_contiguous else np.ascontiguousarray(encoded)
    content = memoryview(array)
    head = bytes(content[: len(_PNG)])
    try:
        if head.startswith(_JPEG):
            return _jpeg(content)
        if head == _PNG:
            return _png(content)
    except (struct.error, IndexError):
        return None
    name = _BY_PILLOW.get(head[:2])
    return None if name is None else _by_pillow(content, name)


def decoded_already(image: npt.NDArray[np.generic]) -> str:
    """Say that what is to be decoded is an array of pixels; empty where it may be the bytes of a file."""
    if image.ndim == 1:
        return ""
    return (
        f"it looks decoded already: the bytes of an image file have one dimension, this has the shape "
        f"{image.shape}. Leave out ImageDecoder, or `is_encoded` of a step that resizes"
    )


def _jpeg(content: memoryview) -> tuple[int, int] | None:
    """The size in the frame header; of several, of which decoders may take either, the largest of each axis."""
    found: tuple[int, int] | None = None
    position, size = 2, len(content)
    while position + 4 <= size:
        at_once = content[position] == 0xFF and content[position + 1] not in (0, 0xFF)  # the usual case
        next_one = None if at_once else _MARKER.search(content, position)
        if not at_once:
            if next_one is None:
                break
            position = next_one.start()
        marker = content[position + 1]
        if marker in _LAST_BEFORE_PIXELS:
            break
        position += 2
        if marker in _WITHOUT_CONTENT:
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _WITHOUT_SIZE and position + 7 <= size:
            height, width = struct.unpack_from(">HH", content, position + 3)
            found = (height, width) if found is None else (max(height, found[0]), max(width, found[1]))
        length = content[position] << 8 | content[position + 1] if position + 2 <= size else 0
        position += max(length, 2)
    return found


def _png(content: memoryview) -> tuple[int, int]:
    position = len(_PNG)
    while True:  # libpng takes unknown chunks before the header
        length, name = struct.unpack_from(">I4s", content, position)
        if name == b"IHDR":
            width, height = struct.unpack_from(">II", content, position + 8)
            return height, width
        position += 12 + length


def _by_pillow(content: memoryview, name: str) -> tuple[int, int] | None:
    """The size as Pillow reads it; None where it is not installed, or refuses the file."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        Image.init()
        # Not by `Image.open`: it has a limit of its own, and warns before that.
        with Image.OPEN[name][0](io.BytesIO(content), "") as image:
            return image.height, image.width
    except Exception:  # Pillow raises all kinds on broken files
        return None


def array_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Read the header of a ``.npy`` file, of version 1.0 of the format, up to its data.

    Returns:
        Shape and type that it claims; whether there are data for them is not looked at.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no such header.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"it has version {version[0]}.{version[1]} of the format, and DALI reads 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (OSError, ValueError):
        raise
    except Exception as error:  # what a damaged header makes Python's parser raise can be nearly anything
        raise ValueError(f"its header is damaged ({type(error).__name__})") from error
    return shape, dtype


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
