"""What training frameworks and programs around a loader touch works on real loaders."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.loaders import by_sampler, make_loader
from support.pipelines import indices
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.loader.torch_interface import pinned, with_pinning
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


def loader_of(num_samples: int = 11, **arguments: Any) -> DataLoader:
    sampler = ShuffledSampler(num_samples, seed=1, last_batch="pad")
    settings = {"output_type": "torch", **arguments}
    return make_loader(by_sampler(sampler, IndexProvider(num_samples), None), 4, **settings)


def epochs_of(loader: DataLoader, num_epochs: int) -> list[list[list[int]]]:
    return [indices(loader) for _ in range(num_epochs)]


@pytest.fixture
def loader() -> Iterator[DataLoader]:
    with loader_of() as made:
        yield made


# --- states, itertools and loops --------------------------------------------------------------------------


@pytest.mark.wide  # to import it takes a second
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_the_state_goes_through_the_distributed_checkpoint(loader: DataLoader, tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    assert isinstance(loader, checkpoint.stateful.Stateful)
    epochs = epochs_of(loader, 1)
    loader.set_epoch(0)
    next(iter(loader))
    checkpoint.save({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
    with loader_of() as another:
        checkpoint.load({"loader": another}, checkpoint_id=tmp_path, no_dist=True)
        assert epochs_of(another, 1) == [epochs[0][1:]]


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
    cameras = [camera["image"] for camera in found["cameras"]]
    leaves = [found["image"], *cameras, found["pair"].left, found["tuple"][0], found["ordered"]["x"]]
    assert [type(leaf) for leaf in leaves] == [Pinned] * 6
    assert found["image"].tolist() == [0, 1, 2]
    expected = {name: type(value) for name, value in batch.items()} | {"image": Pinned}
    assert {name: type(value) for name, value in found.items()} == expected
    assert (found["pair"].right, found["tuple"][1], found["names"][0]) == ("b", 3, text)
    assert found["own"].was_pinned
    assert found["elsewhere"] is elsewhere
    assert type(batch["image"]) is torch.Tensor  # what was delivered stays what it was


def test_pinning_comes_behind_what_the_user_makes_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA is looked for once, and not before workers were forked."""
    looked: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: not looked.append(True))  # type: ignore[func-returns-value]
    monkeypatch.setattr(torch.Tensor, "pin_memory", as_pinned)
    with loader_of(pin_memory=True, num_workers=1) as loader:
        assert loader.pin_memory is True
        loader.start()
        assert looked == []
        batches = [*loader]
        assert looked == [True]
    assert {type(batch["index"]) for batch in batches} == {Pinned}
    assert indices(batches) == indices(loader_of())
    assert with_pinning(len, False) is len
    pin: Any = with_pinning(lambda batch: [batch["x"] + 1], True)
    (found,) = pin({"x": torch.zeros(1)})
    assert (type(found), found.item()) == (Pinned, 1)


def test_without_cuda_nothing_changes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level(logging.INFO), loader_of(pin_memory=True) as loader:
        assert type(next(iter(loader))["index"]) is torch.Tensor
    assert "`pin_memory=True` changes nothing here: there is no CUDA device to copy to." in caplog.messages


@pytest.mark.gpu
def test_a_gpu_fetches_pinned_batches() -> None:
    with loader_of(pin_memory=True, num_workers=1) as loader:
        for _ in range(2):
            for batch, expected in zip(loader, loader.batch_sampler, strict=True):
                assert batch["index"].is_pinned()
                fetched = batch["index"].to("cuda", non_blocking=True)
                assert fetched.tolist() == expected
