# SPDX-License-Identifier: Apache-2.0
"""What the order of the samples costs: time to create a sampler, to jump anywhere, per index, and memory.

For each sampler and size:

- ``create``: the constructor (the lengths or weights are there already, as arrays);
- ``first access``: from a created sampler to a batch in the middle of an epoch that it has not been asked for.
  Streams of sequences prepare the order of an epoch then; all others just compute the batch. The published
  `SequenceSampler` has no epochs: it is asked for a batch three cycles ahead, for which it goes through them;
- ``seek``: a random batch of that epoch, the median of many;
- ``per index``: batch after batch, divided by the batch size;
- ``peak memory``: of all of these, as `tracemalloc` sees it (it knows NumPy's arrays), in a run of its own.

Beside them, where they fit into memory: ``numpy permutation``, the array of the whole order, and ``table``, the
list of all batches. Both must be made anew in each epoch; that is their first access.

All run interleaved, in an order that changes from turn to turn. Printed are medians, and the range over the turns
in the file; then the targets, each with the worst median that it applies to. The load averages in the file tell
whether other programs ran at the same time.

    python benchmarks/bench_samplers.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs
import numpy as np
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework.inputs import SequenceSampler
from accvlab.dali_pipeline_framework.sampling import (
    MixedSampler,
    RandomAccessSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)

BATCH_SIZE = 16
METRICS = ("create", "first access", "seek", "per index")
FLAT = ("ShuffledSampler", "MixedSampler", "WeightedSampler")


class Orders(Protocol):
    """What all contestants can do."""

    def get_batch_indices(self, epoch: int, batch: int) -> Any: ...


class NumPyPermutation:
    """The whole order of an epoch as an array."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self.epoch = -1

    def get_batch_indices(self, epoch: int, batch: int) -> Any:
        if epoch != self.epoch:
            self.order = np.random.default_rng(epoch).permutation(self.num_samples)
            self.epoch = epoch
        return self.order[batch * BATCH_SIZE : (batch + 1) * BATCH_SIZE]


class Table(NumPyPermutation):
    """The list of all batches of an epoch."""

    def get_batch_indices(self, epoch: int, batch: int) -> Any:
        if epoch != self.epoch:
            super().get_batch_indices(epoch, batch)
            num_full = self.num_samples // BATCH_SIZE
            self.batches = self.order[: num_full * BATCH_SIZE].reshape(num_full, BATCH_SIZE).tolist()
        return self.batches[batch]


@attrs.frozen
class Contestant:
    """A way to get an order, at a size.

    Attributes:
        name: What it is.
        size: Number of samples, or of sequences where it plays those.
        unit: Which of the two.
        create: Makes it.
        num_batches: Batches of an epoch that can be asked for.
        first_batch: Number of the batch of the first access.
    """

    name: str
    size: int
    unit: str
    create: Callable[[], Orders]
    num_batches: int
    first_batch: int


