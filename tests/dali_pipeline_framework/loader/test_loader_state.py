"""Stopping and continuing a loader: with real pipelines, at every position."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
import pytest
from support.inputs import NumberCallable, NumberIterable
from support.laws import each_value, examples, spread
from support.loaders import LENGTHS, ORDERS, PLANNED, Order, by_sampler, edited, json_copy, loop, make_loader
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.samplers import EpochSampler

from accvlab.dali_pipeline_framework.errors import ClosedError, NotSupportedError, StateError
from accvlab.dali_pipeline_framework.inputs import SamplerInputIterable, SequenceSampler
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler, StreamingSequenceSampler

# --- the same run ----------------------------------------------------------------------------------------


def deliveries(batches: Iterable[Mapping[str, Any]]) -> list[tuple[int, int, int]]:
    """Sample index, sequence and frame of all that is delivered, without padding."""
    names = "sample_index", "sequence", "frame", "is_padding"
    columns = ((np.asarray(batch["position"][name]).tolist() for name in names) for batch in batches)
    rows = itertools.chain.from_iterable(zip(*each, strict=True) for each in columns)
    return [place for *place, is_padding in rows if not is_padding]


def loops_with_states(order: Order, **arguments: Any) -> tuple[list[list[Any]], list[tuple[int, int, Any]]]:
    """The batches of some loops, and the state at all positions: loop, batches received in it, state."""
    loops, states = [], []
    with order.loader(**arguments) as loader:
        for number in range(order.num_loops):
            states.append((number, 0, json_copy(loader.state_dict())))
            batches = []
            for batch in loader:
                batches += loop([batch])
                states.append((number, len(batches), json_copy(loader.state_dict())))
                if len(batches) == order.num_max:
                    break
            loops.append(batches)
        states.append((order.num_loops, 0, json_copy(loader.state_dict())))
        loops.append(loop(loader, order.num_max))
    return loops, states


def is_continued(order: Order, loops: list[list[Any]], position: tuple[int, int, Any], **arguments: Any) -> bool:
    number, num_received, state = position
    expected = [loops[number][num_received:], *loops[number + 1 :]]
    if not expected[0] and order.has_known_length:
        del expected[0]
    if order.num_max is not None:
        expected = [[batch for batches in expected for batch in batches]]
    with order.loader(**arguments) as loader:
        loader.load_state_dict(state)
        assert json_copy(loader.state_dict()) == state
        got = [loop(loader, order.num_max and len(expected[0])) for _ in expected]
    return got == expected


WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 1, "prefetch_queue_depth": 1},
    {"pipeline_arguments": {"prefetch_queue_depth": 1}},
    {"num_workers": 2, "pipeline_arguments": {"prefetch_queue_depth": 5}},
    {"pipeline_arguments": {"exec_dynamic": False, "prefetch_queue_depth": {"cpu_size": 3, "gpu_size": 1}}},
    {"num_workers": 3, "prefetch_queue_depth": 6, "num_threads": 2},
]


@spread("name", ORDERS, 6)
def test_goes_on_from_every_position_with_any_workers_and_depths(name: str) -> None:
    order, turn = ORDERS[name], [*ORDERS].index(name)
    loops, states = loops_with_states(order)
    assert len(states) > 6
    # What was prefetched when the state was saved does not count.
    assert loops_with_states(order, **WORKERS[turn % len(WORKERS)]) == (loops, states)
    every = examples(5, 1)  # and in the next order other ones
    for number, position in enumerate(states[turn % every :: every], turn):
        arguments = WORKERS[number % len(WORKERS)]
        assert is_continued(order, loops, position, **arguments), (position, arguments)


def test_a_loader_that_runs_goes_back_and_forth() -> None:
    order = ORDERS["shuffled"]
    loops, states = loops_with_states(order)
    with order.loader(num_workers=2) as loader:
        for number, num_received, state in [*states[::-2], *states[::3]]:
            if num_received == len(loops[number]):
                continue
            loader.load_state_dict(state)
            assert loop(loader, 1) == [loops[number][num_received]]
        running = iter(loader)
        next(running)
        loader.load_state_dict(states[1][2])
        # A mere end would look like that of the epoch.
        assert_refused(lambda: next(running), "or a state was loaded", ClosedError)
        assert loop(loader) == loops[0][1:]
        assert loop(loader) == loops[1]


# --- other shards, other batch sizes ---------------------------------------------------------------------


@attrs.define
class Stage:
    """A part of a run on some shards.

    Attributes:
        num_shards: Number of shards.
        total: Samples per batch, all shards together.
        num_batches: How many batches to take; None for the rest of the epoch.
    """

    num_shards: int
    total: int
    num_batches: int | None = None


def stages(order: Order, *parts: Stage, state: Any = None, **arguments: Any) -> tuple[list[list[Any]], Any]:
    """Go through parts of an epoch, each in new loaders.

    Returns:
        Per step the batches of all shards; the state behind it.
    """
    steps: list[list[Any]] = []
    for part in parts:
        with ExitStack() as stack:
            shards = [(number, part.num_shards) for number in range(part.num_shards)]
            loaders = [stack.enter_context(order.loader(shard, part.total, **arguments)) for shard in shards]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
            for batches in itertools.islice(zip(*loaders, strict=False), part.num_batches):
                steps.append([*batches])
                states = [loader.state_dict() for loader in loaders]
                assert all(each == states[0] for each in states)
                state = json_copy(states[0])
    return steps, state


def one_by_one(steps: list[list[Any]]) -> list[Any]:
    return deliveries(itertools.chain.from_iterable(steps))


@spread("name", [*PLANNED, "stateful sampler"], 4)
def test_another_number_of_shards_delivers_the_same_batches(name: str) -> None:
    order = ORDERS[name]
    expected, last = stages(order, Stage(1, 4))
    turn, every = [*ORDERS].index(name), examples(2, 1)
    for before, after in [(2, 1), (1, 2), (2, 4), (4, 2)][turn % every :: every]:
        steps, state = stages(order, Stage(before, 4, 1), Stage(after, 4))
        assert [deliveries(batches) for batches in steps] == [deliveries(batches) for batches in expected]
        assert edited(state, {"num_shards": 1}) == edited(last)


RESIZED: list[list[Stage]] = [
    [Stage(1, 4, 1), Stage(3, 6)],
    [Stage(2, 6, 1), Stage(3, 3, 1), Stage(3, 3)],
    [Stage(1, 1, 2), Stage(2, 2, 1), Stage(3, 3, 1), Stage(1, 1, 1), Stage(2, 2, 1), Stage(1, 4)],
]
RESIZABLE = [*PLANNED, "published shuffle, padded"]
IN_ORDER = ["shuffled", "shuffled, padded", "weighted", "mixture"]  # no slot plays anything


# Each order with one of the ways; all by all in a wide run.
@each_value(parts=RESIZED, name=RESIZABLE)
def test_another_batch_size_delivers_exactly_what_is_left(name: str, parts: list[Stage]) -> None:
    order = ORDERS[name]
    found, state = stages(order, *parts, last_batch="pad")
    whole, _ = stages(order, Stage(1, 4), last_batch="pad")
    if name in IN_ORDER:
        assert one_by_one(found) == one_by_one(whole)
    assert sorted(one_by_one(found)) == sorted(one_by_one(whole))
    assert (state["epoch"], state["batch"], state["segments"]) == (1, 0, [])
    following, _ = stages(order, Stage(1, 4), state=state, last_batch="pad")
    with order.loader(last_batch="pad") as loader:
        loader.set_epoch(1)
        assert one_by_one(following) == deliveries(loader)


def test_a_state_tells_what_was_delivered_with_other_batch_sizes() -> None:
    order = ORDERS["shuffled, padded"]
    _, state = stages(order, Stage(1, 4, 2), Stage(3, 6, 1), Stage(3, 3, 1))
    assert (state["epoch"], state["batch"]) == (0, 4)
    assert state["segments"] == [[1, 4, 2], [3, 6, 1]]
    assert (state["num_shards"], state["total_batch_size"]) == (3, 3)
    with order.loader((2, 3), 3) as loader:
        loader.load_state_dict(state)
        assert len(loader) == 4 + 2  # 22 - 8 - 6 - 3 samples are left
        assert [batch["position"]["batch"].tolist() for batch in loader] == [[4], [5]]
        assert len(loader) == 8


# --- what a state is -------------------------------------------------------------------------------------


def test_a_state_is_a_small_value() -> None:
    with ORDERS["shuffled"].loader(seed=7) as loader:
        loop(loader, 2)
        state = loader.state_dict()
    place = {"version": 1, "epoch": 0, "batch": 2, "num_shards": 1, "total_batch_size": 4, "segments": []}
    plan = {"sampler": "ShuffledSampler", "num_samples": 22, "seed": 3, "shuffle": True}
    plan |= {"data_set_size": 22, "last_batch": "drop"}
    assert state.pop("fields")[:2] == [["index", "INT64"], ["position.epoch", "INT64"]]
    assert len(state.pop("checksum")) == 16
    assert state == {**place, "seed": 7, "plan": plan}


def test_the_state_does_not_change_with_the_loader() -> None:
    with ORDERS["shuffled"].loader() as loader:
        loop(loader, 2)
        state = loader.state_dict()
        kept = json_copy(state)
        loop(loader, 1)
        assert state == kept
        state["plan"]["seed"] = 100  # nor the loader with it
        assert loader.state_dict()["plan"]["seed"] == 3


# --- the cost of continuing ------------------------------------------------------------------------------


class RecordingProvider(IndexProvider):
    """Takes note of what it loads, in this process."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(num_samples)
        self.loaded: list[int] = []

    def get_data(self, sample_index: int) -> Any:
        self.loaded.append(sample_index)
        return super().get_data(sample_index)


