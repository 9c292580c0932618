# SPDX-License-Identifier: Apache-2.0
"""The results of a machine: one file of JSON with a line for each row, and a page with tables made from it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nvidia.dali

Row = dict[str, Any]
Report = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
_ABOUT = """
`make bench` writes this page. In each case the contestants take turns in one run, in an order that changes.
Figures are medians over the turns, with the least and the greatest in brackets. A *ratio* is the rate of the first
contestant divided by that of the row, in turns that follow each other: the median of these quotients. *CPU ms
each* is the processor time per sample or image, of all processes. The load averages, and *cores of others*, tell
whether other programs ran at the same time.
""".rstrip().splitlines()


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "dali": nvidia.dali.__version__,
        **{name: version(name) for name in ("numpy", "torch")},
    }


def today() -> dict[str, Any]:
    """The date, and the commit that is checked out; none outside a checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"date": datetime.date.today().isoformat(), "commit": done.stdout.strip()}


def written(report: Report) -> str:
    """The report as JSON, one line for each row of its lists."""
    parts = []
    for name, value in report.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


# --- the page ------------------------------------------------------------------------------------------------


def page_of(report: Report, texts: Mapping[str, str]) -> str:
    """The page in Markdown.

    Args:
        report: The figures of all sections.
        texts: For each section, by name: its heading, and after an empty line what is measured.
    """
    about = report["machine"]
    lines = [
        f"# Benchmarks: {about['processor']}, {about['cores']} cores, no GPU",
        "",
        f"Python {about['python']}, DALI {about['dali']}, NumPy {about['numpy']}, PyTorch {about['torch']}.",
        *_ABOUT,
        *("", "## Bounds", "", "| section | bound | is | |", "|---|---|--:|---|"),
        *(f"| {each['section']} | {each['bound']} | {_met(each)} |" for each in report["bounds"]),
    ]
    for run in report["runs"]:
        title, text = texts[run["section"]].split("\n\n", 1)
        load = f"; load average {run['load'][0]} before, {run['load'][1]} after" if run["load"] else ""
        lines += ["", f"## {title.removesuffix('.')}", "", *text.splitlines(), ""]
        lines += [f"Measured on {run['date']}, at commit {run['commit']}{load}.", ""]
        lines += table_of([row for row in report["rows"] if row["section"] == run["section"]])
    return "\n".join(lines) + "\n"


def table_of(rows: list[Row]) -> Iterator[str]:
    """A table of the rows of a section, with a column for each kind of figure."""
    figures = [*dict.fromkeys(name for row in rows for name in row if name not in ("section", "case", "of"))]
    yield f"| case | | {' | '.join(figures)} |"
    yield "|---|---|" + "--:|" * len(figures)
    last = None
    for row in rows:
        case = "" if row["case"] == last else row["case"]
        last = row["case"]
        yield f"| {case} | {row['of']} | {' | '.join(in_words(row.get(name)) for name in figures)} |"


def in_words(figure: Any) -> str:
    """A number, or median, least and greatest."""
    if figure is None:
        return ""
    if isinstance(figure, list):
        median, least, greatest = (in_words(each) for each in figure)
        return f"{median} [{least}, {greatest}]"
    return f"{figure:.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _met(bound: Row) -> str:
    return f"{in_words(bound['value'])} | {'met' if bound['is_met'] else '**missed**'}"
