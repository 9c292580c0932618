# SPDX-License-Identifier: Apache-2.0
"""Operators of the graph on boxes, points and matrices, as published."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...errors import FieldValueError, SettingError
from ...sample_data.dtypes import get_numpy_type_for_dali_type
from ...sample_data.graph_mode import do_not_convert
from ..bbox_visibility import boxes_of_minimum_size, visible_boxes
from ..element_selection import ElementSelection, computable, exact_constant, with_length_of
from ..functions import Array
from ..point_limits import PointLimits

_DT = types.DALIDataType
_INTEGERS_OF_SIZE = {2: _DT.INT16, 4: _DT.INT32, 8: _DT.INT64}


@do_not_convert
def pad_to_size(input: DataNode, num_dims: int, data_type: types.DALIDataType, size: int) -> DataNode:
    """Cut the first axis to ``size`` elements, or add zeros at its end.

    Args:
        input: Tensor with at least one axis.
        num_dims: The number of its axes.
        data_type: Its type, any.
        size: How many elements there are afterwards.

    Returns:
        ``(size, ...)``; the other axes are as in the input.

    Raises:
        SettingError: There are no axes, or the size is negative.
    """
    if num_dims <= 0:
        raise SettingError(f"`num_dims` must be at least 1, got {num_dims!r}.")
    if size < 0:
        raise SettingError(f"`size` must be at least 0, got {size!r}.")
    is_bool = data_type == _DT.BOOL  # which `fn.slice` refuses
    values = fn.reinterpret(input, dtype=_DT.UINT8) if is_bool else input
    padded: DataNode = fn.slice(values, start=[0], end=[size], axes=[0], out_of_bounds_policy="pad")
    return fn.reinterpret(padded, dtype=_DT.BOOL) if is_bool else padded


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
    axis = masked_dimension % num_dims
    selection = ElementSelection.by_mask(with_length_of(active_mask, data, axis))
    kept: DataNode = selection.of(data, data_type, axis, num_dims)
    return kept


@do_not_convert
def ensure_range(
    data: DataNode, min_value: float, max_value: float, period: float, num_dims: int, data_type: types.DALIDataType
) -> DataNode:
    """Shift values by whole periods into ``[min_value, max_value]``, e.g. angles.

    Values below the range get the least number of periods added that brings them to ``min_value`` or above; values
    above it the least number taken off that brings them to ``max_value`` or below. Values within the range stay,
    and so does NaN; infinite ones become NaN. Compared as float64: the float32 next to pi is above pi.

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
    _checked_float_size(data_type)
    if not min_value <= max_value or not period > 0:
        raise SettingError(
            f"Needed is `min_value` <= `max_value` and `period` > 0, got {min_value!r}, {max_value!r}, {period!r}."
        )
    values = fn.cast(data, dtype=_DT.FLOAT64)
    least, greatest, step = (_double(value, data.device) for value in (min_value, max_value, period))
    zero = _double(0.0, data.device)
    # Of NaN and another number, `max` returns the second one: nothing is added to NaN.
    below = dali_math.max((least - values) / step, zero)
    above = dali_math.max((values - greatest) / step, zero)
    return fn.cast(values + (dali_math.ceil(below) - dali_math.ceil(above)) * step, dtype=data_type)


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
    bits_type = _INTEGERS_OF_SIZE[_checked_float_size(data_type)]
    values: DataNode = computable(data, data_type)
    is_nan = fn.cast(values != values, dtype=bits_type)
    replacement = np.array(replacement_value, get_numpy_type_for_dali_type(data_type))
    replacement_bits = fn.reinterpret(exact_constant(replacement, data.device), dtype=bits_type)
    # Products of bits, since NaN times 0 is NaN.
    bits = fn.reinterpret(data, dtype=bits_type) * (1 - is_nan) + replacement_bits * is_nan
    replaced: DataNode = fn.reinterpret(fn.cast(bits, dtype=bits_type), dtype=data_type)
    return replaced


