"""Runs with a Ray cluster of this process, by name; names come by the standard input, results go to a file.

Called with the folder of the cluster, the file of results, and whether it is to have several nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

if (
    __name__ == "__main__" and os.fork()
):  # what Ray starts is then not below the process of the tests, which looks for workers left there
    os._exit(0)

import ray
from ray.cluster_utils import Cluster
from ray_providers import TimedProvider
from support.loaders import ORDERS, frozen, json_copy, loop

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.cluster import RayPool, RayWorkers

RUNS: dict[str, Callable[..., Any]] = {}
STORE_BYTES = 200 * 2**20
MOST_S = 900


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    RUNS[function.__name__] = function
    return function


def make(num_samples: int = 120, seconds: float = 0.01, **arguments: Any) -> DataLoader:
    settings: dict[str, Any] = {"shuffle": True, "output_type": "numpy", "num_threads": 1}
    return DataLoader(TimedProvider(num_samples, seconds), 4, **settings | arguments)


def local(**arguments: Any) -> list[Any]:
    with make(num_workers=0, seconds=0.0, **arguments) as loader:
        return loop(loader)


def timed(loader: DataLoader, act: Callable[[int], None] = lambda step: None) -> tuple[list[Any], float]:
    """The batches of a loop, and the longest time to wait for one after the first."""
    batches, longest, last = [], 0.0, None
    for step, batch in enumerate(loader):
        now = time.monotonic()
        longest = max(longest, 0.0 if last is None else now - last)
        batches.append(frozen(batch))
        act(step)
        last = time.monotonic()
    return batches, longest


@contextlib.contextmanager
def a_pool(num_actors: int, **settings: Any) -> Iterator[RayPool]:
    pool = RayPool(RayWorkers(num_actors=num_actors, num_cpus=0.1, **settings))
    try:
        yield pool
    finally:
        pool.close()


@run
def same_stream_in_all_orders(num_actors: int) -> list[str]:
    """Orders whose stream is another one."""
    different = []
    with a_pool(num_actors) as pool:
        for name, order in ORDERS.items():
            streams = []
            for arguments in ({}, {"num_workers": None, "workers": RayWorkers(pool=pool)}):
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

    def act(step: int) -> None:
        if step % every == every // 2:
            ready = [actor.pid for actor in loader.report().actors if actor.pid]
            if ready:
                pid = ready[len(killed) % len(ready)]
                killed.append(pid)
                os.kill(pid, how)

    with make(num_samples=num_samples, workers=RayWorkers(num_actors=num_actors, num_cpus=0.1)) as loader:
        got, longest = timed(loader, act)
        replaced = sum(actor.num_replaced for actor in loader.report().actors)
    return {"same": got == want, "longest": longest, "killed": len(killed), "replaced": replaced}


@run
def state_from_here_to_there_and_back() -> bool:
    want = local()
    got: list[Any] = []
    state = None
    with a_pool(2) as pool:
        for workers in (None, RayWorkers(pool=pool), None):
            with make(seconds=0.0, num_workers=None if workers else 0, workers=workers) as loader:
                if state is not None:
                    loader.load_state_dict(json_copy(state))
                got += loop(loader, 10)
                state = loader.state_dict()
    return got == want


def main() -> None:
    folder, results = sys.argv[1:]
    signal.alarm(MOST_S)  # Ray ends what is left of it
    head = {"num_cpus": 4, "object_store_memory": STORE_BYTES, "include_dashboard": False, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, logging_level="WARNING")
    with open(results, "a") as file:
        for line in sys.stdin:
            name, arguments = json.loads(line)
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
