# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain values: whatever else they name is refused before it is imported, so no code of theirs runs."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from ...errors import FileError, file_error
from ...garbage import no_garbage_collected
from .pickle_limits import LimitError, load_within_limits

_Path = str | os.PathLike[str]


def load_plain_pickle(path: _Path) -> Any:
    """Load a pickle of lists, tuples, dicts, numbers, texts, bytes, None, and arrays and scalars of NumPy 1 or 2.

    Raises:
        FileError: It cannot be read, is damaged, names anything else, or is beyond the limits of `pickle_limits`.
    """
    text = os.fspath(path)
    try:
        with open(path, "rb") as file, no_garbage_collected():
            return load_within_limits(file, lambda: _Unpickler(file).load())
    except OSError as error:
        raise file_error(f"The pickle {text!r} cannot be read", error) from error
    except LimitError as error:
        raise FileError(f"The pickle {text!r} is not loaded: {error}.") from error
    except _NotPlainError as error:
        raise FileError(
            f"The pickle {text!r} holds {error}: only plain values are loaded (list, tuple, dict, numbers, str, "
            f"bytes, None, NumPy arrays), since anything else could run code. Nothing of it was imported. If you "
            f"trust the file, load it with `pickle.load` where that class is installed, put plain values in its "
            f"place, and write it again."
        ) from error
    except Exception as error:
        # What damaged bytes make the unpickler raise can be nearly anything.
        reason = f"{type(error).__name__}: {error}"
        if _is_text(path):
            raise FileError(f"{text!r} is no pickle, but text ({reason}). Give the pickle.") from error
        raise FileError(
            f"The pickle {text!r} is cut short, damaged, or no pickle ({reason}). Copy or make it again."
        ) from error


def _is_text(path: _Path) -> bool:
    """Whether a file begins with what no pickle has: printable text alone."""
    try:
        with open(path, "rb") as file:
            head = file.read(512)
        # A character may be cut at the end.
        start = head.decode("utf-8", "ignore" if len(head) == 512 else "strict")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(start.strip()) and all(one.isprintable() or one in "\r\n\t" for one in start)


class _NotPlainError(pickle.UnpicklingError):
    """A pickle names what is no plain value."""


class _Function:
    """A function without attributes of its own, so that a pickle that sets some fails."""

    __slots__ = ("_function",)
    _function: Any

    def __init__(self, function: Any) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise _NotPlainError(f"something that sets {name!r} of a function")


def _array_of_buffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> Any:
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


def _bytes_of_text(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise _NotPlainError(f"bytes as {encoding!r}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    """What protocols before 3 write for ``b""``."""
    return b""


class _ArrayClass:
    """Stands for `numpy.ndarray`, which if called would reserve as much memory as it is asked for."""

    __slots__ = ()


_ARRAY_CLASS = _ArrayClass()


def _empty_array(array_class: Any, shape: Any, code: Any) -> Any:
    if array_class is not _ARRAY_CLASS or shape != (0,):
        raise _NotPlainError("an array that is not made of its content")
    return np.empty(0, np.int8)


_EMPTY_ARRAY = _Function(_empty_array)
_SCALAR = _Function(np.float64(0).__reduce__()[0])
_ARRAY_OF_BUFFER = _Function(_array_of_buffer)

_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ARRAY_CLASS,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _Function(_bytes_of_text),
    ("__builtin__", "bytes"): _Function(_empty_bytes),
    ("builtins", "bytes"): _Function(_empty_bytes),
    **{
        (f"numpy.{core}.{module}", name): known
        for core in ("core", "_core")
        for module, name, known in (
            ("multiarray", "_reconstruct", _EMPTY_ARRAY),
            ("multiarray", "scalar", _SCALAR),
            ("numeric", "_frombuffer", _ARRAY_OF_BUFFER),
        )
    },
}


class _Unpickler(pickle.Unpickler):
    """Knows what arrays and scalars of NumPy are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise _NotPlainError(f"`{module}.{name}`")
        return known

    def persistent_load(self, number: Any) -> Any:
        raise _NotPlainError(f"a reference to something outside, {number!r},")
