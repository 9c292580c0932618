"""Orders of PyTorch's samplers, compared with PyTorch's own objects index by index."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.laws import each_value
from support.providers import IndexProvider
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

from accvlab.dali_pipeline_framework import DataLoader, MixedSampler
from accvlab.dali_pipeline_framework.errors import SettingError, StateError
from accvlab.dali_pipeline_framework.sampling import (
    PlayedBatchSampler,
    TorchDistributedSampler,
    TorchRandomSampler,
    TorchWeightedSampler,
    same_order_as,
)
from accvlab.dali_pipeline_framework.sampling.random_access_sampler import RandomAccessSampler

Epoch = list[list[int]]


def epochs_of_torch(loader: TorchLoader, count: int = 3) -> list[Epoch]:
    return [[batch.tolist() for batch in loader] for _ in range(count)]


def epochs_of(sampler: RandomAccessSampler, batch_size: int, count: int = 3, num_shards: int = 1) -> list[Epoch]:
    sampler = sampler.with_settings(total_batch_size=batch_size, num_shards=num_shards)
    planned = (
        [sampler.plan_batch(epoch, batch) for batch in range(sampler.num_batches(epoch))] for epoch in range(count)
    )
    return [[batch.indices[~batch.is_over].tolist() for batch in epoch] for epoch in planned]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def _global_generator() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


# --- RandomSampler and WeightedRandomSampler -------------------------------------------------------------

# (size, batch size, num_samples of the sampler)
SIZES = [(11, 4, None), (12, 4, None), (1, 3, None), (10, 3, 4), (7, 4, 23), (5, 5, 10), (9, 2, 64)]


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(("size", "batch_size", "count"), SIZES)
class TestRandomSampler:
    def test_in_a_loader_with_the_global_generator(
        self, size: int, batch_size: int, count: int | None, replacement: bool
    ) -> None:
        torch.manual_seed(7)
        order = RandomSampler(range(size), replacement, count)
        expected = epochs_of_torch(TorchLoader(range(size), batch_size, sampler=order))
        sampler = TorchRandomSampler(size, seed=7, replacement=replacement, num_per_epoch=count)
        assert epochs_of(sampler, batch_size) == expected

    def test_with_a_generator_of_its_own(
        self, size: int, batch_size: int, count: int | None, replacement: bool
    ) -> None:
        order = RandomSampler(range(size), replacement, count, generator=seeded(2**40 + 3))
        expected = epochs_of_torch(TorchLoader(range(size), batch_size, sampler=order))
        sampler = TorchRandomSampler(
            size, seed=2**40 + 3, generator="sampler", replacement=replacement, num_per_epoch=count
        )
        assert epochs_of(sampler, batch_size) == expected

    def test_with_that_of_the_loader(
        self, size: int, batch_size: int, count: int | None, replacement: bool
    ) -> None:
        generator = seeded(1)
        order = RandomSampler(range(size), replacement, count, generator=generator)
        loader = TorchLoader(range(size), batch_size, sampler=order, generator=generator, drop_last=True)
        if (count or size) < batch_size:
            pytest.skip("no batch at all")
        expected = epochs_of_torch(loader)
        sampler = TorchRandomSampler(
            size, seed=1, generator="loader", replacement=replacement, num_per_epoch=count, last_batch="drop"
        )
        assert epochs_of(sampler, batch_size) == expected


def test_the_usual_loader_after_manual_seed() -> None:
    torch.manual_seed(3)
    expected = epochs_of_torch(TorchLoader(range(13), batch_size=4, shuffle=True))
    assert epochs_of(TorchRandomSampler(13, seed=3), 4) == expected
    expected = epochs_of_torch(TorchLoader(range(13), batch_size=4, shuffle=True, generator=seeded(3)))
    assert epochs_of(TorchRandomSampler(13, seed=3, generator="loader"), 4) == expected


def test_after_a_model_was_made() -> None:
    torch.manual_seed(3)
    torch.nn.Linear(5, 5)
    state = torch.get_rng_state()
    expected = epochs_of_torch(TorchLoader(range(13), batch_size=4, shuffle=True))
    assert epochs_of(TorchRandomSampler(13, state=state), 4) == expected
    assert epochs_of(TorchRandomSampler(13, seed=3), 4) != expected


@pytest.mark.parametrize("generator", [None, 5])
def test_persistent_workers_draw_their_seed_once(generator: int | None) -> None:
    """With workers of PyTorch, which fetch ahead."""
    torch.manual_seed(5)
    own = {} if generator is None else {"generator": seeded(generator)}
    loader = TorchLoader(
        range(9), 4, shuffle=True, num_workers=1, persistent_workers=True, multiprocessing_context="fork", **own
    )
    expected = epochs_of_torch(loader)
    del loader
    owner: Any = "global" if generator is None else "loader"
    sampler = TorchRandomSampler(9, seed=5, generator=owner, persistent_workers=True)
    assert epochs_of(sampler, 4) == expected
    assert epochs_of(TorchRandomSampler(9, seed=5, generator=owner), 4) != expected


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("owner", ["global", "loader", "sampler"])
def test_weighted_sampler(owner: Any, replacement: bool) -> None:
    weights = [0.1, 5, 0, 2.5, 1, 1, 0.3, 9, 1]
    torch.manual_seed(11)
    own = None if owner == "global" else seeded(11)
    order = WeightedRandomSampler(weights, 7, replacement, generator=own)
    loader = TorchLoader(range(9), 3, sampler=order, generator=own if owner == "loader" else None)
    expected = epochs_of_torch(loader)
    sampler = TorchWeightedSampler(weights, seed=11, generator=owner, replacement=replacement, num_per_epoch=7)
    assert epochs_of(sampler, 3) == expected


def test_seedable_sampler_of_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    order = accelerate.SeedableRandomSampler(range(10), data_seed=42)
    expected = epochs_of_torch(TorchLoader(range(10), 3, sampler=order))
    assert epochs_of(TorchRandomSampler(10, seed=42, generator="epoch"), 3) == expected
    # Its ranks get one batch after the other.
    order = accelerate.SeedableRandomSampler(range(12), data_seed=42)
    shards = [
        accelerate.BatchSamplerShard(BatchSampler(order, 3, True), num_processes=2, process_index=rank)
        for rank in range(2)
    ]
    of_ranks = []
    for shard in shards:
        order.set_epoch(0)
        of_ranks.append([*shard])
    together = [one + other for one, other in zip(*of_ranks, strict=True)]
    sampler = TorchRandomSampler(12, seed=42, generator="epoch", last_batch="drop")
    assert epochs_of(sampler, 6, 1, num_shards=2) == [together]


# --- DistributedSampler ----------------------------------------------------------------------------------


def of_ranks(size: int, num_ranks: int, epochs: int, batch_size: int, **settings: Any) -> list[list[Epoch]]:
    """Batches of PyTorch: rank, epoch, batch."""
    drops = settings.pop("loader_drops", False)
    result = []
    for rank in range(num_ranks):
        order = DistributedSampler(range(size), num_ranks, rank, **settings)
        loader = TorchLoader(range(size), batch_size, sampler=order, drop_last=drops)
        result.append([])
        for epoch in range(epochs):
            order.set_epoch(epoch)
            result[-1].append([batch.tolist() for batch in loader])
    return result


@each_value(num_ranks=[1, 2, 3, 4], size=[1, 3, 11, 12, 25])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_distributed_sampler(size: int, num_ranks: int, drop_last: bool, shuffle: bool) -> None:
    if drop_last and size < num_ranks:
        pytest.skip("no sample at all")
    for loader_drops, batch_size in itertools.product([False, True], [1, 2, 5]):
        num_each = size // num_ranks if drop_last else -(-size // num_ranks)
        if loader_drops and num_each < batch_size:
            continue
        expected = of_ranks(
            size, num_ranks, 2, batch_size, seed=4, drop_last=drop_last, shuffle=shuffle, loader_drops=loader_drops
        )
        sampler = TorchDistributedSampler(
            size, seed=4, drop_last=drop_last, shuffle=shuffle, last_batch="drop" if loader_drops else "partial"
        ).with_settings(total_batch_size=batch_size * num_ranks, num_shards=num_ranks)
        for rank, epoch in itertools.product(range(num_ranks), range(2)):
            own = slice(rank * batch_size, (rank + 1) * batch_size)
            planned = [sampler.plan_batch(epoch, batch) for batch in range(sampler.num_batches(epoch))]
            got = [batch.indices[own][~batch.is_over[own]].tolist() for batch in planned]
            assert got == expected[rank][epoch]


def test_without_set_epoch_all_epochs_are_alike() -> None:
    order = DistributedSampler(range(9), 2, 1, seed=5)
    expected = epochs_of_torch(TorchLoader(range(9), 2, sampler=order), 2)
    sampler = TorchDistributedSampler(9, seed=5, sets_epoch=False)
    got = epochs_of(sampler.with_settings(total_batch_size=4, num_shards=2), 4, 2, num_shards=2)
    assert [[batch[len(batch) // 2 :] for batch in epoch] for epoch in got] == expected


def test_default_sampler_of_mmengine_has_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    samplers = pytest.importorskip("mmengine.dataset.sampler")
    for rank in range(3):
        monkeypatch.setattr(samplers, "get_dist_info", lambda rank=rank: (rank, 3))
        theirs = samplers.DefaultSampler(range(4), seed=8)
        theirs.set_epoch(2)
        assert [*theirs] == [*_set(DistributedSampler(range(4), 3, rank, seed=8), 2)]


def _set(sampler: DistributedSampler, epoch: int) -> DistributedSampler:
    sampler.set_epoch(epoch)
    return sampler


# --- in a loader -----------------------------------------------------------------------------------------


def loaded(make: Callable[[], Any], batch_size: int, state: Any = None, stop: int = 99, **options: Any) -> Any:
    options = {"num_workers": 0, "output_type": "numpy", **options}
    with DataLoader(IndexProvider(22), batch_size, sampler=make(), **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches: list[list[int]] = []
        while loader.epoch < 3:
            for batch in loader:
                batches.append(np.ravel(batch["index"]).tolist())
                if len(batches) == stop:
                    return batches, json.loads(json.dumps(loader.state_dict()))
        return batches, None


MAKERS = {
    "random": lambda: TorchRandomSampler(22, seed=1),
    "of the loader": lambda: TorchRandomSampler(22, seed=1, generator="loader"),
    "weighted": lambda: TorchWeightedSampler(np.arange(22.0), seed=1),
    "distributed": lambda: TorchDistributedSampler(22, seed=1),
    "played": lambda: PlayedBatchSampler(BatchSampler(Seeded(22), 5, False)),
}


class Seeded:
    """A sampler as users write them."""

    def __init__(self, size: int, draws_globally: bool = False) -> None:
        self.size = size
        self.epoch = 0
        self.draws_globally = draws_globally

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = None if self.draws_globally else seeded(self.epoch)
        return iter(torch.randperm(self.size, generator=generator).tolist())

    def __len__(self) -> int:
        return self.size


def joined(parts: list[list[Any]]) -> list[Any]:
    return [*itertools.chain.from_iterable(parts)]


@each_value(kind=MAKERS, stop=[3, 7])
def test_a_run_is_stopped_and_continued(kind: str, stop: int) -> None:
    last = {"last_batch": "partial"} if kind == "played" else {}
    whole = loaded(MAKERS[kind], 5, **last)[0]
    assert [len(batch) for batch in whole] == [5, 5, 5, 5, 2] * 3
    begun, state = loaded(MAKERS[kind], 5, stop=stop, **last)
    workers = {"num_workers": 2, "start_method": "fork"}
    assert begun + loaded(MAKERS[kind], 5, state, **workers, **last)[0] == whole
    if kind != "played":  # with other batches: the same samples
        assert joined(begun + loaded(MAKERS[kind], 2, state)[0]) == joined(whole)


def test_a_run_of_two_ranks_is_continued_on_one() -> None:
    def of_both(state: Any = None, **options: Any) -> list[Any]:
        return [loaded(MAKERS["distributed"], 4, state, shard=(rank, 2), **options) for rank in range(2)]

    expected = of_ranks(22, 2, 3, 4, seed=1)
    whole = of_both()
    assert [batches for batches, _ in whole] == [joined(rank) for rank in expected]
    begun = of_both(stop=4)
    assert begun[0][1] == begun[1][1]
    rest = loaded(MAKERS["distributed"], 8, begun[0][1])[0]
    in_order = [sorted(one + other) for one, other in zip(whole[0][0], whole[1][0], strict=True)]
    got = [sorted(one + other) for one, other in zip(begun[0][0], begun[1][0], strict=True)]
    # On one rank a batch of 8 has the samples that both ranks had together.
    assert got + [sorted(batch) for batch in rest] == in_order


def test_states_of_other_generators_are_refused() -> None:
    state = loaded(MAKERS["random"], 5, stop=3)[1]
    with pytest.raises(StateError, match="generator: 'global' in the state, 'loader' here"):
        loaded(MAKERS["of the loader"], 5, state)
    changed = seeded(9).get_state()
    with pytest.raises(StateError, match=r"state: nothing in the state, '\w{12}' here"):
        loaded(lambda: TorchRandomSampler(22, state=changed), 5, state)


def test_samplers_travel_without_their_orders() -> None:
    sampler = TorchRandomSampler(10**5, 4, seed=1)
    expected = sampler.plan_batch(3, 2)
    copied = pickle.loads(pickle.dumps(sampler))
    assert len(pickle.dumps(sampler)) < 2000
    assert copied == sampler
    assert copied.plan_batch(3, 2) == expected
    assert sampler.plan_batch(0, 5) == copied.plan_batch(0, 5)  # back to an epoch before


def test_as_part_of_a_mixture() -> None:
    mixed = MixedSampler([TorchRandomSampler(4, seed=1), TorchWeightedSampler([1, 2], seed=1)], [0.5, 0.5], 2)
    drawn = np.concatenate([mixed.get_batch_indices(0, batch) for batch in range(mixed.num_batches(0))])
    alone = epochs_of(TorchRandomSampler(4, seed=1), 3, 1)[0]
    assert drawn[::2].tolist() == joined(alone)[:3]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: TorchRandomSampler(0), "`num_samples` must be a whole number of at least 1"),
        (lambda: TorchRandomSampler(3, num_per_epoch=0), "`num_per_epoch` must be a whole number of at least 1"),
        (lambda: TorchRandomSampler(3, seed=2**64), r"`seed` must be less than 2\*\*64"),
        (lambda: TorchRandomSampler(3, generator="mine"), "'global', 'loader', 'sampler', 'epoch', got 'mine'"),
        (lambda: TorchRandomSampler(3, state=5), "`state` must be the state of a generator"),
        (lambda: TorchRandomSampler(3, state=seeded(1).get_state(), generator="epoch"), "does not go with"),
        (lambda: TorchRandomSampler(3, replacement=None), "`replacement` must be True or False, got None"),
        (lambda: TorchWeightedSampler([1, -1]), r"weights\[1\] is -1"),
        (
            lambda: TorchWeightedSampler([1, 2], 1, replacement=False, num_per_epoch=3).plan_batch(0, 0),
            "PyTorch cannot draw 3 of these weights",
        ),
        (lambda: TorchDistributedSampler(5, sets_epoch=None), "`sets_epoch` must be True or False"),
        (lambda: PlayedBatchSampler(5), "must be an iterable of lists of indices"),
        (lambda: PlayedBatchSampler([]), "must be an iterable of lists of indices"),
        (lambda: PlayedBatchSampler(Seeded(5)), "deliver lists of indices, .* of Seeded is \\d. .*a BatchSampler"),
        (lambda: PlayedBatchSampler([["x"]]), "deliver lists of indices, .* of list is 'x'"),
        (lambda: PlayedBatchSampler(BatchSampler(Seeded(50, True), 5, False)), "begin with different batches"),
        (lambda: PlayedBatchSampler(iter_that_cannot_be_copied()), "generator cannot be copied"),
    ],
)
def test_bad_settings_are_refused(create: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        create()


def iter_that_cannot_be_copied() -> Iterator[list[int]]:
    yield [1]


# --- the order of a loader that is there -----------------------------------------------------------------

LOADERS: dict[str, Callable[[], TorchLoader]] = {
    "sequential": lambda: TorchLoader(range(10), 4),
    "sequential, dropped": lambda: TorchLoader(range(10), 4, drop_last=True),
    "shuffled": lambda: TorchLoader(range(10), 4, shuffle=True),
    "own generator": lambda: TorchLoader(range(10), 4, shuffle=True, generator=seeded(5)),
    "generator of the sampler": lambda: TorchLoader(
        range(10), 4, sampler=RandomSampler(range(10), generator=seeded(5))
    ),
    "batch sampler": lambda: TorchLoader(range(10), batch_sampler=BatchSampler(RandomSampler(range(10)), 4, True)),
    "weighted": lambda: TorchLoader(range(4), 4, sampler=WeightedRandomSampler([1, 2, 3, 4], 10)),
    "weighted, own generator": lambda: TorchLoader(
        range(4), 4, sampler=WeightedRandomSampler([1, 2, 3, 4], 10), generator=seeded(2)
    ),
    "with replacement": lambda: TorchLoader(range(10), 4, sampler=RandomSampler(range(10), True, 40)),
    "distributed": lambda: TorchLoader(range(10), 4, sampler=DistributedSampler(range(10), 1, 0, seed=3)),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_order_of_a_loader(kind: str) -> None:
    loader = LOADERS[kind]()
    torch.manual_seed(77)
    torch.rand(3)
    sampler = same_order_as(loader)
    expected = []
    for epoch in range(3):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        expected += epochs_of_torch(loader, 1)
    assert epochs_of(sampler, 4) == expected


def test_order_of_a_loader_with_the_sampler_of_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    loader = TorchLoader(range(10), 4, sampler=accelerate.SeedableRandomSampler(range(10), data_seed=6))
    assert epochs_of(same_order_as(loader), 4) == epochs_of_torch(loader)


class OwnBatches(BatchSampler):
    """A batch sampler of one's own."""


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([[1]], "must be a torch.utils.data.DataLoader"),
        (TorchLoader(range(3), batch_size=None), "that makes batches of a map-style data set"),
        (TorchLoader(range(3), batch_sampler=OwnBatches(range(3), 2, False)), "OwnBatches, is known by playing"),
        (TorchLoader(range(3), sampler=SubsetRandomSampler([1, 2])), "SubsetRandomSampler, is known by playing"),
        (
            TorchLoader(range(3), sampler=RandomSampler(range(3)), generator=torch.Generator()),
            "The loader draws from its own generator",
        ),
    ],
)
def test_loaders_whose_order_is_not_known(loader: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        same_order_as(loader)


def test_a_sampler_of_pytorch_in_place_of_one_of_ours_is_explained() -> None:
    with pytest.raises(SettingError, match=r"use shuffle=True .or for the same order same_order_as"):
        DataLoader(IndexProvider(), 2, sampler=RandomSampler(range(22)))


def test_batch_samplers_of_ranks_are_played_together() -> None:
    class OfRank(Seeded):
        def __init__(self, rank: int, sizes: list[int]) -> None:
            super().__init__(8)
            self.rank, self.sizes = rank, sizes

        def __iter__(self) -> Iterator[Any]:
            order = torch.randperm(8, generator=seeded(self.epoch)).tolist()[self.rank :: 2]
            return iter([order[:2], order[2 : 2 + self.sizes[self.rank]]])

    both = [OfRank(rank, [2, 2]) for rank in range(2)]
    options = {"shard": (1, 2), "last_batch": "drop"}
    assert loaded(lambda: PlayedBatchSampler(both), 2, **options)[0] == [
        batch for epoch in range(3) for batch in _set_rank(OfRank(1, [2, 2]), epoch)
    ]
    uneven = PlayedBatchSampler([OfRank(rank, [2, 1]) for rank in range(2)])
    uneven.get_next_batch_indices()
    with pytest.raises(SettingError, match=r"batches of the same size, got \[2, 1\]"):
        uneven.get_next_batch_indices()


def test_a_batch_sampler_over_a_sampler_without_a_length_is_played() -> None:
    class Unsized:
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    sampler = PlayedBatchSampler(BatchSampler(Unsized(), 2, True))
    assert sampler.length is None
    assert [sampler.get_next_batch_indices() for _ in range(2)] == [[0, 1], [2, 3]]
    assert PlayedBatchSampler(BatchSampler(range(5), 2, True)).length == 2


def _set_rank(sampler: Any, epoch: int) -> Any:
    sampler.set_epoch(epoch)
    return sampler


def test_sequential_sampler_is_the_same() -> None:
    assert epochs_of_torch(TorchLoader(range(5), 2, sampler=SequentialSampler(range(5))), 1) == [
        [[0, 1], [2, 3], [4]]
    ]
