# SPDX-License-Identifier: Apache-2.0
"""Functions that work on nodes of a graph and on NumPy arrays alike, with the names and meanings of DALI's.

With them a computation on small tensors (sizes, matrices, points, boxes) is written once, for the graph and for
samples of arrays, and gives the same numbers, bit by bit: operators of DALI compute in float32, without fused
multiply-add, in the order of the indices.

Where one argument is a node, DALI's operator is called; otherwise all arguments are arrays, NumPy numbers, or
Python numbers. Python's operators (``+ - * / < &``) mean the same for both, but for types: where whole numbers
meet float32, or a Python float, NumPy computes in float64, and DALI in float32. So cast to float32 first.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..engine.dali.texts import failing_with as failing_in_graph
from ..errors import FieldValueError
from ..sample_data import FieldValue
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.graph_mode import do_not_convert

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = FieldValue
"""A node while a graph is defined; otherwise an array or a number."""

_DType = types.DALIDataType
_float32 = np.float32
_WHOLE_AND_SMALL = _float32(1 << 24)


def is_node(*values: object) -> bool:
    """Whether one of them is a node of a graph; otherwise they are arrays or numbers."""
    for value in values:  # noqa: SIM110 (called often: twice as fast as `any`)
        if isinstance(value, DataNode):
            return True
    return False


def constant(values: npt.ArrayLike, like: Value, dtype: npt.DTypeLike = np.float32) -> Value:
    """Make a constant: a node on the CPU if ``like`` is a node, otherwise an array.

    In a graph, an array can only be the right operand of a node.
    """
    array = np.array(values, dtype)
    return types.Constant(array, device="cpu") if isinstance(like, DataNode) else array


@do_not_convert
def failing_with(rule: str, define: Callable[..., Value], /, *arguments: Value, **settings: Value) -> Value:
    """Compute something that fails where data break a rule; name the rule in the error, in one line.

    Raises:
        FieldValueError: The call fails, on arrays. In a graph, the graph fails.
    """
    if is_node(*arguments, *settings.values()):
        return failing_in_graph(rule, define, *arguments, **settings)
    try:
        return define(*arguments, **settings)
    except (ValueError, IndexError) as error:
        raise FieldValueError(f"{rule[0].upper()}{rule[1:]}. ({error})") from error


# --- shapes ---------------------------------------------------------------------------------------------


def on_cpu(values: Value) -> Value:
    """Move a node to the CPU; leave arrays as they are."""
    return values.cpu() if is_node(values) and values.device == "gpu" else values


def shape_of(values: Value, dtype: types.DALIDataType = _DType.INT64) -> Value:
    """Get the shape, ``(num_axes,)``, on the CPU."""
    if isinstance(values, DataNode):
        return values.shape(dtype=dtype)
    return np.array(np.shape(values), get_numpy_type_for_dali_type(dtype))


def stack(*values: Value, axis: int = 0) -> Value:
    """Join values of one shape along a new axis."""
    if is_node(*values):
        return fn.stack(*values, axis=axis)
    if axis == 0:
        shapes = {np.shape(value) for value in values}
        if len(shapes) != 1:
            raise ValueError(f"values of one shape can be stacked, got {sorted(shapes)}")
        return np.array(values)
    return np.stack(values, axis)


def cat(*values: Value, axis: int = 0) -> Value:
    """Join values along an axis."""
    return fn.cat(*values, axis=axis) if is_node(*values) else np.concatenate(values, axis)


def reshape(values: Value, shape: Value, layout: str | None = None) -> Value:
    """Reshape; the shape may be a node or an array, -1 is inferred. A layout is for nodes only."""
    if is_node(values, shape):
        return fn.reshape(values, shape=shape, layout=layout)
    return np.reshape(values, shape.tolist() if isinstance(shape, np.ndarray) else shape)


def expand_dims(values: Value, axes: Sequence[int]) -> Value:
    """Insert axes of length 1."""
    return fn.expand_dims(values, axes=axes) if is_node(values) else np.expand_dims(values, tuple(axes))


def transpose(values: Value, perm: Sequence[int] | None = None) -> Value:
    """Reorder axes; by default, the reverse."""
    if is_node(values):
        return fn.transpose(values) if perm is None else fn.transpose(values, perm=perm)
    return np.ascontiguousarray(np.transpose(values, perm))


def slice(
    values: Value,
    *,
    start: Value,
    axes: Sequence[int],
    shape: Value = None,
    end: Value = None,
    out_of_bounds_policy: str = "error",
    fill_values: Sequence[float] = (0.0,),
) -> Value:
    """Cut out a part in pixels; ``shape`` or ``end`` has to be given.

    Args:
        values: What to cut from.
        start: First index along each of the axes, which may be negative: before the first element.
        axes: The axes.
        shape: Length of the part along each of the axes.
        end: End of the part along each of the axes, instead.
        out_of_bounds_policy: "error", "trim_to_shape", or "pad".
        fill_values: The value to pad with, as a list of one number.
    """
    extent = {"end": end} if shape is None else {"shape": shape}
    if is_node(values, start, shape, end):
        return fn.slice(
            values,
            start=start,
            **extent,
            axes=axes,
            out_of_bounds_policy=out_of_bounds_policy,
            fill_values=fill_values,
        )
    return _sliced(np.asarray(values), np.atleast_1d(start), extent, axes, out_of_bounds_policy, fill_values[0])


def _sliced(
    values: Array, start: Value, extent: dict[str, Value], axes: Sequence[int], policy: str, fill: float
) -> Value:
    (name, lengths), *_ = extent.items()
    ends = np.atleast_1d(lengths) if name == "end" else start + np.atleast_1d(lengths)
    inner, outer = [builtins.slice(None)] * values.ndim, [builtins.slice(None)] * values.ndim
    padded = list(values.shape)
    is_outside = False
    for axis, first, last in zip(axes, start.tolist(), ends.tolist(), strict=True):
        length = values.shape[axis]
        low, high = min(max(first, 0), length), min(max(last, 0), length)
        is_outside |= (low, high) != (first, last)
        inner[axis], outer[axis] = builtins.slice(low, high), builtins.slice(low - first, high - first)
        padded[axis] = last - first
    part = values[tuple(inner)]
    if not is_outside or policy == "trim_to_shape":
        return part
    if policy != "pad":
        raise IndexError(f"a part from {start.tolist()} to {ends.tolist()} of a shape of {values.shape}")
    result = np.full(padded, fill, values.dtype)
    result[tuple(outer)] = part
    return result


# --- types ----------------------------------------------------------------------------------------------


def cast(values: Value, dtype: types.DALIDataType) -> Value:
    """Convert to another type as DALI does: rounded to the nearest, halves away from 0, and limited to its range.

    Bool is whether the absolute value is at least a half, and true for NaN.
    """
    if isinstance(values, DataNode):
        return fn.cast(values, dtype=dtype)
    return cast_array(values, get_numpy_type_for_dali_type(dtype))


def cast_like(values: Value, other: Value) -> Value:
    """Convert to the type of another value, as `cast` does."""
    if is_node(values, other):
        return fn.cast_like(values, other)
    return cast_array(values, np.asarray(other).dtype)


def cast_array(values: Value, dtype: npt.DTypeLike) -> Value:
    """Convert an array or a NumPy number to another type, as `cast` does."""
    values, target = np.asarray(values), np.dtype(dtype)
    if values.dtype == target or values.dtype.kind == "b":
        return values.astype(target, copy=False)[()]
    if target.kind == "f":
        with np.errstate(over="ignore"):
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
    is_nan = np.isnan(values)
    whole[above | below | is_nan] = 0
    result = whole.astype(target)
    result[above], result[below] = limits.max, limits.min
    if target.itemsize == 8 or target == np.int32:  # what processors make of NaN
        result[is_nan] = limits.min if target.kind == "i" else 1 << 63
    return result


def _limited(values: Array, target: np.dtype[Any]) -> Value:
    own, limits = np.iinfo(values.dtype), np.iinfo(target)
    low, high = max(own.min, limits.min), min(own.max, limits.max)
    if (low, high) == (own.min, own.max):
        return values.astype(target)
    return np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(target)


# --- numbers --------------------------------------------------------------------------------------------


def _where(condition: Any, one: Any, other: Any) -> Value:
    return np.where(condition, one, other)[()]


def minimum(one: Value, other: Value) -> Value:
    """Compute the element-wise minimum: ``one if one < other else other``, also for NaN."""
    return dali_math.min(one, other) if is_node(one, other) else _where(one < other, one, other)


def maximum(one: Value, other: Value) -> Value:
    """Compute the element-wise maximum: ``one if one > other else other``, also for NaN."""
    return dali_math.max(one, other) if is_node(one, other) else _where(one > other, one, other)


def clamp(values: Value, low: Value, high: Value) -> Value:
    """Clamp to a range; NaN stays."""
    if is_node(values, low, high):
        return dali_math.clamp(values, low, high)
    return _where(values < low, low, _where(values > high, high, values))


def floor(values: Value) -> Value:
    """Round down element-wise."""
    return dali_math.floor(values) if is_node(values) else np.floor(values)


def ceil(values: Value) -> Value:
    """Round up element-wise."""
    return dali_math.ceil(values) if is_node(values) else np.ceil(values)


def absolute(values: Value) -> Value:
    """Compute the absolute value element-wise."""
    return dali_math.abs(values) if is_node(values) else np.abs(values)


def sqrt(values: Value) -> Value:
    """Compute the square root of float32 element-wise."""
    return dali_math.sqrt(values) if is_node(values) else np.sqrt(values)


def sin(values: Value) -> Value:
    """Compute the sine of angles in radians, float32 or float64. For few numbers: it costs a call for each."""
    return dali_math.sin(values) if is_node(values) else _as_c_does("sin", values)


def cos(values: Value) -> Value:
    """Compute the cosine of angles in radians, float32 or float64. For few numbers: it costs a call for each."""
    return dali_math.cos(values) if is_node(values) else _as_c_does("cos", values)


def exp(values: Value) -> Value:
    """Compute ``e ** values`` of float32. For few numbers: it costs a call for each."""
    return dali_math.exp(values) if is_node(values) else _as_c_does("exp", values)


def _as_c_does(name: str, values: Value) -> Value:
    """Apply a function of C, which DALI uses; the last bit of NumPy's own ones differs."""
    dtype = np.float64 if np.asarray(values).dtype == np.float64 else _float32
    function = _function_of_c(name if dtype is np.float64 else f"{name}f")
    results = np.array([function(value) for value in np.ravel(values).tolist()], dtype)
    return results.reshape(np.shape(values))[()]


