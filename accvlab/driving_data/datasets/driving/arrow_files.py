# SPDX-License-Identifier: Apache-2.0
"""Files of Apache Arrow: IPC files, mapped, and Feather and Parquet tables as NumPy arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import did_you_mean, listed
from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError, MissingPackageError, file_error
from accvlab.dali_pipeline_framework.extension import UNPACKED_BYTES, StoredFile, open_table

from . import poses
from .array_types import Array, Float64, Int64, UInt8

_VALUE_BYTES = 8  # of a value in an array; in a file, a few bytes can be a million equal ones
# Besides pyarrow's own errors: names and texts are decoded on use, and may be numbers in a list that is cut short.
_UNREADABLE = (OSError, MemoryError, UnicodeDecodeError, IndexError)


def import_pyarrow(path: str | os.PathLike[str]) -> ModuleType:
    """Import pyarrow for a file, or raise a `SettingError` where it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.feather
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError(
            f"{os.fspath(path)!r} is a file of Apache Arrow, and pyarrow cannot be imported ({error}). Install "
            f"it: pip install pyarrow msgpack."
        ) from error
    module: ModuleType = pyarrow
    return module


def refused(path: str | os.PathLike[str], error: Exception) -> FrameworkError:
    """Make the error of a file that cannot be read."""
    return file_error(f"The file {os.fspath(path)!r} cannot be read", error)


def require_memory(num_bytes: int, what: str = "unpacked it has {} bytes") -> None:
    """Raise a `FileTooLargeError` where something takes more memory than the limit."""
    UNPACKED_BYTES.require(num_bytes, what)


def require_column(path: str | os.PathLike[str], name: str, known: Sequence[str]) -> None:
    """Refuse a file without a column."""
    if name not in known:
        hint = f"{did_you_mean(name, known)} It has: {listed(known)}."
        raise FileError(f"The file {os.fspath(path)!r} has no column {name!r}.{hint}")


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[ModuleType]:
    """Import pyarrow; what cannot be read is a `FileError`."""
    arrow = import_pyarrow(path)
    try:
        yield arrow
    except FrameworkError:
        raise
    except (*_UNREADABLE, arrow.ArrowException) as error:
        raise refused(path, error) from error


def read_columns(
    path: str | os.PathLike[str],
    kinds: Mapping[str, str],
    *,
    or_none: Sequence[str] = (),
    also_called: Mapping[str, Sequence[str]] = MappingProxyType({}),
    empty: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, Array]:
    """Read columns of a Feather or Parquet file, ``(num_rows,)`` each.

    Args:
        path: The file, a path or a `StoredFile`, which is read as a whole; ``.parquet`` at the end of its name
            says what it is.
        kinds: What each column must hold: ``"number"`` (as float64), ``"whole"`` (as int64), ``"flag"`` (as
            bool), ``"text"`` (as str), ``"text or whole"``, or ``"whole lists"`` (an array of arrays of int64,
            empty where there is none).
        or_none: Which of them may be missing; these are then not among the results.
        also_called: Other names of columns in some files.
        empty: By column, what empty cells are; for rows of which not all are needed. Columns that are not named
            must have no empty cells.

    Raises:
        SettingError: pyarrow is missing.
        FileError: The file cannot be read, or a column is missing, is of another type, or has empty cells.
    """
    columns = {}
    with _reading(path) as arrow:
        is_parquet = os.fspath(path).partition("::")[0].endswith(".parquet")
        read = _read_parquet if is_parquet else _read_feather
        names = [*kinds, *(name for names in also_called.values() for name in names)]
        table, known = read(arrow, _source(arrow, path), names)
        for column, kind in kinds.items():
            name = next((name for name in (column, *also_called.get(column, ())) if name in known), column)
            if name in known or name not in or_none:
                require_column(path, name, known)
                columns[column] = _as_numpy(arrow, path, name, kind, table[name], empty.get(column))
    return columns


