"""A rank of a training that `torchrun` restarts, see `test_restarts.py`::

torchrun --nproc-per-node=2 --max-restarts=2 restarted_training.py FOLDER

Ranks have a store, and no connection: in some versions of PyTorch, Gloo connects to addresses of an earlier start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401  # which registers the group without connections
from support.loaders import by_sampler, make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.loader import load_state, save_state
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler

NUM_SAMPLES, BATCH_SIZE = 64, 2
KILLED_BEHIND = (5, 9)  # batches of the whole epoch, in the first starts


def main(folder: Path) -> None:
    store, rank, num_ranks = next(dist.rendezvous("env://"))
    dist.init_process_group("fake", store=store, rank=rank, world_size=num_ranks)
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    state, log = folder / "loader.json", folder / f"{rank}.{start}.jsonl"
    source = by_sampler(ShuffledSampler(NUM_SAMPLES, seed=1), IndexProvider(NUM_SAMPLES), None)
    with make_loader(source, BATCH_SIZE, shard="auto") as loader, log.open("a") as lines:
        load_state(loader, state)
        store.set(f"{start}/{rank}", "has loaded it")
        store.wait([f"{start}/{other}" for other in range(num_ranks)])
        for batch in loader:
            position = loader.state_dict()["batch"]
            print(json.dumps([position, batch["index"].tolist()]), file=lines, flush=True)
            if rank == 0:
                save_state(loader, state)
            if start < len(KILLED_BEHIND) and position == KILLED_BEHIND[start]:
                while rank == 0 or not state.exists() or json.loads(state.read_text())["batch"] < position:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
