# SPDX-License-Identifier: Apache-2.0
"""Errors for unknown arguments of a class, which suggest the right one; signatures of passed-on arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from .errors import UnknownArgumentError

_Init = TypeVar("_Init", bound=Callable[..., Any])


def explains_unknown_arguments(init: _Init) -> _Init:
    """Decorate an ``__init__``, or a class, so that the error for an unknown argument names a similar one.

    Where the class has a dict ``arguments_elsewhere``, the error says what it has for the name of an argument.
    """
    if isinstance(init, type):
        cast(Any, init).__init__ = explains_unknown_arguments(cast(Any, init).__init__)
        return init
    parameters = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked_init(self: Any, /, *args: Any, **arguments: Any) -> None:
        for name in arguments:
            if name not in parameters:
                elsewhere: Mapping[str, str] = getattr(type(self), "arguments_elsewhere", {})
                hint = f" {elsewhere[name]}" if name in elsewhere else _argument_meant(name, parameters)
                raise UnknownArgumentError(f"`{name}` is not an argument of {type(self).__name__}.{hint}")
        init(self, *args, **arguments)

    return cast(_Init, checked_init)


def _argument_meant(name: str, known: Iterable[str]) -> str:
    """Suggest an argument; ``timestamp_name`` is not meant as ``frames_name``, although most letters agree."""
    by_subject = {_NAME_ENDING.sub("", each): each for each in known}
    subject = _NAME_ENDING.sub("", name)
    similar = [each for each in by_subject if _are_similar(subject, each)]
    meant = difflib.get_close_matches(subject, similar, 1) or similar
    if len(meant) == 1:
        return f" Did you mean {by_subject[meant[0]]!r}?"
    return f" It has {', '.join(each for each in known if each != 'self')}."


def _are_similar(one: str, other: str) -> bool:
    """Whether nearly all letters agree, or the beginnings of two words: ``stride`` is not meant as ``stream``."""
    if difflib.SequenceMatcher(None, one, other).ratio() >= 0.8 or other.startswith(f"{one}_"):
        return True
    beginnings = ({word[:4] for word in name.split("_") if len(word) >= 4} for name in (one, other))
    return not set.isdisjoint(*beginnings)


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
