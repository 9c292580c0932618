# SPDX-License-Identifier: Apache-2.0
"""Files of results: figures as JSON, and what they were measured on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nvidia.dali


def processor_name() -> str:
    """As Linux tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} usable cores",
        "processor": processor_name(),
        "python": platform.python_version(),
        "dali": nvidia.dali.__version__,
        "numpy": version("numpy"),
    }


def load_average() -> float:
    """How many threads of all programs wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2)


def write_results(path: Path | None, results: Mapping[str, Any]) -> None:
    """Write figures; nothing where there is no path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
