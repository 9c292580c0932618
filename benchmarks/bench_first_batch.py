# SPDX-License-Identifier: Apache-2.0
"""The first batch.

In each turn, a new program imports its packages; then the clock starts. The program creates a loader with two
workers and waits for its first batch, and then does both again with a *second loader*.

- *numpy*: the provider needs NumPy only.
- *albumentations*: the provider wraps a `Dataset` of PyTorch with a transform of Albumentations.
- *imports alone*: no loader; the time in which a new process imports the provider's packages. The fork server has
  to do the same once.

The bound is for *forkserver* minus *imports alone*. Both are measured in separate turns, so that the difference
can be slightly negative.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from races import as_list, spread
from results_file import Row, bound_of

METHODS = ("forkserver", "fork", "spawn")
IMPORTS = {"numpy": "import numpy", "albumentations": "import torch, albumentations"}
MOST_SECONDS_ABOVE_IMPORTS = 1.0
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


def measure(folder: Path, is_quick: bool) -> tuple[list[Row], list[Row]]:
    """Turns of all start methods and of the imports alone."""
    rows, bounds = [], []
    for name in ("numpy",) if is_quick else IMPORTS:
        place = folder / name
        place.mkdir()
        (place / "provider.py").write_text(textwrap.dedent(_IMAGES[name]) + textwrap.dedent(_PROVIDER))
        (place / "program.py").write_text(textwrap.dedent(_PROGRAM))
        seconds: dict[str, list[float]] = {}
        for _ in range(1 if is_quick else _TURNS):
            imports = output_of(place, "-c", _TIMED.format(IMPORTS[name]))
            seconds.setdefault("imports alone", []).append(imports)
            for method in METHODS[:1] if is_quick else METHODS:
                first, second = output_of(place, str(place / "program.py"), method)
                seconds.setdefault(method, []).append(first)
                seconds.setdefault(f"{method}, second loader", []).append(second)
        found = {of: spread(each, 2) for of, each in seconds.items()}
        rows += [{"case": name, "of": of, "seconds": as_list(each)} for of, each in found.items()]
        value = round(found["forkserver"]["median"] - found["imports alone"]["median"], 2)
        bounds.append(
            bound_of(name, "forkserver minus imports alone, seconds", value, at_most=MOST_SECONDS_ABOVE_IMPORTS)
        )
    return rows, bounds