def _checked_float_size(data_type: types.DALIDataType) -> int:
    """Get the number of bytes of a floating-point type."""
    if data_type not in (_DT.FLOAT16, _DT.FLOAT, _DT.FLOAT64):
        raise SettingError(f"`data_type` must be FLOAT16, FLOAT or FLOAT64, got {data_type!r}.")
    return np.dtype(get_numpy_type_for_dali_type(data_type)).itemsize


def _double(value: float, device: str) -> DataNode:
    return exact_constant(np.array(value, np.float64), device)


@do_not_convert
def check_bbox_visibiity(
    bboxes: DataNode, depths: DataNode, image_hw: DataNode, shrink_bbox_to_obtain_int_coords: bool = False
) -> DataNode:
    """Find the boxes of which a pixel is left when they are painted from the farthest to the nearest.

    Boxes are rounded to whole pixels and cut to the image. Of boxes of equal depth, the last one is the nearest.
    Boxes without a pixel are not visible.

    Args:
        bboxes: ``(N, 4)`` float32.
        depths: ``(N,)`` float32.
        image_hw: ``(2,)`` int32, height and width.
        shrink_bbox_to_obtain_int_coords: Whether boxes are rounded inwards, not outwards.

    Returns:
        ``(N,)`` bool.
    """
    size = fn.cast(image_hw, dtype=_DT.FLOAT)
    is_visible: DataNode = visible_boxes(bboxes, depths, _DT.FLOAT, size, bool(shrink_bbox_to_obtain_int_coords))
    return is_visible


@do_not_convert
def check_minimum_bbox_size(bboxes: DataNode, min_size: float, image_hw: DataNode) -> DataNode:
    """Find the boxes that, cut to the image, have both sides of at least ``min_size`` pixels.

    Args:
        bboxes: ``(N, 4)`` float32.
        min_size: The least size.
        image_hw: ``(2,)`` int32, height and width.

    Returns:
        ``(N,)`` bool.
    """
    size = fn.cast(image_hw, dtype=_DT.FLOAT)
    is_large: DataNode = boxes_of_minimum_size(bboxes, bboxes.shape()[0:1], size, min_size)
    return is_large


@do_not_convert
def check_points_in_box(points: DataNode, min_point: Sequence[float], max_point: Sequence[float]) -> DataNode:
    """Find the points that lie in a box; its border belongs to it, NaN does not.

    Args:
        points: ``(N, D)`` float32.
        min_point: D numbers.
        max_point: D numbers, each at least the one of ``min_point``.

    Returns:
        ``(N,)`` bool.

    Raises:
        SettingError: The corners are not two lists of numbers of one length, or a minimum is above its maximum.
    """
    is_inside: DataNode = PointLimits.checked(min_point, max_point).contain(points, _DT.FLOAT)
    return is_inside


@do_not_convert
def crop_coordinates(
    points: DataNode, min_point_np: Sequence[float], max_point_np: Sequence[float], dtype: types.DALIDataType
) -> DataNode:
    """Clamp each column to a range; NaN stays.

    Args:
        points: ``(N, D)``.
        min_point_np: D numbers; fractions are cut off for integers.
        max_point_np: D numbers, each at least the one of ``min_point_np``.
        dtype: Type of the points, any number type.

    Raises:
        SettingError: The limits are not two lists of numbers of one length, or a minimum is above its maximum.
    """
    low, high = PointLimits.checked(min_point_np, max_point_np).nodes(points, dtype, inner=False)
    return fn.cast(dali_math.clamp(computable(points, dtype), low, high), dtype=dtype)


