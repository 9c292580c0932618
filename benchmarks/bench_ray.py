# SPDX-License-Identifier: Apache-2.0
"""Loading by actors of a Ray cluster on this machine, next to worker processes, and what others would give.

- ``receiver``: actors that have their batches already: gigabytes per second, and processor time of the receiving
  process per gigabyte;
- ``end to end``: samples that take processor time, by as many worker processes as actors, four batches ahead;
- ``predicted``: samples per second for machines, cores and networks, by `cluster_simulation`, of costs that were
  measured here; and what it predicts for the run above.

It starts a cluster of its own.

    python benchmarks/bench_ray.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cluster_simulation import Costs, samples_per_s
from nvidia.dali import types
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, SampleDataGroup
from accvlab.dali_pipeline_framework.cluster import RayWorkers

BATCH_SIZE = 8
NUM_ACTORS = 2
# Of a sample: processor time of one core, and bytes that are sent (six cameras; one clip; one scan).
KINDS = {
    "JPEG rig, resized to 256 x 704": Costs(0.045, 6 * 256 * 704 * 3),
    "JPEG rig, sent encoded": Costs(0.004, 6 * 160e3),
    "clip of 32 frames, 224 x 224": Costs(0.4, 32 * 224 * 224 * 3),
    "lidar, 10 sweeps": Costs(0.03, 300e3 * 5 * 4),
}


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

    seconds = 0.02

    def get_data(self, sample_index: int) -> SampleDataGroup:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return super().get_data(sample_index)


def _race(provider: HeldProvider, **workers: Any) -> dict[str, float]:
    """Rate of the second half of an epoch, and processor time of this process for it."""
    with DataLoader(provider, BATCH_SIZE, output_type="numpy", num_threads=1, **workers) as loader:
        half, began, cpu = len(loader) // 2, 0.0, 0.0
        for number, _ in enumerate(loader):
            if number == half:
                began, cpu = time.perf_counter(), time.process_time()
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    num_samples = (len(loader) - half - 1) * BATCH_SIZE
    gigabytes = num_samples * provider.num_bytes * 1e-9
    return {
        "samples_per_s": num_samples / seconds,
        "gb_per_s": gigabytes / seconds,
        "core_s_per_gb": cpu_s / gigabytes,
    }


def measure(is_quick: bool) -> dict[str, Any]:
    """Run all sections; Ray must be connected."""
    sizes, num_batches = ([3e5], 12) if is_quick else ([3e6, 26e6, 100e6], 60)
    actors = RayWorkers(num_actors=NUM_ACTORS, num_cpus=1, batches_ahead=4)
    receiver = {}
    for size in sizes:
        provider = HeldProvider(num_batches * BATCH_SIZE, int(size / BATCH_SIZE))
        receiver[f"{size / 1e6:g} MB"] = _race(provider, workers=actors)
    busy = BusyProvider(BATCH_SIZE * (8 if is_quick else 60), 30000)
    turns: dict[str, list[float]] = {"worker processes": [], "actors": []}
    for _ in range(1 if is_quick else 3):
        turns["worker processes"].append(_race(busy, num_workers=NUM_ACTORS)["samples_per_s"])
        turns["actors"].append(_race(busy, workers=actors)["samples_per_s"])
    rates = {name: statistics.median(values) for name, values in turns.items()}
    measured = Costs(busy.seconds, busy.num_bytes)
    predicted = {
        name: {
            f"{hosts} x {cores} cores, {gigabits} Gbit/s": round(
                samples_per_s(costs, hosts * cores, gigabits / 8, num_batches=100 if is_quick else 400), 1
            )
            for hosts, cores, gigabits in ((1, 8, 10), (1, 32, 10), (4, 32, 10), (4, 32, 25), (4, 32, 100))
        }
        for name, costs in KINDS.items()
    }
    return {
        "receiver": receiver,
        "end to end": {**rates, "ratio": rates["actors"] / rates["worker processes"]},
        "predicted here": samples_per_s(measured, NUM_ACTORS, 2.0, BATCH_SIZE, batches_ahead=4),
        "predicted": predicted,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Start a cluster, measure, print, and write a file."""
    import ray

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    here = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(
            num_cpus=NUM_ACTORS + 1,
            include_dashboard=False,
            object_store_memory=(100 if given.quick else 2000) * 2**20,
            _temp_dir=folder,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}},
        )
        try:
            before = load_average()
            results = measure(given.quick)
            results |= {"machine": machine(), "load_average": [before, load_average()]}
        finally:
            ray.shutdown()
    for section in ("receiver", "end to end", "predicted here", "predicted"):
        print(f"{section}: {results[section]}")
    write_results(given.output, results)


if __name__ == "__main__":
    main()
