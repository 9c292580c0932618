"""What each rank does in `tests/loader/test_distributed.py`.

`torchrun` starts it, or, with numbers of ranks, it forks those of one part after the other, which saves each of
them seconds of imports::

    python distributed_run.py FOLDER PART
    python distributed_run.py FOLDER PART NUM_RANKS PORT [PART NUM_RANKS PORT ...]
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from accvlab.dali_pipeline_framework.inputs import (
    ShuffledSampler,
    ShuffledShardedInputCallable,
    StreamingSequenceSampler,
)
from support.loaders import LENGTHS, by_sampler, make_loader
from support.providers import IndexProvider

# Per order: what makes the input for the batch size of a rank, and the total batch size.
DISTRIBUTED: dict[str, Any] = {
    "shuffled": (lambda size: by_sampler(ShuffledSampler(22, seed=1, last_batch="pad")), 6),
    "partial": (lambda size: by_sampler(ShuffledSampler(22, seed=1, last_batch="partial")), 6),
    "streams": (lambda size: by_sampler(StreamingSequenceSampler(LENGTHS, seed=2)), 6),
    "resized streams": (lambda size: by_sampler(StreamingSequenceSampler(LENGTHS, seed=2)), None),
    "published": (
        lambda size: ShuffledShardedInputCallable(
            IndexProvider(22), size, shuffle=True, last_batch="pad", context_name="position"
        ),
        6,
    ),
}


def loader_of(name: str, shard: Any, num_ranks: int) -> Any:
    make, total = DISTRIBUTED[name]
    size = 1 if total is None else total // num_ranks
    num_workers = 1 if name == "streams" or "ALL_HAVE_WORKERS" in os.environ else 0
    return make_loader(make(size), size, shard=shard, num_workers=num_workers)


def deliver(loop: Iterator[Any], num_batches: int | None = None) -> list[dict[str, list[Any]]]:
    """The positions of the next batches, or of all that are left."""
    batches: list[dict[str, list[Any]]] = []
    while num_batches is None or len(batches) < num_batches:
        batch = next(loop, None)
        if batch is None:
            break
        batches.append({name: values.tolist() for name, values in batch["position"].items()})
    return batches


def gathered(value: Any) -> list[Any]:
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def main(folder: Path, part: str) -> None:
    """Continue where a state was left for this part, stop behind one batch, and go through an epoch besides."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    report: dict[str, Any] = {}
    for name in DISTRIBUTED:
        with loader_of(name, "auto", dist.get_world_size()) as loader:
            state_file = folder / f"{name}.json"
            begun = json.loads(state_file.read_text()) if state_file.exists() else None
            shard = (loader.shard.shard_id, loader.shard.num_shards, loader.shard.source)
            loader.set_epoch(3)
            whole, states = [], []
            for batch in loader:
                whole += deliver(iter([batch]))
                states.append(loader.state_dict())
            if begun is not None:
                loader.load_state_dict(begun)
            else:
                loader.set_epoch(0)
            before = deliver(iter(loader), 1)
            state = loader.state_dict()
        report[name] = {
            "shards": gathered(shard),
            "whole": gathered(whole),
            "states": gathered(states),
            "before": gathered(before),
            "stopped": gathered(state),
        }
        dist.barrier()  # all have read it
        if dist.get_rank() == 0:
            state_file.write_text(json.dumps(state))
    if dist.get_rank() == 0:
        (folder / f"{part}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


def fork_ranks(folder: Path, part: str, num_ranks: int, port: str) -> int:
    """Have children do it, with the environment that `torchrun` would give them; the worst of their exit codes."""
    ranks = []
    for rank in range(num_ranks):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            number, count = str(rank), str(num_ranks)
            os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            main(folder, part)
            sys.exit(0)
    return max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) != 0 for rank in ranks)


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
    given_folder, *given = sys.argv[1:]
    if given[1:]:
        gc.collect()
        gc.freeze()  # else each rank would look at what was imported, and so get a copy of it
        parts = zip(given[::3], map(int, given[1::3]), given[2::3], strict=True)
        sys.exit(max(fork_ranks(Path(given_folder), *each) for each in parts))
    main(Path(given_folder), *given)
