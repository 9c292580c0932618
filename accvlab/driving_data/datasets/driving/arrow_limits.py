# SPDX-License-Identifier: Apache-2.0
"""Files of Apache Arrow that claim more than they may: found out before memory is reserved for it.

A buffer that is compressed begins with how large it is unpacked, and Arrow reserves that much. Where buffers are
stands in the metadata of each batch of records, a flatbuffer (Message.fbs and File.fbs of Arrow)::

    file      "ARROW1", messages, footer: where each message of a batch lies
    message   metadata: kind, buffers (place and length in the body), compression;    body: the buffers
"""

from __future__ import annotations

import errno
import functools
import os
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, BinaryIO, Final

from accvlab.dali_pipeline_framework.extension import UNPACKED_BYTES, open_table

from .parquet_pages import require_pages

_MAGIC: Final = b"ARROW1"
_TAIL: Final = 4 + len(_MAGIC)
_BLOCK_BYTES: Final = 24
_DICTIONARY, _RECORDS = 2, 3  # kinds of messages
_FEW_ROWS: Final = 1 << 14
_ReadBytes = Callable[[int, int], bytes]


def require_memory(num_bytes: int, what: str = "unpacked it has {} bytes") -> None:
    """Raise a `FileTooLargeError` where something takes more memory than the limit."""
    UNPACKED_BYTES.require(num_bytes, what)


def read_parquet(arrow: ModuleType, path: str | os.PathLike[str], names: Sequence[str]) -> tuple[Any, list[str]]:
    """Read those of the columns that a Parquet file has, and the names of all.

    A few bytes can stand for a million equal rows. So rows are counted as they come, and texts are read as places
    in a list of those that differ. What pages claim is looked at before, see `require_pages`.

    Raises:
        OSError, ArrowException: It cannot be read, or its columns take more memory than the limit.
    """
    open_table(path).close()
    # Not as a data set: names like "a=b" are no partitions.
    file = arrow.parquet.ParquetFile(path)
    schema = file.schema_arrow
    known = list(schema.names)
    wanted = [name for name in names if name in known]
    types = arrow.types
    texts = [
        name
        for name in wanted
        if known.count(name) == 1
        and (types.is_string(schema.field(name).type) or types.is_large_string(schema.field(name).type))
    ]
    require_memory(_claimed_bytes(file.metadata, wanted))
    with open_table(path) as content:
        require_pages(functools.partial(_read_at, content), file.metadata, wanted)
    if texts:
        file = arrow.parquet.ParquetFile(path, read_dictionary=texts)
    batches, num_bytes = [], 0
    seen: set[int] = set()  # batches share dictionaries
    for batch in file.iter_batches(_FEW_ROWS, columns=wanted, use_threads=False):
        for column in batch.columns:
            if types.is_dictionary(column.type):
                num_bytes += column.indices.nbytes
                place = next((each.address for each in column.dictionary.buffers()[::-1] if each), 0)
                if place in seen:
                    continue
                seen.add(place)
                column = column.dictionary
            num_bytes += column.nbytes
        require_memory(num_bytes)
        batches.append(batch)
    if not batches:
        return file.read(columns=wanted, use_threads=False), known
    return arrow.Table.from_batches(batches).unify_dictionaries().combine_chunks(), known


def _read_at(file: BinaryIO, place: int, length: int) -> bytes:
    file.seek(place)
    return file.read(length)


def _claimed_bytes(metadata: Any, names: Sequence[str]) -> int:
    """How many bytes the values of columns claim to be unpacked."""
    total = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = map(group.column, range(group.num_columns))
        wanted = [each for each in columns if each.path_in_schema.split(".")[0] in names]
        total += sum(max(each.total_uncompressed_size, each.num_values) for each in wanted)
    return total


def read_feather(arrow: ModuleType, path: str | os.PathLike[str], names: Sequence[str]) -> tuple[Any, list[str]]:
    """Read those of the columns that a Feather file has, and the names of all.

    Raises:
        OSError, ArrowException: It cannot be read, or its columns take more memory than the limit.
    """
    open_table(path).close()
    with arrow.memory_map(os.fspath(path)) as source:
        is_file = source.read(len(_MAGIC)) == _MAGIC
        if is_file:
            BatchBlocks(source).require_all()
    known = list(arrow.ipc.open_file(os.fspath(path)).schema.names) if is_file else None
    wanted = None if known is None else [name for name in names if name in known]
    table = arrow.feather.read_table(path, columns=wanted, memory_map=True, use_threads=False)
    table.validate(full=True)
    return table, table.column_names if known is None else known


