# SPDX-License-Identifier: Apache-2.0
"""Random access to remote files, and to members of tar and ZIP archives, within limits."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import struct
import tarfile
import threading
import weakref
import zipfile
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Final, TypeAlias

import attrs
from cachetools import LRUCache

from ...limits.file_limits import FILE_BYTES, UNPACKED_BYTES, require_no_pointer
from .remote_reading import (
    ChangedFileError,
    FileSystem,
    FileVersion,
    RemoteReading,
    ReplacedFileError,
    answer_of,
    is_http,
    part,
    whole,
)

_TAR: Final = "tar"
_ARCHIVES: Final = ("zip", "tar", "libarchive")  # file systems whose files may be compressed
_PREFIX: Final = "accvlab-bounded-"
_HEADER_BYTES: Final = 512
_MEMORY_PER_BYTE: Final = 4  # what tarfile and fsspec keep of a header
_LONGEST_HEADER: Final = 1 << 24  # names, and other headers that are read as a whole


def with_bounds(url: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Complete the arguments of a file system: a compressed tar archive in its URL is unpacked within limits.

    Args:
        url: Such as ``tar://train::s3://bucket/all.tar.gz``.
        options: Arguments for ``fsspec.core.url_to_fs``.
    """
    links = url.split("::")
    places = [place for place, link in enumerate(links) if link.partition("://")[0] == _TAR]
    if len(places) != 1 or places[0] + 1 >= len(links):
        return options
    from fsspec.utils import infer_compression

    own = options.get(_TAR, {})
    bounded = _bounded(own.get("compression") or infer_compression(links[places[0] + 1]))
    return options if bounded is None else {**options, _TAR: {**own, "compression": bounded}}


def _bounded(compression: object) -> str | None:
    """Get the name of a compression of fsspec with limits; None for others."""
    from fsspec.compression import compr, register_compression

    if not isinstance(compression, str) or compression not in compr or compression.startswith(_PREFIX):
        return None
    name = _PREFIX + compression
    if name not in compr:
        unpack = compr[compression]

        def unpacked(file: BinaryIO, mode: str = "rb", **settings: object) -> BoundedUnpacking:
            return BoundedUnpacking(unpack(file, mode=mode, **settings))

        register_compression(name, unpacked, [])
    return name


class _SeekableFile(io.RawIOBase, ABC):
    """A file to read, that can seek."""

    def readable(self) -> bool:
        """Return True."""
        return True

    seekable = readable


