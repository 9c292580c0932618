# SPDX-License-Identifier: Apache-2.0
"""Limits on what a pickle may do to the process that reads it.

To hash a tuple that holds a tuple that holds a tuple ..., as the key of a dict, Python calls itself for each level
and does not count, so a pickle of some hundred kilobytes can end the process. How deep the tuples are is not told
anywhere. But each level takes a byte of a few values, and these are counted fast.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np

from ...threads import called_in_thread

_T = TypeVar("_T")

MOST_BYTES: Final = 1 << 33
"""Size of a pickle. In memory its values take several times as much."""

MOST_NESTED: Final = 1000
"""How deep values may be nested where there are so many tuples that it has to be found out."""

_FEW_LEVELS: Final = 20_000  # any thread has memory for them
_MANY_LEVELS: Final = 4_000_000
_BYTES_PER_LEVEL: Final = 160
_CHUNK: Final = 1 << 24
_SMALL_TUPLES: Final = (0x85, 0x86, 0x87)
_MARK, _TUPLE = ord("("), ord("t")


class LimitError(Exception):
    """A pickle is beyond a limit; the message tells which."""


def load_within_limits(file: BinaryIO, load: Callable[[], _T]) -> _T:
    """Load an open pickle if it is within the limits; ``load`` reads it from the beginning.

    Raises:
        LimitError: It is too large, or nested too deep.
    """
    size = file.seek(0, 2)
    if size > MOST_BYTES:
        raise LimitError(f"it has {size} bytes, more than {MOST_BYTES}")
    levels = _most_levels(file)
    if levels > _MANY_LEVELS:
        file.seek(0)
        _require_flat(file)
        levels = 0
    file.seek(0)
    if levels <= _FEW_LEVELS:
        return load()
    stack_bytes = (levels * _BYTES_PER_LEVEL + (1 << 23)) & ~0xFFFF
    return called_in_thread(load, "unpickling", stack_bytes).result()


def _most_levels(file: BinaryIO) -> int:
    """A number that is not below the depth of tuples."""
    file.seek(0)
    counts = np.zeros(256, np.int64)
    while chunk := file.read(_CHUNK):
        counts += np.bincount(np.frombuffer(chunk, np.uint8), minlength=256)
    return int(counts[list(_SMALL_TUPLES)].sum() + min(counts[_MARK], counts[_TUPLE]))


def _require_flat(file: BinaryIO) -> None:
    """Raise a `LimitError` where values are nested too deep: go through a pickle without making its values."""
    stack: list[int] = []  # depth of each value
    marks: list[int] = []
    memo: dict[int, int] = {}
    for code, argument, _ in pickletools.genops(file):
        name = code.name
        if name == "MARK":
            marks.append(len(stack))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo.get(int(argument or 0), 0))
        else:
            _apply(code, stack, marks)
        if stack and stack[-1] > MOST_NESTED:
            raise LimitError(f"its values are nested more than {MOST_NESTED} times")


def _apply(code: Any, stack: list[int], marks: list[int]) -> None:
    """Take from the stack what an opcode takes, and put what it makes; that is a level deeper."""
    taken = [each.name for each in code.stack_before]
    deepest = -1
    if "mark" in taken:
        start = marks.pop()
        deepest = max(stack[start:], default=0)
        del stack[start:]
        taken = taken[: taken.index("mark")]
    for _ in taken:
        deepest = max(deepest, stack.pop())
    made = len(code.stack_after)
    stack += [deepest + 1 if deepest >= 0 else 0] * made
