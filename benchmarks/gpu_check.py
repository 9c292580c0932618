# SPDX-License-Identifier: Apache-2.0
"""Check a machine with a GPU: values, devices, memory, processes, time, faults, and the tests that need one.

At most ten minutes on one GPU with 16 cores, from a checkout, with nothing installed but what is used::

    python benchmarks/gpu_check.py [--only pixels,speed] [--folder results]

Needed are DALI, PyTorch with CUDA, NumPy, attrs, cachetools, cloudpickle, filelock, psutil, pytest, hypothesis,
OpenCV and Pillow; simplejpeg, PyAV and torchvision where they are. Results are a page and a file of JSON, written
after each check. Each check runs in a process of its own. ``--device none`` tries the logic on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"cv2": "opencv-python-headless", "PIL": "Pillow", "nvidia": "nvidia-dali-cuda120", "av": "av"}
sys.path[:0] = [str(ROOT), *(str(ROOT / name) for name in ("tests", "examples/driving_data", "benchmarks"))]

try:
    import gpu_checks  # where the package is not installed
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is needed, and not installed: pip install {PACKAGES.get(error.name, error.name)}")

MOST_SECONDS = 590
CHECKS = {check.__name__: (check, seconds) for check, seconds in gpu_checks.CHECKS.items()}


def result_of(name: str, seconds: float, options: Sequence[str]) -> dict[str, Any]:
    """Run a check in a process of its own, which is ended with its workers when the time is over."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "found.json", Path(folder) / "log"
        command = [sys.executable, str(Path(__file__).resolve()), "--one", name, "--found", str(path), *options]
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, start_new_session=True)
        try:
            process.wait(seconds)
            ending = (
                "" if process.returncode == 0 else f"It ended with {process.returncode}: {log.read_text()[-1500:]}"
            )
        except subprocess.TimeoutExpired:
            ending = f"It was ended after {seconds:.0f} s."
        finally:  # also what a check has left, and on Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        told = json.loads(path.read_text()) if path.exists() else {"problems": [], "found": {}}
    problems = [*told["problems"], *([ending] if ending else [])]
    return {"seconds": round(time.perf_counter() - began, 1), "problems": problems, "found": told["found"]}


def verdict_of(results: dict[str, Any]) -> str:
    """One line: all is good, or which checks have found problems."""
    bad = [name for name, each in results.items() if each["problems"]]
    left_out = [name for name in CHECKS if name not in results]
    if bad:
        return f'Problems in: {", ".join(bad)}. See "If a check fails" in docs/dali_pipeline_framework/gpu.md.'
    return f"All good, of {', '.join(results)}." if left_out else "All good."


def page_of(title: str, results: dict[str, Any]) -> str:
    """A page in Markdown: a table of all checks, and what each of them has found."""
    lines = [f"# {title}", "", verdict_of(results), "", "| check | result | seconds | what |", "|---|---|---|---|"]
    for name, each in results.items():
        left_out = sum(str(value).startswith(gpu_checks.NOT_CHECKED) for value in each["found"].values())
        verdict = f"**{len(each['problems'])} problems**" if each["problems"] else "good"
        verdict += f", {left_out} {gpu_checks.NOT_CHECKED}" if left_out else ""
        lines.append(f"| {name} | {verdict} | {each['seconds']} | {CHECKS[name][0].__doc__} |")
    for name, each in results.items():
        lines += ["", f"## {name}", "", *(f"- **{' '.join(problem.split())}**" for problem in each["problems"])]
        rows = {key: value for key, value in each["found"].items() if isinstance(value, dict)}
        columns = [*dict.fromkeys(column for row in rows.values() for column in row)]
        lines += [f"- {key}: {value}" for key, value in each["found"].items() if key not in rows]
        if rows:
            lines += ["", f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
            lines += [
                f"| {key} | {' | '.join(str(row.get(c, '')) for c in columns)} |" for key, row in rows.items()
            ]
    return "\n".join(lines) + "\n"


def main(command_line: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(CHECKS), help=f"some of {', '.join(CHECKS)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "benchmarks" / "results", help="for the results")
    parser.add_argument("--device", choices=["0", "none"], default="0", help="none: try the logic on the CPU")
    parser.add_argument("--quick", action="store_true", help="as little as shows that the checks run")
    parser.add_argument("--one", choices=CHECKS, help=argparse.SUPPRESS)
    parser.add_argument("--found", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(command_line)
    if given.one:
        check = gpu_checks.Check(given.found, 0 if given.device == "0" else None, given.quick)
        CHECKS[given.one][0](check)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended, as on Ctrl-C
    began, results = time.perf_counter(), {}
    names = gpu_checks.asked_of_nvidia_smi("gpu", "name") if given.device == "0" else []
    gpu = names[0] if names else "none"
    stem = given.folder / f"gpu_{re.sub('[^a-z0-9]+', '_', gpu.lower())}"
    given.folder.mkdir(parents=True, exist_ok=True)
    options = ["--device", given.device, *(["--quick"] if given.quick else [])]
    for name in given.only.split(","):
        left = MOST_SECONDS - (time.perf_counter() - began)
        if left < 5:
            results[name] = {"seconds": 0, "problems": ["There was no time left for it."], "found": {}}
        else:
            results[name] = result_of(name, min(CHECKS[name][1], left), options)
        for problem in results[name]["problems"] or ["good"]:
            print(f"{name} ({results[name]['seconds']} s): {problem}", flush=True)
        stem.with_suffix(".json").write_text(json.dumps({"gpu": gpu, "checks": results}, indent=1) + "\n")
        stem.with_suffix(".md").write_text(page_of(f"Checks of a machine with a GPU: {gpu}", results))
        if name == "environment" and results[name]["problems"]:
            break  # all others would fail for the same reason
    print(verdict_of(results))
    return int(any(each["problems"] for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
