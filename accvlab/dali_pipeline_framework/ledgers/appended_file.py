# SPDX-License-Identifier: Apache-2.0
"""A file that only grows, a record at a time, and keeps what was appended however the process ends.

Where it is safe, that takes no call of the system: room is reserved on the disk, a piece of the file is mapped
into memory, and the system writes what stands there, also for a process that was killed::

    |header record record record 0 0 0 0 0 0 0 0|
                       mapped  ^ the next one     ^ reserved up to here
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from pathlib import Path
from typing import Final

_PIECE: Final = 1 << 18
_FIRST: Final = 8
# A mapped page for which the disk has no room would end the process. These keep room that was reserved. Others may
# need new room to change a page (Btrfs, ZFS; XFS where the file was copied: `cp` has the copy share its room), or
# there is no saying (network, FUSE).
_KEEP_ROOM: Final = frozenset({b"ext4", b"tmpfs"})


class AppendedFile:
    """A new file that only grows.

    Where it is mapped into memory, it ends with zeros until it is closed, and the first eight bytes of a record
    are put there last: where they are zero, a process was killed while it wrote the rest.

    Attributes:
        size: How much was appended.
    """

    def __init__(self, path: Path) -> None:
        """Make the file, in a folder that is there.

        Raises:
            OSError: It cannot be made.
        """
        self.size = 0
        self._pid = os.getpid()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._is_mapped = _is_safe_to_map(self._file)
        self._memory: mmap.mmap | None = None
        self._mapped_from = self._mapped_to = 0
        self._drop = weakref.finalize(self, os.close, self._file)  # of one that is not closed
        self._drop.atexit = False
        _open_files.add(self)

    def append(self, record: bytes) -> None:
        """Append at least eight bytes; nothing happens in a forked copy of the process.

        Raises:
            OSError: There is no room for it; then nothing of it was appended.
        """
        end = self.size + len(record)
        memory = self._memory
        if memory is None or end > self._mapped_to:
            if os.getpid() != self._pid:
                return
            if not self._is_mapped:
                self._write(record)
                return
            memory = self._map(end)
        begin = self.size - self._mapped_from
        memory[begin + _FIRST : end - self._mapped_from] = record[_FIRST:]
        memory[begin : begin + _FIRST] = record[:_FIRST]
        self.size = end

    def _map(self, end: int) -> mmap.mmap:
        """Map a piece that reaches from the last page to behind ``end``, for which there is room."""
        begin = self.size - self.size % mmap.ALLOCATIONGRANULARITY
        length = max(_PIECE, end - begin)
        length += -length % mmap.ALLOCATIONGRANULARITY
        try:
            os.posix_fallocate(self._file, begin, length)
            self._memory = mmap.mmap(self._file, length, offset=begin)
        except OSError:
            self._memory = None  # what of it is behind the end of the file must not be touched any more
            os.ftruncate(self._file, self.size)
            raise
        self._mapped_from, self._mapped_to = begin, begin + length
        return self._memory

    def _write(self, record: bytes) -> None:
        if os.pwrite(self._file, record, self.size) < len(record):
            os.ftruncate(self._file, self.size)  # a part was written: records stay in one piece
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += len(record)

    def sync(self) -> None:
        """Have the system write it to the disk, so that it also outlives the machine.

        Raises:
            OSError: The disk cannot take it.
        """
        if self._file >= 0:
            os.fsync(self._file)

    def close(self) -> None:
        """Write it to the disk and close it; nothing happens the second time.

        Raises:
            OSError: The disk cannot take it.
        """
        file, self._file, self._memory = self._file, -1, None
        if file < 0:
            return
        try:
            if os.getpid() == self._pid:
                os.ftruncate(file, self.size)
                os.fsync(file)
        finally:
            self._drop()


def _is_safe_to_map(file: int) -> bool:
    """Whether room that was reserved for a file will be there."""
    device = os.fstat(file).st_dev
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()  # names need not be UTF-8
    except OSError:
        return False
    systems = [fields[fields.index(b"-") + 1] for fields in map(bytes.split, mounts) if fields[2] == number]
    return bool(systems) and _KEEP_ROOM.issuperset(systems)


_open_files: weakref.WeakSet[AppendedFile] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for file in _open_files:
        file._memory = None


os.register_at_fork(after_in_child=_leave_to_parent)
