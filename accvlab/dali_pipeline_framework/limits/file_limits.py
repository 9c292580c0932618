# SPDX-License-Identifier: Apache-2.0
"""Limits on the size of files, and on their size after unpacking; files that are only pointers of Git LFS.

A table of 100 kilobytes can be unpacked to gigabytes. So the size that a file claims is checked first.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
from collections.abc import Iterable
from typing import Any, BinaryIO, Final, TypeGuard

import attrs

from ..checks import shown, whole_number
from ..errors import SettingError
from .control_groups import num_usable_cores


class FileTooLargeError(OSError):
    """A file exceeds a limit."""


class LfsPointerError(OSError):
    """In place of a file there is the text by which a store of large files (Git LFS, git-annex, Xet) finds it."""


POINTER_BYTES: Final = 1024  # more than a pointer has
_POINTERS: Final = (  # how the text begins, what writes it, what fetches the file
    (
        re.compile(rb"(\xef\xbb\xbf)?version https://(git-lfs|hawser)\.github\.com/spec/v1\r?\n"),
        "Git LFS",
        "`git lfs pull` in its repository",
    ),
    (re.compile(rb"(\.\./)*(\.git)?/?annex/objects/[^\r\n]*\r?\n?\Z"), "git-annex", "`git annex get` of it"),
    (re.compile(rb"# xet version \d+\r?\n"), "Xet", "`hf download` of its repository"),
)


def require_no_pointer(content: bytes | memoryview) -> None:
    """Raise a `LfsPointerError` where the content of a file is a pointer of Git LFS, git-annex, or Xet."""
    if len(content) >= POINTER_BYTES:
        return
    for start, store, remedy in _POINTERS:
        if start.match(content):
            raise LfsPointerError(
                f"it is a pointer of {store}, {len(content)} bytes of text in place of the file. Fetch the file: "
                f"{remedy}"
            )


@attrs.define(eq=False)
class Limit:
    """A number that can be set, for this process and the workers that it starts afterwards.

    Attributes:
        most: The limit.
        setter: Name of the function of `limits` that sets it, for messages.
    """

    most: int
    setter: str

    def get(self) -> int:
        """Get the limit."""
        return self.most

    def set(self, count: int) -> None:
        """Set the limit, for this process and the workers that it starts afterwards.

        Raises:
            SettingError: It is not a whole number of at least 1.
        """
        self.most = whole_number(count, "count", at_least=1)

    def excess(self, count: int, what: str) -> str:
        """Describe a count above the limit, in words like ``"it has {} bytes"``; empty if it is not above."""
        if count <= self.most:
            return ""
        advice = f"If that is intended, raise the limit: `limits.{self.setter}`"
        return f"{what.format(count)}, more than the limit of {self.most}. {advice}"

    def require(self, count: int, what: str) -> None:
        """Raise a `FileTooLargeError` where a count is above the limit, see `excess`."""
        excess = self.excess(count, what)
        if excess:
            raise FileTooLargeError(errno.EFBIG, excess)


FILE_BYTES: Final = Limit(1 << 33, "set_most_file_bytes")
"""Bytes of a file that is read as a whole."""

UNPACKED_BYTES: Final = Limit(1 << 31, "set_most_unpacked_bytes")
"""Bytes of compressed data after unpacking: a file in an archive, a table, a batch of records of a log."""

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
    """Open a local file for reading; returns its descriptor and status.

    Raises:
        OSError: It cannot be opened, is too large (`FileTooLargeError`), is a pointer of Git LFS
            (`LfsPointerError`), or is not a regular file: reading a pipe could block indefinitely.
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
        if status.st_size < POINTER_BYTES:
            require_no_pointer(os.pread(descriptor, status.st_size, 0))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


_GZIP: Final = b"\x1f\x8b"
_MARK: Final = "\ufeff"  # what editors on Windows put before UTF-8


def open_table(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a local file that is not compressed for reading.

    Raises:
        OSError: See `opened_file`; or it is compressed by gzip, whatever its name says.
    """
    file = os.fdopen(opened_file(path)[0], "rb")
    if file.read(len(_GZIP)) == _GZIP:
        file.close()
        raise OSError(errno.EINVAL, "it is compressed by gzip: unpack it")
    file.seek(0)
    return file


def read_table(path: str | os.PathLike[str]) -> str:
    """Read a text file of UTF-8; a byte order mark is left out.

    Raises:
        OSError: See `open_table`.
        UnicodeDecodeError: It is not UTF-8.
    """
    with io.TextIOWrapper(open_table(path), encoding="utf-8-sig") as file:
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; a byte order mark is left out.

    Raises:
        ValueError: It is not JSON (a `json.JSONDecodeError` with the position), or its values are nested too
            deep.
    """
    try:
        return json.loads(
            text.removeprefix(_MARK) if isinstance(text, str) else text
        )  # of bytes, it does so itself
    except RecursionError:
        raise ValueError("its values are nested too deep") from None


_MOST: Final = 1024


def is_start_method(value: object) -> TypeGuard[str]:
    """Whether a value is a start method of processes."""
    return isinstance(value, str) and str.__str__(value) in ("fork", "spawn", "forkserver")


def checked_worker_count(value: object, name: str, *, at_least: int = 0) -> int:
    """Check a number of worker processes, at most 1024.

    Raises:
        SettingError: It is not a whole number of at least ``at_least``, or too large.
    """
    count = whole_number(value, name, at_least=at_least)
    if count <= _MOST:
        return count
    raise SettingError(
        f"`{name}` must be at most {_MOST}, got {shown(count)}. Usually a worker for each core that this process "
        f"can use ({num_usable_cores()}) is the most that is of use."
    )
