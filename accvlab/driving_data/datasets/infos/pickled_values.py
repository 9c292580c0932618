# SPDX-License-Identifier: Apache-2.0
"""Unpickling of plain values and arrays of NumPy. No code that a pickle names is imported or run.

NumPy trusts the states of dtypes and arrays: a state can turn the bytes of a file into pointers to objects. So
the names of NumPy that a pickle may use stand for classes of this module, which check a state before NumPy gets
it. They are classes since a pickle can set attributes of a function, but not of a class with ``__setstate__``.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

_CODES: Final = re.compile(r"[biufc][0-9]{1,2}|[SU][0-9]{1,9}|O8?")


class NotPlainError(Exception):
    """A pickle holds something other than plain values; the message names it."""


def _sealed(function: Callable[..., Any]) -> type:
    """Make a class that if called calls a function, and whose attributes no pickle can set."""
    members = {"__new__": lambda _, *arguments: function(*arguments), "__setstate__": None, "__slots__": ()}
    return type(function.__name__, (), members)


class _Dtype:
    __slots__ = ("dtype", "itemsize")

    def __init__(self, code: object, _align: object = False, _copy: object = False) -> None:
        if type(code) is not str or not _CODES.fullmatch(code):
            raise NotPlainError(f"an array of the dtype {code!r}")
        self.dtype: np.dtype[Any] = np.dtype(code)
        # Of what an array is made, bytes or a list, so much is one element.
        self.itemsize = 1 if self.dtype.hasobject else self.dtype.itemsize

    def __setstate__(self, state: Any) -> None:
        version, order, subarray, names, fields, itemsize, *_ = state
        if (version, subarray, names, fields) != (3, None, None, None):
            raise NotPlainError("an array of a dtype with several parts")
        if order not in ("<", ">", "|", "=") or itemsize not in (-1, self.itemsize):
            raise ValueError(f"an array of the byte order {order!r} and item size {itemsize!r}")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray[Any, Any]):
    """An array, made of its shape and content."""

    __slots__ = ()

    def __new__(cls, *_: object) -> Any:
        """Refuse what would reserve as much memory as a pickle says, or share that of another array."""
        raise NotPlainError("an array that is not made of its content")

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, content = state
        if type(dtype) is not _Dtype or type(shape) is not tuple:
            raise ValueError("an array without a shape or dtype")
        # NumPy trusts the lengths; that the content is of the right kind, it checks itself.
        if dtype.itemsize * math.prod(shape) != len(content) or (shape and min(shape) < 0):
            raise ValueError(f"an array of the shape {shape} and dtype {dtype.dtype} with other content")
        _set_state(self, (1, shape, dtype.dtype, is_fortran, content))


_set_state: Final = np.ndarray.__setstate__
# A function of C: it has no attributes that could be set, and refuses what is no class of arrays.
_reconstruct: Final = np.empty(0).__reduce__()[0]
_Array.__name__ = "array"  # as in the representation of arrays of NumPy


@_sealed
def _from_buffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> Any:
    # Of another array, the memory could be freed while this one uses it.
    if type(buffer) not in (bytes, bytearray) or type(dtype) is not _Dtype or dtype.dtype.hasobject:
        raise NotPlainError("an array that is not made of its content")
    return np.frombuffer(buffer, dtype.dtype).reshape(shape, order=order)


@_sealed
def _scalar(dtype: Any, content: Any) -> Any:
    if type(dtype) is not _Dtype or dtype.dtype.hasobject:
        raise NotPlainError("a scalar that is not made of its content")
    if type(content) is str:
        content = content.encode("latin1")
    if type(content) is not bytes or len(content) != dtype.dtype.itemsize:
        raise ValueError(f"a scalar of the dtype {dtype.dtype} with other content")
    return np.ndarray((), dtype.dtype, content)[()]


@_sealed
def _bytes(text: object = "", encoding: object = "latin1") -> Any:
    """What protocols before 3 write for bytes: text, or nothing for ``b""``."""
    if type(text) is not str or encoding != "latin1":
        raise NotPlainError(f"bytes as {encoding!r}")
    return text.encode("latin1")


_NAMES: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
    **dict.fromkeys((("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes")), _bytes),
}


def unpickled(data: bytes) -> Any:
    """Load a pickle of plain values. Arrays are of a subclass of `numpy.ndarray`; `numpy.asarray` makes it that.

    Raises:
        NotPlainError: It holds something else.
        Exception: Whatever damaged bytes make the unpickler raise.
    """
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise NotPlainError(f"`{module}.{name}`")
        return _NAMES[module, name]
