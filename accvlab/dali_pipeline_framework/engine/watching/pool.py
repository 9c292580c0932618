# SPDX-License-Identifier: Apache-2.0
"""DALI's pool of workers: its queues, its memory, and its end. None: a pipeline without workers."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import multiprocessing.util
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from nvidia.dali._multiproc import pool as dali_pools

from ...errors import WorkerStartError

_GRACE_S = 1.0  # for the end of a worker, each time it is requested
LONGEST_HOLD_S = 0.2  # workers hold the locks of the queues for micro- to milliseconds
MOST_TRIES = 8

# DALI has no types for its pool, contexts and queues.
WorkerPool: TypeAlias = Any
TaskQueue: TypeAlias = Any

# Called with the pool that is being started: in this thread only, others may start pipelines of their own.
_note: ContextVar[Callable[[WorkerPool], None] | None] = ContextVar("_note", default=None)
_make_context: ContextVar[Callable[[bool], Any] | None] = ContextVar("_make_context", default=None)


class _ReportingPool(dali_pools.ProcPool):
    """Reports itself as soon as its processes run; DALI gives it only when all of them have reported.

    Its processes are those of the given context, where there is one.
    """

    def __init__(self, mp: Any, workers_contexts: Any, *others: Any) -> None:
        make_context = _make_context.get()
        if make_context is not None:
            sources = [each.source for context in workers_contexts for each in context.source_descs.values()]
            mp = make_context(any(b"__main__" in source for source in sources))
        super().__init__(mp, workers_contexts, *others)

    def _sync_initialized_workers(self) -> None:
        note = _note.get()
        if note is not None:
            note(self)
        super()._sync_initialized_workers()  # type: ignore[no-untyped-call]
        _remove_names(self)


def _remove_names(pool: WorkerPool) -> None:
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
def noting_pool(
    note: Callable[[WorkerPool], None], make_context: Callable[[bool], Any] | None = None
) -> Iterator[None]:
    """Around the start of workers, one at a time: ``note`` gets their pool before DALI waits for them.

    ``make_context`` makes the context of `multiprocessing` that starts them, given whether what they get names the
    main script; None: as DALI does.
    """
    made_by_dali, token, context_token = dali_pools.ProcPool, _note.set(note), _make_context.set(make_context)
    dali_pools.ProcPool = _ReportingPool  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        dali_pools.ProcPool = made_by_dali  # type: ignore[misc]
        _note.reset(token)
        _make_context.reset(context_token)


def queues_of(pool: WorkerPool) -> list[TaskQueue]:
    """The queues between the workers and this process: first that of the results.

    Args:
        pool: DALI's pool of processes (`ProcPool`).
    """
    dedicated = [worker.dedicated_task_queue for worker in pool._workers_contexts]
    return [queue for queue in (pool._result_queue, pool._general_task_queue, *dedicated) if queue is not None]


def interrupt(pool: WorkerPool) -> None:
    """Have DALI end the workers, which ends its wait for them."""
    observer = None if pool is None else pool.pool._observer
    if observer is not None:
        observer.interrupt_pipe.send(None)


def release_locks(queues: Iterable[TaskQueue]) -> None:
    """Release the locks of queues that dead workers hold, or for which this process waits until one has woken."""
    for queue in queues:
        for _ in range(MOST_TRIES):
            if queue.lock.acquire(timeout=LONGEST_HOLD_S):
                queue.lock.release()
                break
            _release_lock_of_dead(queue)


def _release_lock_of_dead(queue: TaskQueue) -> None:
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


def end_workers(pool: WorkerPool) -> None:
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
    observer = pool.pool._observer
    while observer is not None and observer.thread.is_alive():
        observer.thread.join(_GRACE_S)
        if observer.thread.is_alive():  # woke a worker that was killed, and waits for its answer
            release_locks(queues_of(pool.pool))
    pool.close()
    for process in pool.pool._processes:
        if process.is_alive():  # DALI's own thread for that has failed
            process.kill()
            process.join()


def _buffers(pool: WorkerPool) -> list[TaskQueue]:
    return [chunk for context in pool.contexts for chunk in context.shm_manager.get_chunks()]


def free_memory(pool: WorkerPool) -> None:
    """Give the memory back in which batches and tasks were handed over."""
    if pool is None:
        return
    for memory in [*_buffers(pool), *(queue.shm for queue in queues_of(pool.pool))]:
        with contextlib.suppress(BufferError):  # still viewed by something that the user holds
            memory.close()


_PATH = "/dev/shm"
_FOR_QUEUES = 16 * mmap.PAGESIZE
REMEDY = (
    "Make it larger (docker: --shm-size=8g or --ipc=host; Kubernetes: an emptyDir with medium: Memory at "
    "/dev/shm), or load less ahead: fewer workers, smaller batches, a smaller prefetch_queue_depth"
)


def free_shared_memory() -> int | None:
    """Bytes that are free where batches are handed over; None where that is not known."""
    try:
        found = os.statvfs(_PATH)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def require_shared_memory(num_buffers: int = 0) -> None:
    """Refuse to start workers where this process itself would be ended by SIGBUS when it requests a batch.

    Args:
        num_buffers: Batches that can be with workers, or loaded, at a time.

    Raises:
        WorkerStartError: There is less than a page for each.
    """
    free, needed = free_shared_memory(), num_buffers * mmap.PAGESIZE + _FOR_QUEUES
    if free is not None and free < needed:
        raise WorkerStartError(
            f"Workers hand over batches in shared memory ({_PATH}): {needed // 1024} KiB are needed to begin "
            f"with, and then room for the batches that are loaded ahead; {free // 1024} KiB are free. {REMEDY}."
        )


def reserve_first_pages(pool: WorkerPool) -> None:
    """Have the memory of the first page of each buffer, into which this process writes what a worker is to load.

    Else this process, too, would be ended by SIGBUS once workers have filled all memory.

    Raises:
        WorkerStartError: There is less than that.
    """
    buffers = _buffers(pool)
    try:
        require_shared_memory(len(buffers))
    except WorkerStartError:
        end_workers(pool)
        raise
    for chunk in buffers:
        chunk.buf[0:1] = bytes(1)


def describe_shared_memory(pool: WorkerPool) -> str:
    """Say how much memory the buffers of a pool take, and how much is left; empty where that is not known."""
    free = free_shared_memory()
    if free is None:
        return ""
    needed = sum(buffer.capacity for buffer in _buffers(pool))
    return (
        f". The buffers between it and this process are {needed / 2**20:.0f} MiB by now, and {free / 2**20:.1f} "
        f"MiB are left in /dev/shm. {REMEDY}"
    )


MEMORY_FOR_DEPTH = 512 * 2**20
"""Bytes that batches loaded ahead may take, beyond the one per worker that it needs to work at all."""

_SAMPLES_PER_WORKER = 12
_BATCHES_PER_WORKER = 2


def evening_depth(num_workers: int, batch_size: int) -> int:
    """Get the depth at which a few slow samples do not hold up the workers; one worker alone waits for nobody.

    Of batches of one sample, more must be ahead than of large ones, which even out within themselves: 14 per
    worker for single samples, 8, 5 and 4 for 2, 4 and 8. Where 5 % of the samples take 20 times as long as the
    others, 2, 4 and 8 workers then reach at least 0.98 of what they could if the order were free.
    """
    if num_workers < 2:
        return num_workers
    return num_workers * (_BATCHES_PER_WORKER + math.ceil(_SAMPLES_PER_WORKER / batch_size))


class LoadAhead:
    """Deepens the queue of batches loaded ahead, as far as memory allows, once the size of a batch is known.

    DALI makes a buffer for each batch that can be ahead, and uses them in turn. A buffer that was not used yet
    takes no memory. So the queue is made as deep as it may become, but begins with as few buffers as are needed.
    """

    def __init__(self, pool: WorkerPool, groups: Any, least: int) -> None:
        """Begin with few batches, at least so many; the workers of the pool are started, and have no work yet.

        ``groups`` are DALI's external sources that they load.
        """
        self._waiting = [
            (group, context.shm_manager)
            for group, context in zip(groups, pool.contexts, strict=True)
            if group.prefetch_queue_depth > least
        ]
        self._most = {id(group): group.prefetch_queue_depth for group, _ in self._waiting}
        self._least = least
        for group, buffers in self._waiting:
            buffers.queue_depth -= group.prefetch_queue_depth - least
            group.prefetch_queue_depth = least

    def deepen(self) -> None:
        """Deepen the queue, once the first batch was received. Later calls do nothing.

        Later it could not be done. The buffer of batch ``n`` is ``n % queue_depth``, so the depth may change only
        while no buffer was used twice.
        """
        for group, buffers in self._waiting:
            free = free_shared_memory()
            budget = MEMORY_FOR_DEPTH if free is None else min(MEMORY_FOR_DEPTH, free // 2)
            affordable = self._least + budget // buffers.get_chunks()[0].capacity
            depth = min(self._most[id(group)], affordable)
            buffers.queue_depth += depth - self._least
            group.prefetch_queue_depth = depth
        self._waiting = []
