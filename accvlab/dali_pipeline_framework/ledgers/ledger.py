# SPDX-License-Identifier: Apache-2.0
"""The file in which a loader notes what it has delivered: lines of JSON, written by one loader in one process.

A line per batch, and one before the first batch and before that with which a loaded state goes on::

    {"begin": "new", "epoch": 0, "batch": 0, "time_ns": 17.., "shard": 0, "shards": 2, "num_samples": 300,
     "order": "5f..", "launch": "09..","crc":"9b2f61d0"}
    {"epoch":0,"batch":0,"time_ns":17..,"samples":"BQAAACsBAAA=","crc":"1f00a3c4"}
    {"epoch":0,"batch":1,"time_ns":17..,"samples":"AQAAAAMAAAA=","replaced":[33, 3],"crc":"77d91e55"}

``samples`` are base64 of little-endian uint32, or a list where an index is larger; those that only fill the batch
are left out. A batch without ``samples`` is one of which they are not known. ``replaced`` has pairs: the sample
that was due, and that in its place, which is among the samples.

The CRC-32 of a line goes on from the line before, so a line that was changed, taken out, doubled or put in is
noticed. Only the last line may be incomplete: a process was killed while it was written. ``}`` is the last
character of a line, and no other: so a line of which only the end was changed does not look incomplete.
"""

from __future__ import annotations

import binascii
import errno
import glob
import json
import os
import time
import weakref
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import file_path, file_paths, shown
from ..errors import FileError, error_that_is_also
from ..limits.file_limits import open_table, parse_json

NEW, STATE = "new", "state"
"""Why a run of batches begins: a loader was made, or a state was loaded."""

_SUFFIX = ".ledger"
_END = b',"crc":"%08x"}\n'


def samples_text(samples: Sequence[int], replaced: Sequence[int] = ()) -> bytes:
    """Write the samples of a batch as in its line; empty where an index is negative, which is: not known.

    Args:
        samples: Indices of those that were delivered.
        replaced: Pairs: the index that was due, and that in its place.
    """
    try:
        text = b',"samples":"%b"' % binascii.b2a_base64(array("I", samples), newline=False)
    except OverflowError:
        if min(samples) < 0:
            return b""
        text = f',"samples":{[*map(int, samples)]}'.encode()
    return text + f',"replaced":{[*map(int, replaced)]}'.encode() if replaced else text


