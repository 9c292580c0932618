# SPDX-License-Identifier: Apache-2.0
"""Random access to files of fsspec, and to members of tar and ZIP archives."""

from __future__ import annotations

import contextlib
import io
import struct
import tarfile
import time
import zipfile
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs
from cachetools import LRUCache

from ...limits.file_limits import FILE_BYTES, POINTER_BYTES, UNPACKED_BYTES, require_no_pointer
from .remote_reading import ChangedFileError, FileSystem, RemoteReading, within

# What distinguishes versions of a file, apart from its size; stores have one or the other.
_VERSION_KEYS: Final = (
    *("ETag", "etag", "mtime", "created", "LastModified", "last_modified", "Last-Modified", "updated"),
    *("generation", "md5Hash", "CRC"),
)
_BLOCK: Final = 1 << 18
_NUM_KEPT: Final = 16
_MOST_AT_ONCE: Final = 8
_CHANGED: Final = "it was changed while it was read: {} then, {} now"
_WRITTEN_AGAIN: Final = "its archive was written again after its list of members was read"
_ANEW: Final = "Make the provider anew, and keep archives unchanged while they are in use"
CHECK_EACH_S = 60.0

FileVersion: TypeAlias = tuple[int | None, str]
"""Size of a file, None if its store does not say, and marks that change with its content."""

# Of a member of a ZIP file: signature, flags, checksum, lengths of name and extra field.
_ZIP_HEADER: Final = struct.Struct("<4s2xH6xL8xHH")
_IS_ENCRYPTED, _HAS_CHECKSUM_BEHIND = 1, 8


def _archive_of(file_system: FileSystem) -> tuple[FileSystem, str] | None:
    """Get the file of the archive that a file system shows; None of others, and of compressed tar files."""
    opened: Any = getattr(file_system, "fo", None)
    return (opened.fs, opened.path) if hasattr(opened, "fs") and hasattr(opened, "path") else None


def version_of(file_system: FileSystem, path: str) -> FileVersion:
    """Request the version of a file; of a member, with that of its archive."""
    archive = _archive_of(file_system)
    if archive is None:
        file_system.invalidate_cache(path.rpartition("/")[0])  # else it may answer from a listing that it has kept
    info = file_system.info(path)
    marks = [f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key) is not None]
    if archive is not None:
        size, of_archive = version_of(*archive)
        marks.append(f"archive=(size={size}, {of_archive})")
    return info.get("size"), ", ".join(marks)


def read_file(file_system: FileSystem, path: str, reading: RemoteReading) -> bytes:
    """Read a remote file.

    Raises:
        Exception: The error of the last attempt.
    """

    def read() -> bytes:
        content = _cat(file_system, path)
        stated = file_system.info(path).get("size")
        if stated is not None and stated != len(content):
            file_system.invalidate_cache(path.rpartition("/")[0])
            why = "the answer was cut short, or the file was changed while it was read"
            raise OSError(f"{len(content)} bytes were read, but it has {stated}: {why}")
        return content

    content = None
    if hasattr(file_system, "fo"):  # its list of members has the size
        size = file_system.info(path).get("size") or 0
        UNPACKED_BYTES.require(size, "it has {} bytes")
        store, place, start = _located(file_system, path, reading)
        if store is not file_system:
            content = _range(store, place, start, start + size, reading)
    if content is None:
        content = reading(read)
    FILE_BYTES.require(len(content), "it has {} bytes")
    require_no_pointer(content)
    return content


def _cat(file_system: FileSystem, path: str, **part: int) -> bytes:
    """Read a file, or its bytes in ``[start, end)``."""
    archive: WatchedFile | None = getattr(file_system, "watched", None)
    if archive is None:
        return bytes(file_system.cat_file(path, **part))
    with file_system.lock:  # all members of a compressed tar file are read by one file
        content = bytes(file_system.cat_file(path, **part))
    archive.look(f"{_WRITTEN_AGAIN}. {_ANEW}")
    return content


def refuse_pointer(file_system: FileSystem, path: str) -> None:
    """Raise a `LfsPointerError` where a file is a pointer; no more is read of files that are too large for one."""
    size = file_system.info(path).get("size")
    if size is not None and size < POINTER_BYTES:
        require_no_pointer(bytes(file_system.cat_file(path)))


_MOST_KNOWN: Final = 4096
_last_versions: dict[tuple[int, str], tuple[FileVersion, float]] = {}
"""Version of each file that is known and was opened last by this process, and the time of that."""


