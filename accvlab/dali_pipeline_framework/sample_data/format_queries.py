# SPDX-License-Identifier: Apache-2.0
"""Queries about the format of a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from nvidia.dali import types

from ..errors import FieldKindError, FormatError
from .formats import ChildFormat, GroupFormat, LeafFormat, field_not_found
from .graph_mode import methods_not_converted
from .names import FieldPath, Name, Path, available_names_hint, checked_name, normalized_path


@methods_not_converted
class FormatQueries(ABC):
    """Base of `SampleDataGroup`: the methods that only look at the format."""

    # The format as last seen. It may lag behind edits inside the direct children, but names and kinds (data
    # field or group) of the direct children in it are always right.
    __slots__ = ("_format",)

    _format: GroupFormat

    @property
    @abstractmethod
    def format(self) -> GroupFormat:
        """The format as an immutable value."""

    def type_matches(self, other: FormatQueries) -> bool:
        """Whether ``other`` has the same names in the same order and the same types, in the whole tree.

        Values, mappings and switches do not count.
        """
        return isinstance(other, FormatQueries) and self.format.matches(other.format)

    def get_flat_index_first_discrepancy_to_other(self, other: FormatQueries) -> int:
        """Return the first flat position where name or type differ from ``other``; -1 if none does.

        If one is a prefix of the other, this is the number of data fields of the shorter one. Empty groups
        are not seen.

        Raises:
            FieldKindError: If ``other`` is not a `SampleDataGroup`.
        """
        if not isinstance(other, FormatQueries):
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

    # --- helpers ----------------------------------------------------------------------------------------

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


FieldType: TypeAlias = types.DALIDataType | type[FormatQueries]
"""Type of a child as told to callers: all groups have the class `SampleDataGroup` as their type."""
