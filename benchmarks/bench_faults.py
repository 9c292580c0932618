# SPDX-License-Identifier: Apache-2.0
"""What policies for faults and ledgers cost on data without faults; and how fast `lint` tries a data set.

- ``policies``: a loader with ``faults="replace"``, and one without. Both run in this process, in turns of a few
  batches in an order that changes, so the time on processors is that of all their work. Compared is that time, for
  JPEG files that are decoded in the graph, for the same where the steps run on arrays, and for samples of a few
  numbers. Beside it stands how many functions of this package are called for a batch, which nothing disturbs.
- ``ledger``: the same for a loader with a ledger. What it adds is smaller than what changes from turn to turn, so
  it is also timed alone, over and over: in the process of the loop, and in a worker. The least of many times is
  hardly disturbed. Between other work it takes longer, since caches are cold; that is timed as well.
- ``lint``: the command beside a bare loop that only reads and decodes, in as many processes, with a few samples
  and with many. The difference of the two is what samples cost without the start of processes, which is told too.

    python benchmarks/bench_faults.py [--quick] [--only SECTION] [--output FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import multiprocessing
import random
import resource
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from bench_report import spread
from calls_per_sample import calls_of_next, of_package
from nvidia.dali.types import DALIDataType
from results_file import load_average, machine, write_results

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import DataLoader, DataProvider, FaultPolicy, ImageDecoder, SampleDataGroup

say = functools.partial(print, flush=True)

MOST_COST = 1.02
LEAST_RATE = 0.9
MOST_OF_LEDGER = 0.001
BATCH_SIZE = 8
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
        sample = self.new_sample()
        sample["numbers"] = np.full((8, 4), sample_index, np.float32)
        if self.has_images:
            sample["image"] = np.fromfile(self.paths[sample_index % len(self.paths)], np.uint8)
        return sample


def make_files(folder: Path, count: int, size: tuple[int, int] = (1600, 900)) -> None:
    """Write JPEG files of so many pixels."""
    import cv2

    generator = np.random.default_rng(0)
    for number in range(count):
        small = generator.integers(0, 256, (57, 100, 3), np.uint8)
        image = cv2.resize(small, size, interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{number}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, 90])


# --- loaders, in turns ------------------------------------------------------------------------------------


@attrs.frozen
class Payload:
    """What is loaded.

    Attributes:
        what: Its name.
        run: Where the steps run.
        has_images: Whether there are image files.
        per_turn: Batches of a turn.
        num_turns: Turns of each loader.
        num_samples: Samples of an epoch; many where batches take little time, so that the start of an epoch, which
            takes as long as several batches, is no part of what is compared.
    """

    what: str
    run: Any
    has_images: bool
    per_turn: int
    num_turns: int
    num_samples: int = 640

    def make(self, folder: Path, **settings: Any) -> DataLoader:
        steps = [ImageDecoder("image", use_device_mixed=False)] if self.has_images else []
        shared: dict[str, Any] = {"run": self.run, "shuffle": True, "num_workers": 0, "num_threads": 1}
        return DataLoader(
            Files(folder, self.num_samples, self.has_images), BATCH_SIZE, steps=steps, **shared, **settings
        )


def payloads(is_quick: bool) -> list[Payload]:
    turns = 3 if is_quick else 40
    return [
        Payload("files, decoded in the graph", "graph", True, 2 if is_quick else 6, turns),
        Payload("files, decoded on arrays", "workers", True, 2 if is_quick else 6, turns),
        Payload("a few numbers", "graph", False, 2 if is_quick else 50, 3 if is_quick else 400, 1 << 20),
    ]


def batches(loader: DataLoader) -> Iterator[Any]:
    """Get batches without end."""
    while True:
        yield from loader


def compared(loaders: dict[str, DataLoader], payload: Payload) -> dict[str, Any]:
    """Processor time of loaders beside the one that is called ``without``, turn by turn, and calls of a batch."""
    endless = {name: batches(loader) for name, loader in loaders.items()}
    for each in endless.values():
        next(each)
    order, us = random.Random(0), dict[str, list[float]]()
    for _ in range(payload.num_turns):
        for name in order.sample(list(endless), len(endless)):
            start_ns = time.process_time_ns()
            for _ in itertools.islice(endless[name], payload.per_turn):
                pass
            us.setdefault(name, []).append((time.process_time_ns() - start_ns) / payload.per_turn / 1e3)
    calls = {name: of_package(calls_of_next(each)).total() for name, each in endless.items()}
    for loader in loaders.values():
        loader.close()
    of = us["without"]
    return {
        name: {
            "ratio": spread([one / other for one, other in zip(us[name], of, strict=True)]),
            "extra_us": spread([one - other for one, other in zip(us[name], of, strict=True)]),
            "us_without": spread(of),
            "extra_calls": calls[name] - calls["without"],
            "calls_without": calls["without"],
        }
        for name in us
        if name != "without"
    }


def say_compared(what: str, name: str, found: dict[str, Any]) -> None:
    ratio, extra = found["ratio"], found["extra_us"]
    limits = f"({ratio['median_at_least']:.4f} .. {ratio['median_at_most']:.4f})"
    say(
        f"{what}: {name} / without: {ratio['median']:.4f} {limits}, "
        f"{extra['median']:+.1f} us ({extra['median_at_least']:.1f} .. {extra['median_at_most']:.1f}) "
        f"of {found['us_without']['median']:.0f} per batch, "
        f"{found['extra_calls']:+d} calls of {found['calls_without']}"
    )


def measure_policies(folder: Path, is_quick: bool) -> list[dict[str, Any]]:
    """Measure what policies cost."""
    policies = {
        "without": None,
        "replace": FaultPolicy(samples="replace", max_failed=10),
    }
    rows = []
    for payload in payloads(is_quick):
        loaders = {name: payload.make(folder, faults=policy) for name, policy in policies.items()}
        for name, found in compared(loaders, payload).items():
            say_compared(payload.what, name, found)
            rows.append({"payload": payload.what, "policy": name, **found})
    return rows


# --- ledger -----------------------------------------------------------------------------------------------


def least_us(function: Callable[[], Any], is_quick: bool) -> float:
    return round(min(timeit.repeat(function, number=50, repeat=5 if is_quick else 4000)) / 50 * 1e6, 2)


def ledger_alone(folder: Path, is_quick: bool) -> float:
    """Time in microseconds of what is done for a ledger with each batch."""
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        loader = stack.enter_context(payloads(is_quick)[2].make(folder, ledger=ledger))
        loop = iter(loader)
        next(loop)
        run = loader._run
        after = run.progress.delivered
        note, samples = run.ledger.note, run.pipelines.samples_received
        return least_us(lambda: note(after.epoch, after.batch - 1, *samples()), is_quick)


def ledger_between(folder: Path, is_quick: bool) -> dict[str, float]:
    """Time of the same in a loop over batches of a few numbers, where caches hold what other work needs."""
    times_us: list[float] = []
    with tempfile.TemporaryDirectory(dir=folder) as ledger:
        loader = payloads(is_quick)[2].make(folder, ledger=ledger)
        endless = batches(loader)
        next(endless)
        run: Any = loader._run
        samples, note, start_ns = run.pipelines.samples_received, run.ledger.note, 0

        def begin() -> Any:
            nonlocal start_ns
            start_ns = time.perf_counter_ns()
            return samples()

        def end(*arguments: Any) -> None:
            note(*arguments)
            times_us.append((time.perf_counter_ns() - start_ns) / 1e3)

        run.pipelines.samples_received, run.ledger.note = begin, end
        for _ in itertools.islice(endless, 50 if is_quick else 5000):
            pass
        loader.close()
    return spread(times_us)


def measure_ledger(folder: Path, is_quick: bool) -> dict[str, Any]:
    """Measure what a ledger costs."""
    rows = []
    for payload in payloads(is_quick)[1:]:
        with tempfile.TemporaryDirectory(dir=folder) as ledger:
            loaders = {"without": payload.make(folder), "ledger": payload.make(folder, ledger=ledger)}
            found = compared(loaders, payload)["ledger"]
        say_compared(payload.what, "ledger", found)
        rows.append({"payload": payload.what, **found})
    alone_us = ledger_alone(folder, is_quick)
    between = ledger_between(folder, is_quick)
    say(f"batches of {BATCH_SIZE}: {alone_us} us alone, {in_words(between)} us between other work")
    return {"rows": rows, "alone_us": alone_us, "between_other_work_us": between}


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


def run_bare_loop(provider: Files, num_processes: int) -> None:
    """Run the bare loop over all samples."""
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


def run_lint(folder: Path, count: int, num_processes: int) -> None:
    """Run the command."""
    (folder / "lint.txt").write_text(f"{folder} {count}")
    command = [sys.executable, "-m", package.__name__, "lint", "bench_faults:provider_for_lint"]
    environment = {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
    subprocess.run(
        [*command, "--workers", str(num_processes)],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def children_s() -> float:
    """Processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_lint(folder: Path, is_quick: bool) -> dict[str, Any]:
    """Measure the command and the bare loop, each with a few samples and with many."""
    counts = (32, 64) if is_quick else (200, 4200)
    races: dict[str, Callable[[int], object]] = {
        "lint": lambda count: run_lint(folder, count, 2),
        "bare": lambda count: run_bare_loop(Files(folder, count), 2),
    }
    rounds = []
    for number in range(2 if is_quick else 5):
        found: dict[str, dict[str, tuple[float, float]]] = {"wall": {}, "processor": {}}
        for name in [*races][:: 1 if number % 2 else -1]:
            both = []
            for count in counts:
                before_s, start_s = children_s(), time.perf_counter()
                races[name](count)
                both.append((time.perf_counter() - start_s, children_s() - before_s))
            found["wall"][name], found["processor"][name] = zip(*both, strict=True)
        rounds.append({kind: lint_ratios(times, counts) for kind, times in found.items()})
    measured: dict[str, Any] = {"counts": counts}
    for kind in ("wall", "processor"):
        measured[kind] = {key: spread([each[kind][key] for each in rounds]) for key in rounds[0][kind]}
        of = measured[kind]
        say(
            f"lint / bare loop, samples per second ({kind} time): {in_words(of['rate'])} of {counts[1]} samples, "
            f"{in_words(of['rate_without_start'])} without the start, which takes {in_words(of['start_s'])} s, "
            f"of the bare loop {in_words(of['start_of_bare_s'])} s"
        )
    return measured


