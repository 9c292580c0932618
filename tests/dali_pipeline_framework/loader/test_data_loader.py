"""Loops, epochs, settings and the end of a loader, with real pipelines."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import logging
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.arrays import DT, ArrayProvider
from support.inputs import CountedCallable, NumberCallable, NumberIterable
from support.laws import examples, spread
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


class Documented:
    """Which batches loops have, and what a state tells, as the documentation has it.

    Attributes:
        start: Where the next loop starts: epoch, batch.
        told: What a state tells.
        at: Where the running loop is, if there is one.
        has_begun: Whether that has received a batch.
        is_set: Whether an epoch was set for the loop after it.
    """

    def __init__(self) -> None:
        self.at: tuple[int, int] | None = None
        self.load((0, 0))

    def load(self, position: tuple[int, int]) -> None:
        self.start = self.told = position
        self.at = None

    def begin(self) -> None:
        self.at = self.told = self.start
        self.has_begun = self.is_set = False

    def take(self, number: int) -> list[list[int]]:
        if self.at is None:
            return []
        epoch, batch = self.at
        taken = expected(epoch)[batch:][:number]
        if taken:
            batch += len(taken)
            self.has_begun, self.at, self.told = (
                True,
                (epoch, batch),
                (epoch, batch) if batch < 5 else (epoch + 1, 0),
            )
            self.start = self.start if self.is_set else (epoch + 1, 0)
        if number > len(taken):  # it has ended
            self.at, self.told = None, self.start
        return taken

    def set_epoch(self, epoch: int) -> None:
        is_new, is_between = epoch != self.start[0], self.at is None or not self.has_begun
        if is_new:
            self.start, self.is_set = (epoch, 0), not is_between
        if is_between:
            self.told = self.start
            self.at = self.start if self.at is not None else None


ACTS = st.tuples(
    st.sampled_from(["loop", "more", "set", "more", "set", "leave", "load"]), st.sampled_from([6, 1, 3, 0])
)


class TestLoops:
    # Without shrinking, which takes minutes where loaders are made.
    @settings(max_examples=examples(15, 200), phases=[Phase.generate])
    @given(st.sampled_from([0, 0, 2]), st.lists(ACTS, min_size=8, max_size=16))
    def test_loops_epochs_and_states_are_as_documented(
        self, num_workers: int, acts: list[tuple[str, int]]
    ) -> None:
        model, loop, saved = Documented(), None, []
        with loader_22(num_workers=num_workers) as loader:
            for act, number in [("loop", 1), *acts]:
                if act == "loop":
                    loop = iter(loader)
                    model.begin()
                if act in ("loop", "more") and loop is not None:
                    assert indices(itertools.islice(loop, number)) == model.take(number)
                if act in ("leave", "load"):
                    loop = model.at = None
                if act == "set":
                    loader.set_epoch(number)
                    model.set_epoch(number)
                if act == "load":
                    state, position = saved[-number - 1 :][0]
                    loader.load_state_dict(state)
                    model.load(position)
                saved.append((loader.state_dict(), model.told))
                state = saved[-1][0]
                assert (loader.epoch, state["epoch"], state["batch"]) == (model.told[0], *model.told)

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

    def test_a_loader_without_a_name_lives_as_long_as_its_loop(self) -> None:
        loop = iter(loader_22(num_workers=1))
        assert iter(loop) is loop
        assert indices(loop) == expected(0)

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
    def test_of_the_samplers_leaves_a_loaded_state_of_a_later_epoch(self) -> None:
        """Trainers count epochs of their own."""
        with loader_22(num_workers=2) as loader:
            for set_epoch in (loader.sampler.set_epoch, loader.batch_sampler.sampler.set_epoch):
                set_epoch(7)
                assert indices(loader) == expected(7)
                state = edited(loader.state_dict(), {"epoch": 4, "batch": 3})
                for epoch, at in ((0, (4, 3)), (4, (4, 3)), (5, (5, 0))):
                    loader.load_state_dict(state)
                    set_epoch(epoch)
                    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == at

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
            with pytest.raises(TypeError, match=r"is not known\..*needs the attribute `num_batches_per_epoch`"):
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


def test_help_tells_all_arguments() -> None:
    names = [*inspect.signature(DataLoader).parameters]
    assert [name for name in names if f"    {name}: " in str(DataLoader.__doc__)] == names
