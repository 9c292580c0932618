# SPDX-License-Identifier: Apache-2.0
"""Conversion of values of any library, labels and text to the arrays that data fields store, and of text back.

The result is always a fresh array, so that callers may reuse their buffers (``bytes``, which never change, are not
copied). Values that the type cannot represent are refused: text, ragged lists, masked and missing elements,
numbers out of range, fractions in integer fields, integers that a float type would round, numbers other than 0
and 1 in boolean fields. Arrays of the field's type, or of one that always fits it, are only copied; the values of
others are checked. Only numbers that are floats already are rounded, to the precision of a float field.
"""

from __future__ import annotations

import copy
import functools
import numbers
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.data_node import DataNode

from ..checks import listed, shown
from ..errors import FieldValueError, FrameworkError, SettingError, error_that_is_also
from .names import FieldPath, format_path

FieldValue: TypeAlias = Any
"""A value inside the graph (a DALI ``DataNode``) or outside of it (an array, or a value to convert to one)."""

FlatSample: TypeAlias = tuple[FieldValue, ...]
"""The values of all data fields of a sample, in flat order."""

LabelNumbers: TypeAlias = Mapping[Any, Any]
"""Label -> number that is stored in its place; None is the key of the default."""

_Array: TypeAlias = npt.NDArray[Any]
_NumpyDtype: TypeAlias = np.dtype[Any]
_List: TypeAlias = list[FieldValue] | tuple[FieldValue, ...]


def field_error(path: FieldPath, problem: str) -> FieldValueError:
    """Make the error for a value that does not fit its field."""
    return FieldValueError(f"{format_path(path)}: {problem}")


def converted(value: FieldValue, dtype: _NumpyDtype, path: FieldPath) -> FieldValue:
    """Convert ``value`` to a fresh array of ``dtype``; scalars become 0-d arrays.

    Floats fit integer fields if they are whole numbers, integers fit float fields if they are not rounded, and
    numbers fit boolean fields if they are 0 or 1. Infinity and NaN fit float fields. CuPy arrays and PyTorch
    tensors keep their class and device and get the right element type; arrays of other libraries on the CPU become
    NumPy arrays.

    Args:
        value: Number, (nested) list or tuple of numbers, or array; for uint8 also ``bytes`` (not copied, the array
            is read-only) and other buffers of bytes.
        dtype: Element type of the field.
        path: Path of the field, for messages.

    Raises:
        FieldValueError: If the value is not numeric, is ragged, has masked elements, or does not fit ``dtype``. It
            is also an OverflowError if numbers are out of the range of ``dtype``.
    """
    if type(value) is np.ndarray:
        return _from_array(value, dtype, path)
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return _from_number(value, dtype, path)
    if isinstance(value, list | tuple):
        return _from_sequence(value, dtype, path)
    if isinstance(value, np.ndarray | np.generic):
        check_not_masked(value, path)
        return _from_array(np.asarray(value), dtype, path)
    if isinstance(value, bytes | bytearray | memoryview):
        return _from_bytes(value, dtype, path)
    if is_instance_of_loaded(value, "cupy", "ndarray"):
        return _from_cupy(value, dtype, path)
    if is_instance_of_loaded(value, "torch", "Tensor"):
        return _from_torch(value, dtype, path)
    if isinstance(value, numbers.Number):
        return _from_other_number(value, dtype, path)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return _from_array(np.asarray(value), dtype, path)
    raise _refused(value, dtype, path, _advice(value, dtype))


def check_not_masked(value: FieldValue, path: FieldPath) -> None:
    """Refuse masked arrays with masked elements: a field has no place for the mask.

    Raises:
        FieldValueError: If elements are masked.
    """
    if is_instance_of_loaded(value, "numpy.ma", "MaskedArray"):
        num_masked = int(np.ma.getmaskarray(value).sum())
        if num_masked:
            advice = "Fill them first, e.g. with value.filled(0); a mask that is needed fits a BOOL field"
            raise field_error(path, f"{num_masked} element(s) of the masked array are masked. {advice}")


