"""Trainings with Lightning that are resumed anywhere have the steps of one that was not stopped."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.laws import each_value
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import StateError

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def _only_here() -> None:
    """Import Lightning: where the module did, all processes that collect tests would, for seconds each."""
    pytest.importorskip("pytorch_lightning")
    gc.freeze()  # as `tests/conftest.py` does with what is imported before


def loader_of(num_samples: int, seed: int = 0) -> DataLoader:
    return DataLoader(IndexProvider(num_samples), 4, shuffle=True, seed=seed, num_workers=0)


def loaders_of(kind: str) -> Any:
    return {"a": loader_of(24), "b": loader_of(40, 5)} if kind == "dict" else loader_of(24)


def model_of(is_estimated: bool, stop: int | None) -> Any:
    """A model that notes the samples of each step, and stops after some."""
    import pytorch_lightning as pl

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = torch.nn.Linear(1, 1)
            self.steps: list[Any] = []

        def training_step(self, batch: Any) -> torch.Tensor:
            batches = [batch] if "index" in batch else [batch["a"], batch["b"]]
            self.steps.append([each["index"].tolist() for each in batches])
            return self.network(torch.zeros(1, 1)).sum() * 0

        def on_train_batch_end(self, *arguments: Any) -> None:
            if len(self.steps) == stop:
                raise InterruptedError

        def configure_optimizers(self) -> Any:
            if is_estimated:
                assert self.trainer.estimated_stepping_batches > 0
            return torch.optim.SGD(self.parameters(), 0.1)

    return Model()


def steps_of(loaders: Any, folder: Path, is_estimated: bool, stop: int | None, checkpoint: Any) -> list[Any]:
    import pytorch_lightning as pl

    model = model_of(is_estimated, stop)
    save = pl.callbacks.ModelCheckpoint(folder, "{step:06}", every_n_train_steps=1, save_top_k=-1)
    quiet = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler"), False
    )
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=2, callbacks=[save], **quiet)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(model, loaders, ckpt_path=checkpoint, weights_only=False)
    except InterruptedError:
        pass
    return model.steps


@each_value(kind=["one", "dict"], is_estimated=[False, True], stops=[(3,), (6, 2), (8,)])
def test_steps_go_on_where_training_was_stopped(
    kind: str, is_estimated: bool, stops: tuple[int, ...], tmp_path: Path
) -> None:
    whole = steps_of(loaders_of(kind), tmp_path / "whole", is_estimated, None, None)
    steps: list[Any] = []
    checkpoint = None
    for stop in (*stops, None):
        steps += steps_of(loaders_of(kind), tmp_path / "parts", is_estimated, stop, checkpoint)
        checkpoint = max((tmp_path / "parts").glob("*.ckpt"))
    assert steps == whole


def test_a_checkpoint_without_the_state_of_the_loader_is_refused(tmp_path: Path) -> None:
    steps_of(loader_of(24), tmp_path, False, 3, None)  # of 6 in an epoch
    path = max(tmp_path.glob("*.ckpt"))
    checkpoint = torch.load(path, weights_only=False)
    state = checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader")
    torch.save(checkpoint, path)
    with pytest.raises(StateError, match=r"goes on after 3 batches of its epoch, .* is at batch 0 of epoch 0"):
        steps_of(loader_of(24), tmp_path, False, None, path)
    loader = loader_of(24)
    loader.load_state_dict(state[0])
    assert len(steps_of(loader, tmp_path, False, None, path)) == 9
