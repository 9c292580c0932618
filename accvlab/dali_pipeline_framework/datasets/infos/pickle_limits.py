# SPDX-License-Identifier: Apache-2.0
"""Limits on what a pickle may cost the process that reads it.

A value that was made once can be named again and again, so some hundred bytes can stand for 2**40 elements::

    a = (1, 1)     b = (a, a)     c = (b, b)     ...

To hash such a tuple, as a key of a dict, Python goes through all of them, in one call that nothing can stop. For a
tuple in a tuple in a tuple ..., Python calls itself for each level without counting, until the process crashes. Of
what a pickle makes, only tuples are hashed in that way, so their elements are counted before any opcode is run.
All others are counted in the loaded values (`pickled_values`).

To go through opcodes takes several times as long as to load them, so large pickles only get the memory for as many
levels as they could have at most: each level takes a byte of a few values, and these are counted fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from ...threads import called_in_thread

_T = TypeVar("_T")

_SMALL: Final = 1 << 21  # bytes; a second at most to go through the opcodes
_FEW_LEVELS: Final = 20_000  # any thread has memory for them
_MANY_LEVELS: Final = 4_000_000
_BYTES_PER_LEVEL: Final = 160
_CHUNK: Final = 1 << 24
_LEVEL: Final = 1.05  # the elements of a tuple count more at each level, which limits the depth as well


class LimitError(Exception):
    """A pickle is beyond a limit; the message names it."""


def most_elements(size: int) -> int:
    """Elements that a pickle of ``size`` bytes may stand for, and bytes that may be copied while it is loaded."""
    return 100 * size + (1 << 16)


def load_within_limits(data: bytes, load: Callable[[bytes], _T]) -> _T:
    """Load a pickle if it is within the limits; ``load`` gets as much of it as can be loaded, then zeros.

    Raises:
        LimitError: Its tuples have too many elements, or are nested too deep.
    """
    levels = _most_levels(data)
    if len(data) <= _SMALL or levels > _MANY_LEVELS:
        return load(data[: runnable_part(data)].ljust(len(data), b"\0"))  # no opcode
    if levels <= _FEW_LEVELS:
        return load(data)
    stack_bytes = (levels * _BYTES_PER_LEVEL + (1 << 23)) & ~0xFFFF
    return called_in_thread(lambda: load(data), "unpickling", stack_bytes).result()


def _most_levels(data: bytes) -> int:
    """A number that is not below the depth of tuples."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(data), _CHUNK):
        counts += np.bincount(np.frombuffer(data, np.uint8)[start : start + _CHUNK], minlength=256)
    return int(
        counts[[opcode for opcode, elements in enumerate(_TUPLES) if elements]].sum()
        + min(counts[_MARK], counts[_TUPLE])
    )


def _table(opcodes_of: dict[int, bytes]) -> bytes:
    table = bytearray(256)
    for value, opcodes in opcodes_of.items():
        for opcode in opcodes:
            table[opcode] = value
    return bytes(table)


_MARK, _TUPLE, _STOP, _FRAME, _MEMOIZE = b"(t.\x95\x94"
# What opcodes push, by where their argument ends: bytes in all; bytes of its length; lines of text.
_FIXED: Final = _table({1: b"N])}\x88\x89", 2: b"K", 3: b"M", 5: b"J", 9: b"G"})
_COUNTED: Final = _table({1: b"CU\x8a\x8c", 4: b"BTX\x8b", 8: b"\x8d\x8e\x96"})
_LINES: Final = _table({1: b"FILSV", 2: b"c"})
_TUPLES: Final = _table({1: b"\x85", 2: b"\x86", 3: b"\x87"})  # elements
_GETS: Final = _table({1: b"h", 4: b"j"})  # bytes of the number in the memo
_PUTS: Final = _table({1: b"q", 4: b"r"})
_CHANGES: Final = _table({1: b"ab", 2: b"s"})  # values that are put into the one below them
_CALLS: Final = b"R\x93"
_LONG_CHANGES: Final = b"eu"  # as those above, with all values after the mark
_LONG_VALUES: Final = b"ld"
_HEADS: Final = _table({2: b"\x80", 9: b"\x95"})


def runnable_part(data: bytes) -> int:
    """Find up to where a pickle can be loaded.

    Returns:
        The end of the pickle; or the position of the first opcode that is damaged, or that pickles of plain values
        do not have.

    Raises:
        LimitError: Its tuples have more elements than `most_elements`, or are nested too deep.
    """
    most, size = most_elements(len(data)), len(data)
    sizes: list[float] = []  # elements of each value on the stack that is a tuple, else 0
    marks: list[int] = []
    memo: dict[int, float] = {}
    total = 0.0  # elements of the tuples that were named again
    position = 0
    fixed, gets, counted, tuples, changes = _FIXED, _GETS, _COUNTED, _TUPLES, _CHANGES
    push = sizes.append
    try:
        while True:
            code = data[position]
            end = position + 1
            if code == _MEMOIZE:
                memo[len(memo)] = sizes[-1]
            elif fixed[code]:
                push(0)
                end = position + fixed[code]
            elif gets[code] or code == 0x67:
                end, number = _number_at(data, position, gets[code])
                total += memo[number]
                push(memo[number])
                if total > most:
                    break
            elif code == _MARK:
                marks.append(len(sizes))
            elif code == _TUPLE or tuples[code]:
                start = marks.pop() if code == _TUPLE else max(len(sizes) - tuples[code], 0)
                elements = len(sizes) - start + _LEVEL * sum(sizes[start:])
                del sizes[start:]
                push(elements)
                if elements > most:
                    break
            elif counted[code]:
                push(0)
                end += counted[code]
                end += int.from_bytes(data[position + 1 : end], "little")
            elif changes[code]:
                del sizes[-changes[code] :]
            elif code in _CALLS:
                del sizes[-2:]
                push(0)
            elif code in _LONG_CHANGES or code in _LONG_VALUES:
                del sizes[marks.pop() :]
                if code in _LONG_VALUES:
                    push(0)
            elif _PUTS[code] or code == 0x70:
                end, number = _number_at(data, position, _PUTS[code])
                if number > position:  # memory is taken for all numbers up to this one
                    return position
                memo[number] = sizes[-1]
            elif _LINES[code]:
                push(0)
                for _ in range(_LINES[code]):
                    end = data.index(b"\n", end) + 1
            elif _HEADS[code]:
                end = position + _HEADS[code]
                if code == _FRAME and int.from_bytes(data[position + 1 : end], "little") > size - end:
                    return position
            else:
                return end if code == _STOP else position
            if end > size:
                return position
            position = end
    except (IndexError, KeyError, ValueError):
        return position
    raise LimitError(
        f"its tuples are nested so deep, or repeat each other so often, that they stand for more than {most} "
        f"elements, the limit for a pickle of {size} bytes"
    )


def _number_at(data: bytes, position: int, length: int) -> tuple[int, int]:
    """Read the number of a value in the memo: where it ends, and the number."""
    if length:
        end = position + 1 + length
        return end, int.from_bytes(data[position + 1 : end], "little")
    end = data.index(b"\n", position) + 1
    return end, int(data[position + 1 : end])
