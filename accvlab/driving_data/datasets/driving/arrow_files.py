# SPDX-License-Identifier: Apache-2.0
"""Files of Apache Arrow: IPC files, mapped, and Feather and Parquet tables as NumPy arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import did_you_mean, listed
from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError, MissingPackageError, file_error
from accvlab.dali_pipeline_framework.extension import UNPACKED_BYTES, StoredFile, open_table

from . import poses
from .array_types import Array, Float64, Int64, UInt8

_VALUE_BYTES = 8  # of a value in an array; in a file, a few bytes can be a million equal ones
# Besides pyarrow's own errors: names and texts are decoded on use, and may be numbers in a list that is cut short.
_UNREADABLE = (OSError, MemoryError, ValueError, IndexError, StopIteration)
_TEXT = ("is_string", "is_large_string")
_KINDS: Mapping[str, tuple[Sequence[str], type[np.generic]]] = {  # tests of pyarrow for types, and NumPy's type
    "number": (("is_integer", "is_floating"), np.float64),
    "whole": (("is_integer",), np.int64),
    "flag": (("is_boolean",), np.bool_),
    "text": (_TEXT, np.str_),
    "text or whole": ((*_TEXT, "is_integer"), np.int64),
}


@attrs.frozen
class Tensors:
    """Kind of columns of numbers of one type and shape.

    Attributes:
        dtype: Their type.
        shape: Shape of the numbers of each row.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@attrs.frozen
class ListsOf:
    """Kind of columns of lists.

    Attributes:
        kind: Kind of the elements.
        empty: What empty elements are; None if there must not be any.
    """

    kind: str | Tensors
    empty: object = None


Kind: TypeAlias = str | Tensors | ListsOf


class Lists(NamedTuple):
    """A column of lists.

    Attributes:
        counts: Number of elements of each row, ``(num_rows,)``.
        values: Elements of all rows.
    """

    counts: Int64
    values: Array


def require_memory(num_bytes: int) -> None:
    """Raise a `FileTooLargeError` where what is read of a file takes more memory than the limit."""
    UNPACKED_BYTES.require(num_bytes, "unpacked it has {} bytes")


def require_column(path: str | os.PathLike[str], name: str, known: Sequence[str]) -> None:
    """Refuse a file without a column."""
    if name not in known:
        hint = f"{did_you_mean(name, known)} It has: {listed(known)}."
        raise FileError(f"The file {os.fspath(path)!r} has no column {name!r}.{hint}")


@contextmanager
def reading(what: str, path: str | os.PathLike[str]) -> Iterator[Any]:
    """Import pyarrow; what cannot be read of a file is a `FileError`, which begins with ``what``.

    Raises:
        SettingError: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError(
            f"{os.fspath(path)!r} is a file of Apache Arrow, and pyarrow cannot be imported ({error}). Install "
            f"it: pip install pyarrow msgpack."
        ) from error
    try:
        yield arrow
    except FrameworkError:
        raise
    except (*_UNREADABLE, arrow.ArrowException) as error:
        raise file_error(f"{what} cannot be read", error) from error


def _reading(path: str | os.PathLike[str]) -> AbstractContextManager[Any]:
    return reading(f"The file {os.fspath(path)!r}", path)


def read_columns(
    path: str | os.PathLike[str] | ArrowFile,
    kinds: Mapping[str, Kind],
    *,
    or_none: Sequence[str] = (),
    also_called: Mapping[str, Sequence[str]] = MappingProxyType({}),
    empty: Mapping[str, object] = MappingProxyType({}),
    only: tuple[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Read columns of a Feather, Arrow IPC or Parquet file, ``(num_rows,)`` each.

    Args:
        path: The file, a path, a `StoredFile`, which is read as a whole, or an open `ArrowFile`; ``.parquet`` at
            the end of its name says what it is. Only Parquet files may be remote.
        kinds: What each column must hold: ``"number"`` (as float64), ``"whole"`` (as int64), ``"flag"`` (as
            bool), ``"text"`` (as str), ``"text or whole"``, ``"images"`` (a list of the bytes of their files, as
            data sets of Hugging Face have them), `Tensors`, ``(num_rows, *shape)``, or `ListsOf` (`Lists`).
        or_none: Which of them may be missing; these are then not among the results.
        also_called: Other names of columns in some files.
        empty: By column, what empty cells are; for rows of which not all are needed. Columns that are not named
            must have no empty cells.
        only: A column of whole numbers, and the numbers that are wanted in it; other rows are left out. None: all.

    Raises:
        SettingError: pyarrow is missing.
        FileError: The file cannot be read, or a column is missing, is of another type, or has empty cells.
    """
    file = path if isinstance(path, ArrowFile) else None
    path = path.path if isinstance(path, ArrowFile) else path
    columns: dict[str, Any] = {}
    with _reading(path) as arrow:
        names = [*kinds, *(name for names in also_called.values() for name in names)]
        if os.fspath(path).partition("::")[0].endswith(".parquet"):
            table, known = _read_parquet(arrow, path, names)
        else:
            file = file or ArrowFile(os.fspath(path))
            table, known = file.read(names), file.names
        wanted = {}
        for column in kinds:
            name = next((name for name in (column, *also_called.get(column, ())) if name in known), column)
            if name in known or name not in or_none:
                require_column(path, name, known)
                wanted[column] = name
        if only is not None:
            values = arrow.array(only[1]).cast(table[only[0]].type)
            table = table.filter(arrow.compute.is_in(table[only[0]], value_set=values))
        for column, name in wanted.items():
            where = f"The column {name!r} of {os.fspath(path)!r}"
            columns[column] = _as_numpy(arrow, where, kinds[column], table[name], empty.get(column))
    return columns