def in_words(values: dict[str, float]) -> str:
    return f"{values['median']:.2f} ({values['quarter']:.2f} .. {values['three_quarters']:.2f})"


def lint_ratios(times: dict[str, tuple[float, float]], counts: tuple[int, int]) -> dict[str, float]:
    """Rates of the command to those of the bare loop, and what both take before the first sample."""
    per_sample = {name: (many - few) / (counts[1] - counts[0]) for name, (few, many) in times.items()}
    start_s = {name: few - counts[0] * per_sample[name] for name, (few, _) in times.items()}
    return {
        "rate": times["bare"][1] / times["lint"][1],
        "rate_without_start": per_sample["bare"] / per_sample["lint"],
        "start_s": start_s["lint"],
        "start_of_bare_s": start_s["bare"],
        "ms_per_sample": 1e3 * per_sample["lint"],
    }


# --- all --------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Path, bool], Any]] = {
    "policies": measure_policies,
    "ledger": measure_ledger,
    "lint": measure_lint,
}


def targets(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The bounds, and what was measured."""
    rows = [
        (
            f"{row['payload']}: {row['policy']} / without, processor time, at most",
            MOST_COST,
            row["ratio"]["median"],
        )
        for row in found.get("policies", ())
    ]
    if "ledger" in found:
        measured = found["ledger"]
        batch_us = measured["rows"][0]["us_without"]["median"]
        times_us = {
            "timed alone": measured["alone_us"],
            "between other work": measured["between_other_work_us"]["median"],
        }
        for how, us in times_us.items():
            what = f"ledger, {how}: share of a batch of {BATCH_SIZE} files, decoded, at most"
            rows.append((what, MOST_OF_LEDGER, round(us / batch_us, 5)))
    for kind in ("wall", "processor") if "lint" in found else ():
        what = (
            f"lint / bare loop, samples per second of {kind} time, {found['lint']['counts'][1]} samples, at least"
        )
        rows.append((what, LEAST_RATE, found["lint"][kind]["rate"]["median"]))
    return [
        {
            "target": f"{what} {limit:g}",
            "limit": limit,
            "value": value,
            "is_met": bool(value >= limit if what.endswith("least") else value <= limit),
        }
        for what, limit, value in rows
    ]


def main(command_line: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="too short to mean anything")
    parser.add_argument("--only", choices=[*SECTIONS], help="one section")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    options = parser.parse_args(command_line)
    load_averages = [load_average()]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.quick:
            make_files(folder, 4, (160, 90))
        else:
            make_files(folder, 64)
        for section, measure in SECTIONS.items():
            if options.only in (None, section):
                found[section] = measure(folder, options.quick)
    load_averages.append(load_average())
    met = targets(found)
    for each in met:
        say(f"{each['target']}: is {each['value']}, {'met' if each['is_met'] else 'MISSED'}")
    about = {**machine(), "load_average_before_and_after": load_averages}
    write_results(options.output, {**about, "sections": found, "targets": met})


if __name__ == "__main__":
    main()
