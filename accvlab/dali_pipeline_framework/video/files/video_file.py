# SPDX-License-Identifier: Apache-2.0
"""Files of videos: whether they can be opened, and whether they were changed."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from ...errors import FileError, VideoError, error_that_is_also


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
            " Only local files are read here, and this is a URL: download it, or mount its storage as a folder. "
            "(The videos of VideoDataProvider can be remote.)"
        )
    if os.path.isdir(path):
        return f" Name the videos in the folder, e.g. sorted(Path({os.fspath(path)!r}).glob('*.mp4'))."
    if "*" in str(path):
        return " Patterns are not expanded: name the files, e.g. sorted(Path().glob(pattern))."
    return ""


class FileState(NamedTuple):
    """What changes when a file is rewritten.

    Attributes:
        size: Its size in bytes; None where its store does not say.
        version: When its content was last changed, in nanoseconds since 1970; of a remote file, what its store
            says (ETag, ...).
    """

    size: int | None
    version: int | str

    @classmethod
    def of_video(cls, path: str | os.PathLike[str], name: str | None = None) -> FileState:
        """Get the state of a local file, which messages call ``name``, or by its path.

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
        """Check that a local video was not changed; messages call it ``name``.

        Raises:
            FileError: The file is not there any more, or cannot be accessed.
            VideoError: It was changed.
        """
        self.require_same(FileState.of_video(path, name), name)

    def require_same(self, now: FileState, name: str) -> None:
        """Check that a video, which messages call ``name``, was not changed, given its state now.

        Raises:
            VideoError: It was changed.
        """
        if now == self:
            return
        what = "it was written again" if now.size == self.size else f"{self.size} bytes then, {now.size} now"
        raise VideoError(
            f"The video {name} was changed after it was indexed ({what}), so its frames may be others. Make the "
            f"provider that uses it, or its index, anew; and keep videos unchanged while they are in use."
        )
