# SPDX-License-Identifier: Apache-2.0
"""Conversion of Python, NumPy, CuPy and PyTorch values to the element type of a data field.

The result is always a fresh array, so that callers may reuse their buffers. What cannot be represented is
refused: text in a numeric field, ragged lists, integers that would wrap around.
"""

from __future__ import annotations

import functools
import math
import numbers
import sys
from typing import Any, TypeAlias

import numpy as np
from nvidia.dali.data_node import DataNode

from ..errors import FieldValueError, FrameworkError, error_that_is_also
from .names import FieldPath, format_path

FieldValue: TypeAlias = Any
"""A value inside the graph (a DALI ``DataNode``) or outside of it (an array, or what becomes one)."""

_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_NumpyDtype: TypeAlias = np.dtype[Any]

_LONGEST_VALUE_IN_A_MESSAGE = 80


def converted(value: FieldValue, dtype: _NumpyDtype, path: FieldPath) -> FieldValue:
    """Return ``value`` as a fresh array of ``dtype``; scalars become 0-d arrays.

    Floats are truncated towards zero in integer fields. CuPy arrays and PyTorch tensors stay what they are
    (of the right element type, on their device); arrays of other libraries on the CPU become NumPy arrays.

    Args:
        value: Number, (nested) list or tuple of numbers, or array.
        dtype: Element type of the field.
        path: Path of the field, for messages.

    Raises:
        FieldValueError: If the value is not numeric, is ragged, or does not fit the range of ``dtype``. It is
            also an OverflowError in the last case.
    """
    if type(value) is np.ndarray:
        return _from_array(value, dtype, path)
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return _from_number(value, dtype, path)
    if isinstance(value, list | tuple):
        return _from_sequence(value, dtype, path)
    if isinstance(value, np.ndarray | np.generic):
        return _from_array(np.asarray(value), dtype, path)
    if is_instance_of_loaded(value, "cupy", "ndarray"):
        return _from_cupy(value, dtype, path)
    if is_instance_of_loaded(value, "torch", "Tensor"):
        return _from_torch(value, dtype, path)
    if isinstance(value, numbers.Number):
        return _from_other_number(value, dtype, path)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _from_array(np.asarray(value), dtype, path)
    raise refused(value, dtype, path, _advice(value))


def is_instance_of_loaded(value: object, module_name: str, class_name: str) -> bool:
    """Whether ``value`` is of a class from a library that is used only if the caller has imported it."""
    module = sys.modules.get(module_name)
    cls = getattr(module, class_name, None) if module is not None else None
    return isinstance(cls, type) and isinstance(value, cls)


def as_numpy(value: FieldValue) -> _Array | None:
    """Return an array of any library (PyTorch, CuPy, JAX, DALI, NumPy) as a NumPy array; None if it is none.

    No copy is made where the library can do without. Data on a GPU are copied to the host.
    """
    if isinstance(value, np.ndarray):
        return value
    if is_instance_of_loaded(value, "torch", "Tensor"):
        return np.asarray(value.detach().cpu().numpy())
    if is_instance_of_loaded(value, "cupy", "ndarray"):
        return np.asarray(value.get())
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return None


def refused(value: object, dtype: _NumpyDtype, path: FieldPath, advice: str) -> FieldValueError:
    """Make the error for a value that a field of ``dtype`` cannot hold."""
    return FieldValueError(
        f"{format_path(path)}: cannot store {_shown(value)} in a field of type {dtype}. {advice}"
    )


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) > _LONGEST_VALUE_IN_A_MESSAGE:
        text = text[: _LONGEST_VALUE_IN_A_MESSAGE - 1] + "…"
    return f"{text} of type {type(value).__name__}"


def _advice(value: object) -> str:
    if isinstance(value, str | bytes | bytearray):
        return (
            "Use a STRING field for text, np.frombuffer(...) for raw bytes, or give the field a mapping if "
            "the text is a label"
        )
    if isinstance(value, range | set | frozenset) or hasattr(value, "__next__"):
        return "Assign list(...) of it, or np.array(...)"
    if isinstance(value, dict) or hasattr(value, "get_empty_like_self"):
        return "Use a data group field for nested data"
    return (
        "Assign a number, a (nested) list or tuple of numbers, or an array. To store other Python objects "
        "unchanged, switch conversion off with set_do_convert(False)"
    )


# --- arrays -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _casts_without_a_look_at_the_values(source: _NumpyDtype, dtype: _NumpyDtype) -> bool:
    if source.kind not in "biuf":
        return False
    return source.kind == "b" or dtype.kind in "bf" or (source.kind in "iu" and np.can_cast(source, dtype))


