"""A loop of plain PyTorch: model, optimizer and loader are saved in one file, with `torch.save`."""

import os
from pathlib import Path
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


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Write a checkpoint so that there is always a complete one."""
    torch.save(checkpoint, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    log = StepLog(arguments.folder)
    checkpoint_path = arguments.folder / "checkpoint.pt"
    model = SteeringNet()
    optimizer = SignDescent(model.parameters())
    step = 0
    with (
        training_loader(TOTAL_BATCH_SIZE, arguments.num_workers) as training,
        validation_loader(TOTAL_BATCH_SIZE, arguments.num_workers) as validation,
    ):
        if checkpoint_path.exists():
            checkpoint = torch.load(checkpoint_path)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            training.load_state_dict(checkpoint["loader"])
            step = checkpoint["step"]
        for epoch in range(training.epoch, NUM_EPOCHS):
            for batch in training:
                losses = model.losses(model(batch["cameras"]["image"]), batch)
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
                step += 1
                log.write_step(step, batch, losses)
                if step % STEPS_BETWEEN_CHECKPOINTS == 0:
                    checkpoint = {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": training.state_dict(),
                        "step": step,
                    }
                    save(checkpoint_path, checkpoint)
            for batch in validation:
                log.write_evaluation(epoch, batch)


if __name__ == "__main__":
    main()