def is_instance_of_loaded(value: object, module_name: str, class_name: str) -> bool:
    """Whether ``value`` is of a class from a library that is used only if the caller has imported it."""
    module = sys.modules.get(module_name)
    cls = getattr(module, class_name, None) if module is not None else None
    return isinstance(cls, type) and isinstance(value, cls)


def as_numpy(value: FieldValue) -> _Array | None:
    """Convert an array of any library (PyTorch, CuPy, JAX, DALI, NumPy) to NumPy; None for other values.

    No copy is made where the library can avoid it. Data on a GPU are copied to the host.
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


def _refused(value: object, dtype: _NumpyDtype, path: FieldPath, advice: str) -> FieldValueError:
    """Make the error for a value that a field of ``dtype`` cannot hold."""
    got = f"{shown(value)} of type {type(value).__name__}"
    return field_error(path, f"cannot store {got} in a field of type {dtype}. {advice}")


def _advice(value: object, dtype: _NumpyDtype) -> str:
    if isinstance(value, str | os.PathLike):
        of_file = "If it is the path of a file, read the file: np.fromfile(path, np.uint8). "
        of_text = "Use a STRING field for text, or give the field a mapping if the text is a label"
        return of_file * (dtype == np.uint8) + of_text
    if isinstance(value, bytes | bytearray | memoryview):
        return f"Read the numbers from the bytes with np.frombuffer(value, np.{dtype}), or use a UINT8 field"
    if isinstance(value, range | set | frozenset) or hasattr(value, "__next__"):
        return "Assign list(...) of it, or np.array(...)"
    if isinstance(value, dict) or hasattr(value, "get_empty_like_self"):
        return "Use a data group field for nested data"
    if value is None:
        return "Write float('nan') for missing numbers in a float field, or leave them out"
    return (
        "Assign a number, a (nested) list or tuple of numbers, or an array. To store other Python objects "
        "unchanged, switch conversion off with set_do_convert(False)"
    )


# --- arrays -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _always_fits(source: _NumpyDtype, dtype: _NumpyDtype) -> bool:
    """Whether each value of a numeric type can be stored in another one, so that the values need no check."""
    if source.kind in "iu" and dtype.kind == "f":  # NumPy calls int64 to float64 safe
        return np.iinfo(source).max <= _largest_exact(dtype)
    return source.kind == "b" or (source.kind in "iuf" and np.can_cast(source, dtype))


@functools.cache
def _largest(dtype: _NumpyDtype) -> float:
    return float(np.finfo(dtype).max)


@functools.cache
def _largest_exact(dtype: _NumpyDtype) -> int:
    """Up to which number a float type holds all integers."""
    return 1 << (np.finfo(dtype).nmant + 1)


def _from_array(array: _Array, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    kind = array.dtype.kind
    if _always_fits(array.dtype, dtype):
        return array.astype(dtype, order="C")
    if kind == "O":
        return _from_objects(array, dtype, path)
    if kind in "mM" and dtype == np.int64:
        if np.isnat(array).any():
            raise field_error(path, "NaT (no date) is no number. Replace it first")
        return array.astype(dtype)
    if kind not in "iuf":
        advice = _advice_on_type(array.dtype, dtype)
        raise field_error(
            path, f"cannot store an array of type {array.dtype} in a field of type {dtype}. {advice}"
        )
    if dtype.kind == "b" and np.isnan(array).any():
        raise field_error(path, "NaN is neither true nor false. Replace it first")
    if dtype.kind in "iu":
        _check_range(array, dtype, path)
    try:
        with np.errstate(over="raise"):  # where finite numbers become infinite; infinity itself passes
            result = array.astype(dtype)
    except FloatingPointError:
        finite = array[np.isfinite(array)]
        raise _out_of_range(finite.min(), finite.max(), dtype, path) from None
    if dtype.kind == "b" or (kind == "f") != (dtype.kind == "f"):
        _check_same(array, result, path)
    return result


def _advice_on_type(source: _NumpyDtype, dtype: _NumpyDtype) -> str:
    if source.kind in "UST":
        return _advice("", dtype)
    if source.kind in "mM":
        return "Dates and durations fit INT64 fields only; or convert them to seconds first"
    if source.kind == "c":
        return "Store the real and imaginary parts, e.g. as a last axis of size 2"
    return "Assign an array of numbers"


def _check_range(array: _Array, dtype: _NumpyDtype, path: FieldPath) -> None:
    """Check that all values are in the range of an integer type, fractions aside."""
    if not array.size:
        return
    limits = np.iinfo(dtype)
    lowest, highest = array.min(), array.max()  # NaN if one of them is
    try:
        if limits.min <= int(lowest) and int(highest) <= limits.max:
            return
    except (ValueError, OverflowError):  # NaN or infinity
        pass
    raise _out_of_range(lowest, highest, dtype, path)


def _check_same(array: _Array, stored: _Array, path: FieldPath) -> None:
    """Check that ``array`` did not change when it was stored as booleans, integers or, of integers, floats."""
    dtype = stored.dtype
    if dtype.kind == "f" and array.size and max(array.max(), -int(array.min())) > _largest_exact(dtype):
        differs = array.astype(object) != stored.astype(object)  # Python compares them exactly
    else:
        differs = array != stored
    if not np.any(differs):
        return
    position = tuple(map(int, np.argwhere(differs)[0]))
    where = f" at {[*position]}" if position else ""
    more = int(np.count_nonzero(differs)) - 1
    others = f" and {more} more such value(s)" if more else ""
    got, became = array.item(*position), stored.item(*position)
    if dtype.kind == "b":
        rule = "holds true and false, and of numbers 0 and 1"
        advice = "Write value != 0 where all other numbers mean true, or give the field an integer type"
    elif dtype.kind == "f":
        rule = f"holds whole numbers up to {_largest_exact(dtype)} exactly, and most larger ones not"
        others = f", which would become {int(became)}{others}"
        wider = "INT64" if dtype == np.float64 or abs(got) > 1 << 53 else "INT64 or FLOAT64"
        advice = f"Give the field the type {wider}, or assign np.{dtype}(value) if rounded numbers will do"
    else:
        rule = "holds whole numbers"
        advice = "Scale or round them first, e.g. with np.round, or give the field a float type"
    raise field_error(path, f"a field of type {dtype} {rule}, got {got}{where}{others}. {advice}")


def _out_of_range(lowest: FieldValue, highest: FieldValue, dtype: _NumpyDtype, path: FieldPath) -> FrameworkError:
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    values = f"{lowest}" if lowest == highest or lowest != lowest else f"{lowest} … {highest}"
    return error_that_is_also(
        FieldValueError,
        (OverflowError,),
        f"{format_path(path)}: values {values} do not fit a field of type {dtype}, which holds {limits.min} "
        f"… {limits.max}. Clip or replace them first, or give the field a wider type",
    )


# --- numbers and sequences ----------------------------------------------------------------------------------


def _from_number(value: float, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    if dtype.kind != "f" or abs(value) <= _largest_exact(dtype):
        try:
            result = np.array(value, dtype=dtype)
        except (ValueError, OverflowError):  # NaN, infinity or an integer that is too large
            raise _out_of_range(value, value, dtype, path) from None
        if dtype.kind == "f" or result.item() == value:
            return result
    exact = np.array(value)
    if exact.dtype != object:
        return _from_array(exact, dtype, path)
    if dtype.kind == "f" and abs(value) <= _largest(dtype):  # an integer beyond 64 bits
        result = np.array(value, dtype=dtype)
        _check_same(exact, result, path)
        return result
    raise _out_of_range(value, value, dtype, path)


def _from_other_number(value: FieldValue, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    try:
        is_whole = int(value) == value and (dtype.kind in "iu" or abs(value) < 1 << 64)
        exact = int(value) if is_whole else float(value)
    except (TypeError, ValueError, OverflowError):
        raise _refused(value, dtype, path, "Only real, finite numbers can be converted") from None
    return _from_number(exact, dtype, path)


def _from_bytes(value: bytes | bytearray | memoryview, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    if dtype != np.uint8 or (isinstance(value, memoryview) and value.format != "B"):
        raise _refused(value, dtype, path, _advice(value, dtype))
    array = np.asarray(value) if isinstance(value, memoryview) else np.frombuffer(value, np.uint8)
    owner = value.obj if isinstance(value, memoryview) else value
    return array if type(owner) is bytes else array.copy()


def _from_sequence(values: _List, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    if values and isinstance(values[0], DataNode):
        advice = "An operator with several outputs returns a list: assign one of them, or use fn.stack or fn.cat"
        raise field_error(path, f"cannot store a {type(values).__name__} of DataNodes in one field. {advice}")
    _check_elements_not_masked(values, path)
    try:
        # Without a type first: given one, NumPy would parse text and let array elements wrap around.
        array = np.array(values)
    except (TypeError, ValueError) as error:
        advice = "Pad them to one length, or use one field per element (add_data_field_array)"
        is_ragged = isinstance(error, ValueError)
        why = f"The nested sequences have different lengths. {advice}" if is_ragged else f"NumPy says: {error}"
        raise _refused(values, dtype, path, why) from error
    if array.dtype.kind == "f":
        largest = _largest_exact(dtype if dtype.kind == "f" else array.dtype)
        if np.fmax.reduce(np.abs(array), axis=None, initial=0) >= largest:
            exact = np.array(values, dtype=object)  # NumPy has rounded integers among floats
            if dtype.kind == "f":
                for integer in (value for value in exact.flat if isinstance(value, numbers.Integral)):
                    converted(int(integer), dtype, path)
            else:
                array = exact
    return _from_array(array, dtype, path)


def _check_elements_not_masked(values: _List, path: FieldPath) -> None:
    if "numpy.ma" in sys.modules and any(
        issubclass(cls, np.ndarray | list | tuple) for cls in set(map(type, values))
    ):
        for value in values:
            if isinstance(value, list | tuple):
                _check_elements_not_masked(value, path)
            else:
                check_not_masked(value, path)


def _from_objects(array: _Array, dtype: _NumpyDtype, path: FieldPath) -> _Array:
    for value in array.flat:
        if not isinstance(value, numbers.Number | np.bool_):
            raise _refused(value, dtype, path, f"It is an element of the value. {_advice(value, dtype)}")
    flat = [converted(value, dtype, path).item() for value in array.flat]
    return np.array(flat, dtype=dtype).reshape(array.shape)


# --- other libraries ----------------------------------------------------------------------------------------


def _from_cupy(value: FieldValue, dtype: _NumpyDtype, path: FieldPath) -> FieldValue:
    if not _always_fits(value.dtype, dtype):
        _from_array(value.get(), dtype, path)  # for its checks
    return sys.modules["cupy"].array(value, dtype=dtype)


def _from_torch(value: FieldValue, dtype: _NumpyDtype, path: FieldPath) -> FieldValue:
    torch = sys.modules["torch"]
    wanted = getattr(torch, dtype.name)
    if value.dtype != wanted:
        exact = value.double() if value.is_floating_point() else value  # NumPy has no bfloat16
        _from_array(np.asarray(as_numpy(exact)), dtype, path)  # for its checks
    return value.to(dtype=wanted, copy=True)


_TEXT_KINDS = frozenset("UST")

_Self = TypeVar("_Self")


class Immutable:
    """Base class of values that cannot change: copies, deep ones too, are the object itself."""

    __slots__ = ()

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: object) -> _Self:
        return self


def _copied(entries: LabelNumbers) -> LabelNumbers:
    if not isinstance(entries, Mapping):
        got = f"{entries!r} of type {type(entries).__name__}"
        raise SettingError(f"a mapping must be a dict from label to number, got {got}")
    for key in entries:
        if isinstance(key, tuple):
            rule = "a single label (or None for the default), since tuples are mapped element by element"
            raise SettingError(f"a key of a mapping must be {rule}, got {key!r}")
    return {key: copy.deepcopy(value) for key, value in entries.items()}


@attrs.frozen(eq=False, repr=False)
class ValueMapping(Immutable, Mapping[Any, Any]):
    """The number of each label of a field; immutable, shared by all copies of the field.

    The key None holds the default for labels that are not listed. The caller's dict is copied once, so later
    changes of it have no effect.

    Raises:
        SettingError: If it is no mapping, or has a tuple as a key (sequences are mapped element by element,
            so such a key could never match).

    Example:
        >>> mapping = ValueMapping({"car": 1, "bike": 2, None: 0})
        >>> mapping["car"], mapping[None]
        (1, 0)
        >>> mapping == ValueMapping({None: 0, "bike": 2, "car": 1})
        True
    """

    _entries: LabelNumbers = attrs.field(converter=_copied)

    def __getitem__(self, key: object) -> FieldValue:
        return self._entries[key]

    def __iter__(self) -> Iterator[FieldValue]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @cached_property
    def has_number_keys(self) -> bool:
        """Whether there are numbers among the labels."""
        return any(map(_is_number, self._entries))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ValueMapping):
            return NotImplemented
        mine, others = self._entries, other._entries
        return mine.keys() == others.keys() and all(
            mine[key] is others[key] or np.array_equal(mine[key], others[key]) for key in mine
        )

    def __hash__(self) -> int:
        # Values may be lists, which cannot be hashed; the keys alone tell mappings apart well enough.
        return hash(frozenset(self._entries))

    def __repr__(self) -> str:
        return f"ValueMapping({self._entries!r})"


def mapped(value: FieldValue, mapping: ValueMapping, path: FieldPath) -> FieldValue:
    """Replace the labels in ``value`` by their numbers.

    Lists and tuples of any depth give lists of the same nesting; a NumPy array of text (or of objects) gives
    an array of the same shape. Numbers and numeric arrays are not labels and pass unchanged, unless the
    mapping has numbers among its keys: then they are looked up like any other label. ``None`` inside a list
    counts as a label that is not listed.

    Args:
        value: Label(s) as described.
        mapping: The mapping to use.
        path: Path of the field, for messages.

    Raises:
        FieldValueError: Also a KeyError; a label is not listed and the mapping has no default. Or elements of an
            array are masked.
    """
    if isinstance(value, list | tuple):
        return _mapped_sequence(value, mapping, path)
    is_array = hasattr(value, "__array__") or hasattr(value, "__cuda_array_interface__")
    if not is_array or isinstance(value, np.generic):
        return _mapped_label(value, mapping, path)
    check_not_masked(value, path)
    array = as_numpy(value) if mapping.has_number_keys or isinstance(value, np.ndarray) else None
    return value if array is None else _mapped_array(array, mapping, path)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Number | np.bool_)


def _mapped_sequence(values: _List, mapping: ValueMapping, path: FieldPath) -> list[FieldValue]:
    if set(map(type, values)) == {str}:  # thousands of labels of few kinds are common
        number_of = {label: _mapped_label(label, mapping, path) for label in dict.fromkeys(values)}
        return [number_of[label] for label in values]
    return [mapped(value, mapping, path) for value in values]


def _mapped_array(values: _Array, mapping: ValueMapping, path: FieldPath) -> _Array:
    kind = values.dtype.kind
    if kind == "O":
        return np.array(_mapped_sequence(values.ravel().tolist(), mapping, path)).reshape(values.shape)
    if kind not in _TEXT_KINDS and not mapping.has_number_keys:
        return values
    if values.size == 0:
        return np.zeros(values.shape, dtype=np.bool_)
    labels, positions = np.unique(values, return_inverse=True)
    numbers_of_labels = np.array([_mapped_label(label, mapping, path) for label in labels.tolist()])
    return numbers_of_labels[positions.reshape(values.shape)]


def _mapped_label(label: FieldValue, mapping: ValueMapping, path: FieldPath) -> FieldValue:
    entries = mapping._entries
    try:
        if label in entries:
            return entries[label]
        if isinstance(label, bytes) and (text := label.decode("utf-8", "replace")) in entries:  # e.g. of HDF5
            return entries[text]
    except TypeError:
        got = f"{label!r} of type {type(label).__name__}"
        raise field_error(path, f"a label must be hashable, got {got}") from None
    if _is_number(label) and not mapping.has_number_keys:
        return label
    if None in entries:
        return entries[None]
    raise unknown_label(label, entries, path)


def unknown_label(label: object, mapping: LabelNumbers, path: FieldPath = ()) -> FrameworkError:
    """Make the error for a label that has no entry; it is a FieldValueError and a KeyError."""
    where = f"{format_path(path)}: " if path else ""
    return error_that_is_also(
        FieldValueError,
        (KeyError,),
        f"{where}{label!r} is not a key of the mapping, and the mapping has no default (an entry with the "
        f"key None). Known keys: {listed(repr(key) for key in mapping if key is not None)}",
    )


Text: TypeAlias = str | list[FieldValue]
"""One text, or a (nested) list of texts with one level per leading axis."""


def encoded(value: object, path: FieldPath = ()) -> npt.NDArray[np.uint8]:
    """Encode text as a read-only (L,) uint8 array of its UTF-8 bytes; L is 0 for the empty text.

    Raises:
        FieldValueError: If ``value`` is not a ``str``, or cannot be written as UTF-8.
    """
    if not isinstance(value, str):
        got = f"{value!r} of type {type(value).__name__}{_advice_on_text(value)}"
        raise field_error(path, f"a STRING field takes a str or None, got {got}")
    try:
        # The bytes object keeps the array read-only.
        return np.frombuffer(value.encode(), dtype=np.uint8)
    except UnicodeEncodeError as error:
        hint = "Lone surrogates come from decoding with errors='surrogateescape'"
        raise field_error(path, f"the text cannot be written as UTF-8: {error}. {hint}") from error


def _advice_on_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return ". Decode the bytes first: value.decode()"
    if isinstance(value, list | tuple):
        return ". Use one STRING field per text (add_data_field_array)"
    return ""


def decoded(value: FieldValue, path: FieldPath = ()) -> Text:
    """Decode the text in uint8 data: a ``str`` for (L,), a list of N for (N, L), and so on.

    NULs at the end count as padding and are dropped; NULs elsewhere are kept.

    Args:
        value: uint8 array of any library, or a list or tuple of such arrays (a ragged batch).
        path: Path of the field, for messages.

    Raises:
        FieldValueError: If the data are not uint8, have no dimension, or are not UTF-8.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return [decoded(element, path) for element in value]
    array = as_numpy(value)
    if array is None or array.dtype != np.uint8 or array.ndim == 0:
        got = type(value).__name__
        got += "" if array is None else f" of type {array.dtype} and shape {array.shape}"
        raise field_error(path, f"text can only be read from uint8 data with at least one dimension, got {got}")
    if array.ndim == 1:
        return _decoded_bytes(array.tobytes(), path)
    return [decoded(texts, path) for texts in array]


