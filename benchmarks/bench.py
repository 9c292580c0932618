# SPDX-License-Identifier: Apache-2.0
"""How fast the library is, beside DALI written by hand and PyTorch: a file of figures, and a page with tables.

    python benchmarks/bench.py [--quick] [--only SECTION ...] [--folder FOLDER]
    python benchmarks/bench.py --only      measure nothing: write the page and the table in the docs anew

Sections that are not measured keep their figures.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import bench_first_batch
import bench_recipes
import bench_rig
import bench_samplers
import bench_steps
import bench_video
import calls_per_sample
from results_file import ROOT, Report, in_a_line, machine, page_of, today, written
from step_contestants import NUM_THREADS

RESULTS = ROOT / "benchmarks" / "results"


# Modules with a function `measure`, which gets a folder for data and whether the run is to be short, and returns
# rows and bounds. Their docstrings have the heading of the section, and what is measured.
SECTIONS: dict[str, ModuleType] = {
    "rig": bench_rig,
    "recipe": bench_recipes,
    "video": bench_video,
    "steps": bench_steps,
    "samplers": bench_samplers,
    "first_batch": bench_first_batch,
    "calls": calls_per_sample,
}


def measure(report: Report, chosen: Sequence[str], is_quick: bool) -> None:
    """Measure sections, and put their figures in place of those in the report."""
    for name in chosen:
        report["machine"] = machine()
        print(f"\n--- {name}", flush=True)
        before = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            rows, bounds = SECTIONS[name].measure(Path(folder), is_quick)
        run = {**today(), "load": [round(before, 1), round(os.getloadavg()[0], 1)]}
        for part, found in (("runs", [run]), ("bounds", bounds), ("rows", rows)):
            kept = [row for row in report[part] if row["section"] != name]
            added = [{"section": name, **row} for row in found]
            report[part] = sorted([*kept, *added], key=lambda row: [*SECTIONS].index(row["section"]))


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="This library, beside DALI by hand and PyTorch.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=[*SECTIONS], help="sections to measure")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the results are written")
    arguments = parser.parse_args(command_line)
    cores = sorted(os.sched_getaffinity(0))
    os.environ["DALI_AFFINITY_MASK"] = ",".join(str(cores[each % len(cores)]) for each in range(NUM_THREADS))
    stem = arguments.folder / f"benchmarks_{len(cores)}_cores_cpu"
    report: Report = {"machine": {}, "runs": [], "bounds": [], "rows": []}
    if stem.with_suffix(".json").exists():
        report = json.loads(stem.with_suffix(".json").read_text())
    measure(report, arguments.only, arguments.quick)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(written(report))
    texts = {name: str(module.__doc__) for name, module in SECTIONS.items()}
    stem.with_suffix(".md").write_text(page_of(report, texts))
    if arguments.folder == RESULTS:
        bench_steps.PAGE.write_text(bench_steps.with_table(bench_steps.PAGE.read_text(), report["rows"]))
    for bound in report["bounds"]:
        print(in_a_line(bound))
    print(stem.with_suffix(".md"))


if __name__ == "__main__":
    bench_video.start_with_ffmpeg()
    main()
