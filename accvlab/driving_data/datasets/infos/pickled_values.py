# SPDX-License-Identifier: Apache-2.0
"""Unpickling of plain values and arrays of NumPy. No code that a pickle names is imported or run.

NumPy trusts the states of dtypes and arrays: a state can turn the bytes of a file into pointers to objects. So
the names of NumPy that a pickle may use stand for classes of this module, which check a state before NumPy gets
it. They are classes since a pickle can set attributes of a function, but not of a class with ``__setstate__``.

Most of an info pickle is small arrays. Loading one runs no Python: `StoredArray` keeps the state, and the arrays
of a whole column are checked and joined at once, by `joined_arrays`.
"""

from __future__ import annotations

import functools
import math
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

_CODES: Final = re.compile(r"[biufc][0-9]{1,2}|[SU][0-9]{1,9}|O8?")


class NotPlainError(Exception):
    """A pickle holds something other than plain values; the message names it."""


class DamagedError(Exception):
    """A pickle, or an array in it, is damaged; the message has the reason."""


def _sealed(function: Callable[..., Any]) -> type:
    """Make a class that if called calls a function, and whose attributes no pickle can set."""
    members = {"__new__": lambda _, *arguments: function(*arguments), "__setstate__": None, "__slots__": ()}
    return type(function.__name__, (), members)


@functools.lru_cache(256)
def _plain_dtype(code: str, order: Any) -> np.dtype[Any]:
    return np.dtype(code).newbyteorder(order)


class _Dtype:
    __slots__ = ("_code", "dtype", "itemsize")

    def __init__(self, code: object, _align: object = False, _copy: object = False) -> None:
        if type(code) is not str or not _CODES.fullmatch(code):
            raise NotPlainError(f"an array of the dtype {code!r}")
        self._code, self.dtype = code, _plain_dtype(code, "=")
        # Of what an array is made, bytes or a list, so much is one element.
        self.itemsize = 1 if self.dtype.hasobject else self.dtype.itemsize

    def __setstate__(self, state: Any) -> None:
        version, order, subarray, names, fields, itemsize, *_ = state
        if (version, subarray, names, fields) != (3, None, None, None):
            raise NotPlainError("an array of a dtype with several parts")
        if order not in ("<", ">", "|", "=") or itemsize not in (-1, self.itemsize):
            raise ValueError(f"an array of the byte order {order!r} and item size {itemsize!r}")
        self.dtype = _plain_dtype(self._code, order)


