"""Processor times, counters of stages, and ranges for the profiler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from nvidia.dali import types
from support.child_processes import communicate
from support.inputs import NumberCallable
from support.loaders import make_loader, pipeline_of
from support.pipelines import make_iterator
from support.providers import IndexProvider
from support.slow_stages import Disk, SlowInGraph, SlowInWorkers

from accvlab.dali_pipeline_framework.engine import timing
from accvlab.dali_pipeline_framework.engine.timing import (
    StageTimes,
    processor_time_of_process,
    processor_time_of_threads,
    queued_time,
    threads_of_process,
)
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.faults.fault_policy import FaultPolicy
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.sampling import SequentialSampler


def deliver(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


def numbers(num_samples: int, batch_size: int = 4) -> SamplerInputCallable:
    return SamplerInputCallable(IndexProvider(num_samples), SequentialSampler(num_samples, batch_size))


# --- processor times ---------------------------------------------------------------------------------------


def test_processor_time_of_another_process() -> None:
    script = "import time\nwhile time.process_time() < 0.2: pass\nprint(time.process_time(), flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-S", "-c", script], text=True, **pipes) as process:
        told_s = float(process.stdout.readline())
        found_ns = processor_time_of_process(process.pid)
        assert found_ns is not None
        assert told_s <= found_ns * 1e-9 < told_s + 0.05
        assert queued_time(process.pid) >= 0
        communicate(process, 100, input="\n")
    assert processor_time_of_process(process.pid) is None
    assert queued_time(process.pid) == 0


def test_processor_time_of_threads() -> None:
    ids: list[int] = []
    end = threading.Event()

    def work() -> None:
        ids.append(threading.get_native_id())
        last = time.thread_time() + 0.05
        while time.thread_time() < last:
            pass
        end.wait(60)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while processor_time_of_threads(ids) < 0.1e9 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 0.1e9 <= processor_time_of_threads(ids) < 0.2e9
    end.set()
    for thread in threads:
        thread.join()
    while processor_time_of_threads(ids) and time.monotonic() < deadline:  # they end a little later
        time.sleep(0.01)
    assert processor_time_of_threads(ids) == 0


def test_a_pipeline_knows_the_threads_of_its_graph() -> None:
    loaders = []
    for _ in range(2):  # beside each other
        source = SamplerInputCallable(Disk(0, 40), SequentialSampler(40, 4))
        loaders.append(make_loader(source, steps=[SlowInGraph(computes=True)], num_threads=2))
        next(iter(loaders[-1]))
    threads, others = (pipeline_of(loader).graph_threads() for loader in loaders)
    assert len(threads) >= 2
    assert not threads & others
    before = processor_time_of_threads(others)
    deliver(loaders[0])
    assert processor_time_of_threads(threads) > 0.2e9  # 40 samples that take 6 ms
    assert processor_time_of_threads(others) - before < 0.1e9
    for loader in loaders:
        loader.close()
    assert not (threads | others) & threads_of_process()


# --- counters ----------------------------------------------------------------------------------------------


def test_an_input_without_batches_ahead_is_counted() -> None:
    times = StageTimes()
    for num_ahead in (3, 0, -1, 2):
        times.count_input(num_ahead)
    assert (times.num_inputs, times.num_ahead, times.num_empty) == (4, 5, 2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_stages_lie_within_each_other(num_workers: int) -> None:
    with make_loader(numbers(40), num_workers=num_workers) as loader:
        began = time.perf_counter_ns()
        deliver(loader)
        passed_ns = time.perf_counter_ns() - began
        times = pipeline_of(loader).times
        assert 0 <= times.workers_ns < times.input_ns < times.run_ns
        assert (times.workers_ns > 0) == (num_workers > 0)
        assert times.run_ns + times.conversion_ns + times.post_process_ns < passed_ns
        assert (times.num_samples, times.num_inputs) == (40, 11 if num_workers else 0)
        work = pipeline_of(loader).work()
        assert [(each.num_samples, each.num_batches) for each in work] == [(40, 10)]
        assert (work[0].pid == os.getpid()) == (num_workers == 0)


class LateEnd(NumberCallable):
    """Takes long to find out that there is nothing more."""

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        if sample_info.idx_in_epoch >= self.num_samples:
            time.sleep(3)
        return super().__call__(sample_info)


def test_the_wait_for_the_end_of_an_epoch_is_no_batch() -> None:
    began = time.perf_counter()
    with make_loader(LateEnd(8), 4, num_workers=1) as loader:
        deliver(loader)
        passed_s = time.perf_counter() - began
        times = pipeline_of(loader).times
        assert passed_s > 3
        assert times.workers_ns < times.input_ns < 2.8e9


@pytest.mark.parametrize("num_workers", [1, 2])
def test_what_is_thrown_away_is_not_ahead(num_workers: int) -> None:
    with make_loader(numbers(80), num_workers=num_workers) as loader:
        for _ in range(3):
            deliver(islice(loader, 2))
        deliver(loader)
        pipeline = pipeline_of(loader)
        assert pipeline._num_handed_over == pipeline.control.num_loaded


# --- ranges ------------------------------------------------------------------------------------------------


class Recorder:
    """Notes ranges in a file, also those of forked workers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def push_range(self, message: str) -> None:
        os.write(self.file, f"{os.getpid()} {message}\n".encode())

    def pop_range(self) -> None:
        os.write(self.file, f"{os.getpid()} .\n".encode())

    def read(self) -> dict[int, list[str]]:
        """Ranges of each process, each with those around it: ``next/wait for the graph``."""
        found: dict[int, list[str]] = {}
        stacks: dict[int, list[str]] = {}
        for line in self.path.read_text().splitlines():
            process, label = line.split(" ", 1)
            stack = stacks.setdefault(int(process), [])
            if label == ".":
                stack.pop()
            else:
                stack.append(label)
                found.setdefault(int(process), []).append("/".join(stack))
        return found


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(tmp_path / "ranges")
    monkeypatch.setattr(timing, "marker", lambda: recorder)
    return recorder


