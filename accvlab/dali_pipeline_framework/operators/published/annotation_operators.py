# SPDX-License-Identifier: Apache-2.0
"""Operators of the graph on boxes, points and matrices, as published. They call NumPy, on the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import choice, whole_number
from ...engine.dali.graph_definition import python_operator
from ...errors import FieldValueError, SettingError
from ...sample_data.dtypes import get_numpy_type_for_dali_type
from ...sample_data.graph_mode import do_not_convert
from ..bbox_visibility import boxes_of_minimum_size, visible_boxes
from ..element_selection import selected
from ..functions import Array, failing_with
from ..point_limits import PointLimits

_DT = types.DALIDataType


@do_not_convert
def pad_to_size(input: DataNode, num_dims: int, data_type: types.DALIDataType, size: int) -> DataNode:
    """Cut the first axis to ``size`` elements, or add zeros at its end.

    Args:
        input: Tensor with at least one axis.
        num_dims: The number of its axes.
        data_type: Type of the input, any.
        size: How many elements there are afterwards.

    Returns:
        ``(size, ...)``; the other axes are as in the input.

    Raises:
        SettingError: There are no axes, or the size is negative.
    """
    whole_number(num_dims, "num_dims", at_least=1)
    size = whole_number(size, "size", at_least=0)

    def padded(values: Array) -> Array:
        zeros = np.zeros((max(size - len(values), 0), *values.shape[1:]), values.dtype)
        return np.concatenate([values[:size], zeros])

    return _on_arrays(padded, input)


@do_not_convert
def remove_inactive(
    data: DataNode, active_mask: DataNode, masked_dimension: int, num_dims: int, data_type: types.DALIDataType
) -> DataNode:
    """Keep the elements along an axis for which a mask is true, in order.

    Where mask and axis differ in length, the graph fails.

    Args:
        data: Tensor with at least one axis.
        active_mask: ``(N,)`` bool.
        masked_dimension: The axis, of length N; negative ones count from the last axis.
        num_dims: The number of axes.
        data_type: Type of the data, any.

    Raises:
        SettingError: There is no such axis.
    """
    if not -num_dims <= masked_dimension < num_dims:
        raise SettingError(
            "`masked_dimension` must be in [-n, n), where n is `num_dims`, got "
            f"{masked_dimension!r} and {num_dims!r}."
        )
    return _on_arrays(functools.partial(selected, axis=masked_dimension % num_dims), data, active_mask)


@do_not_convert
def ensure_range(
    data: DataNode, min_value: float, max_value: float, period: float, num_dims: int, data_type: types.DALIDataType
) -> DataNode:
    """Shift values by whole periods into ``[min_value, max_value]``, e.g. angles.

    Values below the range get the least number of periods added that brings them to ``min_value`` or above; values
    above the range get the least number subtracted that brings them to ``max_value`` or below. Values within the
    range stay, and so does NaN; infinite ones become NaN. Values are compared as float64: the
    float32 nearest to pi is greater than pi, so with ``max_value=math.pi`` it is shifted by a period.

    Args:
        data: Tensor of any shape.
        min_value: Least value.
        max_value: Greatest value.
        period: Above 0.
        num_dims: The number of axes; not needed any more.
        data_type: Type of the data, a floating-point type.

    Raises:
        SettingError: The type is not one of floating-point numbers, the period not above 0, or the range is empty.
    """
    del num_dims
    dtype = _checked_float_type(data_type)
    if not min_value <= max_value or not period > 0:
        raise SettingError(
            f"Needed is `min_value` <= `max_value` and `period` > 0, got {min_value!r}, {max_value!r}, {period!r}."
        )

    def shifted(values: Array) -> Array:
        values = values.astype(np.float64)
        # `fmax`: nothing is added to NaN.
        below, above = (np.fmax(each / period, 0) for each in (min_value - values, values - max_value))
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            return (values + (np.ceil(below) - np.ceil(above)) * period).astype(dtype)

    return _on_arrays(shifted, data)


@do_not_convert
def replace_nans(
    data: DataNode, replacement_value: float, num_dims: int, data_type: types.DALIDataType = _DT.FLOAT
) -> DataNode:
    """Replace NaN by a value; everything else stays as it is, bit by bit.

    Args:
        data: Tensor of any shape.
        replacement_value: The value.
        num_dims: The number of axes; not needed any more.
        data_type: Type of the data, a floating-point type.

    Raises:
        SettingError: The type is not one of floating-point numbers.
    """
    del num_dims
    value = np.array(replacement_value, _checked_float_type(data_type))
    return _on_arrays(lambda values: np.where(np.isnan(values), value, values), data)


def _checked_float_type(data_type: types.DALIDataType) -> np.dtype[Any]:
    """Get the NumPy type of a floating-point type."""
    real = choice(data_type, "data_type", (_DT.FLOAT16, _DT.FLOAT, _DT.FLOAT64))
    return np.dtype(get_numpy_type_for_dali_type(real))


@do_not_convert
def check_bbox_visibiity(
    bboxes: DataNode, depths: DataNode, image_hw: DataNode, shrink_bbox_to_obtain_int_coords: bool = False
) -> DataNode:
    """Find the boxes with a visible pixel, if all are painted one over the other, the nearest one last.

    Boxes are rounded to whole pixels and cut to the image. Among boxes of equal depth, the last one is the
    nearest. Boxes without a pixel are not visible.

    Args:
        bboxes: ``(N, 4)`` float32, two opposite corners ``x, y, x, y``, pixels.
        depths: ``(N,)`` float32.
        image_hw: ``(2,)`` int32, height and width.
        shrink_bbox_to_obtain_int_coords: Whether boxes are rounded inwards, not outwards.

    Returns:
        ``(N,)`` bool.
    """

    def visible(boxes: Array, depths: Array, image_hw: Array) -> Array:
        boxes = failing_with("boxes must be (N, 4)", np.reshape, boxes, (len(depths), 4))
        return visible_boxes(boxes, depths, image_hw.astype(boxes.dtype), bool(shrink_bbox_to_obtain_int_coords))

    return _on_arrays(visible, bboxes, depths, image_hw)


@do_not_convert
def check_minimum_bbox_size(bboxes: DataNode, min_size: float, image_hw: DataNode) -> DataNode:
    """Find the boxes that, cut to the image, have both sides of at least ``min_size`` pixels.

    Args:
        bboxes: ``(N, 4)`` float32, two opposite corners ``x, y, x, y``, pixels.
        min_size: The least size.
        image_hw: ``(2,)`` int32, height and width.

    Returns:
        ``(N,)`` bool.
    """
    return _on_arrays(
        lambda boxes, hw: boxes_of_minimum_size(boxes, hw.astype(boxes.dtype), min_size), bboxes, image_hw
    )


@do_not_convert
def check_points_in_box(points: DataNode, min_point: Sequence[float], max_point: Sequence[float]) -> DataNode:
    """Find the points that lie in a box or on its border; a point with NaN does not.

    Args:
        points: ``(N, D)`` float32.
        min_point: D numbers.
        max_point: D numbers, each at least that in ``min_point``.

    Returns:
        ``(N,)`` bool.

    Raises:
        SettingError: The corners are not two lists of numbers of one length, or a minimum is above its maximum.
    """
    return _on_arrays(PointLimits.checked(min_point, max_point).contain, points)


@do_not_convert
def crop_coordinates(
    points: DataNode, min_point_np: Sequence[float], max_point_np: Sequence[float], dtype: types.DALIDataType
) -> DataNode:
    """Clamp each column to a range; NaN stays.

    Args:
        points: ``(N, D)``.
        min_point_np: D numbers; for points of an integer type, their fractions are cut off.
        max_point_np: D numbers, each at least that in ``min_point_np``.
        dtype: Type of the points, any number type.

    Raises:
        SettingError: The limits are not two lists of numbers of one length, or a minimum is above its maximum.
    """
    return _on_arrays(PointLimits.checked(min_point_np, max_point_np).cropped, points)


@do_not_convert
def get_center_from_bboxes(bboxes: DataNode, dtype_in: types.DALIDataType = _DT.FLOAT) -> DataNode:
    """Get the centers of boxes: ``(N, 2)`` float32, x and y.

    Args:
        bboxes: ``(N, 4)``, two opposite corners ``x, y, x, y``.
        dtype_in: Type of ``bboxes``, any number type.
    """
    return _on_arrays(lambda boxes: _centers(_as_floats(boxes)).astype(np.float32), bboxes)


def _centers(boxes: Array) -> Array:
    return np.asarray((boxes[:, 0:2] + boxes[:, 2:4]) * boxes.dtype.type(0.5))


@do_not_convert
def get_radii_from_bboxes(
    bboxes: DataNode,
    dtype_bboxes: types.DALIDataType = _DT.FLOAT,
    scaling_factor: float = 0.8,
    centers: DataNode | None = None,
    dtype_center: types.DALIDataType = _DT.FLOAT,
) -> DataNode:
    """Get the distance from the centers to the nearest sides, times a factor: ``(N,)`` float32, pixels.

    It is 0 for centers outside of their boxes.

    Args:
        bboxes: ``(N, 4)``, two opposite corners ``x, y, x, y``.
        dtype_bboxes: Type of ``bboxes``, any number type.
        scaling_factor: The factor.
        centers: ``(N, 2)``, x and y; None for the middle of the boxes.
        dtype_center: Type of ``centers``, any number type.
    """

    def radii(boxes: Array, *centers: Array) -> Array:
        boxes = _as_floats(boxes)
        corner, opposite = boxes[:, 0:2], boxes[:, 2:4]
        center = _as_floats(centers[0]).reshape(corner.shape) if centers else _centers(boxes)
        distances = np.minimum(center - np.minimum(corner, opposite), np.maximum(corner, opposite) - center)
        return np.asarray(np.fmax(distances.min(axis=1), 0) * float(scaling_factor), np.float32)

    return _on_arrays(radii, bboxes, *([] if centers is None else [centers]))


def _as_floats(values: Array) -> Array:
    """Convert to float64 what float32 cannot hold exactly, else to float32."""
    return values.astype(np.float32 if np.can_cast(values.dtype, np.float32) else np.float64)


@do_not_convert
def get_rot_mat_from_rot_vector(rot_vector: DataNode, as_homog: bool = False, eps: float = 1e-7) -> DataNode:
    """Make the matrix of a right-handed rotation: the vector is the axis, its length the angle.

    Args:
        rot_vector: ``(3,)`` float32, its length in radians.
        as_homog: Whether to make a ``(4, 4)`` matrix.
        eps: A vector shorter than this gives the identity.

    Returns:
        ``(3, 3)`` or ``(4, 4)`` float32.
    """

    def rotated(vector: Array) -> Array:
        length_rad = float(np.linalg.norm(vector.reshape(3).astype(np.float64)))
        if not length_rad >= eps:
            return _linear_or_homogeneous(np.eye(3), as_homog)
        x, y, z = (vector.reshape(3) / length_rad).tolist()
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        # Rodrigues' formula.
        turned = np.eye(3) + math.sin(length_rad) * cross + (1 - math.cos(length_rad)) * (cross @ cross)
        return _linear_or_homogeneous(turned, as_homog)

    return _on_arrays(rotated, rot_vector)


@do_not_convert
def get_translation_mat_from_vector(translation: DataNode) -> DataNode:
    """Make the ``(4, 4)`` float32 matrix of a translation ``(3,)`` float32."""

    def shifted(offset: Array) -> Array:
        matrix = np.eye(4, dtype=np.float32)
        matrix[:3, 3] = offset.reshape(3)
        return matrix

    return _on_arrays(shifted, translation)


@do_not_convert
def get_scaling_mat_from_vector(scaling: DataNode, as_homog: bool = False) -> DataNode:
    """Make the matrix that scales by a factor along each axis.

    Args:
        scaling: ``(3,)`` float32.
        as_homog: Whether to make a ``(4, 4)`` matrix.

    Returns:
        ``(3, 3)`` or ``(4, 4)`` float32.
    """
    return _on_arrays(lambda factors: _linear_or_homogeneous(np.diag(factors.reshape(3)), as_homog), scaling)


@do_not_convert
def apply_matrix(
    to_apply_to: DataNode,
    matrix: DataNode,
    make_apply_to_homog: bool,
    to_apply_to_is_transposed: bool,
    matrix_is_transposed: bool,
    matrix_is_inverted: bool,
    multiply_matrix_from_right: bool,
) -> DataNode:
    """Multiply a matrix with vectors, or with another matrix.

    Args:
        to_apply_to: Vectors as columns, ``(k, N)`` float32; or one vector, ``(k,)``. N may be 0.
        matrix: ``(k, k)`` float32; with ``make_apply_to_homog``, ``(k + 1, k + 1)``.
        make_apply_to_homog: Whether vectors get a 1 at the end, and are divided by their last number afterwards.
        to_apply_to_is_transposed: Whether vectors are rows, ``(N, k)``.
        matrix_is_transposed: Whether to apply the transposed matrix.
        matrix_is_inverted: Whether to apply the inverse; of the transposed matrix, if both are requested.
        multiply_matrix_from_right: Whether the matrix is the second factor.

    Returns:
        The shape of ``to_apply_to``. Where matrix and vectors do not fit, or there is no inverse, the graph fails.
    """

    def applied(vectors: Array, matrix: Array) -> Array:
        # One vector, `(k,)`, becomes a row or a column.
        columns = np.atleast_2d(vectors).T if to_apply_to_is_transposed else vectors.reshape(len(vectors), -1)
        if make_apply_to_homog:
            columns = np.concatenate([columns, np.ones((1, columns.shape[1]), columns.dtype)])
        if matrix_is_transposed:
            matrix = matrix.T
        if matrix_is_inverted:
            try:
                matrix = np.linalg.inv(matrix)
            except np.linalg.LinAlgError as error:
                raise FieldValueError(f"Cannot invert the matrix {matrix.tolist()}: {error}") from error
        product = columns @ matrix if multiply_matrix_from_right else matrix @ columns
        if make_apply_to_homog:
            product = product[:-1] / product[-1:]
        product = product.T if to_apply_to_is_transposed else product
        return product.reshape(vectors.shape) if vectors.ndim == 1 else product

    return _on_arrays(applied, to_apply_to, matrix)


_apply_matrix_2d_input_ensured = apply_matrix  # a published name


def _linear_or_homogeneous(matrix: Array, as_homogeneous: bool) -> Array:
    """Get a matrix ``(3, 3)``, or with a last row and column of the identity, as float32."""
    result = np.eye(4 if as_homogeneous else 3, dtype=np.float32)
    result[:3, :3] = matrix
    return result


@do_not_convert
def _on_arrays(function: Callable[..., Array], *inputs: DataNode) -> DataNode:
    """Define an operator that calls a function for the arrays of each sample, on the CPU.

    Returns:
        What it returns, on the device of the first input.
    """

    def of_batch(*columns: Sequence[Array]) -> list[Array]:
        return [np.asarray(function(*row)) for row in zip(*columns, strict=True)]

    (made,) = python_operator(of_batch, [node.cpu() if node.device == "gpu" else node for node in inputs], [""])
    return made.gpu() if inputs[0].device == "gpu" else made
