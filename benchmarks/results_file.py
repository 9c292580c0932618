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
`make bench` writes this page. The contestants of a case take turns in one run, and their order changes. A
figure with brackets is the median over these turns, with the least and the greatest value in brackets.

- *ratio*: rate of the first contestant of the case, divided by the rate of the contestant of the row, in the same
  round of turns. The median of these quotients is not exactly the quotient of the two medians.
- *CPU ms each*: processor time of all processes, per sample or image.
- *busy cores*: cores that the contestant kept busy, on average.
- *cores of others*: cores that other programs kept busy meanwhile. With the load average, this tells how quiet the
  machine was.
""".rstrip().splitlines()
_BOUNDS = """
Bounds for some figures of the tables below. `rate: A / B` is the *ratio* in the row of B; A is the first
contestant of the case.
""".strip().splitlines()
_OF_BOUND = ("section", "case", "figure", "at least", "at most", "measured")


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


# --- bounds --------------------------------------------------------------------------------------------------


def bound_of(
    case: str, figure: str, value: float, *, at_least: float | None = None, at_most: float | None = None
) -> Row:
    """What was measured beside the bound for it: one of `at_least` and `at_most`."""
    is_met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    limits = {"at least": at_least, "at most": at_most}
    return {"case": case, "figure": figure, **limits, "measured": value, "is_met": is_met}


def in_a_line(bound: Row) -> str:
    """What a bound is, and whether it is met."""
    limits = [f"{name} {bound[name]:g}" for name in ("at least", "at most") if bound[name] is not None]
    verdict = "met" if bound["is_met"] else "MISSED"
    return f"{bound['case']}: {bound['figure']}: {bound['measured']:.3g}, {' and '.join(limits)}: {verdict}"


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
        *("", "## Bounds", "", *_BOUNDS, "", f"| {' | '.join(_OF_BOUND)} | |", "|---|---|---|--:|--:|--:|---|"),
        *(f"| {' | '.join(map(in_words, _of_bound(each, texts)))} |" for each in report["bounds"]),
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
    """A text, a number, or median, least and greatest."""
    if figure is None or isinstance(figure, str):
        return figure or ""
    if isinstance(figure, list):
        median, least, greatest = (in_words(each) for each in figure)
        return f"{median} [{least}, {greatest}]"
    return f"{figure:.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _of_bound(bound: Row, texts: Mapping[str, str]) -> Iterator[Any]:
    yield texts[bound["section"]].partition(".\n")[0]
    yield from (bound[name] for name in _OF_BOUND[1:])
    yield "met" if bound["is_met"] else "**missed**"
