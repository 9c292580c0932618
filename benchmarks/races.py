# SPDX-License-Identifier: Apache-2.0
"""Contestants that deliver the same, measured in turns.

They run interleaved, in an order that changes from turn to turn; each turn gives a rate, and a ratio of rates.
Before that, their first batches can be compared. While other programs use the machine, turns are repeated, and
those count during which the others did least. Workers of all contestants are forked by one server, which has
imported what they need.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
import psutil
from results_file import Row, bound_of

# Processors that other programs may use during a turn.
MOST_CORES_OF_OTHERS = 0.2

# Gets the next batch, and returns its size.
GetBatch = Callable[[], int]

START_METHOD = "forkserver"  # DALI's threads would not survive a fork of this process
_FRAMEWORK = "accvlab.dali_pipeline_framework"
_IMPORTED_ONCE = [
    *("av", "cv2", "PIL.Image", "torch", "torch.utils.data", "nvidia.dali._multiproc.worker"),
    *(f"{_FRAMEWORK}.{room}" for room in ("inputs", "workers.loading", "loader.data_loader", "processing_steps")),
]


@attrs.frozen
class Contestant:
    """A `GetBatch` that can tell what it delivers.

    Attributes:
        deliver: Gets the next batch.
        batch_size: Samples of a batch.
        sample: Gets the arrays of a sample by name, of a batch and the place of the sample in it.
    """

    deliver: Callable[[], Any]
    batch_size: int
    sample: Callable[[Any, int], dict[str, Any]]

    def __call__(self) -> int:
        self.deliver()
        return self.batch_size


class DisagreementError(Exception):
    """Contestants deliver different arrays."""


def require_agreement(contestants: dict[str, Contestant], most_difference: float) -> None:
    """Compare the first and the last sample of the next batch of each, in the fields that they have in common.

    Args:
        contestants: All must be at the same batch.
        most_difference: Mean difference of images, which have an axis of three channels; all else must be equal.

    Raises:
        DisagreementError: They differ.
    """
    batches = [(name, each, each.deliver()) for name, each in contestants.items()]
    first_name, first, first_batch = batches[0]
    for place in {0, first.batch_size - 1}:
        expected = first.sample(first_batch, place)
        for name, each, batch in batches[1:]:
            found = each.sample(batch, place)
            common = expected.keys() & found.keys()
            wrong = [field for field in common if not _is_same(expected[field], found[field], most_difference)]
            if wrong or not common:
                raise DisagreementError(f"{name} and {first_name} differ in {sorted(wrong) or 'all names'}.")


def _is_same(one: Any, other: Any, most_difference: float) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.ndim == 3 and 3 in one.shape:
        return float(np.mean(np.abs(one.astype(np.float32) - other.astype(np.float32)))) <= most_difference
    return bool(np.array_equal(one, other))


@attrs.frozen
class Pace:
    """How long is measured.

    Attributes:
        num_turns: Turns of each contestant that count, after one that warms up.
        num_seconds: Length of a turn.
        warm_up_seconds: Time before a turn that is not measured. The first batches were loaded while others ran,
            and the contestant before fills its queues. Nothing pauses: on virtual machines it can take a second
            until processors that were idle are as quick again where threads wake each other often.
        most_turns: Most turns of each contestant, where other programs disturb them.
    """

    num_turns: int
    num_seconds: float
    warm_up_seconds: float
    most_turns: int = 0


QUICK = Pace(1, 0.01, 0.0)


@attrs.frozen
class Target:
    """A ratio of throughputs that is to be reached."""

    faster: str
    than: str
    at_least: float


@attrs.frozen
class Race:
    """Contestants that deliver the same.

    Attributes:
        name: What they deliver.
        unit: What is counted.
        start: Starts them; what is to be closed afterwards goes onto the stack. Ratios are those of the first one.
        targets: What is to be reached.
        most_difference: Where given, first batches are compared (`require_agreement`).
        filling_seconds: How long a contestant goes on to fill its queues after its turn. It is added to the time
            before a turn that is not measured.
    """

    name: str
    unit: str
    start: Callable[[ExitStack], Mapping[str, GetBatch]]
    targets: tuple[Target, ...] = ()
    most_difference: float | None = None
    filling_seconds: float = 0.0


# --- measuring ------------------------------------------------------------------------------------------


def processor_seconds(workers: list[psutil.Process]) -> float:
    """Time on processors of this process and its workers until now; that of workers counts hundredths."""
    times = [worker.cpu_times() for worker in workers]
    return time.process_time() + sum(each.user + each.system for each in times)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def get_batches(get_batch: GetBatch, num_seconds: float) -> tuple[int, float]:
    """Get batches for a time: their units, and the time that it took."""
    start, num_units = time.perf_counter(), 0
    while time.perf_counter() - start < num_seconds:
        num_units += get_batch()
    return num_units, time.perf_counter() - start


def machine_seconds() -> float:
    """Time on processors of all programs until now, and what other virtual machines took."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0)


