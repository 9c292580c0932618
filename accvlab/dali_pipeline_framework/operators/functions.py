# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of small arrays with the conventions of DALI: conversions, limits, affine transformations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..errors import FieldValueError
from ..sample_data import FieldValue
from ..sample_data.dtypes import get_numpy_type_for_dali_type

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = FieldValue
"""An array, or a NumPy number."""

_float32 = np.float32
_WHOLE_AND_SMALL = _float32(1 << 24)


def failing_with(rule: str, compute: Callable[..., Value], /, *arguments: Value, **settings: Value) -> Value:
    """Compute something that fails where data break a rule; name the rule in the error.

    Raises:
        FieldValueError: The call fails.
    """
    try:
        return compute(*arguments, **settings)
    except (ValueError, IndexError) as error:
        raise FieldValueError(f"{rule[0].upper()}{rule[1:]}. ({error})") from error


# --- types ----------------------------------------------------------------------------------------------


def cast(values: Value, dtype: types.DALIDataType) -> Value:
    """Convert to another type as DALI does: rounded to the nearest, halves away from 0, and limited to its range.

    Bool is whether the absolute value is at least a half, and true for NaN.
    """
    return cast_array(values, get_numpy_type_for_dali_type(dtype))


@np.errstate(over="ignore", invalid="ignore")  # of infinity and NaN
def cast_array(values: Value, dtype: npt.DTypeLike) -> Value:
    """Convert to another type, given as NumPy's, as `cast` does."""
    values, target = np.asarray(values), np.dtype(dtype)
    if values.dtype == target or values.dtype.kind == "b":
        return values.astype(target, copy=False)[()]
    if target.kind == "f":
        return values.astype(target)[()]
    is_real = values.dtype.kind == "f"
    if target.kind == "b":
        return (~(np.abs(values) < 0.5) if is_real else values != 0)[()]  # true of NaN
    return (_rounded(values, target) if is_real else _limited(values, target))[()]


def _rounded(values: Array, target: np.dtype[Any]) -> Value:
    limits = np.iinfo(target)
    whole = np.asarray(np.trunc(values))
    if target == np.int32 and (np.abs(values) < _WHOLE_AND_SMALL).all() and (whole == values).all():
        return whole.astype(target)  # the usual case
    whole += np.copysign(np.abs(values - whole) >= 0.5, values)
    # Not `np.clip`: the greatest numbers of wide types are no floating-point numbers.
    above, below = whole >= float(limits.max), whole <= float(limits.min)
    whole[above | below | np.isnan(values)] = 0
    result = whole.astype(target)
    result[above], result[below] = limits.max, limits.min
    return result


def _limited(values: Array, target: np.dtype[Any]) -> Value:
    own, limits = np.iinfo(values.dtype), np.iinfo(target)
    low, high = max(own.min, limits.min), min(own.max, limits.max)
    return np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(target)


# --- numbers --------------------------------------------------------------------------------------------


def minimum(one: Value, other: Value) -> Value:
    """Compute the element-wise minimum: ``one if one < other else other``, also for NaN."""
    return np.asarray(np.where(one < other, one, other))[()]


def maximum(one: Value, other: Value) -> Value:
    """Compute the element-wise maximum: ``one if one > other else other``, also for NaN."""
    return np.asarray(np.where(one > other, one, other))[()]


def clamp(values: Value, low: Value, high: Value) -> Value:
    """Clamp to a range; NaN stays."""
    return np.where(values < low, low, np.where(values > high, high, values))[()]


# --- affine transformations -----------------------------------------------------------------------------


def coord_transform(points: Value, matrix: Value) -> Value:
    """Transform points ``(..., N, n)`` by a matrix ``(m, n + 1)``, float32: ``M @ point + T``."""
    if points.ndim < 2 or points.shape[-1] + 1 != matrix.shape[1]:
        raise ValueError(f"points of shape {points.shape}, and a matrix of {matrix.shape[1]} columns")
    result = points[..., 0:1] * matrix[:, 0]
    for column in range(1, points.shape[-1]):
        result += points[..., column : column + 1] * matrix[:, column]
    result += matrix[:, -1]
    return result


def combined(*matrices: Value) -> Value:
    """Combine transformations ``(2, 3)`` float32; the first is applied first."""
    return functools.reduce(_after, matrices)


def translation(offset: Value) -> Value:
    """Make the transformation ``(2, 3)`` float32 that shifts by an offset, ``(2,)``."""
    return _matrix(1, 0, 0, 1, offset[0], offset[1])


def scaling(factors: Value, center: Value = (0, 0)) -> Value:
    """Make the transformation ``(2, 3)`` float32 that scales each axis, ``(2,)``, about a center, ``(2,)``."""
    shift = np.asarray(center, _float32) * (_float32(1) - factors)
    return _matrix(factors[0], 0, 0, factors[1], *shift)


def rotation(angle: Value, center: Value) -> Value:
    """Make the rotation ``(2, 3)`` float32 by an angle in degrees, from x to y, about a center, ``(2,)``."""
    radians = float(angle * _float32(np.pi / 180))
    cosine, sine = _float32(math.cos(radians)), _float32(math.sin(radians))
    return _about(center, cosine, -sine, sine, cosine)


def shear(angles: Value, center: Value) -> Value:
    """Make the shearing ``(2, 3)`` float32 by two angles in degrees: ``[[1, tan(ax)], [tan(ay), 1]]``."""
    along_x, along_y = (_float32(math.tan(each)) for each in (angles * _float32(np.pi / 180)).tolist())
    return _about(center, _float32(1), along_x, along_y, _float32(1))


def _about(center: Value, a: Value, b: Value, c: Value, d: Value) -> Value:
    x, y = center
    return _matrix(a, b, c, d, x - (a * x + b * y), y - (c * x + d * y))


def _matrix(a: Value, b: Value, c: Value, d: Value, x: Value, y: Value) -> Value:
    return np.array([[a, b, x], [c, d, y]], _float32)


def _after(first: Value, second: Value) -> Value:
    # Each product and sum is rounded, in this order; `@` may use fused multiply-add.
    product = second[:, 0:1] * first[0] + second[:, 1:2] * first[1]
    product[:, 2] += second[:, 2]
    return product
