# SPDX-License-Identifier: Apache-2.0
"""Order of samples, and state.

All cases but *state* are about samplers with batches of 16 samples:

- *create us*: microseconds of the constructor.
- *first access us*: the first request in a new epoch, for a batch from the middle of it. This includes what is
  done once per epoch: samplers of sequences prepare the epoch, and *numpy permutation* makes the whole order.
- *seek us*: another batch, at a random position of the same epoch.
- *per index us*: time per sample if the batches are requested one after the other.
- *peak MiB*: the most memory in all this, as `tracemalloc` counts it.

*state* is about a loader with 1,000 samples: the time of `state_dict`, the size of the state as JSON, and the
time from `load_state_dict` to the first batch, once for a state from the start of an epoch, once for a state from
its middle.
"""

from __future__ import annotations

import functools
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import attrs
import numpy as np
from calls_per_sample import Images
from races import as_list, spread
from results_file import Row, bound_of

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.sampling import (
    MixedSampler,
    RandomAccessSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)

BATCH_SIZE = 16
METRICS = ("create us", "first access us", "seek us", "per index us")
MOST_SEEK_US, MOST_PER_INDEX_US = 50.0, 5.0


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


@attrs.frozen
class Contestant:
    """A way to get an order, at a size.

    Attributes:
        name: What it is.
        size: What it plays.
        create: Makes it.
        num_batches: Batches of an epoch that can be asked for.
    """

    name: str
    size: str
    create: Callable[[], Orders]
    num_batches: int


def mixed(size: int) -> RandomAccessSampler:
    parts = [ShuffledSampler(size - size // 4, seed=1), ShuffledSampler(size // 4, seed=2)]
    return MixedSampler(parts, [0.75, 0.25], BATCH_SIZE, offsets=[0, size - size // 4])


def contestants(is_quick: bool) -> list[Contestant]:
    found = []
    for size in (10**3, 10**5) if is_quick else (10**3, 10**6, 10**9):
        found += _of_samples("ShuffledSampler", size, lambda size: ShuffledSampler(size, BATCH_SIZE, seed=1))
        found += _of_samples("MixedSampler", size, mixed)
        if size <= 10**6:  # larger ones would not fit into memory
            weights = np.random.default_rng(0).random(size)
            found += _of_samples(
                "WeightedSampler", size, lambda _, each=weights: WeightedSampler(each, BATCH_SIZE)
            )
            found += _of_samples("numpy permutation", size, NumPyPermutation)
    for size in (10**2, 10**3) if is_quick else (10**3, 10**6):
        lengths = np.random.default_rng(0).integers(20, 61, size)  # frames
        create = functools.partial(StreamingSequenceSampler, lengths, BATCH_SIZE, seed=1)
        num_batches = int(lengths.sum()) // BATCH_SIZE * 9 // 10
        found.append(Contestant("StreamingSequenceSampler", f"{size:.0e} sequences", create, num_batches))
    return found


def _of_samples(name: str, size: int, create: Callable[[int], Orders]) -> list[Contestant]:
    return [Contestant(name, f"{size:.0e} samples", lambda: create(size), size // BATCH_SIZE)]


def microseconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return 1e6 * (time.perf_counter() - start), result


def turn_of(contestant: Contestant, turn: int, num_seeks: int) -> dict[str, float]:
    """One turn, in an epoch of its own."""
    epoch, chosen, num_batches = turn + 1, random.Random(turn), contestant.num_batches
    creating, sampler = microseconds(contestant.create)
    first, _ = microseconds(lambda: sampler.get_batch_indices(epoch, num_batches // 2))
    jumps = [chosen.randrange(num_batches) for _ in range(num_seeks)]
    seeks = [microseconds(lambda batch=batch: sampler.get_batch_indices(epoch, batch))[0] for batch in jumps]
    start = chosen.randrange(max(1, num_batches - num_seeks))
    stop = min(start + num_seeks, num_batches)
    sampler.get_batch_indices(epoch, start)
    walking, _ = microseconds(lambda: [sampler.get_batch_indices(epoch, batch) for batch in range(start, stop)])
    return dict(
        zip(
            METRICS,
            (creating, first, statistics.median(seeks), walking / (stop - start) / BATCH_SIZE),
            strict=True,
        )
    )


def peak_mib(contestant: Contestant) -> float:
    """Most memory that was allocated at the same time."""
    tracemalloc.start()
    sampler = contestant.create()
    for batch in (contestant.num_batches // 2, *range(min(contestant.num_batches, 50))):
        sampler.get_batch_indices(0, batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(peak / 2**20, 3)


def measure(folder: Path, is_quick: bool) -> tuple[list[Row], list[Row]]:
    racing = contestants(is_quick)
    turns: list[list[dict[str, float]]] = [[] for _ in racing]
    order, shuffle = [*range(len(racing))], random.Random(0)
    for turn in range(3 if is_quick else 10):
        shuffle.shuffle(order)
        for number in order:
            turns[number].append(turn_of(racing[number], turn, num_seeks=20 if is_quick else 200))
    rows, bounds = [], []
    for each, found in zip(racing, turns, strict=True):
        row = {"case": each.size, "of": each.name}
        for metric in METRICS:
            row[metric] = as_list(spread([turn[metric] for turn in found[1:]], 2))  # the first one warms up
        rows.append({**row, "peak MiB": peak_mib(each)})
        if each.name == "numpy permutation":
            continue
        for metric, limit in (("seek us", MOST_SEEK_US), ("per index us", MOST_PER_INDEX_US)):
            value = row[metric][0]
            bounds.append(bound_of(each.size, f"{each.name}: {metric}", value, at_most=limit))
    return [*rows, *rows_of_state(3 if is_quick else 20)], bounds


def rows_of_state(num_turns: int) -> list[Row]:
    """Saving, and going on from the start of an epoch or from its middle."""
    with DataLoader(Images(), 4, shuffle=True, seed=1, num_workers=0, output_type="numpy") as loader:
        states = {"start": loader.state_dict()}
        for _ in zip(range(125), loader, strict=False):
            pass
        states["middle"] = loader.state_dict()
        saving = [microseconds(loader.state_dict)[0] for _ in range(num_turns)]
        size = len(json.dumps(states["middle"]))
        rows = [{"case": "state", "of": "state_dict", "us": as_list(spread(saving, 1)), "bytes": size}]
        times: dict[str, list[float]] = {name: [] for name in states}
        for _ in range(num_turns + 1):
            for name, state in states.items():

                def resume(state: Any = state) -> None:
                    loader.load_state_dict(state)
                    next(iter(loader))

                times[name].append(microseconds(resume)[0])
        for name, found in times.items():
            rows.append(
                {"case": "state", "of": f"first batch from the {name}", "us": as_list(spread(found[1:], 1))}
            )
    return rows
