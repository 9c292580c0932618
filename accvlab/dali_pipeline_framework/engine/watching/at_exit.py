# SPDX-License-Identifier: Apache-2.0
"""Pipelines with workers are closed when the process ends."""

from __future__ import annotations

import atexit
import functools
import weakref
from typing import Protocol


class Closable(Protocol):
    """What can be closed, also more than once."""

    def close(self) -> None:
        """Give back what is held."""


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_exit(pipeline: Closable) -> None:
    """Close a pipeline when the process ends, if it is still there."""
    _register()
    _open.add(pipeline)


@functools.cache
def _register() -> None:
    # At exit, `multiprocessing` waits for ever for workers that nobody told to end. Exit functions run in the
    # reverse order of their registration, so this one is registered after (the import of) that one.
    import multiprocessing.util

    _ = multiprocessing.util
    atexit.register(_close_all)


def _close_all() -> None:
    for pipeline in list(_open):
        pipeline.close()
