# SPDX-License-Identifier: Apache-2.0
"""Helpers for functions of the graph, as published: checks of types, printing, mapped values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...errors import FieldValueError, error_that_is_also
from ...sample_data import FieldValue
from ...sample_data.conversion import is_instance_of_loaded, unknown_label
from ...sample_data.graph_mode import do_not_convert
from ..functions import Array


@do_not_convert
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

    def checked_shape(data: Array, shape: Array) -> Array:
        if data.dtype != expected:
            raise FieldValueError(
                f"Expected type of {identifier}: {expected}; actual data type is: {data.dtype}. Cast the data "
                "with fn.cast, or change the type of the field"
            )
        return np.array(shape, dtype=np.int64)  # a copy: DALI owns the memory of its arguments

    # An empty part has the type too: of a node on a GPU, nothing but the type crosses over to the host.
    is_on_gpu = input.device == "gpu"
    probe = fn.slice(fn.reshape(input, shape=[-1]), 0, 0, axes=[0]).cpu() if is_on_gpu else input
    shape = fn.python_function(probe, input.shape(), function=checked_shape, num_outputs=1)
    return fn.reinterpret(input, shape=shape)


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
    _add_writer(tensor_list, name, lambda sample: str(sample.shape))


@do_not_convert
def _add_writer(node: DataNode, name: str, text_of: Callable[[Array], str]) -> None:
    def write_batch(samples: Sequence[Array]) -> None:
        lines = [f" {name} ".center(_RULE_WIDTH, "-"), f"batch size: {len(samples)}"]
        lines += [f"{name}[{i}]: {text_of(sample)}" for i, sample in enumerate(samples)]
        lines.append("-" * _RULE_WIDTH)
        sys.stdout.write("\n".join(lines) + "\n")

    on_cpu = node.cpu() if node.device == "gpu" else node
    fn.python_function(on_cpu, function=write_batch, num_outputs=0, batch_processing=True)


def get_mapped(val: object, mapping: Mapping[Any, Any], encapsulate: bool = False) -> Any:
    """Replace labels by the numbers of a mapping.

    Args:
        val: One label, or a list or tuple of labels of any depth.
        mapping: Label -> number. The key None holds the default for labels that are not listed.
        encapsulate: Whether the result for a single label is put into a list of one element.

    Returns:
        The number, or a list of the same nesting as ``val`` (tuples become lists).

    Raises:
        FieldValueError: A label is not listed and there is no default; the error is also a KeyError.
    """
    if isinstance(val, list | tuple):
        return [get_mapped(element, mapping) for element in val]
    key = val if val in mapping else None
    if key not in mapping:
        raise unknown_label(val, mapping)
    return [mapping[key]] if encapsulate else mapping[key]


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
    limits, is_real = np.iinfo(np.int32), array.dtype.kind == "f"
    if not is_real and (array.min() < limits.min or array.max() > limits.max):
        raise error_that_is_also(
            FieldValueError,
            (OverflowError,),
            f"integer constants are INT32 ({limits.min} … {limits.max}), got values {array.min()} … "
            f"{array.max()}. Use a float, or put the value into a field of the sample",
        )
    node: DataNode = types.Constant(array.astype(np.float32 if is_real else np.int32), device="cpu")
    return node


def apply_transform_to_points(points: Array, transform: Array) -> Array:
    """Apply an affine transformation to points.

    Args:
        points: ``(N, 2k)`` of any number type: x and y of k points in each row, e.g. the corners of a box.
        transform: ``(2, 3)``.

    Returns:
        An array of the shape and type of ``points``; for an integer type, fractions are cut off. Empty for empty
        ``points``.

    Raises:
        FieldValueError: The arrays have other shapes.

    Example:
        >>> apply_transform_to_points(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[2, 0, 10], [0, 2, 0]])).tolist()
        [[12.0, 4.0, 16.0, 8.0]]
    """
    library = _library_of(points, transform)
    if transform.shape != (2, 3):
        raise FieldValueError(f"`transform` must be (2, 3), got {transform.shape}")
    if points.size == 0:
        result: Array = library.zeros_like(points)
        return result
    if points.ndim != 2 or points.shape[1] % 2:
        raise FieldValueError(
            f"`points` must have x and y of one or more points in each row, (N, 2k), got {points.shape}"
        )
    pairs = points.reshape(len(points), -1, 2).astype(_float_type(points, transform))
    with np.errstate(invalid="ignore"):  # points that are not finite
        moved = pairs @ transform[:, :2].T + transform[:, 2]
    result = moved.reshape(points.shape).astype(points.dtype)
    return result


def add_post_transform_to_projection_matrix(proj_mat: Array, transform: Array) -> Array:
    """Get the projection matrix for an image that was transformed.

    Args:
        proj_mat: ``(3, k)``, e.g. intrinsics (3, 3), or (3, 4).
        transform: Transformation of the image, ``(2, 3)``, or ``(3, 3)`` with a last row for homogeneous
            coordinates.

    Returns:
        ``(3, k)``, the product of the ``(3, 3)`` transformation and the matrix; its type is the more precise one.

    Raises:
        FieldValueError: The arrays have other shapes.
    """
    library = _library_of(proj_mat, transform)
    if transform.shape not in ((2, 3), (3, 3)):
        raise FieldValueError(f"`transform` must be (2, 3) or (3, 3), got {transform.shape}")
    if proj_mat.ndim != 2 or len(proj_mat) != 3:
        raise FieldValueError(f"`proj_mat` must be (3, k), got {proj_mat.shape}")
    dtype = _float_type(proj_mat, transform)
    rows = [transform.astype(dtype)]
    if len(transform) == 2:
        rows.append(library.asarray([[0, 0, 1]], dtype=dtype))
    product: Array = library.concatenate(rows) @ proj_mat.astype(dtype)
    return product


def apply_clipping_and_get_with_clipping_info(
    rects: Array, centers: Array, scaling_trafo: Array, image_hw: Array
) -> tuple[Array, Array, Array, Array]:
    """Transform boxes and centers into an image, and clip them to its pixels.

    Args:
        rects: ``(N, 4)`` of a floating-point type, two opposite corners ``x, y, x, y``.
        centers: ``(N, 2)``, ``x, y``.
        scaling_trafo: ``(2, 3)``, a transformation to pixels of the image, without rotation and shear.
        image_hw: ``(2,)``, height and width of the image.

    Returns:
        Boxes ``(N, 4)`` and centers ``(N, 2)``, clipped to ``[0, width - 1]`` and
        ``[0, height - 1]``; height and width of the clipped boxes, ``(N, 2)``; and the fraction of the area of
        each box that is inside of the image, ``(N,)``, NaN for boxes without an area. For this fraction, the
        image reaches from 0 to width and height. The centers have the type of ``centers``, the others that of
        ``rects``.

    Raises:
        FieldValueError: The arrays have other shapes.
    """
    library = _library_of(rects, centers)
    _check_shape(rects, "rects", (None, 4))
    _check_shape(centers, "centers", (len(rects), 2))
    boxes = apply_transform_to_points(rects, scaling_trafo)
    size_xy = library.asarray(image_hw).reshape(2)[::-1]
    size, size_of_centers = size_xy.astype(boxes.dtype), size_xy.astype(centers.dtype)
    clipped = library.clip(boxes.reshape(-1, 2, 2), 0, size - 1)
    clipped_centers = library.clip(apply_transform_to_points(centers, scaling_trafo), 0, size_of_centers - 1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # boxes that are not finite, or empty
        sides_xy = abs(clipped[:, 1] - clipped[:, 0])
        inside = library.clip(boxes.reshape(-1, 2, 2), 0, size)
        area = abs(boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        fraction = abs(inside[:, 1] - inside[:, 0]).prod(axis=1) / area
    return clipped.reshape(-1, 4), clipped_centers, sides_xy[:, ::-1], fraction


def get_is_active(
    hw: Array,
    classes: Array | None,
    fraction_areas: Array,
    min_object_size: Array | None,
    per_class_min_object_sizes: Array | None,
    num_classes: int | None,
    min_fraction_area_thresh: float,
) -> Array:
    """Find the objects that a detector learns: objects of a known class, large enough and inside of the image.

    Args:
        hw: ``(N, 2)``, height and width of the clipped boxes.
        classes: ``(N,)`` integers, or None. Objects of other classes than ``0 ... num_classes - 1`` are inactive.
        fraction_areas: ``(N,)``, the fraction of the area of each box inside of the image; NaN is inactive.
        min_object_size: ``(2,)``, least height and width of an active object, or None.
        per_class_min_object_sizes: ``(num_classes, 2)``, least height and width for each class separately, or
            None.
        num_classes: How many classes there are; needed with ``classes``.
        min_fraction_area_thresh: Least fraction.

    Returns:
        ``(N,)`` bool.

    Raises:
        FieldValueError: The arrays have other shapes, or one of ``classes`` and ``num_classes`` is missing where
            it is needed.
    """
    library = _library_of(hw, fraction_areas)
    _check_shape(hw, "hw", (None, 2))
    _check_shape(fraction_areas, "fraction_areas", (len(hw),))
    is_active: Array = fraction_areas >= min_fraction_area_thresh
    if min_object_size is not None:
        least_hw = library.asarray(min_object_size)
        _check_shape(least_hw, "min_object_size", (2,))
        is_active &= (hw >= least_hw).all(axis=1)
    if classes is None:
        if per_class_min_object_sizes is not None:
            raise FieldValueError("`per_class_min_object_sizes` needs `classes`")
        return is_active
    if num_classes is None:
        raise FieldValueError("`classes` needs `num_classes`")
    _check_shape(classes, "classes", (len(hw),))
    is_active &= (classes >= 0) & (classes < num_classes)
    if per_class_min_object_sizes is not None:
        table = library.asarray(per_class_min_object_sizes)
        _check_shape(table, "per_class_min_object_sizes", (num_classes, 2))
        is_active &= (hw >= table[library.clip(classes, 0, num_classes - 1)]).all(axis=1)
    return is_active


def pad_to_common_size(*inputs: Array, fill_value: float) -> tuple[Array, ...]:
    """Pad arrays at the end of each axis to the greatest extent among them.

    Args:
        *inputs: NumPy arrays with the same number of axes.
        fill_value: Value to pad with; converted to the type of each array.

    Returns:
        Arrays of one shape, each of the type that it had.

    Raises:
        FieldValueError: The arrays have different numbers of axes.

    Example:
        >>> pad_to_common_size(np.array([[1, 2]]), np.array([[3], [4]]), fill_value=0)[1].tolist()
        [[3, 0], [4, 0]]
    """
    if len({array.ndim for array in inputs}) > 1:
        shapes = ", ".join(str(array.shape) for array in inputs)
        raise FieldValueError(f"arrays to pad must have the same number of axes, got {shapes}")
    shape = np.max([array.shape for array in inputs], axis=0, initial=0).astype(int)
    padded = []
    for array in inputs:
        result = np.full(tuple(shape), fill_value).astype(array.dtype)
        result[tuple(slice(extent) for extent in array.shape)] = array
        padded.append(result)
    return tuple(padded)


def _library_of(*arrays: object) -> Any:
    """Get CuPy for its arrays, otherwise NumPy."""
    is_cupy = any(is_instance_of_loaded(array, "cupy", "ndarray") for array in arrays)
    return sys.modules["cupy"] if is_cupy else np


def _float_type(*arrays: Array) -> np.dtype[Any]:
    dtype = np.result_type(*(array.dtype for array in arrays))
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _check_shape(array: Array, argument: str, shape: tuple[int | None, ...]) -> None:
    if array.ndim != len(shape) or any(
        extent not in (None, found) for extent, found in zip(shape, array.shape, strict=True)
    ):
        expected = ", ".join("N" if extent is None else str(extent) for extent in shape)
        raise FieldValueError(f"`{argument}` must be of shape ({expected}), got {array.shape}")
