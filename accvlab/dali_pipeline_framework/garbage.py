# SPDX-License-Identifier: Apache-2.0
"""Python's search for garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Let Python not look for reference cycles, within a ``with`` statement.

    For code that makes many objects which all stay: each search would go through all of them, and all others.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
