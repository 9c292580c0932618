"""What all tests share."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType

import psutil
import pytest
from hypothesis import settings

# So that the asserts of helpers show their values, as those of tests; before the helpers are imported.
pytest.register_assert_rewrite(*({"support", "driving_support"} - sys.modules.keys()))

from support.child_processes import end_with_stacks, worker_pids  # noqa: E402
from support.shared_data import must_not_be_skipped  # noqa: E402

# Before PyTorch is imported. Its threads wait busily for each other, which takes the time of other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# All that tests start write the stacks of their threads where they are ended since they hang.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")
# What the workers of the fork server need not import again, each of them for as long as the rest of a test.
multiprocessing.set_forkserver_preload(
    [
        "nvidia.dali._multiproc.worker",
        "numpy.random",
        "pytest",
        "hypothesis",
        "psutil",
        "torch",
        "support.loaders",
        "support.providers",
    ]
)

# Seconds by file of all tests, written by `make durations`. The longest begin; the others then fill up the
# time of the processes. Files that are not in the list come first.
DURATIONS = Path(__file__).with_name("durations.txt")

_LARGE_PAGE = 1 << 21
_COLLAPSE = 25  # MADV_COLLAPSE of Linux >= 6.1

# Each run has the same examples: a law that fails seldom fails in `make test-all`, which has others each time.
settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("wide", deadline=None, max_examples=100, derandomize=False)  # else as the default


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wide", action="store_true", help="also run tests that are marked `wide`; more examples for each law"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("wide" if config.getoption("--wide") else "default")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # What several processes need not import, each for itself; one process says that it has deselected them.
    if "PYTEST_XDIST_WORKER" not in os.environ or config.getoption("--wide") or collection_path.suffix != ".py":
        return None
    return True if "\npytestmark = pytest.mark.wide\n" in collection_path.read_text() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # one process keeps the order in which it is given files
        lines = (line.split() for line in DURATIONS.read_text().splitlines())
        seconds = {str(config.rootpath / name): float(number) for number, name in lines}
        items.sort(key=lambda item: -seconds.get(str(item.path), math.inf))
    if not config.getoption("--wide"):
        wide = [item for item in items if item.get_closest_marker("wide")]
        items[:] = [item for item in items if not item.get_closest_marker("wide")]
        config.hook.pytest_deselected(items=wide)
    # The process that distributes the tests collects none of them: DALI, which this imports, it does not need.
    from accvlab.dali_pipeline_framework.engine.dali.gpus import num_usable_gpus

    if num_usable_gpus() > 0:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device is usable here"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # A comparison that nobody notices to be skipped, e.g. because a package is missing, guards nothing.
    if report.skipped and must_not_be_skipped(item):
        report.outcome = "failed"
        report.longrepr = f"A comparison with the reference data of $ACCVLAB_DATA was skipped: {report.longrepr}"
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    # PyTorch and what else the tests import are a million objects: each full collection would look at them.
    gc.collect()
    gc.freeze()
    _use_large_pages()


def _use_large_pages() -> None:
    """Keep what this process has in memory in pages of 2 MiB, where the kernel can.

    To fork a worker takes longer than most tests do with it: the kernel copies its notes about each page.
    """
    with contextlib.suppress(OSError):  # not on this system
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for start, end in _memory():
            for page in range(-(-start // _LARGE_PAGE), end // _LARGE_PAGE):
                madvise(page * _LARGE_PAGE, _LARGE_PAGE, _COLLAPSE)


def _memory() -> Iterator[tuple[int, int]]:
    """Where there is memory of this process alone, much of it in use."""
    start = end = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        match line.split():
            case [place, "rw-p", _, _, "0", *name] if name in ([], ["[heap]"]):
                start, end = (int(address, 16) for address in place.split("-"))
            case ["Anonymous:", kib, "kB"]:
                if int(kib) * 1024 > (end - start) // 2 > 0:
                    yield start, end
                start = end = 0


@pytest.fixture(autouse=True)
def _no_test_runs_before_all_other_programs() -> Iterator[None]:
    """The encoder SVT-AV1 gives the thread that calls it, and what that starts, real-time priority, for a root."""
    yield
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.fixture(autouse=True)
def _no_worker_is_left_behind() -> Iterator[None]:
    before = set(worker_pids())
    with _stacks_where_time_is_up(before):
        yield
    deadline = time.monotonic() + 60
    while left := set(worker_pids()) - before:
        gc.collect()
        if time.monotonic() > deadline:
            commands = [psutil.Process(pid).cmdline() for pid in left if psutil.pid_exists(pid)]
            pytest.fail(f"worker processes are left behind: {commands}")
        time.sleep(0.02)


@contextlib.contextmanager
def _stacks_where_time_is_up(others: set[int]) -> Iterator[None]:
    """Have processes write their stacks before `pytest-timeout` fails the test that waits for them."""
    fail = signal.getsignal(signal.SIGALRM)
    if not callable(fail):  # there is no limit
        yield
        return

    def write_and_fail(number: int, frame: FrameType | None) -> None:
        end_with_stacks(set(worker_pids()) - others)
        fail(number, frame)

    signal.signal(signal.SIGALRM, write_and_fail)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGALRM) is write_and_fail:
            signal.signal(signal.SIGALRM, fail)