class BoundedUnpacking(_SeekableFile):
    """An unpacked file, of which no more is read for the first time than the limits allow."""

    def __init__(self, file: BinaryIO) -> None:
        """Read nothing yet."""
        super().__init__()
        self._file = file
        self._seen = 0  # how far it was read
        self._num_read = 0  # of that, what was not skipped

    def read(self, size: int | None = -1) -> bytes:
        """Read the next bytes."""
        begin = self._file.tell()
        if size is None or size < 0:
            size = FILE_BYTES.most + 1 - begin
        if begin + size > self._seen and size >= _HEADER_BYTES:
            self._require_header(size)
        content: bytes = self._file.read(size)
        self._see(begin + len(content))
        return content

    def _require_header(self, size: int) -> None:
        if size > _LONGEST_HEADER:
            raise OSError(errno.EFBIG, f"a header in it claims {size} bytes")
        self._num_read += size
        UNPACKED_BYTES.require(_MEMORY_PER_BYTE * self._num_read, "its headers take {} bytes of memory")

    def _see(self, place: int) -> None:
        if place > self._seen:
            FILE_BYTES.require(place, "unpacked it has at least {} bytes")
            self._seen = place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        if whence == io.SEEK_SET:
            self._see(offset)
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """Position of the next byte."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()
        super().close()


# Of a member of a ZIP file: signature, flags, checksum, lengths of name and extra field.
_HEADER: Final = struct.Struct("<4s2xH6xL8xHH")
_IS_ENCRYPTED: Final = 1
_HAS_CHECKSUM_BEHIND: Final = 8
_NAME_IS_UTF8: Final = 0x800


def is_stored(member: zipfile.ZipInfo) -> bool:
    """Whether a member of a ZIP file is neither compressed nor encrypted."""
    return member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & _IS_ENCRYPTED


def start_of_content(member: zipfile.ZipInfo, read: Callable[[int, int], bytes]) -> int:
    """Find where the content of a member of a ZIP file begins, which follows its header.

    Args:
        member: What the list of the members says.
        read: Reads the bytes in ``[start, end)`` of the archive.

    Raises:
        ReplacedFileError: Its header is not there: the archive was written again after the list was read.
    """
    start = member.header_offset
    # With the name, whose length is known but for its encoding: reading that alone would be another request.
    found = read(start, start + _HEADER.size + len(member.orig_filename.encode("utf-8", "surrogateescape")))
    header, encoded = found[: _HEADER.size], found[_HEADER.size :]
    if len(header) < _HEADER.size or not header.startswith(b"PK\3\4"):
        raise _written_again(member.filename, start, "no member")
    _, flags, checksum, name_length, extra_length = _HEADER.unpack(header)
    if len(encoded) < name_length:
        encoded += read(start + len(found), start + _HEADER.size + name_length)
    encoded = encoded[:name_length]
    name = encoded.decode("utf-8" if flags & _NAME_IS_UTF8 else "cp437", "backslashreplace")
    is_same = name == member.orig_filename or not encoded.isascii()  # a ZIP file can be read in other encodings
    if not is_same or (checksum != member.CRC and not flags & _HAS_CHECKSUM_BEHIND):
        raise _written_again(member.filename, start, f"another {name!r}" if is_same else repr(name))
    return start + _HEADER.size + int(name_length) + int(extra_length)


def _start_of_tarred(tar: tarfile.TarFile, member: tarfile.TarInfo, read: Callable[[int, int], bytes]) -> int:
    """Find where the content of a member of a tar archive begins; raises as `start_of_content`."""
    header, found = read(member.offset, member.offset_data), None
    with contextlib.suppress(tarfile.TarError, OSError):
        text: Any = {"encoding": tar.encoding, "errors": tar.errors}
        with tarfile.open(fileobj=io.BytesIO(header), mode="r:", **text) as opened:
            found = opened.next()
    there = "no member" if found is None else f"{found.name!r} of {found.size} bytes"
    if found is None or (found.name, found.size) != (member.name, member.size) or found.offset_data != len(header):
        raise _written_again(member.name, member.offset, there)
    return member.offset_data


def _written_again(name: str, place: int, there: str) -> ReplacedFileError:
    return ReplacedFileError(
        f"its archive was written again after its list of members was read: at byte {place}, where {name!r} was, "
        f"it has {there} now. Make the provider anew, and keep archives unchanged while they are in use"
    )


def start_of_member(file_system: FileSystem, path: str, read: Callable[[int, int], bytes]) -> int | None:
    """Find where the content of a member begins in its archive; None where it is not stored in one piece.

    (To go to a byte of a member, ``zipfile`` reads all that is before it.)

    Args:
        file_system: fsspec's file system of the archive.
        path: The member.
        read: Reads the bytes in ``[start, end)`` of the archive.

    Raises:
        ReplacedFileError: The archive was written again after its list of members was read.
    """
    zipped, tarred = getattr(file_system, "zip", None), getattr(file_system, "tar", None)
    if isinstance(zipped, zipfile.ZipFile):
        zip_member = zipped.getinfo(path)
        return start_of_content(zip_member, read) if is_stored(zip_member) else None
    if isinstance(tarred, tarfile.TarFile):
        member = tarred.getmember(file_system.index[path][2])
        if member.isreg() and not member.issparse():
            return _start_of_tarred(tarred, member, read)
    return None


def read_file(file_system: FileSystem, path: str, reading: RemoteReading) -> bytes:
    """Read a remote file.

    Raises:
        Exception: The error of the last attempt.
    """

    def read() -> bytes:
        if getattr(file_system, "protocol", None) in _ARCHIVES:
            return _read_member(file_system, path)
        return answer_of(file_system, whole, path) if is_http(file_system) else file_system.cat_file(path)

    def read_checked() -> bytes:
        content = read()
        if reading.checks_length:
            FileVersion(file_system, path).require_length(len(content))
        require_no_pointer(content)
        return content

    return reading(read_checked)


def _read_member(file_system: FileSystem, path: str) -> bytes:
    # Its index has the size, without a request.
    UNPACKED_BYTES.require(FileVersion(file_system, path).size or 0, "it has {} bytes")
    tar = getattr(file_system, "tar", None)
    with _lock_of(file_system):  # all members are read by one file
        if isinstance(tar, tarfile.TarFile) and path in file_system.index:
            file: Any = tar.fileobj
            if isinstance(getattr(file, "f", None), io.BufferedReader):  # a local file
                file.seek(0, io.SEEK_END)  # drops what was buffered: of an older content than what follows

            def read_header(start: int, end: int) -> bytes:
                file.seek(start)
                return bytes(file.read(end - start))

            _start_of_tarred(tar, tar.getmember(file_system.index[path][2]), read_header)
        content: bytes = file_system.cat_file(path)
    return content


_BLOCK: Final = 1 << 18
_MOST_OF_HEAD: Final = 1 << 22  # bytes that are read to open a file, and kept with its index
_NUM_KEPT: Final = 16
_MOST_AT_ONCE: Final = 8
_MOST_RUNS: Final = 4

RemoteHandle: TypeAlias = Any
"""An open file of fsspec."""

_locks: weakref.WeakKeyDictionary[FileSystem, threading.Lock] = weakref.WeakKeyDictionary()
_locks_lock = threading.Lock()


@attrs.frozen(eq=False)
class KnownFile:
    """What was found about a remote file when it was read before, so that its store need not be asked again.

    Attributes:
        start: Where it begins: in its archive, else 0.
        size: Its number of bytes.
        stored_size: That of the file in the store: of the archive.
        marks: Marks of the version of that.
        head: The bytes that were read to open it: the first byte and the content of each part.
    """

    start: int
    size: int
    stored_size: int
    marks: Mapping[str, str]
    head: Sequence[tuple[int, bytes]]

    def open(self, file_system: FileSystem, path: str, reading: RemoteReading) -> RemoteFile:
        """Open the same version of it; nothing is requested.

        Args:
            file_system: The file system that has it, or its archive.
            path: The path of that.
            reading: How it is read.
        """
        version = FileVersion.known(file_system, path, self.stored_size, self.marks)
        return RemoteFile(FileRange(RangeReader(version, reading), self.start, self.size), self.head)


def open_blocks(version: FileVersion, reading: RemoteReading) -> RemoteFile:
    """Open a version of a remote file for random access; blocks of it are cached.

    Raises:
        UnsupportedOperation: The store does not say how long it is.
    """
    if version.size is None:
        raise io.UnsupportedOperation("its store does not say how long it is, so that no parts of it can be read")
    return RemoteFile(_ranges(version, reading))


def _ranges(version: FileVersion, reading: RemoteReading) -> FileRange | RangeReader:
    if version.archive is not None and version.archive.size is not None:
        archive = _ranges(version.archive, reading)
        start = start_of_member(version.file_system, version.path, archive.read)
        if start is not None:
            return FileRange(archive, start, version.size or 0)
    return RangeReader(version, reading)


class RangeReader:
    """Reads parts of one version of a remote file; a change of the file is an error."""

    def __init__(self, version: FileVersion, reading: RemoteReading) -> None:
        """Read nothing yet."""
        self._file_system, self._path = version.file_system, version.path
        self._version, self._reading = version, reading
        self._opened: RemoteHandle = None
        self._fetch: Callable[[int, int], bytes] = self._fetched
        if is_http(self._file_system):
            self._fetch = self._answered
        elif _is_s3(self._file_system):
            self._fetch = self._matched
        elif not _reads_ranges(self._file_system):
            self._fetch = self._followed

    @property
    def size(self) -> int:
        """Number of bytes of the file."""
        return self._version.size or 0

    @property
    def version(self) -> FileVersion:
        """The version that is read."""
        return self._version

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes in ``[start, end)``, which is within the file."""
        return self._reading(lambda: self._fetch(start, end))

    def _answered(self, start: int, end: int) -> bytes:
        answer = answer_of(self._file_system, part, self._path, start, end)
        if self._reading.checks_length:
            self._version.require_answer(answer.size, answer.marks)
        return self._complete(answer.content, end - start)

    def _fetched(self, start: int, end: int) -> bytes:
        content = self._complete(self._file_system.cat_file(self._path, start=start, end=end), end - start)
        if self._reading.checks_length:
            self._version.require_same()
        return content

    def _matched(self, start: int, end: int) -> bytes:
        try:  # requests parts of the version that was there when it was opened
            content, opened = self._read_on(start, end, cache_type="none")
        except OSError:
            self._version.require_same()
            raise
        self._version.require_info(opened.details)
        return content

    def _followed(self, start: int, end: int) -> bytes:
        is_member = self._version.archive is not None  # all members are read by one file
        with _lock_of(self._file_system) if is_member else contextlib.nullcontext():
            content, _ = self._read_on(start, end)
        if self._reading.checks_length:
            self._version.require_same()
        return content

    def _read_on(self, start: int, end: int, **settings: object) -> tuple[bytes, RemoteHandle]:
        """Read by a file of the file system, which is opened on first use, and again after an error."""
        opened, self._opened = self._opened, None  # an attempt that took too long may still use it
        if opened is None:
            opened = self._file_system.open(self._path, "rb", **settings)
        try:
            opened.seek(start)
            content = self._complete(opened.read(end - start), end - start)
        except BaseException:
            opened.close()
            raise
        self._opened = opened
        return content, opened

    def _complete(self, content: bytes, length: int) -> bytes:
        if len(content) != length:
            self._version.require_same()
            raise ChangedFileError(f"the answer was cut short: {len(content)} of {length} bytes came")
        return content

    def close(self) -> None:
        """Close the open file, if any."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.close()


def _reads_ranges(file_system: FileSystem) -> bool:
    """Whether a file system can read a part of a file without opening it and seeking."""
    from fsspec.spec import AbstractFileSystem

    return getattr(file_system.cat_file, "__func__", None) is not AbstractFileSystem.cat_file


def _is_s3(file_system: FileSystem) -> bool:
    return any(cls.__module__.partition(".")[0] == "s3fs" for cls in type(file_system).__mro__)


def _lock_of(file_system: FileSystem) -> threading.Lock:
    with _locks_lock:
        return _locks.setdefault(file_system, threading.Lock())


class LocalFile:
    """Reads parts of a local file.

    Attributes:
        size: Number of bytes of the file.
    """

    def __init__(self, descriptor: int) -> None:
        """Take over an open file."""
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes in ``[start, end)``."""
        content = os.pread(self._descriptor, end - start, start)
        if len(content) < end - start:
            raise OSError(f"it was cut short: there are {len(content)} bytes at byte {start}, not {end - start}")
        return content

    def close(self) -> None:
        """Close the file; may be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@attrs.frozen
class FileRange:
    """A part of the file of an archive.

    Attributes:
        archive: The file.
        start: Where the part begins.
        size: Its number of bytes.
    """

    archive: FileRange | RangeReader | LocalFile
    start: int
    size: int

    @classmethod
    def of_member(cls, archive: RangeReader | LocalFile, member: zipfile.ZipInfo) -> FileRange:
        """The content of a member of a ZIP file that is stored as it is."""
        try:
            return cls(archive, start_of_content(member, archive.read), member.file_size)
        except BaseException:
            archive.close()
            raise

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes in ``[start, end)`` of the part."""
        return self.archive.read(self.start + start, self.start + end)

    def close(self) -> None:
        """Close the file."""
        self.archive.close()