@do_not_convert
def get_center_from_bboxes(bboxes: DataNode, dtype_in: types.DALIDataType = _DT.FLOAT) -> DataNode:
    """Get the centers of boxes: ``(N, 2)`` float32, x and y.

    Args:
        bboxes: ``(N, 4)``.
        dtype_in: Its type, any number type.
    """
    boxes = _as_floats(bboxes, dtype_in)
    return fn.cast((boxes[:, 0:2] + boxes[:, 2:4]) * 0.5, dtype=_DT.FLOAT)


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
        bboxes: ``(N, 4)``.
        dtype_bboxes: Its type, any number type.
        scaling_factor: The factor.
        centers: ``(N, 2)``, x and y; None for the middle of the boxes.
        dtype_center: Its type, any number type.
    """
    boxes = _as_floats(bboxes, dtype_bboxes)
    corner, opposite = boxes[:, 0:2], boxes[:, 2:4]
    if centers is None:
        center = (corner + opposite) * 0.5
    else:  # one center alone would be taken for all boxes
        center = fn.reshape(_as_floats(centers, dtype_center), shape=corner.shape(), layout="")
    distances = dali_math.min(
        center - dali_math.min(corner, opposite), dali_math.max(corner, opposite) - center
    )  # (N, 2)
    nearest = dali_math.min(distances[:, 0], distances[:, 1])
    return fn.cast(dali_math.max(nearest, 0.0) * float(scaling_factor), dtype=_DT.FLOAT)


def _as_floats(values: DataNode, dtype: types.DALIDataType) -> DataNode:
    """Convert to float64 what float32 cannot hold exactly, else to float32."""
    if dtype == _DT.FLOAT:
        return values
    is_small = dtype in (_DT.FLOAT16, _DT.INT8, _DT.UINT8, _DT.INT16, _DT.UINT16)
    return fn.cast(values, dtype=_DT.FLOAT if is_small else _DT.FLOAT64)


@do_not_convert
def get_rot_mat_from_rot_vector(rot_vector: DataNode, as_homog: bool = False, eps: float = 1e-7) -> DataNode:
    """Make the matrix of a rotation about a vector by its length, right-handed.

    Args:
        rot_vector: ``(3,)`` float32, its length in radians.
        as_homog: Whether to make a ``(4, 4)`` matrix.
        eps: Vectors that are shorter make the identity.

    Returns:
        ``(3, 3)`` or ``(4, 4)`` float32.
    """
    vector = fn.reshape(rot_vector, shape=[3], layout="")
    length_rad = dali_math.sqrt(fn.reductions.sum(vector * vector))
    is_turned = fn.cast(length_rad >= float(eps), dtype=_DT.FLOAT)
    # DALI refuses an axis without a length.
    axis = vector * is_turned + (1.0 - is_turned) * np.array([0, 0, 1], np.float32)
    angle_degrees = length_rad * is_turned * np.float32(180 / math.pi)
    return _linear_or_homogeneous(fn.transforms.rotation(angle=angle_degrees, axis=axis), as_homog)


@do_not_convert
def get_translation_mat_from_vector(translation: DataNode) -> DataNode:
    """Make the ``(4, 4)`` float32 matrix of a translation ``(3,)`` float32."""
    offset = fn.reshape(translation, shape=[3], layout="")
    return _linear_or_homogeneous(fn.transforms.translation(offset=offset), as_homogeneous=True)


@do_not_convert
def get_scaling_mat_from_vector(scaling: DataNode, as_homog: bool = False) -> DataNode:
    """Make the matrix of factors along the axes.

    Args:
        scaling: ``(3,)`` float32.
        as_homog: Whether to make a ``(4, 4)`` matrix.

    Returns:
        ``(3, 3)`` or ``(4, 4)`` float32.
    """
    factors = fn.reshape(scaling, shape=[3], layout="")
    return _linear_or_homogeneous(fn.transforms.scale(scale=factors), as_homog)


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

    Inverses are computed by NumPy, one sample after the other; everything else by operators of DALI.

    Args:
        to_apply_to: Vectors as columns, ``(k, N)`` float32; or one vector, ``(k,)``. N may be 0.
        matrix: ``(k, k)`` float32, with homogeneous vectors ``(k + 1, k + 1)``.
        make_apply_to_homog: Whether vectors get a 1 at the end, and are divided by their last number afterwards.
        to_apply_to_is_transposed: Whether vectors are rows, ``(N, k)``.
        matrix_is_transposed: Whether to apply the transposed matrix.
        matrix_is_inverted: Whether to apply the inverse; of the transposed matrix, if both are requested.
        multiply_matrix_from_right: Whether the matrix is the second factor.

    Returns:
        The shape of ``to_apply_to``. Where matrix and vectors do not fit, or there is no inverse, the graph fails.
    """
    minus_one = exact_constant(np.array([-1], np.int64))
    shape = to_apply_to.shape()
    # Neither changes a matrix. One vector, `(k,)`, becomes a row or a column.
    shape_2d = (
        fn.cat(minus_one, shape[-1:], axis=0)
        if to_apply_to_is_transposed
        else fn.cat(shape[0:1], minus_one, axis=0)
    )
    product = _apply_matrix_2d_input_ensured(
        fn.reshape(to_apply_to, shape=shape_2d, layout=""),
        matrix,
        make_apply_to_homog,
        to_apply_to_is_transposed,
        matrix_is_transposed,
        matrix_is_inverted,
        multiply_matrix_from_right,
    )
    return fn.reshape(product, shape=shape)


