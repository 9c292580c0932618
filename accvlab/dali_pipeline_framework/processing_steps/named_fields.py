# SPDX-License-Identifier: Apache-2.0
"""Search for the fields that a step works on, by name, anywhere in the sample, before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from nvidia.dali import types

from ..checks import did_you_mean, field_name, field_names, listed, shown
from ..draws.random_draws import FieldKey
from ..errors import SettingError
from ..operators.element_selection import leaf_at
from ..sample_data import FieldPath, FormatProblem, GroupFormat, LeafFormat, SampleDataGroup, format_error
from ..sample_data.formats import holds_encoded_frames
from ..sample_data.names import Name, Path, format_path, normalized_path

Names: TypeAlias = Name | Sequence[Name]
"""Name or names of fields, anywhere in what a step is applied to."""

Key: TypeAlias = str | Sequence[Name] | FieldKey
"""Scope in which draws are constant: "sample", "rig", "sequence", "sequence-rig", a path, or a `FieldKey`."""


def required_names(names: Names, argument: str) -> tuple[Name, ...]:
    """Check one name, or several; return a tuple.

    Raises:
        SettingError: No name was given, or something else.
    """
    checked = field_names(names, argument)
    if not checked:
        raise SettingError(f"`{argument}` must be a name (str or int) or a sequence of names, got {names!r}.")
    return checked


as_names = field_names


def check_given_once(names: Iterable[Name]) -> None:
    """Check that no name is among those of several kinds of fields.

    Raises:
        SettingError: One is there twice.
    """
    several = [name for name, count in Counter(names).items() if count > 1]
    if several:
        raise SettingError(f"A field can be of one kind only, but these names are given twice: {shown(several)}.")


def optional_name(name: Name | None, argument: str) -> Name | None:
    """Check the name of a field, or None."""
    return None if name is None else field_name(name, argument)


def path_in_group(path: Path, argument: str) -> FieldPath:
    """Check a path in the group that a step is applied to.

    Raises:
        NameTypeError: It is no path.
        SettingError: It is empty, which is the group itself.
    """
    names = normalized_path(path)
    if not names:
        raise SettingError(f"`{argument}` must have at least one name, got {path!r}.")
    return names


def change_type(data: SampleDataGroup, path: FieldPath, dtype: types.DALIDataType) -> None:
    """Change the type of a field; its number of axes stays, its value is removed."""
    data.change_type_of_data_and_remove_data(path, dtype, new_ndim=leaf_at(data, path).ndim)


def find_paths(data: SampleDataGroup, names: Sequence[Name]) -> list[FieldPath]:
    """Get the paths of all fields of some names."""
    return [path for name in names for path in data.find_all_occurrences(name)]


def with_fields_beside(paths: Iterable[FieldPath], names: Sequence[Name]) -> list[FieldPath]:
    """Get paths, each with those of fields of some names next to it."""
    return [(*path[:-1], name) for path in paths for name in (path[-1], *names)]


class FieldSearch:
    """Search for fields by name that collects all problems, to report them together.

    Example::

        search = FieldSearch(data_empty, self)
        images = search.find(self._image_name, "an image", [types.DALIDataType.UINT8], group_of="images")
        return search.result()
    """

    def __init__(self, data_empty: SampleDataGroup, step: object, cannot: str = "be applied") -> None:
        """Set up for the format that a step is given; ``cannot`` completes "<step> cannot ..." in messages."""
        self._data_empty = data_empty
        self.format = data_empty.format
        self._heading = f"{type(step).__name__} cannot {cannot}:"
        self.problems: list[FormatProblem] = []

    def find(
        self,
        names: Name | Sequence[Name],
        what: str,
        dtypes: Sequence[types.DALIDataType] | None = None,
        *,
        group_of: str = "fields",
        holds: str = "",
        error_type: type[Exception] = KeyError,
    ) -> list[FieldPath]:
        """Find the data fields of some names, anywhere in the sample.

        Args:
            names: The names; each must occur.
            what: What the field holds, e.g. "an image".
            dtypes: Allowed types; None for all.
            group_of: What the fields are called together: "No occurrences of ... found".
            holds: What a field of these types holds, for the message about a wrong type; otherwise ``what``.
            error_type: Class of the error for a name that does not occur.

        Returns:
            The paths of the fields without a problem, name by name.
        """
        several = [names] if isinstance(names, str | int) else names
        paths = [path for name in several for path in self._occurrences(name, group_of, error_type)]
        return [path for path in paths if self._is_field(path, what, dtypes, holds or what)]

    def find_at(
        self, path: FieldPath, what: str, dtypes: Sequence[types.DALIDataType] | None = None
    ) -> FieldPath | None:
        """Find the data field at a path; None, and a problem, where it is missing or has another type."""
        if self.format.get(path) is None:
            *group, name = path
            parent = self.format.get(tuple(group)) if group else self.format
            hint = did_you_mean(name, parent.names) if isinstance(parent, GroupFormat) else ""
            self.add(f"there is no such data field with {what}.{hint}", path, KeyError)
            return None
        return path if self._is_field(path, what, dtypes, what) else None

    def leaf(self, path: FieldPath) -> LeafFormat:
        """Get the format of a data field."""
        return leaf_at(self._data_empty, path)

    def find_groups(
        self,
        name: Name,
        problem: str = "must be a data group field with annotations, is a data field",
        error_type: type[Exception] = KeyError,
    ) -> list[FieldPath]:
        """Find the groups of annotations of a name, anywhere in the sample.

        Args:
            name: The name, which must occur.
            problem: What is wrong with a data field of that name.
            error_type: Class of the error for a name that does not occur.
        """
        paths = self._occurrences(name, "annotations", error_type)
        groups = [path for path in paths if isinstance(self.format.at(path), GroupFormat)]
        for path in paths:
            if path not in groups:
                self.add(problem, path)
        return groups

    def _occurrences(self, name: Name, group_of: str, error_type: type[Exception]) -> list[FieldPath]:
        paths = self.format.find(name)
        if not paths:
            self.add_missing(name, group_of, error_type)
        return paths

    def _is_field(
        self, path: FieldPath, what: str, dtypes: Sequence[types.DALIDataType] | None, holds: str
    ) -> bool:
        """Whether there is a data field of one of these types; adds a problem otherwise."""
        leaf = self.format.at(path)
        if isinstance(leaf, GroupFormat):
            of_sequence = "; frames of a sequence are decoded by ImageDecoder" * holds_encoded_frames(leaf)
            self.add(f"must be a data field with {what}, is a group{of_sequence}", path)
        elif dtypes is not None and leaf.dtype not in dtypes:
            self.add(
                f"must be {' or '.join(dtype.name for dtype in dtypes)} ({holds}), got {leaf.dtype.name}", path
            )
        else:
            return True
        return False

    def add(self, message: str, path: FieldPath | None = None, error_type: type[Exception] = ValueError) -> None:
        """Add a problem."""
        self.problems.append(FormatProblem(message, path, error_type=error_type))

    def add_missing(self, name: Name, group_of: str = "fields", error_type: type[Exception] = KeyError) -> None:
        """Add the problem that no field has a name."""
        fields = [format_path(path) for path in self.format.flat_paths]
        deeper = [path for path in self.format.flat_paths if name in path]
        if deeper:
            hint = f" One is in a group: give its path, [{deeper[0]!r}]."
        else:
            hint = did_you_mean(name, [part for path in self.format.flat_paths for part in path])
        missing = f"No occurrences of {group_of} found: no field has the name {name!r}."
        self.add(f"{missing}{hint} Fields: {listed(fields)}.", error_type=error_type)

    def add_beside(
        self,
        path: FieldPath,
        fields: Iterable[tuple[Name, types.DALIDataType, int | None]],
        what: str = "it",
        error_type: type[Exception] = ValueError,
    ) -> None:
        """Add fields to the group of a field, or the problem that they exist already.

        Args:
            path: Path of the field.
            fields: Name, type and number of axes of each.
            what: What is added, for the message.
            error_type: Class of the error for a field that exists.
        """
        parent = self._data_empty.get_item_in_path(path[:-1])
        for name, dtype, ndim in fields:
            if parent.has_child(name):
                self.add(f"exists already, so {what} cannot be added", (*path[:-1], name), error_type)
            else:
                parent.add_data_field(name, dtype, ndim=ndim)

    def check_rows_beside(self, path: FieldPath, names: Sequence[Name]) -> None:
        """Check that fields that can have a row for each row of a field, all but texts, are next to it."""
        for name in names:
            found = self.find_at((*path[:-1], name), f"a row for each of {path[-1]!r}")
            if found is not None and self.leaf(found).dtype == types.DALIDataType.STRING:
                self.add("must not be text", found)

    def raise_problems(self) -> None:
        """Raise a `FormatError` of all problems, if there are any."""
        if self.problems:
            raise format_error(self.problems, self._heading)

    def result(self) -> SampleDataGroup:
        """Return the format, with what was added, unless there are problems: they are raised together."""
        self.raise_problems()
        return self._data_empty


def put_beside(
    data: SampleDataGroup,
    path: FieldPath,
    name: Name,
    dtype: types.DALIDataType,
    value: Any,
    ndim: int | None = None,
) -> None:
    """Add a field with a value to the group of the field at ``path``."""
    parent = data.get_item_in_path(path[:-1])
    parent.add_data_field(name, dtype, ndim=ndim)
    parent[name] = value
