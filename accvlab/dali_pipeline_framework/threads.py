# SPDX-License-Identifier: Apache-2.0
"""Calls in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


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

    before = threading.stack_size(stack_bytes) if stack_bytes else None
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    finally:
        if before is not None:
            threading.stack_size(before)
    return future
