# SPDX-License-Identifier: Apache-2.0
"""The filter for all text that leaves the package: no passwords, signatures or keys of URLs.

Errors of this package pass it when they are made, reports of workers when they are written, and errors of other
libraries about URLs by `cleaned`, before a user can see them.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

_HIDDEN: Final = "***"
# Most texts have nothing to hide; they cost one search.
_SUSPICIOUS: Final = re.compile(r"://|%(?:25)*3[af]|[?&;#][^=\s]*=|secret|passw|passph|authoriz|key|token", re.I)
# Up to the first "/"; or, where no port follows the colon, up to the last "@": passwords that nobody encoded.
_USER: Final = re.compile(r"(?<=://)(?:[^/\s]+@|[^\s/@:]*:(?![:/]|\d+(?:[/?#\s'\"]|$))\S*@)")
# A quote belongs to a URL only where it goes on after it.
_QUERY: Final = re.compile(r"(://(?:(?!::)[^\s?#])*)((?:(?!::)[^\s'\"<>]|['\"](?=[\w%&=+/@-]))+)")
_ITEM: Final = re.compile(r"([?&;#])([^=&;#]*)(=?)([^&;#]*)")
_HARMLESS: Final = re.compile(r"\d{1,8}")  # such as the number of a part, or of a version
_NAMES: Final = r"sig|token|secret|passw|passphrase|pwd|credential|auth|policy|accessid|api_?key|[\w-]key|key-"
_NAMED: Final = re.compile(rf"([?&;#][^=&;#\s]*(?:{_NAMES})[^=&;#\s]*=)[^&;#\s'\"]+", re.I)
# A URL that is a part of another one, or a query that was taken for a part of the path.
_ENCODED: Final = re.compile(r"(%(?:25)*(?:3a%(?:25)*2f%(?:25)*2f|3f))[^\s'\"]+", re.I)
# An entry of a dict, or an argument of a call.
_ENTRY: Final = re.compile(
    r"(['\"]?\b[\w-]*(?:secret|password|passwd|passphrase|authorization|(?:api|account|access|private)[_-]?key"
    r"|(?:sas|access|security|session|auth|refresh|bearer)[_-]?token)[\w-]*['\"]?\s*[:=]\s*b?)(['\"]).*?\2",
    re.I,
)


def without_secrets(text: str) -> str:
    """A text as it may be shown: in its URLs users, passwords, and values of queries are ``***``.

    Numbers of at most eight digits stay, as in ``?part=1``. Of queries of other protocols than HTTP, where ``?``
    can be a part of a name, only what has a value is hidden.
    """
    if not _SUSPICIOUS.search(text):
        return text
    text = _USER.sub(f"{_HIDDEN}@", text)
    text = _QUERY.sub(_without_query, text)
    text = _NAMED.sub(rf"\1{_HIDDEN}", text)
    text = _ENCODED.sub(rf"\1{_HIDDEN}", text)
    return _ENTRY.sub(rf"\1\2{_HIDDEN}\2", text)


def _without_query(url: re.Match[str]) -> str:
    is_http = url.string[: url.start()].lower().endswith(("http", "https"))

    def shown(item: re.Match[str]) -> str:
        mark, name, equals, value = item.groups()
        if not equals:
            return f"{mark}{_HIDDEN}" if is_http and name else item[0]
        return f"{mark}{name}={value if _HARMLESS.fullmatch(value) or not value else _HIDDEN}"

    return url[1] + _ITEM.sub(shown, url[2])


def repr_without_secrets(value: object) -> str:
    """What `repr` says of a value, as it may be shown."""
    return without_secrets(repr(value))


def cleaned(error: BaseException) -> BaseException:
    """Take the secrets out of the texts of an error, and of the errors that have led to it.

    Returns:
        The error, or where its texts cannot be changed, another one of the same class in its place.
    """
    return _cleaned(error, {})


def _cleaned(error: BaseException, done: dict[int, BaseException]) -> BaseException:
    if id(error) in done:
        return done[id(error)]
    clean = done[id(error)] = _cleaned_alone(error)
    cause, context, is_suppressed = error.__cause__, error.__context__, error.__suppress_context__
    clean.__cause__ = None if cause is None else _cleaned(cause, done)
    clean.__context__ = None if context is None else _cleaned(context, done)
    clean.__suppress_context__ = is_suppressed
    return clean


def _cleaned_alone(error: BaseException) -> BaseException:
    error.args = tuple(map(_cleaned_value, error.args))
    for name in ("filename", "filename2", "strerror"):  # of an OSError, which prints them
        if isinstance(getattr(error, name, None), str) and isinstance(error, OSError):
            setattr(error, name, without_secrets(getattr(error, name)))
    notes = getattr(error, "__notes__", None)
    if notes is not None:
        error.__notes__ = [_cleaned_value(note) for note in notes]
    try:
        text, shown = str(error), repr(error)
    except Exception:  # then nothing of it is printed
        return error
    if without_secrets(text) == text and without_secrets(shown) == shown:
        return error
    return _substitute(error, without_secrets(text))


def _cleaned_value(value: Any) -> Any:
    return without_secrets(value) if isinstance(value, str) else value


def _substitute(error: BaseException, text: str) -> BaseException:
    """An error of the same class with only a text, and the numbers that the other one has."""
    key: Any = type(error)
    substitute_class = _substitute_class(key)
    try:
        made = substitute_class.__new__(substitute_class)
    except Exception:  # the class wants arguments that nobody has here
        key = Exception
        made = Exception.__new__(_substitute_class(key))
    made.args = (text,)
    if isinstance(made, OSError) and isinstance(error, OSError):
        made.errno = error.errno
    for name, value in vars(error).items():
        if isinstance(value, int | str | None) and not name.startswith("__"):
            vars(made)[name] = _cleaned_value(value)
    return made.with_traceback(error.__traceback__)


@functools.cache
def _substitute_class(error_class: type[BaseException]) -> type[BaseException]:
    def __init__(self: BaseException, *arguments: object) -> None:  # noqa: N807
        self.args = arguments

    def __str__(self: BaseException) -> str:  # noqa: N807
        return str(self.args[0]) if self.args else ""

    def __repr__(self: BaseException) -> str:  # noqa: N807
        return f"{error_class.__name__}({', '.join(map(repr, self.args))})"

    methods = {"__init__": __init__, "__str__": __str__, "__repr__": __repr__}
    names = {"__module__": error_class.__module__, "__qualname__": error_class.__qualname__}
    return type(error_class.__name__, (error_class,), {**methods, **names})
