"""A loop of Lightning, whose checkpoints have the state of the loader of training, because it has `state_dict`::

torchrun --nproc-per-node=2 train_lightning.py
"""

import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from step_log import StepLog
from tiny_drives import (
    NUM_EPOCHS,
    STEPS_BETWEEN_CHECKPOINTS,
    TOTAL_BATCH_SIZE,
    is_counted,
    parse_arguments,
    training_loader,
    validation_loader,
)
from tiny_model import SignDescent, SteeringNet

from accvlab.dali_pipeline_framework import DataLoader


class Drives(LightningDataModule):
    """Creates the loaders when the Trainer requests them: the ranks are connected by then.

    Args:
        num_workers: Worker processes per loader.
    """

    def __init__(self, num_workers: int) -> None:
        """Keep it."""
        super().__init__()
        self._num_workers = num_workers
        self._loaders: list[DataLoader] = []

    def train_dataloader(self) -> DataLoader:
        """Make the loader of training."""
        return self._made(training_loader)

    def val_dataloader(self) -> DataLoader:
        """Make the loader of validation."""
        return self._made(validation_loader)

    def _made(self, make: Any) -> DataLoader:
        batch_size = TOTAL_BATCH_SIZE // self.trainer.world_size
        self._loaders.append(make(batch_size, self._num_workers, shard="auto"))
        return self._loaders[-1]

    def teardown(self, stage: str) -> None:
        """Close the loaders."""
        for loader in self._loaders:
            loader.close()


class Steering(LightningModule):
    """The model that is trained.

    Args:
        folder: Where steps and evaluations are logged.
    """

    def __init__(self, folder: Path) -> None:
        """Make the network."""
        super().__init__()
        self.network = SteeringNet()
        self._folder = folder

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make the optimizer."""
        return SignDescent(self.parameters())

    def setup(self, stage: str) -> None:
        """Open the log."""
        self._log = StepLog(self._folder, self.trainer.global_rank, self.trainer.world_size)

    def training_step(self, batch: Any) -> torch.Tensor:
        """Get the loss of a step."""
        losses = SteeringNet.losses(self.network(batch["cameras"]["image"]), batch)
        self._log.write_step(self.trainer.global_step + 1, batch, losses)
        return losses.mean()

    def validation_step(self, batch: Any) -> None:
        """Evaluate a batch."""
        self._log.write_evaluation(self.trainer.current_epoch, batch)
        losses = SteeringNet.losses(self.network(batch["cameras"]["image"]), batch)[is_counted(batch)]
        if len(losses):
            self.log("error", losses.mean(), batch_size=len(losses))


class NextEpoch(Callback):
    """If a Trainer continues from the last step of an epoch, has it begin the next epoch.

    Lightning 2.6 takes the next epoch for the rest of the one before. This shows only when the Trainer resumes
    again, in the middle of the next epoch: then it counts the batches of that whole epoch again.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Have the Trainer begin the next epoch."""
        epochs = trainer.fit_loop.epoch_progress.current
        if trainer.fit_loop.restarted_mid_epoch and epochs.processed == epochs.ready:
            trainer.fit_loop.reset_restart_stage()


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = Trainer(
        accelerator="cpu",
        devices=num_ranks,
        strategy="ddp" if num_ranks > 1 else "auto",
        plugins=LightningEnvironment(),
        max_epochs=NUM_EPOCHS,
        use_distributed_sampler=False,  # the loaders have their parts of the data
        num_sanity_val_steps=0,
        default_root_dir=str(arguments.folder),
        callbacks=[
            NextEpoch(),
            ModelCheckpoint(
                dirpath=arguments.folder,
                filename="{step:06}",
                every_n_train_steps=STEPS_BETWEEN_CHECKPOINTS,
                save_top_k=-1,
            ),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoints = sorted(arguments.folder.glob("*.ckpt"))
    last = str(checkpoints[-1]) if checkpoints else None
    trainer.fit(Steering(arguments.folder), datamodule=Drives(arguments.num_workers), ckpt_path=last)


if __name__ == "__main__":
    main()