def _read_parquet(arrow: Any, path: str | os.PathLike[str], names: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Read those of the columns that a Parquet file has, and the names of all."""
    if isinstance(path, StoredFile) and not path.is_local:
        source = arrow.BufferReader(path.storage.read_bytes(path.name))
    else:
        open_table(path).close()
        source = arrow.OSFile(os.fspath(path))
    # Not as a data set: names like "a=b" are no partitions.
    file = arrow.parquet.ParquetFile(source)
    known = file.schema_arrow.names
    wanted = [name for name in names if name in known]
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    starts = tuple(f"{name}." for name in wanted)
    columns = [each for each in columns if f"{each.path_in_schema}.".startswith(starts)]
    require_memory(sum(max(each.total_uncompressed_size, _VALUE_BYTES * each.num_values) for each in columns))
    # Texts as places in a list of those that differ.
    texts = [name for name in wanted if str(file.schema_arrow.field(name).type) in ("string", "large_string")]
    file = arrow.parquet.ParquetFile(source, metadata=file.metadata, read_dictionary=texts)
    return file.read(columns=wanted, use_threads=False), known


def _as_numpy(arrow: Any, where: str, kind: Kind, column: Any, empty: object) -> Any:
    """Values of a column of pyarrow as an array; ``where`` begins messages."""
    if isinstance(kind, ListsOf):
        if not _is_list(arrow, column.type):
            raise FileError(f"{where} must hold lists, got {column.type}.")
        counts = arrow.compute.list_value_length(column).fill_null(0).to_numpy()
        values = arrow.compute.list_flatten(column)
        return Lists(
            np.asarray(counts, np.int64),
            _as_numpy(arrow, f"{where}, in its lists,", kind.kind, values, kind.empty),
        )
    if isinstance(kind, Tensors):
        return _tensors(arrow, where, kind, column, empty)
    if kind == "images":
        column = column.combine_chunks()
        has_bytes = arrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
        content = arrow.compute.struct_field(column, "bytes") if has_bytes else None
        if content is None or content.null_count:
            raise FileError(f"{where} must hold images as bytes ('bytes'), got {column.type} or empty cells.")
        return [cell.as_buffer().to_pybytes() for cell in content]
    stored = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
    tests, dtype = _KINDS[kind]
    if not any(getattr(arrow.types, test)(stored) for test in tests):
        wanted = kind.replace("whole", "whole number").replace(" or", "s or") + "s"
        raise FileError(f"{where} must hold {wanted}, got {stored}.")
    is_text = str(stored) in ("string", "large_string")
    if not is_text or (empty is not None and column.null_count):
        column = column.cast(arrow.float64() if kind == "number" else stored, safe=False)
    if empty is not None and column.null_count:
        column = column.fill_null(empty)
    if column.null_count:
        raise FileError(f"{where} has {column.null_count} cells without a value.")
    if not is_text:
        return np.asarray(column.to_numpy(), dtype)
    # An array in which each text takes as much memory as the longest.
    column = column.dictionary_encode().unify_dictionaries().combine_chunks()
    return np.array(column.dictionary.to_pylist(), np.str_).reshape(-1)[column.indices.to_numpy()]


def _tensors(arrow: Any, where: str, kind: Tensors, column: Any, empty: object) -> Array:
    """Numbers in nested lists as an array, ``(num_rows, *shape)``."""
    values = column if empty is None else column.drop_null()
    num_rows, is_right = len(values), not values.null_count
    while is_right and not arrow.types.is_primitive(values.type):
        if isinstance(values.type, arrow.BaseExtensionType):  # of matrices, once `datasets` is imported
            values = values.cast(values.type.storage_type)
        is_right = _is_list(arrow, values.type) and len(arrow.compute.list_value_length(values).unique()) <= 1
        if is_right:
            values = arrow.compute.list_flatten(values)
            is_right = not values.null_count
    if (
        not is_right
        or values.type.to_pandas_dtype() != kind.dtype
        or len(values) != num_rows * math.prod(kind.shape)
    ):
        rule = f"must hold {kind.dtype.name} of the shape {kind.shape or '()'} in each row, as its data set says"
        raise FileError(f"{where} {rule}, got {column.type} of other sizes, or with empty cells.")
    found = np.asarray(values.to_numpy(), kind.dtype).reshape(num_rows, *kind.shape)
    if num_rows == len(column):
        return found
    filled = np.full((len(column), *kind.shape), empty, kind.dtype)
    filled[np.asarray(column.is_valid())] = found
    return filled


def _is_list(arrow: Any, type_of_values: Any) -> bool:
    kinds = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
    return any(is_one(type_of_values) for is_one in kinds)


# --- rows -------------------------------------------------------------------------------------------------

NONE_IS_NAN = float("nan")
"""For `read_columns`: empty cells of numbers, which `numbers_of` refuses in the rows that are needed."""

_ALL = slice(None)


def refuse_rows(
    is_wrong: npt.ArrayLike, path: str | os.PathLike[str], rule: str, values: Array, first: int = 0
) -> None:
    """Refuse a file of which rows, from a ``first`` one on, are wrong; the message has the value of one.

    Raises:
        FileError: Some are.
    """
    wrong = np.flatnonzero(is_wrong)
    if len(wrong):
        raise FileError(f"Row {first + wrong[0]} of {os.fspath(path)!r} must {rule}, got {values[wrong[0]]}.")


def refuse_repeated(keys: Sequence[object], path: str | os.PathLike[str], what: str) -> None:
    """Refuse a file that has a row twice: which one counts is not known; ``what`` says what the keys name.

    Raises:
        FileError: It has.
    """
    known: set[object] = set()
    for key in keys:
        if key in known:
            raise FileError(f"The file {os.fspath(path)!r} must have each {what} once, got {key!r} several times.")
        known.add(key)


def require_times(times: Array, path: str | os.PathLike[str], column: str, *, strictly: bool = True) -> None:
    """Refuse a file whose times do not ascend, or that has none.

    Raises:
        FileError: It is so.
    """
    if not len(times):
        raise FileError(f"The file {os.fspath(path)!r} has no rows.")
    poses.require_ascending(times, f"The column {column!r} of {os.fspath(path)!r}", strictly=strictly)


def rows_by(columns: Mapping[str, Array], names: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    """Numbers of the rows that have the same texts in some columns, by these."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*(columns[name].tolist() for name in names), strict=True)):
        rows.setdefault(key, []).append(row)
    return rows


def row_of(
    rows: Mapping[tuple[str, ...], Sequence[int]], path: str | os.PathLike[str], keys: Mapping[str, str]
) -> slice:
    """Find the row that has some texts, see `rows_by`; others are not looked at.

    Raises:
        FileError: There is none, or there are several.
    """
    found = rows.get((*keys.values(),), ())
    if len(found) != 1:
        what = " and ".join(f"{name} {text!r}" for name, text in keys.items())
        there = listed(sorted({key[-1] for key in rows}))
        raise FileError(f"{os.fspath(path)!r} must have one row of {what}, got {len(found)}. It has: {there}.")
    return slice(found[0], found[0] + 1)


def numbers_of(
    columns: Mapping[str, Array], path: str | os.PathLike[str], names: Sequence[str], rows: slice = _ALL
) -> Float64:
    """Make an array ``(n, len(names))`` of columns of numbers, of all rows or one.

    Raises:
        FileError: A value is not finite.
    """
    values = np.stack([columns[name][rows] for name in names], axis=-1)
    rule = f"have finite numbers as {listed(names)}"
    refuse_rows(~np.isfinite(values).all(axis=-1), path, rule, values, rows.start or 0)
    return values


def poses_of_columns(
    columns: Mapping[str, Array], path: str | os.PathLike[str], names: Sequence[str], rows: slice = _ALL
) -> Float64:
    """Make poses ``(n, 3, 4)`` of seven columns: w, x, y, z of quaternions, and x, y, z of translations.

    Raises:
        FileError: A row is no pose.
    """
    values = numbers_of(columns, path, names, rows)
    is_wrong = np.abs(np.linalg.norm(values[:, :4], axis=1) - 1) >= 1e-2
    refuse_rows(is_wrong, path, "be a pose, whose quaternion has the length 1", values, rows.start or 0)
    return poses.pose_of_quaternion(values[:, :4], values[:, 4:])


# --- IPC files --------------------------------------------------------------------------------------------


class ArrowFile:
    """An IPC file of Apache Arrow, mapped: what is read of it is not copied, where it is not compressed.

    Arrays made of it keep the mapping alive. The file must not be cut short while it is open. What is missing in
    it, or cannot be read, is a `FileError`, and so are cells of a file that was written again.

    Attributes:
        path: Its path.
        names: Names of the columns.
        metadata: What the schema says besides the columns.
    """

    def __init__(self, path: str, last_change_ns: int | None = None) -> None:
        """Map the file.

        Args:
            path: The file.
            last_change_ns: Up to when it may have been changed, since its rows were found then; None for now.

        Raises:
            SettingError: pyarrow is missing.
            FileError: The file cannot be read, or is no IPC file.
        """
        self.path = path
        with _reading(path) as self._arrow:
            with open_table(path) as file:
                status = os.fstat(file.fileno())
            self._state = status.st_size, min(status.st_mtime_ns, last_change_ns or status.st_mtime_ns)
            self._source = self._arrow.memory_map(path, "r")
            self._whole = self._arrow.ipc.open_file(
                self._source, options=self._arrow.ipc.IpcReadOptions(use_threads=False)
            )
            self._schema = self._whole.schema
            self.names: list[str] = list(self._schema.names)
            self.metadata: Mapping[bytes, bytes] = self._schema.metadata or {}
        self._last: tuple[int, Any] | None = None

    def type_of(self, name: str) -> Any:
        """Type of a column, of pyarrow."""
        require_column(self.path, name, self.names)
        return self._schema.field(name).type

    def _part(self, names: Sequence[str]) -> Any:
        """A reader of some columns, which reads and decompresses no others."""
        fields = [self._schema.get_field_index(name) for name in names]
        options = self._arrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        return self._arrow.ipc.open_file(self._source, options=options)

    def read(self, names: Sequence[str]) -> Any:
        """Read those of the columns that there are, as a table of pyarrow."""
        with _reading(self.path):
            table = self._part([name for name in names if name in self.names]).read_all()
            table.validate(full=True)  # columns that are shorter than they claim would end the process
            require_memory(table.nbytes)
        return table

    def column(self, name: str) -> Any:
        """Get a column, of pyarrow."""
        require_column(self.path, name, self.names)
        return self.read([name]).column(0)

    @staticmethod
    def _batch(reader: Any, number: int) -> Any:
        """A batch of records, whose columns are as long as they claim."""
        batch = reader.get_batch(number)
        batch.validate()
        require_memory(batch.nbytes)
        return batch

    @cached_property
    def _first_row(self) -> Int64:
        """First row of each record batch, and the number of rows."""
        with _reading(self.path):
            reader = self._part(self.names[:1])
            counts = [self._batch(reader, number).num_rows for number in range(reader.num_record_batches)]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._first_row[-1])

    def _require_same(self) -> None:
        with _reading(self.path):
            status = os.stat(self.path)
        if (status.st_size, status.st_mtime_ns) != self._state:
            raise FileError(
                f"The file {self.path!r} was written again after its rows were found, so they may be others. "
                f"Make the provider anew, and keep files unchanged while they are in use."
            )

    def content(self, name: str, row: int) -> UInt8 | None:
        """Get the bytes in a cell, ``(num_bytes,)`` uint8, read-only and not copied; None where it is empty."""
        if not 0 <= row < self.num_rows:
            raise FileError(f"The file {self.path!r} has {self.num_rows} rows: there is no row {row}.")
        self.type_of(name)
        self._require_same()
        number = int(np.searchsorted(self._first_row, row, side="right")) - 1
        with _reading(self.path):
            if self._last is None or self._last[0] != number:
                self._last = (number, self._batch(self._whole, number))
            column = self._last[1].column(self._schema.get_field_index(name))
            return _content(column, row - int(self._first_row[number]))


def _content(column: Any, row: int) -> UInt8 | None:
    """Bytes of a cell, where they are: a scalar of pyarrow would be a copy."""
    if not column.is_valid()[row].as_py():
        return None
    dtype = np.int64 if str(column.type).startswith("large_") else np.int32
    _, offsets, values = column.buffers()
    first, end = np.frombuffer(offsets, dtype, 2, (column.offset + row) * np.dtype(dtype).itemsize)
    if first == end:
        return np.zeros(0, np.uint8)
    if not 0 <= first < end:
        raise ValueError(f"row {row} of a batch of records begins after its end")
    content = np.frombuffer(values, np.uint8, int(end - first), int(first))
    content.flags.writeable = False  # what was decompressed is shared by all rows of the batch
    return content
