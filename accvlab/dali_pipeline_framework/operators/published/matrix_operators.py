# SPDX-License-Identifier: Apache-2.0
"""Operators that make matrices of vectors, and apply matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...errors import FieldValueError
from ...sample_data.graph_mode import do_not_convert
from ..field_types import exact_constant

_DT = types.DALIDataType


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
        matrix_is_inverted: Whether to apply the inverse; of the transposed matrix, if both are asked for.
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
    """Do the same as `apply_matrix`, for ``to_apply_to`` with two axes; matrices need not be square."""
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
    """``(m, n)`` of ``(m, k)`` and ``(k, n)``."""
    # An extent of 1 would be repeated. So where the two are of different lengths k, the graph fails.
    right = fn.reshape(right, shape=fn.cat(left.shape()[1:2], right.shape()[1:2], axis=0), layout="")
    products = fn.expand_dims(fn.reshape(left, layout=""), axes=[2]) * fn.expand_dims(right, axes=[0])
    product: DataNode = fn.reductions.sum(products, axes=[1])
    return product


def _inverse_of_array(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    try:
        inverse: np.ndarray[Any, Any] = np.linalg.inv(matrix)
    except np.linalg.LinAlgError as error:
        raise FieldValueError(f"cannot invert the matrix {matrix.tolist()}: {error}") from error
    return inverse


def _linear_or_homogeneous(matrix: DataNode, as_homogeneous: bool) -> DataNode:
    """``(4, 4)`` or ``(3, 3)`` of ``(3, 4)``."""
    matrix = fn.reshape(matrix, layout="")
    if not as_homogeneous:
        return matrix[:, 0:3]
    homogeneous: DataNode = fn.cat(matrix, np.array([[0, 0, 0, 1]], np.float32), axis=0)
    return homogeneous
