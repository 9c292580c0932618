# SPDX-License-Identifier: Apache-2.0
"""DALI's pool of workers: its queues, its memory, and its end. None stands for a pipeline without workers."""

from __future__ import annotations

import contextlib
import multiprocessing.util
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

from nvidia.dali._multiproc import pool as dali_pools

# To whom the pool that is being started is told: in this thread only, others may start pipelines of their own.
_GRACE_S = 1.0  # for the end of a worker, each time it is requested

_tell: ContextVar[Callable[[Any], None] | None] = ContextVar("_tell", default=None)


class _ToldPool(dali_pools.ProcPool):
    """Reports itself as soon as its processes run; DALI gives it only when all of them have reported."""

    def _sync_initialized_workers(self) -> None:
        tell = _tell.get()
        if tell is not None:
            tell(self)
        super()._sync_initialized_workers()  # type: ignore[no-untyped-call]
        _remove_names(self)


def _remove_names(pool: Any) -> None:
    """Remove the names of the semaphores of a pool: they stay in ``/dev/shm`` if this process is killed.

    The workers have opened them. With ``fork``, they have no names. `multiprocessing` would remove them later.
    """
    conditions = [queue.cv_not_empty for queue in queues_of(pool)]
    used = [lock for each in conditions for lock in vars(each).values()]
    for finalizer in [*getattr(multiprocessing.util, "_finalizer_registry", {}).values()]:
        reference = getattr(finalizer, "_weakref", None)
        if reference is not None and any(reference() is lock for lock in used):
            finalizer()


@contextlib.contextmanager
def told_of_pool(tell: Callable[[Any], None]) -> Iterator[None]:
    """Around the start of workers, one at a time: ``tell`` gets their pool before DALI waits for them."""
    made_by_dali, token = dali_pools.ProcPool, _tell.set(tell)
    dali_pools.ProcPool = _ToldPool  # type: ignore[misc]
    try:
        yield
    finally:
        dali_pools.ProcPool = made_by_dali  # type: ignore[misc]
        _tell.reset(token)


def queues_of(pool: Any) -> list[Any]:
    """The queues between the workers and this process: first that of the results.

    Args:
        pool: DALI's pool of processes (`ProcPool`).
    """
    dedicated = [worker.dedicated_task_queue for worker in pool._workers_contexts]
    return [queue for queue in (pool._result_queue, pool._general_task_queue, *dedicated) if queue is not None]


def interrupt(pool: Any) -> None:
    """Have DALI end the workers, which ends its wait for them."""
    observer = None if pool is None else pool.pool._observer
    if observer is not None:
        observer.interrupt_pipe.send(None)


def end_workers(pool: Any) -> None:
    """End the workers, and wait until they have ended."""
    if pool is None:
        return
    left = pool.pool._processes
    interrupt(pool)  # DALI has them end, and would wait for one that is stopped until it goes on
    for end in (BaseProcess.terminate, BaseProcess.kill):
        deadline = time.monotonic() + _GRACE_S
        while left:  # to wait for nothing would take all the time
            ended = connection.wait([each.sentinel for each in left], max(0.0, deadline - time.monotonic()))
            if not ended:
                break
            left = [each for each in left if each.sentinel not in ended]
        for each in left:
            end(each)
    pool.close()
    for process in pool.pool._processes:
        if process.is_alive():  # DALI's own thread for that has failed
            process.kill()
            process.join()


def free_memory(pool: Any) -> None:
    """Give the memory back in which batches and tasks were handed over."""
    if pool is None:
        return
    memories = [chunk for context in pool.contexts for chunk in context.shm_manager.get_chunks()]
    for memory in [*memories, *(queue.shm for queue in queues_of(pool.pool))]:
        with contextlib.suppress(BufferError):  # still viewed by something that the user holds
            memory.close()
