"""A loop of the Runner of MMEngine: a hook has the state of the loader in the Runner's checkpoints::

torchrun --nproc-per-node=2 train_mmengine.py
"""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from mmengine.dist import get_world_size
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.hooks import Hook
from mmengine.model import BaseModel, MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
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

# What MMEngine 0.10 saves has objects of its own classes, which PyTorch loads only where that is allowed.
os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")


def to_mmengine(batch: Any) -> dict[str, Any]:
    """A batch under the names that models of MMEngine ask for."""
    return {"inputs": batch["cameras"]["image"], "data_samples": batch}


class Steering(BaseModel):
    """The model that is trained."""

    def __init__(self) -> None:
        """Make the network."""
        super().__init__()
        self.network = SteeringNet()
        self.last_losses = torch.empty(0)

    def forward(self, inputs: torch.Tensor, data_samples: Any, mode: str = "tensor") -> Any:
        """Get the loss of a step, or what is to be evaluated."""
        losses = SteeringNet.losses(self.network(inputs), data_samples)
        if mode == "loss":
            self.last_losses = losses.detach()
            return {"loss": losses.mean()}
        return list(zip(losses.tolist(), is_counted(data_samples).tolist(), strict=True))


class MeanError(BaseMetric):
    """The mean error of all frames; padding is left out."""

    default_prefix = "steering"

    def process(self, data_batch: Any, data_samples: Any) -> None:
        """Take those of a batch, padding included, so that all ranks have equally many."""
        self.results.extend(data_samples)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """Get their mean."""
        errors = [error for error, is_frame in results if is_frame]
        return {"error": sum(errors) / len(errors), "num_frames": len(errors)}

    def evaluate(self, size: int) -> dict[str, float]:
        """Have all results collected: of more than there are frames, MMEngine drops the last ones."""
        metrics: dict[str, float] = super().evaluate(len(self.results) * get_world_size())
        return metrics


class LoaderState(Hook):
    """Saves the state of the loader in the checkpoints of the Runner, and loads it where the Runner resumes.

    Args:
        loader: The loader of training.
    """

    def __init__(self, loader: DataLoader) -> None:
        """Keep it."""
        self._loader = loader

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Add the state, and its epoch: after the last batch of an epoch, the next one."""
        checkpoint["loader"] = self._loader.state_dict()
        checkpoint["meta"]["epoch"] = self._loader.epoch

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Load the state, so that the loader continues there."""
        self._loader.load_state_dict(checkpoint["loader"])


class Log(Hook):
    """Logs steps and evaluations."""

    def before_run(self, runner: Runner) -> None:
        """Open it."""
        self._log = StepLog(Path(runner.work_dir), runner.rank, runner.world_size)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        """Log a step."""
        model: Any = getattr(runner.model, "module", runner.model)
        self._log.write_step(runner.iter + 1, data_batch["data_samples"], model.last_losses)

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any) -> None:
        """Log a batch of an evaluation, which comes after the epoch."""
        self._log.write_evaluation(runner.epoch - 1, data_batch["data_samples"])


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    model: Any = Steering()
    if num_ranks > 1:  # `Runner(launcher="pytorch")` does both, for ranks with GPUs
        dist.init_process_group("gloo")
        model = MMDistributedDataParallel(model)
    settings: Any = {
        "batch_size": TOTAL_BATCH_SIZE // num_ranks,
        "num_workers": arguments.num_workers,
        "shard": "auto",
        "post_process_func": to_mmengine,
        "as_torch_data_loader": True,  # the Runner asks for `isinstance(loader, torch.utils.data.DataLoader)`
    }
    with training_loader(**settings) as training, validation_loader(**settings) as validation:
        runner = Runner(
            model,
            str(arguments.folder),
            train_dataloader=training,
            train_cfg={"by_epoch": True, "max_epochs": NUM_EPOCHS},
            optim_wrapper=OptimWrapper(SignDescent(model.parameters())),
            val_dataloader=validation,
            val_cfg={},
            val_evaluator=Evaluator(MeanError()),
            default_hooks={
                "checkpoint": {"type": "CheckpointHook", "interval": STEPS_BETWEEN_CHECKPOINTS, "by_epoch": False}
            },
            custom_hooks=[LoaderState(training), Log()],
            resume=True,
            log_level="WARNING",
        )
        runner.train()
    if num_ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
