# SPDX-License-Identifier: Apache-2.0
"""A check of element types at run time, for debugging one's own graphs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.data_node import DataNode

from ...errors import FieldValueError


def check_type(input: DataNode, expected_type_np: type[np.generic], identifier: str) -> DataNode:
    """Add an operator to the graph that checks the element type of each sample when the graph runs.

    It calls Python for every sample, so it is for debugging.

    Args:
        input: Node to check, on the CPU or GPU.
        expected_type_np: NumPy type that the data must have.
        identifier: What to call the data in the message.

    Returns:
        A node with the same data, shape and layout. DALI leaves the check out if this node is not used.

    Raises:
        FieldValueError: If ``input`` is not a node. A wrong type is a ``RuntimeError`` when the pipeline
            runs; its message has both types and the identifier.
    """
    if not isinstance(input, DataNode):
        raise FieldValueError(f"check_type needs a DataNode for {identifier}, got {type(input).__name__}")
    expected = np.dtype(expected_type_np)
    shape = input.shape()
    probe = input
    if input.device == "gpu":
        # An empty part has the type too: nothing but the type crosses over to the host.
        probe = fn.slice(fn.reshape(input, shape=[-1]), 0, 0, axes=[0]).cpu()
    checked_shape = fn.python_function(
        probe, shape, function=functools.partial(_checked_shape, expected, identifier), num_outputs=1
    )
    return fn.reinterpret(input, shape=checked_shape)


def _checked_shape(
    expected: np.dtype[Any], identifier: str, data: np.ndarray[Any, Any], shape: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    if data.dtype != expected:
        raise FieldValueError(
            f"Expected type of {identifier}: {expected}; actual data type is: {data.dtype}. Cast the data "
            "with fn.cast, or change the type of the field"
        )
    # A copy: DALI owns the memory of its arguments.
    return np.array(shape, dtype=np.int64)
