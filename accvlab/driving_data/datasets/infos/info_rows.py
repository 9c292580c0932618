# SPDX-License-Identifier: Apache-2.0
"""Dicts of one kind in a pickle as columns, with the place of each for errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import is_not, itemgetter
from typing import Any, TypeVar

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses
from ..driving.array_types import Bool, Float64, Int64
from ..driving.driving_index import first_column
from .pickled_values import joined_arrays

_T = TypeVar("_T")
UNFIT = (ValueError, TypeError, OverflowError, LookupError)
_UNEXPECTED = (*UNFIT, AttributeError)


@attrs.frozen(eq=False)
class Rows:
    """Dicts of one kind, such as all frames of a pickle. A missing key, or a value of another form, is an error.

    Attributes:
        values: The dicts.
        place: Returns the place of a row in its file, for errors.
    """

    values: Sequence[dict[str, Any]]
    place: Callable[[int], str]
    _columns: dict[str, Sequence[Any]] = attrs.field(factory=dict, init=False, repr=False)
    _keys: set[str] = attrs.field(factory=set, init=False, repr=False)

    @classmethod
    def of(cls, values: Sequence[Any], place: Callable[[int], str]) -> Rows:
        """Make rows of values that must be dicts.

        Raises:
            FileError: One is none.
        """
        rows = cls(values, place)
        rows.refuse_others(values, dict, " must be a dict")
        return rows

    def __len__(self) -> int:
        """Get the number of rows."""
        return len(self.values)

    def taken(self, rows: Sequence[int]) -> Rows:
        """Some of the rows, in this order."""
        if [*rows] == [*range(len(self))]:
            return self
        return Rows([self.values[row] for row in rows], lambda row: self.place(rows[row]))

    def find(self, *names: str) -> list[Any]:
        """Get of each row the value of the first of some keys that it has; None where it has none of them."""
        found = [*self._column(names[0])]
        for name in names[1:]:
            if type(None) not in {*map(type, found)}:
                break
            if name not in self._known_keys():
                continue
            others = self._column(name)
            found = [other if value is None else value for value, other in zip(found, others, strict=True)]
        return found

    def _column(self, name: str) -> Sequence[Any]:
        if name not in self._columns:
            try:
                self._columns[name] = [*map(itemgetter(name), self.values)]
            except KeyError:
                has_some = name in self._known_keys()
                self._columns[name] = [row.get(name) if has_some else None for row in self.values]
        return self._columns[name]

    def _known_keys(self) -> set[str]:
        if not self._keys:
            self._keys.update(*self.values)
        return self._keys

    def fetch(self, *names: str) -> None:
        """Read columns at once, which is faster than one after the other."""
        with contextlib.suppress(KeyError):
            self._columns.update(zip(names, zip(*map(itemgetter(*names), self.values), strict=True), strict=False))

    def need(self, *names: str) -> list[Any]:
        """As `find`, where each row must have one of the keys."""
        found = self.find(*names)
        if type(None) in {*map(type, found)}:
            row = [*map(type, found)].index(type(None))
            wanted, there = " or ".join(map(repr, names)), listed(sorted(map(str, self.values[row])))
            raise FileError(f"{self.place(row)} has no key {wanted}; it has {there}.")
        return found

    def all_or_none(self, values: list[Any], what: str) -> list[Any] | None:
        """The values of all rows; None where no row has one."""
        lacking = [row for row, value in enumerate(values) if value is None]
        if lacking and len(lacking) < len(values):
            raise FileError(
                f"{self.place(lacking[0])} lacks {what}, as do {len(lacking)} of {len(values)} frames; the others "
                f"have it. All frames or none must have it."
            )
        return None if lacking else values

    def dicts(self, name: str, *, may_lack: bool = False) -> Rows:
        """The dict under a key of each row; an empty one where rows may lack it."""
        found = [value or {} for value in self.find(name)] if may_lack else self.need(name)
        return Rows.of(found, lambda row: f"{self.place(row)}[{name!r}]")

    def flattened(self, lists: Sequence[Any], name: str | None = None) -> tuple[Rows, Int64]:
        """The dicts in a list of each row, one after the other, and how many each row has; None has none.

        ``name`` is the key of the list, where the row is not the list itself.
        """
        counts = self.each(lists, lambda given: 0 if given is None else len(given))
        first = first_column(counts)

        def place(number: int) -> str:
            row = int(np.searchsorted(first, number, side="right")) - 1
            key = "" if name is None else f"[{name!r}]"
            return f"{self.place(row)}{key}[{number - first[row]}]"

        return Rows.of([each for given in lists for each in given or ()], place), np.diff(first)

    def each(self, values: Iterable[Any], function: Callable[[Any], _T]) -> list[_T]:
        """Call a function on a value of each row; what it raises is an error of that row."""
        results: list[_T] = []
        try:
            results.extend(map(function, values))
        except _UNEXPECTED as error:
            where = self.place(len(results))
            raise FileError(
                f"{where} is not as the converters write it: {type(error).__name__}: {error}."
            ) from error
        return results

    def refuse_others(self, values: Sequence[Any], kind: type, rule: str) -> None:
        """Raise an error for the first row whose value is of another class."""
        if not {*map(type, values)} <= {kind}:
            self.refuse(np.array([not isinstance(value, kind) for value in values]), rule, values)

    def refuse(self, is_wrong: Bool, rule: str, values: Sequence[Any]) -> None:
        """Raise an error for the first row that is wrong."""
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise FileError(f"{self.place(row)}{rule}, got {shown(values[row])}.")

    def texts(self, *names: str) -> list[str]:
        """Get names of files."""
        found = self.need(*names)
        self.refuse_others(found, str, f"[{names[0]!r}] must be the name of a file")
        return found

    def times(self, values: list[Any] | None = None) -> Float64:
        """Get ``timestamp``, ``(n,)``."""
        times = self.array("timestamp", values=values)
        self.refuse(~np.isfinite(times), "['timestamp'] must be a number", times.tolist())
        return times

    def array(self, name: str, *shape: int, values: list[Any] | None = None) -> Float64:
        """Get an array of numbers, ``(n, *shape)``, of a key that each row has, or of values of it."""
        values = self.need(name) if values is None else values
        with contextlib.suppress(*UNFIT):
            array = stacked(values, shape)
            if array.shape == (len(values), *shape):
                return array
        return np.stack([self._numbers(row, name, value, shape) for row, value in enumerate(values)])

    def joined(self, name: str, values: Sequence[Any], counts: Int64, *shape: int) -> Float64:
        """Join arrays of all rows, ``(count, *shape)`` each, where empty ones are of any shape."""
        return self.lists(name, values, *shape, counts=counts)[0]

    def lists(
        self, name: str, values: Sequence[Any], *shape: int, counts: Int64 | None = None
    ) -> tuple[Float64, Int64]:
        """As `joined`, of any lengths if there are no counts; and the length of each."""
        with contextlib.suppress(*UNFIT):
            array, lengths = _joined(values, shape)
            if array.shape == (sum(lengths), *shape) and (counts is None or lengths == counts.tolist()):
                return array, np.array(lengths, np.int64)
        wanted = [-1] * len(values) if counts is None else counts.tolist()
        parts = [
            self._numbers(row, name, value, (count, *shape), counts)
            for row, (value, count) in enumerate(zip(values, wanted, strict=True))
        ]
        return np.concatenate([np.zeros((0, *shape)), *parts]), np.array([*map(len, parts)], np.int64)

    def _numbers(
        self, row: int, name: str, value: Any, shape: tuple[int, ...], counts: Int64 | None = None
    ) -> Float64:
        """An array of a shape; -1 is any length, and no elements are of any shape."""
        try:
            array = np.asarray(value, np.float64)
        except UNFIT as error:
            rule = "hold numbers" if shape else "be a number"
            raise FileError(f"{self.place(row)}[{name!r}] must {rule}, got {shown(value)}.") from error
        if not array.size and (-1 in shape or 0 in shape):
            return np.zeros((0, *shape[1:]))
        fits = [wanted in (-1, length) for wanted, length in zip(shape, array.shape, strict=False)]
        if array.ndim != len(shape) or not all(fits):
            written = ", ".join("n" if length == -1 else str(length) for length in shape)
            there = "" if counts is None else f" There are {counts[row]} boxes."
            raise FileError(
                f"{self.place(row)}[{name!r}] must have the shape ({written}), got {array.shape}.{there}"
            )
        return array

    def poses(self, name: str, what: str, *, are_matrices: bool = False) -> Float64:
        """Poses ``(n, 3, 4)`` of ``<name>``, or of ``<name>_rotation`` and ``<name>_translation``."""
        keys = [name] if are_matrices else [f"{name}_rotation", f"{name}_translation"]
        return poses_of([self.need(key) for key in keys], self.place, what)


def stacked(values: Sequence[Any], shape: tuple[int, ...]) -> Float64:
    """Stack values of one shape: as ``numpy.array``, which takes several times as long for arrays and lists.

    Raises:
        ValueError, TypeError, OverflowError: They are not numbers, or not of one shape.
    """
    if shape and (shared := shared_rows(values)) is not None:
        return stacked([values[row] for row in shared[0]], shape)[shared[1]]
    found = joined_arrays(values)
    if found is not None and {*found[0]} == {shape}:
        return found[1].astype(np.float64, copy=False).reshape(len(values), *shape)
    flat = values
    for length in shape:
        if not {*map(type, flat)} <= {list, tuple}:
            return np.array(values, np.float64)
        if not {*map(len, flat)} <= {length}:
            raise ValueError("not of one shape")
        flat = [*chain.from_iterable(flat)]
    return np.fromiter(flat, np.float64, len(flat)).reshape(len(values), *shape)


def shared_rows(*columns: Sequence[Any]) -> tuple[list[int], Int64] | None:
    """First row of each run of rows with the same objects, and the run of each row; None where most rows differ.

    Converters share what is the same in many frames, such as the calibration of a camera.
    """
    num = len(columns[0])
    is_first = np.ones(num, bool)
    if num:
        changes = [np.fromiter(map(is_not, column[1:], column), bool, num - 1) for column in columns]
        is_first[1:] = np.logical_or.reduce(changes)
    rows = np.flatnonzero(is_first)
    return (rows.tolist(), np.cumsum(is_first) - 1) if 2 * len(rows) <= num > 0 else None


def _joined(values: Sequence[Any], shape: tuple[int, ...]) -> tuple[Float64, list[int]]:
    """Join arrays, or lists, of elements of one shape, and get the length of each.

    Raises:
        ValueError, TypeError, OverflowError, LookupError: They are not such arrays or lists.
    """
    found = joined_arrays(values)
    if found is None:
        if not {*map(type, values)} <= {list, tuple}:
            raise TypeError("neither arrays of one type nor lists")
        return stacked([*chain.from_iterable(values)], shape), [*map(len, values)]
    # Empty arrays are of any shape.
    length_of = {
        size: 0 if 0 in size else size[0] for size in {*found[0]} if 0 in size or size[1:] == shape != size
    }
    return found[1].astype(np.float64, copy=False).reshape(-1, *shape), [*map(length_of.__getitem__, found[0])]


def poses_of(columns: Sequence[Sequence[Any]], place: Callable[[int], str], what: str) -> Float64:
    """Make poses ``(n, 3, 4)`` of matrices; or of two columns, quaternions (w first) or matrices and translations.

    Raises:
        FileError: One is not a rigid motion.
    """
    num = len(columns[0])
    if not num:
        return np.zeros((0, 3, 4))
    if (shared := shared_rows(*columns)) is not None:
        rows, row_of = shared
        few = [[column[row] for row in rows] for column in columns]
        return poses_of(few, lambda row: place(rows[row]), what)[row_of]
    try:
        pose = _poses_of_form(*columns)
    except UNFIT:
        if num == 1:
            raise FileError(
                f"{place(0)}: {what} must be a quaternion (w first) or a matrix (3, 3) with a translation, or a "
                f"matrix (4, 4), got {shown(_given(columns)[0])}."
            ) from None
        parts = []  # they differ in form, or one is wrong
        for row in range(num):
            one, of_row = [column[row : row + 1] for column in columns], lambda _, row=row: place(row)
            parts.append(poses_of(one, of_row, what))
        return np.concatenate(parts)
    is_right = np.abs(pose[..., :3] @ np.swapaxes(pose[..., :3], -1, -2) - np.eye(3)) < 1e-3
    if not is_right.all() or not np.isfinite(pose[..., 3]).all():
        is_right &= np.isfinite(pose[..., 3:])
        is_off = np.asarray(~is_right.all(axis=(-1, -2)))
        Rows((), place).refuse(is_off, f": {what} must be a rotation and a finite translation", _given(columns))
    return pose


def _given(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    return columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)]


def _poses_of_form(rotations: Sequence[Any], translations: Sequence[Any] | None = None) -> Float64:
    turns = stacked(rotations, np.shape(rotations[0]))
    if turns.shape[1:] == (4, 4):
        return turns[:, :3]
    if translations is None:
        raise ValueError("no matrices")
    moves = stacked(translations, (3,))
    if moves.shape != (len(turns), 3):
        raise ValueError("no translations")
    if turns.shape[1:] == (4,):
        with np.errstate(invalid="ignore"):
            return poses.pose_of_quaternion(turns, moves)
    if turns.shape[1:] == (3, 3):
        return poses.pose(turns, moves)
    raise ValueError("no rotations")
