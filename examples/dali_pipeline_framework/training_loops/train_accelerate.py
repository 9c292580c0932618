"""A loop of Hugging Face Accelerate, one process per rank::

    accelerate launch --cpu --num-processes=2 train_accelerate.py

`save_state` saves the loader, which is registered for it, with the model.
"""

import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
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


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Write a checkpoint; its folder has this name only when it is complete."""
    accelerator.save_state(str(folder / "unfinished"))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        complete = folder / f"step_{step:06}"
        shutil.rmtree(complete, ignore_errors=True)
        (folder / "unfinished").rename(complete)
    accelerator.wait_for_everyone()


def main() -> None:
    """Train, from the last checkpoint if there is one."""
    arguments = parse_arguments()
    accelerator = Accelerator(cpu=True)
    log = StepLog(arguments.folder, accelerator.process_index, accelerator.num_processes)
    model = SteeringNet()
    model, optimizer = accelerator.prepare(model, SignDescent(model.parameters()))
    batch_size = TOTAL_BATCH_SIZE // accelerator.num_processes
    with (
        training_loader(batch_size, arguments.num_workers, shard="auto") as training,
        validation_loader(batch_size, arguments.num_workers, shard="auto") as validation,
    ):
        accelerator.register_for_checkpointing(training)
        step = 0
        checkpoints = sorted(arguments.folder.glob("step_*"))
        if checkpoints:
            accelerator.load_state(str(checkpoints[-1]))
            step = int(checkpoints[-1].name.removeprefix("step_"))
        for epoch in range(training.epoch, NUM_EPOCHS):
            for batch in training:
                losses = SteeringNet.losses(model(batch["cameras"]["image"]), batch)
                optimizer.zero_grad()
                accelerator.backward(losses.mean())
                optimizer.step()
                step += 1
                log.write_step(step, batch, losses)
                if step % STEPS_BETWEEN_CHECKPOINTS == 0:
                    save(accelerator, arguments.folder, step)
            errors = []
            for batch in validation:
                log.write_evaluation(epoch, batch)
                with torch.no_grad():
                    losses = SteeringNet.losses(model(batch["cameras"]["image"]), batch)
                losses, is_padding = accelerator.gather((losses, batch["context"]["is_padding"]))
                errors.append(losses[~is_padding])
            accelerator.print(f"epoch {epoch}: mean error {torch.cat(errors).mean():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
