"""Run the Python fences of a documentation page, and compare what they print with what the page shows.

All ```` ```python ```` fences of a page are one script. It runs in an empty folder, as a user would run it,
and its line numbers are those of the page. Where a fence prints something, this must follow it:

    <!-- output -->
    ```text
    what it prints
    ```

Fences that are not to be run have another language, e.g. ```` ```py ````.

To import PyTorch and DALI takes longer than most pages: their scripts run one after the other in one process, each
in its own folder. Pages that spawn workers, which import the script, have a process of their own.

Run this file with the names of pages to write what they print now into them. Then read the difference.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where this is run as a script

from support.child_processes import run_process

import accvlab.dali_pipeline_framework
import accvlab.driving_data

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    Path(accvlab.dali_pipeline_framework.__file__).with_name("README.md"),  # also where a wheel is installed
    Path(accvlab.driving_data.__file__).with_name("README.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# They spawn workers, kill some, or import JAX, whose threads and forks do not go together.
WITH_OWN_PROCESS = {"README.md", "errors.md", "jax.md", "pipeline.md", "provider.md"}
OUTPUT_MARK = "<!-- output -->"
# Printed before each fence; "record separator" occurs in no page.
_SEPARATOR = "\x1e"
_TIME_LIMIT_S = 110
_PAGE_SEPARATOR, _FAILURE = "\x1d", "\x1c"
# What the graphs of the pages consist of with a GPU, see `gpu_graphs`.
_GPU_GRAPHS = "gpu_graphs.txt"
_RUN_SCRIPTS = f"""
import os, pathlib, runpy, sys, traceback
sys.path.append({str(ROOT / "tests")!r})
from support.gpu_definitions import define_for_gpus_as_well
graphs = pathlib.Path({_GPU_GRAPHS!r}).resolve().open("w")
define_for_gpus_as_well(
    lambda counts: print(pathlib.Path(script).stem, *counts.num_by_device, file=graphs, flush=True)
)
for script in sys.argv[1:]:
    print({_PAGE_SEPARATOR!r}, flush=True)
    os.chdir(os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception:
        print({_FAILURE!r} + traceback.format_exc())
"""


class Fence(NamedTuple):
    """A fenced block: lines ``first`` to ``end`` (exclusive, both counted from 0) of the page."""

    language: str
    first: int
    end: int
    is_output: bool

    def text(self, lines: list[str]) -> str:
        return "".join(f"{line}\n" for line in lines[self.first : self.end])


class PageFailedError(Exception):
    """The script of a page ended with an error."""


def read_lines(page: Path) -> list[str]:
    return page.read_text(encoding="utf-8").splitlines()


def find_fences(lines: list[str]) -> list[Fence]:
    fences: list[Fence] = []
    opening: tuple[str, str, int] | None = None
    last_text = ""  # the last line outside of fences that is not blank
    for number, line in enumerate(lines):
        stripped = line.strip()
        if opening is None:
            if stripped.startswith("```"):
                ticks = stripped[: len(stripped) - len(stripped.lstrip("`"))]
                opening = (ticks, stripped[len(ticks) :].strip(), number + 1)
            elif stripped:
                last_text = stripped
        elif stripped == opening[0]:
            _, language, first = opening
            fences.append(Fence(language, first, number, language == "text" and last_text == OUTPUT_MARK))
            opening = None
            last_text = ""
    if opening is not None:
        raise ValueError(f"line {opening[2]}: the fence is never closed")
    return fences


def script_of(lines: list[str], fences: list[Fence]) -> str:
    """Make a script of the Python fences in which each line has the number that it has in the page."""
    script = [""] * len(lines)
    for fence in fences:
        if fence.language == "python":
            # Spawned workers import the script too; only the main process is listened to.
            script[fence.first - 1] = f"if __name__ == '__main__': print({_SEPARATOR!r}, flush=True)"
            script[fence.first : fence.end] = lines[fence.first : fence.end]
    return "\n".join(script) + "\n"


def run_page(page: Path, folder: Path) -> list[str]:
    """Run the Python fences of a page and return what each of them prints."""
    finished = _run([_script_file(page, folder).name], folder, page.name, threads="")  # as a user would run it
    if finished.returncode != 0:
        raise PageFailedError(f"{page.name}:\n{finished.stdout}\n{finished.stderr}")
    return finished.stdout.split(f"{_SEPARATOR}\n")[1:]


def run_pages(pages: Sequence[Path], folder: Path) -> dict[Path, list[str] | PageFailedError]:
    """Run several pages in one process; returns what each fence of each page prints, or why a page failed."""
    scripts = []
    for number, page in enumerate(pages):
        own_folder = folder / str(number)
        own_folder.mkdir()
        scripts.append(str(_script_file(page, own_folder)))
    arguments = ["-c", _RUN_SCRIPTS, *scripts]
    finished = _run(arguments, folder, f"{len(pages)} pages", threads="1", time_limit_s=2 * _TIME_LIMIT_S)
    if finished.returncode != 0:
        raise PageFailedError(finished.stdout + finished.stderr)
    printed = finished.stdout.split(f"{_PAGE_SEPARATOR}\n")[1:]
    return {
        page: PageFailedError(f"{page.name}:\n{text}") if _FAILURE in text else text.split(f"{_SEPARATOR}\n")[1:]
        for page, text in zip(pages, printed, strict=True)
    }


def gpu_graphs(folder: Path) -> dict[str, list[tuple[int, ...]]]:
    """The graphs of pages that `run_pages` has run and that use a GPU, by the stem of the page.

    Each pipeline of the pages was also defined for a GPU, and DALI has accepted its graph. The numbers are
    `GraphCounts.num_by_device`.
    """
    graphs: dict[str, list[tuple[int, ...]]] = {}
    for line in (folder / _GPU_GRAPHS).read_text().splitlines():
        page, *numbers = line.split()
        if numbers[1:] != ["0", "0"]:
            graphs.setdefault(page.removeprefix("page_"), []).append(tuple(map(int, numbers)))
    return graphs


def _script_file(page: Path, folder: Path) -> Path:
    lines = read_lines(page)
    script = folder / f"page_{page.stem}.py"  # page names may be those of packages
    script.write_text(script_of(lines, find_fences(lines)), encoding="utf-8")
    return script


def _run(
    arguments: Sequence[str], folder: Path, what: str, threads: str, time_limit_s: int = _TIME_LIMIT_S
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": threads}
    if not threads:
        del environment["OMP_NUM_THREADS"]
    try:
        return run_process([sys.executable, *arguments], cwd=folder, env=environment, timeout=time_limit_s)
    except AssertionError as error:
        raise PageFailedError(f"{what} did not end within {time_limit_s} s: {error}") from error


def shown_outputs(page: Path) -> list[tuple[int, str]]:
    """What the page says that each Python fence prints: line number of the fence (from 1), and the text."""
    lines = read_lines(page)
    shown: list[tuple[int, str]] = []
    for fence in find_fences(lines):
        if fence.language == "python":
            shown.append((fence.first, ""))
        elif fence.is_output:
            line, before = shown.pop()
            if before:
                raise ValueError(f"{page.name}, line {fence.first}: a second output for the fence in line {line}")
            shown.append((line, fence.text(lines)))
    return shown


def write_outputs(page: Path, outputs: list[str]) -> None:
    """Replace the outputs that a page shows by the given ones, one per Python fence."""
    lines = read_lines(page)
    replaced: list[tuple[Fence, str]] = []
    number = -1
    for fence in find_fences(lines):
        if fence.language == "python":
            number += 1
        elif fence.is_output:
            replaced.append((fence, outputs[number]))
    for fence, output in reversed(replaced):
        lines[fence.first : fence.end] = output.splitlines()
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    given = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        shared = [page for page in given if page.name not in WITH_OWN_PROCESS]
        for page, outputs in run_pages(shared, Path(folder)).items():
            if isinstance(outputs, PageFailedError):
                raise outputs
            write_outputs(page, outputs)
    for page in given:
        if page.name in WITH_OWN_PROCESS:
            with tempfile.TemporaryDirectory() as folder:
                write_outputs(page, run_page(page, Path(folder)))
