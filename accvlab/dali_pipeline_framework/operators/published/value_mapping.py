# SPDX-License-Identifier: Apache-2.0
"""Small helpers for users' own processing steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode

from ...errors import FieldValueError, error_that_is_also
from ...sample_data import FieldValue
from ...sample_data.mappings import unknown_label


def get_mapped(val: object, mapping: Mapping[Any, Any], encapsulate: bool = False) -> Any:
    """Replace labels by what they map to.

    Args:
        val: One label, or a list or tuple of labels of any depth.
        mapping: Label -> number. The key None holds the default for labels that are not listed.
        encapsulate: Whether the result for a single label is put into a list of one element.

    Returns:
        The number, or a list of the same nesting as ``val`` (tuples become lists).

    Raises:
        FieldValueError: Also a KeyError; a label is not listed and there is no default.
    """
    if isinstance(val, list | tuple):
        return [get_mapped(element, mapping) for element in val]
    if val in mapping:
        number = mapping[val]
    elif None in mapping:
        number = mapping[None]
    else:
        raise unknown_label(val, mapping)
    return [number] if encapsulate else number


def get_as_data_node(value: FieldValue) -> DataNode:
    """Return ``value`` as a node of the graph (to be called inside the graph).

    Args:
        value: A node, which is returned as it is, or a number, (nested) list or array of numbers.

    Returns:
        The node, or a CPU constant of the shape of ``value``: ``INT32`` for integers and booleans, ``FLOAT``
        for everything else.

    Raises:
        FieldValueError: If the value is not numeric, is empty, or has integers beyond the range of int32 (it
            is also an OverflowError then).
    """
    if isinstance(value, DataNode):
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise FieldValueError(f"cannot make a constant of {value!r}: {error}") from error
    if array.dtype.kind not in "biuf" or array.size == 0:
        raise FieldValueError(
            "a constant needs a number, or a list or array with at least one number, got "
            f"{value!r} of type {type(value).__name__}"
        )
    shape = list(array.shape)
    if array.dtype.kind == "f":
        return _constant(types.DALIDataType.FLOAT, shape, fdata=array.ravel().tolist())
    limits = np.iinfo(np.int32)
    if array.min() < limits.min or array.max() > limits.max:
        raise error_that_is_also(
            FieldValueError,
            (OverflowError,),
            f"integer constants are INT32 ({limits.min} … {limits.max}), got values {array.min()} … "
            f"{array.max()}. Use a float, or put the value into a field of the sample",
        )
    return _constant(types.DALIDataType.INT32, shape, idata=array.ravel().tolist())


def _constant(dtype: types.DALIDataType, shape: list[int], **data: list[float]) -> DataNode:
    node: DataNode = fn.constant(**data, shape=shape, dtype=dtype)  # type: ignore[attr-defined]
    return node
