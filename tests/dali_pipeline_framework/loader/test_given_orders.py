"""Orders that a user gives, compared with PyTorch's loader: functions of the epoch, and PyTorch's samplers."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.laws import each_value
from support.pipelines import indices
from support.providers import IndexProvider
from support.refusals import assert_refused
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import NotSupportedError, SettingError, StateError

SIZE = 22
Epoch = list[list[int]]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Written:
    """A sampler as users write them."""

    def __init__(self, draws_globally: bool = False) -> None:
        self.epoch = 0
        self.draws_globally = draws_globally

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = None if self.draws_globally else seeded(self.epoch)
        return iter(torch.randperm(SIZE, generator=generator).tolist())

    def __len__(self) -> int:
        return SIZE


class WithoutLength:
    """Of another length in each epoch, as 0-d tensors."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(SIZE, generator=seeded(5))[: 10 + self.epoch])


def distributed(num_ranks: int = 1, rank: int = 0, seed: int = 1) -> Any:
    return DistributedSampler(range(SIZE), num_ranks, rank, seed=seed)


def rotated(epoch: int) -> list[int]:
    return [(index + 3 * epoch) % SIZE for index in range(SIZE)]


def draws(epoch: int) -> torch.Tensor:
    return torch.randperm(SIZE)


# Those of PyTorch's loader, and functions of the epoch.
SAMPLERS: dict[str, Callable[[], Any]] = {
    "in order": lambda: SequentialSampler(range(SIZE)),
    "random": lambda: RandomSampler(range(SIZE)),
    "random, with a generator": lambda: RandomSampler(range(SIZE), generator=seeded(2)),
    "with replacement": lambda: RandomSampler(range(SIZE), replacement=True, num_samples=40),
    "subset": lambda: SubsetRandomSampler([5, 8, 13, 21, 3]),
    "weighted": lambda: WeightedRandomSampler(np.arange(SIZE), 30),
    "written": Written,
    "written, draws globally": lambda: Written(draws_globally=True),
    "without a length": WithoutLength,
    "a list": lambda: [7, 7, 1, 0, 4],
}


@pytest.fixture(autouse=True)
def _global_generator() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def of_torch(sampler: Any, batch_size: int = 4, num_epochs: int = 3, drop_last: bool = False) -> list[Epoch]:
    loader = TorchLoader(range(SIZE), batch_size, sampler=sampler, drop_last=drop_last)
    epochs = []
    for epoch in range(num_epochs):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        epochs.append([batch.tolist() for batch in loader])
    return epochs


def loader_of(sampler: Any, batch_size: int = 4, **options: Any) -> DataLoader:
    options = {"num_workers": 0, "start_method": "fork", "output_type": "numpy", **options}
    return DataLoader(IndexProvider(SIZE), batch_size, sampler=sampler, **options)


def joined(batches: Any) -> list[Any]:
    return [*itertools.chain.from_iterable(batches)]


def epochs_of(sampler: Any, batch_size: int = 4, num_epochs: int = 3, **options: Any) -> list[Epoch]:
    with loader_of(sampler, batch_size, **options) as loader:
        return [indices(loader) for _ in range(num_epochs)]


# --- the order of PyTorch's loader -----------------------------------------------------------------------


@each_value(num_workers=[0, 2], kind=SAMPLERS)
def test_a_sampler_of_pytorch(kind: str, num_workers: int) -> None:
    torch.manual_seed(7)
    expected = of_torch(SAMPLERS[kind]())
    after = torch.rand(1)
    torch.manual_seed(7)
    assert epochs_of(SAMPLERS[kind](), num_workers=num_workers) == expected
    assert torch.rand(1) == after  # the loop of the user goes on with the same random numbers, too


@each_value(num_workers=[0, 2], last_batch=["partial", "drop"])
@pytest.mark.parametrize(("shuffle", "drop_last"), [(True, False), (False, True)])
def test_the_ranks_of_a_distributed_sampler(
    shuffle: bool, drop_last: bool, num_workers: int, last_batch: Any
) -> None:
    for rank in range(2):
        order = [
            DistributedSampler(range(SIZE - 1), 2, rank, shuffle=shuffle, seed=4, drop_last=drop_last)
            for _ in range(2)
        ]
        expected = of_torch(order[0], 3, drop_last=last_batch == "drop")
        assert len(expected[0][-1]) == (3 if last_batch == "drop" else 2 - drop_last)
        options = {"num_workers": num_workers, "last_batch": last_batch, "shard": (rank, 2)}
        assert epochs_of(order[1], 3, **options) == expected
        with loader_of(order[1], 3, last_batch=last_batch) as loader:  # the shard is that of the sampler
            assert (loader.shard.shard_id, loader.shard.num_shards) == (rank, 2)
            assert len(loader) == len(expected[0])
            assert [*loader.batch_sampler] == expected[0]
            counts = loader.sample_counts()
            assert counts.num_samples == 2 * len(order[1])
            assert counts.num_delivered == 2 * sum(map(len, expected[0]))


