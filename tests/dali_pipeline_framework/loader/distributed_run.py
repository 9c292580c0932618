"""What each rank does in `test_distributed.py`. `torchrun` starts it, or `support.ranks`::

torchrun --nproc-per-node=2 distributed_run.py FOLDER PART
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from support.loaders import LENGTHS, by_sampler, make_loader
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler, StreamingSequenceSampler
from accvlab.dali_pipeline_framework.sources import Shard, detect_shard

# Per order: what makes the input for the batch size of a rank, and the total batch size.
DISTRIBUTED: dict[str, Any] = {
    "shuffled": (lambda size: by_sampler(ShuffledSampler(22, seed=1, last_batch="pad")), 6),
    "partial": (lambda size: by_sampler(ShuffledSampler(22, seed=1, last_batch="partial")), 6),
    "streams": (lambda size: by_sampler(StreamingSequenceSampler(LENGTHS, seed=2)), 6),
    "resized streams": (lambda size: by_sampler(StreamingSequenceSampler(LENGTHS, seed=2)), None),
    "published": (
        lambda size, *shard: ShuffledShardedInputCallable(
            IndexProvider(22), size, *shard, shuffle=True, last_batch="pad", context_name="position"
        ),
        6,
    ),
}


def loader_of(name: str, shard: Any, num_ranks: int) -> Any:
    make, total = DISTRIBUTED[name]
    size = 1 if total is None else total // num_ranks
    num_workers = 1 if name == "streams" or "ALL_HAVE_WORKERS" in os.environ else 0
    if name == "published":
        found = detect_shard(shard) if shard else Shard(0, 1)
        return make_loader(make(size, found.shard_id, found.num_shards), num_workers=num_workers)
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


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
    warnings.filterwarnings("ignore", "`(py_)?num_workers=", UserWarning)
    main(Path(sys.argv[1]), sys.argv[2])
