# SPDX-License-Identifier: Apache-2.0
"""Tables of nuScenes: JSON files of many records, as columns of arrays, and the tokens that join them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import did_you_mean, listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError, error_that_is_also, file_error
from accvlab.dali_pipeline_framework.extension import open_table, parse_json

from ..driving.array_types import Array, Bool, Int64

Rows = Int64
Record = dict[str, Any]

TABLES_OF_BOXES = ("attribute", "category", "instance", "sample_annotation", "visibility")
TABLES = (*("calibrated_sensor", "ego_pose", "log", "sample", "sample_data", "scene", "sensor"), *TABLES_OF_BOXES)
# Characters that are parsed at a time: the objects of JSON take some ten times as much memory as their text.
_PIECE = 1 << 23
# Up to the end of the last record but one, after its comma: what repeats is as long as can be.
_RECORDS = re.compile(r".*\}\s*,(?=\s*\{)", re.DOTALL)


# --- columns ------------------------------------------------------------------------------------------------


@attrs.frozen
class Column:
    """How the values of a field are turned into an array.

    Attributes:
        dtype: Type of the array.
        shape: Shape of a value.
        of_value: What a value in the file means; None: itself.
        rule: What it must be.
    """

    dtype: Any
    rule: str
    shape: tuple[int, ...] = ()
    of_value: Callable[[Any], Any] | None = None

    def array(self, values: list[Any]) -> Array:
        """Make an array of the values.

        Raises:
            ValueError, TypeError, AttributeError: One of them does not fit.
        """
        if not values:
            return np.zeros((0, *self.shape), np.dtype(self.dtype) if self.dtype != "S" else "S1")
        if self.of_value is not None:
            values = [self.of_value(value) for value in values]
        array = np.array(values, self.dtype)
        if array.shape != (len(values), *self.shape):
            raise ValueError("another shape")
        return array


_UNFIT = (ValueError, TypeError, AttributeError, OverflowError, IndexError)  # what `Column.array` raises


_TEXT = Column("S", "text", of_value=str.encode)
_COUNT = Column(np.int64, "a whole number", of_value=lambda value: -1 if value is None else value)
_NONE = {"last_sample_token": "", "nbr_samples": None, "nbr_annotations": None}
"""Fields that other data in this format lack, with what stands for them then."""


def _flag(value: Any) -> bool:
    if value not in (True, False):  # also 1 and 0; not the text "False", which is not empty
        raise ValueError("no flag")
    return bool(value)


_NUMBERS_3 = Column(np.float64, "3 numbers", (3,))
# The fields that are no text, in all tables.
_COLUMNS = {
    "timestamp": Column(np.int64, "a whole number"),
    "is_key_frame": Column(np.bool_, "true or false", of_value=_flag),
    "translation": _NUMBERS_3,
    "size": _NUMBERS_3,
    "rotation": Column(np.float64, "4 numbers, w first", (4,)),
    "attribute_tokens": Column(
        "S", "a list of tokens", of_value=lambda tokens: tokens[0].encode() if tokens else b""
    ),
    **dict.fromkeys(("width", "height", "num_lidar_pts", "num_radar_pts"), _COUNT),
    **dict.fromkeys(("nbr_samples", "nbr_annotations"), _COUNT),
}


@attrs.define(eq=False, slots=False)
class Table:
    """Columns of a table.

    Attributes:
        path: Its file.
        columns: By the names of the fields.
    """

    path: Path
    columns: Mapping[str, Array]

    def __getitem__(self, name: str) -> Array:
        """Get a column."""
        return self.columns[name]

    def __len__(self) -> int:
        """Get the number of rows."""
        return len(self.columns["token"])

    def taken(self, is_taken: Bool) -> Table:
        """Some of the rows."""
        return Table(self.path, {name: column[is_taken] for name, column in self.columns.items()})

    @cached_property
    def _order(self) -> Rows:
        return np.argsort(self["token"], kind="stable")

    @cached_property
    def _sorted_tokens(self) -> Array:
        tokens = self["token"][self._order]
        repeated = np.flatnonzero(tokens[1:] == tokens[:-1])
        if len(repeated):
            rule, token = f"The file {str(self.path)!r} must have each token once", tokens[repeated[0]]
            raise FileError(f"{rule}, but has {_written(token)} several times. {_AGAIN}")
        return tokens

    def rows_of(self, table: Table, field: str, *, may_be_empty: bool = False) -> Rows:
        """Rows of the tokens that a field of another table has; of empty tokens -1, where there may be such.

        Raises:
            FileError: A token that no record has.
        """
        tokens = table[field]
        found = self.found(tokens)
        is_found = (found >= 0) | ((tokens == b"") & may_be_empty)
        if not is_found.all():
            row = int(np.flatnonzero(~is_found)[0])
            raise FileError(
                f"The record {_written(table['token'][row])} of {str(table.path)!r} has the {field} "
                f"{_written(tokens[row])}, which no record of {str(self.path)!r} has"
                f"{_others(is_found)}. {_AGAIN}"
            )
        return found

    def found(self, tokens: Array) -> Rows:
        """Rows of tokens; -1 for those that no record has.

        Raises:
            FileError: Records have the same token.
        """
        known = self._sorted_tokens
        if not len(known):
            return np.full(len(tokens), -1, np.int64)
        place = np.minimum(np.searchsorted(known, tokens), len(known) - 1)
        return np.where(known[place] == tokens, self._order[place], -1)

    def refuse_times(self, before: Rows, name: str) -> None:
        """Refuse rows that are not later than those before them (-1 for none); ``name`` is what they are called.

        Raises:
            FileError: One of them is.
        """
        time, rule = self["timestamp"], f"must be later than the {name} before it (`prev`)"
        is_wrong = (before >= 0) & (time <= time[before])
        self.refuse(is_wrong, f"{rule}: times go backwards in its scene", "timestamp")

    def refuse(self, is_wrong: Bool, what: str, field: str | None = None) -> None:
        """Raise an error where rows are wrong.

        Raises:
            FileError: One of them is.
        """
        if is_wrong.any():
            row = int(np.flatnonzero(is_wrong)[0])
            value = self[field][row].tolist() if field else None
            got = f", got {_written(value) if isinstance(value, bytes) else value}" if field else ""
            where = f"The record {_written(self['token'][row])} of {str(self.path)!r}"
            raise FileError(f"{where} {what}{got}{_others(~is_wrong)}. {_AGAIN}")

    def refuse_fewer(self, counts: Int64, field: str, what: str, is_read: Bool | None = None) -> None:
        """Refuse records of which there is less than their ``field`` says; ``what`` and ``counts`` are there.

        Raises:
            FileError: There is less of one of them, of those that are read; None for all.
        """
        lacking = np.flatnonzero((counts < self[field]) & (True if is_read is None else is_read))
        if len(lacking):
            row, others = lacking[0], _others(counts >= self[field])
            where = f"The record {_written(self['token'][row])} of {str(self.path)!r}"
            raise FileError(
                f"{where} says {self[field][row]} {what} ({field}), there are {counts[row]}{others}. {_AGAIN}"
            )


_AGAIN = "Unpack or write the tables again."


def _written(token: Any) -> str:
    return repr(bytes(token).decode(errors="replace"))


def _others(is_fine: Bool) -> str:
    more = int((~is_fine).sum()) - 1
    return f" (and {more} more like it)" if more else ""


# --- files --------------------------------------------------------------------------------------------------


def tables_folder(root: Path, version: str, *, boxes: bool = True) -> Path:
    """Find the folder of the tables; ``boxes``: whether those of boxes must be there.

    Raises:
        FileError: There is none, or tables are missing in it.
    """
    folder = root / version
    if not root.is_dir():
        raise not_found(f"`root` must be the folder of a nuScenes data set: {str(root)!r} is none.")
    if not folder.is_dir():
        there = sorted(path.parent.name for path in root.glob("*/sample_data.json"))
        hint = " There are no others."
        if there:
            hint = f"{did_you_mean(version, there)} There are: {listed(there)}."
        elif (root / "sample_data.json").is_file():
            hint = f" These are the tables themselves: `root` is their parent, `version` is {root.name!r}."
        raise not_found(f"There is no folder {version!r} of tables in {str(root)!r}.{hint}")
    needed = sorted({*TABLES}.difference(["log"], () if boxes else TABLES_OF_BOXES))
    missing = [f"{name}.json" for name in needed if not (folder / f"{name}.json").is_file()]
    if missing:
        rule = f"{str(folder)!r} must have all tables of nuScenes"
        raise not_found(f"{rule}, but lacks {listed(missing)}. Unpack the metadata again.")
    return folder


def not_found(message: str) -> FrameworkError:
    """Make a `FileError` that is also a FileNotFoundError."""
    return error_that_is_also(FileError, [FileNotFoundError], message)


def read_records(path: Path, *fields: str) -> list[Record]:
    """All records of a small table; each has the fields."""
    records = [record for piece in _pieces(path) for record in piece]
    _column_values(path, records, fields)
    return records


def read_table(path: Path, *fields: str, is_kept: Callable[[Record], bool] | None = None) -> Table:
    """Columns of the records that are kept of a table; the file is never in the memory as a whole.

    Raises:
        FileError: It is no table, or a field is missing or does not fit.
    """
    columns = {name: _COLUMNS.get(name, _TEXT) for name in fields}
    parts: dict[str, list[Array]] = {name: [] for name in fields}
    for piece in _pieces(path):
        records = [record for record in piece if is_kept(record)] if is_kept else piece
        for name, values in _column_values(path, records, fields).items():
            try:
                parts[name].append(columns[name].array(values))
            except _UNFIT as error:
                raise _wrong_value(path, records, name, columns[name]) from error
    empty = {name: column.array([]) for name, column in columns.items()}
    return Table(path, {name: np.concatenate(part) if part else empty[name] for name, part in parts.items()})


def _column_values(path: Path, records: Sequence[Record], names: Any) -> dict[str, list[Any]]:
    columns = {}
    for name in names:
        try:
            columns[name] = [
                record.get(name, _NONE[name]) if name in _NONE else record[name] for record in records
            ]
        except KeyError as error:
            record = next(one for one in records if name not in one)
            rule = f"Each record of {str(path)!r} must be an object with the field {name!r}"
            raise FileError(f"{rule}, got {shown(record)}. {_AGAIN}") from error
    return columns


def _wrong_value(path: Path, records: Sequence[Record], name: str, column: Column) -> FileError:
    for record in records:
        try:
            column.array([record.get(name, _NONE.get(name))])
        except _UNFIT:
            break
    token = record.get("token")
    return FileError(
        f"The record {token!r} of {str(path)!r} must have {column.rule} as {name}, got {shown(record.get(name))}. "
        f"{_AGAIN}"
    )


def _pieces(path: Path) -> Iterator[list[Record]]:
    """The records of a file, some thousands at a time."""
    lines = 0
    try:
        with io.TextIOWrapper(open_table(path), encoding="utf-8-sig") as file:
            text = file.read(_PIECE)
            start = len(text) - len(text.lstrip())
            if text[start : start + 1] != "[":
                raise json.JSONDecodeError("a list of records is expected", text, start)
            text, head = text[start + 1 :], text[: start + 1]
            lines += head.count("\n")
            while True:
                more = file.read(_PIECE)
                if not more:
                    yield _parsed(f"[{text}")
                    return
                text += more
                complete = _RECORDS.match(text)
                if complete is None:
                    continue
                cut = complete.end()
                try:
                    records = _parsed(f"[{text[: cut - 1]}]")
                except json.JSONDecodeError:  # a bracket within text, or damaged: more of the text decides
                    continue
                yield records
                lines += text.count("\n", 0, cut)
                text = text[cut:]
    except OSError as error:
        raise file_error(f"The table {str(path)!r} cannot be read", error) from error
    except UnicodeDecodeError as error:
        raise FileError(f"The table {str(path)!r} must be text (UTF-8): {error}. {_AGAIN}") from error
    except json.JSONDecodeError as error:
        where = f"The table {str(path)!r} is damaged or cut short, line {lines + error.lineno}"
        raise FileError(f"{where}: {error.msg}. {_AGAIN}") from error


def _parsed(text: str) -> list[Record]:
    try:
        records = parse_json(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # nested too deep, or a number of thousands of digits
        raise json.JSONDecodeError(str(error), text, 0) from None
    if not all(isinstance(record, dict) for record in records):
        raise json.JSONDecodeError("a list of objects is expected", text, 0)
    return list(records)
