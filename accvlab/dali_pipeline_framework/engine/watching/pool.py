# SPDX-License-Identifier: Apache-2.0
"""DALI's pool of workers: its queues, its memory, and its end. None stands for a pipeline without workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from nvidia.dali._multiproc import pool as dali_pools

# To whom the pool that is being started is told: in this thread only, others may start pipelines of their own.
_tell: ContextVar[Callable[[Any], None] | None] = ContextVar("_tell", default=None)


class _ToldPool(dali_pools.ProcPool):
    """Tells of itself as soon as its processes run; DALI gives it only when all of them have reported."""

    def _sync_initialized_workers(self) -> None:
        tell = _tell.get()
        if tell is not None:
            tell(self)
        super()._sync_initialized_workers()  # type: ignore[no-untyped-call]


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
    pool.close()
    for process in pool.pool._processes:
        if process.is_alive():  # DALI ends them, unless its own thread for that has failed
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
