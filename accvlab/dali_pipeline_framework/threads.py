# SPDX-License-Identifier: Apache-2.0
"""Calls in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def called_in_thread(action: Callable[[], _T], name: str, stack_bytes: int = 0) -> Future[_T]:
    """Call a function in a new thread, which ends with the process at the latest.

    Args:
        action: The function.
        name: Name of the thread.
        stack_bytes: Memory for its calls; 0 for as much as other threads have.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    before = threading.stack_size(stack_bytes) if stack_bytes else None
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    finally:
        if before is not None:
            threading.stack_size(before)
    return future
