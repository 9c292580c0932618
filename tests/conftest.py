"""What all tests share."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import settings
from support.pipelines import worker_pids

from accvlab.dali_pipeline_framework.engine.gpu import num_usable_gpus

NAME = "accvlab.dali_pipeline_framework"
# Before PyTorch is imported. Its threads wait busily for each other, which takes the time of other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What the workers of the fork server need not import again, each of them for about a second.
multiprocessing.set_forkserver_preload(
    [f"{NAME}.engine.worker_source", f"{NAME}.sources.sampler_input_callable", "nvidia.dali._multiproc.worker"]
)

# They begin before the others, which fill up the time of the two processes.
LONG = {"test_check_step.py", "test_published_pipelines.py", "test_sampler_contract.py"}

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("wide", deadline=None, max_examples=100)  # else it inherits those of the default


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wide", action="store_true", help="also run tests that are marked `wide`; more examples for each law"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("wide" if config.getoption("--wide") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)
    if not config.getoption("--wide"):
        wide = [item for item in items if item.get_closest_marker("wide")]
        items[:] = [item for item in items if not item.get_closest_marker("wide")]
        config.hook.pytest_deselected(items=wide)
    if num_usable_gpus() > 0:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device is usable here"))


def pytest_collection_finish() -> None:
    # PyTorch and what else the tests import are a million objects: each full collection would look at them.
    gc.collect()
    gc.freeze()


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
