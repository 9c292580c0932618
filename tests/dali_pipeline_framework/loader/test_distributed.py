"""Loaders on real ranks, which gloo connects: each delivers what a loader of its shard does, with one state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed_run import loader_of, positions
from support.ranks import run_ranks, torchrun

SCRIPT = Path(__file__).with_name("distributed_run.py")


# Both give ranks the same environment; each process that `torchrun` starts imports PyTorch, which takes seconds.
@pytest.mark.parametrize("start", [run_ranks, pytest.param(torchrun, marks=pytest.mark.wide)])
def test_ranks_deliver_their_shards_and_have_the_same_state(start: Any, tmp_path: Path) -> None:
    start(SCRIPT, [tmp_path], 2)
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in (each.info["cmdline"] or [])]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
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
