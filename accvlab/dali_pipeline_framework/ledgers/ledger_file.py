# SPDX-License-Identifier: Apache-2.0
"""The file in which a loader notes what it has delivered.

A file is written by one loader in one process, on one shard, and only ever grows::

    header   112 bytes: who writes, for which data set and order
    record    32 bytes: kind, epoch, batch, time, checksum; for a batch, sample indices and their checksum follow
    record   ...

All is little-endian. Each checksum (CRC-32) goes on from the one before, so a record that was changed, taken out
or put in is noticed. Only the last record may be incomplete: a process was killed while it wrote it. The first 32
bytes have a checksum of their own: else a changed number of samples would make a whole record look incomplete.
Behind the last record there may be zeros (see `appended_file`).
"""

from __future__ import annotations

import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import file_path, file_paths, shown
from ..errors import FileError, error_that_is_also
from ..limits.tables import open_table
from .appended_file import AppendedFile
from .marks import REPLACED
from .packed_batch import BATCH, HAS_MARKS, IS_UNKNOWN, UNKNOWN, PackedBatch

Int64Array = npt.NDArray[np.int64]
UInt8Array = npt.NDArray[np.uint8]

SUFFIX: Final = ".ledger"

LOOP, NEW, STATE = range(3)
"""Why a run of batches begins: another loop, the first loop of a loader, or a state was loaded."""

_MAGIC = b"accvlabL"
_VERSION = 2
# magic, version, pid, run, time (ns), shard, shards, samples of the data set (-1: not known), batch size,
# reserved, digest of the order, digest of the launch, host; then the checksum
_HEADER = struct.Struct("<8sII16sQIIqII8s8s28s")
_CHECKSUM = struct.Struct("<I")
_HEADER_SIZE = _HEADER.size + _CHECKSUM.size
# kind, width of the indices (start: why), flags, 0, number of indices, epoch, batch, time (ms); then the checksum
_RECORD = struct.Struct("<BBBBIIQQ")
_RECORD_SIZE = _RECORD.size + _CHECKSUM.size
_BATCH_RECORD = struct.Struct("<QIQQ")  # the same, of a `PackedBatch`
_START = 5  # two bits: with one changed, the record does not look like the zeros behind the last one
_MOST_PER_SAMPLE = 2 * 8 + 1
_TYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype("<u1"),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<i8"),
}


@attrs.frozen
class LedgerHeader:
    """Who writes a ledger.

    Attributes:
        shard_id: Shard of the loader.
        num_shards: Number of shards.
        num_samples: Samples of the data set; -1 where that is not known.
        batch_size: Samples per batch on this shard.
        order: Digest of what the order depends on: ledgers of the same training have the same.
        launch: Digest of what ranks that are started together have in common.
        host: Name of the machine, cut to 28 bytes.
        pid: The process.
        run: Random, another one for each file.
        time_ns: When the file was made, in nanoseconds since 1970.
    """

    shard_id: int
    num_shards: int
    num_samples: int
    batch_size: int
    order: bytes
    launch: bytes
    host: str = attrs.field(factory=lambda: os.uname().nodename[:28])
    pid: int = attrs.field(factory=os.getpid)
    run: bytes = attrs.field(factory=lambda: secrets.token_bytes(16))
    time_ns: int = attrs.field(factory=time.time_ns)

    @property
    def name(self) -> str:
        """Name of a file for it, which no other has."""
        return f"shard-{self.shard_id}-of-{self.num_shards}.{self.time_ns}.{self.run.hex()[:8]}{SUFFIX}"

    def _packed(self) -> bytes:
        host = self.host.encode(errors="replace")[:28]
        packed = _HEADER.pack(
            *(_MAGIC, _VERSION, self.pid, self.run, self.time_ns, self.shard_id, self.num_shards),
            *(self.num_samples, self.batch_size, 0, self.order, self.launch, host),
        )
        return packed + _CHECKSUM.pack(zlib.crc32(packed))


