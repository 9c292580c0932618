"""Tests that need a GPU are right up to where CUDA itself is needed, also where nobody can run them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from support.child_processes import run_process
from support.stand_in_driver import make_stand_in_driver, needs_compiler

from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus

ROOT = Path(__file__).parents[1]
MARKED = sorted(
    path for path in (ROOT / "tests").glob("*/**/test_*.py") if re.search(r"mark\.gpu\b", path.read_text())
)
# What they say about a machine with a GPU holds here as well; or they ask PyTorch.
WITHOUT_A_GRAPH = ["test_a_gpu_fetches_pinned_batches", "test_outputs_are_bound_to_another_stream"]


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(num_usable_gpus() > 0, reason="here they run")
def test_dali_accepts_the_graphs_of_all_tests_marked_gpu() -> None:
    assert len(MARKED) >= 8
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    command += ["-p", "support.gpu_rehearsal", "-m", "gpu", *map(str, MARKED)]
    finished = run_process(command, cwd=ROOT)
    failed = re.findall(r"^FAILED .*::(\w+)", finished.stdout, re.MULTILINE)
    assert sorted(failed) == sorted(WITHOUT_A_GRAPH), finished.stdout + finished.stderr
    assert int(re.findall(r"(\d+) passed", finished.stdout)[-1]) > 90


@pytest.mark.wide
@needs_compiler
def test_other_tests_fork_workers_beside_a_driver_as_make_runs_them(tmp_path: Path) -> None:
    hidden = dict(re.findall(r'^HIDDEN := (\w+)="(.*)"$', (ROOT / "Makefile").read_text(), re.MULTILINE))
    environment = {**os.environ, **make_stand_in_driver(tmp_path, [(9, 0)]), **hidden}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    command += [f"{ROOT}/tests/dali_pipeline_framework/test_opencv_threads.py", "-k", "wherever_they_run"]
    finished = run_process(command, cwd=ROOT, env=environment)
    assert re.search(r"^2 passed", finished.stdout, re.MULTILINE), finished.stdout + finished.stderr
