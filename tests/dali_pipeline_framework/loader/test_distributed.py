"""Loaders on real ranks, which gloo connects: each delivers what a loader of its shard does, with one state."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import torch.distributed as dist
from support.loaders import LENGTHS, by_sampler, make_loader
from support.ranks import run_ranks

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler


def loader_of(shard: Any, batch_size: int = 2) -> DataLoader:
    return make_loader(
        by_sampler(StreamingSequenceSampler(LENGTHS, seed=2)), batch_size, shard=shard, num_workers=1
    )


def positions(batches: Iterable[Any]) -> list[dict[str, list[Any]]]:
    return [{name: values.tolist() for name, values in batch["position"].items()} for batch in batches]


def report_of_rank() -> str:
    """What a rank delivers, and its states."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    with loader_of("auto") as loader:
        report: dict[str, Any] = {"shard": (loader.shard.shard_id, loader.shard.num_shards, loader.shard.source)}
        report |= {"positions": [], "states": []}
        for batch in loader:
            report["positions"] += positions([batch])
            report["states"].append(loader.state_dict())
    dist.destroy_process_group()
    return json.dumps(report)


def test_ranks_deliver_their_shards_and_have_the_same_state(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(f"from {__name__} import report_of_rank\nprint(report_of_rank())\n")
    ranks = [json.loads(report) for report in run_ranks(script, [], 2)]
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in (each.info["cmdline"] or [])]
    for number, rank in enumerate(ranks):
        assert rank["shard"] == [number, 2, "torch"]
        with loader_of((number, 2)) as loader:
            assert rank["positions"] == positions(loader)
    assert ranks[0]["states"] == ranks[1]["states"]
    ends = [(state["epoch"], state["batch"]) for state in ranks[0]["states"]]
    assert ends == [*((0, number) for number in range(1, len(ends))), (1, 0)]
    with loader_of(None, 4) as loader:  # another number of ranks finishes the epoch
        loader.load_state_dict(ranks[0]["states"][1])
        rest = [batch["sample_index"] for batch in positions(loader)]
    both = zip(*([batch["sample_index"] for batch in rank["positions"][2:]] for rank in ranks), strict=True)
    assert rest == [one + other for one, other in both]