def _from_array(array: _Array, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    if not _casts_without_a_look_at_the_values(array.dtype, dtype):
        if array.dtype.kind == "O":
            return _from_objects(array, dtype, path)
        _check_array(array, dtype, path)
    return np.array(array, dtype=dtype)


def _check_array(array: _Array, dtype: _NumpyDtype, path: FieldPath) -> None:
    kind = array.dtype.kind
    if kind in "mM" and dtype == np.int64:
        return
    if kind in "iuf":
        if array.size:
            _check_range(array.min(), array.max(), dtype, path)
        return
    if kind in "UST":
        advice = _advice("")
    elif kind in "mM":
        advice = "Dates and durations fit INT64 fields only; or convert them to seconds first"
    elif kind == "c":
        advice = "Store the real and imaginary parts, e.g. as a last axis of size 2"
    else:
        advice = "Assign an array of numbers"
    raise FieldValueError(
        f"{format_path(path)}: cannot store an array of type {array.dtype} in a field of type {dtype}. {advice}"
    )


def _check_range(lowest: Any, highest: Any, dtype: _NumpyDtype, path: FieldPath) -> None:
    limits = np.iinfo(dtype)
    try:
        low, high = int(lowest), int(highest)  # truncates floats as the cast will
    except (ValueError, OverflowError):  # NaN (which min and max hand on) or infinity
        raise _out_of_range(f"{lowest} … {highest}", dtype, path) from None
    if low < limits.min or high > limits.max:
        raise _out_of_range(str(low) if low == high else f"{low} … {high}", dtype, path)


def _out_of_range(values: str, dtype: _NumpyDtype, path: FieldPath) -> FrameworkError:
    limits = np.iinfo(dtype)
    return error_that_is_also(
        FieldValueError,
        (OverflowError,),
        f"{format_path(path)}: values {values} do not fit a field of type {dtype}, which holds {limits.min} "
        f"… {limits.max}. Clip or replace them first, or give the field a wider type",
    )


# --- numbers and sequences ----------------------------------------------------------------------------------


def _from_number(value: float, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    if dtype.kind in "iu":
        if type(value) is float:
            _check_range(value, value, dtype, path)
            value = int(value)
        try:
            return np.array(value, dtype=dtype)
        except OverflowError:
            raise _out_of_range(str(value), dtype, path) from None
    try:
        return np.array(value, dtype=dtype)
    except OverflowError:
        raise refused(value, dtype, path, "The number is too large") from None


def _from_other_number(value: Any, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    try:
        exact = int(value) if dtype.kind in "iu" else float(value)
    except (TypeError, ValueError, OverflowError):
        raise refused(value, dtype, path, "Only real, finite numbers can be converted") from None
    return _from_number(exact, dtype, path)


def _from_sequence(values: list[Any] | tuple[Any, ...], dtype: _NumpyDtype, path: FieldPath) -> _Array:
    if values and isinstance(values[0], DataNode):
        raise FieldValueError(
            f"{format_path(path)}: cannot store a {type(values).__name__} of DataNodes in one field. An "
            "operator with several outputs returns a list: assign one element of it, or use fn.stack or "
            "fn.cat"
        )
    try:
        # Without a type first: given one, NumPy would parse text and let array elements wrap around.
        array = np.array(values)
    except ValueError as error:
        raise _ragged(values, dtype, path) from error
    except TypeError as error:
        raise refused(values, dtype, path, f"NumPy says: {error}") from error
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "O" or (array.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize == 8):
        # The second case: integers beyond int64 among smaller ones were rounded to floats.
        return _from_objects(np.array(values, dtype=object), dtype, path)
    return _from_array(array, dtype, path)


def _from_objects(array: _Array, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    for value in array.flat:
        is_missing = value is None and dtype.kind == "f"  # becomes NaN
        if not is_missing and not isinstance(value, numbers.Number | np.bool_):
            raise refused(value, dtype, path, f"It is an element of the value. {_advice(value)}")
    flat = [math.nan if value is None else converted(value, dtype, path).item() for value in array.flat]
    return np.array(flat, dtype=dtype).reshape(array.shape)


def _ragged(values: object, dtype: _NumpyDtype, path: FieldPath) -> FieldValueError:
    return refused(
        values,
        dtype,
        path,
        "The nested sequences have different lengths. Pad them to one length, or use one field per element "
        "(add_data_field_array)",
    )


# --- other libraries ----------------------------------------------------------------------------------------


def _from_cupy(value: Any, dtype: _NumpyDtype, path: FieldPath) -> Any:
    if not _casts_without_a_look_at_the_values(value.dtype, dtype):
        if value.dtype.kind in "iuf" and value.size:
            _check_range(value.min().item(), value.max().item(), dtype, path)
        elif value.dtype.kind not in "iuf":
            raise refused(value, dtype, path, "Assign an array of real numbers")
    return sys.modules["cupy"].array(value, dtype=dtype)


def _from_torch(value: Any, dtype: _NumpyDtype, path: FieldPath) -> Any:
    torch = sys.modules["torch"]
    if value.is_complex():
        raise refused(value, dtype, path, "Assign a tensor of real numbers")
    wanted = getattr(torch, dtype.name)
    if dtype.kind in "iu" and value.dtype not in (wanted, torch.bool) and value.numel():
        _check_range(value.min().item(), value.max().item(), dtype, path)
    return value.to(dtype=wanted, copy=True)
