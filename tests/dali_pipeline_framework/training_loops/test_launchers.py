"""The examples of training loops as their launchers start them, with spawned workers, and killed as they run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kill_and_resume import SCRIPTS, LogReader, TrainingLoop, difference, has_ended
from loops import LOOPS, undisturbed
from support.child_processes import communicate
from support.ranks import launcher_environment

pytestmark = pytest.mark.wide

LAUNCHERS = {
    "train_pytorch.py": [],
    "train_ddp.py": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    "train_accelerate.py": ["-m", "accelerate.commands.launch", "--cpu", "--num-processes=2", "--num-machines=1"],
    "train_hugging_face.py": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
}
_TIME_LIMIT_S = 200  # of an example, which takes a twentieth of that where nothing else runs


@contextlib.contextmanager
def started(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher, and all that it starts, which ends here at the latest."""
    process = subprocess.Popen(
        [sys.executable, *LAUNCHERS[script], str(SCRIPTS / script), "--folder", str(folder)],
        env=launcher_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(process: subprocess.Popen[str], what: str) -> str:
    """Wait for the end of a launcher, and of all that it has started; returns what was printed."""
    output, _ = communicate(process, _TIME_LIMIT_S)
    assert has_ended(process.pid), f"{what} leaves processes"
    return output


def ranks_of(launcher: int, script: str) -> list[psutil.Process]:
    """The processes that run the script; that of the launcher itself where there is none besides."""
    started = psutil.Process(launcher).children(recursive=True)
    return [each for each in started if str(SCRIPTS / script) in each.cmdline()] or [psutil.Process(launcher)]


def kill_behind(step: int, folder: Path, process: subprocess.Popen[str], script: str) -> None:
    """Kill the last rank as soon as a step is in its log; what becomes of others is up to the launcher."""
    deadline = time.monotonic() + _TIME_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        logs = sorted(folder.glob("log_rank*.jsonl"))
        if logs and f'"step": {step},' in logs[-1].read_text():
            with contextlib.suppress(psutil.NoSuchProcess):
                ranks_of(process.pid, script)[-1].kill()
            return
        time.sleep(0.002)
    pytest.fail(f"step {step} was not reached:\n{wait_for(process, script)}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("loop", [pytest.param(loop, id=loop.name) for loop in LOOPS if loop.script in LAUNCHERS])
def test_a_launched_loop_whose_rank_is_killed_goes_on_bit_for_bit(loop: TrainingLoop, tmp_path: Path) -> None:
    log = LogReader(tmp_path)
    with started(loop.script, tmp_path) as process:
        # It may come some steps late; after step 12 comes a checkpoint, and then the evaluation of that epoch.
        kill_behind(5, tmp_path, process, loop.script)
        wait_for(process, loop.script)
        assert process.returncode != 0
    first = log.next_part(is_cut=True)
    with started(loop.script, tmp_path) as process:
        output = wait_for(process, loop.script)
        assert process.returncode == 0, output
    found = difference(undisturbed(is_jax=False), [first, log.next_part()])
    assert found.is_none, found