class WatchedFile:
    """A file of a store, in one version.

    Attributes:
        version: Its size and marks, see `version_of`.
    """

    def __init__(
        self, file_system: FileSystem, path: str, reading: RemoteReading, known: FileVersion | None = None
    ) -> None:
        """Request its version; not if that is known, and was seen a moment ago."""
        self._file, self._reading = (file_system, path), reading
        key = hash(file_system), path
        last, self._checked_s = _last_versions.get(key, (None, 0.0))
        if known is not None and known == last and time.monotonic() < self._checked_s + CHECK_EACH_S:
            self.version = known
        else:
            self.version, self._checked_s = reading(lambda: version_of(file_system, path)), time.monotonic()
        if known is not None:
            if len(_last_versions) >= _MOST_KNOWN:
                _last_versions.clear()
            _last_versions[key] = self.version, self._checked_s

    def look(self, problem: str = _CHANGED) -> None:
        """Require the same version if that is due: always if it is local, else once a minute."""
        if _is_local(self._file[0]) or time.monotonic() >= self._checked_s + CHECK_EACH_S:
            self.require_same(problem)

    def require_same(self, problem: str = _CHANGED) -> None:
        """Raise a `ChangedFileError` where it has another version now."""
        now = within(self._reading.timeout_s, lambda: version_of(*self._file))
        if now != self.version:
            raise ChangedFileError(
                problem.format(*(f"size={size}, {marks}" for size, marks in (self.version, now)))
            )
        self._checked_s = time.monotonic()


def _range(file_system: FileSystem, path: str, start: int, end: int, reading: RemoteReading) -> bytes:
    """Read the bytes in ``[start, end)`` of a file."""

    def read() -> bytes:
        content = _cat(file_system, path, start=start, end=end) if end > start else b""
        if len(content) > end - start:
            counts = f"{len(content)} bytes where {end - start} were requested"
            raise io.UnsupportedOperation(f"its server sent {counts}: it can only be read as a whole")
        if len(content) < end - start:
            raise OSError(f"the answer was cut short: {len(content)} of {end - start} bytes came")
        return content

    return read() if _is_local(file_system) else reading(read)


def _is_local(file_system: FileSystem) -> bool:
    """Whether no request reads its files; of an archive, whether that is local."""
    archive = _archive_of(file_system)
    return "file" in file_system.protocol if archive is None else _is_local(archive[0])


def _located(file_system: FileSystem, path: str, reading: RemoteReading) -> tuple[FileSystem, str, int]:
    """Find the file that has the bytes of a file, and where they begin: a member's are in its archive.

    (To go to a byte of a member, ``zipfile`` reads all that is before it.)

    Raises:
        ChangedFileError: The archive was written again after its list of members was read.
    """
    archive = _archive_of(file_system)
    if archive is None:
        return file_system, path, 0
    store, place, begin = _located(*archive, reading)

    def read(start: int, size: int) -> bytes:
        return _range(store, place, begin + start, begin + start + size, reading)

    start: int | None = None
    if isinstance(getattr(file_system, "zip", None), zipfile.ZipFile):
        zipped = file_system.zip.getinfo(path)
        if _is_stored(zipped):
            start = _start_of_zipped(zipped, read(zipped.header_offset, _ZIP_HEADER.size + len(_name_of(zipped))))
    elif isinstance(getattr(file_system, "tar", None), tarfile.TarFile):
        _, _, *name = file_system.index[path]  # fsspec 2026.9 adds the name; before, the path is the name
        member = file_system.tar.getmember(name[0] if name else path)
        if member.isreg() and not member.issparse():
            start = _start_of_tarred(
                file_system.tar, member, read(member.offset, member.offset_data - member.offset)
            )
    return (file_system, path, 0) if start is None else (store, place, begin + start)


def _is_stored(member: zipfile.ZipInfo) -> bool:
    """Whether a member of a ZIP file is neither compressed nor encrypted."""
    return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & _IS_ENCRYPTED


def _name_of(member: zipfile.ZipInfo) -> bytes:
    return member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437", "replace")


def _start_of_zipped(member: zipfile.ZipInfo, header: bytes) -> int:
    signature, flags, checksum, name_length, extra_length = _ZIP_HEADER.unpack_from(header)
    is_same = signature == b"PK\3\4" and header[_ZIP_HEADER.size :] == _name_of(member)
    if not is_same or (checksum != member.CRC and not flags & _HAS_CHECKSUM_BEHIND):
        raise _written_again(member.filename, member.header_offset)
    return int(member.header_offset + _ZIP_HEADER.size + name_length + extra_length)


def _start_of_tarred(tar: tarfile.TarFile, member: tarfile.TarInfo, header: bytes) -> int:
    found = None
    with contextlib.suppress(tarfile.TarError, OSError):
        text: Any = {"encoding": tar.encoding, "errors": tar.errors}
        with tarfile.open(fileobj=io.BytesIO(header), mode="r:", **text) as opened:
            found = opened.next()
    if found is None or (found.name, found.size) != (member.name, member.size):
        raise _written_again(member.name, member.offset)
    return member.offset_data


def _written_again(name: str, place: int) -> ChangedFileError:
    return ChangedFileError(f"{_WRITTEN_AGAIN}: {name!r} is not at byte {place} any more. {_ANEW}")


