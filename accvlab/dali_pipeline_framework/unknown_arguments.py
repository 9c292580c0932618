# SPDX-License-Identifier: Apache-2.0
"""Errors for unknown arguments of a class, which suggest the right one; signatures of passed-on arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import attrs

from .errors import UnknownArgumentError
from .short_tracebacks import with_short_traceback

_Init = TypeVar("_Init", bound=Callable[..., Any])


def in_settings(settings: type) -> dict[str, str | None]:
    """Get the counterparts of arguments that are fields of a class of settings."""
    return {field.name: f"{settings.__name__}({field.name}=...)" for field in attrs.fields(settings)}


def explains_unknown_arguments(counterparts: Mapping[str, str | None] | None = None) -> Callable[[_Init], _Init]:
    """Decorate an ``__init__``, or a class, so that the error for an unknown argument names the one meant.

    Args:
        counterparts: Arguments of other libraries, and their replacements here; None for one that is not needed.
    """

    def decorate(init: _Init) -> _Init:
        if isinstance(init, type):
            cast(Any, init).__init__ = decorate(cast(Any, init).__init__)
            return init
        parameters = inspect.signature(init).parameters

        @with_short_traceback
        @functools.wraps(init)
        def checked_init(self: Any, /, *args: Any, **arguments: Any) -> None:
            for name in arguments:
                if name not in parameters:
                    hint = _argument_meant(name, parameters)
                    if counterparts and name in counterparts:
                        counterpart = counterparts[name]
                        hint = " It is not needed." if counterpart is None else f" Use `{counterpart}`."
                    raise UnknownArgumentError(f"`{name}` is not an argument of {type(self).__name__}.{hint}")
            init(self, *args, **arguments)

        return cast(_Init, checked_init)

    return decorate


def _argument_meant(name: str, known: Iterable[str]) -> str:
    """Suggest an argument; ``timestamp_name`` is not meant as ``frames_name``, although most letters agree."""
    by_subject = {_NAME_ENDING.sub("", each): each for each in known}
    close = difflib.get_close_matches(_NAME_ENDING.sub("", name), by_subject, 1)
    return f" Did you mean {by_subject[close[0]]!r}?" if close else ""


_NAME_ENDING = re.compile("_names?$")


def has_settings(settings: type, taker: Callable[..., Any]) -> Callable[[_Init], _Init]:
    """Decorate an ``__init__`` so that its signature has the settings that it takes as keywords and passes on.

    Args:
        settings: A ``TypedDict`` of them.
        taker: The callable that gets them; its signature has their defaults.
    """

    def decorate(init: _Init) -> _Init:
        signature, of_taker = inspect.signature(init), inspect.signature(taker).parameters
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        shared = [of_taker[name] for name in settings.__annotations__]
        cast(Any, init).__signature__ = signature.replace(parameters=[*own, *shared])
        return init

    return decorate
