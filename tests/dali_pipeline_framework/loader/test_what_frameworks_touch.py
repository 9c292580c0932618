"""What training frameworks and programs around a loader touch works on real loaders."""

from __future__ import annotations

import collections
import gc
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
import torch
from support.loaders import by_sampler, make_loader
from support.pipelines import indices
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.loader.torch_interface import pinned, with_pinning
from accvlab.dali_pipeline_framework.sampling import SequentialSampler, ShuffledSampler

NUM_SAMPLES = 11


def loader_of(
    num_samples: int = NUM_SAMPLES, batch_size: int = 4, last_batch: Any = "pad", **arguments: Any
) -> DataLoader:
    sampler = ShuffledSampler(num_samples, seed=1, last_batch=last_batch)
    return make_loader(by_sampler(sampler, IndexProvider(num_samples), None), batch_size, **arguments)


def in_order(num_samples: int, **arguments: Any) -> DataLoader:
    sampler = SequentialSampler(num_samples, last_batch="partial")
    return make_loader(by_sampler(sampler, IndexProvider(num_samples), None), 4, **arguments)


def epochs_of(loader: DataLoader, num_epochs: int) -> list[list[list[int]]]:
    return [indices(loader) for _ in range(num_epochs)]


@pytest.fixture
def loader() -> Iterator[DataLoader]:
    with loader_of(output_type="torch") as made:
        yield made


# --- epochs and states -----------------------------------------------------------------------------------


def test_set_epoch_of_loader_and_sampler_choose_the_epoch(loader: DataLoader) -> None:
    epochs = epochs_of(loader, 3)
    assert len({str(epoch) for epoch in epochs}) == 3
    for setter in (loader.set_epoch, loader.sampler.set_epoch, loader.batch_sampler.sampler.set_epoch):
        for epoch in (1, 0, 2):
            setter(epoch)
            assert indices(loader) == epochs[epoch]
    loader.set_epoch(1)
    assert epochs_of(loader, 2) == epochs[1:]  # and goes on from there


