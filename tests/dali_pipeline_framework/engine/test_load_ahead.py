"""How far ahead workers load: enough that slow samples hold up nobody, and no more than memory allows."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from accvlab.dali_pipeline_framework.engine.watching import pool
from accvlab.dali_pipeline_framework.engine.watching.pool import evening_depth
from support.loaders import pipeline_of
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.engine.structured_pipeline import StructuredPipeline
from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.sampling import SequentialSampler

MIB = 2**20
BATCH_MIB = 17  # of 8 samples with two megabytes each


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


class BigProvider(IndexProvider):
    """Samples of two megabytes."""

    def get_data(self, sample_index: int) -> Any:
        sample = super().get_data(sample_index)
        sample["index"] = np.full(2**18, sample_index, np.int64)
        return sample


class FailingProvider(IndexProvider):
    """Sample 20 cannot be loaded."""

    def get_data(self, sample_index: int) -> Any:
        if sample_index == 20:
            raise ValueError("no such file")
        return super().get_data(sample_index)


def loader_of(num_samples: int, batch_size: int, provider: Any = IndexProvider, **settings: Any) -> DataLoader:
    return DataLoader(
        provider(num_samples),
        batch_size,
        num_threads=1,
        start_method="fork",
        output_type="numpy",
        **{"num_workers": 2, **settings},
    )


def group_of(loader: DataLoader) -> Any:
    [group] = pipeline_of(loader)._parallel_input_callbacks
    return group


def buffers_in_use(loader: DataLoader) -> int:
    pool = pipeline_of(loader)._py_pool
    assert pool is not None
    return sum(chunk.capacity > MIB for chunk in pool.contexts[0].shm_manager.get_chunks())


class TestLoader:
    def test_it_begins_with_a_batch_per_worker_and_goes_on_with_more(self) -> None:
        with loader_of(64, 2) as loader:
            loader.start()
            assert group_of(loader).prefetch_queue_depth == 2
            assert indices(loader) == np.arange(64).reshape(32, 2).tolist()
            assert group_of(loader).prefetch_queue_depth == 16

    @pytest.mark.wide
    def test_only_as_far_as_memory_allows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pool, "MEMORY_FOR_DEPTH", 3 * (BATCH_MIB + 1) * MIB)
        with loader_of(64, 8, BigProvider, num_workers=2) as loader:
            got = [batch["index"][:, 0].tolist() for batch in loader]
            assert got == np.arange(64).reshape(8, 8).tolist()
            assert group_of(loader).prefetch_queue_depth == 2 + 3
            # Besides those of batches ahead, DALI keeps two for batches in the graph.
            assert buffers_in_use(loader) <= 2 + 3 + 2

    @pytest.mark.parametrize(("free", "depth"), [(0, 2), (2 * 4 * MIB, 6), (None, 28)])
    def test_no_more_than_half_of_the_free_shared_memory(
        self, monkeypatch: pytest.MonkeyPatch, free: int | None, depth: int
    ) -> None:
        with loader_of(30, 1) as loader:
            loader.start()
            monkeypatch.setattr(pool, "free_shared_memory", lambda: free)
            assert indices(loader) == [[index] for index in range(30)]
            assert group_of(loader).prefetch_queue_depth == depth

    def test_a_depth_that_was_asked_for_is_kept(self) -> None:
        for asked, depth in ((1, 2), (3, 3)):
            source = SamplerInputCallable(IndexProvider(32), SequentialSampler(32))
            definition = PipelineDefinition(source, prefetch_queue_depth=asked)
            with DataLoader(
                definition, 1, num_workers=2, num_threads=1, start_method="fork", output_type="numpy"
            ) as loader:
                assert indices(loader) == [[index] for index in range(32)]
                assert group_of(loader).prefetch_queue_depth == depth

    def test_pipelines_without_a_loader_load_as_far_ahead_as_they_are_told(self) -> None:
        with make_iterator(shuffled(IndexProvider(32), 1), batch_size=1) as iterator:
            assert len(indices(iterator)) == 32
            [group] = iterator.internal_iterator._parallel_input_callbacks
            assert group.prefetch_queue_depth == 2

    def test_an_abandoned_epoch_does_not_go_through_the_graph(self, monkeypatch: pytest.MonkeyPatch) -> None:
        thrown_away = []
        throw_away = StructuredPipeline._throw_batch_away

        def counted(pipeline: StructuredPipeline) -> None:
            thrown_away.append(None)
            throw_away(pipeline)

        monkeypatch.setattr(StructuredPipeline, "_throw_batch_away", counted)
        with loader_of(100, 1) as loader:
            for epoch in range(3):
                thrown_away.clear()
                for number, batch in enumerate(loader):
                    assert batch["index"].ravel().tolist() == [number]
                    if number == 5:
                        break
                assert len(thrown_away) <= (3 if epoch else 0)
            assert indices(loader) == [[index] for index in range(100)]
            assert thrown_away

    def test_a_bad_sample_that_nobody_asked_for_does_no_harm(self) -> None:
        with loader_of(60, 1, FailingProvider) as loader:
            for batch in loader:
                if batch["index"].item() == 6:
                    break
            loader.set_epoch(7)
            batches = iter(loader)
            assert indices(next(batches) for _ in range(20)) == [[index] for index in range(20)]
            with pytest.raises(SourceError, match="epoch 7, batch 20, slot 0"):
                next(batches)

    def test_it_goes_on_with_a_saved_state(self) -> None:
        with loader_of(40, 2) as loader:
            batches = iter(loader)
            first = [next(batches)["index"].ravel().tolist() for _ in range(3)]
            state = loader.state_dict()
        with loader_of(40, 2, num_workers=3) as loader:
            loader.load_state_dict(state)
            assert first + indices(loader) == np.arange(40).reshape(20, 2).tolist()
