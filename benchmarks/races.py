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
        most_difference: Of images (they have an axis of three channels), in the mean; all else must be equal.

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
        most_turns: Most turns of each contestant, where other programs disturb them.
        num_seconds: Length of a turn.
        warm_up_seconds: Time before a turn that is not measured. The first batches were loaded while others ran,
            and the contestant before fills its queues. Nothing pauses: on virtual machines it can take a second
            until processors that were idle are as quick again where threads wake each other often.
    """

    num_turns: int
    num_seconds: float
    warm_up_seconds: float
    most_turns: int = 0


@attrs.frozen
class Target:
    """A ratio of throughputs that is to be reached."""

    faster: str
    than: str
    at_least: float


@attrs.frozen
class PriceTarget:
    """A ratio of processor times for each unit that is not to be exceeded."""

    cheaper: str
    than: str
    at_most: float


@attrs.frozen
class Race:
    """Contestants that deliver the same.

    Attributes:
        name: What they deliver.
        unit: What is counted.
        start: Starts them; what is to be closed afterwards goes onto the stack.
        targets: What is to be reached.
        price_targets: The same for processor time.
        reported: Further pairs whose ratio is of interest.
        further: Gives further figures of the race.
        most_difference: Where given, first batches are compared (`require_agreement`).
        filling_seconds: How long a contestant goes on to fill its queues after its turn. It is added to the time
            before a turn that is not measured.
    """

    name: str
    unit: str
    start: Callable[[ExitStack], Mapping[str, GetBatch]]
    targets: tuple[Target, ...] = ()
    reported: tuple[tuple[str, str], ...] = ()
    further: Callable[[], dict[str, Any]] = dict
    most_difference: float | None = None
    filling_seconds: float = 0.0
    price_targets: tuple[PriceTarget, ...] = ()


def prepare_workers() -> None:
    """Tell what all workers need, before the first one starts."""
    multiprocessing.set_forkserver_preload(_IMPORTED_ONCE)


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
    prepare_workers()
    with ExitStack() as resources:
        contestants = race.start(resources)
        if race.most_difference is not None:
            require_agreement(dict(contestants), race.most_difference)
        warm_up_seconds = pace.warm_up_seconds + race.filling_seconds
        rounds = take_turns(contestants, attrs.evolve(pace, warm_up_seconds=warm_up_seconds))
    turns = {name: [each[name] for each in rounds] for name in contestants}
    rates = {name: [turn.rate for turn in of_name] for name, of_name in turns.items()}
    prices = {name: [turn.processor_ms for turn in of_name] for name, of_name in turns.items()}
    pairs = [(target.faster, target.than) for target in race.targets]
    pairs += [(target.cheaper, target.than) for target in race.price_targets]
    pairs = [*dict.fromkeys([*pairs, *race.reported])]
    return {
        "race": race.name,
        "unit": race.unit,
        "per_second": {name: spread(values, 1) for name, values in rates.items()},
        "processor_ms_each": {name: spread(values, 3) for name, values in prices.items()},
        "busy_cores": {name: spread([turn.busy_cores for turn in of_name], 2) for name, of_name in turns.items()},
        "others_cores": spread([others_cores(each) for each in rounds], 2),
        "ratios": _ratios(rates, pairs),
        "processor_ratios": _ratios(prices, pairs),
        **race.further(),
    }


def _ratios(values: dict[str, list[float]], pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Of turns that follow each other."""
    return [
        {"of": one, "to": other, **spread([a / b for a, b in zip(values[one], values[other], strict=True)], 3)}
        for one, other in pairs
        if {one, other} <= values.keys()
    ]


def spread(values: list[float], num_digits: int) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), num_digits),
        "min": round(min(values), num_digits),
        "max": round(max(values), num_digits),
    }


def judged(race: Race, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets of a race, and whether they are met."""
    found = []
    for target in race.targets:
        value = _ratio_of(row["ratios"], target.faster, target.than)
        what = f"{race.name}: {target.faster} to {target.than}, at least {target.at_least:g}"
        is_met = value >= target.at_least
        found.append({"target": what, "limit": target.at_least, "value": value, "is_met": is_met})
    for price in race.price_targets:
        value = _ratio_of(row["processor_ratios"], price.cheaper, price.than)
        what = f"{race.name}: processor time of {price.cheaper} to {price.than}, at most {price.at_most:g}"
        is_met = value <= price.at_most
        found.append({"target": what, "limit": price.at_most, "value": value, "is_met": is_met})
    return found


def _ratio_of(ratios: list[dict[str, Any]], one: str, other: str) -> float:
    return float(next(each["median"] for each in ratios if (each["of"], each["to"]) == (one, other)))


# --- reporting ------------------------------------------------------------------------------------------


def in_words(values: dict[str, float], form: str) -> str:
    return f"{values['median']:{form}} [{values['min']:{form}}, {values['max']:{form}}]"


def show(row: dict[str, Any]) -> None:
    print(f"\n{row['race']}, {row['unit']} per second, and milliseconds on processors for each: median [min, max]")
    for name, rates in row["per_second"].items():
        milliseconds = in_words(row["processor_ms_each"][name], ".2f")
        busy = row["busy_cores"][name]["median"]
        print(f"  {name:32s} {in_words(rates, '.0f'):24s} {milliseconds:28s} {busy:.2f} busy cores")
    for ratio in row["ratios"]:
        print(f"  {ratio['of']} to {ratio['to']}: {in_words(ratio, '.2f')}", flush=True)


def show_targets(targets: list[dict[str, Any]]) -> None:
    print("\ntargets")
    for each in targets:
        verdict = "met" if each["is_met"] else "MISSED"
        print(f"  {each['target']}, is {each['value']:.2f}: {verdict}")
