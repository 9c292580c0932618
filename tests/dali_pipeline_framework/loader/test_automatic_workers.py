"""``num_workers="auto"``: what is chosen for which costs, and that nothing that is delivered depends on it."""

from __future__ import annotations

import copy
import logging
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.draws import Drawer
from support.fault_providers import DeadlyProvider
from support.inputs import NumberCallable, NumberIterable
from support.laws import each_value
from support.loaders import json_copy, loop
from support.paced_providers import ComputingProvider, DrawingProvider, WaitingProvider
from support.pipelines import indices, worker_pids
from support.providers import FaultyProvider, IndexProvider, UnpicklableProvider
from support.reader_data import numbered_files

from accvlab.dali_pipeline_framework import FaultPolicy, ImageDecoder
from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.errors import SettingError, SourceError, SourcePicklingError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader, automatic_workers
from accvlab.dali_pipeline_framework.loader.automatic_workers import (
    Resources,
    SampleCost,
    choose,
    choose_unmeasured,
)
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.sampling import SequentialSampler
from accvlab.dali_pipeline_framework.sources import FileReader

GIB = 2**30
LOGGER = "accvlab.dali_pipeline_framework.loader.automatic_workers"


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic_workers, "num_cores_of_rank", lambda: 2)
    monkeypatch.setattr(automatic_workers, "free_memory", lambda: 64 * GIB)


def automatic(source: Any, batch_size: int | None = 4, **arguments: Any) -> DataLoader:
    return DataLoader(
        source,
        batch_size,
        **{"num_workers": "auto", "start_method": "fork", "output_type": "numpy", **arguments},
    )


# --- the choice ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "num_cores", "num_workers", "num_threads"),
    [
        # Instant: one, and nearly all threads.
        (SampleCost(0.00001, 0.00001), 16, 1, 15),
        # Reading alone, 0.3 ms, beside decoding of 20 ms on all cores.
        (SampleCost(0.0003, 0.0003, 0.02), 16, 1, 15),
        # Decoding in the worker, nothing in the graph: all cores.
        (SampleCost(0.02, 0.02, 0.0), 8, 8, 4),
        # As much here as there: half the cores.
        (SampleCost(0.02, 0.02, 0.02), 8, 4, 4),
        (SampleCost(0.01, 0.01, 0.03), 16, 4, 12),
        # Waiting: as many as it takes, up to four per core and 32.
        (SampleCost(0.05, 0.0005), 2, 8, 2),
        (SampleCost(0.05, 0.0005), 16, 32, 16),
        (SampleCost(0.005, 0.0005, 0.01), 16, 8, 15),
        (SampleCost(0.05, 0.0005), 64, 64, 63),
        # A single core.
        (SampleCost(0.02, 0.02, 0.02), 1, 1, 1),
        (SampleCost(0.02, 0.0), 1, 4, 1),
        (SampleCost(0.0, 0.0), 4, 1, 3),
    ],
)
def test_workers_and_threads(cost: SampleCost, num_cores: int, num_workers: int, num_threads: int) -> None:
    choice = choose(cost, Resources(num_cores, 256 * GIB))
    assert (choice.num_workers, choice.num_threads) == (num_workers, num_threads)


@pytest.mark.parametrize(
    ("memory", "input_bytes", "num_batches", "num_workers"),
    [(64 * GIB, 0, None, 8), (4 * GIB, 0, None, 5), (4 * GIB, GIB, None, 1), (0, 0, None, 1), (64 * GIB, 0, 3, 3)],
)
def test_no_more_than_memory_and_batches(
    memory: int, input_bytes: int, num_batches: int | None, num_workers: int
) -> None:
    cost = SampleCost(0.05, 0.0005, input_bytes=input_bytes)
    assert choose(cost, Resources(2, memory, num_batches)).num_workers == num_workers


def test_the_reason_is_a_line() -> None:
    assert choose(SampleCost(0.0201, 0.0012, 0.15), Resources(2, GIB)).reason == (
        "loading a sample takes 20 ms, 1.2 ms of it on a processor; the steps 150 ms; 2 usable cores"
    )


def test_without_a_measurement() -> None:
    numbers = [choose_unmeasured(Resources(cores, 64 * GIB), "KeyError").num_workers for cores in (1, 2, 4, 64)]
    assert numbers == [1, 2, 4, 4]
    assert choose_unmeasured(Resources(8, 64 * GIB, 2), "KeyError").num_workers == 2


# --- loaders ------------------------------------------------------------------------------------------------