@functools.cache
def _function_of_c(name: str) -> Any:
    function = getattr(ctypes.CDLL("libm.so.6"), name)
    number = ctypes.c_float if name.endswith("f") else ctypes.c_double
    function.restype, function.argtypes = number, [number]
    return function


class reductions:  # noqa: N801 (DALI's name)
    """Reductions along axes, by default along all."""

    @staticmethod
    def min(values: Value, axes: Sequence[int] | None = None, keep_dims: bool = False) -> Value:
        """Compute the minimum; NaN does not count."""
        return _reduced(fn.reductions.min, np.fmin, values, axes, keep_dims, "max")

    @staticmethod
    def max(values: Value, axes: Sequence[int] | None = None, keep_dims: bool = False) -> Value:
        """Compute the maximum; NaN does not count."""
        return _reduced(fn.reductions.max, np.fmax, values, axes, keep_dims, "min")

    @staticmethod
    def sum(values: Value, axes: Sequence[int] | None = None, keep_dims: bool = False) -> Value:
        """Compute the sum: float32 for float32, 64 bits for whole numbers. Of more than 7 reals, bits may vary."""
        return _reduced(fn.reductions.sum, np.add, values, axes, keep_dims)


def _reduced(
    of_nodes: Any, of_arrays: Any, values: Value, axes: Sequence[int] | None, keep_dims: bool, initial: str = ""
) -> Value:
    if isinstance(values, DataNode):
        return of_nodes(values, keep_dims=keep_dims, **({} if axes is None else {"axes": [*axes]}))
    limit = {"initial": _limit(values, initial)} if initial else {}
    return of_arrays.reduce(values, axis=None if axes is None else tuple(axes), keepdims=keep_dims, **limit)


