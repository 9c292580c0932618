# SPDX-License-Identifier: Apache-2.0
"""Where members of archives lie that are stored as they are."""

from __future__ import annotations

import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any, Final

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
