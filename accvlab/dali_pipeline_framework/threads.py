# SPDX-License-Identifier: Apache-2.0
"""Calls in threads of their own, and locks that a forked process has anew."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")

_size_lock = threading.Lock()  # the size of stacks is a setting of the process


def called_in_thread(action: Callable[[], _T], name: str, stack_bytes: int = 0) -> Future[_T]:
    """Call a function in a new thread of a name, which ends with the process at the latest.

    Its calls get the memory that other threads have, or so many bytes.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    if not stack_bytes:
        thread.start()
        return future
    with _size_lock:
        before = threading.stack_size(stack_bytes)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return future


_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def give_lock(owner: Any) -> None:
    """Give an object an attribute ``lock``, which a thread that holds it can acquire again."""
    owner.lock = threading.RLock()
    _owners.add(owner)


def _renew_locks() -> None:
    global _size_lock
    _size_lock = threading.Lock()  # a thread of the parent may hold that one for ever
    for owner in _owners:
        owner.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)
