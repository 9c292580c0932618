# SPDX-License-Identifier: Apache-2.0
"""Records that workers write for the main process: one line of JSON each."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

_WORD = struct.Struct("=q")


class FaultJournal:
    """An anonymous file to which workers append, and which the main process reads.

    It begins with a word that all share in memory: how many bytes of records there are. So it costs next to
    nothing to look whether there are new ones. A batch reaches the main process after the records about it were
    written.
    """

    def __init__(self) -> None:
        """Create the file."""
        self._fd = os.memfd_create("dali_pipeline_framework_faults", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _WORD.size)
        self._size = memoryview(mmap.mmap(self._fd, _WORD.size)).cast("q")
        self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self._num_read = 0
        self._close = weakref.finalize(self, _close_in, os.getpid(), self._fd)

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_fd": -1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, in one piece."""
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)  # closing the file ends it
            (size,) = _WORD.unpack(os.pread(fd, _WORD.size, 0))
            while lines:
                num_written = os.pwrite(fd, lines, _WORD.size + size)
                lines, size = lines[num_written:], size + num_written
            os.pwrite(fd, _WORD.pack(size), 0)  # from here on they are there
        finally:
            os.close(fd)

    def read(self) -> list[dict[str, Any]]:
        """Get the records that were written since the last time, in the process that made the journal."""
        size = self._size[0]
        if size == self._num_read:
            return []
        written = os.pread(self._fd, size - self._num_read, _WORD.size + self._num_read)
        self._num_read = size
        return [json.loads(line) for line in written.splitlines()]

    def close(self) -> None:
        """Give the file back."""
        self._close()


def _close_in(pid: int, fd: int) -> None:
    if os.getpid() == pid:  # a forked child must not close what has its number there
        os.close(fd)