def _check_text(array: npt.NDArray[Any]) -> None:
    """Refuse text of characters that do not exist: Python fails with a SystemError where it uses them."""
    if array.dtype.kind == "U" and array.nbytes:
        characters = np.frombuffer(array.tobytes(), np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if characters.max() > sys.maxunicode:
            raise ValueError("text of characters that do not exist")


class StoredArray(list[Any]):
    """An array of a pickle: a list of its state alone, which is checked when `numpy.asarray` makes the array.

    ``list.append`` in place of ``__setstate__`` is a function of C, as is the constructor, which takes and ignores
    what a pickle gives it.
    """

    __slots__ = ()
    __init__ = object.__init__
    __setstate__ = list.append

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Make the array; NumPy casts it where another dtype is wanted.

        Raises:
            DamagedError: The state is not that of an array of plain values.
        """
        try:
            (state,) = list.__iter__(self)
            _, shape, kind, is_fortran, content = state
            if type(kind) is not _Dtype or type(shape) is not tuple:
                raise ValueError("an array without a shape or dtype")
            # NumPy trusts the lengths; that the content is of the right kind, it checks itself.
            if kind.itemsize * math.prod(shape) != len(content) or min(shape, default=0) < 0:
                raise ValueError(f"an array of the shape {shape} and dtype {kind.dtype} with other content")
            if kind.dtype.hasobject and type(content) is list:
                content = [np.asarray(one) if type(one) is StoredArray else one for one in content]
            array: npt.NDArray[Any] = np.empty(0)
            array.__setstate__((1, shape, kind.dtype, is_fortran, content))
            _check_text(array)
        except DamagedError:
            raise
        except Exception as error:
            raise DamagedError(f"{type(error).__name__}: {error}") from error
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return np.asarray(self).shape

    def __len__(self) -> int:
        """Get the number of rows."""
        return len(np.asarray(self))

    def __iter__(self) -> Iterator[Any]:
        """Get the rows."""
        return iter(np.asarray(self))

    def __getitem__(self, rows: Any) -> Any:
        """Get rows."""
        return np.asarray(self)[rows]

    def __repr__(self) -> str:
        """Write the array as NumPy does."""
        return repr(np.asarray(self))


def joined_arrays(arrays: Sequence[Any]) -> tuple[Sequence[tuple[int, ...]], npt.NDArray[Any]] | None:
    """The shapes of stored arrays of one dtype of numbers, and their elements one after the other.

    None where not all values are such arrays in C order, or one is damaged: `numpy.asarray` says what is wrong.
    """
    if {*map(type, arrays)} != {StoredArray} or {*map(list.__len__, arrays)} != {1}:
        return None
    try:
        _, shapes, kinds, is_fortran, contents = zip(*map(list.__getitem__, arrays, repeat(0)), strict=True)
        unique = {*kinds}
        if {*map(type, unique)} != {_Dtype}:
            return None
        (dtype,) = {kind.dtype for kind in unique}
        size_of = {shape: dtype.itemsize * math.prod(shape) for shape in {*shapes} if min(shape, default=0) >= 0}
        is_whole = [*map(len, contents)] == [*map(size_of.get, shapes)]
        if not is_whole or any(is_fortran) or dtype.kind not in "fiub":
            return None
        return shapes, np.frombuffer(b"".join(contents), dtype)
    except (ValueError, TypeError):
        return None


@_sealed
def _ndarray(*_: object) -> Any:
    """Refuse what would reserve as much memory as a pickle says, or share that of another array."""
    raise NotPlainError("an array that is not made of its content")


@_sealed
def _from_buffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> Any:
    if type(buffer) not in (bytes, bytearray):
        raise NotPlainError("an array that is not made of its content")
    array = StoredArray()
    array.append((1, shape, dtype, order == "F", bytes(buffer)))
    return array


@_sealed
def _scalar(dtype: Any, content: Any) -> Any:
    if type(dtype) is not _Dtype or dtype.dtype.hasobject:
        raise NotPlainError("a scalar that is not made of its content")
    if type(content) is str:
        content = content.encode("latin1")
    if type(content) is not bytes or len(content) != dtype.dtype.itemsize:
        raise ValueError(f"a scalar of the dtype {dtype.dtype} with other content")
    scalar = np.ndarray((), dtype.dtype, content)
    _check_text(scalar)
    return scalar[()]


@_sealed
def _bytes(text: object = "", encoding: object = "latin1") -> Any:
    """What protocols before 3 write for bytes: text, or nothing for ``b""``."""
    if type(text) is not str or encoding != "latin1":
        raise NotPlainError(f"bytes as {encoding!r}")
    return text.encode("latin1")


_NAMES: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): StoredArray for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
    **dict.fromkeys((("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes")), _bytes),
}


def unpickled(file: BinaryIO) -> Any:
    """Load a pickle of plain values; its arrays are `StoredArray`.

    Raises:
        OSError: It cannot be read.
        NotPlainError: It holds something else.
        DamagedError: It cannot be loaded.
    """
    try:
        return _Unpickler(file).load()
    except (OSError, NotPlainError):
        raise
    except Exception as error:  # what damaged bytes make the unpickler raise can be nearly anything
        raise DamagedError(f"{type(error).__name__}: {error}") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise NotPlainError(f"`{module}.{name}`")
        return _NAMES[module, name]
