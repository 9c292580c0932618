# SPDX-License-Identifier: Apache-2.0
"""Detection of files that were changed."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...errors import FileError, VideoError, error_that_is_also
from .container_elements import path_advice


class FileState(NamedTuple):
    """Attributes that change when a file is rewritten.

    Attributes:
        size: Its size in bytes.
        changed_ns: When its content was last changed, in nanoseconds since 1970.
    """

    size: int
    changed_ns: int

    @classmethod
    def of_video(cls, path: str | os.PathLike[str], name: str | None = None) -> FileState:
        """Get the state of a file.

        Args:
            path: The file.
            name: What messages call it; None for its path.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
        """
        try:
            status = os.stat(path)
        except OSError as error:
            called = name or repr(os.fspath(path))
            message = f"Cannot open the video {called}: {error.strerror}.{path_advice(path)}"
            raise error_that_is_also(FileError, [type(error)], message) from error
        return cls(status.st_size, status.st_mtime_ns)

    def require(self, path: str | os.PathLike[str], name: str) -> None:
        """Check that a video was not changed.

        Args:
            path: Its file.
            name: What messages call it.

        Raises:
            FileError: The file is not there any more, or cannot be accessed.
            VideoError: It was changed.
        """
        now = FileState.of_video(path, name)
        if now == self:
            return
        what = "it was written again" if now.size == self.size else f"{self.size} bytes then, {now.size} now"
        raise VideoError(
            f"The video {name} was changed after it was indexed ({what}), so its frames may be others. Make the "
            f"provider that uses it, or its index, anew; and keep videos unchanged while they are in use."
        )
