# SPDX-License-Identifier: Apache-2.0
"""Errors for unknown arguments of a class, which suggest the right one; signatures of passed-on arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
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
                hint = f" {elsewhere[name]}" if name in elsewhere else _argument_meant(name, [*parameters][1:])
                is_own = type(self).__init__ is checked_init  # not that of a subclass, which passes arguments on
                of = type(self).__name__ if is_own else init.__qualname__.rpartition(".")[0]
                raise UnknownArgumentError(f"`{name}` is not an argument of {of}.{hint}")
        init(self, *args, **arguments)

    return cast(_Init, checked_init)


def _argument_meant(name: str, known: Sequence[str]) -> str:
    """Suggest an argument; ``timestamp_name`` is not meant as ``frames_name``, although most letters agree."""
    subject, by_subject = _subject(name), {_subject(each): each for each in known}
    scores = {each: _similarity(subject, each) for each in by_subject}
    best = sorted((each for each, score in scores.items() if score), key=scores.__getitem__, reverse=True)
    if not best:
        return f" It has {', '.join(known)}."
    meant = best[:1] if scores[best[0]] >= _ALIKE else best[:3]
    return f" Did you mean {' or '.join(repr(by_subject[each]) for each in meant)}?"


def _similarity(one: str, other: str) -> float:
    """How similar names are, at most 1. 0 if no words begin alike: ``stride`` is not meant as ``stream``."""
    share = difflib.SequenceMatcher(None, one, other).ratio()
    if share >= _ALIKE or other.startswith(f"{one}_"):
        return share
    beginnings = ({word[:4] for word in name.split("_") if len(word) >= 4} for name in (one, other))
    has_prefix = one.startswith(other) or other.startswith(one)
    return 0.0 if set.isdisjoint(*beginnings) or (share < _LEAST and not has_prefix) else share


def _subject(name: str) -> str:
    return _NAME_ENDING.sub("", name)


_ALIKE, _LEAST = 0.8, 0.6
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
