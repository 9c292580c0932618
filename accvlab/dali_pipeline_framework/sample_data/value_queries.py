# SPDX-License-Identifier: Apache-2.0
"""Read access to the format and the values of a sample, also as nested dicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..errors import FieldKindError, FieldNotFoundError, FormatError, SettingError
from . import printing
from .conversion import FieldValue, as_numpy, decoded, is_instance_of_loaded
from .formats import ChildFormat, GroupFormat, LeafFormat, field_not_found, nothing_below_leaf
from .graph_mode import methods_not_converted
from .names import FieldPath, Name, Path, available_names_hint, checked_name, format_path, normalized_path

_Self = TypeVar("_Self", bound="ValueQueries")


@methods_not_converted
class ValueQueries(ABC):
    """Base of `SampleDataGroup`: the methods that read format and values and change nothing."""

    __slots__ = ("_format", "_values")

    # The format as last seen. It may lag behind edits inside the direct children, but names and kinds (data
    # field or group) of the direct children in it are always right.
    _format: GroupFormat
    _values: list[FieldValue]  # parallel to _format.names; a group for each group

    # Equality looks at the values, which change.
    __hash__: ClassVar[None]  # type: ignore[assignment]

    @property
    @abstractmethod
    def format(self) -> GroupFormat:
        """The format as an immutable value."""

    def type_matches(self, other: ValueQueries) -> bool:
        """Whether ``other`` has the same names in the same order and the same types, in the whole tree.

        Values, mappings and switches do not count.
        """
        return isinstance(other, ValueQueries) and self.format.matches(other.format)

    def get_flat_index_first_discrepancy_to_other(self, other: ValueQueries) -> int:
        """Return the first flat position where name or type differ from ``other``; -1 if none does.

        If one is a prefix of the other, this is the number of data fields of the shorter one. Empty groups
        are not seen.

        Raises:
            FieldKindError: If ``other`` is not a `SampleDataGroup`.
        """
        if not isinstance(other, ValueQueries):
            raise FieldKindError(f"a SampleDataGroup is needed to compare with, got {type(other).__name__}")
        return self.format.first_difference(other.format)

    @property
    def contained_top_level_field_names(self) -> tuple[Name, ...]:
        """Names of the direct children."""
        return self._format.names

    @property
    def field_top_level_types(self) -> tuple[FieldType, ...]:
        """Types of the direct children: a DALI type, or the class `SampleDataGroup` for groups."""
        return tuple([self._type_of(child) for child in self._format.children])

    @property
    def field_names_flat(self) -> tuple[str, ...]:
        """Names of all data fields in flat order: parts joined by dots, integers as ``[i]``.

        Raises:
            FormatError: If two data fields have the same flat name.
        """
        return self.format.flat_names

    @property
    def field_types_flat(self) -> tuple[types.DALIDataType, ...]:
        """Types of all data fields in flat order; ``UINT8`` for text."""
        return self.format.flat_dtypes

    def get_type_of_field(self, name: Name) -> FieldType:
        """Return the type of a child: a DALI type, or the class `SampleDataGroup` for groups.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        return self._type_of(self._format.children[self._position(name)])

    def get_type_of_item_in_path(self, path: Path) -> FieldType:
        """Return the type at ``path``; the class `SampleDataGroup` for groups and the empty path.

        Raises:
            FieldNotFoundError: If there is no such field.
            FieldKindError: If the path leads through a data field.
            NameTypeError: If the path is not valid.
        """
        return self._type_of(self.format.at(normalized_path(path)))

    @staticmethod
    def path_is_single_name(path: Path) -> bool:
        """Whether ``path`` is one name, not a sequence of names."""
        return isinstance(path, str) or not isinstance(path, Sequence)

    def path_exists(self, path: Path) -> bool:
        """Whether there is a field or group at ``path``; true for the empty path.

        Raises:
            NameTypeError: If the path is not valid.
        """
        return self.format.get(normalized_path(path)) is not None

    def path_exists_and_is_data_group_field(self, path: Path) -> bool:
        """Whether there is a group at ``path``; true for the empty path.

        Raises:
            NameTypeError: If the path is not valid.
        """
        return isinstance(self.format.get(normalized_path(path)), GroupFormat)

    def has_child(self, name: Name) -> bool:
        """Whether there is a direct child (data field or group) of this name.

        Raises:
            NameTypeError: If the name is neither ``str`` nor ``int``.
        """
        return checked_name(name) in self._format.index

    __contains__ = has_child

    def is_data_field(self, name: Name) -> bool:
        """Whether the child is a data field.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        return not self.is_data_group_field(name)

    def is_data_group_field(self, name: Name) -> bool:
        """Whether the child is a group.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        return isinstance(self._format.children[self._position(name)], GroupFormat)

    def is_array(self, field: Name | None = None) -> bool:
        """Whether this group (or the child ``field``) has the names ``0, 1, 2, …`` in this order.

        True for an empty group, False for a data field.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        group = self._own_or_child_format(field)
        return isinstance(group, GroupFormat) and group.is_array()

    def is_data_field_array(self, field: Name | None = None) -> bool:
        """Whether `is_array` holds and all elements are data fields.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        group = self._own_or_child_format(field)
        return isinstance(group, GroupFormat) and group.is_array() and not group.group_positions

    def is_data_group_field_array(self, field: Name | None = None) -> bool:
        """Whether `is_array` holds and all elements are groups.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        group = self._own_or_child_format(field)
        if not isinstance(group, GroupFormat) or not group.is_array():
            return False
        return len(group.group_positions) == len(group.names)

    def find_all_occurrences(self, name_to_find: Name) -> list[FieldPath]:
        """Return the paths of all data fields and groups of this name in the whole tree.

        A child of a group comes before those further down in the same group.
        """
        return [] if name_to_find is None else self.format.find(checked_name(name_to_find))

    def get_num_occurrences(self, name_to_find: Name) -> int:
        """Return the number of data fields and groups of this name in the whole tree."""
        return len(self.find_all_occurrences(name_to_find))

    def check_has_children(
        self,
        data_field_children: Name | Sequence[Name] | None = None,
        data_group_field_children: Name | Sequence[Name] | None = None,
        data_field_array_children: Name | Sequence[Name] | None = None,
        data_group_field_array_children: Name | Sequence[Name] | None = None,
        current_name: str | None = None,
    ) -> None:
        """Check that direct children exist and are of the right kind.

        Args:
            data_field_children: Name(s) that must be data fields.
            data_group_field_children: Name(s) that must be groups.
            data_field_array_children: Name(s) that must be arrays of data fields.
            data_group_field_array_children: Name(s) that must be arrays of groups.
            current_name: What to call this group in the message.

        Raises:
            FormatError: Lists everything that is wrong, in the order of the arguments.
        """
        checks = (
            (data_field_children, self.is_data_field, "a data field"),
            (data_group_field_children, self.is_data_group_field, "a data group field"),
            (data_field_array_children, self.is_data_field_array, "a data field array"),
            (data_group_field_array_children, self.is_data_group_field_array, "a data group field array"),
        )
        owner = f"`{current_name}`" if current_name else "The sample data group"
        problems = []
        for children, is_of_kind, kind in checks:
            for name in () if children is None else normalized_path(children):
                if not self.has_child(name):
                    hint = available_names_hint(name, self._format.names)
                    problems.append(f"{owner} does not have child `{name}`.{hint}")
                elif not is_of_kind(name):
                    problems.append(f"Child `{name}` of {owner} is not {kind}.")
        if problems:
            raise FormatError("\n".join(problems))

    # --- values -----------------------------------------------------------------------------------------

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

    def _position(self, name: Name, prefix: FieldPath = (), advice: str = "") -> int:
        if type(name) is not str and type(name) is not int:
            name = checked_name(name)
        position = self._format.index.get(name)
        if position is None:
            raise field_not_found(name, self._format, prefix, advice)
        return position

    def _own_or_child_format(self, field: Name | None) -> ChildFormat:
        return self.format if field is None else self.format.children[self._position(field)]

    def _type_of(self, child: ChildFormat) -> FieldType:
        return child.dtype if isinstance(child, LeafFormat) else type(self)

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


FieldType: TypeAlias = types.DALIDataType | type[ValueQueries]
"""Type of a child as told to callers: all groups have the class `SampleDataGroup` as their type."""


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
