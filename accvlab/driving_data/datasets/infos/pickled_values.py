# SPDX-License-Identifier: Apache-2.0
"""Values of pickles, among them arrays of NumPy, made by this package from what a pickle says of them.

NumPy trusts the states of dtypes and arrays: a state can turn the bytes of a file into pointers to objects. So no
state reaches NumPy. While a pickle is loaded, a substitute takes the place of each dtype and array, checks its
state, and makes what it describes. Once all is loaded, the substitutes are replaced (`unpickled`).

A child process loads each pickle first, which the system ends at a limit of time or memory (`try_to_load`). A
value that was made once can be named again and again, so some hundred bytes can stand for 2**40 elements::

    a = (1, 1)     b = (a, a)     c = (b, b)     ...

To hash such a tuple, as a key of a dict, Python goes through all of them, in one call that nothing in its process
can stop. For a tuple in a tuple in a tuple ..., it calls itself for each level without counting, until the process
crashes. So the child has less memory for calls.
"""

from __future__ import annotations

import io
import math
import operator
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
from abc import ABC
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any, Final

import numpy as np

from accvlab.dali_pipeline_framework.threads import called_in_thread

_KINDS: Final = re.compile(r"[biufc][0-9]{1,2}|[SU][0-9]{1,9}|O8?")
_ORDERS: Final = ("<", ">", "|", "=")
_MOST_WITHOUT_BYTES: Final = 1024  # elements of an array whose content takes no bytes of the file
_NUMBERS: Final = frozenset(
    {float, int, bool, type(None), *(np.dtype(code).type for code in "?bhilqBHILQefdgFDG")}
)
_ndarray: Any = np.ndarray


class LimitError(Exception):
    """A pickle is beyond a limit; the message names it."""


class NotPlainError(Exception):
    """A pickle holds what is no plain value; the message names it."""


class Budget:
    """What a pickle may still cost: elements visited, and bytes copied."""

    def __init__(self, size: int) -> None:
        """Make that of a pickle of ``size`` bytes."""
        self._size = size
        self.left = self._most = 100 * size + (1 << 16)

    def take(self, count: int) -> None:
        """Count some elements or bytes.

        Raises:
            LimitError: There are too many.
        """
        self.left -= count
        if self.left < 0:
            raise LimitError(
                f"its values repeat each other so often that they stand for more than {self._most} elements "
                f"or bytes, the limit for a pickle of {self._size} bytes"
            )


class _Callable:
    """A function in a pickle, without attributes of its own, so that a pickle that sets some fails."""

    __slots__ = ("_budget", "function")
    __hash__ = None  # type: ignore[assignment]  # it is no value, so it can be no key
    _budget: Budget
    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], budget: Budget) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "_budget", budget)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(self._budget, *arguments)

    def __setattr__(self, name: str, value: object) -> None:
        raise NotPlainError(f"something that sets {name!r} of a function")


class _Substitute(ABC):
    __slots__ = ("made",)
    __hash__ = None  # type: ignore[assignment]  # it is replaced, so it can be no key
    made: Any


class _Dtype(_Substitute):
    __slots__ = ("budget", "content", "itemsize")
    budget: Budget
    content: type
    itemsize: int

    def __setstate__(self, state: Any) -> None:
        version, order, subarray, names, fields, itemsize, *_ = state
        if (version, subarray, names, fields) != (3, None, None, None) or itemsize not in (-1, self.itemsize):
            raise NotPlainError("an array of a dtype with several parts")
        if order not in _ORDERS:
            raise ValueError(f"an array of the byte order {order!r}")
        self.made = self.made.newbyteorder(order)

    def array(self, content: Any, shape: Any, is_fortran: Any) -> Any:
        """Make an array; of objects, its shape, order and elements, which may be substitutes."""
        if type(content) is not self.content or type(shape) is not tuple:
            content = self._content_of(content, shape)
        size = self.itemsize
        for length in shape:
            if type(length) is not int or length < 0:
                raise ValueError(f"an array of the shape {shape}")
            size *= length
        if size != len(content):
            raise ValueError(f"an array of the shape {shape} and dtype {self.made} with {len(content)} bytes")
        if not size and math.prod(length or 1 for length in shape) > _MOST_WITHOUT_BYTES:
            raise ValueError(f"an array of the shape {shape} without content")
        order = "F" if is_fortran else "C"
        return (
            (shape, order, content)
            if self.content is list
            else _ndarray(shape, self.made, content, 0, None, order)
        )

    def _content_of(self, content: Any, shape: Any) -> Any:
        """What an array is made of, where that is in another form."""
        if type(shape) is tuple and self.content is bytes:
            if type(content) is bytearray:
                return content
            if type(content) is str:  # of Python 2
                self.budget.take(len(content))
                return content.encode("latin1")
        raise ValueError("an array without a shape or content")


