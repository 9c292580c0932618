"""Runs with a Ray cluster of this process, by name; names come by the standard input, results go to a file.

Called with the folder of the cluster, the file of results, and whether it is to have several nodes.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

if (
    __name__ == "__main__" and os.fork()
):  # what Ray starts is then not below the process of the tests, which looks for workers left there
    os._exit(0)

import psutil
import ray
from ray.cluster_utils import Cluster
from ray_providers import DeadlyProvider, HeavyProvider, SignedProvider, TimedProvider
from support.inputs import NumberIterable
from support.loaders import ORDERS, frozen, json_copy, loop, pipeline_of
from support.providers import FaultyProvider, UnpicklableProvider

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, load_state, save_state
from accvlab.dali_pipeline_framework.cluster import RayWorkers
from accvlab.dali_pipeline_framework.errors import WorkerDiedError, WorkerStartError
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler

RUNS: dict[str, Callable[..., Any]] = {}
SOON_S = 20.0
STORE_BYTES = 90 * 2**20
MOST_S = 900
CLUSTER: Any = None
SAID: list[str] = []  # by the pools, since the run began


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    RUNS[function.__name__] = function
    return function


class _Listener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        SAID.append(record.getMessage())


def num_lost() -> int:
    return sum(" ended unexpectedly: actor " in text for text in SAID)


def actors(**options: Any) -> RayWorkers:
    return RayWorkers(**{"num_actors": 2, "num_cpus": 0.1, **options})


def actor_pids() -> list[int]:
    """The processes of actors that run in the cluster."""
    found = []
    for process in psutil.process_iter():
        try:
            is_actor = "".join(process.cmdline()[:1]).startswith("ray::LoadingActor")
            if is_actor and process.environ().get("RAY_TMPDIR", "") == os.environ["RAY_TMPDIR"]:
                found.append(process.pid)
        except psutil.Error:
            continue
    return sorted(found)


def await_actors(count: int) -> list[int]:
    end = time.monotonic() + 60
    while len(pids := actor_pids()) != count:
        assert time.monotonic() < end, pids
        time.sleep(0.1)
    return pids


def make(num_samples: int = 120, seconds: float = 0.01, **arguments: Any) -> DataLoader:
    settings: dict[str, Any] = {"shuffle": True, "output_type": "numpy", "num_threads": 1}
    return DataLoader(TimedProvider(num_samples, seconds), 4, **settings | arguments)


def local(**arguments: Any) -> list[Any]:
    with make(num_workers=0, seconds=0.0, **arguments) as loader:
        return loop(loader)


@run
def same_stream_in_orders(num_actors: int, names: list[str] | None) -> list[str]:
    """Orders, of those of the names or of all, whose stream is another one."""
    different = []
    for name in names or ORDERS:
        order, streams = ORDERS[name], []
        for arguments in ({}, {"num_workers": None, "workers": actors(num_actors=num_actors)}):
            with order.loader(**arguments) as loader:
                streams.append([loop(loader, order.num_max) for _ in range(order.num_loops)])
        if streams[0] != streams[1]:
            different.append(name)
    return different


@run
def killed_again_and_again(num_actors: int, every: int, how: int, num_samples: int = 480) -> dict[str, Any]:
    """An actor gets a signal each so many steps, another one each time."""
    want = local(num_samples=num_samples)
    killed = []

    faults = FaultPolicy(blocked_after=2.0)
    workers = actors(num_actors=num_actors)
    with make(num_samples=num_samples, workers=workers, faults=faults) as loader:
        got = []
        for step, batch in enumerate(loader):
            got.append(frozen(batch))
            if step % every == every // 2 and (pids := [pid for pid in actor_pids() if pid not in killed]):
                killed.append(pids[len(killed) % len(pids)])
                os.kill(killed[-1], how)
    return {"same": got == want, "killed": len(killed), "lost": num_lost()}


@run
def state_from_here_to_there_and_back() -> bool:
    want = local()
    got: list[Any] = []
    state = None
    for workers in (None, actors(), None):
        with make(seconds=0.0, num_workers=None if workers else 0, workers=workers) as loader:
            if state is not None:
                loader.load_state_dict(json_copy(state))
            got += loop(loader, 10)
            state = loader.state_dict()
    return got == want


def refusal(source: Any = None, **settings: Any) -> str:
    """What is said where a loader cannot start, or deliver its first batch; and how long that took."""
    workers = actors(**{"num_actors": 1, **settings})
    arguments: dict[str, Any] = {"output_type": "numpy", "num_threads": 1, "workers": workers}
    began = time.monotonic()
    try:
        with DataLoader(source or TimedProvider(8, 0.0), 4, **arguments) as loader:
            next(iter(loader))
    except Exception as error:
        seconds = time.monotonic() - began
        return f"{type(error).__name__} {'soon' if seconds < SOON_S else seconds}: {error}"
    return "nothing"


@run
def wrong_clusters() -> dict[str, str]:
    held = ray.remote(TimedProvider).options(num_cpus=4).remote(1, 0.0)
    ray.get(held.get_number_of_samples.remote())
    messages = {
        "another address": refusal(address="127.0.0.1:1"),
        "another name": refusal(address=f"localhost:{CLUSTER.address.rpartition(':')[2]}", num_cpus=0),
        "sent too late": refusal(runtime_env={"py_modules": ["a_folder"]}),
        "no environment": refusal(runtime_env={"env_vars": 3}),
        "too few": refusal(num_cpus=64),
        "all held": refusal(num_cpus=1, start_within_s=3),
    }
    ray.kill(held)
    return messages


@run
def what_cannot_be_sent(folder: str) -> dict[str, str]:
    (Path(folder) / "only_here.py").write_text(
        "from support.providers import IndexProvider\n\n\nclass Provider(IndexProvider):\n    pass\n"
    )
    sys.path.append(folder)
    provider = importlib.import_module("only_here").Provider()
    return {
        "unpicklable": refusal(UnpicklableProvider()),
        "lacking": refusal(provider),
        "given": refusal(provider, runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}),
        "iterable": refusal(NumberIterable(10, 4)),
    }


@run
def other_versions(folder: str) -> str:
    """Where actors find another version of a library first."""
    info = Path(folder) / "simplejpeg-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: simplejpeg\nVersion: 0.0.1\n")
    return refusal(runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([folder, *sys.path])}})


@run
def no_room_in_the_store() -> dict[str, Any]:
    messages: dict[str, Any] = {
        "batch": refusal(TimedProvider(8, 0.0, (STORE_BYTES // 12,))),  # of four times 4 bytes each
        "input": refusal(HeavyProvider(STORE_BYTES + 1)),
    }
    filled = [ray.put(bytes(STORE_BYTES // 5)) for _ in range(4)]
    provider = TimedProvider(40, 0.0, (2**17,))
    with DataLoader(provider, 4, output_type="numpy", workers=actors()) as loader:
        messages["others"] = [batch["array"][:, -1].tolist() for batch in loader]
    del filled
    return messages


def bytes_in_store() -> float:
    """What the object store must keep, by the cluster's own account."""
    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources()[name])


