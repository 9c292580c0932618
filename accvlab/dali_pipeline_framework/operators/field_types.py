# SPDX-License-Identifier: Apache-2.0
"""Types of fields, and values of these types in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..errors import FieldKindError
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.dtypes import NUMPY_TYPES, get_dali_type_for_numpy_type, get_numpy_type_for_dali_type
from ..sample_data.graph_mode import do_not_convert
from ..sample_data.names import Path, format_path, normalized_path
from . import functions

NUMBER_TYPES: tuple[types.DALIDataType, ...] = tuple(
    dtype for dtype in NUMPY_TYPES if dtype != types.DALIDataType.BOOL
)


def leaf_at(data: SampleDataGroup, path: Path) -> LeafFormat:
    """Return the format of a data field.

    Raises:
        FieldKindError: It is a group.
    """
    leaf = data.format.at(normalized_path(path))
    if not isinstance(leaf, LeafFormat):
        raise FieldKindError(f"{format_path(normalized_path(path))}: is a group, a data field is needed")
    return leaf


def computable(values: Any, dtype: types.DALIDataType) -> Any:
    """Return float16 as float32, since DALI does not compute with it, and everything else as it is."""
    is_half = dtype == types.DALIDataType.FLOAT16
    return functions.cast(values, types.DALIDataType.FLOAT) if is_half else values


@do_not_convert
def reinterpret(values: Any, dtype: types.DALIDataType) -> Any:
    """Return the same bits as another type of the same size; a node, or an array."""
    if functions.is_node(values):
        return fn.reinterpret(values, dtype=dtype)
    return np.asarray(values).view(get_numpy_type_for_dali_type(dtype))[()]


@do_not_convert
def exact_constant_like(values: np.ndarray[Any, Any], like: Any) -> Any:
    """Return an array as it is, or as an exact constant on the device of a node."""
    return exact_constant(values, like.device) if functions.is_node(like) else values


@do_not_convert
def constant_like(values: np.ndarray[Any, Any], like: Any) -> Any:
    """Return an array as it is, or as a constant of its type on a node's device; by one operator if it can."""
    if functions.is_node(like) and values.dtype in (np.float32, np.int32):
        return types.Constant(values, device=like.device)
    return exact_constant_like(values, like)


@do_not_convert
def exact_constant(values: np.ndarray[Any, Any], device: str = "cpu") -> DataNode:
    """Make a constant of any number type; DALI's own constants are limited to what int32 and float32 can hold."""
    dtype = get_dali_type_for_numpy_type(values.dtype)
    as_bytes = np.frombuffer(values.tobytes(), np.uint8)
    node: DataNode = fn.reinterpret(types.Constant(as_bytes, device=device), dtype=dtype, shape=list(values.shape))
    return node