def test_a_sampler_with_a_length_is_not_run_before_the_loop() -> None:
    torch.manual_seed(1)
    untouched = torch.get_rng_state()
    with loader_of(RandomSampler(range(SIZE))) as loader:
        assert (len(loader), loader.sample_counts().num_delivered) == (6, SIZE)
        assert loader.state_dict()["batch"] == 0
        assert torch.equal(torch.get_rng_state(), untouched)
        told = [*loader.batch_sampler]  # which can be known only by running it
        assert indices(loader) == told
    torch.set_rng_state(untouched)
    assert [told] == of_torch(RandomSampler(range(SIZE)), num_epochs=1)


# --- functions of the epoch ------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
def test_a_function_of_the_epoch(convert: Callable[[list[int]], Any]) -> None:
    expected = [of_torch(rotated(epoch), num_epochs=1)[0] for epoch in range(3)]
    for num_workers in (0, 2):
        assert epochs_of(lambda epoch: convert(rotated(epoch)), num_workers=num_workers) == expected


def test_workers_do_not_get_the_function() -> None:
    with open(os.devnull) as file, loader_of(lambda epoch: rotated(epoch + file.closed)) as loader:
        pickle.dumps(loader.bound_input)  # a file cannot be pickled


def test_the_order_of_a_function_is_dealt_to_the_shards() -> None:
    shards = (joined(epochs_of(rotated, 4, 2, shard=(rank, 2))) for rank in range(2))
    batches = [one + other for one, other in zip(*shards, strict=True)]
    assert batches == of_torch(rotated(0), 8, 1)[0] + of_torch(rotated(1), 8, 1)[0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_function_runs_anew_when_a_loop_begins(num_workers: int) -> None:
    order = [0, 1, 2, 3]
    with loader_of(lambda epoch: order, 2, num_workers=num_workers) as loader:
        for expected in ([3, 2, 1, 0], [5, 5, 5, 5], [4, 6, 4, 6, 4]):
            assert len(loader) == (len(order) + 1) // 2
            assert [*loader.sampler] == order  # as it would be now
            order = expected
            found = []
            for batch in loader:
                found += batch["index"].tolist()
                len(loader)  # after the last batch: of the next epoch
            assert found == expected


# --- stopping and going on -------------------------------------------------------------------------------


def run(make: Callable[[], Any], batch_size: int, state: Any = None, stop: int = 99, **options: Any) -> Any:
    """The batches of three epochs, up to ``stop`` of them, and the state there."""
    with loader_of(make(), batch_size, **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches: list[list[int]] = []
        while loader.epoch < 3:
            for batch in loader:
                batches.append(batch["index"].tolist())
                if len(batches) == stop:
                    return batches, json.loads(json.dumps(loader.state_dict()))
        return batches, None


REPEATABLE: dict[str, Callable[[], Any]] = {
    "function": lambda: rotated,
    **{name: SAMPLERS[name] for name in ("written", "without a length", "in order", "a list")},
}


@each_value(kind=REPEATABLE, stop=[1, 2, 4], num_workers=[0, 2])
def test_a_run_goes_on(kind: str, stop: int, num_workers: int) -> None:
    whole, _ = run(REPEATABLE[kind], 3)
    begun, state = run(REPEATABLE[kind], 3, stop=stop)
    assert begun + run(REPEATABLE[kind], 3, state, num_workers=num_workers)[0] == whole
    assert joined(begun + run(REPEATABLE[kind], 2, state)[0]) == joined(whole)


def test_ranks_go_on() -> None:
    states = []
    for rank in range(2):
        make = functools.partial(distributed, 2, rank)
        (whole, _), (begun, state) = run(make, 2), run(make, 2, stop=8)
        assert begun + run(make, 2, state)[0] == whole
        assert joined(begun + run(make, 3, state)[0]) == joined(whole)
        states.append(state)
    assert states[0] == states[1]


AGAIN = "gives another order when run again for the same epoch"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (SAMPLERS["random"], "RandomSampler is not a function of the epoch: it has no `set_epoch`"),
        (SAMPLERS["written, draws globally"], f"Written is not a function of the epoch: it {AGAIN}"),
        (lambda: draws, f"function `draws` is not a function of the epoch: it {AGAIN}"),
    ],
)
def test_an_order_that_is_not_a_function_of_the_epoch(make: Any, reason: str) -> None:
    words = f"{reason}...Use sampler=ShuffledSampler(num_samples, seed=...), or a function epoch -> indices"
    with loader_of(make()) as loader:
        assert len(indices(loader, 1)) == 1
        assert_refused(loader.state_dict, words, NotSupportedError)
        assert len([*loader]) > 5
        state = loader.state_dict()  # at the end of an epoch
        assert (state["epoch"], state["batch"]) == (2, 0)
    if "RandomSampler" in reason:
        with loader_of(make()) as loader:
            loader.load_state_dict(state)
            assert (loader.epoch, len([*loader])) == (2, len(loader))


