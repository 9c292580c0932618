# SPDX-License-Identifier: Apache-2.0
"""Why a process has ended, in words."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from ..limits.control_groups import group_folders

_LESS_MEMORY = "use fewer workers or smaller batches, or load fewer ahead (`prefetch_bytes`)"
_HINTS = {
    "SIGBUS": "a file that was mapped was cut off, or memory for it ran out",
    "SIGSEGV": "a crash in native code that the data provider uses",
}


def counts_of_kernel() -> dict[str, int]:
    """How many processes were ended because memory ran out: in the control group of this one, and in all."""
    files = [(Path("/proc/vmstat"), "oom_kill in /proc/vmstat")]
    for folder in group_folders("memory"):
        names = "memory.events", "memory.oom_control"
        files += [(folder / name, "oom_kill of its control group") for name in names]
    counts: dict[str, int] = {}
    for file, name in reversed(files):  # of several groups the innermost counts
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        counts.update((name, int(line.split()[1])) for line in lines if line.startswith("oom_kill "))
    return counts


def described_exit(code: int | None, kernel_counts: Mapping[str, int]) -> str:
    """Say how a process has ended.

    Args:
        code: Its exit code; of one that a signal has ended, the negative number of that; None: not known.
        kernel_counts: What `counts_of_kernel` had counted before.
    """
    if code is None:
        return "ended"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"was ended by signal {-code}"
    hint = _described_kill(kernel_counts) if name == "SIGKILL" else _HINTS.get(name, "")
    return f"was ended by {name}{f' ({hint})' if hint else ''}"


def _described_kill(before: Mapping[str, int]) -> str:
    now = counts_of_kernel()
    grown = [name for name, count in now.items() if count > before.get(name, count)]
    if grown:
        return f"because memory ran out, which the kernel has counted in {grown[0]}: {_LESS_MEMORY}"
    doubt = "; but the kernel has not counted that, so somebody may have sent the signal" if now else ""
    return f"often because memory ran out: {_LESS_MEMORY}{doubt}"
