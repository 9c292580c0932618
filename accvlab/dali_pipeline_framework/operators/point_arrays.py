# SPDX-License-Identifier: Apache-2.0
"""Points and matrices of one sample, as arrays in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError

Float64Array = npt.NDArray[np.float64]


def coordinates(points: npt.NDArray[Any], count: int = 3) -> Float64Array:
    """The first columns of points ``(P, K)``: ``(P, count)``.

    Raises:
        FieldValueError: There are fewer columns.
    """
    if points.ndim != 2 or points.shape[1] < count:
        raise FieldValueError(f"Points must be (P, {count}) or have more columns, got the shape {points.shape}.")
    return np.asarray(points[:, :count], np.float64)


def affine(matrix: npt.NDArray[Any]) -> tuple[Float64Array, Float64Array]:
    """What a matrix ``(3, 4)`` or ``(4, 4)`` multiplies with, ``(3, 3)``, and adds, ``(3,)``.

    Raises:
        FieldValueError: It has another shape.
    """
    if matrix.shape not in ((3, 4), (4, 4)):
        raise FieldValueError(f"A matrix must be (3, 4) or (4, 4), got the shape {matrix.shape}.")
    whole = np.asarray(matrix, np.float64)
    return whole[:3, :3], whole[:3, 3]


def moved(matrix: npt.NDArray[Any], points: Float64Array) -> Float64Array:
    """Points ``(P, 3)`` times a matrix ``(3, 4)`` or ``(4, 4)``, without a division.

    Raises:
        FieldValueError: The matrix has another shape.
    """
    factor, offset = affine(matrix)
    return np.asarray(points @ factor.T + offset)
