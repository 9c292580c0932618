"""Ctrl-C at random moments: a process with a loader ends, in its start, its loop and its close."""

from __future__ import annotations

from pathlib import Path

import pytest
from interrupt_storm import storm
from support.scripts import run_script

# How many interrupts, by start method.
QUICK = {"fork": 6}
WIDE = {"fork": 200, "spawn": 25, "forkserver": 50}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("method", "first", "number"),
    [
        *((method, 0, number) for method, number in QUICK.items()),
        *(
            pytest.param(method, first, 25, marks=pytest.mark.wide)
            for method, number in WIDE.items()
            for first in range(0, number, 25)
        ),
    ],
)
def test_interrupts_end_within_seconds(tmp_path: Path, method: str, first: int, number: int) -> None:
    storm(tmp_path, method, range(first, first + number))


@pytest.mark.parametrize("ending", ["", "first.close()"], ids=["end of the script", "close"])
def test_what_is_interrupted_while_it_is_closed_is_closed(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os, signal
from nvidia.dali import Pipeline
from support.fault_providers import LargeImageProvider
from support.pipelines import worker_pids
from accvlab.dali_pipeline_framework import DataLoader

shutdown = Pipeline._shutdown

def interrupted_shutdown(self):
    os.kill(os.getpid(), signal.SIGINT)
    shutdown(self)

Pipeline._shutdown = interrupted_shutdown
first = DataLoader(LargeImageProvider(), 2, num_workers=2, start_method="fork", output_type="numpy")
next(iter(first))
print(len(worker_pids()), flush=True)
try:
    {ending or "pass"}
except KeyboardInterrupt:
    print(worker_pids(), flush=True)
"""
    )
    done = run_script(script, timeout=100)
    assert done.stdout == ("2\n[]\n" if ending else "2\n")
    assert "KeyboardInterrupt" in done.stderr or ending
