# SPDX-License-Identifier: Apache-2.0
"""Glob patterns for names of files and folders, as DALI's readers match them."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable

from ...checks import elements, shown
from ...errors import SettingError

_FNM_CASEFOLD = 1 << 4
_SPECIAL = frozenset("*?[\\")


class NameFilter:
    """Tells which names match at least one of several patterns.

    The patterns are those of ``fnmatch(3)`` without flags but for letter case, and it is that function of the C
    library that decides, as in DALI: ``*`` and ``?`` match any characters, also a leading dot; ``[a-z]``,
    ``[!a-z]``, ``[^a-z]`` and ``[[:digit:]]`` one of several; a backslash takes away the meaning of the character
    after it. A name must match as a whole.

    Objects are immutable and can be pickled.
    """

    def __init__(self, patterns: str | Iterable[str], *, case_sensitive: bool, argument: str) -> None:
        """Compile the patterns, one or several texts.

        Args:
            patterns: The patterns.
            case_sensitive: Whether the case of letters counts.
            argument: Name of the argument that they come from, for messages.
        """
        is_unordered = isinstance(patterns, set | frozenset | dict)
        given = [patterns] if isinstance(patterns, str) else elements([*patterns] if is_unordered else patterns)
        if given is None:
            raise SettingError(f"`{argument}` must be texts such as '*.jpg', got {shown(patterns)}.")
        self._patterns = tuple(given)
        self._case_sensitive = bool(case_sensitive)
        if not self._patterns:
            raise SettingError(f"`{argument}` must have at least one pattern, such as '*', got none.")
        for pattern in self._patterns:
            if not isinstance(pattern, str) or "\0" in pattern or not _can_name(pattern):
                raise SettingError(f"`{argument}` must be texts such as '*.jpg', got {shown(pattern)}.")
        # Most patterns are suffixes: `endswith` checks all of these at once.
        fold = (lambda text: text) if self._case_sensitive else str.lower
        self._suffixes = tuple(fold(pattern[1:]) for pattern in self._patterns if _is_suffix(pattern))
        self._encoded = [os.fsencode(pattern) for pattern in self._patterns]
        self._others = [os.fsencode(pattern) for pattern in self._patterns if not _is_suffix(pattern)]

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns."""
        return self._patterns

    def matches(self, name: str) -> bool:
        """Whether a name matches at least one of the patterns."""
        is_ascii = name.isascii()
        if is_ascii and (name if self._case_sensitive else name.lower()).endswith(self._suffixes):
            return True
        patterns = self._others if is_ascii else self._encoded
        if not patterns:
            return False
        match, encoded = _fnmatch(), os.fsencode(name)
        flags = 0 if self._case_sensitive else _FNM_CASEFOLD
        return any(match(pattern, encoded, flags) == 0 for pattern in patterns)


def _can_name(text: str) -> bool:
    """Whether the name of a file can have these characters."""
    try:
        return bool(os.fsencode(text)) or not text
    except UnicodeEncodeError:  # half of a pair of surrogates
        return False


def _is_suffix(pattern: str) -> bool:
    return pattern[:1] == "*" and pattern.isascii() and _SPECIAL.isdisjoint(pattern[1:])


@functools.cache
def _fnmatch() -> Callable[[bytes, bytes, int], int]:
    function = ctypes.CDLL(None).fnmatch
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
    function.restype = ctypes.c_int
    return function
