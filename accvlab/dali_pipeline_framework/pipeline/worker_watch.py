# SPDX-License-Identifier: Apache-2.0
"""Keeps a worker that is killed at a bad moment from taking the main process with it."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import threading
from typing import Any

_LONGEST_HOLD_S = 1.0  # workers hold the locks of the queues for micro- to milliseconds


def watch_workers(pool: Any) -> None:
    """Free what a worker holds when it is killed.

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
    processes, observer, queues = list(pool._processes), pool._observer, queues_of(pool)
    del pool
    multiprocessing.connection.wait([process.sentinel for process in processes])
    for queue in queues:
        if queue.lock.acquire(timeout=_LONGEST_HOLD_S):
            queue.lock.release()
        else:
            with contextlib.suppress(ValueError):  # it was given back after all
                queue.lock._semlock.release()
    if observer is None or observer.thread is None:
        return
    observer.thread.join(2 * _LONGEST_HOLD_S)
    # The worker may have died while it was about to wake the main thread. To be woken for nothing does no harm:
    # the queue is closed by now.
    queues[0].cv_not_empty._wait_semaphore.release()
