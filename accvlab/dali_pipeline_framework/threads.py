# SPDX-License-Identifier: Apache-2.0
"""Calls in threads of their own, locks that a forked process has anew, and OpenCV in one thread."""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import attrs

_T = TypeVar("_T")

_LOOK_EACH_S = 0.05


def called_in_thread(action: Callable[[], _T], name: str) -> Future[_T]:
    """Call a function in a new thread of a name, which ends with the process at the latest."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def give_lock(owner: Any) -> None:
    """Give an object an attribute ``lock``, which a thread that holds it can acquire again."""
    owner.lock = threading.RLock()
    _owners.add(owner)


def _renew_locks() -> None:
    for owner in _owners:
        owner.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


class Job:
    """What another thread does, once: no signal handler runs in it, whose exception would leave it half done.

    Attributes:
        is_done: Whether it has ended.
        result: What it has returned.
        error: What it has raised.
    """

    def __init__(self, function: Callable[[], Any], begin: Callable[[Callable[[], None]], None]) -> None:
        """Set what is to be done, and what has a thread do it; nothing is started."""
        self._function, self._begin = function, begin
        self._first, self._end = threading.Lock(), threading.Lock()
        self._end.acquire()
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start it, if it was not yet."""
        if not self._first.locked():
            self._begin(self._run)

    def wait(self, look: Callable[[], None] = lambda: None) -> None:
        """Start it, if it was not yet, and wait for its end; meanwhile something else is called each 0.05 s.

        An exception may end that; the next call goes on.
        """
        self.start()
        while not self.is_done and not self._end.acquire(timeout=_LOOK_EACH_S):
            look()

    def _run(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
            self._end.release()


def in_new_thread(function: Callable[[], None]) -> None:
    """Have a thread call a function. An exception in the middle would leave a `threading.Thread` half started."""
    _thread.start_new_thread(function, ())


@attrs.define
class _LastingThread:
    """A thread that ends with its process.

    Attributes:
        functions: What it is to call.
        number: Its number in the kernel; 0 before it runs.
    """

    functions: SimpleQueue[Callable[[], None]] = attrs.Factory(SimpleQueue)
    number: int = 0

    def call_all(self) -> None:
        self.number = threading.get_native_id()
        while True:
            self.functions.get()()


_lasting: dict[int, _LastingThread] = {}  # by process: a forked one has the dict of its parent


def in_lasting_thread(function: Callable[[], None]) -> None:
    """Have a thread that ends with this process call a function, one after the other; it must not raise."""
    pid = os.getpid()
    if pid not in _lasting:
        thread = _LastingThread()
        _thread.start_new_thread(thread.call_all, ())
        _lasting.setdefault(pid, thread)
    _lasting[pid].functions.put(function)


def lasting_thread() -> int:
    """The kernel's number of the thread that `in_lasting_thread` uses; 0 before there is one."""
    thread = _lasting.get(os.getpid())
    return 0 if thread is None else thread.number


class _OpenCvThreads:
    """Counts who needs OpenCV to compute in one thread, and remembers how many it had before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._given: int | None = None

    def begin(self, user: OneThreadOfOpenCv) -> None:
        with self._lock:
            user.counted_by = self
            self._users += 1
            self._set_one()
            if user.ends_others and self._given is not None:
                sys.modules["cv2"].setNumThreads(1)

    def end(self, user: OneThreadOfOpenCv) -> None:
        with self._lock:
            user.counted_by = None
            self._users -= 1
            if not self._users and self._given is not None:
                sys.modules["cv2"].setNumThreads(self._given)
                self._given = None

    def was_imported(self) -> None:
        with self._lock:
            if self._users:
                self._set_one()

    def _set_one(self) -> None:
        opencv: Any = sys.modules.get("cv2")
        count = getattr(opencv, "getNumThreads", int)()  # while it is being imported, it has none
        if count > 1:
            self._given = count
            opencv.setNumThreads(0)  # in the calling thread; unlike 1, it keeps the others for later


_opencv_threads = _OpenCvThreads()


def opencv_was_imported() -> None:
    """Have OpenCV compute in one thread, if it was imported where that is needed."""
    _opencv_threads.was_imported()


def _forget_threads_of_opencv() -> None:
    """In a forked process, nobody is there to end what other threads have begun, or to open their lock."""
    global _opencv_threads
    _opencv_threads = _OpenCvThreads()


os.register_at_fork(after_in_child=_forget_threads_of_opencv)


class OneThreadOfOpenCv(contextlib.AbstractContextManager[None]):
    """Has OpenCV compute in the calling thread within a ``with`` statement, as in workers; then as before.

    With several threads, some of its functions cut images into parts whose pixels differ by a grey level. It is no
    generator, since `contextlib` sets an attribute of each exception, which not every class allows.

    Attributes:
        ends_others: Whether its other threads end; then they are started again when they are needed.
        counted_by: What counts this; None outside of the statement.
    """

    def __init__(self, *, ends_others: bool = False) -> None:
        """Set up; nothing is changed yet."""
        self.ends_others = ends_others
        self.counted_by: _OpenCvThreads | None = None

    def __enter__(self) -> None:
        _opencv_threads.begin(self)

    def __exit__(self, *exception: object) -> None:
        if self.counted_by is _opencv_threads:
            _opencv_threads.end(self)
