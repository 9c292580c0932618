# SPDX-License-Identifier: Apache-2.0
"""Records that workers write for the main process: one line of JSON each."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any


class FaultJournal:
    """An anonymous file to which workers append, and which the main process reads.

    A batch reaches the main process after the records about it were written. To look whether there are new ones
    costs a microsecond.
    """

    def __init__(self) -> None:
        """Create the file."""
        self._fd = os.memfd_create("dali_pipeline_framework_faults", os.MFD_CLOEXEC)
        self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self._num_read = 0
        self._rest = b""
        self._close = weakref.finalize(self, _close_in, os.getpid(), self._fd)

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_fd": -1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, in one piece."""
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            while lines:
                lines = lines[os.write(fd, lines) :]
        finally:
            os.close(fd)

    def read(self) -> list[dict[str, Any]]:
        """Get the records that were written since the last time, in the process that made the journal."""
        if os.fstat(self._fd).st_size == self._num_read:
            return []
        written = os.pread(self._fd, os.fstat(self._fd).st_size - self._num_read, self._num_read)
        self._num_read += len(written)
        *lines, self._rest = (self._rest + written).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Give the file back."""
        self._close()


def _close_in(pid: int, fd: int) -> None:
    if os.getpid() == pid:  # a forked child must not close what has its number there
        os.close(fd)
