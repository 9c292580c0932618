# SPDX-License-Identifier: Apache-2.0
"""Text in and out of STRING fields.

Text travels as UTF-8 bytes in uint8 arrays. In a batch the arrays have one length, filled up with NULs::

    "car"      -> [99 97 114]                    one sample: (L,)
    ["car", ""] = [[99 97 114] [0 0 0]]          a batch: (N, L), L is that of the longest
    ["", ""]    = shape (2, 0)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..errors import FieldValueError
from .conversion import FieldValue, as_numpy
from .names import FieldPath, format_path

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
        got = (
            f"{type(value).__name__}"
            if array is None
            else f"{type(value).__name__} of type {array.dtype} and shape {array.shape}"
        )
        raise FieldValueError(
            f"{format_path(path)}: text can only be read from uint8 data with at least one dimension, got {got}"
        )
    if array.ndim == 1:
        return _decoded_bytes(array.tobytes(), path)
    length = array.shape[-1]
    data = array.tobytes()
    count = int(np.prod(array.shape[:-1]))
    texts = [_decoded_bytes(data[i * length : (i + 1) * length], path) for i in range(count)]
    return _nested(texts, array.shape[:-1])


def _decoded_bytes(data: bytes, path: FieldPath) -> str:
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise FieldValueError(
            f"{format_path(path)}: the data are not UTF-8: {error}. Use a UINT8 field for bytes that are no text"
        ) from error


def _nested(texts: list[str], shape: tuple[int, ...]) -> Text:
    if len(shape) == 1:
        return texts
    per_row = int(np.prod(shape[1:]))
    return [_nested(texts[i * per_row : (i + 1) * per_row], shape[1:]) for i in range(shape[0])]