def test_stages_are_ranges(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(timing.NVTX_VARIABLE, "1")
    source = SamplerInputCallable(Disk(0, 24), SequentialSampler(24, 4))
    with make_loader(
        source, steps=[SlowInWorkers()], num_workers=1, post_process_func=lambda batch: batch
    ) as loader:
        assert len([*loader]) == 6
    found = recorder.read()
    own = found.pop(os.getpid())
    assert own.count("next/wait for the graph") == 7  # one finds that the epoch has ended
    assert own.count("next/convert") == own.count("next/post_process_func") == 6
    assert "next/hand over/wait for workers" in own
    (of_worker,) = found.values()
    assert of_worker[:3] == ["load", "load/steps on arrays", "load/pack"]
    assert of_worker.count("load/steps on arrays") == of_worker.count("load/pack") == 6


def test_stages_are_ranges_where_samples_may_fail(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(timing.NVTX_VARIABLE, "1")
    source = SamplerInputCallable(Disk(0, 8), SequentialSampler(8, 4))
    with make_loader(
        source, steps=[SlowInWorkers()], num_workers=1, faults=FaultPolicy(samples="replace")
    ) as loader:
        assert len([*loader]) == 2
    (of_worker,) = (found for process, found in recorder.read().items() if process != os.getpid())
    of_batch = ["load", "load/steps on arrays", "load/pack"]  # as without a policy
    assert of_worker[: 2 * len(of_batch)] == 2 * of_batch


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_ranges_methods_are_left_alone(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv(timing.NVTX_VARIABLE, value)
    with make_loader(numbers(8)) as loader:
        deliver(loader)
        assert "_iter_setup" not in vars(pipeline_of(loader))
    with make_iterator(numbers(8)) as iterator:
        deliver(iterator)
        assert "next_batch" not in vars(iterator)
    assert recorder.read() == {}


def test_a_range_ends_with_an_error(recorder: Recorder) -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        timing.in_range(fail, "failing")()
    assert recorder.path.read_text().split() == [str(os.getpid()), "failing", str(os.getpid()), "."]


def test_a_marked_loader_is_freed(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(timing.NVTX_VARIABLE, "1")
    loader = make_loader(numbers(8))
    deliver(loader)
    threads = pipeline_of(loader).graph_threads()
    assert threads
    del loader
    assert not threads & threads_of_process()


def test_ranges_name_the_package_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch.cuda", None)
    timing.marker.cache_clear()
    with pytest.raises(SettingError, match="Install the extra `nvtx`"):
        timing.marker()


def test_the_package_nvtx_marks_ranges() -> None:
    pytest.importorskip("nvtx")
    timing.marker.cache_clear()
    assert timing.in_range(lambda: 3, "three")() == 3
