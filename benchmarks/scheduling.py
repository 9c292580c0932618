# SPDX-License-Identifier: Apache-2.0
"""Times that are no throughput of arrays: stragglers, the first batch, building, and packing in a worker."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
from chain_contestants import define_twenty_steps
from nvidia.dali.types import DALIDataType
from races import START_METHOD, prepare_workers, spread

from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.workers.packing import TransportLayout, outputs_of_batch

BATCH_SIZE = 8
USUAL_SECONDS = 0.01
STRAGGLER_FACTOR = 20
_ONE_IN = 20
NUM_SAMPLES = 10**6
TWICE_AS_DEEP = "this library, two batches per worker"


def seconds_of(index: int) -> float:
    """How long a sample takes to load: one of twenty takes long, without any order."""
    is_straggler = (index * 2_654_435_761 >> 7) % 1009 % _ONE_IN == 0
    return USUAL_SECONDS * (STRAGGLER_FACTOR if is_straggler else 1)


class SleepingProvider(DataProvider):
    """Its number, and when its worker was ready, for each sample; loading is waiting."""

    def __init__(self, sleeps: bool = True) -> None:
        self.sleeps, self.ready = sleeps, time.time()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.ready = time.time()

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("index", DALIDataType.INT64)
        sample.add_data_field("ready", DALIDataType.FLOAT64)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if self.sleeps:
            time.sleep(seconds_of(sample_index))
        sample = self.new_sample()
        sample["index"] = np.array(sample_index)
        sample["ready"] = np.array(self.ready)
        return sample


def _batches(num_workers: int, depth: int, resources: ExitStack) -> Any:
    """Of this library; a depth of 0 is the default."""
    loader = DataLoader(
        SleepingProvider(),
        BATCH_SIZE,
        last_batch="drop",
        num_workers=num_workers,
        start_method=START_METHOD,
        prefetch_queue_depth=depth or None,
    )
    return iter(resources.enter_context(loader))


def _torch_batches(num_workers: int) -> Any:
    from scheduling_torch import SleepingDataset
    from step_torch import torch_loader

    return iter(torch_loader(SleepingDataset(), BATCH_SIZE, num_workers))


def stragglers(num_workers: int, num_turns: int, num_seconds: float) -> dict[str, Any]:
    """Share of the throughput of workers that never wait, and whether the samples came in order."""
    prepare_workers()
    shares: dict[str, list[float]] = {}
    is_in_order = True
    with ExitStack() as resources:
        batches = _batches(num_workers, 0, resources)
        deep_batches = _batches(num_workers, 2 * num_workers, resources)
        torch_batches = _torch_batches(num_workers)
        contestants = {
            "this library": lambda: next(batches)["index"],
            TWICE_AS_DEEP: lambda: next(deep_batches)["index"],
            "PyTorch": lambda: next(torch_batches),
        }
        expected = dict.fromkeys(contestants, 0)
        for turn in range(num_turns + 1):
            for name, deliver in contestants.items():
                start, slept = time.perf_counter(), 0.0
                # What was prefetched while the other one ran is a fraction of a turn, and warms up.
                warm_up = 2 * num_workers + 2 if turn else 2
                count = 0
                while count < warm_up or time.perf_counter() - start < num_seconds:
                    indices = deliver().tolist()
                    is_in_order &= indices == [*range(expected[name], expected[name] + BATCH_SIZE)]
                    expected[name] += BATCH_SIZE
                    count += 1
                    if count <= warm_up:
                        start, slept = time.perf_counter(), 0.0
                    else:
                        slept += sum(map(seconds_of, indices))
                if turn or num_turns == 0:
                    shares.setdefault(name, []).append(slept / max(num_workers, 1) / (time.perf_counter() - start))
    return {
        "workers": num_workers,
        "is_in_order": is_in_order,
        "share_of_ideal": {name: spread(values, 3) for name, values in shares.items()},
    }


def first_batch(num_workers: int, num_times: int) -> dict[str, Any]:
    """Seconds from the call of the constructor to the first batch of a shuffled epoch of a million samples."""
    own, waiting = [], []
    for _ in range(num_times):
        start = time.time()
        loader = DataLoader(SleepingProvider(sleeps=False), BATCH_SIZE, shuffle=True, num_workers=num_workers)
        created = time.time()
        with loader:
            batch = next(iter(loader))
            end = time.time()
        ready = batch["ready"].max().item() if num_workers else created
        own.append(created - start + end - ready)
        waiting.append(ready - created)
    return {
        "samples": NUM_SAMPLES,
        "seconds": spread(own, 3),
        "seconds_until_interpreters_have_started": spread(waiting, 3),
    }


def build_seconds(num_times: int) -> dict[str, float]:
    """Seconds to define and build a graph of twenty steps over six cameras, for the first time in a process."""
    seconds = []
    for _ in range(num_times):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            seconds.append(process.submit(_built).result())
    return spread(seconds, 3)


def _built() -> float:
    start = time.perf_counter()
    pipeline = define_twenty_steps(BATCH_SIZE)
    pipeline.build()
    return time.perf_counter() - start


def packing(num_leaves: int, num_touched: int, num_times: int) -> dict[str, Any]:
    """Microseconds per sample in which a worker makes the outputs of a batch of loaded samples."""
    values = np.arange(BATCH_SIZE * num_leaves * 4, dtype=np.float32).reshape(BATCH_SIZE, num_leaves, 4)
    samples = [[*of_sample] for of_sample in values]
    layout = TransportLayout(
        packed=tuple([(item,) for item in range(num_touched, num_leaves)]),
        fields=tuple([(item,) for item in range(num_touched)]),
    )
    times = []
    for _ in range(num_times):
        start = time.perf_counter()
        outputs_of_batch(layout, samples, ())
        times.append(1e6 * (time.perf_counter() - start) / BATCH_SIZE)
    return {"leaves": num_leaves, "touched": num_touched, "us_per_sample": spread(times, 1)}