class _Array(_Substitute):
    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, is_fortran, content = state
        if version != 1 or type(dtype) is not _Dtype:
            raise ValueError(f"an array of the version {version!r}")
        self.made = dtype.array(content, shape, is_fortran)


def _array_class(budget: Budget) -> None:
    """Replace `numpy.ndarray`, which if called would reserve as much memory as a pickle says."""
    raise NotPlainError("an array that is not made of its content")


def _make_dtype(budget: Budget, code: object, _align: object, _copy: object) -> _Dtype:
    if type(code) is not str or not _KINDS.fullmatch(code):
        raise NotPlainError(f"an array of the dtype {code!r}")
    dtype = _Dtype()
    dtype.made, dtype.budget = np.dtype(code), budget
    dtype.content, dtype.itemsize = (list, 1) if code[0] == "O" else (bytes, dtype.made.itemsize)
    return dtype


def _make_array(budget: Budget, array_class: object, shape: object, _code: object) -> _Array:
    if type(array_class) is not _Callable or array_class.function is not _array_class or shape != (0,):
        raise NotPlainError("an array that is not made of its content")
    return _Array()


def _make_array_of_buffer(budget: Budget, buffer: object, dtype: object, shape: object, order: object) -> _Array:
    if type(dtype) is not _Dtype or dtype.content is list or order not in ("C", "F"):
        raise NotPlainError("an array that is not made of its content")
    array = _Array()
    array.made = dtype.array(buffer, shape, order == "F")
    return array


def _make_scalar(budget: Budget, dtype: object, content: object) -> Any:
    if type(dtype) is not _Dtype or dtype.content is list:
        raise NotPlainError("a scalar that is not made of its content")
    budget.take(dtype.itemsize)
    return dtype.array(content, (), False)[()]


def _make_bytes(budget: Budget, text: object = "", encoding: object = "latin1") -> bytes:
    """Make what protocols before 3 write for bytes: text, or nothing for ``b""``."""
    if type(text) is not str or encoding != "latin1":
        raise NotPlainError(f"bytes as {encoding!r}")
    budget.take(len(text))
    return text.encode("latin1")