@run
def large_batches(num_mb: int, batches_ahead: int) -> list[dict[str, float]]:
    """Where more are requested ahead than the store holds, as long as nobody knows how large they are."""
    found = []
    for _ in range(3):
        ahead, in_store, before = [], [], bytes_in_store()
        provider = TimedProvider(200, 0.0, (num_mb * 2**16,))
        with DataLoader(provider, 4, output_type="numpy", workers=actors(batches_ahead=batches_ahead)) as loader:
            for _ in loader:
                time.sleep(0.02)
                in_store.append(bytes_in_store() - before)
                ahead.append(pipeline_of(loader).fed.pool.num_loaded)
        found.append({"in store": max(in_store), "ahead": max(ahead[len(ahead) // 2 :]), "lost": num_lost()})
    return found


@run
def faults(folder: str) -> dict[str, Any]:
    """What is raised for a bad sample; and stream, failed samples and ledger where another one replaces it."""
    provider = FaultyProvider("value_error", bad_sample=2, num_samples=16)
    found: dict[str, Any] = {"raised": refusal(provider), "host": socket.gethostname()}
    for name, how in (("here", {"num_workers": 0}), ("there", {"workers": actors()})):
        ledger = Path(folder) / name
        order = StreamingSequenceSampler([5, 3, 8], seed=1)
        with DataLoader(
            provider, 4, sampler=order, output_type="numpy", faults="replace", ledger=ledger, **how
        ) as loader:
            stream = [frozen(batch) for batch in loader]
            failed = [(each.sample_index, each.batch, each.slot, each.reason) for each in loader.failed_samples]
        written = [json.loads(line) for path in ledger.iterdir() for line in path.read_text().splitlines()]
        samples = [(line["samples"], line["replaced"]) for line in written]
        found[name] = [repr(stream), failed, samples]
    return found


@run
def a_sample_that_ends_actors(blocks: bool, samples: str, restarts: int | None) -> dict[str, Any]:
    """Indices of the samples that were delivered, what was raised in between, and which have failed."""
    policy = FaultPolicy(
        samples=samples, restarts=restarts, blocked_after=4.0 if blocks else None, stacks_after=3.0
    )
    found: dict[str, Any] = {"indices": [], "raised": [], "named": []}
    settings: dict[str, Any] = {"shuffle": False, "output_type": "numpy", "faults": policy}
    with DataLoader(DeadlyProvider(80, 9, blocks), 4, workers=actors(), **settings) as loader:
        batches = iter(loader)
        while len(found["raised"]) < 9:
            try:
                found["indices"].append(next(batches)["index"].tolist())
            except StopIteration:
                break
            except WorkerDiedError as error:
                found["raised"].append(str(error))
                found["named"].append([*error.sample_indices])
        found["failed"] = [(each.sample_index, each.batch, each.slot) for each in loader.failed_samples]
    found["stacks"] = [text for text in SAID if text.startswith("No batch has come for ")]
    return found


@run
def a_machine_joins_and_leaves(num_samples: int) -> dict[str, Any]:
    """Two of four actors wait for room that another machine brings, and that goes again."""
    want = local(num_samples=num_samples)
    last = num_samples // 8  # batch before it goes
    got, nodes, pids = [], [], []
    loaded_by: list[list[int]] = []
    settings: dict[str, Any] = {"shuffle": True, "output_type": "numpy", "num_threads": 1}
    settings["workers"] = actors(num_actors=4, num_cpus=2)
    with DataLoader(SignedProvider(num_samples, 0.01), 4, **settings) as loader:
        for step, batch in enumerate(loader):
            loaded_by.append(batch.pop("loaded_by").flatten().tolist())
            got.append(frozen(batch))
            if step == 5:
                pids.append(await_actors(2))
                nodes.append(CLUSTER.add_node(num_cpus=4, object_store_memory=STORE_BYTES))
                pids.append(await_actors(4))
            if step == last:
                CLUSTER.remove_node(nodes[0], allow_graceful=False)
                pids.append(await_actors(2))
    parts = loaded_by[:6], loaded_by[6 : last + 1], loaded_by[last + 1 + 4 * 4 :]  # four per actor were ahead
    used = [sorted(set(itertools.chain.from_iterable(part))) for part in parts]
    return {"same": got == want, "pids": pids, "used": used, "lost": num_lost()}


@run
def a_connection_that_is_ended() -> dict[str, Any]:
    """What is said at the batches after it; and whether the loop goes on once there is another connection."""
    want, got, said = local(), [], []
    try:
        with make(workers=actors(address=CLUSTER.address)) as loader:
            batches = iter(loader)
            got += [frozen(next(batches)) for _ in range(3)]
            ray.shutdown()
            while len(got) < len(want) and len(said) < 3:
                began = time.monotonic()
                try:
                    got.append(frozen(next(batches)))
                except WorkerStartError as error:
                    said.append([len(got), time.monotonic() - began, ray.is_initialized(), str(error)])
        with make(workers=actors(address=CLUSTER.address)) as loader:
            next(iter(loader))
            ray.shutdown()
        is_connected = ray.is_initialized()
    finally:
        if not ray.is_initialized():
            ray.init(address=CLUSTER.address, logging_level="WARNING")
    return {"same": got == want, "said": said, "connected": is_connected, "lost": num_lost()}


def train_with_state(config: dict[str, Any]) -> None:
    """What a worker of Ray Train runs: batches from where a checkpoint was made; it writes down their samples."""
    import ray.train

    context = ray.train.get_context()
    shard = (context.get_world_rank(), context.get_world_size())
    workers = actors(num_actors=1)
    checkpoint = config["checkpoint"]
    with make(num_samples=64, seconds=0.0, shard=shard, workers=workers) as loader:
        if checkpoint:
            with checkpoint.as_directory() as folder:
                load_state(loader, Path(folder) / "loader.json")
        for batch in loader:
            with (Path(config["folder"]) / f"samples-{shard[0]}").open("a") as file:
                file.write(json.dumps(batch["index"].tolist()) + "\n")
            if loader.state_dict()["batch"] == config["stop_at"]:
                break
        with tempfile.TemporaryDirectory() as folder:
            save_state(loader, Path(folder) / "loader.json")
            ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder))


@run
def ray_train(folder: str) -> dict[str, Any]:
    """Two workers of Ray Train stop in an epoch, and two others finish it."""
    from ray.train import Checkpoint, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    checkpoint: Checkpoint | None = None
    for stop_at in (3, None):
        trainer = TorchTrainer(
            train_with_state,
            train_loop_config={"folder": folder, "stop_at": stop_at, "checkpoint": checkpoint},
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=RunConfig(storage_path=folder),
        )
        checkpoint = trainer.fit().checkpoint
    want, got = [], []
    for rank in range(2):
        with make(num_samples=64, seconds=0.0, shard=(rank, 2), num_workers=0) as loader:
            want.append([batch["index"].tolist() for batch in loader])
        got.append([json.loads(line) for line in (Path(folder) / f"samples-{rank}").read_text().splitlines()])
    return {"same": got == want, "batches": len(got[0])}


def main() -> None:
    folder, results = sys.argv[1:]
    signal.alarm(MOST_S)  # Ray ends what is left of it
    head = {"num_cpus": 4, "object_store_memory": STORE_BYTES, "include_dashboard": False, "temp_dir": folder}
    global CLUSTER
    CLUSTER = cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, logging_level="WARNING")
    logging.getLogger("accvlab").addHandler(_Listener())
    with open(results, "a") as file:
        for line in sys.stdin:
            name, arguments = json.loads(line)
            SAID.clear()
            try:
                answer = {"result": RUNS[name](**arguments)}
            except BaseException:
                answer = {"error": traceback.format_exc()}
            file.write(json.dumps({"name": name, **answer}) + "\n")
            file.flush()
    ray.shutdown()
    cluster.shutdown()


# What Ray starts is then not below the process of the tests, which looks for workers left there.
if __name__ == "__main__" and os.fork():
    main()
