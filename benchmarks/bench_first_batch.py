# SPDX-License-Identifier: Apache-2.0
"""What the start of workers costs: the time to a first batch, by start method.

Each turn is a program of its own, which has imported what it needs before the clock starts, as a training has. It
makes a loader with two workers and gets a batch, then does both again. ``numpy`` is a provider that needs NumPy
only, ``albumentations`` one with a transform of Albumentations in a class of PyTorch. What the packages of one
take to import in a fresh process is measured in the same run: the fork server imports them, too, once.

    python benchmarks/bench_first_batch.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results_file import load_average, machine, write_results

METHODS = ("forkserver", "fork", "spawn")
IMPORTS = {"numpy": "import numpy", "albumentations": "import torch, albumentations"}
LIMITS_S = {"numpy": 1.5, "albumentations": 1.0}  # of the second, above the imports
_TURNS = 5

_PROVIDER = """
    from nvidia.dali.types import DALIDataType

    from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup

    class Provider(DataProvider):
        def get_number_of_samples(self):
            return 64

        @property
        def sample_data_structure(self):
            blueprint = SampleDataGroup()
            blueprint.add_data_field("image", DALIDataType.UINT8)
            return blueprint

        def get_data(self, sample_index):
            sample = self.new_sample()
            sample["image"] = image_of(sample_index)
            return sample
"""
_IMAGES = {
    "numpy": """
    import numpy as np

    def image_of(index):
        return np.full((64, 64, 3), index, np.uint8)
    """,
    "albumentations": """
    import albumentations
    import numpy as np
    import torch

    flip = albumentations.HorizontalFlip(p=1.0)

    class Images(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return flip(image=np.full((64, 64, 3), index, np.uint8))["image"]

    image_of = Images().__getitem__
    """,
}
_PROGRAM = """
    import json
    import sys
    import time

    from provider import Provider

    from accvlab.dali_pipeline_framework import DataLoader

    if __name__ == "__main__":
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            options = {"num_workers": 2, "start_method": sys.argv[1], "output_type": "numpy"}
            with DataLoader(Provider(), batch_size=4, **options) as loader:
                next(iter(loader))
                seconds.append(time.perf_counter() - began)
        print(json.dumps(seconds))
"""
_TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def output_of(folder: Path, *arguments: str) -> Any:
    """Run Python, and get what it prints last, as JSON."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def results(is_quick: bool) -> list[dict[str, Any]]:
    """Measure, in turns of all start methods and of the imports alone."""
    rows = []
    for name in ("numpy",) if is_quick else IMPORTS:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "provider.py").write_text(textwrap.dedent(_IMAGES[name]) + textwrap.dedent(_PROVIDER))
            (folder / "program.py").write_text(textwrap.dedent(_PROGRAM))
            methods = METHODS[:2] if is_quick else METHODS
            seconds: dict[str, list[float]] = {}
            for _ in range(1 if is_quick else _TURNS):
                imports = output_of(folder, "-c", _TIMED.format(IMPORTS[name]))
                seconds.setdefault("imports alone", []).append(imports)
                for method in methods:
                    first, second = output_of(folder, str(folder / "program.py"), method)
                    seconds.setdefault(method, []).append(first)
                    seconds.setdefault(f"{method}, second loader", []).append(second)
        rows.append({"provider": name, "seconds": {of: spread(found) for of, found in seconds.items()}})
    return rows


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def targets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How far the default start method keeps its limits."""
    found = []
    for row in rows:
        name, seconds = row["provider"], row["seconds"]
        above = "" if name == "numpy" else " above the imports"
        value = seconds["forkserver"]["median"] - (seconds["imports alone"]["median"] if above else 0.0)
        target = f"{name}, forkserver: seconds to the first batch{above}, at most {LIMITS_S[name]}"
        found.append(
            {"target": target, "value": value, "limit": LIMITS_S[name], "is_met": value <= LIMITS_S[name]}
        )
    return found


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time to a first batch, by start method.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    load_averages = [load_average()]
    rows = results(arguments.quick)
    load_averages.append(load_average())
    for row in rows:
        print(f"{row['provider']:33s} seconds: median (least .. most)")
        for name, found in row["seconds"].items():
            print(f"  {name:30s} {found['median']:8.2f} ({found['least']:.2f} .. {found['most']:.2f})")
    met = targets(rows)
    for each in met:
        print(f"{each['target']}: is {each['value']:.2f}, {'met' if each['is_met'] else 'MISSED'}")
    about = {**machine(), "load_average_before_and_after": load_averages}
    write_results(arguments.output, {**about, "results": rows, "targets": met})


if __name__ == "__main__":
    main()