@do_not_convert
def _apply_matrix_2d_input_ensured(
    to_apply_to: DataNode,
    matrix: DataNode,
    make_apply_to_homog: bool,
    to_apply_to_is_transposed: bool,
    matrix_is_transposed: bool,
    matrix_is_inverted: bool,
    multiply_matrix_from_right: bool,
) -> DataNode:
    """Apply a matrix as `apply_matrix`, for ``to_apply_to`` with two axes; matrices need not be square."""
    columns = fn.transpose(to_apply_to) if to_apply_to_is_transposed else to_apply_to
    if make_apply_to_homog:
        num_rows = fn.cast(columns.shape()[0:1], dtype=_DT.INT32)
        columns = fn.slice(
            columns, start=[0], end=num_rows + 1, axes=[0], out_of_bounds_policy="pad", fill_values=[1.0]
        )
    if matrix_is_transposed:
        matrix = fn.transpose(matrix)
    if matrix_is_inverted:
        # DALI has no operator for it.
        matrix = fn.python_function(matrix, function=_inverse_of_array, num_outputs=1)  # type: ignore[assignment]
    product = _product(columns, matrix) if multiply_matrix_from_right else _product(matrix, columns)
    if make_apply_to_homog:
        product = product[:-1] / product[-1:]
    return fn.transpose(product) if to_apply_to_is_transposed else product


def _product(left: DataNode, right: DataNode) -> DataNode:
    """Multiply ``(m, k)`` and ``(k, n)``."""
    # An extent of 1 would be repeated. So where the two are of different lengths k, the graph fails.
    right = fn.reshape(right, shape=fn.cat(left.shape()[1:2], right.shape()[1:2], axis=0), layout="")
    products = fn.expand_dims(fn.reshape(left, layout=""), axes=[2]) * fn.expand_dims(right, axes=[0])
    product: DataNode = fn.reductions.sum(products, axes=[1])
    return product


def _inverse_of_array(matrix: Array) -> Array:
    try:
        inverse: Array = np.linalg.inv(matrix)
    except np.linalg.LinAlgError as error:
        raise FieldValueError(f"cannot invert the matrix {matrix.tolist()}: {error}") from error
    return inverse


def _linear_or_homogeneous(matrix: DataNode, as_homogeneous: bool) -> DataNode:
    """Convert ``(3, 4)`` to ``(4, 4)`` or ``(3, 3)``."""
    matrix = fn.reshape(matrix, layout="")
    if not as_homogeneous:
        return matrix[:, 0:3]
    homogeneous: DataNode = fn.cat(matrix, np.array([[0, 0, 0, 1]], np.float32), axis=0)
    return homogeneous
