# SPDX-License-Identifier: Apache-2.0
"""What it costs that samples may fail, on data without faults; and how fast `lint` tries a data set.

- ``policies``: a loader with ``faults="replace"``, and with a fallback decoder as well, beside one without. All
  run in this process, in turns of a few batches in an order that changes, so the time on processors is that of all
  their work. Printed are the ratios of that time, for JPEG files that are decoded in the graph, for the same on
  arrays, and for samples of a few numbers.
    python benchmarks/bench_faults.py [--quick]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import DataLoader, DataProvider, FaultPolicy, ImageDecoder, SampleDataGroup

say = functools.partial(print, flush=True)

MOST_COST = 1.02
LEAST_RATE = 0.9
_CHUNK = 32


class Files(DataProvider):
    """Image files and a few numbers of each."""

    def __init__(self, folder: str | Path, num_samples: int, has_images: bool = True) -> None:
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.num_samples = num_samples
        self.has_images = has_images

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_field("numbers", DALIDataType.FLOAT)
        if self.has_images:
            sample.add_data_field("image", DALIDataType.UINT8)
        return sample

    def get_number_of_samples(self) -> int:
        return self.num_samples

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["numbers"] = np.full((8, 4), sample_index, np.float32)
        if self.has_images:
            sample["image"] = np.fromfile(self.paths[sample_index % len(self.paths)], np.uint8)
        return sample


def make_files(folder: Path, count: int) -> None:
    """Write JPEG files of 1600 x 900 pixels."""
    import cv2

    generator = np.random.default_rng(0)
    for number in range(count):
        small = generator.integers(0, 256, (57, 100, 3), np.uint8)
        image = cv2.resize(small, (1600, 900), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{number}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, 90])


def batches(loader: DataLoader) -> Iterator[Any]:
    """Get batches without end."""
    while True:
        yield from loader


def cost_of_policies(provider: DataProvider, run: Any, num_turns: int, per_turn: int) -> dict[str, list[float]]:
    """Ratios of processor time, turn by turn."""
    policies = {
        "without": None,
        "replace": FaultPolicy(samples="replace", max_failed=10),
        "replace, pillow": FaultPolicy(samples="replace", fallback_decoder="pillow"),
    }
    steps = (
        [ImageDecoder("image", use_device_mixed=False)] if "image" in str(provider.sample_data_structure) else []
    )
    ratios: dict[str, list[float]] = {name: [] for name in policies if policies[name]}
    loaders = {
        name: DataLoader(
            provider, 8, steps=steps, run=run, shuffle=True, num_workers=0, num_threads=1, faults=policy
        )
        for name, policy in policies.items()
    }
    endless = {name: batches(loader) for name, loader in loaders.items()}
    for each in endless.values():
        next(each)
    order = random.Random(0)
    for _ in range(num_turns):
        times = {}
        for name in order.sample(list(endless), len(endless)):
            start = time.process_time()
            for _ in itertools.islice(endless[name], per_turn):
                pass
            times[name] = time.process_time() - start
        for name in ratios:
            ratios[name].append(times[name] / times["without"])
    for loader in loaders.values():
        loader.close()
    return ratios


# --- lint -------------------------------------------------------------------------------------------------


def provider_for_lint() -> Files:
    """What the command tries; the folder and the number stand in a file, since a function takes no arguments."""
    folder, count = Path("lint.txt").read_text().split()
    return Files(folder, int(count))


def read_and_decode(provider: Files, indices: range) -> None:
    """The bare loop: read files, and decode them many at a time."""
    import nvidia.dali.fn as fn
    from nvidia.dali.pipeline import Pipeline

    pipeline = Pipeline(_CHUNK, 1, None, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False)
    with pipeline:
        pipeline.set_outputs(fn.decoders.image(fn.external_source(name="files", batch=True, no_copy=True)))
    pipeline.build()
    for start in range(indices.start, indices.stop, _CHUNK):
        chosen = range(start, min(start + _CHUNK, indices.stop))
        files = [np.fromfile(provider.paths[index % len(provider.paths)], np.uint8) for index in chosen]
        pipeline.feed_input("files", files)
        pipeline.run()


def seconds_of_bare_loop(provider: Files, num_processes: int) -> float:
    """Time of the bare loop over all samples."""
    start_s = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    edges = [provider.num_samples * number // num_processes for number in range(num_processes + 1)]
    processes = [
        context.Process(target=read_and_decode, args=(provider, range(*pair)))
        for pair in itertools.pairwise(edges)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return time.perf_counter() - start_s


def seconds_of_lint(folder: Path, count: int, num_processes: int) -> float:
    """Time of the command."""
    (folder / "lint.txt").write_text(f"{folder} {count}")
    package = DataProvider.__module__.rpartition(".providers")[0]
    command = [sys.executable, "-m", package, "lint", "bench_faults:provider_for_lint"]
    start_s = time.perf_counter()
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
    subprocess.run([*command, "--workers", str(num_processes)], cwd=folder, env=environment, check=True)
    return time.perf_counter() - start_s


def print_policies(folder: Path, is_quick: bool) -> None:
    """Measure what policies cost."""
    num_turns = 2 if is_quick else 40
    for what, run, has_images, per_turn in (
        ("files, decoded in the graph", "graph", True, 2 if is_quick else 6),
        ("files, decoded on arrays", "workers", True, 2 if is_quick else 6),
        ("a few numbers", "graph", False, 2 if is_quick else 300),
    ):
        ratios = cost_of_policies(Files(folder, 640, has_images), run, num_turns, per_turn)
        for policy, each in ratios.items():
            limits = f"({min(each):.3f} .. {max(each):.3f}), at most {MOST_COST}"
            say(f"{what}: {policy} / without: {statistics.median(each):.3f} {limits}")


def children_s() -> float:
    """Processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_lint(folder: Path, is_quick: bool) -> None:
    """Measure the command."""
    count = 64 if is_quick else 8000
    rates, costs = [], []
    for _ in range(1 if is_quick else 3):
        before_s = children_s()
        bare_s = seconds_of_bare_loop(Files(folder, count), 2)
        between_s = children_s()
        lint_s = seconds_of_lint(folder, count, 2)
        rates.append(bare_s / lint_s)
        costs.append((between_s - before_s) / (children_s() - between_s))
        say(f"lint {count / lint_s:.0f} samples/s, bare loop {count / bare_s:.0f} samples/s")
    for what, ratios in (("samples/s", rates), ("samples per second of processor time", costs)):
        limits = f"({min(ratios):.2f} .. {max(ratios):.2f}), at least {LEAST_RATE}"
        say(f"lint / bare loop, {what}: {statistics.median(ratios):.2f} {limits}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="too short to mean anything")
    parser.add_argument("--only", choices=["policies", "lint"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder, 4 if options.quick else 64)
        if options.only != "lint":
            print_policies(folder, options.quick)
        if options.only != "policies":
            print_lint(folder, options.quick)


if __name__ == "__main__":
    main()