def _limit(values: Value, side: str) -> Value:
    dtype = values.dtype
    if dtype.kind == "f":
        return getattr(np.finfo(dtype), side)
    return side == "max" if dtype.kind == "b" else getattr(np.iinfo(dtype), side)


# --- affine transformations -----------------------------------------------------------------------------


def coord_transform(points: Value, MT: Value = None, M: Value = None) -> Value:  # noqa: N803 (DALI's names)
    """Transform points ``(..., N, n)`` by a matrix, float32.

    Args:
        points: The points.
        MT: ``(m, n + 1)``: ``M @ point + T``.
        M: ``(m, n)``, instead: ``M @ point``.
    """
    if is_node(points, MT, M):
        return fn.coord_transform(points, MT=MT) if M is None else fn.coord_transform(points, M=M)
    matrix = np.asarray(MT) if M is None else np.concatenate([M, np.zeros((len(M), 1), _float32)], 1)
    if points.ndim < 2 or points.shape[-1] + 1 != matrix.shape[1]:
        raise ValueError(f"points of shape {points.shape}, and a matrix of {matrix.shape[1]} columns")
    result = points[..., 0:1] * matrix[:, 0]
    for column in range(1, points.shape[-1]):
        result += points[..., column : column + 1] * matrix[:, column]
    result += matrix[:, -1]
    return result


