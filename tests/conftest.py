"""What all tests share."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import psutil
import pytest
from support.pipelines import worker_pids

from accvlab.dali_pipeline_framework.engine.gpu import num_usable_gpus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if num_usable_gpus() > 0:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device is usable here"))


@pytest.fixture(autouse=True)
def _no_worker_is_left_behind() -> Iterator[None]:
    before = set(worker_pids())
    yield
    deadline = time.monotonic() + 5
    while left := set(worker_pids()) - before:
        gc.collect()
        if time.monotonic() > deadline:
            commands = [psutil.Process(pid).cmdline() for pid in left if psutil.pid_exists(pid)]
            pytest.fail(f"worker processes are left behind: {commands}")
        time.sleep(0.02)
