# SPDX-License-Identifier: Apache-2.0
"""Helpers for functions of the graph, as published: checks of types, printing, mapped values."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode

from ...errors import FieldValueError, error_that_is_also
from ...sample_data import FieldValue
from ...sample_data.mappings import unknown_label


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


_RULE_WIDTH = 60


def print_tensor_op(tensor_list: DataNode, name: str) -> None:
    """Write all samples of each batch to the standard output whenever the graph runs.

    Args:
        tensor_list: Node to show, on the CPU or GPU.
        name: Name to show it under.
    """
    _add_writer(tensor_list, name, str)


def print_tensor_size_op(tensor_list: DataNode, name: str) -> None:
    """Write the shapes of all samples of each batch to the standard output whenever the graph runs.

    Args:
        tensor_list: Node whose shapes to show, on the CPU or GPU.
        name: Name to show it under.
    """
    _add_writer(tensor_list, name, _shape_text)


def _add_writer(node: DataNode, name: str, text_of: Callable[[np.ndarray[Any, Any]], str]) -> None:
    fn.python_function(
        node.cpu() if node.device == "gpu" else node,
        function=functools.partial(_write_batch, name, text_of),
        num_outputs=0,
        batch_processing=True,
    )


def _write_batch(
    name: str, text_of: Callable[[np.ndarray[Any, Any]], str], samples: Sequence[np.ndarray[Any, Any]]
) -> None:
    lines = [f" {name} ".center(_RULE_WIDTH, "-"), f"batch size: {len(samples)}"]
    lines += [f"{name}[{i}]: {text_of(sample)}" for i, sample in enumerate(samples)]
    lines.append("-" * _RULE_WIDTH)
    sys.stdout.write("\n".join(lines) + "\n")


def _shape_text(sample: np.ndarray[Any, Any]) -> str:
    return str(sample.shape)


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
