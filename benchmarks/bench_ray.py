# SPDX-License-Identifier: Apache-2.0
"""Loading by actors of a Ray cluster on this machine, next to worker processes.

- ``receiver``: actors that have their arrays already: gigabytes per second; processor time of the receiving
  process, with all its threads, per gigabyte; and that of all processes, with the actors and those of Ray. Next to
  it that of worker processes that load the same, and of DALI alone, which only copies an array of this process;
- ``end to end``: samples that take processor time, by as many worker processes as actors, in turns: samples per
  second, and processor time of all processes per sample;
- ``kinds``: real samples (`cluster_kinds`): processor time of a worker process for one, and bytes of it.

Each value is the median of several turns, with the least and the greatest one. It starts a cluster of its own,
whose object store is filled once before anything is measured: memory that is used for the first time costs five
times as much as memory that is used again.

    python benchmarks/bench_ray.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from cluster_kinds import write_kinds
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, SampleDataGroup
from accvlab.dali_pipeline_framework.cluster import RayWorkers

BATCH_SIZE = 8
NUM_ACTORS = 2
LEAST_RATIO = 0.9
RECEIVER_FIGURES = ("gb_per_s", "core_s_per_gb", "core_s_per_gb_of_all")
OTHER_FIGURES = ("gb_per_s_of_processes", "core_s_per_gb_with_processes", "core_s_per_gb_of_dali")
BOTH_FIGURES = ("samples_per_s", "core_s_per_sample_of_all")


class HeldProvider(DataProvider):
    """Delivers an array that it has already."""

    def __init__(self, num_samples: int, num_bytes: int) -> None:
        self.num_samples, self.num_bytes = num_samples, num_bytes
        self._array: Any = None

    def get_number_of_samples(self) -> int:
        return self.num_samples

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("image", types.DALIDataType.UINT8)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if self._array is None:
            self._array = np.zeros(self.num_bytes, np.uint8)
        sample = self.sample_data_structure
        sample["image"] = self._array
        return sample


class BusyProvider(HeldProvider):
    """Computes for a while first."""

    seconds = 0.045  # about as a rig of JPEGs

    def get_data(self, sample_index: int) -> SampleDataGroup:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return super().get_data(sample_index)


def _processor_s() -> dict[psutil.Process | None, float]:
    """Processor time of this process (None), and of each that it has started and that runs."""
    found: dict[psutil.Process | None, float] = {None: time.process_time()}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended just now
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _bytes_of(batch: Any) -> int:
    if isinstance(batch, Mapping):
        return sum(map(_bytes_of, batch.values()))
    return sum(map(_bytes_of, batch)) if isinstance(batch, list) else int(batch.nbytes)


def _race(provider: DataProvider, seconds: float, warm_bytes: float = 0.0, **settings: Any) -> dict[str, float]:
    """Load for a while, after a number of bytes and at least 5 batches."""
    with DataLoader(provider, BATCH_SIZE, output_type="numpy", num_threads=1, **settings) as loader:
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        batch_bytes = _bytes_of(next(batches))
        for _ in range(max(4, int(warm_bytes / batch_bytes))):
            next(batches)
        num_batches, began, cpu = 0, time.perf_counter(), _processor_s()
        while (spent_s := time.perf_counter() - began) < seconds or num_batches < 4:
            next(batches)
            num_batches += 1
        spent = {process: after - cpu.get(process, 0.0) for process, after in _processor_s().items()}
        own_s, all_s = spent[None], sum(spent.values())
    num_samples, gigabytes = num_batches * BATCH_SIZE, num_batches * batch_bytes * 1e-9
    return {
        "samples_per_s": num_samples / spent_s,
        "gb_per_s": gigabytes / spent_s,
        "core_s_per_gb": own_s / gigabytes,
        "core_s_per_gb_of_all": all_s / gigabytes,
        "core_s_per_sample_of_all": all_s / num_samples,
        "core_s_per_sample_of_others": (all_s - own_s) / num_samples,
        "bytes_per_sample": batch_bytes / BATCH_SIZE,
    }


def _dali_alone(batch_bytes: int, seconds: float) -> float:
    """Processor time of this process per gigabyte that DALI copies into a batch of its own."""
    batch = np.zeros((BATCH_SIZE, batch_bytes // BATCH_SIZE), np.uint8)
    pipeline = Pipeline(batch_size=BATCH_SIZE, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        pipeline.set_outputs(fn.external_source(lambda: batch, dtype=types.UINT8, ndim=1))
    pipeline.build()
    for _ in range(8):
        pipeline.run()
    num_batches, began, cpu_s = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        pipeline.run()[0].as_array()
        num_batches += 1
    return (time.process_time() - cpu_s) / (num_batches * batch_bytes * 1e-9)


def _summary(turns: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Median, least and greatest value of each figure."""
    figures: dict[str, dict[str, float]] = {}
    for name in turns[0]:
        values = [turn[name] for turn in turns]
        figures[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return figures


def measure_receiver(is_quick: bool, store_bytes: float) -> dict[str, Any]:
    """Batches of three sizes in turns, of actors and worker processes that have the arrays already."""
    sizes, seconds = ([0.3e6, 3e6], 0.2) if is_quick else ([3e6, 26e6, 100e6], 4.0)
    workers = RayWorkers(num_actors=NUM_ACTORS, num_cpus=1)
    providers = {f"{size / 1e6:g} MB": HeldProvider(10**9, int(size / BATCH_SIZE)) for size in sizes}
    _race([*providers.values()][-1], 0.0, 1.5 * store_bytes, workers=workers)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in providers}
    for _ in range(1 if is_quick else 5):
        for name, provider in providers.items():
            turn = _race(provider, seconds, 0.0 if is_quick else 1e9, workers=workers)
            here = _race(provider, seconds / 2, 0.0 if is_quick else 3e8, num_workers=NUM_ACTORS)
            alone = _dali_alone(BATCH_SIZE * provider.num_bytes, seconds / 4)
            others = here["gb_per_s"], here["core_s_per_gb"], alone
            figures = {figure: turn[figure] for figure in RECEIVER_FIGURES}
            turns[name].append(figures | dict(zip(OTHER_FIGURES, others, strict=True)))
    return {name: _summary(each) for name, each in turns.items()}


