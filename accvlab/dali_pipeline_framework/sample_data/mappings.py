# SPDX-License-Identifier: Apache-2.0
"""Mapping of labels (normally text) to the numbers that a data field stores, and of text to bytes."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np

from ..checks import listed
from ..errors import FieldValueError, FrameworkError, SettingError, error_that_is_also
from .conversion import FieldValue, as_numpy, check_not_masked
from .names import FieldPath, format_path

_TEXT_KINDS = frozenset("UST")

_Self = TypeVar("_Self")


class Immutable:
    """Base class of values that cannot change: copies, deep ones too, are the object itself."""

    __slots__ = ()

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: object) -> _Self:
        return self


def _copied(entries: Mapping[Any, Any]) -> dict[Any, Any]:
    if not isinstance(entries, Mapping):
        raise SettingError(
            f"a mapping must be a dict from label to number, got {entries!r} of type {type(entries).__name__}"
        )
    for key in entries:
        if isinstance(key, tuple):
            raise SettingError(
                f"a key of a mapping must be a single label (or None for the default), got {key!r}: "
                "tuples are mapped element by element"
            )
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
        >>> mapping["car"], mapping.default, mapping.has_default
        (1, 0, True)
        >>> mapping == ValueMapping({None: 0, "bike": 2, "car": 1})
        True
    """

    _entries: dict[Any, Any] = attrs.field(converter=_copied)

    def __getitem__(self, key: object) -> Any:
        return self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @cached_property
    def has_number_keys(self) -> bool:
        """Whether there are numbers among the labels."""
        return any(_is_number(key) for key in self._entries)

    @property
    def has_default(self) -> bool:
        """Whether labels that are not listed have a value."""
        return None in self._entries

    @property
    def default(self) -> Any:
        """Value for labels that are not listed; None where there is none."""
        return self._entries.get(None)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ValueMapping):
            return NotImplemented
        if self._entries.keys() != other._entries.keys():
            return False
        return all(
            value is other._entries[key] or bool(np.array_equal(value, other._entries[key]))
            for key, value in self._entries.items()
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Values may be lists, which cannot be hashed; the keys alone tell mappings apart well enough.
        return hash(frozenset(self._entries))

    def __repr__(self) -> str:
        return f"ValueMapping({self._entries!r})"


def mapped(value: Any, mapping: ValueMapping, path: FieldPath) -> Any:
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
    if type(value) is str:
        return _mapped_label(value, mapping, path)
    if isinstance(value, list | tuple):
        return _mapped_sequence(value, mapping, path)
    if isinstance(value, np.ndarray):
        check_not_masked(value, path)
        return _mapped_array(value, mapping, path)
    if _is_array_of_a_device_library(value):
        return value
    return _mapped_label(value, mapping, path)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Number | np.bool_)


def _is_array_of_a_device_library(value: object) -> bool:
    return not isinstance(value, np.generic) and (
        hasattr(value, "__array__") or hasattr(value, "__cuda_array_interface__")
    )


def _mapped_sequence(values: list[Any] | tuple[Any, ...], mapping: ValueMapping, path: FieldPath) -> list[Any]:
    if set(map(type, values)) == {str}:  # thousands of labels per sample are common
        entries = mapping._entries
        if None in entries:
            default = entries[None]
            return [entries.get(value, default) for value in values]
        try:
            return [entries[value] for value in values]
        except KeyError:
            unknown = next(value for value in values if value not in entries)
            raise unknown_label(unknown, entries, path) from None
    return [mapped(value, mapping, path) for value in values]


def _mapped_array(values: np.ndarray[Any, Any], mapping: ValueMapping, path: FieldPath) -> Any:
    kind = values.dtype.kind
    if kind == "O":
        flat: Iterable[Any] = values.ravel().tolist()
        return np.array([mapped(value, mapping, path) for value in flat]).reshape(values.shape)
    if kind not in _TEXT_KINDS and not mapping.has_number_keys:
        return values
    if values.size == 0:
        return np.zeros(values.shape, dtype=np.bool_)
    labels, positions = np.unique(values, return_inverse=True)
    numbers_of_labels = np.array([_mapped_label(label, mapping, path) for label in labels.tolist()])
    return numbers_of_labels[positions.reshape(values.shape)]


def _mapped_label(label: Any, mapping: ValueMapping, path: FieldPath) -> Any:
    entries = mapping._entries
    try:
        if label in entries:
            return entries[label]
    except TypeError:
        raise FieldValueError(
            f"{format_path(path)}: a label must be hashable, got {label!r} of type {type(label).__name__}"
        ) from None
    if _is_number(label) and not mapping.has_number_keys:
        return label
    if None in entries:
        return entries[None]
    raise unknown_label(label, entries, path)


def unknown_label(label: object, mapping: Mapping[Any, Any], path: FieldPath = ()) -> FrameworkError:
    """Make the error for a label that has no entry; it is a FieldValueError and a KeyError."""
    where = f"{format_path(path)}: " if path else ""
    return error_that_is_also(
        FieldValueError,
        (KeyError,),
        f"{where}{label!r} is not a key of the mapping, and the mapping has no default (an entry with the "
        f"key None). Known keys: {listed(repr(key) for key in mapping if key is not None)}",
    )


Text: TypeAlias = str | list[Any]
"""One text, or a (nested) list of texts with one level per leading axis."""


def encoded(value: object, path: FieldPath = ()) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return text as a read-only (L,) uint8 array of its UTF-8 bytes; L is 0 for the empty text.

    Raises:
        FieldValueError: If ``value`` is not a ``str``, or cannot be written as UTF-8.
    """
    if not isinstance(value, str):
        raise FieldValueError(
            f"{format_path(path)}: a STRING field takes a str or None, got {value!r} of type "
            f"{type(value).__name__}{_advice(value)}"
        )
    try:
        # The bytes object keeps the array read-only.
        return np.frombuffer(value.encode(), dtype=np.uint8)
    except UnicodeEncodeError as error:
        raise FieldValueError(
            f"{format_path(path)}: the text cannot be written as UTF-8: {error}. Lone surrogates come from "
            "decoding with errors='surrogateescape'"
        ) from error


def _advice(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return ". Decode the bytes first: value.decode()"
    if isinstance(value, list | tuple):
        return ". Use one STRING field per text (add_data_field_array)"
    return ""


def decoded(value: FieldValue, path: FieldPath = ()) -> Text:
    """Return the text in uint8 data: a ``str`` for (L,), a list of N for (N, L), and so on.

    NULs at the end are taken for padding and dropped; NULs elsewhere are kept.

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
        raise FieldValueError(
            f"{format_path(path)}: text can only be read from uint8 data with at least one dimension, got {got}"
        )
    if array.ndim == 1:
        return _decoded_bytes(array.tobytes(), path)
    *shape, length = array.shape
    data = array.tobytes()
    starts = range(0, length * math.prod(shape), length) if length else [0] * math.prod(shape)
    texts = [_decoded_bytes(data[start : start + length], path) for start in starts]
    nested: list[Any] = np.array(texts, object).reshape(shape).tolist()
    return nested


def _decoded_bytes(data: bytes, path: FieldPath) -> str:
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise FieldValueError(
            f"{format_path(path)}: the data are not UTF-8: {error}. Use a UINT8 field for bytes that are no text"
        ) from error