_NAMES: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("numpy", "ndarray"): _array_class,
    ("numpy", "dtype"): _make_dtype,
    **dict.fromkeys((("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes")), _make_bytes),
    **dict.fromkeys(((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")), _make_array),
    **dict.fromkeys(((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")), _make_scalar),
    **dict.fromkeys(
        ((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")), _make_array_of_buffer
    ),
}


def unpickled(data: bytes) -> Any:
    """Load a pickle of plain values.

    Raises:
        LimitError: Its values stand for too many elements, or are nested too deep.
        NotPlainError: It holds something else.
        Exception: Whatever damaged bytes make the unpickler raise.
    """
    budget = Budget(len(data))
    return _plain_values(_Unpickler(data, budget).load(), budget)


class _Unpickler(pickle.Unpickler):
    """Knows what arrays and scalars of NumPy are made of, and nothing else."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        super().__init__(io.BytesIO(data))
        self._budget = budget

    def find_class(self, module: str, name: str) -> _Callable:
        if (module, name) not in _NAMES:
            raise NotPlainError(f"`{module}.{name}`")
        return _Callable(_NAMES[module, name], self._budget)

    def persistent_load(self, number: object) -> object:
        raise NotPlainError(f"a reference to something outside, {number!r},")


def _plain_values(root: Any, budget: Budget) -> Any:
    """Put arrays in the place of substitutes.

    Raises:
        LimitError: There are more elements than the budget has, where each counts as often as it is reached; or
            values are nested too deep, or in themselves.
        NotPlainError: There are values of other classes.
    """
    values = [root]
    try:
        _settle(values, budget)
    except RecursionError:
        raise LimitError("its values are nested too deep, or in themselves") from None
    return values[0]


def _settle(values: Any, budget: Budget) -> None:
    """Replace the substitutes in a list, or in the values of a dict."""
    budget.take(1 + len(values))
    count = 0
    for place, value in enumerate(values) if type(values) is list else values.items():
        kind = type(value)
        if kind is str:
            count += len(value) >> 2
        elif kind is list:
            if _NUMBERS.issuperset(map(type, value)):
                count += len(value)
                if count > budget.left:
                    break
            else:
                _settle(value, budget)
        elif kind is dict:
            _settle(value, budget)
        elif kind is _Array and type(value.made) is _ndarray:
            array = values[place] = value.made
            count += array.nbytes >> 2
        elif kind not in _NUMBERS:
            values[place] = _settled(value, budget)
    budget.take(count)


def _settled(value: Any, budget: Budget) -> Any:
    """What takes the place of a value that is neither a list nor a dict."""
    kind = type(value)
    if kind is _Array:
        if type(value.made) is tuple:
            shape, order, content = value.made
            _settle(content, budget)
            value.made = np.asarray(np.fromiter(content, object, len(content)).reshape(shape), order=order)
        value = value.made
    elif kind is tuple:
        items = [*value]
        _settle(items, budget)
        return value if all(map(operator.is_, items, value)) else tuple(items)
    elif kind is _Dtype:
        return value.made
    if isinstance(value, np.ndarray | np.generic):
        budget.take(value.nbytes >> 2)
        if value.dtype.hasobject:
            _settle(value.ravel().tolist(), budget)
    elif isinstance(value, bytes | bytearray):
        budget.take(len(value) >> 2)
    else:
        raise NotPlainError(f"a {kind.__name__}")
    return value


_NO_MEMORY: Final = 3  # exit code
_SECONDS: Final = 1.0
_BYTES_PER_SECOND: Final = 1 << 22  # those of data sets are loaded ten times as fast
_MEMORY: Final = 1 << 28
_MEMORY_PER_BYTE: Final = 200  # an empty list or dict is one byte
_STACK_BYTES: Final = 1 << 24
_SLOWEST: Final = 30.0  # seconds for a second of processor time

_CHILD = "import sys; sys.path[:] = {path!r}; from {module} import run; run({file}, {seconds!r})"


def try_to_load(data: bytes) -> None:
    """Have a child process load a pickle and forget what it has loaded.

    Raises:
        LimitError: The child needed too much time, memory or levels.
    """
    seconds = _SECONDS + len(data) / _BYTES_PER_SECOND
    with open(os.memfd_create("pickle"), "wb") as file:
        file.write(data)
        file.flush()
        descriptor = file.fileno()
        script = _CHILD.format(path=sys.path, module=__name__, file=descriptor, seconds=seconds)
        command = [os.fsdecode(spawn.get_executable()), "-c", script]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                pass_fds=[descriptor],
                timeout=_SLOWEST * (1 + seconds),
            )
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as expired:
            code, said = -signal.SIGPROF, expired.stderr or b""
    if code:
        raise LimitError(_reason(code, len(data), seconds, said.decode(errors="replace")))


def _reason(code: int, size: int, seconds: float, said: str) -> str:
    of_size = f"for a pickle of {size} bytes"
    if code == -signal.SIGPROF:
        return (
            f"it takes more than {seconds:.3g} s, the limit {of_size}: its values repeat each other so often that "
            f"they stand for far more elements than it has"
        )
    if code == _NO_MEMORY:
        most = f"{_most_memory(size) >> 20} MiB of memory, the limit {of_size}"
        return f"it takes more than {most}, or more than there is"
    if code == -signal.SIGSEGV:
        return "its values are nested so deep that Python crashes"
    return f"a process that was to try it ended with exit code {code}: {said.strip() or 'it said nothing'}"


def _most_memory(size: int) -> int:
    return _MEMORY + _MEMORY_PER_BYTE * size


def loaded_in_thread(load: Callable[[], Any], stack_bytes: int = 2 * _STACK_BYTES) -> Any:
    """Load a pickle with memory for more levels than it has had in the child."""
    return called_in_thread(load, "unpickling", stack_bytes).result()


def run(descriptor: int, seconds: float) -> None:
    """Load a pickle in this process, which ends at the limits; other errors are left to who loads it then."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        data = file.read()
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    limits = [used + _STACK_BYTES + _most_memory(len(data)), *resource.getrlimit(resource.RLIMIT_AS)]
    most = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        loaded_in_thread(lambda: unpickled(data), _STACK_BYTES)
    except MemoryError:
        os._exit(_NO_MEMORY)
    except Exception:
        pass
    os._exit(0)  # without the time that it takes to destroy what was loaded
