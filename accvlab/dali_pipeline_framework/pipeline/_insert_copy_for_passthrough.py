# SPDX-License-Identifier: Apache-2.0
"""Copy selected output fields, so that they do not alias the buffers of the external source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import nvidia.dali.fn as fn

from ..errors import SettingError
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.names import Name, format_path, normalized_path

PathType: TypeAlias = Name | Sequence[Name]


class _InsertCopyForPassthrough:
    """Puts a copy operator after each of the selected data fields.

    DALI from 2.3 on does not recycle such buffers any more, so this is needed by nobody; it serves code
    that asks for it.
    """

    def __init__(
        self,
        data_empty: SampleDataGroup,
        field_names: Sequence[Name] | None = None,
        field_names_scope_paths: Sequence[PathType] | None = None,
        branch_paths: Sequence[PathType] | None = None,
        *,
        removed_names: Collection[Name] = (),
    ) -> None:
        """Select the fields; all of them when neither names nor branches are given.

        Args:
            data_empty: Format of the output.
            field_names: Names whose every occurrence is copied; of a group, all data fields below it.
            field_names_scope_paths: Groups to which the search for ``field_names`` is restricted.
            branch_paths: Data fields, or groups whose data fields are all copied.
            removed_names: Names of fields that steps have removed: there is nothing to copy of them.

        Raises:
            SettingError: A path or name does not exist, a scope is not a group, or scopes are given without names.
        """
        output_format = data_empty.format
        is_all = field_names is None and branch_paths is None
        selected = set(output_format.flat_paths) if is_all else set()
        if field_names_scope_paths is not None and not field_names:
            raise SettingError("`field_names_scope_paths` needs `field_names` that are searched there.")
        scopes = [()] if field_names_scope_paths is None else [*map(normalized_path, field_names_scope_paths)]
        for scope in scopes:
            if not data_empty.path_exists(scope):
                raise SettingError(f"The scope {format_path(scope)!r} does not exist.")
            if not data_empty.path_exists_and_is_data_group_field(scope):
                raise SettingError(f"The scope {format_path(scope)!r} is not a data group field.")
        for name in field_names or ():
            found = [
                (*scope, *path)
                for scope in scopes
                for path in data_empty.get_item_in_path(scope).find_all_occurrences(name)
            ]
            if not found and name not in removed_names:
                raise SettingError(f"The field name {name!r} does not exist in the given scope.")
            for path in found:
                selected |= _leaves_below(output_format.flat_paths, path)
        for branch in map(normalized_path, branch_paths or ()):
            if not data_empty.path_exists(branch):
                raise SettingError(f"The branch {format_path(branch)!r} does not exist.")
            selected |= _leaves_below(output_format.flat_paths, branch)
        self._paths_to_copy: tuple[FieldPath, ...] = tuple(sorted(selected, key=_numbers_before_names))

    def __call__(self, data: SampleDataGroup) -> SampleDataGroup:
        """Insert the copies while a graph is defined."""
        for path in self._paths_to_copy:
            data.set_item_in_path(path, fn.copy(data.get_item_in_path(path)))
        return data


def _leaves_below(leaves: Sequence[FieldPath], path: FieldPath) -> set[FieldPath]:
    return {leaf for leaf in leaves if leaf[: len(path)] == path}


def _numbers_before_names(path: FieldPath) -> list[tuple[int, int, str]]:
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in path]
