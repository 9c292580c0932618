# SPDX-License-Identifier: Apache-2.0
"""Text and JSON in files: within the limit of size, no pipes, and no values nested without end."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from typing import Any, BinaryIO

from .file_limits import FILE_BYTES


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
