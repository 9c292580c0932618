"""Loops, epochs, settings and the end of a loader, with real pipelines."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import logging
import os
import pydoc
from typing import Any

import numpy as np
import pytest
import torch
from support.arrays import DT, ArrayProvider
from support.inputs import CountedCallable, NumberCallable, NumberIterable
from support.laws import each_value, spread
from support.loaders import LENGTHS, by_sampler, edited, make_loader, pipeline_of
from support.pipelines import indices, shuffled, worker_pids
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.samplers import EndlessSampler, EpochSampler
from support.start_methods import FORKED

from accvlab.dali_pipeline_framework.engine.structured_pipeline import StructuredPipeline
from accvlab.dali_pipeline_framework.errors import ClosedError, NotSupportedError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, SamplerInputIterable, SequenceSampler
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.sampling import SampleCounts, ShuffledSampler, StreamingSequenceSampler
from accvlab.dali_pipeline_framework.sources import Shard

LOGGER = "accvlab.dali_pipeline_framework.loader.loader_run"


@pytest.fixture(autouse=True)
def _single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("OMPI_COMM_", "SLURM_")):
            monkeypatch.delenv(name)


def expected(epoch: int) -> list[list[int]]:
    sampler = ShuffledSampler(22, 4, seed=3)
    return [sampler.get_batch_indices(epoch, batch).tolist() for batch in range(5)]


def loader_22(**arguments: Any) -> DataLoader:
    return make_loader(by_sampler(ShuffledSampler(22, seed=3)), 4, **arguments)


WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 3, "pipeline_arguments": {"prefetch_queue_depth": 3}},
    {"num_workers": 2, "prefetch_queue_depth": 5},
]


# --- loops -----------------------------------------------------------------------------------------------


class TestLoops:
    @spread("arguments", WORKERS, 2)
    def test_each_loop_is_an_epoch(self, arguments: dict[str, Any]) -> None:
        with loader_22(**arguments) as loader:
            for epoch in range(3):
                assert loader.epoch == epoch
                assert indices(loader) == expected(epoch)
            assert loader.epoch == 3

    @each_value(arguments=WORKERS, num_before=[1, 2, 4, 5])
    def test_behind_a_break_comes_the_next_epoch_from_its_beginning(
        self, arguments: dict[str, Any], num_before: int
    ) -> None:
        with loader_22(**arguments) as loader:
            for epoch in range(3):
                assert indices(loader, num_before) == expected(epoch)[:num_before]
            assert indices(loader) == expected(3)

    def test_begun_loops_from_which_nothing_was_taken_skip_nothing(self) -> None:
        with loader_22(num_workers=1) as loader:
            for epoch in range(2):
                iter(loader)
                iter(loader)
                assert loader.epoch == epoch
                assert indices(loader) == expected(epoch)

    def test_a_new_loop_ends_the_old_one(self) -> None:
        with loader_22(num_workers=1) as loader:
            old = iter(loader)
            next(old)
            new = iter(loader)
            with pytest.raises(ClosedError, match="This loop over the loader has ended: another loop has begun"):
                next(old)
            assert indices(new) == expected(1)
            with pytest.raises(ClosedError):
                next(old)

    @pytest.mark.parametrize("arguments", WORKERS[:2])
    def test_next_behind_the_end_keeps_raising(self, arguments: dict[str, Any]) -> None:
        with loader_22(**arguments) as loader:
            loop = iter(loader)
            assert iter(loop) is loop
            assert indices(loop) == expected(0)
            for _ in range(3):
                with pytest.raises(StopIteration):
                    next(loop)
            assert indices(loader) == expected(1)

    def test_a_loader_without_a_name_lives_as_long_as_its_loop(self) -> None:
        assert [batch["index"].tolist() for batch in loader_22(num_workers=1)] == expected(0)

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_iterables(self, num_workers: int) -> None:
        source = SamplerInputIterable(IndexProvider(10), EpochSampler())
        with make_loader(source, num_workers=num_workers) as loader:
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert indices(loader, 1) == [[1, 2, 3, 4]]
            assert loader.epoch == 1
            assert indices(loader) == [[2, 3, 4, 5], [6, 7, 8, 9]]
            assert loader.epoch == 3

    @spread("arguments", WORKERS, 2)
    def test_an_endless_stream_goes_on_behind_a_break_and_loses_nothing(self, arguments: dict[str, Any]) -> None:
        with make_loader(by_sampler(EndlessSampler(100), IndexProvider(100)), **arguments) as loader:
            delivered = indices(loader, 2) + indices(loader, 3) + indices(loader, 1)
            assert [index for batch in delivered for index in batch] == [*range(24)]
            assert loader.epoch == 0
            assert loader.state_dict()["batch"] == 6
            with pytest.raises(TypeError, match="Pass `steps_per_epoch`"):
                len(loader)
            with pytest.raises(NotSupportedError, match="has no epochs"):
                loader.set_epoch(1)

    @spread("arguments", WORKERS, 2)
    def test_an_endless_stream_in_steps(self, arguments: dict[str, Any]) -> None:
        def from_to(start: int, stop: int) -> list[list[int]]:
            return [[*range(4 * batch, 4 * batch + 4)] for batch in range(start, stop)]

        with make_loader(
            by_sampler(EndlessSampler(100), IndexProvider(100)), steps_per_epoch=3, **arguments
        ) as loader:
            assert len(loader) == 3
            assert indices(loader) == from_to(0, 3)
            assert indices(loader) == from_to(3, 6)
            assert indices(loader, 1) == from_to(6, 7)
            assert loader.epoch == 2
            assert indices(loader) == from_to(9, 12)  # what the break left of epoch 2 is left out
            loader.set_epoch(1)
            assert indices(loader) == from_to(3, 6)

    def test_an_endless_stream_of_a_callable_loads_nothing_twice(self) -> None:
        source = NumberCallable(has_epochs=False)
        with make_loader(source, 4) as loader:
            assert [len(indices(loader, number)) for number in (2, 1, 3)] == [2, 1, 3]
        assert source.asked == [*range(len(source.asked))]

    def test_a_limited_stream_ends_and_stays_at_its_end(self) -> None:
        source = SamplerInputCallable(IndexProvider(10), EndlessSampler(), 3)
        with make_loader(source, num_workers=1) as loader:
            assert len(loader) == 3
            assert [len(indices(loader, 2)), len(indices(loader))] == [2, 1]
            assert [indices(loader), indices(loader)] == [[], []]
            assert loader.state_dict()["batch"] == 3

    def test_a_batch_that_cannot_be_converted_does_not_shift_the_others(self) -> None:
        def post_process(batch: Any) -> list[int]:
            if batch["index"][0] == expected(0)[1][0]:
                raise ValueError("not this one")
            return batch["index"].tolist()

        with loader_22(num_workers=1, post_process_func=post_process) as loader:
            loop = iter(loader)
            assert next(loop) == expected(0)[0]
            with pytest.raises(ValueError, match="not this one"):
                next(loop)
            assert loader.state_dict()["batch"] == 1  # it was not received
            assert next(loop) == expected(0)[2]
            state = loader.state_dict()
            assert state["batch"] == 3
            assert [*loop] == expected(0)[3:]
            loader.load_state_dict(state)
            assert [*loader] == expected(0)[3:]
            assert [*loader] == expected(1)


class TestSetEpoch:
    def test_before_the_first_loop_and_between(self) -> None:
        with loader_22(num_workers=2) as loader:
            setters = loader.set_epoch, loader.sampler.set_epoch, loader.batch_sampler.sampler.set_epoch
            for epoch, set_epoch in zip((7, 8, 8, 3, 0), itertools.cycle(setters), strict=False):
                set_epoch(epoch)
                assert loader.epoch == epoch
                assert loader.state_dict()["epoch"] == epoch
                assert indices(loader) == expected(epoch)
            assert indices(loader) == expected(1)

    def test_a_loop_that_has_no_batch_yet_is_moved(self) -> None:
        """Lightning begins a loop, then sets the epoch of a checkpoint, then requests batches."""
        with loader_22() as loader:
            loop = iter(loader)
            loader.set_epoch(2)
            assert (loader.epoch, loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (2, 2, 0)
            assert indices(loop) == expected(2)
            assert indices(loader) == expected(3)

    @pytest.mark.parametrize("epoch", [0, 1, 5])
    @pytest.mark.parametrize("leaves", [True, False])
    def test_during_a_loop_it_is_for_the_next_one(self, epoch: int, leaves: bool) -> None:
        with loader_22(num_workers=1) as loader:
            for number, batch in enumerate(loader):
                assert batch["index"].tolist() == expected(0)[number]
                assert loader.epoch == (0 if number < 4 else 1)
                if number == 1:
                    loader.set_epoch(epoch)
                if number == 3 and leaves:
                    break
            assert indices(loader) == expected(epoch)
            assert indices(loader) == expected(epoch + 1)

    def test_behind_a_break_the_same_epoch_begins_anew_or_the_next_one(self) -> None:
        with loader_22(num_workers=1) as loader:
            for epoch, batch in ((0, 2), (0, 0), (1, 0)):
                if batch == 0:
                    loader.set_epoch(epoch)
                else:
                    assert indices(loader, 2) == expected(0)[:2]
                assert (loader.epoch, loader.state_dict()["batch"]) == (epoch, batch)
            loader.set_epoch(0)
            assert indices(loader) == expected(0)

    def test_of_a_loaded_state_keeps_its_position(self) -> None:
        with loader_22(num_workers=1) as loader:
            state = edited(loader.state_dict(), {"epoch": 4, "batch": 3})
            loader.load_state_dict(state)
            for epoch in range(loader.epoch, 6):  # as training loops are written
                loader.set_epoch(epoch)
                assert indices(loader) == (expected(4)[3:] if epoch == 4 else expected(epoch))
            for epochs, batches in (((4,), expected(4)[3:]), ((2,), expected(2)), ((2, 4), expected(4))):
                for begins_before in (False, True):
                    loader.load_state_dict(state)
                    loop = iter(loader) if begins_before else loader
                    for epoch in epochs:  # changed away and back: from its beginning
                        loader.set_epoch(epoch)
                    assert indices(loop) == batches
            for epoch, at in ((0, (4, 3)), (4, (4, 3)), (5, (5, 0))):  # trainers count epochs of their own
                loader.load_state_dict(state)
                loader.sampler.set_epoch(epoch)
                assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == at

    @pytest.mark.parametrize("during", [True, False])
    def test_an_epoch_that_was_begun_with_another_batch_size_is_planned_anew(self, during: bool) -> None:
        with loader_22(num_workers=1) as loader:
            state = edited(loader.state_dict(), {"epoch": 2, "batch": 2, "total_batch_size": 3})
            loader.load_state_dict(state)
            order = [index for batch in expected(2) for index in batch]
            following = [order[start : start + 4] for start in range(6, 18, 4)]
            received = []
            for batch in loader:
                if during and not received:
                    loader.set_epoch(2)
                received.append(batch["index"].tolist())
            assert received[:3] == following
            assert len(received) == 4
            if not during:
                loader.set_epoch(2)
            assert len(loader) == 5
            assert indices(loader) == expected(2)
            assert indices(loader) == expected(3)

    @pytest.mark.parametrize("value", [-1, 1.5, "1", None, True])
    def test_must_be_a_whole_number(self, value: Any) -> None:
        with loader_22() as loader:
            assert_refused(lambda: loader.set_epoch(value), "`epoch` must be a whole number of at least 0")

    @pytest.mark.parametrize(("source", "size"), [(NumberCallable(10), 4), (CountedCallable(10), None)])
    def test_of_a_user_s_callable(self, source: Any, size: int | None) -> None:
        with make_loader(source, size, num_workers=2) as loader:
            loader.set_epoch(6)
            assert indices(loader) == [[6000, 6001, 6002, 6003], [6004, 6005, 6006, 6007]]


# --- what it tells ---------------------------------------------------------------------------------------


class TestAttributes:
    def test_of_a_sampler(self) -> None:
        provider = IndexProvider(22)
        sampler = StreamingSequenceSampler(LENGTHS, seed=1)
        with make_loader(by_sampler(sampler, provider), 2, shard=(1, 2), num_workers=2) as loader:
            bound = sampler.with_settings(total_batch_size=4)
            assert len(loader) == bound.num_batches(0) == len(indices(loader))
            assert loader.sample_counts() == bound.sample_counts(1)
            assert loader.sample_counts(5) == bound.sample_counts(5)
            assert (loader.shard, loader.dataset) == (Shard(1, 2), provider)
            assert (loader.batch_size, loader.num_workers) == (2, 2)
            assert loader.sample_data_structure.field_names_flat[:2] == ("index", "position.epoch")

    @pytest.mark.parametrize(
        ("source", "size", "num_batches", "counts"),
        [
            (shuffled(IndexProvider(22)), None, 5, SampleCounts(5, 22, 20, 2, 0, 0)),
            (CountedCallable(22), None, 5, None),
            (NumberIterable(20), 4, 5, None),
        ],
    )
    def test_of_an_input(self, source: Any, size: int | None, num_batches: int, counts: Any) -> None:
        with make_loader(source, size) as loader:
            assert (len(loader), loader.batch_size, loader.shard) == (num_batches, 4, Shard(0, 1))
            assert loader.sample_counts() == counts
            assert len(indices(loader)) == num_batches

    def test_of_a_user_s_callable_that_tells_nothing(self) -> None:
        source = NumberCallable()
        with make_loader(source, 3) as loader:
            assert (loader.batch_size, loader.dataset) == (3, source)
            with pytest.raises(TypeError, match="is not known"):
                len(loader)

    @pytest.mark.parametrize(
        ("source", "shard", "found"),
        [
            (by_sampler(ShuffledSampler(22, 8, seed=3)), (1, 2), (4, Shard(1, 2))),
            (by_sampler(SequenceSampler(4, LENGTHS, 1)), None, (4, Shard(0, 1))),
            (by_sampler(EpochSampler()), None, (4, Shard(0, 1))),
            (shuffled(IndexProvider(22), 2, shard_id=1, num_shards=2), None, (2, Shard(1, 2))),
            (SamplerInputIterable(IndexProvider(10), EpochSampler(), 1, 2), None, (2, Shard(1, 2))),
        ],
    )
    def test_batch_size_and_shard_are_those_of_sampler_or_input(self, source: Any, shard: Any, found: Any) -> None:
        with make_loader(source, shard=shard) as loader:
            assert (loader.batch_size, loader.shard) == found


class TestLogging:
    @pytest.mark.parametrize(
        ("policy", "end"),
        [
            ("drop", "5 batches of 4 (all shards together) deliver 20 of 22 samples, 2 dropped"),
            ("pad", "6 batches of 4 (all shards together) deliver 22 of 22 samples, 2 slots padded"),
            ("partial", "6 batches of 4 (all shards together) deliver 22 of 22 samples, 2 slots left out"),
            ("wrap", "6 batches of 4 (all shards together) deliver 22 of 22 samples, 2 delivered once more"),
        ],
    )
    def test_the_account_is_told_once(self, policy: Any, end: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, LOGGER)
        for shard in range(2):
            with make_loader(by_sampler(ShuffledSampler(22)), 2, shard=(shard, 2), last_batch=policy) as loader:
                assert len(caplog.messages) == shard
                loader.set_epoch(3)
                indices(loader, 1)
                indices(loader, 1)
        assert caplog.messages == [f"epoch 3: {end}"]  # only on the first shard

    @pytest.fixture
    def rank_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")

    @pytest.mark.usefixtures("rank_1")
    def test_ranks_that_load_all_the_same_are_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        loader_22().close()
        make_loader(SamplerInputIterable(IndexProvider(10), EpochSampler())).close()
        assert len(caplog.messages) == 2
        for message in caplog.messages:
            assert "rank 1 of 2 (torchrun)" in message
            assert "every rank trains on the same batches" in message

    @pytest.mark.usefixtures("rank_1")
    def test_ranks_that_have_a_shard_are_not(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for shard in ("auto", "torchrun", (0, 1), Shard(1, 2)):
            loader_22(shard=shard).close()
        make_loader(shuffled(IndexProvider(22), shard_id=1, num_shards=2)).close()
        make_loader(SamplerInputIterable(IndexProvider(10), EpochSampler(), 1, 2)).close()
        make_loader(NumberCallable(), 4).close()
        monkeypatch.delenv("RANK")  # half set
        loader_22().close()
        assert caplog.messages == []


# --- starting and closing --------------------------------------------------------------------------------


class TestLifetime:
    def test_workers_start_with_the_first_loop(self) -> None:
        before = len(worker_pids())
        with loader_22(num_workers=2) as loader:
            loader.state_dict()
            assert len(worker_pids()) == before
            assert indices(loader, 1) == expected(0)[:1]
            assert len(worker_pids()) == before + 2
        assert len(worker_pids()) == before

    @pytest.mark.parametrize("method", FORKED)
    def test_workers_can_be_started_ahead(self, method: str) -> None:
        before = len(worker_pids())
        with loader_22(num_workers=1, start_method=method) as loader:
            loader.start()
            assert len(worker_pids()) == before + 1
            loader.start()
            loader.load_state_dict(edited(loader.state_dict(), {"epoch": 1, "batch": 2}))
            assert indices(loader) == expected(1)[2:]
            assert len(worker_pids()) == before + 1

    def test_a_state_of_another_batch_size_replaces_the_workers(self) -> None:
        before = set(worker_pids())
        with loader_22(num_workers=1) as loader:
            loader.start()
            first = set(worker_pids()) - before
            loader.load_state_dict(edited(loader.state_dict(), {"batch": 2, "total_batch_size": 3}))
            second = set(worker_pids()) - before
            assert len(first) == len(second) == 1
            assert first != second
            assert loader.state_dict()["segments"] == [[1, 3, 2]]
        assert set(worker_pids()) == before

    def test_close(self) -> None:
        loader_22(num_workers=2).close()  # which never ran
        before = set(worker_pids())
        loader = loader_22(num_workers=2)
        loop = iter(loader)
        held = next(loop)["index"]
        loader.close()
        loader.close()
        assert set(worker_pids()) == before
        assert held.tolist() == expected(0)[0]
        assert loader.state_dict()["batch"] == 1  # what was delivered can still be saved
        for use in (loader.start, lambda: iter(loader), lambda: next(loop), lambda: loader.load_state_dict({})):
            with pytest.raises(ClosedError, match="The loader was closed"):
                use()

    def test_with_closes_also_after_an_error(self) -> None:
        before = set(worker_pids())
        with contextlib.suppress(ZeroDivisionError), loader_22(num_workers=2) as loader:
            for _ in loader:
                raise ZeroDivisionError
        assert set(worker_pids()) == before

    @pytest.mark.parametrize("is_in_loop", [True, False])
    def test_a_loader_that_is_dropped_is_closed_at_once(self, is_in_loop: bool) -> None:
        before = set(worker_pids())
        loader = loader_22(num_workers=1)
        loop = iter(loader)
        next(loop)
        if not is_in_loop:
            indices(loop)
        gc.collect()
        gc.disable()
        try:
            del loop, loader
            assert set(worker_pids()) == before
        finally:
            gc.enable()


# --- how the batches come out ----------------------------------------------------------------------------


class TestOutput:
    def test_torch_unless_told_otherwise(self) -> None:
        order = {"sampler": ShuffledSampler(22, seed=3), "context_name": "position"}
        with DataLoader(NumberProvider(22), 4, num_workers=0, num_threads=1, **order) as loader:
            batch = next(iter(loader))
        assert isinstance(batch["index"], torch.Tensor)
        assert batch["index"].tolist() == expected(0)[0]
        assert batch["position"]["is_padding"].dtype == torch.bool
        assert batch["name"] == ["x" * (index % 3) for index in expected(0)[0]]

    @pytest.mark.parametrize("num_values", [16, 40_000])
    def test_batches_that_are_held_keep_their_values_while_memory_is_filled_again(self, num_values: int) -> None:
        rows = [np.full(num_values, number, np.float32) for number in range(64)]
        with make_loader(ArrayProvider({"row": (DT.FLOAT, rows)}), 2, num_workers=1) as loader:
            held = [batch["row"] for _ in range(2) for batch in loader]
        assert [[np.unique(row).item() for row in batch] for batch in held] == [
            [2 * number, 2 * number + 1] for number in range(32)
        ] * 2
        assert all(batch.flags.writeable for batch in held)

    def test_arguments_of_the_pipeline_arrive(self) -> None:
        arguments = {"prefetch_queue_depth": 4, "exec_dynamic": True}
        with loader_22(pipeline_arguments=arguments, seed=5, num_threads=3) as loader:
            pipeline = pipeline_of(loader)
            assert isinstance(pipeline, StructuredPipeline)
            assert (pipeline.prefetch_queue_depth, pipeline.seed, pipeline.num_threads) == (4, 5, 3)
            assert indices(loader) == expected(0)


def test_provider_and_sampler_can_be_used_again() -> None:
    order = by_sampler(ShuffledSampler(22, seed=3))
    for size in (4, 2):
        with make_loader(order, size) as loader:
            assert indices(loader, 1) == [expected(0)[0][:size]]


def test_help_shows_the_arguments_first() -> None:
    lines = [line.strip(" |") for line in pydoc.plain(pydoc.render_doc(DataLoader)).splitlines()]
    at = lines.index("Args:")
    assert lines[at - 2] == (inspect.getdoc(DataLoader) or "").splitlines()[0]
    named = [
        name for name in inspect.signature(DataLoader).parameters if f"    {name}: " in str(DataLoader.__doc__)
    ]
    assert named == [*inspect.signature(DataLoader).parameters]