def measure_both(is_quick: bool) -> dict[str, Any]:
    """Samples that take processor time, by worker processes and actors in turns."""
    seconds = 0.2 if is_quick else 6.0
    busy = BusyProvider(10**9, int((3e5 if is_quick else 26e6) / BATCH_SIZE))
    busy.seconds = 0.005 if is_quick else busy.seconds
    kinds: dict[str, dict[str, Any]] = {
        "worker processes": {"num_workers": NUM_ACTORS},
        "actors": {"workers": RayWorkers(num_actors=NUM_ACTORS, num_cpus=1)},
    }
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for turn in range(1 if is_quick else 5):
        for name in [*kinds][:: 1 if turn % 2 else -1]:
            raced = _race(busy, seconds, **kinds[name])
            turns[name].append({figure: raced[figure] for figure in BOTH_FIGURES})
    here, there = turns.values()
    ratios = [
        {figure: mine[figure] / other[figure] for figure in BOTH_FIGURES}
        for mine, other in zip(there, here, strict=True)
    ]
    return {**{name: _summary(each) for name, each in turns.items()}, "actors to processes": _summary(ratios)}


def measure_kinds(is_quick: bool) -> dict[str, Any]:
    """Real samples: what one costs a worker process, and how much of it is sent."""
    seconds, kinds = 0.2 if is_quick else 3.0, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in write_kinds(Path(folder), is_quick).items():
            turns: list[dict[str, float]] = []
            for _ in range(1 if is_quick else 3):
                here = _race(kind.provider, seconds, shuffle=True, num_workers=1, **kind.settings)
                names = {
                    "core_s_per_sample": "core_s_per_sample_of_others",
                    "bytes_per_sample": "bytes_per_sample",
                }
                turns.append({figure: here[of] for figure, of in names.items()})
            kinds[name] = _summary(turns)
    return kinds


def measure(is_quick: bool, store_bytes: float) -> dict[str, Any]:
    """Run all sections; Ray must be connected."""
    return {
        "receiver": measure_receiver(is_quick, store_bytes),
        "end to end": measure_both(is_quick),
        "kinds": measure_kinds(is_quick),
    }


def report(results: Mapping[str, Any]) -> None:
    """Print the figures next to the bounds."""

    def shown(figure: Mapping[str, float]) -> str:
        return f"{figure['median']:.3g} ({figure['min']:.3g} to {figure['max']:.3g})"

    for size, figures in results["receiver"].items():
        print(f"receiver, {size}: " + ", ".join(f"{figure} {shown(value)}" for figure, value in figures.items()))
    for name, figures in results["end to end"].items():
        values = ", ".join(f"{figure} {shown(value)}" for figure, value in figures.items())
        print(f"end to end, {name}: {values}")
    ratio = results["end to end"]["actors to processes"]["samples_per_s"]["median"]
    is_met = "met" if ratio >= LEAST_RATIO else "not met"
    print(f"end to end, at least {LEAST_RATIO:g} of worker processes: {ratio:.3g}, {is_met}")
    for name, figures in results["kinds"].items():
        print(f"{name}: " + ", ".join(f"{figure} {shown(value)}" for figure, value in figures.items()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Start a cluster, measure, print, and write a file."""
    import ray

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    here = str(Path(__file__).parent)
    store_bytes = (100 if given.quick else 3000) * 2**20
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(
            num_cpus=2 * NUM_ACTORS,
            include_dashboard=False,
            object_store_memory=store_bytes,
            _temp_dir=folder,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}},
        )
        try:
            before = load_average()
            results = measure(given.quick, store_bytes)
            results |= {"machine": machine(), "load_average": [before, load_average()]}
        finally:
            ray.shutdown()
    report(results)
    write_results(given.output, results)


if __name__ == "__main__":
    main()
