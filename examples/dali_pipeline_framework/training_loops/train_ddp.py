"""A loop of `DistributedDataParallel`, one process per rank::

    torchrun --nproc-per-node=2 train_ddp.py

The state of the loader is the same on all ranks: rank 0 saves it, and all load it, also where there are more ranks
then, or fewer.
"""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
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
from torch.nn.parallel import DistributedDataParallel


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Write a checkpoint so that there is always a complete one."""
    torch.save(checkpoint, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    dist.init_process_group("gloo")
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    log = StepLog(arguments.folder, rank, num_ranks)
    checkpoint_path = arguments.folder / "checkpoint.pt"
    model = DistributedDataParallel(SteeringNet())
    optimizer = SignDescent(model.parameters())
    batch_size = TOTAL_BATCH_SIZE // num_ranks
    step = 0
    with (
        training_loader(batch_size, arguments.num_workers, shard="auto") as training,
        validation_loader(batch_size, arguments.num_workers, shard="auto") as validation,
    ):
        if checkpoint_path.exists():
            checkpoint = torch.load(checkpoint_path)
            model.module.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            training.load_state_dict(checkpoint["loader"])
            step = checkpoint["step"]
        dist.barrier()  # all have read it before rank 0 writes the next one
        for epoch in range(training.epoch, NUM_EPOCHS):
            for batch in training:
                losses = SteeringNet.losses(model(batch["cameras"]["image"]), batch)
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
                step += 1
                log.write_step(step, batch, losses)
                if step % STEPS_BETWEEN_CHECKPOINTS == 0 and rank == 0:
                    checkpoint = {
                        "model": model.module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": training.state_dict(),
                        "step": step,
                    }
                    save(checkpoint_path, checkpoint)
            for batch in validation:
                log.write_evaluation(epoch, batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
