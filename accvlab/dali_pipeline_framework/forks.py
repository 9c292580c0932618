# SPDX-License-Identifier: Apache-2.0
"""Children that the program forks leave alone what works for their parent: processes, and threads of native code.

A forked child has copies of all objects, and one thread. Native code that is destroyed there waits indefinitely
for its threads, or aborts; and closing workers there would end the workers of the parent.
"""

from __future__ import annotations

import ctypes
import gc
import os
import weakref
from collections.abc import Callable
from multiprocessing import process as processes
from typing import Any, TypeVar

_T = TypeVar("_T")

# Looked up here: in a process that was just forked, another thread might have held the lock of the dynamic loader.
_increase_references: Any = ctypes.pythonapi.Py_IncRef
_actions: dict[weakref.ref[Any], Callable[[Any], object]] = {}
# Of forks that are under way: what they leave, and whether garbage was collected.
_found: list[tuple[list[tuple[Any, Callable[[Any], object]]], bool]] = []


def left_to_parent(owner: _T, leave: Callable[[_T], object]) -> None:
    """Have a function called with an object in each child that is forked, before anything destroys it there."""
    _actions[weakref.ref(owner, _forget)] = leave


def _forget(owner: weakref.ref[Any]) -> None:
    _actions.pop(owner, None)


def keep_forever(value: object) -> None:
    """Have an object not be destroyed, not even when the process ends."""
    _increase_references(ctypes.py_object(value))


def leave_process(process: Any) -> None:
    """Forget a process of the parent: `multiprocessing` would end it, and wait for it, when this one ends."""
    vars(processes).get("_children", set()).discard(process)


def _hold() -> None:
    """Before a fork: what is garbage already is not collected until it was left."""
    collects = gc.isenabled()
    gc.disable()
    _found.append(
        ([(owner, leave) for ref, leave in [*_actions.items()] if (owner := ref()) is not None], collects)
    )


def _go_on() -> None:
    _, collects = _found.pop()
    if collects:
        gc.enable()


def _leave() -> None:
    # What is garbage of the parent is never collected here: pipelines of DALI that are not ours may be in it.
    gc.freeze()
    owners, _ = _found[-1]
    for owner, leave in owners:
        leave(owner)
    _go_on()
    _found.clear()


os.register_at_fork(before=_hold, after_in_parent=_go_on, after_in_child=_leave)
