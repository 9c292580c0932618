# SPDX-License-Identifier: Apache-2.0
"""The cores of this process: how many it may use, e.g. in a container, and how long they had nothing to do."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns


def group_folders(controller: str, root: str | os.PathLike[str] = "/") -> Iterator[Path]:
    """Get the folders of the control groups that limit this process: its own first, then those around it.

    A container may see its own group as the top one, under a path that is that of the host: what is not there is
    passed over.

    Args:
        controller: Name of the controller in version 1, e.g. ``"cpu"``; groups of version 2 have all of them.
        root: Where the file systems ``proc`` and ``sys`` are.
    """
    try:
        lines = os.fsdecode(Path(root, "proc/self/cgroup").read_bytes()).splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        top = Path(root, "sys/fs/cgroup")
        if number != "0":
            if controller not in controllers.split(","):
                continue
            top = next(filter(Path.is_dir, (top / controllers, top / controller)), top / controller)
        names = [name for name in path.split("/") if name]
        if ".." in names:  # of a group that is not to be seen
            names = []
        for count in range(len(names), -1, -1):
            folder = top.joinpath(*names[:count])
            if folder.is_dir():
                yield folder


def cpu_quota(root: str | os.PathLike[str] = "/") -> float | None:
    """Get how many cores the control groups of this process may keep busy; None: no limit.

    ``cpu.max`` (version 2) has both numbers, microseconds of processor time per period, and the period; in version
    1 they are in ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``. ``root`` is as in `group_folders`.
    """
    quotas = []
    for folder in group_folders("cpu", root):
        with contextlib.suppress(OSError):
            quotas.append((folder / "cpu.max").read_text().split())
        with contextlib.suppress(OSError):
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            quotas.append([(folder / name).read_text().strip() for name in names])
    numbers = [(int(quota), int(period)) for quota, period in quotas if quota.isdigit() and period.isdigit()]
    return min((quota / period for quota, period in numbers if period), default=None)


def num_usable_cores() -> int:
    """Count the cores that this process can use: those it may run on, at most the quota of its control groups.

    A part of a core counts as one.
    """
    quota = cpu_quota()
    num_cores = len(os.sched_getaffinity(0))
    return num_cores if quota is None else max(1, min(num_cores, math.ceil(quota)))


def idle_core_ns(root: str | os.PathLike[str] = "/") -> int:
    """Get for how long the cores on which this process may run have had nothing to do, added up.

    Linux counts that from its start, in ticks. Where it does not say so of each of these cores, e.g. in a sandbox,
    they count as idle all the time. ``root`` is as in `group_folders`.
    """
    numbers = os.sched_getaffinity(0)
    names = {f"cpu{number}" for number in numbers}
    rows = []
    with contextlib.suppress(OSError):
        rows = [line.split() for line in Path(root, "proc/stat").read_text().splitlines()]
    ticks = [int(row[4]) + int(row[5]) for row in rows if row[0] in names]  # idle, and idle until a disk answers
    if len(ticks) < len(numbers) or not any(ticks):
        return len(numbers) * perf_counter_ns()
    return sum(ticks) * 10**9 // os.sysconf("SC_CLK_TCK")
