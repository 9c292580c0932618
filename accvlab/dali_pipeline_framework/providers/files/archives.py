# SPDX-License-Identifier: Apache-2.0
"""Members of tar and ZIP archives, read within limits."""

from __future__ import annotations

import errno
import functools
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...limits.file_limits import FILE_BYTES, UNPACKED_BYTES

_TAR: Final = "tar"
_PREFIX: Final = "accvlab-bounded-"
_HEADER_BYTES: Final = 512
_MEMORY_PER_BYTE: Final = 4  # what tarfile and fsspec keep of a header
_MOST_AT_ONCE: Final = 1 << 24  # names, and other headers that are read as a whole


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
    """The name of a compression that fsspec knows, within limits; None where it is none."""
    from fsspec.compression import compr, register_compression

    if not isinstance(compression, str) or compression not in compr or compression.startswith(_PREFIX):
        return None
    name = _PREFIX + compression
    if name not in compr:
        register_compression(name, functools.partial(_unpacked, compr[compression]), [])
    return name


def _unpacked(unpack: Any, file: Any, mode: str = "rb", **settings: Any) -> BoundedUnpacking:
    return BoundedUnpacking(unpack(file, mode=mode, **settings))


class BoundedUnpacking(io.RawIOBase):
    """An unpacked file, of which no more is read for the first time than the limits allow."""

    def __init__(self, file: Any) -> None:
        """Read nothing yet."""
        super().__init__()
        self._file = file
        self._seen = 0  # how far it was read
        self._num_read = 0  # of that, what was not skipped

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

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
        if size > _MOST_AT_ONCE:
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
        """Where the next byte is read."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()
        super().close()


_HEADER: Final = struct.Struct("<4s22xHH")  # of a member of a ZIP file: signature, lengths of name and extra field
_IS_ENCRYPTED: Final = 1


def start_of_member(file_system: Any, path: str, read: Callable[[int, int], bytes]) -> int | None:
    """Find where the content of a member begins in its archive; None where it does not lie there in one piece.

    (To go to a byte of a member, ``zipfile`` reads all that is before it.)

    Args:
        file_system: fsspec's file system of the archive.
        path: The member.
        read: Reads the bytes in ``[start, end)`` of the archive.
    """
    zipped, tarred = getattr(file_system, "zip", None), getattr(file_system, "tar", None)
    if isinstance(zipped, zipfile.ZipFile):
        packed = zipped.getinfo(path)
        if packed.compress_type != zipfile.ZIP_STORED or packed.flag_bits & _IS_ENCRYPTED:
            return None
        start = packed.header_offset
        signature, name_length, extra_length = _HEADER.unpack(read(start, start + _HEADER.size))
        return start + _HEADER.size + name_length + extra_length if signature == b"PK\3\4" else None
    if isinstance(tarred, tarfile.TarFile):
        member = tarred.getmember(file_system.index[path][2])
        return member.offset_data if member.isreg() and not member.issparse() else None
    return None