class TestLoader:
    @each_value(
        chosen=[(WaitingProvider, [8]), (IndexProvider, [1, 2]), (ComputingProvider, range(1, 9))],
        shuffle=[False, True],
    )
    def test_batches_are_those_of_one_worker(self, chosen: Any, shuffle: bool) -> None:
        provider, possible = chosen
        steps = [Drawer(UniformDraw("noise"))]
        settings = {"shuffle": shuffle, "steps": steps, "seed": 3, "context_name": "place"}
        with automatic(provider(64), num_workers=1, **settings) as loader:
            expected = [loop(loader), loop(loader, 2), loop(loader)]
        with automatic(provider(64), **settings) as loader:
            assert loader.num_workers == "auto"
            assert [loop(loader), loop(loader, 2), loop(loader)] == expected
            assert loader.num_workers in possible
            assert len(worker_pids()) == loader.num_workers

    def test_what_was_chosen_is_shown(self, caplog: pytest.LogCaptureFixture) -> None:
        loader = automatic(WaitingProvider(64))
        assert repr(loader).startswith("DataLoader(batch_size=4, num_workers=auto, device=CPU")
        with loader, caplog.at_level(logging.INFO, LOGGER):
            loader.start()
            shown, _, _ = repr(loader).partition("\n")
            assert shown.startswith("DataLoader(batch_size=4, num_workers=8 (loading a sample takes ")
            [line] = [record.getMessage() for record in caplog.records if record.name == LOGGER]
            assert line.startswith("num_workers='auto': num_workers=8, num_threads=2 (loading a sample takes ")
            assert loader._run.pipeline.num_threads == 2

    def test_costs_are_measured(self) -> None:
        loader = automatic(ComputingProvider(64))
        with loader:
            cost = automatic_workers.measure(loader._definition, loader._bound, loader._run._arguments)
        assert cost is not None
        assert cost.wall_s >= cost.cpu_s * 0.5
        assert cost.cpu_s >= ComputingProvider.seconds
        loader = automatic(WaitingProvider(64))
        with loader:
            cost = automatic_workers.measure(loader._definition, loader._bound, loader._run._arguments)
        assert cost is not None
        assert cost.wall_s >= WaitingProvider.seconds * 0.9
        assert cost.cpu_s < cost.wall_s / 2

    def test_threads_that_were_asked_for_are_kept(self) -> None:
        for settings in ({"num_threads": 3}, {"pipeline_arguments": {"num_threads": 3}}):
            with automatic(IndexProvider(8), **settings) as loader:
                loader.start()
                assert loader._run.pipeline.num_threads == 3

    def test_a_copy_of_the_provider_is_measured_and_generators_go_on(self) -> None:
        provider = DrawingProvider(22)
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        expected = random.random(), np.random.random(), float(torch.rand(()))
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        with automatic(provider) as loader:
            loader.start()
            assert (random.random(), np.random.random(), float(torch.rand(()))) == expected
        assert provider.num_loaded == 0

    def test_it_goes_on_with_a_state_of_other_workers_and_the_reverse(self) -> None:
        def run(num_before: int, before: Any, after: Any) -> list[list[int]]:
            with automatic(WaitingProvider(30), shuffle=True, num_workers=before) as loader:
                batches = iter(loader)
                got = indices([next(batches) for _ in range(num_before)])
                state = json_copy(loader.state_dict())
            with automatic(WaitingProvider(30), shuffle=True, num_workers=after) as loader:
                loader.load_state_dict(state)
                got += indices(loader)
                assert loader.epoch == 1
                return got + indices(loader)

        assert run(3, "auto", 1) == run(3, 1, "auto") == run(3, 1, 1)

    def test_the_rest_of_an_epoch_in_other_batches(self) -> None:
        with automatic(IndexProvider(24), num_workers=1) as loader:
            batches = iter(loader)
            next(batches)
            state = loader.state_dict()
        rest = {}
        for num_workers in (1, "auto"):
            with automatic(IndexProvider(24), 5, num_workers=num_workers) as loader:
                loader.load_state_dict(state)
                rest[num_workers] = indices(loader)
        assert rest["auto"] == rest[1] == np.arange(4, 24).reshape(4, 5).tolist()

    @pytest.mark.parametrize("num_samples", [1, 3, 4, 5])
    def test_tiny_data_sets(self, num_samples: int) -> None:
        with automatic(WaitingProvider(num_samples)) as loader:
            assert [index for batch in indices(loader) for index in batch] == list(range(num_samples))
            assert loader.num_workers == -(-num_samples // 4)

    @pytest.mark.parametrize(
        ("start_method", "bad_sample"),
        [("fork", 0), ("fork", 6), *(pytest.param("spawn", bad, marks=pytest.mark.wide) for bad in (0, 6))],
    )
    def test_a_provider_that_fails(self, start_method: str, bad_sample: int) -> None:
        messages = {}
        for num_workers in (1, "auto"):
            provider = FaultyProvider("value_error", bad_sample)
            with automatic(provider, num_workers=num_workers, start_method=start_method) as loader:
                with pytest.raises(SourceError, match=f"ample {bad_sample}") as caught:
                    list(loader)
                messages[num_workers] = str(caught.value).split("  worker: ")[0]
        assert messages[1] == messages["auto"]

    def test_a_provider_that_cannot_be_pickled(self) -> None:
        with automatic(UnpicklableProvider()) as loader:
            assert len(indices(loader)) == 6
            assert "could not be measured here: TypeError" in repr(loader)
        loader = automatic(UnpicklableProvider(), start_method="spawn")
        with pytest.raises(SourcePicklingError, match="cache"):
            loader.start()
        loader.close()

    def test_spawned_workers(self) -> None:
        with automatic(IndexProvider(22), start_method="spawn") as loader:
            assert [index for batch in indices(loader) for index in batch] == list(range(22))

    def test_shards(self) -> None:
        got = []
        for shard in range(2):
            with automatic(WaitingProvider(16), 2, shard=(shard, 2)) as loader:
                got.append(indices(loader))
        assert [a + b for a, b in zip(*got, strict=True)] == np.arange(16).reshape(4, 4).tolist()

    def test_cores_are_those_of_the_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(automatic_workers, "num_cores_of_rank", lambda: 1)
        with automatic(WaitingProvider(64)) as loader:
            loader.start()
            assert loader.num_workers == 4

    def test_a_copy_chooses_by_itself(self) -> None:
        with automatic(IndexProvider(8)) as loader:
            loader.start()
            other = copy.deepcopy(loader)
            assert other.num_workers == "auto"
            other.close()


class TestOtherInputs:
    def test_a_callable_of_ones_own(self) -> None:
        source = NumberCallable(10)
        with automatic(source) as loader:
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert indices(loader) == [[1000, 1001, 1002, 1003], [1004, 1005, 1006, 1007]]
            assert loader.num_workers in (1, 2)
        assert source.asked == []

    def test_an_endless_callable(self) -> None:
        with automatic(NumberCallable(10, has_epochs=False), steps_per_epoch=2) as loader:
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]

    def test_a_callable_without_samples_for_a_batch(self) -> None:
        with automatic(NumberCallable(0)) as loader:
            assert indices(loader) == []
            assert "there is no sample" in repr(loader)

    def test_an_iterable_has_one_worker(self) -> None:
        with automatic(NumberIterable(10)) as loader:
            assert indices(loader, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert loader.num_workers == 1
            assert "an iterable is loaded by one worker" in repr(loader)

    def test_a_native_reader_has_none(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path, {"a": 4, "b": 4})
        with automatic(FileReader(file_root=str(root), file_filters=["*"])) as loader:
            assert len(list(loader)) == 2
            assert loader.num_workers == 0
            assert worker_pids() == []

    def test_without_worker_processes(self) -> None:
        source = PipelineDefinition(NumberCallable(8), use_parallel_external_source=False)
        with automatic(source) as loader:
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert loader.num_workers == 0


@pytest.mark.parametrize("value", ["Auto", "2", -1, 1.5, True])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(SettingError, match="`num_workers` must be a whole number of at least 0"):
        automatic(IndexProvider(8), num_workers=value)


# --- more workers than cores --------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "num_cores"), [("", 3), ("2", 1), ("9", 1)])
def test_more_workers_than_cores_are_warned_of_at_the_user_s_line(
    monkeypatch: pytest.MonkeyPatch, ranks: str, num_cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5})
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    definition = PipelineDefinition(SamplerInputCallable(IndexProvider(8), SequentialSampler(8, 4)))

    def built(pipeline: Any) -> Any:
        pipeline.build()
        return pipeline

    makers = {
        "num_workers": lambda count: DataLoader(IndexProvider(8), 4, num_workers=count),
        "py_num_workers": lambda count: built(definition.get_dali_pipeline(py_num_workers=count)),
    }
    for name, make in makers.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(num_cores).close()
            assert caught == []
            make(num_cores + 1).close()
        (warning,) = caught
        assert warning.category is UserWarning
        assert warning.filename == __file__
        text = f"`{name}={num_cores + 1}` starts {num_cores + 1} worker processes, and this rank has"
        assert str(warning.message).startswith(text)


def test_nothing_is_warned_of_where_no_worker_is_started(tmp_path: Path) -> None:
    root = numbered_files(tmp_path, {"a": 4})
    source = SamplerInputCallable(IndexProvider(8), SequentialSampler(8, 4))
    here = PipelineDefinition(source, use_parallel_external_source=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(FileReader(file_root=root), 4, num_workers=99).close()
        DataLoader(here, 4, num_workers=99).close()
        pipeline: Any = here.get_dali_pipeline(py_num_workers=99)
        pipeline.build()
        pipeline.close()


def test_restarts_do_not_warn_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    arguments = {"num_workers": 2, "start_method": "fork", "steps": [ImageDecoder("image", False)]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with DataLoader(
            DeadlyProvider(tmp_path, "kill", {5: 1}, 8), 4, faults=FaultPolicy(restarts=1), **arguments
        ) as loader:
            assert len(list(loader)) == 2
    assert [warning.category for warning in caught] == [UserWarning]
    assert any(tmp_path.iterdir())
