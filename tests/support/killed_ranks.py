"""A training under `torchrun` of which ranks are killed, and what its ledgers prove."""

from __future__ import annotations

import sys
from pathlib import Path

from support.child_processes import run_process
from support.ranks import torchrun

TRAINING = Path(__file__).parents[1] / "dali_pipeline_framework" / "ledgers" / "ledger_training.py"
# Number of ranks, and behind which batch the last of them gets SIGKILL; the last start ends by itself.
STARTS = ((2, 10), (1, 7), (2, 16), (2, -1))


def ledger_of_killed_ranks(folder: Path) -> str:
    """Run a training, start it again after each kill, and let the command line judge its ledgers."""
    for num_ranks, kill_at in STARTS:
        done = torchrun(TRAINING, [folder, kill_at], num_ranks)
        assert (done.returncode == 0) == (kill_at < 0), done.stderr
    command = [sys.executable, "-m", "accvlab.dali_pipeline_framework", "ledger", str(folder / "ledger")]
    done = run_process(command, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