def test_the_state_of_a_begun_epoch_is_refused_where_it_cannot_be_made_again() -> None:
    _, state = run(Written, 4, stop=2)
    with loader_of(Written(draws_globally=True)) as loader:
        assert_refused(lambda: loader.load_state_dict(state), "another order", NotSupportedError)


@pytest.mark.parametrize(
    ("saved", "own", "difference"),
    [
        (lambda: rotated, lambda: lambda epoch: rotated(epoch + 1), "first_epoch: "),
        (lambda: distributed(seed=1), lambda: distributed(seed=2), "seed: 1 in the state, 2 here"),
        (lambda: distributed(2), distributed, "num_ranks: 2 in the state, 1 here"),
    ],
)
def test_the_state_of_another_order_is_refused(saved: Any, own: Any, difference: str) -> None:
    _, state = run(saved, 4, stop=2)
    with pytest.raises(StateError, match=difference):
        run(own, 4, state)


# --- what is refused -------------------------------------------------------------------------------------


def gives(indices: Any) -> Callable[[int], Any]:
    return lambda epoch: indices


class WrongLength(Written):
    def __len__(self) -> int:
        return 5


class OfRank(WithoutLength):
    rank, num_replicas = 0, 2


OF_RANKS = "created for shard 1 of 2, the loader for shard "


@pytest.mark.parametrize(
    ("sampler", "shard", "words"),
    [
        (5, None, "must be a sampler of this package, a function epoch -> indices, or a sampler of PyTorch, got"),
        (iter([1, 2]), None, "An iterator ends with its first epoch"),
        (gives([3, 22]), None, "`<lambda>` chose sample 22 at position 1 of epoch 0, ... samples 0 .. 21"),
        (gives([-1, 2]), None, "chose sample -1 at position 0"),
        (gives([0.0, 1.0]), None, "flat sequence of whole numbers, ... gave [0.0, 1.0] for epoch 0"),
        (gives([[1, 2], [3]]), None, "flat sequence of whole numbers"),
        (gives(7), None, "flat sequence of whole numbers, ... gave 7"),
        (gives([]), None, "An epoch must have samples: the function `<lambda>` gave no index for epoch 0"),
        (OfRank(), None, "for several ranks must have a length... define `__len__` in OfRank"),
        (RandomSampler(range(SIZE)), (0, 2), "RandomSampler is for 1 rank(s) ... the loader for 2 shard(s)"),
        (distributed(2, 1), (0, 2), f"{OF_RANKS}0 of 2"),
        (distributed(2, 1), (1, 3), f"{OF_RANKS}1 of 3"),
    ],
)
def test_what_is_no_order_is_refused(sampler: Any, shard: Any, words: str) -> None:
    assert_refused(lambda: loader_of(sampler, **({"shard": shard} if shard else {})), words)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (BatchSampler(range(8), 2, False), "the BatchSampler gave ... In place of a batch sampler, give the"),
        (SubsetRandomSampler([22]), "SubsetRandomSampler chose sample 22 at position 0 of epoch 0"),
        (WrongLength(), "WrongLength has the length 5, and delivered 22 in epoch 0"),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_is_no_order_is_refused_when_the_loop_begins(sampler: Any, words: str, num_workers: int) -> None:
    with loader_of(sampler, num_workers=num_workers) as loader:
        for _ in range(2):
            assert_refused(lambda: next(iter(loader)), words)


def test_a_later_epoch_that_is_wrong_does_not_end_the_loader() -> None:
    with loader_of(lambda epoch: [] if epoch == 1 else rotated(epoch), num_workers=1) as loader:
        assert len([*loader]) == 6
        with pytest.raises(SettingError, match="gave no index for epoch 1"):
            next(iter(loader))
        loader.set_epoch(2)
        assert indices(loader, 1) == [rotated(2)[:4]]
