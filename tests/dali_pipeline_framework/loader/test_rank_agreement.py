"""Ranks whose settings differ are told so at their first batch, and nobody waits for anybody."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from support.loaders import by_sampler, make_loader
from support.providers import IndexProvider
from support.ranks import run_ranks
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DistributedSampler

from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.loader import DataLoader, rank_agreement
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ArrayStep, ImageRange01Normalizer
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler
from accvlab.dali_pipeline_framework.sources.shards import Shard

AsRank = Callable[..., None]


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[AsRank]:
    """Makes this process one of several ranks, which have only a store in common."""
    shared = dist.HashStore()

    def become(rank: int, num_ranks: int = 2, store: Any = None) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=store or shared, rank=rank, world_size=num_ranks)
        monkeypatch.setattr(rank_agreement, "_numbers", itertools.count())  # another process has made no loaders

    yield become
    if dist.is_initialized():
        dist.destroy_process_group()


def loader_of(batch_size: int = 2, num_samples: int = 16, seed: int = 0, **arguments: Any) -> DataLoader:
    arguments = {"shard": "torch", "sampler": ShuffledSampler(num_samples, seed=seed), **arguments}
    source = by_sampler(arguments.pop("sampler"), IndexProvider(num_samples), None)
    return make_loader(source, batch_size, **arguments)


def begin(loader: DataLoader) -> None:
    next(iter(loader))


def loaded() -> DataLoader:
    loader = loader_of()
    with loader_of(shard=(0, 2)) as other:
        begin(other)
        loader.load_state_dict(other.state_dict())
    return loader


def told(as_rank: AsRank, make: Callable[[int], DataLoader]) -> list[str]:
    """The differences that both ranks are told, of which one begins its first loop before the other one."""
    with contextlib.ExitStack() as stack:
        loaders = []
        for rank in range(2):
            as_rank(rank)
            loaders.append(stack.enter_context(make(rank)))
        as_rank(0)
        loop = iter(loaders[0])  # has not seen the other one yet
        as_rank(1)
        try:
            iter(loaders[1])
        except SettingError as error:
            message = str(error)
        else:
            as_rank(0)
            next(loop)
            return []
        as_rank(0)
        with pytest.raises(SettingError) as at_first:
            next(loop)
        assert str(at_first.value) == message
    begin, *lines, end = message.splitlines()
    assert begin == "Ranks that share the data of a loader have different settings:"
    assert end == "Give all of them the same, and load the same state on all of them."
    return [line.removeprefix("  - ") for line in lines]


def of_epoch(rank: int) -> Any:
    return loader_of(sampler=lambda epoch: [rank, 2, 3, 4])


def of_pytorch(rank: int) -> Any:
    return loader_of(sampler=DistributedSampler(range(8 + 8 * rank), 2, rank))


# What the ranks have in different ways, and how what the error says then begins.
DIFFERENT: list[tuple[Callable[[int], DataLoader], list[str]]] = [
    (lambda rank: loader_of(2 + rank), ["batch_size: 2 on rank 0, 3 on rank 1"]),
    (lambda rank: loader_of(seed=5 * rank), ["seed: 0 on rank 0, 5 on rank 1"]),
    (
        lambda rank: loader_of(num_samples=16 - 4 * rank),
        ["num_samples: 16 on rank 0, 12 on rank 1", "data_set_size: 16 on rank 0, 12 on rank 1"],
    ),
    (lambda rank: loader_of(last_batch=("drop", "pad")[rank]), ["last_batch: drop on rank 0, pad on rank 1"]),
    (of_epoch, ["first_epoch: "]),
    (of_pytorch, ["num_per_epoch: 4 on rank 0, 8 on rank 1"]),
    (lambda rank: (loader_of, loaded)[rank](), ["first batch of the first loop: 0 on rank 0, 1 on rank 1"]),
]


@pytest.mark.parametrize(("make", "begins"), DIFFERENT)
def test_a_difference_is_named_on_both_ranks(
    make: Callable[[int], DataLoader], begins: list[str], as_rank: AsRank
) -> None:
    lines = told(as_rank, make)
    assert len(lines) == len(begins)
    assert all(line.startswith(begin) for line, begin in zip(lines, begins, strict=True)), lines


def test_ranks_with_other_gpus_may_run_steps_elsewhere(as_rank: AsRank) -> None:
    """Codecs of videos are decoded where all GPUs of a machine can, else in the workers."""
    loaders = []
    for run in ("graph", "workers"):
        as_rank(len(loaders))
        loaders.append(loader_of(steps=[ImageRange01Normalizer("index")], run=run))
    as_rank(0)
    loop = iter(loaders[0])
    as_rank(1)
    expected = (
        r"^Ranks that share the data of a loader run different steps in their workers \(steps in the workers: "
        r"0 on rank 0, 1 on rank 1\)\. .* Pass `run` to the loader"
    )
    with pytest.warns(UserWarning, match=expected):
        other = iter(loaders[1])
    assert len(next(other)["index"]) == 2
    as_rank(0)
    with pytest.warns(UserWarning, match=expected):
        assert len(next(loop)["index"]) == 2
    for loader in loaders:
        loader.close()


class Bounded(ArrayStep):
    """Has settings whose text differs between processes: sets, functions."""

    def __init__(self, names: Sequence[str], bounds: Sequence[float]) -> None:
        self.settings = f"names={{{', '.join(names)}}}, key={object()}, bounds={[*bounds]}"

    def __repr__(self) -> str:
        return f"Bounded({self.settings})"

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        return data


@pytest.mark.parametrize(
    ("names", "bounds", "is_same"),
    [("ba", [1, 2.5], True), ("ab", [2.5, 1], False), ("ac", [1, 2.5], False), ("ab", [1, 2.50001], False)],
)
def test_steps_are_compared_whatever_the_order_of_sets_and_addresses(
    as_rank: AsRank, names: str, bounds: list[float], is_same: bool
) -> None:
    steps = [Bounded("ab", [1, 2.5]), Bounded(names, bounds)]
    found = told(as_rank, lambda rank: loader_of(steps=[steps[rank]]))
    assert [line.partition("(")[0] for line in found] == ([] if is_same else ["step 0: Bounded"])


# --- what is no difference --------------------------------------------------------------------------------


def test_what_ranks_have_left_that_a_launcher_has_restarted_is_not_compared(
    as_rank: AsRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All starts of a job share a store; the second goes on from a state."""
    for restart, make in enumerate((loader_of, loaded)):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restart))
        assert told(as_rank, lambda rank: make()) == []  # noqa: B023


