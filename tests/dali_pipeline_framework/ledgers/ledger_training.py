"""A rank of a training that is killed and started again; run by `torchrun`, or as a plain process.

Usage: ledger_training.py FOLDER KILL_AT, with RANK and WORLD_SIZE in the environment. It goes on from the
checkpoint in the folder, saves one behind every third batch, and kills itself behind the batch KILL_AT of this run
(-1: never).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.loader import load_state, save_state

NUM_SAMPLES = 203
NUM_EPOCHS = 2
TOTAL_BATCH_SIZE = 8


def train(folder: Path, kill_at: int) -> None:
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_launched = "TORCHELASTIC_RUN_ID" in os.environ
    if is_launched:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
    checkpoint = folder / "loader.json"
    with DataLoader(
        IndexProvider(NUM_SAMPLES),
        TOTAL_BATCH_SIZE // num_ranks,
        shuffle=True,
        last_batch="pad",
        num_workers=1,
        start_method="fork",
        shard="auto" if is_launched else (rank, num_ranks),
        ledger=folder / "ledger",
        output_type="numpy",
    ) as loader:
        load_state(loader, checkpoint)
        step = 0
        for epoch in range(loader.epoch, NUM_EPOCHS):
            for _ in loader:
                if is_launched:
                    torch.distributed.barrier()
                if rank == 0 and step % 3 == 0:
                    save_state(loader, checkpoint)
                if step == kill_at:
                    if is_launched:
                        torch.distributed.barrier()
                    if rank == num_ranks - 1:
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(60)  # until the launcher ends it
                step += 1
            assert loader.epoch == epoch + 1
        if rank == 0:
            save_state(loader, checkpoint)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
