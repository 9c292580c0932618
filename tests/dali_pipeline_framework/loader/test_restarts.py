"""A job whose ranks `torchrun` restarts in the middle of an epoch goes on where it was."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from restarted_training import BATCH_SIZE, KILLED_BEHIND, NUM_SAMPLES
from support.child_processes import run_process

from accvlab.dali_pipeline_framework.sampling import ShuffledSampler

TESTS = Path(__file__).parents[2]


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_that_torchrun_restarts_goes_on_where_it_was(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(TESTS), *sys.path])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    done = run_process(
        [
            sys.executable,
            *launcher,
            str(TESTS / "dali_pipeline_framework" / "loader" / "restarted_training.py"),
            str(tmp_path),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    order = ShuffledSampler(NUM_SAMPLES, 2 * BATCH_SIZE, seed=1)
    ends = [*KILLED_BEHIND, NUM_SAMPLES // (2 * BATCH_SIZE)]
    for rank in range(2):
        begin = 0
        for start, end in enumerate(ends):
            lines = (tmp_path / f"{rank}.{start}.jsonl").read_text().splitlines()
            expected = [
                [
                    (batch + 1) % ends[-1],
                    order.get_batch_indices(0, batch)[rank * BATCH_SIZE :][:BATCH_SIZE].tolist(),
                ]
                for batch in range(begin, end)
            ]
            assert [json.loads(line) for line in lines] == expected
            begin = end
