"""What each rank does in `test_distributed.py`. `torchrun` starts it, or `support.ranks`::

torchrun --nproc-per-node=2 distributed_run.py FOLDER
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from support.loaders import LENGTHS, by_sampler, make_loader

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler


def loader_of(shard: Any, batch_size: int = 2) -> DataLoader:
    return make_loader(
        by_sampler(StreamingSequenceSampler(LENGTHS, seed=2)), batch_size, shard=shard, num_workers=1
    )


def positions(batches: Iterable[Any]) -> list[dict[str, list[Any]]]:
    return [{name: values.tolist() for name, values in batch["position"].items()} for batch in batches]


def main(folder: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    with loader_of("auto") as loader:
        report: dict[str, Any] = {"shard": (loader.shard.shard_id, loader.shard.num_shards, loader.shard.source)}
        report |= {"positions": [], "states": []}
        for batch in loader:
            report["positions"] += positions([batch])
            report["states"].append(loader.state_dict())
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
    main(Path(sys.argv[1]))
