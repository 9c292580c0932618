"""The faults that are injected into loaders, and the table of the docs that tells what becomes of them.

Run this file, and it injects all of them and writes the table into `docs/dali_pipeline_framework/faults.md`.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from disturbed_loaders import DETECTED_WITHIN_S, Disturbance, disturb, loader_of
from loader_processes import (
    ENDS,
    GONE_WITHIN_S,
    can_mount,
    end_loader,
    outcome,
    with_file_limit,
    with_shared_memory,
)
from memory_groups import JoinGroup, memory_group
from random_kills import run_with_kills
from support.fault_providers import BlockedSetUp, DeadlyProvider, ImageProvider, JpegProvider, VideoReadingProvider
from support.file_server import FileServer
from support.killed_ranks import STARTS, ledger_of_killed_ranks
from support.page_tables import PageTable
from support.videos import make_video

from accvlab.dali_pipeline_framework import FaultPolicy, RemoteReading, VideoFrameDataProvider, Videos
from accvlab.dali_pipeline_framework.errors import StateError

TABLE = PageTable(
    "dali_pipeline_framework/faults.md",
    "dali_pipeline_framework/faults/fault_table.py",
    ["fault", "`FaultPolicy`", "outcome", "samples as undisturbed", "reported after", "next batch after", "limit"],
)
NOT_RUN = "not run here"
NUM_SAME_CELLS = 4  # those that each run finds; the others are times
_TIME_LIMIT_S = 300  # of a fault

NUM_KILLS = 20
NUM_LARGE_BATCHES = 100
MEMORY_BYTES = 1 << 28


@attrs.frozen
class Fault:
    """A row of the table.

    Attributes:
        name: What is done.
        inject: Does it, in an empty folder, with a loader of that policy. None: it cannot be done here.
        policy: The policy.
        limit_s: After how many seconds it must be told at the latest.
        is_quick: Whether `make test` runs it.
    """

    name: str
    inject: Callable[[Path, FaultPolicy], Disturbance | None]
    policy: FaultPolicy = attrs.field(factory=FaultPolicy)
    limit_s: float | None = DETECTED_WITHIN_S
    is_quick: bool = False

    @property
    def told_policy(self) -> str:
        """The arguments of its policy that are not the default."""
        default, names = FaultPolicy(), [field.name for field in attrs.fields(FaultPolicy)]
        given = {name: getattr(self.policy, name) for name in names}
        words = [f"{name}={value!r}" for name, value in given.items() if value != getattr(default, name)]
        return f"`{', '.join(words)}`" if words else ""


NEEDED: Mapping[str, Mapping[str, Any]] = {
    "raise": {},
    "replace": {},
    "skip": {"last_batch": "partial"},
}  # arguments of the loader, by policy


def _by_provider(fault: str, num_times: int = 1) -> Callable[[Path, FaultPolicy], Disturbance]:
    """Sample 17 does something to its process, so many times."""

    def inject(folder: Path, policy: FaultPolicy) -> Disturbance:
        provider = DeadlyProvider(folder, fault, {17: num_times})
        return disturb(folder, provider, policy, measured=int(num_times > 1), **NEEDED[policy.samples])

    return inject


def _broken_image(folder: Path, policy: FaultPolicy) -> Disturbance:
    return disturb(folder, JpegProvider(folder, {17}), policy, **NEEDED[policy.samples])


def _remote_video(fault: str) -> Callable[[Path, FaultPolicy], Disturbance]:
    """The server of a video does something to each answer."""

    def inject(folder: Path, policy: FaultPolicy) -> Disturbance:
        with tempfile.TemporaryDirectory() as served, FileServer(Path(served)) as server:
            make_video(Path(served, "a.mp4"), 40, "libx264")
            reading = RemoteReading(attempts=2, first_wait_s=0.01, timeout_s=0.3)
            videos = Videos(f"{server.url}/a.mp4", storage_options={"reading": reading})
            provider = VideoReadingProvider(folder, VideoFrameDataProvider(videos))
            server.lasting_fault = fault
            return disturb(folder, provider, policy, **NEEDED[policy.samples])

    return inject


def _blocked_set_up(folder: Path, policy: FaultPolicy) -> Disturbance:
    blocked = BlockedSetUp(folder, in_call=True)
    return disturb(folder, ImageProvider(), policy, worker_init_fn=blocked)


def _little_memory(folder: Path, policy: FaultPolicy) -> Disturbance | None:
    with memory_group(MEMORY_BYTES) as group:
        if group is None:
            return None
        provider = DeadlyProvider(folder, "eat_memory", {17: 1})
        return disturb(folder, provider, policy, worker_init_fn=JoinGroup(group))


def _from_outside(sent: signal.Signals) -> Callable[[Path, FaultPolicy], Disturbance]:
    def inject(folder: Path, policy: FaultPolicy) -> Disturbance:
        return disturb(folder, ImageProvider(), policy, from_outside=lambda pid: os.kill(pid, sent))

    return inject


def _random_kills(folder: Path, policy: FaultPolicy) -> Disturbance:
    run_with_kills(folder, 200, "fork", 3, NUM_KILLS)
    return Disturbance("restarts", "all")


def _by_script(
    before: Callable[[], list[str]], is_mount: bool
) -> Callable[[Path, FaultPolicy], Disturbance | None]:
    """A process with large batches, run by a command that leaves it little."""

    def inject(folder: Path, policy: FaultPolicy) -> Disturbance | None:
        if is_mount and not can_mount():
            return None
        text = outcome(folder, before())
        if text.startswith(f"{NUM_LARGE_BATCHES}\n"):
            return Disturbance("none: batches do not go through it", "all")
        seconds = re.search(r"^after ([0-9.]+) s$", text, re.MULTILINE)
        name, _, message = text.partition(" ")
        signal_name = re.search("SIG[A-Z]+|ulimit", message)
        return Disturbance(f"`{name.partition('[')[0]}` ({signal_name.group()})", "", float(seconds.group(1)))

    return inject


def _end(end: str) -> Callable[[Path, FaultPolicy], Disturbance]:
    def inject(folder: Path, policy: FaultPolicy) -> Disturbance:
        return Disturbance("neither workers nor shared memory left", "", end_loader(folder, "fork", end))

    return inject


def _damaged_state(folder: Path, policy: FaultPolicy) -> Disturbance:
    with loader_of(ImageProvider(), num_workers=0) as loader:
        for _ in itertools.islice(loader, 3):
            pass
        text = json.dumps(loader.state_dict()).encode()
        changed = [text[:at] + bytes([byte ^ 1]) + text[at + 1 :] for at, byte in enumerate(text)]
        damaged = [*changed, *(text[:at] for at in range(len(text)))]
        num_refused = 0
        for state in damaged:
            try:
                loader.load_state_dict(state)
            except StateError:
                num_refused += 1
    each = "each" if num_refused == len(damaged) else f"{num_refused} of {len(damaged)}"
    return Disturbance(f"`StateError` for {each}")


def _killed_ranks(folder: Path, policy: FaultPolicy) -> Disturbance:
    certified = ledger_of_killed_ranks(folder)
    return Disturbance(next(line for line in certified.splitlines() if line.startswith("Each of the ")))


_SAMPLES = ("raise", "replace", "skip")
_RESTART = FaultPolicy(restarts=2)
_WATCHED = FaultPolicy(restarts=2, blocked_after=0.5)
_RANKS = " → ".join(str(num_ranks) for num_ranks, _ in STARTS)

FAULTS = [
    *[
        Fault(
            "exception in `get_data`", _by_provider("fail"), FaultPolicy(samples=name), is_quick=name == "replace"
        )
        for name in _SAMPLES
    ],
    *[
        Fault(
            "JPEG cut off, decoded in the graph", _broken_image, FaultPolicy(samples=name), is_quick=name == "skip"
        )
        for name in _SAMPLES
    ],
    Fault("remote video that breaks off", _remote_video("cut")),
    Fault("remote video that breaks off", _remote_video("cut"), FaultPolicy(samples="replace")),
    Fault("remote video whose server stalls", _remote_video("stall"), FaultPolicy(samples="replace")),
    Fault("`SIGKILL` in `get_data`", _by_provider("kill")),
    Fault("`SIGKILL` in `get_data`", _by_provider("kill"), _RESTART, is_quick=True),
    Fault("segmentation fault in `get_data`", _by_provider("segfault")),
    Fault("segmentation fault in `get_data`", _by_provider("segfault"), _RESTART),
    Fault("`os._exit(7)` in `get_data`", _by_provider("exit")),
    Fault("`os._exit(7)` in `get_data`", _by_provider("exit"), _RESTART),
    Fault("`SIGKILL` for all workers, from outside", _from_outside(signal.SIGKILL), _RESTART),
    Fault(
        f"`SIGKILL` at {NUM_KILLS} random moments, 3 workers",
        _random_kills,
        FaultPolicy(restarts=10 * NUM_KILLS),
        limit_s=None,
    ),
    *[
        Fault(
            "a sample kills its worker each time",
            _by_provider("kill", 9),
            FaultPolicy(samples=name, restarts=2),
            is_quick=name == "replace",
        )
        for name in _SAMPLES
    ],
    Fault("`get_data` blocks in Python", _by_provider("block"), FaultPolicy(blocked_after=0.5)),
    Fault("`get_data` blocks in Python", _by_provider("block"), _WATCHED),
    Fault("`get_data` blocks and ignores `SIGTERM`", _by_provider("block_unkillably"), _WATCHED),
    Fault("`get_data` blocks in native code, holding the GIL", _by_provider("block_in_native_code"), _WATCHED),
    Fault("`SIGSTOP` in `get_data`", _by_provider("stop"), _WATCHED, is_quick=True),
    Fault("`SIGSTOP` for all workers, from outside", _from_outside(signal.SIGSTOP), _WATCHED),
    Fault("`worker_init_fn` blocks", _blocked_set_up, FaultPolicy(blocked_after=0.5)),
    Fault("`worker_init_fn` blocks", _blocked_set_up, _WATCHED),
    Fault("workers in a control group of 256 MiB, `get_data` takes more", _little_memory, is_quick=True),
    Fault("workers in a control group of 256 MiB, `get_data` takes more", _little_memory, _RESTART),
    Fault(
        "`/dev/shm` of 40 KiB",
        _by_script(lambda: with_shared_memory("40k"), True),
        FaultPolicy(restarts=1),
        limit_s=None,
    ),
    Fault("`ulimit -f` of 3000 KiB", _by_script(lambda: with_file_limit(3000), False), FaultPolicy(restarts=1)),
    *[
        Fault(f"the process with the loader: {end}", _end(end), limit_s=GONE_WITHIN_S, is_quick=True)
        for end in ENDS
    ],
    Fault(
        "state, cut off at each byte, or one bit of each byte changed", _damaged_state, limit_s=None, is_quick=True
    ),
    Fault(f"`SIGKILL` for a rank under `torchrun`, started again on {_RANKS} ranks", _killed_ranks, limit_s=None),
]


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def _limit(fault: Fault) -> str:
    return "" if fault.limit_s is None else f"{fault.limit_s:g} s"


def cells(fault: Fault, found: Disturbance | None) -> list[str]:
    """The cells of the row that tells what was found."""
    if found is None:
        return [fault.name, fault.told_policy, NOT_RUN, "", "", "", _limit(fault)]
    same = [fault.name, fault.told_policy, found.outcome, found.delivered]
    return [*same, _seconds(found.found_s), _seconds(found.next_s), _limit(fault)]


def same_cells(row: list[str]) -> list[str]:
    """The cells without times."""
    return row[:NUM_SAME_CELLS]


def seconds_of(row: list[str]) -> float:
    """How long it took until the fault was told."""
    return float(row[NUM_SAME_CELLS].removesuffix(" s") or 0)


def main() -> None:
    rows, loads = [], [os.getloadavg()[0]]
    for fault in FAULTS:
        faulthandler.dump_traceback_later(_TIME_LIMIT_S, exit=True)
        with tempfile.TemporaryDirectory() as folder:
            rows.append(cells(fault, fault.inject(Path(folder), fault.policy)))
        print(" | ".join(rows[-1]), file=sys.stderr)
    loads.append(os.getloadavg()[0])
    faulthandler.cancel_dump_traceback_later()
    load = " to ".join(f"{load:.1f}" for load in sorted(loads))
    cores = len(os.sched_getaffinity(0))
    TABLE.write(rows, f"Measured in one run, on {cores} cores with a load of {load}.\n")


if __name__ == "__main__":
    main()
