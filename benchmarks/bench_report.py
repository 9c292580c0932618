# SPDX-License-Identifier: Apache-2.0
"""What it costs that a loader counts where its time goes, for `DataLoader.report`.

The same loader runs with its counters and without them (they are replaced by functions that do nothing), in turns
that follow each other, in random order. Compared is the processor time of a batch, of this process and of the
worker, turn by turn. ``numbers`` are batches of four numbers, the least that a batch can be: the difference is the
cost of counting, in microseconds. ``images`` are batches of four JPEG images that are decoded and made smaller.
One turn says little about so small a difference, so the median of many comes with the interval in which it lies
with 95 % confidence.

    python benchmarks/bench_report.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali.types import DALIDataType
from PIL import Image
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, ImageDecoder, ImageResizer, SampleDataGroup
from accvlab.dali_pipeline_framework.engine import structured_pipeline
from accvlab.dali_pipeline_framework.loader import loader_run, report
from accvlab.dali_pipeline_framework.pipeline import dali_structured_output_iterator as iterator
from accvlab.dali_pipeline_framework.workers import loading
from accvlab.dali_pipeline_framework.workers.messages import Work
from accvlab.dali_pipeline_framework.workers.pool import pool

BATCH_SIZE = 4
WIDTH, HEIGHT = 1600, 900
LIMIT = 0.01
_OF_PROCESS = 2  # kind of a clock of Linux, in the lowest bits of its number


class Numbers(DataProvider):
    """A number per sample."""

    def get_number_of_samples(self) -> int:
        return 1_000_000

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("index", DALIDataType.INT64)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample["index"] = sample_index
        return sample


@functools.cache
def encoded_image() -> npt.NDArray[np.uint8]:
    """A JPEG file."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(1).integers(0, 24, (HEIGHT, WIDTH, 3))
    pixels = (np.stack([rows // 5, columns // 9, (rows + columns) // 13], -1) + noise) % 256
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "jpeg", quality=85)
    return np.frombuffer(file.getvalue(), np.uint8)


class Images(DataProvider):
    """An image per sample, which is in memory already."""

    def __init__(self) -> None:
        self.encoded = encoded_image()

    def get_number_of_samples(self) -> int:
        return 1_000_000

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("image", DALIDataType.UINT8)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample["image"] = self.encoded
        return sample


@attrs.frozen
class Payload:
    """What is loaded.

    Attributes:
        num_batches: Batches of a turn.
        num_turns: Turns, with counters and without.
        make: Makes a loader with a number of workers.
    """

    num_batches: int
    num_turns: int
    make: Callable[[int], DataLoader]


def loader_of(provider: DataProvider, steps: Sequence[Any], num_workers: int) -> DataLoader:
    settings: dict[str, Any] = {"num_threads": 1, "start_method": "fork", "output_type": "numpy", "run": "graph"}
    return DataLoader(provider, BATCH_SIZE, steps=steps, num_workers=num_workers, **settings)


def payloads(is_quick: bool) -> dict[str, Payload]:
    steps = [ImageDecoder("image", use_device_mixed=True), ImageResizer("image", output_hw=(256, 704))]
    return {
        "numbers": Payload(
            10 if is_quick else 50, 3 if is_quick else 1000, lambda workers: loader_of(Numbers(), [], workers)
        ),
        "images": Payload(
            2 if is_quick else 4, 3 if is_quick else 60, lambda workers: loader_of(Images(), steps, workers)
        ),
    }


@contextlib.contextmanager
def without_counters() -> Iterator[None]:
    """Replace all that a loader does in order to report by what does nothing."""
    with contextlib.ExitStack() as stack:
        for module in (loading, pool, structured_pipeline, iterator, loader_run, report):
            stack.enter_context(mock.patch.object(module, "perf_counter_ns", int))
        for module in (loading, report):
            stack.enter_context(mock.patch.object(module, "process_time_ns", int))
        stack.enter_context(mock.patch.object(Work, "plus", lambda self, other: self))
        yield


class Contestant:
    """A loader in the middle of its epoch."""

    def __init__(self, payload: Payload, num_workers: int, is_counted: bool) -> None:
        self._payload = payload
        self._around = contextlib.nullcontext if is_counted else without_counters
        with self._around():
            self._loader = payload.make(num_workers)
            self._batches = iter(self._loader)
            next(self._batches)
        of_workers = self._loader._run.pipelines.pool._workers
        pids = [of_workers.pid(number) for number in range(num_workers)]
        self._pids = [os.getpid(), *pids]

    def turn(self) -> tuple[float, float]:
        """Run a turn; get the processor time and the time of a batch, in microseconds."""
        with self._around():
            self._deliver(1 + self._payload.num_batches // 10)
            began_ns, spent_ns = time.perf_counter_ns(), self._spent_ns()
            self._deliver(self._payload.num_batches)
            spent_ns = self._spent_ns() - spent_ns
            passed_ns = time.perf_counter_ns() - began_ns
        count = 1e3 * self._payload.num_batches
        return spent_ns / count, passed_ns / count

    def _deliver(self, num_batches: int) -> None:
        for _ in range(num_batches):
            next(self._batches)

    def _spent_ns(self) -> int:
        return sum(time.clock_gettime_ns(~pid << 3 | _OF_PROCESS) for pid in self._pids)

    def close(self) -> None:
        self._loader.close()


def spread(values: Sequence[float]) -> dict[str, float]:
    quarters = statistics.quantiles(values, n=4)
    # How many of n values are below their median has a binomial distribution: standard deviation sqrt(n) / 2.
    away = math.ceil(1.96 * math.sqrt(len(values)) / 2)
    ordered, middle = sorted(values), len(values) // 2
    return {
        "median": round(statistics.median(values), 4),
        "median_at_least": round(ordered[max(middle - away, 0)], 4),
        "median_at_most": round(ordered[min(middle + away, len(values) - 1)], 4),
        "quarter": round(quarters[0], 4),
        "three_quarters": round(quarters[2], 4),
    }


def measure(payload: Payload, num_workers: int) -> dict[str, Any]:
    """Measure with and without counters, in pairs of turns."""
    contestants = {is_counted: Contestant(payload, num_workers, is_counted) for is_counted in (True, False)}
    turns: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(payload.num_turns):
        for is_counted in random.sample([True, False], 2):
            turns[is_counted].append(contestants[is_counted].turn())
    for contestant in contestants.values():
        contestant.close()
    processor = {is_counted: [spent for spent, _ in turns[is_counted]] for is_counted in turns}
    pairs = list(zip(processor[True], processor[False], strict=True))
    return {
        "processor_us_per_batch": {"counted": spread(processor[True]), "not counted": spread(processor[False])},
        "us_per_batch": spread([passed for _, passed in turns[True]]),
        "extra_us_per_batch": spread([one - other for one, other in pairs]),
        "extra_share": spread([one / other - 1 for one, other in pairs]),
    }


def results(is_quick: bool) -> list[dict[str, Any]]:
    rows = []
    for name, payload in payloads(is_quick).items():
        for num_workers in (0, 1):
            measured = measure(payload, num_workers)
            rows.append({"payload": name, "num_workers": num_workers, **measured})
    return rows


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cost of counting, in loops over numbers, beside the price of a batch of images."""
    found = {(row["payload"], row["num_workers"]): row for row in rows}
    met = []
    for num_workers in (0, 1):
        batch_us = found["images", num_workers]["processor_us_per_batch"]["not counted"]["median"]
        share = found["numbers", num_workers]["extra_us_per_batch"]["median_at_most"] / batch_us
        where = f"with {num_workers} worker" if num_workers else "without workers"
        text = f"share of the processor time of a batch of images, {where}, at most {LIMIT}"
        met.append({"target": text, "limit": LIMIT, "value": round(share, 5), "is_met": share <= LIMIT})
    return met


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Cost of counting where the time goes.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    load_averages = [load_average()]
    rows = results(arguments.quick)
    load_averages.append(load_average())
    print("medians and 95 % intervals, processor time   us per batch           more, with counters")
    for row in rows:
        extra, share = row["extra_us_per_batch"], row["extra_share"]
        print(
            f"{row['payload']:8s} {row['num_workers']} workers  "
            f"{row['processor_us_per_batch']['not counted']['median']:22.1f}   "
            f"{extra['median']:8.1f} us ({extra['median_at_least']:.1f} .. {extra['median_at_most']:.1f}), "
            f"{100 * share['median']:.2f} % ({100 * share['median_at_least']:.2f} .. "
            f"{100 * share['median_at_most']:.2f})"
        )
    met = targets(rows)
    for each in met:
        print(f"{each['target']}: is {each['value']}, {'met' if each['is_met'] else 'MISSED'}")
    about = {**machine(), "load_average_before_and_after": load_averages}
    write_results(arguments.output, {**about, "results": rows, "targets": met})


if __name__ == "__main__":
    main()
