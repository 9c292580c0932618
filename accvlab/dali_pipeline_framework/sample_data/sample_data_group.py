# SPDX-License-Identifier: Apache-2.0
"""`SampleDataGroup`: a tree of named data fields, and the data in it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode

from ..errors import (
    FieldKindError,
    FieldNotFoundError,
    FieldValueError,
    FormatError,
    GroupFormatMismatchError,
    SettingError,
    error_that_is_also,
)
from . import dtypes, printing
from .conversion import (
    FieldValue,
    LabelNumbers,
    ValueMapping,
    converted,
    encoded,
    field_error,
    mapped,
    read_text,
    same_value,
)
from .formats import (
    UNKNOWN_CONTENT,
    ChildFormat,
    GroupFormat,
    ImageContent,
    LeafFormat,
    describe_difference,
    field_not_found,
    leaf_format,
    nested_dictionary,
    nothing_below_leaf,
)
from .graph_mode import methods_not_converted
from .names import FieldPath, Name, Path, available_names_hint, checked_name, format_path, normalized_path

_DECLARE = (
    " A new field must first be declared in `sample_data_structure` of the data provider (in a step: with "
    "add_data_field)."
)


_MAPPING_IN_GRAPH = (
    "has a mapping, which cannot be applied to a DataNode: inside the graph there are no labels, only numbers. "
    "Map the labels in the data provider, and switch mapping off inside the graph with set_apply_mapping(False)"
)


_EMPTY = GroupFormat()


class _Switches(NamedTuple):
    """Treatment of values that are set, see `SampleDataGroup.set_apply_mapping` and so on."""

    apply_mapping: bool = True
    do_convert: bool = True
    do_check_type: bool = True


@methods_not_converted
class SampleDataGroup:
    """An ordered tree of named fields: the format of a sample, and the data of one sample or batch.

    Children are *data fields* (leaves with a DALI type and one value, None while it is unset) and *data group
    fields* (sample data groups again). Names are ``str`` or ``int``; groups whose names are ``0, 1, 2, …``
    are arrays. A group without values is a *blueprint*.

    Values assigned to data fields are converted to the NumPy counterpart of the field's type, always as a
    copy; labels are replaced by numbers where the field has a mapping; text in STRING fields reads back as
    ``str``. Inside the graph (in the function that defines a DALI pipeline) values are ``DataNode`` objects,
    which are stored untouched.

    Three switches control this, for a group and all groups below it: `set_apply_mapping`, `set_do_convert`
    and `set_do_check_type`. New groups have them on.

    Flat order, in which samples pass through DALI, is depth first with the children in the order they were
    added. Only data fields count; text counts as ``UINT8``. See `field_names_flat`.

    Example:
        >>> import numpy as np
        >>> from nvidia.dali.types import DALIDataType
        >>> camera = SampleDataGroup()
        >>> camera.add_data_field("image", DALIDataType.UINT8)
        >>> camera.add_data_field("label", DALIDataType.INT32, mapping={"car": 1, None: 0})
        >>> sample = SampleDataGroup()
        >>> sample.add_data_group_field_array("cameras", camera, 2)
        >>> sample.field_names_flat[:2]
        ('cameras.[0].image', 'cameras.[0].label')
        >>> sample["cameras"][0]["image"] = np.zeros((4, 6, 3))
        >>> sample["cameras"][0]["label"] = ["car", "tree"]
        >>> sample.get_item_in_path(("cameras", 0, "label"))
        array([1, 0], dtype=int32)
        >>> sample["cameras"][0]
        SampleDataGroup of 2 fields
        image  UINT8 (4, 6, 3)  0
        label  INT32 (2,)  0 .. 1
    """

    __slots__ = ("_format", "_switches", "_values")

    # The format as last seen. It may lag behind edits inside the direct children, but names and kinds (data
    # field or group) of the direct children in it are always right.
    _format: GroupFormat
    _values: list[FieldValue]  # parallel to _format.names; a group for each group

    _switches: _Switches

    # Equality looks at the values, which change.
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self) -> None:
        """Make an empty group with all switches on."""
        self._format = _EMPTY
        self._values = []
        self._switches = _Switches()

    # --- construction -----------------------------------------------------------------------------------

    @classmethod
    def from_format(cls, format: GroupFormat) -> SampleDataGroup:
        """Make a blueprint of the given format, with all switches on."""
        values = [cls.from_format(child) if isinstance(child, GroupFormat) else None for child in format.children]
        return _made_of(format, values, _Switches())

    @staticmethod
    def create_data_field_array(
        type: types.DALIDataType,
        num_fields: int,
        mapping: LabelNumbers | None = None,
        *,
        ndim: int | None = None,
        content: ImageContent = UNKNOWN_CONTENT,
    ) -> SampleDataGroup:
        """Make a group of ``num_fields`` data fields named ``0, 1, …``, all alike; none for 0 or less.

        For other arguments, and errors, see `add_data_field`.
        """
        leaf = _leaf((), type, mapping, ndim, content)
        count = max(0, operator.index(num_fields))
        return SampleDataGroup.from_format(GroupFormat(tuple(range(count)), (leaf,) * count))

    @staticmethod
    def create_data_group_field_array(sample_data_group: SampleDataGroup, num_fields: int) -> SampleDataGroup:
        """Make a group of ``num_fields`` groups named ``0, 1, …``, all empty copies of a blueprint.

        Args:
            sample_data_group: The blueprint; values in it are ignored.
            num_fields: Number of groups; none if it is not positive.

        Raises:
            FieldKindError: If the blueprint is not a `SampleDataGroup`.
        """
        blueprint = _checked_blueprint(sample_data_group)
        count = max(0, operator.index(num_fields))
        format = GroupFormat(tuple(range(count)), (blueprint.format,) * count)
        return _made_of(format, [blueprint._copied(False) for _ in range(count)], _Switches())

    def add_data_field(
        self,
        name: Name,
        type: types.DALIDataType,
        mapping: LabelNumbers | None = None,
        *,
        ndim: int | None = None,
        content: ImageContent = UNKNOWN_CONTENT,
    ) -> None:
        """Add a data field at the end.

        Args:
            name: Name of the field.
            type: A numeric DALI type, or ``STRING``.
            mapping: Label -> number to store when it is assigned. The key None holds the default for labels
                that are not listed. Not for ``STRING``.
            ndim: Number of dimensions of the arrays of this field, without the batch; None for any. It is checked
                on samples of a data provider, not on assignment; a step that changes it must declare the new
                number.
            content: Known properties of the image in this field, e.g. that it is encoded. Image steps refuse
                images that they cannot work on. Data are not checked against it.

        Raises:
            NameTypeError: If the name is neither ``str`` nor ``int``.
            DuplicateFieldError: If the name is taken.
            FieldKindError: If ``type`` is a `SampleDataGroup`.
            FieldValueError: If ``type`` is not a DALI type that a field can have.
            SettingError: If the name is empty, or mapping, ``ndim`` or ``content`` are not valid or do not go with
                the type.
        """
        name = checked_name(name)
        self._format = self._format.with_field(name, _leaf((name,), type, mapping, ndim, content))
        self._values.append(None)

    def add_data_group_field(self, name: Name, blueprint_sample_data_group: SampleDataGroup) -> None:
        """Add a group at the end: an empty copy of the blueprint, with the switches of this group.

        Args:
            name: Name of the group.
            blueprint_sample_data_group: The blueprint; it is copied, and values in it are ignored.

        Raises:
            NameTypeError: If the name is neither ``str`` nor ``int``.
            SettingError: If the name is empty.
            DuplicateFieldError: If the name is taken.
            FieldKindError: If the blueprint is not a `SampleDataGroup`.
        """
        blueprint = _checked_blueprint(blueprint_sample_data_group)
        self._format = self._format.with_field(checked_name(name), blueprint.format)
        self._values.append(self._with_own_switches(blueprint._copied(False)))

    def add_data_field_array(
        self,
        name: Name,
        type: types.DALIDataType,
        num_fields: int,
        mapping: LabelNumbers | None = None,
        *,
        ndim: int | None = None,
        content: ImageContent = UNKNOWN_CONTENT,
    ) -> None:
        """Add a group of ``num_fields`` data fields named ``0, 1, …``.

        For arguments and errors, see `add_data_field` and `create_data_field_array`.
        """
        self.add_data_group_field(
            name, SampleDataGroup.create_data_field_array(type, num_fields, mapping, ndim=ndim, content=content)
        )

    def add_data_group_field_array(
        self, name: Name, blueprint_sample_data_group: SampleDataGroup, num_fields: int
    ) -> None:
        """Add a group of ``num_fields`` groups named ``0, 1, …``.

        For arguments and errors, see `add_data_group_field` and `create_data_group_field_array`.
        """
        self.add_data_group_field(
            name, SampleDataGroup.create_data_group_field_array(blueprint_sample_data_group, num_fields)
        )

    # --- copies -----------------------------------------------------------------------------------------

    def get_empty_like_self(self) -> SampleDataGroup:
        """Return a blueprint of this group: same fields, mappings and switches, no values."""
        _ = self.format  # once for the whole tree, so that all copies share it
        return self._copied(False)

    def get_copy(self) -> SampleDataGroup:
        """Return a copy with new groups, but the same value objects in the data fields."""
        return self._copied(True)

    __copy__ = get_copy

    def _copied(self, with_values: bool) -> SampleDataGroup:
        copy = SampleDataGroup.__new__(SampleDataGroup)  # as `_made_of`: it is done for each group of each sample
        copy._format = self._format
        copy._switches = self._switches
        copy._values = values = self._values.copy() if with_values else [None] * len(self._values)
        for position in self._format.group_positions:
            values[position] = self._values[position]._copied(with_values)
        return copy

    def _with_own_switches(self, group: SampleDataGroup) -> SampleDataGroup:
        group._set_switches(**self._switches._asdict())
        return group

    def __reduce__(self) -> tuple[object, ...]:
        return _made_of, (self.format, self._values, tuple(self._switches))

    # --- format -----------------------------------------------------------------------------------------

    @property
    def format(self) -> GroupFormat:
        """The format as an immutable value; the same object as long as nothing changes."""
        known = self._format
        edited: dict[FieldPath, ChildFormat] = {}
        for position in known.group_positions:
            child, own = self._values[position], known.children[position]
            current = child.format
            if current is own:
                continue
            if current == own:
                child._format = own
            else:  # the child was edited in place, or replaced by one that differs in mappings only
                edited[known.names[position],] = current
        if edited:
            self._format = known.with_replaced(edited)
        return self._format

    @staticmethod
    def get_numpy_type_for_dali_type(dali_type: types.DALIDataType) -> type[np.generic]:
        """Return the NumPy type in which values of a numeric DALI type are stored.

        Raises:
            FieldValueError: If there is none, e.g. for ``STRING``.
        """
        return dtypes.get_numpy_type_for_dali_type(dali_type)

    # --- queries of the format --------------------------------------------------------------------------

    def type_matches(self, other: SampleDataGroup) -> bool:
        """Whether ``other`` has the same names in the same order and the same types, in the whole tree.

        Values, mappings and switches do not count.
        """
        return isinstance(other, SampleDataGroup) and self.format.matches(other.format)

    def get_flat_index_first_discrepancy_to_other(self, other: SampleDataGroup) -> int:
        """Return the first flat position where name or type differ from ``other``; -1 if none does.

        If one is a prefix of the other, the result is the number of data fields of the shorter one. Empty groups
        are not seen.

        Raises:
            FieldKindError: If ``other`` is not a `SampleDataGroup`.
        """
        if not isinstance(other, SampleDataGroup):
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
        has_groups_only = isinstance(group, GroupFormat) and len(group.group_positions) == len(group.names)
        return has_groups_only and self.is_array(field)

    def find_all_occurrences(self, name_to_find: Name) -> list[FieldPath]:
        """Return the paths of all data fields and groups of this name in the whole tree.

        A child of a group comes before fields at deeper levels of this group.
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

    def get_parent_of_path(self, path: Path) -> SampleDataGroup:
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
        if not isinstance(other, SampleDataGroup):
            return NotImplemented
        mine, theirs = self.get_data(), other.get_data()
        return self.type_matches(other) and all(map(same_value, mine, theirs))

    def __repr__(self) -> str:
        return printing.sample_text(self)

    def __str__(self) -> str:
        return printing.tree_text(self, with_details=True)

    def get_string_no_details(self) -> str:
        """Return the text of ``str(self)`` with names, types and known contents only."""
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

    def _groups(self) -> list[SampleDataGroup]:
        return [self._values[position] for position in self._format.group_positions]

    def _group_at(self, path: FieldPath) -> SampleDataGroup:
        group = self
        for depth, name in enumerate(path):
            position = group._position(name, path[:depth])
            if not isinstance(group._format.children[position], GroupFormat):
                raise nothing_below_leaf(path[: depth + 1])
            group = group._values[position]
        return group

    # --- switches ---------------------------------------------------------------------------------------

    def set_apply_mapping(self, apply: bool) -> None:
        """Set whether labels are mapped on assignment, here and in all groups below."""
        self._set_switches(apply_mapping=bool(apply))

    def set_do_convert(self, convert: bool) -> None:
        """Set whether values are converted to the field's type on assignment, here and in all groups below.

        When it is off, values are stored as they are, by reference; only text for STRING fields is converted.
        """
        self._set_switches(do_convert=bool(convert))

    def set_do_check_type(self, check_type: bool) -> None:
        """Set whether types inside the graph are to be checked, here and in all groups below.

        Nothing is checked on assignment inside the graph; the pipeline reads this switch (`do_check_type`)
        and checks the types of the first batch.
        """
        self._set_switches(do_check_type=bool(check_type))

    def _set_switches(self, **switches: bool) -> None:
        self._switches = self._switches._replace(**switches)
        for group in self._groups():
            group._set_switches(**switches)

    @property
    def apply_mapping(self) -> bool:
        """Whether labels are mapped on assignment."""
        return self._switches.apply_mapping

    @property
    def do_convert(self) -> bool:
        """Whether values are converted on assignment."""
        return self._switches.do_convert

    @property
    def do_check_type(self) -> bool:
        """Whether types inside the graph are to be checked."""
        return self._switches.do_check_type

    # --- bulk transfer ----------------------------------------------------------------------------------

    def set_data(self, data: Sequence[FieldValue]) -> None:
        """Store one value per data field, in flat order, without mapping, conversion or check.

        Args:
            data: As many values as there are data fields (see `field_names_flat`).

        Raises:
            FieldValueError: If there are more or fewer values; with fewer it is also an IndexError. Nothing
                is stored then.
        """
        if isinstance(data, str | bytes | Mapping | set | frozenset | DataNode) or not hasattr(data, "__iter__"):
            rule = "the data must be a list or tuple with one value per data field"
            raise FieldValueError(f"{rule}, got a value of type {type(data).__name__}")
        values = data if isinstance(data, list | tuple) else list(data)
        expected, got = self.format.num_leaves, len(values)
        if got != expected:
            message = f"expected {expected} values, one per data field, got {got}. "
            if got > expected:
                raise FieldValueError(f"{message}The additional values belong to no field")
            first = f"The first field without a value is {format_path(self.format.flat_paths[got])}"
            raise error_that_is_also(FieldValueError, (IndexError,), message + first)
        self._fill(values, 0)

    def _fill(self, data: Sequence[FieldValue], start: int) -> int:
        values = self._values
        filled = 0
        for position in self._format.group_positions:
            end = start + position - filled
            values[filled:position] = data[start:end]
            start = values[position]._fill(data, end)
            filled = position + 1
        end = start + len(values) - filled
        values[filled:] = data[start:end]
        return end

    def set_data_from_dali_generic_iterator_output(
        self, data: Sequence[Mapping[str, FieldValue]], index: int
    ) -> None:
        """Store the output of a DALI framework iterator for one of its pipelines.

        Args:
            data: One dict per pipeline, with the names of `field_names_flat` as keys. Further keys are ignored.
            index: Position of the dict to use.

        Raises:
            FieldNotFoundError: If a data field is missing in the dict. Nothing is stored then.
            IndexError: If there is no dict of this index.
        """
        outputs = data[index]
        names = self.format.flat_names
        missing = [name for name in names if name not in outputs]
        if missing:
            hint = available_names_hint(missing[0], list(outputs))
            raise FieldNotFoundError(f"the iterator's output has no entry for {', '.join(missing)}.{hint}")
        self._fill([outputs[name] for name in names], 0)

    # --- assignment -------------------------------------------------------------------------------------

    def __setitem__(self, name: Name, value: FieldValue) -> None:
        """Set a data field, or replace a group by another one of the same format (by reference).

        For a data field: None unsets it. A ``DataNode`` is stored untouched. Labels are mapped if the field
        has a mapping; then the value is converted to the type of the field.

        Raises:
            FieldNotFoundError: If there is no such child.
            NameTypeError: If the name is neither ``str`` nor ``int``.
            FieldValueError: If the value does not fit the data field.
            FieldKindError: If the child is a group and the value is not.
            GroupFormatMismatchError: If the child is a group of another format than the value.
        """
        position = self._format.index.get(name) if type(name) is str else None
        if position is None:
            position = self._position(name, (), _DECLARE)
        if type(value) is np.ndarray and self._switches.do_convert:
            child = self._format.children[position]
            if (
                type(child) is LeafFormat
                and child.numpy_dtype is value.dtype
                and child.mapping is None
                and not child.is_string
            ):
                # The usual case in a data provider, without the detours for all the others.
                self._values[position] = value.copy()
                return
        self._assign(position, value, (name,))

    def set_item_in_path(self, path: Path, value: FieldValue) -> None:
        """Set the data field or group at ``path``; otherwise like ``self[name] = value``.

        Raises:
            SettingError: If the path is empty.
            FieldKindError: If the path leads through a data field, or a group is set to something else.
            NameTypeError: If the path is not valid.
            FieldNotFoundError: If there is no such field.
        """
        names = not_empty(normalized_path(path))
        group = self._group_at(names[:-1])
        group._assign(group._position(names[-1], names[:-1], _DECLARE), value, names)

    def _assign(self, position: int, value: FieldValue, path: FieldPath) -> None:
        child = self._format.children[position]
        if not isinstance(child, LeafFormat):
            if not isinstance(value, SampleDataGroup):
                rule = "is a data group field, so it can only be set to a SampleDataGroup of the same format"
                got = f"a value of type {type(value).__name__}. To set its data fields, name them in the path"
                raise FieldKindError(f"{format_path(path)}: {rule}, got {got}")
            current: SampleDataGroup = self._values[position]
            if not current.type_matches(value):
                raise GroupFormatMismatchError(
                    f"{format_path(path)}: the given SampleDataGroup has another format than the field:\n"
                    f"{describe_difference(current.format, value.format)}\n"
                    "To change the format of a group, use change_type_of_data_and_remove_data"
                )
        elif value is not None:
            if isinstance(value, DataNode):
                if self._switches.apply_mapping and child.mapping is not None:
                    raise field_error(path, _MAPPING_IN_GRAPH)
            elif child.is_string:
                if self._switches.do_convert or isinstance(value, str):
                    value = encoded(value, path)
            else:
                if self._switches.apply_mapping and child.mapping is not None:
                    value = mapped(value, child.mapping, path)
                if self._switches.do_convert:
                    value = converted(value, child.numpy_dtype, path)
        self._values[position] = value

    # --- edits of the structure -------------------------------------------------------------------------

    def remove_field(self, name: Name) -> None:
        """Remove a data field or group.

        Raises:
            FieldNotFoundError: If there is no such child.
        """
        name = checked_name(name)
        edited = self._format.without(name)
        del self._values[self._format.index[name]]
        self._format = edited

    __delitem__ = remove_field

    def remove_all_occurrences(self, name_to_remove: Name) -> None:
        """Remove all data fields and groups of this name in the whole tree, if there are any."""
        if name_to_remove in self._format.index:
            self.remove_field(name_to_remove)
        for group in self._groups():
            group.remove_all_occurrences(name_to_remove)

    def change_type_of_data_and_remove_data(
        self,
        path: Path,
        new_type: types.DALIDataType | SampleDataGroup,
        new_mapping: LabelNumbers | None = None,
        *,
        new_ndim: int | None = None,
        new_content: ImageContent = UNKNOWN_CONTENT,
    ) -> None:
        """Change the type of a data field, or the format of a group; the position stays, the data are
        dropped.

        Args:
            path: Path of the data field or group.
            new_type: A DALI type for a data field, a blueprint for a group.
            new_mapping: Mapping of the data field from now on; None for none.
            new_ndim: Number of dimensions from now on, as in `add_data_field`; None for any.
            new_content: Known properties of the image from now on, as in `add_data_field`.

        Raises:
            FieldNotFoundError: If there is no such field.
            FieldKindError: If a data field is to become a group or the reverse.
            FieldValueError: If the type is not one that a field can have.
            SettingError: If the path is empty, or mapping, ``new_ndim`` or ``new_content`` are not valid for the
                new type.
        """
        names = not_empty(normalized_path(path))
        group = self._group_at(names[:-1])
        position = group._position(names[-1], names[:-1])
        is_group = isinstance(group._format.children[position], GroupFormat)
        if is_group != isinstance(new_type, SampleDataGroup):
            rule = f"is a data {'group ' if is_group else ''}field and must stay one, so the new type must be a"
            got = f"{'SampleDataGroup' if is_group else 'DALIDataType'}, got {new_type!r}"
            advice = "To change the kind, remove the field and add it again"
            raise FieldKindError(f"{format_path(names)}: {rule} {got}. {advice}")
        value: SampleDataGroup | None = None
        child: ChildFormat
        if isinstance(new_type, SampleDataGroup):
            if new_mapping is not None or new_ndim is not None or new_content is not UNKNOWN_CONTENT:
                rule = "a group can have neither a mapping nor an ndim nor a content"
                raise SettingError(f"{format_path(names)}: {rule}")
            child = new_type.format
            value = group._with_own_switches(new_type._copied(False))
        else:
            child = _leaf(names, new_type, new_mapping, new_ndim, new_content)
        group._format = group._format.with_replaced({names[-1:]: child})
        group._values[position] = value

    # --- inside the graph -------------------------------------------------------------------------------

    def ensure_uniform_size_in_batch(self, fill_value: int | float) -> None:
        """Pad all data fields so that the samples of a batch have one shape (inside the graph only).

        Args:
            fill_value: Value to pad with, at the end of each axis.

        Raises:
            FieldValueError: If a data field is not set.
        """
        self._pad((), fill_value, only_strings=False)

    def ensure_uniform_size_in_batch_for_all_strings(self) -> None:
        """Pad the text of all STRING fields to one length per batch (inside the graph only).

        Raises:
            FieldValueError: If a STRING field is not set.
        """
        self._pad((), 0, only_strings=True)

    def _pad(self, prefix: FieldPath, fill_value: int | float, *, only_strings: bool) -> None:
        for position, (name, child) in enumerate(zip(self._format.names, self._format.children, strict=True)):
            path = (*prefix, name)
            value = self._values[position]
            if isinstance(child, GroupFormat):
                value._pad(path, fill_value, only_strings=only_strings)
            elif child.is_string or not only_strings:
                if value is None:
                    raise field_error(path, "is not set, so it cannot be padded. Set all fields first")
                self._values[position] = fn.pad(value, fill_value=fill_value)


