# SPDX-License-Identifier: Apache-2.0
"""Pickling of inputs for spawned workers, with errors that name the attribute to blame.

Classes and functions go by name where a worker can import them, and by value if they are of an interactive
session.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from nvidia.dali.reducers import DaliCallbackPickler

from ..errors import SourcePicklingError, text_of


def main_script() -> str | None:
    """Path of the script that spawned workers import as the main module; None in an interactive session.

    A notebook and Python's prompt have none, nor has code from ``python -c`` and from the standard input. Python
    does not import the ``__main__`` of a package in workers.
    """
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", "").endswith("__main__"):
        return None
    path: str | None = getattr(main, "__file__", None)
    return path if path is not None and os.path.isfile(path) else None


def guard_around(name: str, script: str) -> int | None:
    """Line of the main guard of a script that a name is defined below; None if it is defined elsewhere, too."""
    try:
        statements = ast.parse(Path(script).read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # the worker will say what it is
        return None
    guards = [guard for defined, guard in _definitions(statements, None) if defined == name]
    return None if None in guards else next(iter(guards), None)


def _definitions(nodes: Iterable[ast.AST], guard: int | None) -> Iterator[tuple[str, int | None]]:
    """Names that the statements of a module define, each with the line of the main guard that it is below."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, guard  # what is defined in it is not of the module
            case ast.If():
                is_guard = _is_guard(node.test)
                yield from _definitions(node.body, node.lineno if is_guard else guard)
                yield from _definitions(node.orelse, node.lineno if is_guard is False else guard)
            case ast.Import() | ast.ImportFrom():
                module = sys.modules.get(getattr(node, "module", None) or "")
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    yield from ((name, guard) for name in (dir(module) if bound == "*" else [bound]))
            case ast.Name(ctx=ast.Store()):
                yield node.id, guard
            case _:
                yield from _definitions(ast.iter_child_nodes(node), guard)


def _is_guard(test: ast.expr) -> bool | None:
    """Whether a condition holds in the main script only; False: only elsewhere; None: neither."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = {ast.unparse(node.left), ast.unparse(node.comparators[0])}
            if sides == {"__name__", "'__main__'"} and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                return isinstance(node.ops[0], ast.Eq)
    return None


PICKLING_ADVICE = (
    "or pass cloudpickle as pickler (`py_callback_pickler=cloudpickle` to get_dali_pipeline, "
    '`pipeline_arguments={"py_callback_pickler": cloudpickle}` to DataLoader)'
)

Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes], Any]


def pickler_functions(py_callback_pickler: Any) -> tuple[Dumps, Loads]:
    """Get ``dumps`` and ``loads`` of DALI's ``py_callback_pickler`` argument.

    None is DALI's own pickler, or cloudpickle for what is of an interactive session.

    Like DALI, accepts a module or object with ``dumps`` and ``loads``, or a tuple of that and up to two
    dicts of keyword arguments.
    """
    if py_callback_pickler is None:
        return _dumps, pickle.loads
    given = [*py_callback_pickler] if isinstance(py_callback_pickler, tuple | list) else [py_callback_pickler]
    pickler, dumps_kwargs, loads_kwargs = [*given, None, None][:3]
    # Not lambdas: `loads` travels to the worker itself, by the same pickler.
    dumps = functools.partial(pickler.dumps, **(dumps_kwargs or {}))
    return dumps, functools.partial(pickler.loads, **(loads_kwargs or {}))


def by_value_from_main_script(pickler: tuple[Dumps, Loads]) -> tuple[Dumps, Loads]:
    """Get a pickler for processes that do not import the main script of this one, where none was given."""
    if pickler[0] is not _dumps:
        return pickler
    import cloudpickle

    return cloudpickle.dumps, pickle.loads


class _UnreachableError(Exception):
    """A class or function that a worker could not import."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.advice = advice


class _OfSessionError(Exception):
    """A class or function is of an interactive session."""


class _ByName(DaliCallbackPickler):
    """DALI's pickler, which refuses what would go by a name that workers do not have."""

    def reducer_override(self, value: Any) -> Any:
        reduced = super().reducer_override(value)  # type: ignore[no-untyped-call]
        if reduced is NotImplemented and isinstance(value, type | FunctionType):
            if value.__module__ == "__main__":
                _require_reachable(value.__qualname__)
            elif value.__module__ is not None and value.__module__ not in sys.modules:
                try:
                    importlib.import_module(value.__module__)
                except ImportError:  # it names code that another program has run, e.g. a console
                    raise _OfSessionError from None
        return reduced


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    with contextlib.suppress(_OfSessionError):
        _ByName(file).dump(value)
        return file.getvalue()
    try:
        import cloudpickle
    except ImportError as error:
        raise _UnreachableError(
            f"it is defined in an interactive session, which a worker cannot import, and cloudpickle cannot be "
            f"imported ({error})",
            "Install cloudpickle (`pip install cloudpickle`), with which it is sent by value, or define it in a "
            "module",
        ) from None
    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def _require_reachable(name: str) -> None:
    """Raise an error if a worker does not have a name of the main module."""
    script = main_script()
    if script is None or ("<locals>" not in name and not _is_in_main(name)):  # the script of a profiler
        raise _OfSessionError
    line = guard_around(name.partition(".")[0], script)
    if line is not None:
        raise _UnreachableError(
            f'`{name}` is defined below the main guard (`if __name__ == "__main__":`, line {line} of {script}), '
            f"which a worker does not run when it imports the script",
            f"Move `{name}` above the main guard, or into a module of its own",
        )


def _is_in_main(name: str) -> bool:
    """Whether the main module has a name. A profiler may be the main module, and run the script in another one."""
    found: Any = sys.modules["__main__"]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None


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
        # Not `start_method="fork"`: what is open would be shared by all workers, and read at wrong places.
        advice = (
            "Create it on first use or in `worker_init_fn`, in each worker, instead of in the constructor, and "
            "leave it out in `__getstate__`"
        )
        if isinstance(error, _UnreachableError):
            advice = f"{error.advice}, {PICKLING_ADVICE}"
        elif "<locals>" in type(culprit).__qualname__:
            advice = f"Define its class at the top level of a module, not in a function, {PICKLING_ADVICE}"
        raise SourcePicklingError(
            f"{what} cannot be sent to a spawned worker process, because `{path}` "
            f"({type(culprit).__module__}.{type(culprit).__qualname__}) cannot be pickled: {text_of(error)}\n"
            f"{advice}."
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
    if get_state not in (None, getattr(object, "__getstate__", None)):  # the default exists from Python 3.11 on
        with contextlib.suppress(Exception):
            state = get_state(value)
            if isinstance(state, Mapping):
                return state
    return getattr(value, "__dict__", {})
