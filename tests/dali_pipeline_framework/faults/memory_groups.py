"""Control groups with little memory, whose processes the kernel ends when it runs out."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_ROOTS = {  # the file with the limit, by folder: version 1, alone or beside version 2, and version 2
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
    Path("/sys/fs/cgroup/unified"): "memory.max",
}
_GONE_WITHIN_S = 60.0


@contextlib.contextmanager
def memory_group(num_bytes: int) -> Iterator[Path | None]:
    """Make a group, and remove it once its processes have ended; None where this process may not make one."""
    group = _made(num_bytes)
    try:
        yield group
    finally:
        deadline = time.monotonic() + _GONE_WITHIN_S
        while group is not None:
            try:
                group.rmdir()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _made(num_bytes: int) -> Path | None:
    for root, limit in _ROOTS.items():
        group = root / f"dali_pipeline_framework_{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(num_bytes))
        except OSError:
            group.rmdir()
            continue
        with contextlib.suppress(OSError):  # no memory on a disk instead
            (group / "memory.swap.max").write_text("0")
        return group
    return None


class JoinGroup:
    """A `worker_init_fn` that puts the worker into a group."""

    def __init__(self, group: Path) -> None:
        self.group = group

    def __call__(self, worker: int) -> None:
        (self.group / "cgroup.procs").write_text(str(os.getpid()))
