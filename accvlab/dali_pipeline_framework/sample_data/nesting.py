# SPDX-License-Identifier: Apache-2.0
"""Flat values as nested dicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nvidia.dali.data_node import DataNode

from .conversion import FieldValue
from .formats import GroupFormat
from .names import FieldPath, Name
from .strings import decoded


def nested_dictionary(sample_format: GroupFormat, values: Sequence[FieldValue]) -> dict[Name, FieldValue]:
    """Arrange values in flat order as nested plain dicts, like `SampleDataGroup.to_dictionary`.

    Args:
        sample_format: Names and types.
        values: As many values as the format has data fields.
    """
    return _nested_dictionary(sample_format, iter(values), ())


def _nested_dictionary(
    group: GroupFormat, values: Iterator[FieldValue], prefix: FieldPath
) -> dict[Name, FieldValue]:
    result: dict[Name, FieldValue] = {}
    for name, child in zip(group.names, group.children, strict=True):
        if isinstance(child, GroupFormat):
            result[name] = _nested_dictionary(child, values, (*prefix, name))
        elif child.is_string:
            result[name] = read_text(next(values), (*prefix, name))
        else:
            result[name] = next(values)
    return result


def read_text(value: FieldValue, path: FieldPath) -> FieldValue:
    """Return the value of a STRING field as text; None and nodes of a graph as they are."""
    return value if value is None or isinstance(value, DataNode) else decoded(value, path)
