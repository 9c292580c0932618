# SPDX-License-Identifier: Apache-2.0
"""Read access to the values of a sample, also as nested dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeVar

import numpy as np
from nvidia.dali.data_node import DataNode

from ..errors import FieldNotFoundError, SettingError
from . import printing
from .conversion import FieldValue, as_numpy, is_instance_of_loaded
from .format_queries import FormatQueries
from .formats import GroupFormat, LeafFormat, nothing_below_leaf
from .graph_mode import methods_not_converted
from .names import FieldPath, Name, Path, available_names_hint, format_path, normalized_path
from .strings import decoded

_Self = TypeVar("_Self", bound="ValueQueries")


@methods_not_converted
class ValueQueries(FormatQueries):
    """Base of `SampleDataGroup`: the methods that read values and change nothing."""

    __slots__ = ("_values",)

    _values: list[FieldValue]  # parallel to _format.names; a group for each group

    # Equality looks at the values, which change.
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __getitem__(self, name: Name) -> FieldValue:
        """Return a group, or the value of a data field (text as ``str``, a batch of it as list of ``str``).

        Raises:
            FieldNotFoundError: If there is no such child.
            NameTypeError: If the name is neither ``str`` nor ``int``.
            FieldValueError: If a STRING field holds data that are not text.
        """
        return self._read(self._position(name), (name,))

    def _read(self, position: int, path: FieldPath) -> FieldValue:
        value = self._values[position]
        child = self._format.children[position]
        return read_text(value, path) if type(child) is LeafFormat and child.is_string else value

    def get(self, name: Name, default: FieldValue = None) -> FieldValue:
        """Return ``self[name]``, or ``default`` if there is no such child."""
        return self[name] if self.has_child(name) else default

    def get_item_in_path(self, path: Path) -> FieldValue:
        """Return the group or value at ``path``; the empty path gives this group.

        Raises:
            FieldNotFoundError: If a name of the path does not exist.
            FieldKindError: If the path leads through a data field.
            NameTypeError: If the path is not valid.
        """
        names = normalized_path(path)
        if not names:
            return self
        group = self._group_at(names[:-1])
        return group._read(group._position(names[-1], names[:-1]), names)

    def get_parent_of_path(self: _Self, path: Path) -> _Self:
        """Return the group that contains the field at ``path``.

        Raises:
            FieldNotFoundError: If there is no such field.
            FieldKindError: If the path leads through a data field.
            SettingError: If the path is empty.
            NameTypeError: If the path is not valid.
        """
        names = not_empty(normalized_path(path))
        parent = self._group_at(names[:-1])
        if names[-1] not in parent._format.index:
            where = f" in {format_path(names[:-1])}" if len(names) > 1 else ""
            hint = available_names_hint(names[-1], parent._format.names)
            raise FieldNotFoundError(f"No element '{names[-1]}' is present{where}.{hint}")
        return parent

    def __iter__(self) -> Iterator[Name]:
        """Iterate over the names of the direct children."""
        return iter(self._format.names)

    def __len__(self) -> int:
        """Return the number of direct children."""
        return len(self._values)

    def keys(self) -> tuple[Name, ...]:
        """Return the names of the direct children."""
        return self._format.names

    def values(self) -> tuple[FieldValue, ...]:
        """Return what ``self[name]`` gives for each direct child."""
        return tuple([self[name] for name in self])

    def items(self) -> tuple[tuple[Name, FieldValue], ...]:
        """Return pairs of name and ``self[name]`` for each direct child."""
        return tuple([(name, self[name]) for name in self])

    def _ipython_key_completions_(self) -> list[Name]:
        return list(self._format.names)

    def to_dictionary(self) -> dict[Name, FieldValue]:
        """Return nested plain dicts with the names as keys (integers for arrays) and text as ``str``."""
        return nested_dictionary(self.format, self.get_data())

    def get_data(self, as_list_type: bool = False) -> tuple[FieldValue, ...] | list[FieldValue]:
        """Return the values of all data fields in flat order, as they are stored (text as uint8 data).

        Args:
            as_list_type: Whether to return a list instead of a tuple.
        """
        if not as_list_type and not self._format.group_positions:
            return tuple(self._values)
        data: list[FieldValue] = []
        self._collect(data)
        return data if as_list_type else tuple(data)

    def _collect(self, data: list[FieldValue]) -> None:
        start = 0
        for position in self._format.group_positions:
            if start < position:
                data += self._values[start:position]
            self._values[position]._collect(data)
            start = position + 1
        data += self._values[start:] if start else self._values

    def __eq__(self, other: object) -> bool:
        """Whether names, order, types and values are equal; NaN equals NaN, mappings do not count.

        Nodes of a graph are equal only if they are the same object.
        """
        if self is other:
            return True
        if not isinstance(other, ValueQueries):
            return NotImplemented
        mine, theirs = self.get_data(), other.get_data()
        return self.type_matches(other) and all(map(same_value, mine, theirs))

    def __repr__(self) -> str:
        return printing.short_text(self)

    def __str__(self) -> str:
        return printing.tree_text(self, with_details=True)

    def get_string_no_details(self) -> str:
        """Return the text of ``str(self)`` without the details in parentheses."""
        return printing.tree_text(self, with_details=False)

    def _groups(self: _Self) -> list[_Self]:
        return [self._values[position] for position in self._format.group_positions]

    def _group_at(self: _Self, path: FieldPath) -> _Self:
        group = self
        for depth, name in enumerate(path):
            position = group._position(name, path[:depth])
            if not isinstance(group._format.children[position], GroupFormat):
                raise nothing_below_leaf(path[: depth + 1])
            group = group._values[position]
        return group


def place_of(group: ValueQueries, sample: ValueQueries) -> FieldPath:
    """Path of a group, not of one that is equal, in the one that it is a part of; empty where it is none."""
    for position in sample._format.group_positions:
        child: ValueQueries = sample._values[position]
        rest = place_of(group, child)
        if rest or child is group:
            return sample._format.names[position], *rest
    return ()


def not_empty(path: FieldPath) -> FieldPath:
    """Return ``path``; raise a `SettingError` if it is empty."""
    if not path:
        raise SettingError("the path must have at least one name: the group itself is not one of its fields")
    return path


def same_value(first: FieldValue, second: FieldValue) -> bool:
    """Whether two field values are equal; never raises.

    Arrays are equal if library, type, shape and all elements are; NaN equals NaN. Nodes of a graph are equal
    if they are the same object (their own ``==`` adds an operator to the graph).
    """
    if first is second:
        return True
    if isinstance(first, DataNode) or isinstance(second, DataNode):
        return False
    try:
        if _is_array(first) or _is_array(second):
            return type(first) is type(second) and _same_arrays(as_numpy(first), as_numpy(second))
        if isinstance(first, list | tuple):
            return (
                type(first) is type(second) and len(first) == len(second) and all(map(same_value, first, second))
            )
        return bool(first == second)
    except Exception:  # a foreign object whose == fails or is ambiguous
        return False


def _is_array(value: FieldValue) -> bool:
    return (
        isinstance(value, np.ndarray)
        or is_instance_of_loaded(value, "torch", "Tensor")
        or is_instance_of_loaded(value, "cupy", "ndarray")
        or is_instance_of_loaded(value, "jax", "Array")
    )


def _same_arrays(
    first: np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None,
    second: np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None,
) -> bool:
    if first is None or second is None or first.dtype != second.dtype or first.shape != second.shape:
        return False
    # NumPy compares other kinds (text, objects) only without the NaN rule.
    return bool(np.array_equal(first, second, equal_nan=first.dtype.kind in "fcmM"))


def nested_dictionary(
    sample_format: GroupFormat, values: Iterable[FieldValue], prefix: FieldPath = ()
) -> dict[Name, FieldValue]:
    """Arrange values in flat order as nested plain dicts, like `SampleDataGroup.to_dictionary`.

    Args:
        sample_format: Names and types.
        values: As many values as the format has data fields.
        prefix: Path of the group, for messages.
    """
    values = iter(values)
    result: dict[Name, FieldValue] = {}
    for name, child in zip(sample_format.names, sample_format.children, strict=True):
        if isinstance(child, GroupFormat):
            result[name] = nested_dictionary(child, values, (*prefix, name))
        elif child.is_string:
            result[name] = read_text(next(values), (*prefix, name))
        else:
            result[name] = next(values)
    return result


def read_text(value: FieldValue, path: FieldPath) -> FieldValue:
    """Return the value of a STRING field as text; None and nodes of a graph as they are."""
    return value if value is None or isinstance(value, DataNode) else decoded(value, path)
