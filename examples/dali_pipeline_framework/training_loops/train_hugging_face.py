"""A loop of the Trainer of Hugging Face, one process per rank::

    torchrun --nproc-per-node=2 train_hugging_face.py

The state of the loader is saved in the Trainer's own, `trainer_state.json`.
"""

from typing import Any

import torch
from step_log import StepLog
from tiny_drives import (
    NUM_EPOCHS,
    STEPS_BETWEEN_CHECKPOINTS,
    TOTAL_BATCH_SIZE,
    parse_arguments,
    training_loader,
    validation_loader,
)
from tiny_model import SignDescent, SteeringNet
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import get_last_checkpoint

from accvlab.dali_pipeline_framework import DataLoader


class LoaderState(TrainerCallback, ExportableState):
    """Saves the state of a loader in the Trainer's checkpoints, and loads it when the Trainer resumes."""

    def __init__(self, loader: DataLoader) -> None:
        """Keep the loader."""
        self._loader = loader

    def state(self) -> dict[str, Any]:
        """What the Trainer saves."""
        return {"args": {}, "attributes": {"loader": self._loader.state_dict()}}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **others: Any) -> None:
        """Continue, where the Trainer does."""
        if state.global_step > 0:
            self._loader.load_state_dict(state.stateful_callbacks["LoaderState"]["attributes"]["loader"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: Any, **others: Any) -> None:
        """Correct the epoch: after a resume, the Trainer counts its batches from 0."""
        state.epoch = state.global_step / state.max_steps * state.num_train_epochs


class SteeringTrainer(Trainer):
    """A Trainer with loaders of this package.

    Args:
        training: For training.
        validation: For evaluation.
        log: Where steps and evaluations are logged.
        **arguments: Arguments of `Trainer`.
    """

    def __init__(self, training: DataLoader, validation: DataLoader, log: StepLog, **arguments: Any) -> None:
        """Keep them."""
        super().__init__(**arguments)
        self._training, self._validation, self._log = training, validation, log

    def get_train_dataloader(self) -> Any:
        """Get the loader, as it is."""
        return self._training

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Get the loader, as it is."""
        return self._validation

    def compute_loss(self, model: nn.Module, inputs: Any, *others: Any, **settings: Any) -> torch.Tensor:
        """Get the loss of a step of training."""
        losses = SteeringNet.losses(model(inputs["cameras"]["image"]), inputs)
        self._log.write_step(self.state.global_step + 1, inputs, losses)
        return losses.mean()

    def prediction_step(self, model: nn.Module, inputs: Any, *others: Any, **settings: Any) -> Any:
        """Evaluate a batch: (loss, predictions, labels); labels of padding are not a number."""
        self._log.write_evaluation(self._training.epoch - 1, inputs)  # the loader is in the next epoch
        with torch.no_grad():
            steering = model(inputs["cameras"]["image"])
        labels = inputs["steering"].where(inputs["context"]["is_padding"] == 0, torch.nan)
        return None, steering, labels


def metrics(evaluated: Any) -> dict[str, float]:
    """Get the mean error over all frames; padding is left out."""
    counted = ~torch.tensor(evaluated.label_ids).isnan()
    errors = (torch.tensor(evaluated.predictions) - torch.tensor(evaluated.label_ids)).abs()
    return {"error": float(errors[counted].mean()), "num_frames": int(counted.sum())}


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    settings = TrainingArguments(
        output_dir=str(arguments.folder),
        use_cpu=True,
        num_train_epochs=NUM_EPOCHS,
        save_steps=STEPS_BETWEEN_CHECKPOINTS,
        eval_strategy="epoch",
        lr_scheduler_type="constant",
        max_grad_norm=0,
        ignore_data_skip=True,  # the loader is at its position already
        report_to="none",
        disable_tqdm=True,
    )
    batch_size = TOTAL_BATCH_SIZE // settings.world_size
    settings.per_device_train_batch_size = settings.per_device_eval_batch_size = batch_size
    model = SteeringNet()
    with (
        training_loader(batch_size, arguments.num_workers, shard="auto") as training,
        validation_loader(batch_size, arguments.num_workers, shard="auto") as validation,
    ):
        trainer = SteeringTrainer(
            training,
            validation,
            StepLog(arguments.folder, settings.process_index, settings.world_size),
            model=model,
            args=settings,
            eval_dataset=validation.dataset,  # so that the Trainer knows that there is one
            optimizers=(SignDescent(model.parameters()), None),
            callbacks=[LoaderState(training)],
            compute_metrics=metrics,
        )
        trainer.train(resume_from_checkpoint=get_last_checkpoint(str(arguments.folder)))


if __name__ == "__main__":
    main()
