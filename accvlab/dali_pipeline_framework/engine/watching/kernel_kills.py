# SPDX-License-Identifier: Apache-2.0
"""Whether the kernel has ended processes because memory ran out, as far as it tells."""

from __future__ import annotations

import os
from pathlib import Path

_LESS_MEMORY = "use fewer workers or a smaller prefetch_queue_depth"


class KernelKills:
    """What the kernel has counted since this was made."""

    def __init__(self) -> None:
        """Read the counters."""
        self._counts = _counts_of_kernel()

    def describe(self) -> str:
        """Say what has happened since, for messages about a worker that got SIGKILL."""
        now = _counts_of_kernel()
        grown = [name for name, count in now.items() if count > self._counts.get(name, count)]
        if grown:
            return f"because memory ran out, which the kernel has counted in {grown[0]}: {_LESS_MEMORY}"
        doubt = "; but the kernel has not counted that, so somebody may have sent the signal" if now else ""
        return f"often because memory ran out: {_LESS_MEMORY}{doubt}"


def _counts_of_kernel() -> dict[str, int]:
    """How many processes were ended because memory ran out: in the control group of this one, and in all."""
    files = [("/proc/vmstat", "oom_kill in /proc/vmstat")]
    try:
        groups = os.fsdecode(Path("/proc/self/cgroup").read_bytes()).split("\n")[:-1]
    except OSError:
        groups = []
    for group in groups:
        number, controllers, path = group.split(":", 2)
        if number == "0":
            files.append((f"/sys/fs/cgroup{path}/memory.events", "oom_kill of its control group"))
        elif "memory" in controllers.split(","):
            files.append((f"/sys/fs/cgroup/memory{path}/memory.oom_control", "oom_kill of its control group"))
    counts: dict[str, int] = {}
    for file, name in reversed(files):
        try:
            lines = Path(file).read_text().splitlines()
        except OSError:
            continue
        counts.update((name, int(line.split()[1])) for line in lines if line.startswith("oom_kill "))
    return counts
