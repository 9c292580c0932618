# SPDX-License-Identifier: Apache-2.0
"""Releases locks that a killed worker holds, for which the main process would wait for ever."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

_LONGEST_HOLD_S = 1.0  # workers hold the locks of the queues for micro- to milliseconds
_MOST_TRIES = 4


def watch_workers(pool: Any) -> None:
    """Watch the workers of a pool, and release the locks of one that is killed.

    Results and tasks travel through queues in shared memory with a lock each. A worker that is killed while
    it holds one never gives it back, and whoever waits for it, in DALI and in the main thread, waits for ever.

    Args:
        pool: DALI's pool of worker processes (``WorkerPool.pool``), started.
    """
    threading.Thread(target=_watch, args=(pool,), daemon=True, name="worker watch").start()


def queues_of(pool: Any) -> list[Any]:
    """The queues between a pool's workers and the main process."""
    dedicated = [worker.dedicated_task_queue for worker in pool._workers_contexts]
    return [queue for queue in (pool._result_queue, pool._general_task_queue, *dedicated) if queue is not None]


def _watch(pool: Any) -> None:
    processes, queues = list(pool._processes), queues_of(pool)
    del pool
    from multiprocessing import connection

    connection.wait([process.sentinel for process in processes])
    for queue in queues:
        for _ in range(_MOST_TRIES):
            if queue.lock.acquire(timeout=_LONGEST_HOLD_S):
                queue.lock.release()
                break
            _free(queue)


def _free(queue: Any) -> None:
    woken: Any = queue.cv_not_empty._woken_count
    if queue.lock._semlock._count() > 0:
        # This process holds the lock, and waits for the one that it has woken to say so: for a dead worker.
        woken.release()
        return
    # A dead worker holds it; most probably it waited for the main thread, which it had woken, to say so. The main
    # thread has said so by now, and what nobody has heard would confuse the next one who wakes somebody.
    while woken.acquire(False):
        pass
    # Python's own `release` would count as one of this process, which has not acquired it.
    ctypes.CDLL(None).sem_post(ctypes.c_void_p(queue.lock._semlock.handle))
