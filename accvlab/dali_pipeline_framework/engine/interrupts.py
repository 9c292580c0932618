# SPDX-License-Identifier: Apache-2.0
"""Handling of SIGINT (Ctrl-C) while DALI waits for its workers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class DeferredInterrupt:
    """Within this context, SIGINT does not raise where it hits, but at the end of the context.

    DALI waits on conditions that are shared between processes. An exception out of the middle of such a wait
    leaves them in a state in which workers wait for ever and other calls fail. So the signal only asks for the
    wait to be ended (``on_interrupt``), and the handler that was there before runs when the wait is over.

    Outside the main thread, and where SIGINT is ignored, nothing is done.
    """

    def __init__(self, on_interrupt: Callable[[], None]) -> None:
        """Set up; ``on_interrupt`` is called in the signal handler and must make the wait end soon."""
        self._on_interrupt = on_interrupt
        self._previous: Callable[[int, FrameType | None], Any] | None = None
        self._is_pending = False

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        previous = signal.getsignal(signal.SIGINT)
        if callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self._note)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if not self._is_pending:
            self._is_pending = True
            self._on_interrupt()

    def __exit__(self, *exception: object) -> None:
        if self._previous is None:
            return
        signal.signal(signal.SIGINT, self._previous)
        if not self._is_pending:
            return
        try:
            self._previous(signal.SIGINT, None)
        except BaseException as interrupt:
            raise interrupt from None  # that the wait was ended early is no news
