"""How far ahead workers load: enough that slow samples hold up nobody, and no more than memory allows."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scripted_workers import ScriptedWorkers, pool_of
from support.loaders import pipeline_of
from support.pipelines import indices
from support.providers import BadSamples, IndexProvider

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.workers.pool.pool import PoolSettings, evening_depth


def share_of_ideal(batch_times: Sequence[float], num_workers: int, depth: int) -> float:
    """What workers that deliver in order reach of their throughput without any waiting."""
    free, delivered, last = [0.0] * num_workers, [], 0.0
    for batch, time in enumerate(batch_times):
        may_begin = delivered[batch - depth] if batch >= depth else 0.0
        end = max(heapq.heappop(free), may_begin) + time
        heapq.heappush(free, end)
        last = max(last, end)
        delivered.append(last)
    return sum(batch_times) / num_workers / last


def test_depths() -> None:
    sizes = (1, 2, 4, 8, 64)
    assert [evening_depth(2, size) for size in sizes] == [28, 16, 10, 8, 6]
    assert [evening_depth(8, size) for size in sizes] == [112, 64, 40, 32, 24]
    assert [evening_depth(workers, 4) for workers in (0, 1)] == [0, 1]


@pytest.mark.parametrize("num_workers", [2, 4, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 8])
def test_slow_samples_hold_up_nobody(num_workers: int, batch_size: int) -> None:
    times = np.where(np.random.default_rng(5).random((16000, batch_size)) < 0.05, 20.0, 1.0).sum(axis=1).tolist()
    depth = evening_depth(num_workers, batch_size)
    assert share_of_ideal(times, num_workers, depth) > 0.97
    assert share_of_ideal(times, num_workers, num_workers) < 0.85


def sent_ahead(num_batches: int, window: int, bytes_in_window: float, batch_bytes: int) -> list[int]:
    """For each batch that is received, how many behind it two workers have loaded, or load."""
    workers = ScriptedWorkers(batch_bytes=batch_bytes)
    pool = pool_of(num_batches, workers, PoolSettings(2, window, bytes_in_window))
    ahead = []
    for batch in range(num_batches):
        assert pool.get((0, batch)).position == (0, batch)  # type: ignore[union-attr]
        for _ in range(window):  # as if the loop took long
            workers.wait(1.0)
            pool.get((0, batch))
        ahead.append(len(workers.sent) - batch - 1)
        pool.release_through((0, batch))
    in_order = [(epoch, batch) for epoch in range(2) for batch in range(num_batches)]
    assert workers.sent == in_order[: len(workers.sent)]  # also those of the next epoch
    assert workers.num_repairs == 0  # nothing was interrupted
    return ahead


@pytest.mark.parametrize(
    ("num_batches", "bytes_in_window", "batch_bytes", "ahead"),
    [
        pytest.param(12, 1e9, 1000, 6, id="as many as the window has"),
        pytest.param(9, 3500, 1000, 3, id="no more than may take memory"),
        pytest.param(9, 3500, 10_000, 2, id="one per worker, however large"),
    ],
)
def test_so_many_batches_are_loaded_ahead(
    num_batches: int, bytes_in_window: float, batch_bytes: int, ahead: int
) -> None:
    assert sent_ahead(num_batches, 6, bytes_in_window, batch_bytes) == [ahead] * num_batches


def loader_of(provider: IndexProvider, batch_size: int, **settings: Any) -> DataLoader:
    how = {"num_workers": 2, "num_threads": 1, "start_method": "fork", "output_type": "numpy", **settings}
    return DataLoader(provider, batch_size, **how)


def depth_of(loader: DataLoader) -> int:
    """How far ahead a loader loads."""
    return int(pipeline_of(loader).fed.pool.settings.window)


class TestLoader:
    def test_how_far_it_loads_ahead_by_itself(self) -> None:
        with loader_of(IndexProvider(64), 2) as loader:
            assert indices(loader) == np.arange(64).reshape(32, 2).tolist()
            assert depth_of(loader) == 16

    def test_a_depth_that_was_asked_for_is_kept(self) -> None:
        for asked, depth in ((1, 2), (3, 3)):
            with loader_of(IndexProvider(32), 1, prefetch_queue_depth=asked) as loader:
                assert indices(loader) == [[index] for index in range(32)]
                assert depth_of(loader) == depth

    def test_a_bad_sample_that_nobody_asked_for_does_no_harm(self) -> None:
        with loader_of(BadSamples(60, 20), 1) as loader:
            for batch in loader:
                if batch["index"].item() == 6:
                    break
            loader.set_epoch(7)
            batches = iter(loader)
            assert indices(next(batches) for _ in range(20)) == [[index] for index in range(20)]
            with pytest.raises(SourceError, match="epoch 7, batch 20, slot 0"):
                next(batches)