class BatchBlocks:
    """The batches of records of an IPC file, and how large each is unpacked."""

    def __init__(self, source: Any) -> None:
        """Read where they are in a file that pyarrow has mapped.

        Raises:
            OSError: Its footer or its dictionaries are damaged, or these take more memory than the limit.
        """
        self._read_at = source.read_at
        size = source.size()
        self._places: list[tuple[int, int]] = []
        tail = bytes(self._read_at(_TAIL, max(0, size - _TAIL)))
        if tail[4:] != _MAGIC:  # Arrow tells what is wrong
            return
        try:
            (length,) = struct.unpack_from("<i", tail)
            footer = bytes(self._read_at(max(0, length), max(0, size - _TAIL - length)))
            table = _Table.root(footer)
            self._places = table.blocks(3)
            require_memory(sum(self._unpacked(place) for place in table.blocks(2)))
        except (struct.error, IndexError, OverflowError) as error:
            raise OSError(errno.EINVAL, "its footer is damaged") from error

    def _unpacked(self, place: tuple[int, int]) -> int:
        offset, length = place
        metadata = bytes(self._read_at(length, offset))
        begin = 8 if metadata[:4] == b"\xff\xff\xff\xff" else 4
        return unpacked_bytes(metadata[begin:], lambda start, count: self._read_at(count, offset + length + start))

    def require(self, number: int) -> None:
        """Raise an OSError where a batch is damaged, or takes more memory than the limit."""
        if number >= len(self._places):
            raise OSError(errno.EINVAL, "its footer is damaged")
        require_memory(self._unpacked(self._places[number]))

    def require_all(self) -> None:
        """Raise an OSError where one is damaged, or all take more memory than the limit."""
        require_memory(sum(self._unpacked(place) for place in self._places))


def unpacked_bytes(metadata: bytes, read_body: _ReadBytes) -> int:
    """How many bytes the buffers of a message claim to be unpacked; 0 where they are not compressed.

    Args:
        metadata: The flatbuffer of the message.
        read_body: Reads from a place in its body so many bytes.

    Raises:
        OSError: It is damaged.
    """
    try:
        message = _Table.root(metadata)
        kind_at, header_at = message.field(1), message.field(2)
        kind = metadata[kind_at] if kind_at else 0
        if not header_at or kind not in (_DICTIONARY, _RECORDS):
            return 0
        records = message.table(header_at)
        if kind == _DICTIONARY:
            data_at = records.field(1)
            if not data_at:
                return 0
            records = records.table(data_at)
        if not records.field(3):
            return 0
        total = 0
        for at in records.elements(2, 16):
            start, length = struct.unpack_from("<qq", metadata, at)
            if length > 0:
                (claimed,) = struct.unpack("<q", read_body(start, 8))
                total += length if claimed < 0 else claimed
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise OSError(errno.EINVAL, "the metadata of a batch of records are damaged") from error
    return total


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at
        self._fields = at - self._number("<i", at)
        self._size = self._number("<H", self._fields)

    @classmethod
    def root(cls, content: bytes) -> _Table:
        return cls(content, struct.unpack_from("<I", content)[0])

    def _number(self, form: str, at: int) -> int:
        if at < 0:
            raise IndexError(at)
        return int(struct.unpack_from(form, self._content, at)[0])

    def field(self, number: int) -> int:
        """Where a field is; 0 where it is not there."""
        entry = 4 + 2 * number
        offset = self._number("<H", self._fields + entry) if entry + 2 <= self._size else 0
        return self._at + offset if offset else 0

    def table(self, at: int) -> _Table:
        """The table of a field."""
        return _Table(self._content, at + self._number("<I", at))

    def elements(self, number: int, num_bytes: int) -> range:
        """Where the elements of a vector of structures are."""
        at = self.field(number)
        if not at:
            return range(0)
        start = at + self._number("<I", at)
        end = start + 4 + num_bytes * self._number("<I", start)
        if end > len(self._content):
            raise IndexError(end)
        return range(start + 4, end, num_bytes)

    def blocks(self, number: int) -> list[tuple[int, int]]:
        """Where the messages of a vector of blocks are, and how long their metadata are."""
        found = [struct.unpack_from("<qi", self._content, at) for at in self.elements(number, _BLOCK_BYTES)]
        if any(offset < 0 or length < 0 for offset, length in found):
            raise IndexError(number)
        return found
