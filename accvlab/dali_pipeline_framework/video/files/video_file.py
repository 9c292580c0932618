# SPDX-License-Identifier: Apache-2.0
"""Files of videos: whether they can be opened, and whether they were changed."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ...errors import FileError, VideoError, error_that_is_also
from ...limits.file_limits import LfsPointerError, require_no_pointer

_MOST_LOOKED_AT = 2048


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
        source.seek(0)
        try:
            yield source
        finally:
            source.seek(position)


def is_file_or_missing(path: str | os.PathLike[str]) -> bool:
    """Whether to open a path cannot block: pipes wait for a writer, and devices may have no end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # to open it raises the reason
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def pointer_error(source: Any) -> LfsPointerError | None:
    """Return the error if a path, bytes, or an open binary file is only a pointer of Git LFS; else None."""
    try:
        with opened(source) as file:
            require_no_pointer(file.read(_MOST_LOOKED_AT))
    except LfsPointerError as error:
        return error
    except (OSError, ValueError, AttributeError):
        pass
    return None


def path_advice(path: Any) -> str:
    """Advice on a path that cannot be opened, with a leading space; empty if there is none."""
    if not isinstance(path, (str, os.PathLike)):
        return ""
    if "://" in str(path):
        advice = "download it, or mount its storage as a folder. (VideoFrameDataProvider reads remote videos.)"
        return f" Only local files are read here, and this is a URL: {advice}"
    if os.path.isdir(path):
        return f" Name the videos in the folder, e.g. sorted(Path({os.fspath(path)!r}).glob('*.mp4'))."
    if "*" in str(path):
        return " Patterns are not expanded: name the files, e.g. sorted(Path().glob(pattern))."
    return ""


class FileState(NamedTuple):
    """What changes when a file is rewritten.

    Attributes:
        size: Its size in bytes; None if its store does not say.
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
            raise error_that_is_also(FileError, [error], message) from error
        return cls(status.st_size, status.st_mtime_ns)

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


_MP4_STARTS = (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip")
_EBML_MAGIC = b"\x1a\x45\xdf\xa3"


def missing_bytes(source: object) -> int:
    """Count the bytes that an MP4, MOV, Matroska, WebM or AVI file lacks at its end, see `opened`.

    0 if the file is complete or does not say.
    """
    try:
        with opened(source) as file:
            size = file.seek(0, os.SEEK_END)
            return max(0, _stated_end(file, size) - size)
    except (OSError, ValueError, struct.error, IndexError, AttributeError):
        return 0


def _stated_end(file: BinaryIO, size: int) -> int:
    file.seek(0)
    start = file.read(12)
    if start[:4] == b"RIFF" and start[8:] == b"AVI ":
        return 8 + int(struct.unpack("<I", start[4:8])[0])
    if start[:4] == _EBML_MAGIC:
        return _end_of_matroska(file)
    return _end_of_mp4(file, size) if start[4:8] in _MP4_STARTS else 0


def _end_of_mp4(file: BinaryIO, size: int) -> int:
    return max((end for _, end in _mp4_boxes(file, size)), default=0)


def _mp4_boxes(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """Get the type and the end of each box of an MP4 file, one after the other."""
    end = 0
    while end + 8 <= size:
        file.seek(end)
        head = file.read(16)
        length = int(struct.unpack_from(">I", head)[0])
        if length == 1:
            (length,) = struct.unpack_from(">Q", head, 8)
        if length < 8:  # 0: up to the end
            break
        end += length
        yield head[4:8], end


def has_sample_tables(source: object) -> bool:
    """Whether a file is an MP4 whose tables have all its frames: complete, and not in fragments."""
    types, end = set[bytes](), 0
    try:
        with opened(source) as file:
            size = file.seek(0, os.SEEK_END)
            for kind, end in _mp4_boxes(file, size):  # noqa: B007 (the last end)
                types.add(kind)
                if kind == b"moof":
                    return False
    except (OSError, ValueError, struct.error, AttributeError):
        return False
    return end == size and b"moov" in types


def _end_of_matroska(file: BinaryIO) -> int:
    file.seek(4)
    file.seek(_ebml_number(file)[0], os.SEEK_CUR)
    file.seek(4, os.SEEK_CUR)  # the identifier of the segment, which holds all the rest
    length, is_unknown = _ebml_number(file)
    return 0 if is_unknown else file.tell() + length


def _ebml_number(file: BinaryIO) -> tuple[int, bool]:
    """Read an EBML variable-length integer (vint), and whether it means "unknown", as in live recordings."""
    first = file.read(1)[0]
    num_bytes = 9 - first.bit_length()
    value = int.from_bytes(bytes([first & (0xFF >> num_bytes)]) + file.read(num_bytes - 1), "big")
    return value, value == (1 << 7 * num_bytes) - 1


_T = TypeVar("_T")


class WatchedFile:
    """An open file that FFmpeg reads, and the error that it met.

    FFmpeg takes a file that cannot be read for damaged, for shorter than it is, or goes on looking for its parts.
    So after an error there is nothing more to read, and who called FFmpeg looks at the error.

    Attributes:
        error: The first error; None where there was none.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Watch a file that can seek."""
        self._file = file
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes; none after an error."""
        return self.tried(lambda: self._file.read(size), b"")

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte; returns where that is."""
        return self.tried(lambda: self._file.seek(offset, whence), 0)

    def tell(self) -> int:
        """Where the next byte is read."""
        return self.tried(self._file.tell, 0)

    def tried(self, action: Callable[[], _T], otherwise: _T) -> _T:
        """Do something with the file; another value after an error."""
        if self.error is None:
            try:
                return action()
            except BaseException as error:  # also an interrupt: FFmpeg could not pass it on
                self.error = error
        return otherwise