def test_set_epoch_moves_a_loop_that_has_no_batch_yet(loader: DataLoader) -> None:
    """Lightning begins a loop, then sets the epoch that a checkpoint tells, then asks for batches."""
    epochs = epochs_of(loader, 4)
    loader.set_epoch(0)
    loop = iter(loader)
    loader.sampler.set_epoch(2)
    assert (loader.epoch, loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (2, 2, 0)
    assert indices(loop) == epochs[2]
    assert epochs_of(loader, 1) == epochs[3:]  # it has been the epoch of that loop, not of the next one


def test_set_epoch_keeps_the_place_of_a_loaded_state(loader: DataLoader) -> None:
    epochs = epochs_of(loader, 3)
    loader.set_epoch(1)
    next(iter(loader))
    state = loader.state_dict()
    for num_shards in (1, 2):  # on two shards, the rest of the epoch is dealt anew
        with loader_of(shard=(0, num_shards)) as other:
            other.load_state_dict(state)
            loop = iter(other)
            other.set_epoch(1)
            rest = indices(loop)
            assert rest == epochs[1][1:] if num_shards == 1 else len(rest) == 1
            other.load_state_dict(state)
            loop = iter(other)
            other.set_epoch(2)
            moved = indices(loop)
            assert moved == epochs[2] if num_shards == 1 else len(moved) == 2


def test_state_dict_is_that_of_a_stateful_object(loader: DataLoader) -> None:
    stateful = pytest.importorskip("torch.distributed.checkpoint.stateful")
    assert isinstance(loader, stateful.Stateful)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_the_state_goes_through_the_distributed_checkpoint(loader: DataLoader, tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    epochs = epochs_of(loader, 1)
    loader.set_epoch(0)
    next(iter(loader))
    checkpoint.save({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
    with loader_of(output_type="torch") as another:
        checkpoint.load({"loader": another}, checkpoint_id=tmp_path, no_dist=True)
        assert epochs_of(another, 1) == [epochs[0][1:]]


# --- itertools and loops ----------------------------------------------------------------------------------


def test_chain_and_cycle_go_through_loaders_and_epochs(loader: DataLoader) -> None:
    epochs = epochs_of(loader, 2)
    loader.set_epoch(0)
    with in_order(5, output_type="torch") as other:
        chained = indices(itertools.chain(loader, other, loader))
    assert chained == [*epochs[0], [0, 1, 2, 3], [4], *epochs[1]]
    loader.set_epoch(0)
    cycled = itertools.islice(itertools.cycle(loader), 7)  # batches stay valid
    assert indices(cycled) == [*epochs[0] * 2, epochs[0][0]]


class CountsIterations:
    """Goes through epochs as the loop of MMEngine does that counts iterations."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._loop = iter(loader)
        self._epoch = 0

    def __next__(self) -> Any:
        try:
            return next(self._loop)
        except StopIteration:
            self._epoch += 1
            self._loader.sampler.set_epoch(self._epoch)
            self._loop = iter(self._loader)
            return next(self._loop)


def test_a_loop_that_counts_iterations_goes_on_behind_those_that_it_skips() -> None:
    with loader_of() as loader, loader_of() as continued:
        batches = CountsIterations(loader)
        whole = indices(next(batches) for _ in range(10))
        batches = CountsIterations(continued)
        for _ in range(7):
            next(batches)
        assert indices(next(batches) for _ in range(3)) == whole[7:]
        loader.set_epoch(0)
        assert [batch for epoch in epochs_of(loader, 4) for batch in epoch][:10] == whole


# --- several loaders at once ------------------------------------------------------------------------------


def test_loaders_run_in_threads_of_their_own() -> None:
    num_loops = 6
    with loader_of(num_workers=1) as training, in_order(6) as validation, loader_of(23) as third:
        loaders = {"training": training, "validation": validation, "third": third}
        expected = {name: epochs_of(loader, num_loops) for name, loader in loaders.items()}
        training.set_epoch(0)
        third.set_epoch(0)
        barrier = threading.Barrier(len(loaders))

        def go(name: str) -> Any:
            barrier.wait(20)
            return epochs_of(loaders[name], num_loops)

        with ThreadPoolExecutor(len(loaders)) as threads:
            found = dict(zip(loaders, threads.map(go, loaders), strict=True))
    assert found == expected


# --- nothing is left --------------------------------------------------------------------------------------


@attrs.frozen
class Held:
    """What this process holds.

    Attributes:
        processes: Child processes.
        threads: Threads.
        files: Open file descriptors.
        shared: Mappings of shared memory; that of DALI has no name any more when it is there.
        memory_mib: Resident memory.
    """

    processes: int
    threads: int
    files: int
    shared: int
    memory_mib: float

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        process = psutil.Process()
        children = [child for child in process.children() if "resource_tracker" not in " ".join(child.cmdline())]
        memory_mib = process.memory_info().rss / 2**20
        mappings = Path("/proc/self/maps").read_text().count("/dev/shm/")
        return cls(len(children), process.num_threads(), process.num_fds(), mappings, memory_mib)


def assert_nothing_is_left(num_times: int, how: Callable[[int], None], most_growth_mib: float) -> None:
    """Do something often, and compare what is held; the first times warm up what is kept for good."""
    for number in range(5):
        how(number)
    before = Held.now()
    for number in range(num_times):
        how(number)
    after = Held.now()
    held = [(each.processes, each.threads, each.files) for each in (before, after)]  # also of tests before
    assert all(now <= then for then, now in zip(*held, strict=True)), held
    assert after.shared <= before.shared
    assert after.memory_mib - before.memory_mib < most_growth_mib


def make_and_close(num_workers: int, **arguments: Any) -> Callable[[int], None]:
    def how(number: int) -> None:
        loader = loader_of(num_workers=num_workers, **arguments)
        if number % 5 != 4:  # each fifth one is never started
            loop = iter(loader)
            for _ in range(number % 5):  # or left at another place
                next(loop, None)
        if number % 2:
            loader.close()

    return how


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("num_times", "num_workers", "start_method", "most_growth_mib"),
    [(100, 0, "fork", 12), (30, 1, "fork", 12), (100, 1, "fork", 24), (100, 1, "spawn", 24)],
)
def test_many_loaders_leave_nothing(
    num_times: int, num_workers: int, start_method: str, most_growth_mib: float
) -> None:
    assert_nothing_is_left(num_times, make_and_close(num_workers, start_method=start_method), most_growth_mib)


# --- pinned memory ----------------------------------------------------------------------------------------


class Pinned(torch.Tensor):
    """Stands for a tensor in pinned memory, which needs CUDA."""


def as_pinned(tensor: torch.Tensor) -> Any:
    return tensor.clone().as_subclass(Pinned)


Pair = collections.namedtuple("Pair", ["left", "right"])


class PinsItself:
    def __init__(self, is_pinned: bool = False) -> None:
        self.was_pinned = is_pinned

    def pin_memory(self) -> PinsItself:
        return PinsItself(True)


def test_all_tensors_of_a_batch_are_pinned_and_all_else_stays() -> None:
    text, elsewhere = "a", torch.ones(1, device="meta")
    batch = {
        "image": torch.arange(3),
        "cameras": [{"image": torch.ones(2)}, {"image": torch.zeros(2)}],
        "pair": Pair(torch.ones(1), "b"),
        "tuple": (torch.ones(1), 3),
        "names": [text],
        "own": PinsItself(),
        "ordered": collections.OrderedDict(x=torch.ones(1)),
        "elsewhere": elsewhere,
    }
    found = pinned(batch, as_pinned)
    leaves = [
        found["image"],
        *(camera["image"] for camera in found["cameras"]),
        found["pair"].left,
        found["tuple"][0],
        found["ordered"]["x"],
    ]
    assert [type(leaf) for leaf in leaves] == [Pinned] * 6
    assert found["image"].tolist() == [0, 1, 2]
    assert {name: type(value) for name, value in found.items()} == {
        name: Pinned if name == "image" else type(value) for name, value in batch.items()
    }
    assert (found["pair"].right, found["tuple"][1], found["names"][0]) == ("b", 3, text)
    assert found["own"].was_pinned
    assert found["elsewhere"] is elsewhere
    assert type(batch["image"]) is torch.Tensor  # what was delivered stays what it was


def test_pinning_comes_behind_what_the_user_makes_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", as_pinned)
    arguments = {"output_type": "torch", "pin_memory": True}
    with loader_of(**arguments) as plain, loader_of(**arguments, post_process_func=dict.values) as mapped:
        assert plain.pin_memory is True
        batch = next(iter(plain))
        assert {type(value) for value in batch.values()} <= {Pinned, dict}
        assert type(batch["index"]) is Pinned
        with loader_of(output_type="torch") as unpinned:
            assert indices([batch]) == indices(unpinned, 1)
        assert mapped.pin_memory is True
    assert with_pinning(len, False) is len
    pin = with_pinning(lambda batch: [batch["x"] + 1], True)
    assert pin is not None
    (found,) = pin({"x": torch.zeros(1)})
    assert (type(found), found.item()) == (Pinned, 1)


def test_without_cuda_nothing_changes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level(logging.INFO), loader_of(output_type="torch", pin_memory=True) as loader:
        assert type(next(iter(loader))["index"]) is torch.Tensor
    assert "`pin_memory=True` changes nothing here: there is no CUDA device to copy to." in caplog.messages


def test_cuda_is_looked_for_once_and_not_before_workers_were_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(calls.append(len(calls))))
    with loader_of(output_type="torch", pin_memory=True, num_workers=1, start_method="fork") as loader:
        loader.start()
        assert calls == []
        assert len([*loader]) > 1
    assert calls == [0]


@pytest.mark.gpu
def test_a_gpu_fetches_pinned_batches() -> None:
    with loader_of(output_type="torch", pin_memory=True, num_workers=1) as loader:
        for _ in range(2):
            for batch, expected in zip(loader, loader.batch_sampler, strict=True):
                assert batch["index"].is_pinned()
                fetched = batch["index"].to("cuda", non_blocking=True)
                assert fetched.tolist() == expected
