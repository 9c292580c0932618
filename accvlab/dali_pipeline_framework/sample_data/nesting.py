# SPDX-License-Identifier: Apache-2.0
"""Flat values as nested dicts."""

from __future__ import annotations

from collections.abc import Iterable

from nvidia.dali.data_node import DataNode

from .conversion import FieldValue
from .formats import GroupFormat
from .names import FieldPath, Name
from .strings import decoded


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