def _decoded_bytes(data: bytes, path: FieldPath) -> str:
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        advice = "Use a UINT8 field for bytes that are no text"
        raise field_error(path, f"the data are not UTF-8: {error}. {advice}") from error


def read_text(value: FieldValue, path: FieldPath) -> FieldValue:
    """Decode the value of a STRING field; None and nodes of a graph stay as they are."""
    return value if value is None or isinstance(value, DataNode) else decoded(value, path)


def same_value(first: FieldValue, second: FieldValue) -> bool:
    """Whether two field values are equal; never raises.

    Arrays are equal if library, type, shape and all elements are; NaN equals NaN. Nodes of a graph are equal
    if they are the same object (their own ``==`` adds an operator to the graph).
    """
    if first is second:
        return True
    if isinstance(first, DataNode) or isinstance(second, DataNode):
        return False
    try:
        if _is_array(first) or _is_array(second):
            mine, other = np.asarray(as_numpy(first)), np.asarray(as_numpy(second))
            # NumPy compares other kinds (text, objects) only without the NaN rule.
            is_equal = np.array_equal(mine, other, equal_nan=mine.dtype.kind in "fcmM")
            return type(first) is type(second) and mine.dtype == other.dtype and is_equal
        if isinstance(first, list | tuple):
            return (
                type(first) is type(second) and len(first) == len(second) and all(map(same_value, first, second))
            )
        return bool(first == second)
    except Exception:  # a foreign object whose == fails or is ambiguous
        return False


def _is_array(value: FieldValue) -> bool:
    return as_numpy(value) is not None and not isinstance(value, np.generic)