class transforms:  # noqa: N801 (DALI's name)
    """Matrices ``(2, 3)`` float32; where a matrix is given, the transformation follows on that."""

    @staticmethod
    def combine(*matrices: Value) -> Value:
        """Combine transformations; the first is applied first."""
        if is_node(*matrices):
            return fn.transforms.combine(*matrices)
        return functools.reduce(_after, matrices)

    @staticmethod
    def translation(*matrix: Value, offset: Value) -> Value:
        """Shift by an offset, ``(2,)``."""
        if is_node(*matrix, offset):
            return fn.transforms.translation(*matrix, offset=offset)
        return _following(matrix, 1, 0, 0, 1, offset[0], offset[1])

    @staticmethod
    def scale(*matrix: Value, scale: Value, center: Value = None) -> Value:
        """Scale each axis by a factor, ``(2,)``, about a center, ``(2,)``."""
        if is_node(*matrix, scale, center):
            return fn.transforms.scale(*matrix, scale=scale, **_center(center))
        shift = (0, 0) if center is None else center * (_float32(1) - scale)
        return _following(matrix, scale[0], 0, 0, scale[1], *shift)

    @staticmethod
    def rotation(*matrix: Value, angle: Value, center: Value = None) -> Value:
        """Rotate by an angle in degrees, from x to y, about a center, ``(2,)``."""
        if is_node(*matrix, angle, center):
            return fn.transforms.rotation(*matrix, angle=angle, **_center(center))
        radians = angle * _float32(np.pi / 180)
        cosine, sine = cos(radians), sin(radians)
        return _following(matrix, *_about(center, cosine, -sine, sine, cosine))

    @staticmethod
    def shear(*matrix: Value, angles: Value, center: Value = None) -> Value:
        """Shear by two angles in degrees, about a center, ``(2,)``: ``[[1, tan(ax)], [tan(ay), 1]]``."""
        if is_node(*matrix, angles, center):
            return fn.transforms.shear(*matrix, angles=angles, **_center(center))
        along_x, along_y = _as_c_does("tan", angles * _float32(np.pi / 180))
        one = _float32(1)
        return _following(matrix, *_about(center, one, along_x, along_y, one))


def _center(center: Value) -> dict[str, Value]:
    return {} if center is None else {"center": center}


def _about(center: Value, a: Value, b: Value, c: Value, d: Value) -> tuple[Value, ...]:
    if center is None:
        return a, b, c, d, 0, 0
    x, y = center
    return a, b, c, d, x - (a * x + b * y), y - (c * x + d * y)


def _following(matrix: Sequence[Value], a: Value, b: Value, c: Value, d: Value, x: Value, y: Value) -> Value:
    """Apply ``[[a, b, x], [c, d, y]]`` after the given matrix, if any."""
    follows = np.array([[a, b, x], [c, d, y]], _float32)
    return _after(matrix[0], follows) if matrix else follows


def _after(first: Value, second: Value) -> Value:
    # Each product and sum is rounded, in this order, as DALI does; `@` may use fused multiply-add.
    product = second[:, 0:1] * first[0] + second[:, 1:2] * first[1]
    product[:, 2] += second[:, 2]
    return product
