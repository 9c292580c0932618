# SPDX-License-Identifier: Apache-2.0
"""How fast the library is, beside DALI written by hand and PyTorch: one page with tables and plots.

The sections are in `sections`, what is compared is in `rig_contestants`, `step_contestants` and `scheduling`. The
page also has the tables of the last runs of `bench_sources`, `bench_steps` and `bench_samplers` in that folder.

    python benchmarks/bench.py [--quick] [--only SECTION ...] [--folder FOLDER]
    python benchmarks/bench.py --page      write the page anew from the figures in the folder

With ``--only``, sections that are not measured keep their figures.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from races import show_targets
from results_file import load_average, machine, write_results

RESULTS = Path(__file__).parent / "results"
OTHERS = {
    "sources": "Files, sequences, videos",
    "video_colors": "Frames of videos, decoded and encoded",
    "steps": "Single steps, and the chain of a detector",
    "samplers": "Order of samples",
    "migration": "A data set of PyTorch, moved in stages",
    "navsim": "Recipes of NAVSIM",
    "lerobot": "Data sets of LeRobot",
}


def measure(report: dict[str, Any], chosen: list[str], quick: bool) -> None:
    """Measure sections, and add their figures to the report."""
    from sections import FULL, QUICK, SECTIONS

    for section in SECTIONS:
        if section.name not in chosen:
            continue
        print(f"\n--- {section.title}", flush=True)
        before = load_average()
        with tempfile.TemporaryDirectory() as folder:
            found = section.measure(Path(folder), QUICK if quick else FULL)
        load_averages = [before, load_average()]
        report["sections"][section.name] = {**found, "load_average_before_and_after": load_averages}
    order = [section.name for section in SECTIONS if section.name in report["sections"]]
    report["sections"] = {name: report["sections"][name] for name in order}


def main(command_line: Sequence[str] | None = None) -> None:
    from page import write_page
    from sections import SECTIONS

    names = [section.name for section in SECTIONS]
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="This library, beside DALI by hand and PyTorch.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="sections to measure")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the results are written")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page anew")
    arguments = parser.parse_args(command_line)
    machine_name = f"{cores}_cores_cpu"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    figures = arguments.folder / f"benchmarks_{machine_name}.json"
    report: dict[str, Any] = {"sections": {}}
    if figures.exists() and (arguments.page or len(arguments.only) < len(names)):
        report = json.loads(figures.read_text())
    if not arguments.page:
        report |= {**machine(), "cores": cores, "torch": version("torch")}
        measure(report, arguments.only, arguments.quick)
        write_results(figures, report)
    show_targets([target for section in report["sections"].values() for target in section["targets"]])
    others = {
        title: json.loads(path.read_text())
        for name, title in OTHERS.items()
        if (path := arguments.folder / f"{name}_{machine_name}.json").exists()
    }
    print(write_page(report, others, arguments.folder, f"benchmarks_{machine_name}"))


if __name__ == "__main__":
    main()
