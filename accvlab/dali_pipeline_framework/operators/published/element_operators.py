# SPDX-License-Identifier: Apache-2.0
"""Operators on the elements of a tensor."""

from __future__ import annotations

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...errors import SettingError
from ...sample_data.dtypes import get_numpy_type_for_dali_type
from ...sample_data.graph_mode import do_not_convert
from ..element_selection import ElementSelection, with_length_of
from ..field_types import computable, exact_constant

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
    """Bytes of a number."""
    if data_type not in (_DT.FLOAT16, _DT.FLOAT, _DT.FLOAT64):
        raise SettingError(f"`data_type` must be FLOAT16, FLOAT or FLOAT64, got {data_type!r}.")
    return np.dtype(get_numpy_type_for_dali_type(data_type)).itemsize


def _double(value: float, device: str) -> DataNode:
    return exact_constant(np.array(value, np.float64), device)