@attrs.frozen
class Turn:
    """What a contestant did.

    Attributes:
        rate: Units per second.
        processor_ms: Milliseconds on processors per unit.
        others_cores: Processors that other programs used at the same time.
    """

    rate: float
    processor_ms: float
    others_cores: float

    @property
    def busy_cores(self) -> float:
        return self.rate * self.processor_ms / 1e3


def take_turn(get_batch: GetBatch, pace: Pace) -> Turn:
    workers = psutil.Process().children(recursive=True)
    get_batches(get_batch, pace.warm_up_seconds)
    own, of_all = processor_seconds(workers), machine_seconds()
    num_units, num_seconds = get_batches(get_batch, pace.num_seconds)
    own, of_all = processor_seconds(workers) - own, machine_seconds() - of_all
    return Turn(num_units / num_seconds, 1e3 * own / num_units, max(of_all - own, 0.0) / num_seconds)


def take_turns(contestants: Mapping[str, GetBatch], pace: Pace) -> list[dict[str, Turn]]:
    """Turns of all contestants, one after the other."""
    rounds: list[dict[str, Turn]] = []
    order, shuffle = list(contestants), random.Random(0)
    num_quiet = 0
    while num_quiet < pace.num_turns and len(rounds) <= max(pace.num_turns, pace.most_turns):
        shuffle.shuffle(order)
        rounds.append({name: take_turn(contestants[name], pace) for name in order})
        num_quiet += len(rounds) > 1 and others_cores(rounds[-1]) < MOST_CORES_OF_OTHERS
    return sorted(rounds[1:], key=others_cores)[: pace.num_turns]  # the first one warms up


def others_cores(turns: dict[str, Turn]) -> float:
    return max(turn.others_cores for turn in turns.values())


def run(race: Race, pace: Pace) -> dict[str, Any]:
    multiprocessing.set_forkserver_preload(_IMPORTED_ONCE)
    with ExitStack() as resources:
        contestants = race.start(resources)
        if race.most_difference is not None:
            require_agreement(dict(contestants), race.most_difference)
        warm_up_seconds = pace.warm_up_seconds + race.filling_seconds
        rounds = take_turns(contestants, attrs.evolve(pace, warm_up_seconds=warm_up_seconds))
    turns = {name: [each[name] for each in rounds] for name in contestants}
    rates = {name: [turn.rate for turn in of_name] for name, of_name in turns.items()}
    first, *others = rates
    return {
        "race": race.name,
        "unit": race.unit,
        "per_second": {name: spread(values, 1) for name, values in rates.items()},
        "processor_ms_each": {
            name: spread([turn.processor_ms for turn in of_name], 3) for name, of_name in turns.items()
        },
        "busy_cores": {name: spread([turn.busy_cores for turn in of_name], 2) for name, of_name in turns.items()},
        "others_cores": spread([others_cores(each) for each in rounds], 2),
        "ratios": [
            {"of": first, "to": name, **spread([a / b for a, b in zip(rates[first], rates[name], strict=True)], 3)}
            for name in others
        ],
    }


def spread(values: list[float], num_digits: int) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), num_digits),
        "min": round(min(values), num_digits),
        "max": round(max(values), num_digits),
    }


def judged(race: Race, row: dict[str, Any]) -> list[Row]:
    """The targets of a race, and whether they are met."""
    found = []
    ratios = {(each["of"], each["to"]): float(each["median"]) for each in row["ratios"]}
    for target in race.targets:
        value = ratios[target.faster, target.than]
        figure = f"rate: {target.faster} / {target.than}"
        found.append(bound_of(race.name, figure, value, at_least=target.at_least))
    return found


# --- rows of results --------------------------------------------------------------------------------------


def run_all(races: Iterable[Race], pace: Pace) -> tuple[list[Row], list[Row]]:
    """Rows and bounds of races, which are printed as they come."""
    rows, bounds = [], []
    for race in races:
        found = run(race, pace)
        rows += rows_of(found)
        bounds += judged(race, found)
        ratios = ", ".join(f"{each['median']:.2f} times {each['to']}" for each in found["ratios"])
        print(f"{race.name}: {found['ratios'][0]['of']} has {ratios}", flush=True)
    return rows, bounds


def rows_of(found: dict[str, Any]) -> list[Row]:
    """A row for each contestant of a race."""
    ratios = {each["to"]: each for each in found["ratios"]}
    rows = []
    for name, rate in found["per_second"].items():
        figures = {
            f"{found['unit']} per second": rate,
            "CPU ms each": found["processor_ms_each"][name],
            "busy cores": found["busy_cores"][name],
            "ratio": ratios.get(name),
            "cores of others": found["others_cores"] if not rows else None,
        }
        rows.append(
            {"case": found["race"], "of": name, **{key: as_list(each) for key, each in figures.items() if each}}
        )
    return rows


def as_list(figures: Mapping[str, float]) -> list[float]:
    return [figures[name] for name in ("median", "min", "max")]