def read_tensors(
    path: str | os.PathLike[str],
    numbers: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    *,
    texts: Sequence[str] = (),
    images: Sequence[str] = (),
    only: tuple[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Read columns of a Parquet file whose types are known, as data sets of Hugging Face have them.

    Args:
        path: The file, a path or a `StoredFile`.
        numbers: Type and shape of each value of columns of numbers: these are ``(num_rows, *shape)``.
        texts: Columns of texts, ``(num_rows,)``.
        images: Columns of images, as lists of the bytes of their files.
        only: A column of whole numbers, and the numbers that are wanted in it; other rows are left out. None: all.

    Raises:
        SettingError: pyarrow is missing.
        FileError: The file cannot be read, or a column is missing, is of another type, or has empty cells.
    """
    columns: dict[str, Any] = {}
    with _reading(path) as arrow:
        table, known = _read_parquet(arrow, _source(arrow, path), [*numbers, *texts, *images])
        for name in (*numbers, *texts, *images):
            require_column(path, name, known)
        if only is not None:
            wanted = arrow.array(only[1]).cast(table[only[0]].type)
            table = table.filter(arrow.compute.is_in(table[only[0]], value_set=wanted))
        for name, (dtype, shape) in numbers.items():
            columns[name] = _tensors(arrow, path, name, table[name], dtype, shape)
        columns |= {name: _as_numpy(arrow, path, name, "text", table[name]) for name in texts}
        for name in images:
            column = table[name].combine_chunks()
            has_bytes = arrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
            content = arrow.compute.struct_field(column, "bytes") if has_bytes else None
            if content is None or content.null_count:
                where = f"The column {name!r} of {os.fspath(path)!r}"
                raise FileError(f"{where} must hold images as bytes ('bytes'), got {column.type} or empty cells.")
            columns[name] = [cell.as_buffer().to_pybytes() for cell in content]
    return columns


def _tensors(
    arrow: ModuleType,
    path: str | os.PathLike[str],
    name: str,
    column: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
) -> Array:
    """Numbers in nested lists as an array, ``(num_rows, *shape)``."""
    values, num_rows, has_empty, is_ragged = column, len(column), column.null_count, False
    while not (arrow.types.is_primitive(values.type) or has_empty):
        if isinstance(values.type, arrow.BaseExtensionType):  # of matrices, once `datasets` is imported
            values = values.cast(values.type.storage_type)
        if not _is_list(arrow, values.type):
            break
        is_ragged |= len(arrow.compute.list_value_length(values).unique()) > 1
        values = arrow.compute.list_flatten(values)
        has_empty += values.null_count
    is_right = arrow.types.is_primitive(values.type) and np.dtype(values.type.to_pandas_dtype()) == dtype
    if not is_right or has_empty or is_ragged or len(values) != num_rows * math.prod(shape):
        rule = f"must hold {dtype.name} of the shape {shape or '()'} in each row, as its data set says"
        got = f"got {num_rows} rows of {column.type} with {len(values)} values and {has_empty} empty cells"
        got += ", not the same number in each" * is_ragged
        raise FileError(f"The column {name!r} of {os.fspath(path)!r} {rule}, {got}.")
    return np.asarray(values.to_numpy(), dtype).reshape(num_rows, *shape)


def _is_list(arrow: ModuleType, type_of_values: Any) -> bool:
    kinds = (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list)
    return any(is_one(type_of_values) for is_one in kinds)


def _source(arrow: ModuleType, path: str | os.PathLike[str]) -> Any:
    """What pyarrow reads: a local file by its name, what is stored elsewhere from memory."""
    if isinstance(path, StoredFile) and not path.is_local:
        return arrow.py_buffer(path.storage.read_bytes(path.name))
    open_table(path).close()
    return os.fspath(path)


def _read_parquet(arrow: ModuleType, source: Any, names: Sequence[str]) -> tuple[Any, list[str]]:
    """Read those of the columns that a Parquet file has, and the names of all."""
    # Not as a data set: names like "a=b" are no partitions.
    file = arrow.parquet.ParquetFile(_opened(arrow, source))
    known = list(file.schema_arrow.names)
    wanted = [name for name in names if name in known]
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    columns = [each for each in columns if each.path_in_schema.split(".")[0] in wanted]
    require_memory(sum(max(each.total_uncompressed_size, _VALUE_BYTES * each.num_values) for each in columns))
    # Texts as places in a list of those that differ.
    fields = [field for field in file.schema_arrow if str(field.type) in ("string", "large_string")]
    texts = [field.name for field in fields if field.name in wanted]
    file = arrow.parquet.ParquetFile(_opened(arrow, source), read_dictionary=texts)
    return file.read(columns=wanted, use_threads=False), known


def _opened(arrow: ModuleType, source: Any) -> Any:
    return source if isinstance(source, str) else arrow.BufferReader(source)


def _read_feather(arrow: ModuleType, source: Any, names: Sequence[str]) -> tuple[Any, list[str]]:
    """Read those of the columns that a Feather file has, and the names of all."""
    known = list(arrow.ipc.open_file(_opened(arrow, source)).schema.names)
    wanted = [name for name in names if name in known]
    table = arrow.feather.read_table(_opened(arrow, source), columns=wanted, memory_map=True, use_threads=False)
    table.validate(full=True)  # columns that are shorter than they claim would end the process
    require_memory(table.nbytes)
    return table, known


NONE_IS_NAN = float("nan")
"""For `read_columns`: empty cells of numbers, which checks of the rows that are needed refuse."""


def refuse_rows(is_wrong: npt.ArrayLike, path: str | os.PathLike[str], rule: str, *values: Array) -> None:
    """Refuse a file of which rows are wrong; the message has the ``values`` of the first.

    Raises:
        FileError: Some are.
    """
    wrong = np.flatnonzero(is_wrong)
    if len(wrong):
        got = " and ".join(str(each[wrong[0]]) for each in values)
        raise FileError(f"Row {wrong[0]} of {os.fspath(path)!r} must {rule}, got {got}.")


def refuse_repeated(keys: Sequence[object] | Array, path: str | os.PathLike[str], what: str) -> None:
    """Refuse a file that has a row twice: which one counts is not known; ``what`` says what the keys name.

    Raises:
        FileError: It has.
    """
    known: set[object] = set()
    for key in keys if isinstance(keys, Sequence) else keys.tolist():
        if key in known:
            raise FileError(f"The file {os.fspath(path)!r} must have each {what} once, got {key!r} several times.")
        known.add(key)


def poses_of_columns(
    columns: Mapping[str, Array],
    path: str | os.PathLike[str],
    names: Sequence[str],
    is_needed: npt.ArrayLike = True,
) -> Float64:
    """Make poses ``(n, 3, 4)`` of seven columns: w, x, y, z of quaternions, and x, y, z of translations.

    Raises:
        FileError: A row, of those that are needed, is no pose.
    """
    quaternion, place = (np.stack([columns[name] for name in part], axis=-1) for part in (names[:4], names[4:]))
    is_wrong = ~(np.abs(np.linalg.norm(quaternion, axis=-1) - 1) < 1e-2) | ~np.isfinite(place).all(axis=-1)
    refuse_rows(is_wrong & is_needed, path, "be a pose, whose quaternion has the length 1", quaternion, place)
    with np.errstate(invalid="ignore"):  # of rows that are not needed
        return poses.pose_of_quaternion(quaternion, place)


def sizes_of_columns(columns: Mapping[str, Array], path: str | os.PathLike[str], names: Sequence[str]) -> Float64:
    """Make sizes ``(n, 3)`` of three columns; see `poses_of_columns`.

    Raises:
        FileError: A size is not above 0.
    """
    size = np.stack([columns[name] for name in names], axis=-1)
    refuse_rows(~(size > 0).all(axis=-1), path, "have a size above 0", size)
    return size


def _as_numpy(
    arrow: ModuleType, path: str | os.PathLike[str], name: str, kind: str, column: Any, empty: object = None
) -> Array:
    types = arrow.types
    if kind == "whole lists":
        return _lists_as_numpy(arrow, path, name, column)
    stored = column.type.value_type if types.is_dictionary(column.type) else column.type
    is_text = types.is_string(stored) or types.is_large_string(stored)
    if not (is_text and "text" in kind) or (empty is not None and column.null_count):
        column = column.cast(stored)
    is_whole = types.is_integer(column.type)
    is_number = is_whole or types.is_floating(column.type)
    is_right = {"text": is_text, "whole": is_whole, "number": is_number, "text or whole": is_text or is_whole}
    is_right["flag"] = types.is_boolean(column.type)
    if not is_right[kind]:
        wanted = kind.replace("whole", "whole number").replace(" or", "s or") + "s"
        raise FileError(f"The column {name!r} of {os.fspath(path)!r} must hold {wanted}, got {column.type}.")
    if column.null_count and empty is not None:
        column = (column.cast(arrow.float64()) if kind == "number" else column).fill_null(empty)
    if column.null_count:
        where = f"The column {name!r} of {os.fspath(path)!r}"
        raise FileError(f"{where} has {column.null_count} cells without a value.")
    if is_text:
        return _texts_as_numpy(arrow, column)
    dtypes: dict[str, type[np.generic]] = {"number": np.float64, "flag": np.bool_}
    return np.asarray(column.to_numpy(), dtypes.get(kind, np.int64))


def _texts_as_numpy(arrow: ModuleType, column: Any) -> npt.NDArray[np.str_]:
    """Texts as an array, in which each takes as much memory as the longest."""
    parts = []
    for chunk in column.chunks:
        of_dictionary = arrow.types.is_dictionary(chunk.type)
        texts = np.array((chunk.dictionary if of_dictionary else chunk).to_pylist(), np.str_).reshape(-1)
        parts.append(texts[chunk.indices.to_numpy()] if of_dictionary else texts)
    return np.concatenate(parts) if parts else np.zeros(0, "U1")


def _lists_as_numpy(arrow: ModuleType, path: str | os.PathLike[str], name: str, column: Any) -> Array:
    values = arrow.compute.list_flatten(column) if _is_list(arrow, column.type) else None
    if values is None or not arrow.types.is_integer(values.type) or values.null_count:
        where = f"The column {name!r} of {os.fspath(path)!r}"
        raise FileError(f"{where} must hold lists of whole numbers, got {column.type}.")
    ends = np.cumsum(arrow.compute.list_value_length(column).fill_null(0).to_numpy())  # None of what is no list
    lists = np.empty(len(column), object)
    lists[:] = np.split(np.asarray(values.to_numpy(), np.int64), ends)[:-1]
    return lists


class ArrowFile:
    """An IPC file of Apache Arrow, mapped: what is read of it is not copied, where it is not compressed.

    Arrays made of it keep the mapping alive. The file must not be cut short while it is open. What is missing in
    it, or cannot be read, is a `FileError`, and so are cells of a file that was written again.

    Attributes:
        path: Its path.
        names: Names of the columns.
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
            self._schema = self._arrow.ipc.open_file(self._source).schema
            self.names: list[str] = list(self._schema.names)
        self._readers: dict[str, Any] = {}
        self._last: tuple[int, Any] | None = None

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """What the schema says besides the columns."""
        return self._schema.metadata or {}

    def type_of(self, name: str) -> Any:
        """Type of a column, of pyarrow."""
        require_column(self.path, name, self.names)
        return self._schema.field(self.names.index(name)).type

    def _reader(self, name: str | None = None) -> Any:
        """A reader of one column, which reads and decompresses no other; or of all, which copies nothing."""
        key = name or ""
        if key not in self._readers:
            fields = [] if name is None else [self._schema.get_field_index(name)]
            options = self._arrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            self._readers[key] = self._arrow.ipc.open_file(self._source, options=options)
        return self._readers[key]

    def _batch(self, number: int, name: str | None = None) -> Any:
        """A batch of records, of one column or of all, whose columns are as long as they claim."""
        batch = self._reader(name).get_batch(number)
        batch.validate()
        require_memory(batch.nbytes)
        return batch

    def column(self, name: str) -> Any:
        """Get a column as one array of pyarrow."""
        self.type_of(name)
        with _reading(self.path):
            parts, num_bytes = [], 0
            for number in range(self._reader(name).num_record_batches):
                part = self._batch(number, name).column(0)
                num_bytes += part.nbytes
                require_memory(num_bytes, f"the column {name!r} has {{}} bytes")
                part.validate(full=True)
                parts.append(part)
            column = self._arrow.chunked_array(parts, self.type_of(name)).combine_chunks()
        if isinstance(column, self._arrow.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else self._arrow.array([], column.type)
        return column

    @cached_property
    def _first_row(self) -> Int64:
        """First row of each record batch, and the number of rows."""
        first = self.names[0]
        with _reading(self.path):
            numbers = range(self._reader(first).num_record_batches)
            counts = [self._batch(number, first).num_rows for number in numbers]
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
        try:
            if self._last is None or self._last[0] != number:
                self._last = (number, self._batch(number))
            column = self._last[1].column(self._schema.get_field_index(name))
            return _content(column, row - int(self._first_row[number]))
        except (*_UNREADABLE, ValueError, self._arrow.ArrowException) as error:
            raise refused(self.path, error) from error


def _content(column: Any, row: int) -> UInt8 | None:
    """Bytes of a cell, where they are: a scalar of pyarrow would be a copy."""
    if not column.is_valid()[row].as_py():
        return None
    dtype = np.int64 if str(column.type).startswith("large_") else np.int32
    _, offsets, values = column.buffers()
    first, end = np.frombuffer(offsets, dtype, 2, (column.offset + row) * np.dtype(dtype).itemsize)
    if first == end:
        return np.zeros(0, np.uint8)
    if first < 0 or first > end:
        raise ValueError(f"row {row} of a batch of records begins after its end")
    content = np.frombuffer(values, np.uint8, int(end - first), int(first))
    content.flags.writeable = False  # what was decompressed is shared by all rows of the batch
    return content
