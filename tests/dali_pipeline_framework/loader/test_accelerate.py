"""Accelerate, when it is handed a loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from support.pipelines import indices
from support.providers import NumberProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import NotSupportedError, SettingError

pytestmark = pytest.mark.wide


def loader_of(num_samples: int = 10, **arguments: Any) -> DataLoader:
    return DataLoader(
        NumberProvider(num_samples), 4, num_workers=0, num_threads=1, shuffle=True, seed=3, **arguments
    )


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    accelerator = Accelerator(cpu=True)
    yield accelerator
    accelerator.free_memory()


@pytest.mark.parametrize("as_torch", [False, True])
def test_prepare_gives_the_loader_back_as_it_is_and_saves_it(
    accelerator: Accelerator, as_torch: bool, tmp_path: Path
) -> None:
    whole, loader = indices(loader_of(24)), loader_of(24, as_torch_data_loader=as_torch)
    model, prepared = accelerator.prepare(torch.nn.Linear(1, 1), loader)
    assert prepared is loader
    accelerator.register_for_checkpointing(loader)
    with accelerator.join_uneven_inputs([model], even_batches=False):
        loop = iter(loader)
        assert indices(loop, 2) == whole[:2]
        accelerator.save_state(str(tmp_path))
        assert indices(loop) == whole[2:]
    accelerator.load_state(str(tmp_path))
    assert indices(loader) == whole[2:]


def test_an_accumulation_ends_with_the_epoch() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = loader_of(last_batch="partial")  # three batches
    for _ in range(2):
        has_stepped = []
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch["index"][:, None].float()).mean())
                optimizer.step()
                optimizer.zero_grad()
            has_stepped.append(accelerator.sync_gradients)
        assert has_stepped == [False, True, True]
        assert not accelerator.gradient_state.in_dataloader


def test_a_loader_is_not_prepared_twice(accelerator: Accelerator) -> None:
    loader = accelerator.prepare(loader_of(as_torch_data_loader=True))
    for other in (accelerator, Accelerator(cpu=True)):
        with pytest.raises(SettingError, match=r"was handed to `prepare` of Accelerate before"):
            other.prepare(loader)


def test_of_several_ranks_a_prepared_loader_needs_its_shard(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match=r"each of the 2 ranks would get all samples.*shard='auto'"):
        accelerator.prepare(loader_of(as_torch_data_loader=True))
    for shard in ("auto", (0, 1)):  # the second: said so, by ranks that are to get the same samples
        accelerator.prepare(loader_of(as_torch_data_loader=True, shard=shard))


@pytest.mark.parametrize("as_torch", [False, True])
def test_skipping_batches_is_refused(as_torch: bool) -> None:
    """It would make a loader of PyTorch of the data provider."""
    loader = loader_of(as_torch_data_loader=as_torch)
    with pytest.raises(NotSupportedError, match=r"^NumberProvider is loaded by a loader of PyTorch, or by"):
        next(iter(skip_first_batches(loader, 1)))