@pytest.mark.parametrize("start", [0, 99_000])
def test_only_what_follows_is_loaded_and_requested(start: int) -> None:
    provider = RecordingProvider(1_000_000)
    sampler = ShuffledSampler(1_000_000, seed=1)
    with make_loader(by_sampler(sampler, provider), 10) as loader:
        state = edited(loader.state_dict(), {"epoch": 3, "batch": start})
        loader.load_state_dict(state)
        assert provider.loaded == []
        assert len(loop(loader, 2)) == 2
    plan = sampler.with_settings(total_batch_size=10)
    following = [index for batch in range(start, start + 8) for index in plan.get_batch_indices(3, batch).tolist()]
    assert 20 <= len(provider.loaded) <= 60
    assert provider.loaded == following[: len(provider.loaded)]
    source = NumberCallable(1_000_000)
    with make_loader(source, 10) as loader:
        loader.load_state_dict(edited(loader.state_dict(), {"epoch": 3, "batch": start}))
        assert len(loop(loader, 2)) == 2
    assert source.asked == [*range(10 * start, 10 * start + len(source.asked))]
    assert 20 <= len(source.asked) <= 60


# --- what is refused -------------------------------------------------------------------------------------


def refusal(loader: Any, state: Any) -> StateError:
    with loader:
        before = loader.state_dict()
        with pytest.raises(StateError) as caught:
            loader.load_state_dict(state)
        assert loader.state_dict() == before
    return caught.value


