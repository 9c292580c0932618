# SPDX-License-Identifier: Apache-2.0
"""What steps and chains of steps cost, beside the same work by hand in DALI, and with OpenCV in PyTorch.

The data are generated. In each race the contestants do the same, on the CPU:

- ``step, ...``: one step on images of 1600 x 900 pixels; the image is always the same, so nothing is loaded.
- ``chain, six cameras``: six such JPEGs per sample, with matrices and 3D boxes, as for StreamPETR. Decode, resize,
  crop and mirror, normalize; turn and scale the scene.
- ``chain, six cameras, reduced decoding``: the same, where JPEGs may be decoded at half their size.
- ``chain, detection``: one JPEG per sample, as for detectors of 2D boxes. Decode, distort colors, zoom and
  mirror with the boxes, normalize, pad to tiles, draw heatmaps.

Steps of the library run ``in the graph``, ``in the workers`` (as many as can), or ``auto``: by the rule of the
library. ``DALI by hand`` is in `step_by_hand`, ``PyTorch, OpenCV`` is
``torch.utils.data.DataLoader`` with `step_torch`. All have two worker processes, but single steps in the graph,
which load nothing; DALI has two threads besides.

They run interleaved, in turns, in an order that changes from turn to turn; each turn gives a ratio. Each
contestant first uses up what it has loaded ahead, for longer than the one before goes on to load. Printed are
medians and ranges: rates, the time on processors that an image (of a chain: a sample) takes in all processes
together, which is the price, and how many cores are busy. Then the targets. The load averages in the file tell
whether other programs ran at the same time.

    python benchmarks/bench_steps.py [--quick] [--only PART ...] [--output FILE]
    python benchmarks/bench_steps.py --table FILE        print the prices in a file as a table, in Markdown
    python benchmarks/bench_steps.py --chain-table FILE  the same for the chains
    python benchmarks/bench_steps.py --docs FILE         write both into the documentation

A part is ``steps``, ``chains``, or how names of races begin. With ``--only``, other races keep their figures in
the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from chain_contestants import AUTO, DETECTION, DISTORTED_LAST, REDUCED, SIX_CAMERAS, Chain
from races import Pace, PriceTarget, Race, Target, judged, run, show, show_targets
from results_file import load_average, machine, write_results
from step_contestants import (
    BY_HAND,
    GRAPH,
    NUM_THREADS,
    TORCH,
    WORKERS,
    StepCase,
    single_step,
    step_cases,
)
from step_data import DrivingSamples, camera_picture, jpeg_of

PAGE = Path(__file__).parents[1] / "docs" / "dali_pipeline_framework" / "step_prices.md"
LEAST_TO_HAND = 0.95
LEAST_TO_TORCH = {SIX_CAMERAS.name: 1.6, REDUCED.name: 1.2, DETECTION.name: 1.2}
MOST_PRICE_TO_TORCH = {SIX_CAMERAS.name: 0.6}
PARTS = {"steps": "step, ", "chains": "chain, "}
# Four batches in the workers of PyTorch, on two cores.
_FILLING_SECONDS_PER_IMAGE = 0.06


@attrs.frozen
class Scale:
    """How much is measured.

    Attributes:
        num_workers: Of all contestants with workers.
        batch_size: Images.
        step_pace: How long, for each step.
        chain_pace: The same for each chain.
        num_samples: Different samples.
        step_cases: Which steps.
        chains: Which chains, with batches of how many samples.
    """

    num_workers: int
    batch_size: int
    step_pace: Pace
    chain_pace: Pace
    num_samples: int
    step_cases: slice
    chains: tuple[tuple[Chain, int], ...]


FULL = Scale(
    num_workers=2,
    batch_size=4,
    step_pace=Pace(4, 0.4, 0.5),
    chain_pace=Pace(4, 3.0, 0.5, 6),
    num_samples=8,
    step_cases=slice(None),
    chains=((SIX_CAMERAS, 2), (SIX_CAMERAS, 4), (REDUCED, 4), (DETECTION, 4), (4)),
)
QUICK = Scale(
    num_workers=0,
    batch_size=1,
    step_pace=Pace(1, 0.02, 0.0),
    chain_pace=Pace(1, 0.02, 0.0),
    num_samples=1,
    step_cases=slice(3, 4),
    chains=((REDUCED, 1), (DETECTION, 1)),
)


def races(folder: Path, scale: Scale) -> list[Race]:
    """Make the data, and say who is to work on them."""
    samples = DrivingSamples.generate(folder, scale.num_samples)
    return [
        *(step_race(case, scale) for case in step_cases()[scale.step_cases]),
        *(chain_race(chain, batch_size, samples, scale) for chain, batch_size in scale.chains),
    ]


def step_race(case: StepCase, scale: Scale) -> Race:
    picture = camera_picture()
    image = jpeg_of(picture) if case.is_encoded else picture
    return Race(
        f"step, {case.name}",
        "images",
        lambda resources: single_step(case, image, scale.batch_size, scale.num_workers, resources),
        (Target(GRAPH, BY_HAND, LEAST_TO_HAND),),
        ((GRAPH, TORCH), (WORKERS, TORCH), (WORKERS, GRAPH)),
    )


def chain_race(chain: Chain, batch_size: int, samples: DrivingSamples, scale: Scale) -> Race:
    targets = [Target(AUTO, TORCH, LEAST_TO_TORCH[chain.name])]
    if chain.by_hand is not None:
        targets.append(Target(GRAPH, BY_HAND, LEAST_TO_HAND))
    most_price = MOST_PRICE_TO_TORCH.get(chain.name)
    others = (*chain.forms, DISTORTED_LAST, BY_HAND)
    return Race(
        f"chain, {chain.name}, batches of {batch_size}",
        "samples",
        lambda resources: chain.race(samples, batch_size, scale.num_workers, resources),
        tuple(targets),
        tuple((one, TORCH) for one in others),
        lambda: {"at": {"batch_size": batch_size}},
        price_targets=() if most_price is None else (PriceTarget(AUTO, TORCH, most_price),),
        filling_seconds=_FILLING_SECONDS_PER_IMAGE * chain.num_images * batch_size * bool(scale.num_workers),
    )


# --- tables --------------------------------------------------------------------------------------------------


def price_table(report: dict[str, Any]) -> str:
    """The prices of the steps, in Markdown."""
    rows = {row["race"].removeprefix(PARTS["steps"]): row for row in _rows(report, "steps")}
    contestants = _contestants([*rows.values()], (GRAPH, WORKERS, BY_HAND, TORCH))
    lines = [f"| step | {' | '.join(contestants)} |", "|---|" + "--:|" * len(contestants)]
    for name, row in rows.items():
        step, comma, detail = name.partition(", ")
        prices = [f"{1e3 * row['processor_ms_each'][each]['median']:.0f}" for each in contestants]
        lines.append(f"| `{step}`{comma}{detail} | {' | '.join(prices)} |")
    return "\n".join(lines)


def chain_table(report: dict[str, Any]) -> str:
    """What the chains deliver and cost, in Markdown."""
    lines = [
        "| chain | | samples per second | times PyTorch's | processor ms per sample | busy cores |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in _rows(report, "chains"):
        ratios = {ratio["of"]: f"{ratio['median']:.2f}" for ratio in row["ratios"] if ratio["to"] == TORCH}
        chain = row["race"].removeprefix(PARTS["chains"])
        for name, rate in row["per_second"].items():
            price, busy = row["processor_ms_each"][name]["median"], row.get("busy_cores", {}).get(name)
            cores = "" if busy is None else f"{busy['median']:.2f}"
            figures = f"{rate['median']:.1f} | {ratios.get(name, '')} | {price:.1f} | {cores}"
            lines.append(f"| {chain} | {name} | {figures} |")
            chain = ""
    return "\n".join(lines)


def with_tables(page: str, report: dict[str, Any]) -> str:
    """A page of the documentation, with the tables of a report where comments in it name them."""
    for option, table in (("--table", price_table), ("--chain-table", chain_table)):
        marked = re.compile(rf"(<!-- table: \S+ {option} .*-->\n\n)(?:\|.*\n)*")
        page, count = marked.subn(partial(_with_table, table(report)), page)
        if count != 1:
            raise ValueError(f"The page has {count} comments for {option}, and should have one.")
    return page


def _with_table(table: str, found: re.Match[str]) -> str:
    return f"{found[1]}{table}\n"


def _rows(report: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [row for row in report["results"] if row["race"].startswith(PARTS[part])]


def _contestants(rows: list[dict[str, Any]], names: tuple[str, ...]) -> list[str]:
    """Those that are in all rows."""
    return [name for name in names if all(name in row["processor_ms_each"] for row in rows)]


# --- the program ---------------------------------------------------------------------------------------------


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Steps, beside the same work in DALI and with OpenCV.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--only", nargs="+", metavar="PART", help="steps, chains, or how names of races begin")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the prices in a file of results")
    parser.add_argument("--chain-table", type=Path, metavar="FILE", help="print the chains in a file of results")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write both tables into the documentation")
    arguments = parser.parse_args(command_line)
    if arguments.table is not None:
        print(price_table(json.loads(arguments.table.read_text())))
    elif arguments.chain_table is not None:
        print(chain_table(json.loads(arguments.chain_table.read_text())))
    elif arguments.docs is not None:
        PAGE.write_text(with_tables(PAGE.read_text(), json.loads(arguments.docs.read_text())))
    else:
        measure(arguments.quick, [PARTS.get(name, name) for name in arguments.only or [""]], arguments.output)


def measure(is_quick: bool, chosen: list[str], output: Path | None) -> None:
    """Run the races whose names begin as chosen, print and write their figures."""
    cores = sorted(os.sched_getaffinity(0))
    os.environ["DALI_AFFINITY_MASK"] = ",".join(str(cores[each % len(cores)]) for each in range(NUM_THREADS))
    scale = QUICK if is_quick else FULL
    about = {**machine(), "workers": scale.num_workers, "threads_of_pipeline": NUM_THREADS}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    load_averages = [load_average()]
    rows, targets = [], []
    with tempfile.TemporaryDirectory() as folder:
        for race in races(Path(folder), scale):
            if race.name.startswith(tuple(chosen)):
                rows.append(run(race, scale.step_pace if race.name.startswith("step") else scale.chain_pace))
                show(rows[-1])
                targets += judged(race, rows[-1])
    load_averages.append(load_average())
    print(f"\nload average before and after: {load_averages}")
    show_targets(targets)
    if output is not None:
        report = {**about, "load_average_before_and_after": load_averages, "results": rows, "targets": targets}
        if chosen != [""] and output.exists():
            report = with_others(report, json.loads(output.read_text()), chosen)
        write_results(output, report)


def with_others(report: dict[str, Any], before: dict[str, Any], chosen: list[str]) -> dict[str, Any]:
    """Add what is kept of the figures that the file had before: those of races that were not chosen."""
    kept = {
        part: [each for each in before[part] if not each[name].startswith(tuple(chosen))]
        for part, name in (("results", "race"), ("targets", "target"))
    }

    def order(each: dict[str, Any]) -> bool:
        return str(each.get("race", each.get("target"))).startswith(PARTS["chains"])

    return {**report, **{part: sorted([*kept[part], *report[part]], key=order) for part in kept}}


if __name__ == "__main__":
    main()
