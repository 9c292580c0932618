# SPDX-License-Identifier: Apache-2.0
"""Handling of signals (Ctrl-C, timers) while a batch is made."""

from __future__ import annotations

import _thread
import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], Any]

_FORKS = "multiprocessing.popen_fork", "_launch"  # module and function
_PATIENCE_S = 1.0  # most batches are ready by then

# The functions of `signal` take microseconds more, to make members of enumerations.
_signals: Any = importlib.import_module("_signal")
_NUMBERS = tuple(map(int, signal.valid_signals()))


class Interrupted(KeyboardInterrupt):
    """Ends what takes too long after a signal; `DeferredInterrupt` then raises what the handler has raised.

    A `KeyboardInterrupt`: code that takes any other exception for a sample that cannot be loaded passes that on.
    """


class DeferredInterrupt:
    """Within this context, what signal handlers raise is not raised where they run, but at the end of the context.

    Handlers of Python run between any two operations of the main thread. An exception there leaves DALI's queues,
    and what counts batches, in the middle of something: batches would be lost, or come twice, and workers wait
    indefinitely. Handlers run at once nevertheless; only their exceptions wait.

    What takes longer than a second after that is ended: by ``end_wait`` of the innermost context, or else by an
    `Interrupted` in the middle of it. Outside the main thread, where no handlers run, nothing is done.

    Attributes:
        thread: The thread in which it is active.
        is_held: Whether nothing is to be ended at the moment, since it takes a short time only.
    """

    def __init__(self, end_wait: Callable[[], None] | None = None) -> None:
        """Set up; ``end_wait`` is called in another thread, and must make the context end soon."""
        self._end_wait = end_wait
        self._is_active = False

    def __enter__(self) -> None:
        global running
        self.thread = threading.get_ident()
        if self.thread != threading.main_thread().ident:
            return
        self.is_held = self._is_to_raise = self._has_ended_wait = False
        self._raised: BaseException | None = None
        self._is_active = True
        self._outer = running
        if self._outer is not None:
            self._outer._end_wait, self._end_wait = self._end_wait, self._outer._end_wait
            return
        self._lock = threading.Lock()
        for number, handler in zip(_NUMBERS, map(_signals.getsignal, _NUMBERS), strict=True):
            if callable(handler) and handler is not _handle:
                _handlers[number] = handler
                _signals.signal(number, _handle)
        running = self

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Run the handler of a signal."""
        if self._is_to_raise:
            self._is_to_raise = False
            if self._is_active and not self.is_held and not _is_forking(frame):  # else it is tried again
                raise Interrupted
            return
        try:
            _handlers[number](number, frame)
        except BaseException as error:
            if self._raised is None:
                with contextlib.suppress(RuntimeError):  # no thread can be started at the end of a program
                    _thread.start_new_thread(self._end_at_last, (number, self._lock))
            if self._raised is None or not isinstance(error, Exception):
                self._raised = error

    def _end_at_last(self, number: int, lock: threading.Lock) -> None:
        while True:  # code may swallow an exception, e.g. a callback of the garbage collector
            time.sleep(_PATIENCE_S)
            with lock:
                if not self._is_active or self._lock is not lock:  # which is that of another batch
                    return
                if self.is_held:
                    continue
                if self._end_wait is None:
                    self._is_to_raise = True
                    signal.pthread_kill(self.thread, number)
                else:
                    self._has_ended_wait = True
                    self._end_wait()

    def __exit__(self, *exception: object) -> None:
        global running
        if not self._is_active:
            return
        if self._outer is not None:
            self._outer._end_wait, self._end_wait = self._end_wait, self._outer._end_wait
            if self._outer._has_ended_wait:
                self._outer._has_ended_wait = False
                raise Interrupted from None  # in place of the error to which that has led
            return
        self._is_active = False
        if self._raised is not None:
            with self._lock:  # the other thread does nothing more
                pass
        running = None
        for number, handler in [*_handlers.items()]:
            if _signals.getsignal(number) is _handle:  # else it was set meanwhile
                _signals.signal(number, handler)
        raised, self._raised = self._raised, None
        try:
            if raised is not None:
                raise raised from None
        finally:
            del raised  # which has a traceback with this frame in it


def _is_forking(frame: FrameType | None) -> bool:
    """Whether a process is being forked: what modules do before and after that, e.g. with locks, must be whole."""
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == _FORKS:
            return True
        frame = frame.f_back
    return False


running: DeferredInterrupt | None = None
"""The outermost context that is active, in the main thread."""


def hold() -> None:
    """Have nothing ended until the end of the context: what it has waited for is here, and must not be lost."""
    if running is not None and running.thread == threading.get_ident():
        running.is_held = True


_handlers: dict[int, _Handler] = {}  # that are replaced meanwhile


def _handle(number: int, frame: FrameType | None) -> None:
    # A handler that raises while handlers are put back leaves others replaced until the next batch.
    if running is None:
        _handlers[number](number, frame)
    else:
        running.handle(number, frame)


def _forget() -> None:
    """In a forked process, which does not go on with the batch."""
    global running
    running = None


os.register_at_fork(after_in_child=_forget)
