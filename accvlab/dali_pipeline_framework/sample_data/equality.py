# SPDX-License-Identifier: Apache-2.0
"""Equality of field values, for ``==`` between sample data groups."""

from __future__ import annotations

import numpy as np
from nvidia.dali.data_node import DataNode

from .conversion import FieldValue, as_numpy, is_instance_of_loaded


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