class RemoteFile(_SeekableFile):
    """A remote file, read in blocks, of which the last ones are cached.

    Where reading continues after a request of which all bytes were used, the next request is twice as long, so
    that few bytes are wasted and long parts take few requests. That is done at each of several positions, as in a
    video with sound::

        blocks    |  0 | ... | 40 | 41 | 42 | 43 | 44 | 45 | 46 |
        requests  |    |     | 1  | 2       | 3 ...

    Attributes:
        skips_content: Whether zeros are delivered in place of bytes, without a request: for FFmpeg, which passes
            over the frames of a video whose tables it has read.
    """

    def __init__(
        self, source: FileRange | RangeReader | LocalFile, head: Sequence[tuple[int, bytes]] = ()
    ) -> None:
        """Begin at its first byte; nothing is read yet.

        Args:
            source: What reads parts of it.
            head: Parts that are known: the first byte and the content of each.
        """
        super().__init__()
        self._source = source
        self._head = head
        self._fetched: list[tuple[int, bytes]] = []
        self._passed: list[tuple[int, int]] = []
        self._position = 0
        self.skips_content = False
        self._kept: LRUCache[int, bytes] = LRUCache(_NUM_KEPT)
        self._unused: set[int] = set()  # of those that were requested
        self._runs: LRUCache[int, int] = LRUCache(_MOST_RUNS)  # block after a request -> number of blocks in it

    def tell(self) -> int:
        """Position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; returns its position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError(f"there is no byte {base + offset} in a file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, as many as fit into the buffer."""
        view = memoryview(buffer).cast("B")
        begin, end = self._position, min(self._position + len(view), self._source.size)
        if end <= begin:
            return 0
        if self.skips_content:
            view[: end - begin] = bytes(end - begin)
            self._position = end
            return end - begin
        known = next((part for part in (*self._fetched, *self._head) if _has(part, begin)), None)
        content = self._range(begin, end) if known is None else known[1][begin - known[0] : end - known[0]]
        view[: len(content)] = content
        self._position = begin + len(content)
        if self._passed and self._passed[-1][1] == begin:
            begin = self._passed.pop()[0]
        self._passed.append((begin, self._position))
        return len(content)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Read ranges of bytes, one request for each, for what is read next; returns the number of requests."""
        num_requests = 0
        kept = [part for part in self._fetched if any(_overlap(part, *each) for each in ranges)]
        for start, end in ranges:
            stop = min(end, self._source.size)
            while known := next((part for part in (*kept, *self._head) if _has(part, start)), None):
                start = known[0] + len(known[1])
            if start < stop:
                kept.append((start, self._source.read(start, stop)))
                num_requests += 1
        self._fetched = kept
        return num_requests

    def as_known(self) -> KnownFile | None:
        """What was found about it, and what was read of it until now; None where that is much, or it is local."""
        source, start = self._source, 0
        while isinstance(source, FileRange):
            start, source = start + source.start, source.archive
        if not isinstance(source, RangeReader) or source.version.archive is not None:
            return None
        parts = _joined(self._passed)
        if sum(end - begin for begin, end in parts) > min(_MOST_OF_HEAD, self._source.size // 2):
            return None
        head = [(begin, self._range(begin, end)) for begin, end in parts]
        return KnownFile(start, self._source.size, source.size, source.version.own_marks, head)

    def _range(self, start: int, end: int) -> bytes:
        first = start // _BLOCK
        blocks = b"".join(self._block(number) for number in range(first, -(-end // _BLOCK)))
        return blocks[start - first * _BLOCK : end - first * _BLOCK]

    def _block(self, number: int) -> bytes:
        if number not in self._kept:
            self._request(number)
        self._unused.discard(number)
        return self._kept[number]

    def _request(self, number: int) -> None:
        wanted = range(number, min(number + self._num_at_once(number), -(-self._source.size // _BLOCK)))
        stop = next((each for each in wanted if each in self._kept), wanted.stop)
        content = self._source.read(number * _BLOCK, min(stop * _BLOCK, self._source.size))
        for each in range(number, stop):
            place = (each - number) * _BLOCK
            self._kept[each] = content[place : place + _BLOCK]
            self._unused.add(each)
        self._runs[stop] = stop - number

    def _num_at_once(self, number: int) -> int:
        num_before = self._runs.pop(number, 0)
        if not num_before or not self._unused.isdisjoint(range(number - num_before, number)):
            return 1
        return min(2 * num_before, _MOST_AT_ONCE)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._kept.clear()
        self._unused.clear()
        self._fetched.clear()
        self._source.close()
        super().close()


def _has(part: tuple[int, bytes], place: int) -> bool:
    return part[0] <= place < part[0] + len(part[1])


def _overlap(part: tuple[int, bytes], start: int, end: int) -> bool:
    return part[0] < end and start < part[0] + len(part[1])


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