def saved_state(source: Any, batch_size: int | None = 4, **arguments: Any) -> dict[str, Any]:
    with make_loader(source, batch_size, **arguments) as loader:
        loop(loader, 2)
        return json_copy(loader.state_dict())


def streams(lengths: list[int] = LENGTHS, provider: Any = None, **arguments: Any) -> Any:
    return by_sampler(StreamingSequenceSampler(lengths, **{"seed": 1, **arguments}), provider)


class Described(NumberCallable):
    def describe(self) -> dict[str, Any]:
        return {"numbers": self.num_samples}


class OtherCallable(NumberCallable):
    pass


class BackwardSampler(EpochSampler):
    def get_next_batch_indices(self) -> list[int]:
        return super().get_next_batch_indices()[::-1]


BackwardSampler.__name__ = "EpochSampler"
# What has saved the state, what loads it, and how the differences begin.
DIFFERENT: list[tuple[Any, Any, list[str]]] = [
    (streams(), streams(seed=2), ["seed: 1 in the state, 2 here"]),
    (
        streams(),
        streams([5, 2, 7, 1, 7]),
        ["num_sequences: 6 in the state, 5 here", "sequence_lengths: ", "num_per_epoch: 6 in the state, 5 here"],
    ),
    (streams(), streams(provider=IndexProvider(23)), ["data_set_size: 22 in the state, 23 here"]),
    (streams(), streams(last_batch="drop"), ["last_batch: 'pad' in the state, 'drop' here"]),
    (streams(), streams(provider=NumberProvider(22)), ["fields of the samples (names, types, order): "]),
    (
        streams(),
        by_sampler(ShuffledSampler(22, seed=1, last_batch="pad")),
        [
            "sampler: 'StreamingSequenceSampler' in the state, 'ShuffledSampler' here",
            "num_sequences: 6 in the state, nothing here",
            "sequence_lengths: ",
            "cut_sequences: False in the state, nothing here",
            "num_per_epoch: 6 in the state, nothing here",
        ],
    ),
    (Described(10), Described(11), ["numbers: 10 in the state, 11 here"]),
    (NumberCallable(10), OtherCallable(10), ["input: 'NumberCallable' in the state, 'OtherCallable' here"]),
    (by_sampler(EpochSampler()), by_sampler(BackwardSampler()), ["first_batch: "]),
]


