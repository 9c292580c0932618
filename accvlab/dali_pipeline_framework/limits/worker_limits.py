# SPDX-License-Identifier: Apache-2.0
"""The most worker processes that a loader may have.

Each is an interpreter of its own. A number that is too large, a slip of the keyboard or a count of samples, would
have the machine run out of memory before anything is said, so it is refused before the first one is started.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, TypeGuard

from ..checks import shown, whole_number
from ..errors import SettingError

_MOST: Final = 1024
# What a worker takes at least, beside what all share: one that only hands on numbers, without PyTorch.
_FORKED_BYTES: Final = 8 * 2**20
_OWN_BYTES: Final = 48 * 2**20


def is_start_method(value: object) -> TypeGuard[str]:
    """Whether it is a way to start processes."""
    return isinstance(value, str) and str.__str__(value) in ("fork", "spawn", "forkserver")


def checked_worker_count(value: object, name: str, start_method: object, *, at_least: int = 0) -> int:
    """Check a number of worker processes: at most 1024, and as many as the memory could hold at all.

    Raises:
        SettingError: It is no whole number of at least ``at_least``, or larger than that.
    """
    count = whole_number(value, name, at_least=at_least)
    least_bytes = (
        _FORKED_BYTES if is_start_method(start_method) and str.__str__(start_method) == "fork" else _OWN_BYTES
    )
    memory = all_memory()
    most = max(1, min(_MOST, memory // least_bytes))
    if count <= most:
        return count
    cores = len(os.sched_getaffinity(0))
    raise SettingError(
        f"`{name}` must be at most {most} here, got {shown(count)}: each worker is a process that takes at least "
        f"{least_bytes >> 20} MiB, of {memory >> 20} MiB in all, and there may be no more than {_MOST}. Usually a "
        f"worker for each core that this process can use ({cores}) is the most that is of use."
    )


def all_memory() -> int:
    """Bytes of memory that this process could have at most: those of the machine, or of its control group."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)
