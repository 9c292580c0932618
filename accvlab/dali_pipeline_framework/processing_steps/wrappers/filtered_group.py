# SPDX-License-Identifier: Apache-2.0
"""Fields of one group whose elements belong together, and are filtered together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvidia.dali import types

from ...checks import did_you_mean
from ...operators.element_selection import ElementSelection, with_length_of
from ...operators.field_types import leaf_at
from ...sample_data import FieldPath, GroupFormat, SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name
from ..named_fields import FieldSearch


@do_not_convert
def filter_fields(group: SampleDataGroup, names: Sequence[Name], mask: Any) -> None:
    """Keep the elements along the first axis for which a mask ``(N,)`` is true, of several fields of a group."""
    for name in names:
        mask = with_length_of(mask, group[name])
    selection = ElementSelection.by_mask(mask)
    for name in names:
        group[name] = selection.of(group[name], leaf_at(group, name).dtype)


def check_fields(search: FieldSearch, data_empty: SampleDataGroup, path: FieldPath, names: Sequence[Name]) -> None:
    """Take note of fields that are missing beside the field at ``path``, or are no data fields."""
    group = data_empty.get_parent_of_path(path).format
    for name in names:
        child = group.get((name,))
        if child is None:
            meant = did_you_mean(name, group.names)
            search.add(f"does not exist beside {path[-1]!r}.{meant}".rstrip("."), (*path[:-1], name), KeyError)
        elif isinstance(child, GroupFormat):
            search.add("must be a data field, is a group", (*path[:-1], name))
        elif child.dtype == types.DALIDataType.STRING:
            search.add("must not be text", (*path[:-1], name))
