"""Ctrl-C at seeded random moments of the life of a loader: its process ends soon, and nothing of it is left."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from support.child_processes import communicate
from support.scripts import Script, start_script

# It takes a second or less where nothing else runs. What hangs does not end, however long one waits.
ENDS_WITHIN_S = 40.0
PHASES = ("start", "first batch", "loop", "wait", "close", "second loader", "end")
_SCRIPT = """
import time
from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder
from support.fault_providers import LargeImageProvider

def loader():
    steps = [ImageDecoder("image", use_device_mixed=True)]
    workers = dict(num_workers=2, start_method={method!r})
    return DataLoader(LargeImageProvider(24), 2, steps=steps, num_threads=1, output_type="numpy", **workers)

def main():
    print("start")
    first = loader()
    print("first batch")
    next(iter(first))
    print("loop")
    for _ in range(2):
        for batch in first:
            pass
    print("wait")
    time.sleep(0.1)
    print("close")
    first.close()
    print("second loader")
    second = loader()
    for batch in second:
        break
    print("end")

if __name__ == "__main__":
    main()
"""


def _started(folder: Path, method: str) -> Script:
    script = folder / "script.py"
    if not script.exists():
        script.write_text(_SCRIPT.format(method=method))
    return start_script(script, start_new_session=True)


def seconds_of_phases(folder: Path, method: str) -> dict[str, float]:
    """How long each phase takes here where nothing disturbs it."""
    script = _started(folder, method)
    begun = []
    for phase in PHASES:
        assert script.stdout.readline() == f"{phase}\n", communicate(script, ENDS_WITHIN_S)
        begun.append(time.monotonic())
    communicate(script, ENDS_WITHIN_S)
    begun.append(time.monotonic())
    return {phase: begun[number + 1] - begun[number] for number, phase in enumerate(PHASES)}


def interrupt(folder: Path, method: str, number: int, seconds: dict[str, float]) -> None:
    """Send Ctrl-C once or twice, to a process or to its group, at a moment that the number decides.

    Raises:
        AssertionError: The process does not end, leaves processes behind, or is ended by something else.
    """
    draw = random.Random(f"{method} {number}")
    phase = draw.choice(PHASES)
    delays = [draw.uniform(0, 1.1) * seconds[phase]]
    if draw.random() < 0.25:
        delays.append(draw.uniform(0, 0.3))
    to_group = draw.random() < 0.5
    script = _started(folder, method)
    try:
        while script.stdout.readline() not in (f"{phase}\n", ""):
            pass
        for delay in delays:
            time.sleep(delay)
            try:
                (os.killpg if to_group else os.kill)(script.pid, signal.SIGINT)
            except ProcessLookupError:  # it has ended
                break
        began = time.monotonic()
        _, stderr = communicate(script, ENDS_WITHIN_S)
        while left := _alive_in_group(script.pid):
            assert time.monotonic() - began < ENDS_WITHIN_S, f"processes are left: {left}"
            time.sleep(0.01)
        # Python prints and forgets what is raised in a finaliser: the script goes on to its end then.
        assert script.wait() in (-signal.SIGINT, 0), f"exit code {script.wait()}\n{stderr}"
    except AssertionError as error:
        what = f"{method} {number}: {phase} after {delays} s, {'group' if to_group else 'process'}"
        raise AssertionError(f"{what}: {error}") from error
    finally:
        for pid in _alive_in_group(script.pid):
            os.kill(pid, signal.SIGKILL)


def _alive_in_group(group: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                state, _, its_group = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(its_group) == group and state not in "ZX":
                found.append(int(entry))
    return found


def storm(folder: Path, method: str, numbers: Iterable[int]) -> None:
    """Interrupt a process for each number."""
    seconds = seconds_of_phases(folder, method)
    for number in numbers:
        interrupt(folder, method, number, seconds)
