# SPDX-License-Identifier: Apache-2.0
"""Pickling of inputs for spawned workers, with errors that name the attribute to blame."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nvidia.dali.pickling import _DaliPickle

from ..errors import SourcePicklingError

PICKLING_ADVICE = (
    "pass cloudpickle as pickler (`py_callback_pickler=cloudpickle` to get_dali_pipeline, "
    '`pipeline_arguments={"py_callback_pickler": cloudpickle}` to DataLoader), or fork the workers '
    "(`py_start_method='fork'` to get_dali_pipeline, `start_method='fork'` to DataLoader)"
)

Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes], Any]


def pickler_functions(py_callback_pickler: Any) -> tuple[Dumps, Loads]:
    """Get ``dumps`` and ``loads`` of DALI's ``py_callback_pickler`` argument (None: DALI's own pickler).

    Like DALI, accepts a module or object with ``dumps`` and ``loads``, or a tuple of that and up to two
    dicts of keyword arguments.
    """
    if py_callback_pickler is None:
        return _DaliPickle.dumps, _DaliPickle.loads
    dumps_kwargs: Mapping[str, Any] = {}
    loads_kwargs: Mapping[str, Any] = {}
    pickler = py_callback_pickler
    if isinstance(py_callback_pickler, tuple | list):
        pickler, *rest = py_callback_pickler
        dumps_kwargs = (rest[0] if rest else None) or {}
        loads_kwargs = (rest[1] if len(rest) > 1 else None) or {}
    # Not lambdas: `loads` travels to the worker itself, by the same pickler.
    return functools.partial(pickler.dumps, **dumps_kwargs), functools.partial(pickler.loads, **loads_kwargs)


def pickle_for_worker(value: Any, what: str, name: str, dumps: Dumps) -> bytes:
    """Pickle what a worker process needs.

    Args:
        value: What to pickle.
        what: What it is, for the message, e.g. ``"The input"``.
        name: How to call it in the path of an attribute, e.g. the name of its class.
        dumps: The pickler.

    Raises:
        SourcePicklingError: It cannot be pickled; the message names the innermost attribute to blame.
    """
    try:
        return dumps(value)
    except Exception as error:
        path, culprit = _find_culprit(value, name, dumps, set())
        advice = "Create it on first use instead of in the constructor, leave it out in `__getstate__`"
        if "<locals>" in type(culprit).__qualname__:
            advice = "Define its class at the top level of a module, not in a function"
        raise SourcePicklingError(
            f"{what} cannot be sent to a spawned worker process, because `{path}` "
            f"({type(culprit).__module__}.{type(culprit).__qualname__}) cannot be pickled: {error}\n"
            f"{advice}, {PICKLING_ADVICE}."
        ) from error


def _find_culprit(value: Any, path: str, dumps: Dumps, visited: set[int]) -> tuple[str, Any]:
    visited.add(id(value))
    for child_path, child in _children(value, path):
        if id(child) in visited:
            continue
        try:
            dumps(child)
        except Exception:
            return _find_culprit(child, child_path, dumps, visited)
    return path, value


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What `pickle` would visit below a value: items of containers, else the attributes of its state."""
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{path}[{index}]", child) for index, child in enumerate(value))
    else:
        state = _state_of(value)
        yield from ((f"{path}.{name}", child) for name, child in state.items())


def _state_of(value: Any) -> Mapping[str, Any]:
    get_state = getattr(type(value), "__getstate__", None)
    if get_state is not None and get_state is not getattr(
        object, "__getstate__", None
    ):  # the default exists from Python 3.11 on
        try:
            state = get_state(value)
        except Exception:
            state = None
        if isinstance(state, Mapping):
            return state
    return getattr(value, "__dict__", {})
