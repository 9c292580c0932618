# SPDX-License-Identifier: Apache-2.0
"""Values of data fields: comparison, text, and nested dicts of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from nvidia.dali.data_node import DataNode

from .conversion import FieldValue, as_numpy, decoded, is_instance_of_loaded
from .formats import GroupFormat
from .names import FieldPath, Name


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
            if type(first) is not type(second):
                return False
            arrays = np.asarray(as_numpy(first)), np.asarray(as_numpy(second))
            # NumPy compares other kinds (text, objects) only without the NaN rule.
            has_nan = arrays[0].dtype.kind in "fcmM"
            return arrays[0].dtype == arrays[1].dtype and np.array_equal(*arrays, equal_nan=has_nan)
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
    """Decode the value of a STRING field; None and nodes of a graph stay as they are."""
    return value if value is None or isinstance(value, DataNode) else decoded(value, path)