@pytest.mark.parametrize(("saved", "own", "expected"), DIFFERENT)
def test_other_data_and_orders_are_refused_with_all_differences(saved: Any, own: Any, expected: list[str]) -> None:
    size = None if expected == ["first_batch: "] else 4
    error = refusal(make_loader(own, size), saved_state(saved, size))
    assert "belongs to other data or another order" in str(error)
    assert len(error.differences) == len(expected)
    for difference in expected:
        assert sum(each.startswith(difference) for each in error.differences) == 1
        assert f"  - {difference}" in str(error)


def test_another_seed_of_the_draws_is_refused() -> None:
    error = refusal(make_loader(streams(), 4, seed=8), saved_state(streams(), seed=7))
    assert error.differences == ("seed of the random draws: 7 in the state, 8 here",)


class Shortened(ShuffledSampler):
    """Describes itself as if it had all its batches."""

    def num_batches(self, epoch: int) -> int:
        return 1


def test_an_order_with_fewer_batches_than_were_delivered_is_refused() -> None:
    state = saved_state(by_sampler(ShuffledSampler(22)))
    Shortened.__name__ = "ShuffledSampler"
    error = refusal(make_loader(by_sampler(Shortened(22)), 4), state)
    assert "2 batches of epoch 0 were delivered, which has only 1 here" in str(error)


@pytest.mark.parametrize("steps", [None, 3, 1])
def test_published_sequences_cannot_go_on_with_another_total_batch_size(steps: int | None) -> None:
    def sequences(batch_size: int, shard: tuple[int, int] = (0, 1)) -> Any:
        return make_loader(by_sampler(SequenceSampler(batch_size, LENGTHS, 1)), shard=shard, steps_per_epoch=steps)

    with sequences(4) as loader:
        loop(loader, 2)
        state = loader.state_dict()
    error = refusal(sequences(2), state)
    assert "The order of the SequenceSampler depends on the batch size" in str(error)
    assert "batches of 4 cannot be continued with batches of 2" in str(error)
    with sequences(4, (1, 2)) as loader:
        loader.load_state_dict(state)  # another number of shards is no obstacle


@pytest.mark.parametrize("changes", [{"total_batch_size": 2}, {"num_shards": 2}])
def test_a_user_s_callable_goes_on_only_with_the_same_batches(changes: dict[str, int]) -> None:
    state = edited(saved_state(NumberCallable()), changes)
    error = refusal(make_loader(NumberCallable(), 4), state)
    assert "NumberCallable knows only its own order" in str(error)
    with make_loader(NumberCallable(), 4) as loader:  # from an epoch's beginning it can
        loader.load_state_dict(edited(state, {"epoch": 1, "batch": 0}))
        assert next(iter(loader))["index"].tolist() == [1000, 1001, 1002, 1003]


@pytest.mark.parametrize(
    ("source", "size"), [(SamplerInputIterable(IndexProvider(10), EpochSampler()), None), (NumberIterable(8), 4)]
)
def test_iterables_have_no_state(source: Any, size: int | None) -> None:
    with make_loader(source, size) as loader:
        for use in (loader.state_dict, lambda: loader.load_state_dict({}), lambda: loader.set_epoch(1)):
            assert_refused(use, "is an iterable", NotSupportedError)