def _made_of(format: GroupFormat, values: list[FieldValue], switches: Iterable[bool]) -> SampleDataGroup:
    group = SampleDataGroup.__new__(SampleDataGroup)
    group._format = format
    group._values = values
    group._switches = _Switches(*switches)
    return group


def replace_contents(group: SampleDataGroup, format: GroupFormat) -> None:
    """Set the format of a group, and of all groups below it, to one that differs in contents only."""
    group._format = format
    for position in format.group_positions:
        child = format.children[position]
        if isinstance(child, GroupFormat):
            replace_contents(group._values[position], child)


def _leaf(
    path: FieldPath, dtype: object, mapping: LabelNumbers | None, ndim: int | None, content: ImageContent
) -> LeafFormat:
    where = f"{format_path(path)}: " if path else ""
    if isinstance(dtype, SampleDataGroup) or dtype is SampleDataGroup:
        rule = f"{where}the type of a data field must be a DALIDataType"
        raise FieldKindError(f"{rule}, got a SampleDataGroup. To add a group, use add_data_group_field")
    try:
        if mapping is not None and not isinstance(mapping, ValueMapping):
            mapping = ValueMapping(mapping)
        return leaf_format(dtype, mapping, ndim, content)  # type: ignore[arg-type]  # it refuses other types
    except (FieldValueError, SettingError) as error:
        raise type(error)(f"{where}{error}") from None


def _checked_blueprint(blueprint: object) -> SampleDataGroup:
    if not isinstance(blueprint, SampleDataGroup):
        rule = "a SampleDataGroup is needed"
        advice = "To add a data field, use add_data_field"
        raise FieldKindError(f"{rule}, got {blueprint!r} of type {type(blueprint).__name__}. {advice}")
    return blueprint


FieldType: TypeAlias = types.DALIDataType | type[SampleDataGroup]
"""Type of a child as returned to callers: all groups have the class `SampleDataGroup` as their type."""


def place_of(group: SampleDataGroup, sample: SampleDataGroup) -> FieldPath:
    """Get the path of a group (by identity) in a sample; empty where it is not a part of it."""
    for position in sample._format.group_positions:
        child: SampleDataGroup = sample._values[position]
        rest = place_of(group, child)
        if rest or child is group:
            return sample._format.names[position], *rest
    return ()


def not_empty(path: FieldPath) -> FieldPath:
    """Return ``path``; raise a `SettingError` if it is empty."""
    if not path:
        raise SettingError("the path must have at least one name: the group itself is not one of its fields")
    return path
