"""Ctrl-C at random moments: a process with a loader ends, in its start, its loop and its close."""

from __future__ import annotations

from pathlib import Path

import pytest
from interrupt_storm import storm
from support.scripts import run_script

QUICK = [("fork", range(10)), ("forkserver", range(4)), ("spawn", range(2))]


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("method", "numbers"), QUICK, ids=[method for method, _ in QUICK])
def test_some_interrupts_end_within_seconds(tmp_path: Path, method: str, numbers: range) -> None:
    storm(tmp_path, method, numbers)


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 500, 50))
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_five_hundred_interrupts_end_within_seconds(tmp_path: Path, method: str, first: int) -> None:
    storm(tmp_path, method, range(first, first + 50))


@pytest.mark.parametrize("ending", ["", "first.close()"], ids=["end of the script", "close"])
def test_what_is_interrupted_while_it_is_closed_is_closed(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
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
