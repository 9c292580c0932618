# SPDX-License-Identifier: Apache-2.0
"""The memory in which batches are handed over: how much of it there is."""

from __future__ import annotations

import os
from typing import Any

_PATH = "/dev/shm"


def free_shared_memory() -> int | None:
    """Bytes that are free where batches are handed over; None where that is not known."""
    try:
        found = os.statvfs(_PATH)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def describe_shared_memory(pool: Any) -> str:
    """Say how much memory the buffers of a pool take, and how much is left; empty where that is not known."""
    free = free_shared_memory()
    if free is None:
        return ""
    needed = sum(chunk.capacity for context in pool.contexts for chunk in context.shm_manager.get_chunks())
    return (
        f"; the buffers between it and this process are {needed / 2**20:.0f} MiB by now, and {free / 2**20:.1f} "
        f"MiB are left in /dev/shm"
    )
