# SPDX-License-Identifier: Apache-2.0
"""Queues between DALI and its worker processes that a killed process does not block, and no worker outlives."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import connection, parent_process
from typing import Any

from nvidia.dali._multiproc import pool
from nvidia.dali._multiproc.pool import Observer
from nvidia.dali._multiproc.shared_queue import ShmQueue

from ...threads import give_lock

LOCKED_AT_MOST_S = 5.0  # far more than a queue is locked for; after that, who has locked it was killed
_LOOK_EACH_S = 0.1


class _Lock:
    """A lock between processes that is not waited for once it is given up: its holder may have been killed."""

    def __init__(self, context: Any) -> None:
        self.lock = context.Lock()
        self.is_given_up = False  # in this process

    def __enter__(self) -> None:
        while not self.lock.acquire(timeout=_LOOK_EACH_S) and not self.is_given_up:
            pass

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ValueError):  # given up, and not locked
            self.lock.release()


class _Signal:
    """What a queue uses of `multiprocessing.Condition`, without its wait for the process that it wakes up.

    That wait never ends if this process was killed, as workers are that wait for something to do.
    """

    def __init__(self, context: Any, lock: _Lock) -> None:
        self._lock = lock
        self._signals = context.Semaphore(0)

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._lock.__exit__()

    def wait(self) -> None:
        """Wait for a signal, with the lock released meanwhile. There can be one though nothing has changed."""
        self._lock.__exit__()
        try:
            self._signals.acquire()
        finally:
            self._lock.__enter__()

    def notify(self) -> None:
        """Have one process go on that waits, or that will do so next; called with the lock."""
        if self._signals.get_value() == 0:
            self._signals.release()


class _Queue(ShmQueue):
    """A queue of DALI that can be closed in any case, together with others."""

    meta: Any
    others: Sequence[_Queue] = ()

    def __init__(self, context: Any, capacity: int) -> None:
        super().__init__(context, capacity)
        self.lock = _Lock(context)
        self.cv_not_empty = _Signal(context, self.lock)
        self._made_by = os.getpid()

    def get(self, num_samples: int | None = 1, predicate: Any = None) -> Any:
        if os.getpid() != self._made_by:
            _end_with_parent()  # DALI's workers wait without end if nobody is left who closes the queue
        return super().get(num_samples, predicate)

    def close(self) -> None:
        for queue in (self, *self.others):
            queue._close()

    def _close(self) -> None:
        if self.is_closed:
            return
        has_lock = self.lock.lock.acquire(timeout=LOCKED_AT_MOST_S)
        self.is_closed = self.lock.is_given_up = True
        self._read_meta()
        self.meta.is_closed = 1
        self._write_meta()
        self.cv_not_empty.notify()
        if has_lock:
            self.lock.__exit__()


_ends_with_parent = 0  # the process that does


def _end_with_parent() -> None:
    """Have this process end soon after the one that has started it, however that ends; it waits in a thread."""
    global _ends_with_parent
    pid, parent, process = os.getpid(), os.getppid(), parent_process()
    if _ends_with_parent == pid or process is None:
        return
    _ends_with_parent = pid

    def wait() -> None:
        # A process that was forked by the same parent after this one may hold what is waited for.
        while not connection.wait([process.sentinel], 1.0) and os.getppid() == parent:
            pass
        os._exit(1)

    threading.Thread(target=wait, name="ends with its parent", daemon=True).start()


class _Observer(Observer):
    """Closes all queues when a worker has ended: DALI waits to hand tasks over as well as for results."""

    def __init__(self, context: Any, processes: Any, task_queues: Sequence[_Queue], results: _Queue) -> None:
        results.others = task_queues
        super().__init__(context, processes, task_queues, results)

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                if process.is_alive():  # DALI waits for its end; a stopped one has none
                    os.kill(process.pid, signal.SIGCONT)
        super().close()


class _Starts:
    """At most one thread at a time replaces what DALI uses."""

    lock: threading.RLock

    def __init__(self) -> None:
        give_lock(self)


_starts = _Starts()


@contextlib.contextmanager
def unblockable_queues() -> Iterator[None]:
    """Have DALI use such queues for the workers that it starts meanwhile."""
    with _starts.lock:
        used = vars(pool)
        replaced = {name: used[name] for name in ("ShmQueue", "Observer")}
        used.update(ShmQueue=_Queue, Observer=_Observer)
        try:
            yield
        finally:
            used.update(replaced)
