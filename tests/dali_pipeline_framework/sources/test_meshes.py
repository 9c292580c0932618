"""Shards by meshes: only data-parallel coordinates count, peers of other groups get the same samples."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest
import torch.distributed as dist
from support.loaders import make_loader
from support.providers import IndexProvider
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler
from accvlab.dali_pipeline_framework.sources import detect_shard
from accvlab.dali_pipeline_framework.sources.shards import Shard, find_shard

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


# Shape and names of a mesh; the shard of each rank; the number of shards.
MESHES = {
    "dp": ((4,), ("dp",), [0, 1, 2, 3], 4),
    "tp": ((4,), ("tp",), [0, 0, 0, 0], 1),
    "dp, tp": ((2, 2), ("dp", "tp"), [0, 0, 1, 1], 2),
    "pp, dp": ((2, 2), ("pp", "dp"), [0, 1, 0, 1], 2),
    "hsdp": ((2, 2), ("dp_replicate", "dp_shard"), [0, 1, 2, 3], 4),
    "replicate, shard": ((2, 2), ("replicate", "shard"), [0, 1, 2, 3], 4),
    "upper case": ((2, 2), ("DP", "CP"), [0, 0, 1, 1], 2),
    "pp, dp, tp": ((2, 2, 2), ("pp", "dp", "tp"), [0, 0, 1, 1, 0, 0, 1, 1], 2),
    "dp, cp, fsdp": ((2, 2, 2), ("dp", "cp", "fsdp"), [0, 1, 0, 1, 2, 3, 2, 3], 4),
}


@pytest.mark.parametrize("name", MESHES)
def test_only_data_parallel_coordinates_count(name: str, as_rank: AsRank) -> None:
    shape, names, shards, num_shards = MESHES[name]
    found = []
    for rank in range(len(shards)):
        as_rank(rank, len(shards))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        shard = detect_shard(mesh)
        assert (shard, shard.source) == (find_shard(mesh, "shard"), "mesh")
        found.append((shard.shard_id, shard.num_shards))
    assert found == [(shard, num_shards) for shard in shards]


def test_a_part_of_a_mesh_is_a_mesh(as_rank: AsRank) -> None:
    found = []
    for rank in range(8):
        as_rank(rank, 8)
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "rows", "tp"))
        parts = [mesh["dp"], mesh["dp", "tp"], mesh["tp"]]
        found.append([detect_shard(part) for part in parts])
    whole = Shard(0, 1)
    assert found == [[Shard(rank // 4, 2), Shard(rank // 4, 2), whole] for rank in range(8)]


def test_peers_get_the_same_samples_and_all_together_each_once(as_rank: AsRank) -> None:
    delivered = []
    for rank in range(4):
        as_rank(rank, 4)
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        source = SamplerInputCallable(IndexProvider(16), ShuffledSampler(16, seed=3))
        with make_loader(source, 4, shard=mesh) as loader:
            delivered.append([index for batch in loader for index in batch["index"].tolist()])
    assert delivered[0] == delivered[1]
    assert delivered[2] == delivered[3]
    assert sorted(delivered[0] + delivered[2]) == list(range(16))


def test_names_can_be_told(as_rank: AsRank) -> None:
    as_rank(3, 4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "tp"))
    unnamed = init_device_mesh("cpu", (2, 2))
    source = SamplerInputCallable(IndexProvider(16), ShuffledSampler(16))
    assert detect_shard(mesh, data_parallel=["rows"]) == Shard(1, 2)
    assert detect_shard(mesh, data_parallel=["rows", "tp"]) == Shard(3, 4)  # told is told
    assert detect_shard(mesh, data_parallel="tp") == Shard(1, 2)
    assert detect_shard(mesh, data_parallel=[]) == Shard(0, 1)
    for call, message in (
        (
            lambda: detect_shard(mesh),
            r"are \['rows', 'tp'\], and whether ranks along \['rows'\] load other samples",
        ),
        (lambda: make_loader(source, 2, shard=mesh), r"shard=detect_shard\(mesh, data_parallel=\[...\]\)"),
        (lambda: detect_shard(unnamed), r"The 2 dimension\(s\) of the mesh have no names.*e.g. mesh_dim_names="),
        (lambda: detect_shard(mesh, data_parallel=["dp"]), r"has \['dp'\], but .* are \['rows', 'tp'\]"),
        (
            lambda: detect_shard("auto", data_parallel=["dp"]),
            r"names dimensions of a mesh, but the source is 'auto'",
        ),
        (lambda: detect_shard(object()), r"`source` must be"),
    ):
        with pytest.raises(SettingError, match=message):
            call()


def test_a_rank_outside_of_the_mesh_has_no_part(as_rank: AsRank) -> None:
    as_rank(3, 4)
    mesh = dist.device_mesh.DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",), _init_backend=False)
    with pytest.raises(SettingError, match=r"This process, 3, is not in the mesh.*DeviceMesh"):
        detect_shard(mesh)


def test_the_joint_dimensions_of_frameworks_ask_for_names(as_rank: AsRank) -> None:
    as_rank(1, 4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "cp"))
    joint = mesh["dp_shard", "cp"]._flatten("dp_shard_cp")
    with pytest.raises(SettingError, match=r"whether ranks along \['dp_shard_cp'\] load other samples"):
        detect_shard(joint)
    assert detect_shard(mesh["dp_shard"]) == Shard(0, 2)


# --- Accelerate's own classes -----------------------------------------------------------------------------


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
            config.device_mesh = None
            mesh = config.build_device_mesh("cpu")
            assert detect_shard() == detect_shard("accelerate") == detect_shard(mesh)
            assert detect_shard() == Shard(rank // num_peers, 4 // num_peers)


# --- meshes of JAX ----------------------------------------------------------------------------------------


@attrs.frozen
class Device:
    """Stands for a device of JAX."""

    process_index: int
    client: Any


@attrs.frozen
class FakeMesh:
    """Stands for `jax.sharding.Mesh`."""

    devices: Any
    axis_names: tuple[str, ...]


class Client:
    """Stands for the backend of a process."""

    def __init__(self, process: int) -> None:
        self._process = process

    def process_index(self) -> int:
        return self._process


# Which process has the device at each place; names; per process its shard, or None.
JAX_MESHES = {
    "one device each": ([[0], [1], [2]], ("data", "model"), [0, 1, 2]),
    "rows of devices": ([[0, 0], [0, 0], [1, 1], [1, 1]], ("data", "model"), [0, 1]),
    "model over processes": ([[0, 1], [2, 3]], ("data", "model"), [0, 0, 1, 1]),
    "batch last": ([[0, 1], [0, 1]], ("model", "batch"), [0, 1]),
    "not in the order of processes": ([[1], [0]], ("data", "model"), [1, 0]),
    "all the same": ([[0, 1]], ("data", "model"), [0, 0]),
}


@pytest.mark.parametrize("name", JAX_MESHES)
def test_a_process_gets_what_its_devices_need(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax.sharding", type(sys)("jax.sharding"))
    monkeypatch.setattr(sys.modules["jax.sharding"], "Mesh", FakeMesh, raising=False)
    processes, names, shards = JAX_MESHES[name]
    found = []
    for process in range(len(shards)):
        client = Client(process)
        devices = np.vectorize(lambda each, client=client: Device(each, client), otypes=[object])(processes)
        found.append(detect_shard(FakeMesh(devices, names)))
    assert found == [Shard(shard, max(shards) + 1) for shard in shards]


@pytest.mark.parametrize(
    ("processes", "process", "message"),
    [
        ([[0], [0], [1]], 0, "do not have equal parts of the data"),
        ([[0, 1], [1, 1]], 0, "or parts that overlap"),
        ([[0], [1]], 2, "This process, 2, is not in the mesh"),
    ],
)
def test_processes_with_unequal_parts(
    processes: Any, process: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jax.sharding", type(sys)("jax.sharding"))
    monkeypatch.setattr(sys.modules["jax.sharding"], "Mesh", FakeMesh, raising=False)
    client = Client(process)
    devices = np.vectorize(lambda each: Device(each, client), otypes=[object])(processes)
    with pytest.raises(SettingError, match=message):
        detect_shard(FakeMesh(devices, ("data", "model")))


def test_a_mesh_of_jax_itself() -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.make_mesh((1, 1), ("data", "model"))
    assert detect_shard(mesh) == find_shard(mesh, "shard") == Shard(0, 1)
    assert detect_shard("jax") == Shard(0, 1)
    with pytest.raises(SettingError, match=r"along \['x'\]"):
        detect_shard(jax.make_mesh((1,), ("x",)))