class LedgerWriter:
    """Appends to a new ledger. What was noted outlives the process, however it ends.

    All methods raise the `OSError` of the system where there is no room, or the disk fails.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, int | str]) -> None:
        """Make the file, and the folder where it is not there.

        Args:
            folder: The folder.
            about: Who writes: ``shard``, ``shards``, ``num_samples``, ``order``, ``launch``, see `LedgerPart`.
        """
        self._about, self._pid = about, os.getpid()
        self._size = self._checksum = 0
        who = f"shard-{about['shard']}-of-{about['shards']}.{os.uname().nodename}.{self._pid}"
        self.path = os.path.join(folder, f"{who}.{time.time_ns()}{_SUFFIX}")
        os.makedirs(folder, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._close = weakref.finalize(self, os.close, self._file)

    def begin(self, why: str, epoch: int, batch: int) -> None:
        """Note that a run of batches begins at a position: `NEW` or `STATE`."""
        where = {"begin": why, "epoch": epoch, "batch": batch, "time_ns": time.time_ns()}
        self._append(json.dumps({**where, **self._about})[:-1].encode())

    def note_batch(self, epoch: int, batch: int, samples: bytes) -> None:
        """Note a batch of an epoch, with its samples as `samples_text` returns them."""
        self._append(b'{"epoch":%d,"batch":%d,"time_ns":%d%b' % (epoch, batch, time.time_ns(), samples))

    def _append(self, line: bytes) -> None:
        """Append a line, or a part of it and raise an error; nothing happens in a forked copy of the process."""
        if os.getpid() != self._pid:
            return
        checksum = zlib.crc32(line, self._checksum)
        line += _END % checksum
        if os.pwrite(self._file, line, self._size) < len(line):  # the next line takes its place
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._checksum, self._size = checksum, self._size + len(line)

    def sync(self) -> None:
        """Have the system write it to the disk, so that it also outlives the machine."""
        if self._close.alive:
            os.fsync(self._file)

    def close(self) -> None:
        """Write it to the disk and close it; nothing happens the second time."""
        try:
            self.sync()
        finally:
            self._close()


@attrs.define(eq=False)
class LedgerPart:
    """A run of batches of one loader, from a continuation to the next one.

    Attributes:
        path: The file.
        begin: `NEW` or `STATE`.
        epoch, batch, time_ns: Where it begins, and when, in nanoseconds since 1970.
        shard, shards: Shard of the loader, of so many.
        num_samples: Samples of the data set; -1 where that is not known.
        order: Digest of what the order depends on: ledgers of the same training have the same.
        launch: Digest of what ranks that are started together have in common.
        end_ns: When its last batch was delivered; 0 where there is none.
        batches: Epoch and number of each batch, indices of its samples (None: not known), and pairs of samples
            that were replaced.
    """

    path: str
    begin: str
    epoch: int = attrs.field(converter=int)
    batch: int = attrs.field(converter=int)
    time_ns: int = attrs.field(converter=int)
    shard: int = attrs.field(converter=int)
    shards: int = attrs.field(converter=int)
    num_samples: int = attrs.field(converter=int)
    order: str = attrs.field(converter=str)
    launch: str = attrs.field(converter=str)
    end_ns: int = attrs.field(default=0, init=False)
    batches: list[tuple[tuple[int, int], npt.NDArray[Any] | None, list[int]]] = attrs.field(
        factory=list, init=False
    )

    def add(self, epoch: int, batch: int, time_ns: int, samples: Any = None, replaced: Iterable[int] = ()) -> None:
        """Add a batch with the values of its line."""
        if isinstance(samples, list):
            samples = np.fromiter(map(int, samples), np.int64)
        elif samples is not None:
            samples = np.frombuffer(binascii.a2b_base64(samples), "<u4")
        self.batches.append(((int(epoch), int(batch)), samples, [*map(int, replaced)]))
        self.end_ns = max(self.end_ns, int(time_ns))


def read_ledger(path: str | os.PathLike[str]) -> tuple[list[LedgerPart], bool]:
    """Read a ledger, and check all of it.

    Returns:
        Its parts, in the order in which they were written, and whether the last line is incomplete.

    Raises:
        SettingError: ``path`` is no path.
        FileError: It cannot be read, is no ledger of this release, or is damaged.
    """
    text = file_path(path, "path")
    try:
        with open_table(text) as file:
            lines = file.readlines()
    except OSError as error:
        message = f"The ledger {shown(text)} cannot be read: {error.strerror or error}."
        raise error_that_is_also(FileError, [type(error)], message) from error
    parts: list[LedgerPart] = []
    checksum, is_torn = 0, False
    for number, line in enumerate(lines, 1):
        is_torn = not line.endswith(b"\n") and line.find(b"}") in (-1, len(line) - 1)
        if is_torn:
            break
        body, key, end = line.rpartition(_END[:8])
        checksum = zlib.crc32(body, checksum)
        try:
            if key + end != _END % checksum:
                raise ValueError
            values = parse_json(body + b"}")
            if "begin" in values:
                parts.append(LedgerPart(text, **values))
            else:
                parts[-1].add(**values)
        except (ValueError, TypeError, IndexError, OverflowError):
            message = f"{shown(text)} is damaged in line {number}, or no ledger of this release."
            raise FileError(message) from None
    if not parts:
        raise FileError(f"{shown(text)} is no ledger: it has no whole line.")
    return parts, is_torn


def ledgers_in(paths: Iterable[str | os.PathLike[str]]) -> list[tuple[list[LedgerPart], bool]]:
    """Read the ledgers at some paths: files, or folders with files whose names end with ``.ledger``.

    Raises:
        SettingError: ``paths`` are no paths.
        FileError: One cannot be read or is damaged, or a folder has none.
    """
    found: list[str] = []
    for path in file_paths(paths, "paths"):
        files = sorted(glob.glob(f"{glob.escape(path)}/*{_SUFFIX}")) if os.path.isdir(path) else [path]
        if not files:
            raise FileError(f"The folder {shown(path)} has no ledgers (*{_SUFFIX}).")
        found += files
    return [read_ledger(path) for path in {os.path.realpath(path): path for path in found}.values()]