def of_samples(name: str, size: int, create: Callable[[], Orders]) -> Contestant:
    num_batches = size // BATCH_SIZE
    return Contestant(name, size, "samples", create, num_batches, num_batches // 2)


def of_sequences(name: str, size: int, create: Callable[[Any], RandomAccessSampler]) -> Contestant:
    lengths = np.random.default_rng(0).integers(20, 61, size)  # frames
    cycle = int(lengths.sum()) // BATCH_SIZE
    far = 3 * cycle if name == "SequenceSampler" else cycle // 2
    return Contestant(name, size, "sequences", lambda: create(lengths), cycle * 9 // 10, far)


def mixed(size: int) -> RandomAccessSampler:
    parts = [ShuffledSampler(size - size // 4, seed=1), ShuffledSampler(size // 4, seed=2)]
    return MixedSampler(parts, [0.75, 0.25], BATCH_SIZE, offsets=[0, size - size // 4])


def contestants(quick: bool) -> list[Contestant]:
    found: list[Contestant] = []
    for size in (10**3, 10**5) if quick else (10**3, 10**6, 10**9):
        found += [
            of_samples("ShuffledSampler", size, lambda n=size: ShuffledSampler(n, BATCH_SIZE, seed=1)),
            of_samples("MixedSampler", size, lambda n=size: mixed(n)),
        ]
    for size in (10**3, 10**5) if quick else (10**3, 10**6, 10**7):
        found.append(of_samples("numpy permutation", size, lambda n=size: NumPyPermutation(n)))
    for size in (10**3, 10**5) if quick else (10**3, 10**6):
        weights = np.random.default_rng(0).random(size)
        found.append(of_samples("WeightedSampler", size, lambda w=weights: WeightedSampler(w, BATCH_SIZE)))
        found.append(of_samples("table", size, lambda n=size: Table(n)))
    for size in (10**2, 10**3) if quick else (10**2, 10**3, 10**4, 10**5, 10**6):
        found += [
            of_sequences("streams, whole", size, lambda each: StreamingSequenceSampler(each, BATCH_SIZE, seed=1)),
            of_sequences(
                "streams, cut",
                size,
                lambda each: StreamingSequenceSampler(each, BATCH_SIZE, seed=1, cut_sequences=True),
            ),
            of_sequences("SequenceSampler", size, lambda each: SequenceSampler(BATCH_SIZE, each, seed=1)),
        ]
    return found


# --- measuring -------------------------------------------------------------------------------------------


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure(contestant: Contestant, turn: int, num_seeks: int) -> dict[str, float]:
    """One turn, in seconds."""
    epoch = 0 if contestant.name == "SequenceSampler" else turn + 1
    chosen = random.Random(turn)
    creating, sampler = seconds(contestant.create)
    first, _ = seconds(lambda: sampler.get_batch_indices(epoch, contestant.first_batch))
    num_batches = contestant.num_batches
    jumps = [chosen.randrange(num_batches) for _ in range(num_seeks)]
    if contestant.name == "SequenceSampler":
        jumps = jumps[:3]  # it starts over when it is asked for what it has passed
    seeks = [seconds(lambda batch=batch: sampler.get_batch_indices(epoch, batch))[0] for batch in jumps]
    start = chosen.randrange(max(1, num_batches - num_seeks))
    stop = min(start + num_seeks, num_batches)
    sampler.get_batch_indices(epoch, start)
    walking, _ = seconds(lambda: [sampler.get_batch_indices(epoch, batch) for batch in range(start, stop)])
    return {
        "create": creating,
        "first access": first,
        "seek": statistics.median(seeks),
        "per index": walking / (stop - start) / BATCH_SIZE,
    }


def peak_memory(contestant: Contestant) -> int:
    """Largest number of bytes that were allocated at the same time."""
    tracemalloc.start()
    sampler = contestant.create()
    sampler.get_batch_indices(0, contestant.first_batch)
    for batch in range(min(contestant.num_batches, 50)):
        sampler.get_batch_indices(0, batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def spread(values: list[float]) -> dict[str, float]:
    """Microseconds."""
    return {
        "median": round(1e6 * statistics.median(values), 3),
        "min": round(1e6 * min(values), 3),
        "max": round(1e6 * max(values), 3),
    }


def results(quick: bool) -> list[dict[str, Any]]:
    racing = contestants(quick)
    times: dict[tuple[str, int], dict[str, list[float]]] = {
        (each.name, each.size): {metric: [] for metric in METRICS} for each in racing
    }
    order = list(racing)
    shuffle = random.Random(0)
    for turn in range(3 if quick else 10):
        shuffle.shuffle(order)
        for each in order:
            for metric, value in measure(each, turn, num_seeks=20 if quick else 200).items():
                if turn > 0:  # the first one warms up
                    times[each.name, each.size][metric].append(value)
    rows = []
    for each in racing:
        own = times[each.name, each.size]
        row: dict[str, Any] = {"name": each.name, each.unit: each.size}
        row["us"] = {metric: spread(own[metric]) for metric in METRICS}
        row["peak_memory_bytes"] = peak_memory(each)
        permutation = times.get(("numpy permutation", each.size))
        if each.unit == "samples" and permutation is not None:
            row["ratio_to_numpy_permutation"] = {
                metric: ratios(own[metric], permutation[metric]) for metric in ("first access", "per index")
            }
        rows.append(row)
    return rows


def ratios(ours: list[float], theirs: list[float]) -> dict[str, float]:
    values = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {
        "median": round(statistics.median(values), 5),
        "min": round(min(values), 5),
        "max": round(max(values), 5),
    }


# --- targets ---------------------------------------------------------------------------------------------


def targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each target with the worst value that it applies to."""
    flat = [row for row in rows if row["name"] in FLAT]
    streams = [row for row in rows if row["name"].startswith("streams")]
    ours = [*flat, *streams]
    largest = max(row["sequences"] for row in streams)

    def worst(among: list[dict[str, Any]], metric: str) -> tuple[float, str]:
        row = max(among, key=lambda each: each["us"][metric]["median"])
        size = row.get("samples", row.get("sequences"))
        return row["us"][metric]["median"], f"{row['name']}, {size:.0e}"

    def per_sequence(row: dict[str, Any]) -> float:
        return row["peak_memory_bytes"] / row["sequences"]

    heaviest = max((row for row in streams if row["sequences"] == largest), key=per_sequence)
    no_order = max((row for row in flat if row["name"] in FLAT[:3:2]), key=lambda row: row["peak_memory_bytes"])
    names = dict.fromkeys(row["name"] for row in ours)
    of_name = {name: [row for row in ours if row["name"] == name] for name in names}
    values = [
        *((f"seek within an epoch, {name}", "us", 50.0, *worst(own, "seek")) for name, own in of_name.items()),
        ("first access to an epoch, without streams", "us", 50.0, *worst(flat, "first access")),
        *((f"per index, {name}", "us", 5.0, *worst(own, "per index")) for name, own in of_name.items()),
        (
            f"create a sampler of {largest:.0e} sequences",
            "us",
            0.2e6,
            *worst([row for row in streams if row["sequences"] == largest], "create"),
        ),
        ("peak memory per sequence, streams", "bytes", 256.0, round(per_sequence(heaviest), 1), heaviest["name"]),
        (
            "peak memory of samples in any number",
            "bytes",
            2.0**20,
            no_order["peak_memory_bytes"],
            f"{no_order['name']}, {no_order['samples']:.0e}",
        ),
    ]
    return [
        {"target": target, "unit": unit, "limit": limit, "worst": value, "at": where, "is_met": value <= limit}
        for target, unit, limit, value, where in values
    ]


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Cost of the order of samples.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    about = {**machine(), "batch_size": BATCH_SIZE}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    load_averages = [load_average()]
    print("\nmedians in microseconds                 create  first access      seek  per index   peak memory")
    rows = results(arguments.quick)
    for row in rows:
        unit = "samples" if "samples" in row else "sequences"
        us = {metric: row["us"][metric]["median"] for metric in METRICS}
        print(
            f"{row['name']:17s} {row[unit]:6.0e} {unit:9s} {us['create']:10.1f}  {us['first access']:12.1f} "
            f"{us['seek']:9.1f}  {us['per index']:9.2f}   {row['peak_memory_bytes'] / 2**20:8.2f} MiB"
        )
    load_averages.append(load_average())
    print(f"load average before and after: {load_averages}")
    met = targets(rows)
    print("\ntargets")
    for each in met:
        verdict = "met" if each["is_met"] else f"MISSED by a factor of {each['worst'] / each['limit']:.2f}"
        print(
            f"  {each['target']}: at most {each['limit']:g} {each['unit']}, "
            f"is {each['worst']:g} ({each['at']}): {verdict}"
        )
    report = {**about, "load_average_before_and_after": load_averages, "results": rows, "targets": met}
    write_results(arguments.output, report)


if __name__ == "__main__":
    main()