@pytest.mark.parametrize(
    ("num_ranks", "make"),
    [
        pytest.param(3, lambda rank: [loader_of()], id="the same"),
        pytest.param(2, lambda rank: [loader_of(size) for size in (2, 4)], id="compared by their number"),
        pytest.param(2, lambda rank: [loader_of(num_samples=8 + rank, shard=(0, 1))], id="data of its own"),
        pytest.param(4, lambda rank: [loader_of(seed=rank // 2, shard=Shard(rank % 2, 2))], id="groups by hand"),
        pytest.param(
            2,
            lambda rank: [loader_of(num_samples=8, shard=None)] * (rank == 0) + [loader_of()],
            id="a loader of all data that only one rank has",
        ),
    ],
)
def test_these_loaders_of_ranks_agree(
    as_rank: AsRank, num_ranks: int, make: Callable[[int], list[DataLoader]]
) -> None:
    for rank in range(num_ranks):
        as_rank(rank, num_ranks)
        for loader in make(rank):
            with loader:
                begin(loader)


def test_a_store_that_cannot_compare_is_left_alone(as_rank: AsRank) -> None:
    for rank in range(2):
        as_rank(rank, store=FakeStore())
        with loader_of(2 + rank) as loader:
            begin(loader)


# --- real ranks -------------------------------------------------------------------------------------------


def what_is_found() -> str:
    """Begin a loop with settings that differ from those of the other rank: at once, or at its first batch."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, found, loop = dist.get_rank(), "nothing", None
    if rank == 0:
        with loader_of(shard=None) as only_here:
            begin(only_here)
    dist.barrier()
    with loader_of(2 + rank) as loader:
        try:
            loop = iter(loader)
            dist.barrier()
            next(loop)
        except SettingError as error:
            if loop is None:
                dist.barrier()
            found = str(error).splitlines()[1].strip()
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_two_processes_see_it_and_do_not_hang(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(f"from {__name__} import what_is_found\nprint(what_is_found())\n")
    a, b = ("batch_size: 2 on rank 0, 3 on rank 1", "batch_size: 3 on rank 1, 2 on rank 0")
    assert run_ranks(script, [], 2) in ([f"- {a}\n"] * 2, [f"- {b}\n"] * 2)
