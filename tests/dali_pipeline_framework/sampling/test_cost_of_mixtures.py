"""What a mixture of many data sets costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.child_processes import run_process

ROOT = Path(__file__).parents[3]

_FOOTPRINT = """
import gc, json, os, sys
import numpy as np, psutil
from support.providers import IndexProvider
from accvlab.dali_pipeline_framework import ConcatDataProvider, DataLoader
from accvlab.dali_pipeline_framework import MixedSampler, ShuffledSampler

def measured(num_sources):
    size = 6400 // num_sources
    provider = ConcatDataProvider([IndexProvider(size) for _ in range(num_sources)])
    parts = [ShuffledSampler(size, seed=seed) for seed in range(num_sources)]
    sampler = MixedSampler(parts, [1 / num_sources] * num_sources, offsets=provider.offsets, num_per_epoch=400)
    options = {"num_workers": 2, "start_method": "fork", "output_type": "numpy"}
    with DataLoader(provider, 32, sampler=sampler, **options) as loader:
        for batch in loader:
            pass
        children = psutil.Process().children(recursive=True)
        memory = [process.memory_full_info().pss for process in (psutil.Process(), *children)]
        threads = [process.num_threads() for process in (psutil.Process(), *children)]
        return len(children), threads, sum(memory) / 2**20

measured(1)  # what is loaded once
print(json.dumps([measured(1), measured(64), measured(1)]))
"""


@pytest.mark.wide
def test_64_sources_cost_no_more_processes_threads_or_memory_than_one() -> None:
    finished = run_process(
        [sys.executable, "-c", _FOOTPRINT],
        timeout=120,
        check=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    )
    one, many, again = json.loads(finished.stdout)
    assert many[:2] == one[:2] == again[:2]
    assert one[0] == 2
    assert many[2] - max(one[2], again[2]) < 4, (one, many, again)  # MiB, over all three processes
