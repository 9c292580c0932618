"""Groups of ranks that load the same samples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist
from support.loaders import make_loader
from support.providers import IndexProvider
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler
from accvlab.dali_pipeline_framework.sources import detect_shard
from accvlab.dali_pipeline_framework.sources.shards import Shard

AsRank = Callable[[int, int], None]


@pytest.fixture
def as_rank() -> Iterator[AsRank]:
    """Makes this process one of several ranks, which do not communicate."""

    def become(rank: int, num_ranks: int) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=num_ranks)

    yield become
    if dist.is_initialized():
        dist.destroy_process_group()


def test_peers_get_the_same_samples_and_all_together_each_once(as_rank: AsRank) -> None:
    delivered = []
    for rank in range(4):
        as_rank(rank, 4)
        of_data = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["dp"]
        source = SamplerInputCallable(IndexProvider(16), ShuffledSampler(16, seed=3))
        with make_loader(source, 4, shard=(of_data.get_local_rank(), of_data.size())) as loader:
            delivered.append([index for batch in loader for index in batch["index"].tolist()])
    assert delivered[0] == delivered[1]
    assert delivered[2] == delivered[3]
    assert sorted(delivered[0] + delivered[2]) == list(range(16))


def test_parallel_groups_of_accelerate(as_rank: AsRank, monkeypatch: pytest.MonkeyPatch) -> None:
    state_module = pytest.importorskip("accelerate.state")
    parallelism = pytest.importorskip("accelerate.parallelism_config")
    for name in [*os.environ]:
        if name.startswith(("PARALLELISM_CONFIG_", "ACCELERATE_")):
            monkeypatch.delenv(name)
    for sizes, num_peers in (
        ({"dp_shard_size": 2, "tp_size": 2}, 2),
        ({"dp_replicate_size": 4}, 1),
        ({"dp_shard_size": 2, "cp_size": 2}, 2),
        ({"tp_size": 4}, 4),
    ):
        config = parallelism.ParallelismConfig(**sizes)
        for rank in range(4):
            as_rank(rank, 4)
            process = {"process_index": rank, "num_processes": 4}
            monkeypatch.setattr(state_module.PartialState, "_shared_state", process)
            shared = {**process, "parallelism_config": config}
            monkeypatch.setattr(state_module.AcceleratorState, "_shared_state", shared)
            assert detect_shard() == detect_shard("accelerate")
            assert detect_shard() == Shard(rank // num_peers, 4 // num_peers)