class LedgerWriter:
    """Appends to a new ledger. What was noted outlives the process, however it ends."""

    def __init__(self, folder: str | os.PathLike[str], header: LedgerHeader) -> None:
        """Make the file, and the folder where it is not there.

        Raises:
            FileError: It cannot be made.
        """
        self.path = Path(folder) / header.name
        packed = header._packed()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = AppendedFile(self.path)
            self._file.append(packed)
        except OSError as error:
            raise self._failed(error) from error
        self._checksum = zlib.crc32(packed[: _HEADER.size])

    def begin(self, why: int, epoch: int, batch: int) -> None:
        """Note that a run of batches begins at a position: `LOOP`, `NEW` or `STATE`.

        Raises:
            FileError: There is no room for it.
        """
        self._append(_RECORD.pack(_START, why, 0, 0, 0, epoch, batch, time.time_ns() // 1_000_000), b"")

    def note_batch(self, epoch: int, batch: int, samples: PackedBatch | None) -> None:
        """Note a batch of an epoch with its samples; None where they are not known.

        Raises:
            FileError: There is no room for it.
        """
        head, payload = samples or UNKNOWN
        self._append(_BATCH_RECORD.pack(head, epoch, batch, time.time_ns() // 1_000_000), payload)

    def _append(self, head: bytes, payload: bytes) -> None:
        checksum = zlib.crc32(head, self._checksum)
        record = head + checksum.to_bytes(4, "little")
        if payload:
            checksum = zlib.crc32(payload, checksum)
            record += payload + checksum.to_bytes(4, "little")
        try:
            self._file.append(record)
        except OSError as error:
            raise self._failed(error) from error
        self._checksum = checksum

    def _failed(self, error: OSError) -> FileError:
        message = f"The ledger {str(self.path)!r} cannot be written: {error.strerror or error}."
        message += " Make room, or name another folder: `ledger`."
        return cast(FileError, error_that_is_also(FileError, [type(error)], message))

    def sync(self) -> None:
        """Have the system write it to the disk, so that it also outlives the machine."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; nothing happens the second time."""
        self._file.close()


@attrs.frozen(eq=False)
class LedgerPart:
    """A run of batches of one loader, from a continuation to the next one.

    Attributes:
        header: Who wrote it.
        path: The file.
        why: `NEW` or `STATE`.
        start: Epoch and batch at which it begins.
        start_ms: When it began, in milliseconds since 1970.
        end_ms: When its last batch was delivered; ``start_ms`` where there is none.
        epochs: ``(b,)``, epoch of each batch.
        batches: ``(b,)``, number of each batch in its epoch.
        is_known: ``(b,)`` bool, whether the samples of a batch are known.
        batch_of: ``(n,)``, number in this part of the batch of each sample.
        indices: ``(n,)``, index of each sample.
        marks: ``(n,)``, how it was delivered.
        planned: ``(n,)``, index of the sample that was due.
    """

    header: LedgerHeader
    path: str
    why: int
    start: tuple[int, int]
    start_ms: int
    end_ms: int
    epochs: Int64Array
    batches: Int64Array
    is_known: npt.NDArray[np.bool_]
    batch_of: Int64Array
    indices: Int64Array
    marks: UInt8Array
    planned: Int64Array


@attrs.frozen
class Ledger:
    """What stands in a file.

    Attributes:
        header: Who wrote it.
        parts: Runs of batches, in the order in which they were written.
        torn_bytes: Bytes behind the last whole record, which do not count.
        is_torn: Whether a part of a record is among them; else they are zeros, since the file was not closed.
    """

    header: LedgerHeader
    parts: tuple[LedgerPart, ...]
    torn_bytes: int
    is_torn: bool


@attrs.define
class _Part:
    """A part that is being read."""

    why: int
    start: tuple[int, int]
    start_ms: int
    end_ms: int
    records: list[tuple[int, int, bool, int]] = attrs.field(
        factory=list
    )  # epoch, batch, is known, number of samples
    indices: list[Any] = attrs.field(factory=list)
    marks: list[Any] = attrs.field(factory=list)
    planned: list[Any] = attrs.field(factory=list)

    def finished(self, header: LedgerHeader, path: str) -> LedgerPart:
        columns = [*zip(*self.records, strict=True)] or [()] * 4
        epochs, batches, is_known, counts = columns
        numbers = np.arange(len(counts), dtype=np.int64)
        return LedgerPart(
            *(header, path, self.why, self.start, self.start_ms, self.end_ms),
            np.array(epochs, np.int64),
            np.array(batches, np.int64),
            np.array(is_known, np.bool_),
            np.repeat(numbers, np.array(counts, np.int64)),
            _joined(self.indices, np.int64),
            _joined(self.marks, np.uint8),
            _joined(self.planned, np.int64),
        )


def _joined(arrays: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype)


class _DamagedError(Exception):
    """Bytes that no ledger has."""


def read_ledger(path: str | os.PathLike[str]) -> Ledger:
    """Read a ledger, and check all of it.

    Raises:
        SettingError: ``path`` is no path.
        FileError: It cannot be read, is no ledger, is one of another version, or is damaged anywhere but in its
            last record.
    """
    text = file_path(path, "path")
    try:
        with open_table(text) as file:
            content = file.read()
    except OSError as error:
        message = f"The ledger {shown(text)} cannot be read: {error.strerror or error}."
        raise error_that_is_also(FileError, [type(error)], message) from error
    try:
        return _parsed(content, text)
    except _DamagedError as error:
        raise FileError(f"{shown(text)} {error}.") from error


def _parsed(content: bytes, path: str) -> Ledger:
    num_same = sum(one == other for one, other in zip(content, _MAGIC, strict=False))
    if num_same < min(len(content), len(_MAGIC)) / 2 or not content:
        raise _DamagedError("is no ledger: it begins with other bytes")
    if len(content) < _HEADER_SIZE:
        raise _DamagedError(f"is cut short within its header ({len(content)} of {_HEADER_SIZE} bytes are there)")
    header, checksum = _parsed_header(content)
    parts: list[_Part] = []
    position = _HEADER_SIZE
    size = len(content)
    view = memoryview(content)
    while position < size:
        if size - position < _RECORD_SIZE:
            break
        if not any(content[position : position + 8]):
            longest = _RECORD_SIZE + header.batch_size * _MOST_PER_SAMPLE + _CHECKSUM.size
            is_one_bit = int.from_bytes(content[position:], "little").bit_count() == 1  # no record has so few
            if is_one_bit or any(content[position + longest :]):
                raise _damaged_at(position)
            break  # it was not closed, or a process was killed while it wrote the rest of the record
        head = view[position : position + _RECORD.size]
        kind, width, flags, reserved, count, epoch, batch, time_ms = _RECORD.unpack(head)
        begin = position + _RECORD_SIZE
        is_possible = reserved == 0 and batch < 2**62 and time_ms < 2**62
        if kind == _START:
            is_possible = is_possible and width in (LOOP, NEW, STATE) and flags == count == 0
            length = 0
        else:
            is_possible = is_possible and kind == BATCH and width in _TYPES and flags in (0, HAS_MARKS, IS_UNKNOWN)
            is_possible = is_possible and not (flags == IS_UNKNOWN and count)
            length = count * (2 * width + 1 if flags & HAS_MARKS else width)
        checksum = zlib.crc32(head, checksum)
        if not is_possible or checksum != _CHECKSUM.unpack_from(content, position + _RECORD.size)[0]:
            raise _damaged_at(position)
        end = begin + length
        following = end + _CHECKSUM.size if length else end
        if following > size:
            break
        if length:
            checksum = zlib.crc32(view[begin:end], checksum)
            if checksum != _CHECKSUM.unpack_from(content, end)[0]:
                raise _damaged_at(position)
        if kind == _START:
            if width != LOOP or not parts:
                parts.append(_Part(width, (epoch, batch), time_ms, time_ms))
        else:
            if not parts:
                raise _damaged_at(position)
            _add_batch(parts[-1], view[begin:end], width, flags, count, (epoch, batch), time_ms, position)
        position = following
    finished = tuple(part.finished(header, path) for part in parts)
    return Ledger(header, finished, size - position, content.count(0, position) < size - position)


def _add_batch(
    part: _Part,
    payload: memoryview,
    width: int,
    flags: int,
    count: int,
    place: tuple[int, int],
    time_ms: int,
    position: int,
) -> None:
    part.end_ms = max(part.end_ms, time_ms)
    part.records.append((*place, flags != IS_UNKNOWN, count))
    indices = np.frombuffer(payload, _TYPES[width], count)
    part.indices.append(indices)
    marks: Any = np.zeros(count, np.uint8)
    planned: Any = indices
    if flags & HAS_MARKS:
        marks = np.frombuffer(payload, np.uint8, count, count * width)
        planned = np.frombuffer(payload, _TYPES[width], count, count * (width + 1))
    if count and (marks.max() > REPLACED or (width == 8 and min(indices.min(), planned.min()) < 0)):
        raise _damaged_at(position)
    part.marks.append(marks)
    part.planned.append(planned)


def _parsed_header(content: bytes) -> tuple[LedgerHeader, int]:
    (checksum,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    values = _HEADER.unpack_from(content)
    _, version, pid, run, time_ns, shard_id, num_shards, num_samples, batch_size, _, order, launch, host = values
    if zlib.crc32(content[: _HEADER.size]) != checksum or not content.startswith(_MAGIC):
        raise _DamagedError("is a ledger whose header is damaged")
    if version != _VERSION:
        raise _DamagedError(f"is a ledger of version {version}, this release of the package reads {_VERSION}")
    if shard_id >= num_shards or num_samples < -1:
        raise _DamagedError("is a ledger whose header is damaged")
    name = host.rstrip(b"\0").decode(errors="replace")
    header = LedgerHeader(*(shard_id, num_shards, num_samples, batch_size, order, launch, name, pid, run, time_ns))
    return header, checksum


def _damaged_at(position: int) -> _DamagedError:
    return _DamagedError(f"is damaged at byte {position}: what follows cannot be trusted")


def ledgers_in(paths: Iterable[str | os.PathLike[str]]) -> list[Ledger]:
    """Read the ledgers at some paths: files, or folders with files whose names end with ``.ledger``.

    Raises:
        SettingError: ``paths`` are no paths.
        FileError: One cannot be read or is damaged, or a folder has none.
    """
    found: list[Path] = []
    for path in map(Path, file_paths(paths, "paths")):
        if os.path.isdir(path):  # of `Path` it raises for names that are too long
            files = sorted(path.glob(f"*{SUFFIX}"))
            if not files:
                raise FileError(f"The folder {str(path)!r} has no ledgers (*{SUFFIX}).")
            found += files
        else:
            found.append(path)
    different = {os.path.realpath(path): path for path in found}
    return [read_ledger(path) for path in different.values()]
