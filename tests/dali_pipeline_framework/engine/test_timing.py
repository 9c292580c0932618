"""Sums of the stages of a pipeline, and of what its workers have done."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import pytest
from nvidia.dali import types
from support.inputs import NumberCallable
from support.loaders import make_loader, pipeline_of
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.sampling import SequentialSampler


def numbers(num_samples: int, batch_size: int = 4) -> SamplerInputCallable:
    return SamplerInputCallable(IndexProvider(num_samples), SequentialSampler(num_samples, batch_size))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_stages_lie_within_each_other(num_workers: int) -> None:
    with make_loader(numbers(40), num_workers=num_workers) as loader:
        began = time.perf_counter_ns()
        list(loader)
        passed_ns = time.perf_counter_ns() - began
        times, pool = pipeline_of(loader).times, loader._run.pipelines.pool
        assert 0 < pool.waited_ns < times.input_ns < times.run_ns
        assert times.run_ns + times.conversion_ns + times.post_process_ns < passed_ns
        work = times.work
        assert (times.num_samples, work.num_samples, work.num_batches) == (40, 40, 10)
        assert min(work.reading_ns, work.packing_ns, work.cpu_ns) > 0
        assert (work.reading_ns + work.steps_ns + work.packing_ns < pool.waited_ns) or num_workers > 0


class LateEnd(NumberCallable):
    """Takes long to find out that there is nothing more."""

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        if sample_info.idx_in_epoch >= self.num_samples:
            time.sleep(1)
        return super().__call__(sample_info)


def test_the_wait_for_the_end_of_an_epoch_is_no_batch() -> None:
    began = time.perf_counter()
    with make_loader(LateEnd(8), 4, num_workers=1) as loader:
        list(loader)
        passed_s = time.perf_counter() - began
        times, pool = pipeline_of(loader).times, loader._run.pipelines.pool
        assert pool.waited_ns < times.input_ns < 1e9 * (passed_s - 1)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_what_is_thrown_away_is_not_counted(num_workers: int) -> None:
    with make_loader(numbers(80), num_workers=num_workers) as loader:
        for _ in range(3):
            list(islice(loader, 2))
        list(loader)
        times = pipeline_of(loader).times
        assert (times.num_samples, times.work.num_samples, times.work.num_batches) == (104, 104, 26)
