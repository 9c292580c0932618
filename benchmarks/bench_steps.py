# SPDX-License-Identifier: Apache-2.0
"""What steps and chains of steps cost, beside the same work by hand in DALI, and with OpenCV in PyTorch.

The data are generated. In each race the contestants do the same, on the CPU:

- ``step, ...``: one step on images of 1600 x 900 pixels; the image is always the same, so nothing is loaded.
- ``chain, detection``: one such JPEG per sample, as for detectors of 2D boxes. Decode, distort colors, zoom and
  mirror with the boxes, normalize, pad to tiles, draw heatmaps.

``steps`` are those of the library, ``DALI by hand`` is in `step_by_hand`: both have two threads, and for the
chain one worker that reads files. ``PyTorch, OpenCV`` is ``torch.utils.data.DataLoader`` with two workers, in
`step_torch`. Further variants of the chain change what a user might change: colors are distorted at last, where
images are smaller, or each thread of DALI keeps to a core. A chain of six cameras is measured by `bench`.

They run interleaved, in turns of some tenths of a second, in an order that changes from turn to turn; each turn
gives a ratio. Printed are medians and ranges, and the time on processors that an image (of a chain: a sample)
takes in all processes together: the price. Then the targets. The load
averages in the file tell whether other programs ran at the same time.

    python benchmarks/bench_steps.py [--quick] [--only RACE ...] [--output FILE]
    python benchmarks/bench_steps.py --table FILE       print the prices in a file as a table, in Markdown
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from races import Pace, Race, Target, judged, machine, run, show, show_targets
from step_contestants import (
    BY_HAND,
    DISTORTED_LAST,
    NUM_THREADS,
    PINNED,
    STEPS,
    TORCH,
    StepCase,
    chain,
    single_step,
    step_cases,
)
from step_data import DrivingSamples, camera_picture, jpeg_of

LEAST_TO_HAND = 0.95


@attrs.frozen
class Scale:
    """How much is measured.

    Attributes:
        num_workers: Of PyTorch.
        batch_size: Images, or samples.
        step_pace: How long, for each step.
        chain_pace: The same for each chain.
        num_samples: Different samples.
        step_cases: Which steps.
    """

    num_workers: int
    batch_size: int
    step_pace: Pace
    chain_pace: Pace
    num_samples: int
    step_cases: slice


FULL = Scale(2, 4, Pace(4, 0.3, 0.5), Pace(5, 0.8, 1.0), 8, slice(None))
QUICK = Scale(0, 1, Pace(1, 0.02, 0.0), Pace(1, 0.02, 0.0), 1, slice(3, 4))


def races(folder: Path, scale: Scale) -> list[Race]:
    """Make the data, and say who is to work on them."""
    samples = DrivingSamples.generate(folder, scale.num_samples)
    return [
        *(step_race(case, scale) for case in step_cases()[scale.step_cases]),
        chain_race(samples, scale),
    ]


def step_race(case: StepCase, scale: Scale) -> Race:
    picture = camera_picture()
    image = jpeg_of(picture) if case.is_encoded else picture
    return Race(
        f"step, {case.name}",
        "images",
        lambda resources: single_step(case, image, scale.batch_size, scale.num_workers),
        (Target(STEPS, BY_HAND, LEAST_TO_HAND),),
        ((STEPS, TORCH),),
    )


def chain_race(samples: DrivingSamples, scale: Scale) -> Race:
    return Race(
        "chain, detection",
        "samples",
        lambda resources: chain("detection", samples, scale.batch_size, scale.num_workers, resources),
        (Target(STEPS, BY_HAND, LEAST_TO_HAND),),
        tuple((STEPS, other) for other in (DISTORTED_LAST, TORCH, PINNED)),
    )


def price_table(report: dict[str, Any]) -> str:
    """The prices of the steps, in Markdown."""
    contestants = (STEPS, BY_HAND, TORCH)
    lines = [f"| step | {' | '.join(('this library', *contestants[1:]))} |", "|---|" + "--:|" * len(contestants)]
    for row in report["results"]:
        kind, _, name = row["race"].partition(", ")
        if kind == "step":
            step, comma, detail = name.partition(", ")
            prices = [f"{1e3 * row['processor_ms_each'][each]['median']:.0f}" for each in contestants]
            lines.append(f"| `{step}`{comma}{detail} | {' | '.join(prices)} |")
    return "\n".join(lines)


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Steps, beside the same work in DALI and with OpenCV.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--only", nargs="+", metavar="RACE", help="races whose names begin so")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the prices in a file of results")
    arguments = parser.parse_args(command_line)
    if arguments.table is not None:
        print(price_table(json.loads(arguments.table.read_text())))
        return
    chosen = tuple(arguments.only or [""])
    cores = sorted(os.sched_getaffinity(0))
    os.environ["DALI_AFFINITY_MASK"] = ",".join(str(cores[each % len(cores)]) for each in range(NUM_THREADS))
    scale = QUICK if arguments.quick else FULL
    about = {**machine(), "workers_of_pytorch": scale.num_workers, "threads_of_pipeline": NUM_THREADS}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    load_averages = [round(os.getloadavg()[0], 2)]
    rows, targets = [], []
    with tempfile.TemporaryDirectory() as folder:
        for race in races(Path(folder), scale):
            if race.name.startswith(chosen):
                rows.append(run(race, scale.step_pace if race.name.startswith("step") else scale.chain_pace))
                show(rows[-1])
                targets += judged(race, rows[-1])
    load_averages.append(round(os.getloadavg()[0], 2))
    print(f"\nload average before and after: {load_averages}")
    show_targets(targets)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        report = {**about, "load_average_before_and_after": load_averages, "results": rows, "targets": targets}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
