# SPDX-License-Identifier: Apache-2.0
"""The most that a file may have, or may become when it is read.

A table of 100 kilobytes can be unpacked to gigabytes. So what a file claims is looked at first.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from ..checks import whole_number
from ..errors import SettingError


class FileTooLargeError(OSError):
    """A file has more than it may."""


class Limit:
    """A number that a setting of the environment can change, also for processes that are started later."""

    def __init__(self, variable: str, default: int, setter: str) -> None:
        """Name it: the variable of the environment, and the function of `limits` that sets it."""
        self._variable, self._default, self._setter = variable, default, setter
        self._most: int | None = None  # of this process, once it is known

    def __call__(self) -> int:
        """Get the number.

        Raises:
            SettingError: The variable is no whole number of at least 1.
        """
        if self._most is None:
            text = os.environ.get(self._variable)
            try:
                number = self._default if text is None else int(text)
                self._most = whole_number(number, self._variable, at_least=1)
            except ValueError as error:
                raise SettingError(
                    f"${self._variable} must be a whole number of at least 1, got {text!r}."
                ) from error
        return self._most

    def set(self, count: int) -> None:
        """Set the number, for this process and those that it starts later."""
        self._most = whole_number(count, "count", at_least=1)
        os.environ[self._variable] = str(self._most)

    def excess(self, count: int, what: str) -> str:
        """Say that something has more than may be, in words like ``"it has {} bytes"``; empty where it has not."""
        if count <= self():
            return ""
        return (
            f"{what.format(count)}, more than the limit of {self()}. Where it is meant, raise the limit: "
            f"`limits.{self._setter}`, or ${self._variable}"
        )

    def require(self, count: int, what: str) -> None:
        """Raise a `FileTooLargeError` where something has more than may be, see `excess`."""
        excess = self.excess(count, what)
        if excess:
            raise FileTooLargeError(errno.EFBIG, excess)


FILE_BYTES: Final = Limit("ACCVLAB_MOST_FILE_BYTES", 1 << 33, "set_most_file_bytes")
UNPACKED_BYTES: Final = Limit("ACCVLAB_MOST_UNPACKED_BYTES", 1 << 31, "set_most_unpacked_bytes")


def most_file_bytes() -> int:
    """Most bytes of a file that is read as a whole: 2**33, or what ``$ACCVLAB_MOST_FILE_BYTES`` says.

    Raises:
        SettingError: The variable is no whole number of at least 1.
    """
    return FILE_BYTES()


def set_most_file_bytes(count: int) -> None:
    """Set the most bytes of a file that is read as a whole, for this process and those that it starts later.

    Args:
        count: Bytes, at most.

    Raises:
        SettingError: It is no whole number of at least 1.
    """
    FILE_BYTES.set(count)


def most_unpacked_bytes() -> int:
    """Most bytes that what is compressed may become: 2**31, or what ``$ACCVLAB_MOST_UNPACKED_BYTES`` says.

    It holds for a file in an archive, for a table, and for a batch of records of a log.

    Raises:
        SettingError: The variable is no whole number of at least 1.
    """
    return UNPACKED_BYTES()


def set_most_unpacked_bytes(count: int) -> None:
    """Set the most bytes that what is compressed may become, for this process and those that it starts later.

    Args:
        count: Bytes, at most.

    Raises:
        SettingError: It is no whole number of at least 1.
    """
    UNPACKED_BYTES.set(count)
