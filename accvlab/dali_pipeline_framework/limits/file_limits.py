# SPDX-License-Identifier: Apache-2.0
"""The most that a file may have, or may become when it is read.

A table of 100 kilobytes can be unpacked to gigabytes. So what a file claims is looked at first.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

from ..checks import whole_number


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