@attrs.frozen(eq=False)
class KnownFile:
    """What was found about a file when it was opened, so that only its version is requested to open it again.

    Attributes:
        version: See `version_of`.
        start: Where it begins in the file of its archive.
        blocks: The blocks that were read, by their numbers.
    """

    version: FileVersion
    start: int
    blocks: Mapping[int, bytes]


class RemoteFile(io.RawIOBase):
    """A version of a file, read in blocks, of which the last ones are kept.

    Where reading continues behind a request, the next request is twice as long, up to 2 MiB.

    Attributes:
        version: Its size and marks, see `version_of`.
        skips_content: Whether zeros are delivered in place of bytes, without a request: for FFmpeg, which passes
            over the frames of a video whose tables it has read.
    """

    def __init__(
        self, file_system: FileSystem, path: str, reading: RemoteReading, known: KnownFile | None = None
    ) -> None:
        """Request its size and version.

        Raises:
            UnsupportedOperation: The store does not say how long it is, or it is compressed in its archive.
            ChangedFileError: Its archive was written again after its list of members was read.
        """
        super().__init__()
        self._reading = reading
        archive = getattr(file_system, "zip", None)
        if isinstance(archive, zipfile.ZipFile) and not _is_stored(archive.getinfo(path)):
            refuse_pointer(file_system, path)
            raise io.UnsupportedOperation(
                "it is compressed in its ZIP file, so that no part of it can be read by itself. Unpack it, or "
                "pack it without compression (zip -0): that makes a video hardly larger"
            )
        self._watched = WatchedFile(file_system, path, reading, None if known is None else known.version)
        self.version = self._watched.version
        if self.version[0] is None:
            raise io.UnsupportedOperation(
                "its store does not say how long it is, so that no parts of it can be read"
            )
        self._size: int = self.version[0]
        self._head: Mapping[int, bytes] = {}
        if known is None or known.version != self.version:
            self._store, self._place, self._start = _located(file_system, path, reading)
        else:
            self._head, self._start, self._store, self._place = known.blocks, known.start, file_system, path
            while archive := _archive_of(self._store):
                self._store, self._place = archive
        self._position: int = 0
        self.skips_content = False
        self._kept: LRUCache[int, bytes] = LRUCache(_NUM_KEPT)
        self._fetched = 0, b""  # of a range: its first byte, and its content
        self._next, self._num_at_once = 0, 0  # block behind the last request, and number of blocks in that

    def known(self) -> KnownFile:
        """Get what was found about it until now; without the blocks where they are most of the file."""
        blocks = dict(self._kept)
        is_little = sum(map(len, blocks.values())) <= self._size // 2
        return KnownFile(self.version, self._start, blocks if is_little else {})

    def readable(self) -> bool:
        """Return True."""
        return True

    seekable = readable

    def tell(self) -> int:
        """Position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; returns its position."""
        position: int = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise OSError(f"there is no byte {position} in a file")
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, as many as fit into the buffer."""
        view, begin = memoryview(buffer).cast("B"), self._position
        end: int = max(min(begin + len(view), self._size), begin)
        if self.skips_content:
            view[: end - begin] = bytes(end - begin)
            self._position = end
        while self._position < end:
            content = self._content(self._position, end)
            place = self._position - begin
            view[place : place + len(content)] = content
            self._position += len(content)
        return end - begin

    def fetch(self, start: int, end: int) -> None:
        """Request a range of bytes at once, for what is read next."""
        known, content = self._fetched
        if not known <= start < end <= known + len(content):
            self._fetched = start, self._read(start, min(end, self._size))

    def _content(self, begin: int, end: int) -> bytes:
        start, content = self._fetched
        if start <= begin < start + len(content):
            return content[begin - start : end - start]
        number = begin // _BLOCK
        if number not in self._head and number not in self._kept:
            self._request(number)
        block = self._head.get(number) or self._kept[number]
        return block[begin - number * _BLOCK : end - number * _BLOCK]

    def _request(self, number: int) -> None:
        count = min(2 * self._num_at_once, _MOST_AT_ONCE) if number == self._next and self._num_at_once else 1
        content = self._read(number * _BLOCK, min((number + count) * _BLOCK, self._size))
        for place in range(0, len(content), _BLOCK):
            self._kept[number + place // _BLOCK] = content[place : place + _BLOCK]
        self._next, self._num_at_once = number + count, count

    def _read(self, start: int, end: int) -> bytes:
        try:
            content = _range(self._store, self._place, self._start + start, self._start + end, self._reading)
        except Exception as error:
            try:
                self._watched.require_same()
            except ChangedFileError:
                raise
            except Exception:  # a store that fails, fails here as well
                raise error from None
            raise
        self._watched.look()
        return content

    def close(self) -> None:
        """Close the file; may be called again."""
        self._kept.clear()
        self._fetched = 0, b""
        super().close()
