# SPDX-License-Identifier: Apache-2.0
"""Prices of steps.

One step is applied to the same image of 1600 x 900 pixels again and again; nothing is loaded.

- *in the graph*, *DALI by hand*: pipelines without workers, with two threads.
- *in the workers*, *PyTorch, OpenCV*: two worker processes.

Steps that change images with some probability always do so here. `benchmarks/step_settings.py` has all settings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from races import QUICK, Pace, Race, Target, run_all
from results_file import ROOT, Row
from step_contestants import BY_HAND, GRAPH, TORCH, WORKERS, StepCase, single_step, step_cases
from step_data import camera_picture, jpeg_of

PAGE = ROOT / "docs" / "dali_pipeline_framework" / "step_prices.md"
LEAST_TO_HAND = 0.95


def measure(folder: Path, is_quick: bool) -> tuple[list[Row], list[Row]]:
    races = map(race_of, step_cases()[2:3] if is_quick else step_cases(), [is_quick] * 8)
    return run_all(races, QUICK if is_quick else Pace(4, 0.4, 0.5))


def race_of(case: StepCase, is_quick: bool) -> Race:
    picture = camera_picture()
    image = jpeg_of(picture) if case.is_encoded else picture
    batch_size, num_workers = (1, 0) if is_quick else (4, 2)
    return Race(
        case.name,
        "images",
        lambda resources: single_step(case, image, batch_size, num_workers, resources),
        (Target(GRAPH, BY_HAND, LEAST_TO_HAND),),
    )


def price_table(rows: list[dict[str, Any]]) -> str:
    """Microseconds of processor time of an image in each step, in Markdown."""
    contestants = (GRAPH, WORKERS, BY_HAND, TORCH)
    lines = [f"| step | {' | '.join(contestants)} |", "|---|" + "--:|" * len(contestants)]
    prices = {(row["case"], row["of"]): row["CPU ms each"][0] for row in rows if row["section"] == "steps"}
    for name in dict.fromkeys(case for case, _ in prices):
        step, comma, detail = name.partition(", ")
        figures = [f"{1e3 * prices[name, each]:.0f}" for each in contestants]
        lines.append(f"| `{step}`{comma}{detail} | {' | '.join(figures)} |")
    return "\n".join(lines)


def with_table(page: str, rows: list[dict[str, Any]]) -> str:
    """A page of the documentation, with the table where a comment in it says so."""
    return re.sub(r"(<!-- table: .*-->\n\n)(?:\|.*\n)+", lambda found: f"{found[1]}{price_table(rows)}\n", page)
