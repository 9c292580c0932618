# SPDX-License-Identifier: Apache-2.0
"""Texts about remote files, and errors of their stores, without passwords, signatures and keys of their URLs."""

from __future__ import annotations

import re
from typing import Any

# Up to the first "/"; or, where no port follows the colon, up to the last "@": passwords that nobody encoded.
_USER = re.compile(r"(?<=://)(?:[^/\s]+@|[^\s/@:]*:(?![:/]|\d+(?:[/?#\s'\"]|$))\S*@)")
_QUERY = re.compile(r"(\w+://[^\s'\"?#]*)([?#].*?)(?=[.,:;)\]}>]*(?:[\s'\"]|$))")
_ITEM = re.compile(r"([?#&;])([^=&;#]*=)?([^&;#]*)")


def without_secrets(text: str) -> str:
    """Get a text as it may be shown: in its URLs users, passwords, and values of queries are ``***``.

    Numbers of at most eight digits stay, as in ``?part=1``. Of queries of other protocols than HTTP, where ``?``
    can be a part of a name, only what has a value is hidden.
    """
    return _QUERY.sub(
        lambda url: url[1] + _ITEM.sub(lambda item: _shown(url[1], *item.groups("")), url[2]),
        _USER.sub("***@", text),
    )


def _shown(url: str, mark: str, name: str, value: str) -> str:
    is_shown = re.fullmatch(r"\d{0,8}", value) or not (name or url.startswith("http"))
    return mark + name + (value if is_shown else "***")


def repr_without_secrets(value: object) -> str:
    """What `repr` says of a value, as it may be shown."""
    return without_secrets(repr(value))


def cleaned(error: BaseException) -> BaseException:
    """Get an error whose texts may be shown, with those that have led to it.

    Where its texts have secrets, it is replaced by one of the builtin class from which its own derives.
    """
    clean: BaseException = error
    texts = f"{error} {error!r} {getattr(error, '__notes__', '')}"
    if without_secrets(texts) != texts:
        base: Any = next(each for each in type(error).__mro__ if each.__module__ == "builtins")
        clean = base.__new__(base, without_secrets(f"{type(error).__name__}: {error}"))
    cause, context, is_suppressed = error.__cause__, error.__context__, error.__suppress_context__
    clean.__cause__ = None if cause is None else cleaned(cause)
    clean.__context__ = clean.__cause__ if context is cause or context is None else cleaned(context)
    clean.__suppress_context__ = is_suppressed
    return clean.with_traceback(error.__traceback__)
