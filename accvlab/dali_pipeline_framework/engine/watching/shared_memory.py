# SPDX-License-Identifier: Apache-2.0
"""The memory in which batches are handed over: how much of it there is."""

from __future__ import annotations

import mmap
import os
from typing import Any

from ...errors import WorkerStartError
from .pool import end_workers

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
    """Refuse to start workers where this process itself would be ended by SIGBUS when it asks them for a batch.

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


def reserve_first_pages(pool: Any) -> None:
    """Have the memory of the first page of each buffer, into which this process writes what a worker is to load.

    Else this process, too, would be ended by SIGBUS once workers have filled all memory.

    Raises:
        WorkerStartError: There is less than that.
    """
    buffers = [chunk for context in pool.contexts for chunk in context.shm_manager.get_chunks()]
    try:
        require_shared_memory(len(buffers))
    except WorkerStartError:
        end_workers(pool)
        raise
    for chunk in buffers:
        chunk.buf[0:1] = bytes(1)


def describe_shared_memory(pool: Any) -> str:
    """Say how much memory the buffers of a pool take, and how much is left; empty where that is not known."""
    free = free_shared_memory()
    if free is None:
        return ""
    needed = sum(chunk.capacity for context in pool.contexts for chunk in context.shm_manager.get_chunks())
    return (
        f". The buffers between it and this process are {needed / 2**20:.0f} MiB by now, and {free / 2**20:.1f} "
        f"MiB are left in /dev/shm. {REMEDY}"
    )
