# SPDX-License-Identifier: Apache-2.0
"""The recipes of NAVSIM next to what its feature builders do in a loader of PyTorch, without a cache of features.

Made data: a log with images of 1920 x 1080 pixels and moderate texture (about 220 KB each), and clouds of 100,000
points. Both have two workers. The other side is `navsim_torch`: NAVSIM itself cannot be installed here::

    PYTHONPATH=benchmarks python benchmarks/bench_navsim.py --output results.json
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
from navsim_data import write_navsim
from races import START_METHOD, GetBatch, Pace, PriceTarget, Race, judged, run, show, show_targets
from results_file import load_average, machine, write_results
from step_contestants import NUM_THREADS, of_loader

from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.driving_data.datasets import NavsimProvider, SceneFilter
from accvlab.driving_data.recipes import EGO_STATUS_MLP, TRANSFUSER, Recipe, TransFuserSettings

LIBRARY, REDUCED, REFERENCE = "recipe", "recipe, reduced decoding", "PyTorch DataLoader, NAVSIM's way"
MOST_TO_REFERENCE = 0.5
SCENES = SceneFilter(frame_interval=1)
PACE, QUICK_PACE = Pace(5, 2.0, 0.5, 8), Pace(1, 0.01, 0.0)


@attrs.frozen
class Model:
    """What is measured of a model."""

    name: str
    recipe: Recipe
    sensors: dict[str, Any]
    batch_size: int
    can_reduce: bool

    def loader(self, root: Path, num_workers: int, **arguments: Any) -> DataLoader:
        provider = NavsimProvider(
            root, "mini", SCENES, sensors=self.sensors, boxes=bool(self.sensors), index_cache=root / "index"
        )
        options = {"num_workers": num_workers, "num_threads": NUM_THREADS, "start_method": START_METHOD}
        return self.recipe.loader(provider, self.batch_size, **options, **arguments)

    def reference(self, root: Path, num_workers: int) -> Any:
        from navsim_torch import EgoStatusScenes, TransFuserScenes
        from step_torch import torch_loader

        scenes = (TransFuserScenes if self.sensors else EgoStatusScenes)(root)
        return torch_loader(scenes, self.batch_size, num_workers)

    def race(self, root: Path, num_workers: int) -> Race:
        def start(resources: ExitStack) -> dict[str, GetBatch]:
            loaders = {LIBRARY: resources.enter_context(self.loader(root, num_workers))}
            if self.can_reduce:
                loaders[REDUCED] = resources.enter_context(self.loader(root, num_workers, reduced_decoding=True))
            loaders[REFERENCE] = self.reference(root, num_workers)
            return {name: of_loader(loader, self.batch_size) for name, loader in loaders.items()}

        return Race(
            f"{self.name}, batches of {self.batch_size}",
            "samples",
            start,
            reported=((LIBRARY, REFERENCE), (REDUCED, REFERENCE)),
            filling_seconds=0.1 * self.batch_size if self.can_reduce else 0.0,
            price_targets=(PriceTarget(LIBRARY, REFERENCE, MOST_TO_REFERENCE),),
        )


def models(*, quick: bool) -> list[Model]:
    return [
        Model("EgoStatusMLP", EGO_STATUS_MLP, {}, 8 if quick else 64, False),
        Model("TransFuser", TRANSFUSER, TransFuserSettings().sensors(SCENES), 1 if quick else 4, True),
    ]


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The recipes of NAVSIM next to what its feature builders do.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    quick = arguments.quick
    rows, targets, load_averages = [], [], [load_average()]
    with tempfile.TemporaryDirectory() as folder:
        size = {"num_frames": 24, "num_points": 1000} if quick else {"num_frames": 120, "num_points": 100_000}
        root = write_navsim(Path(folder), hw=(1080, 1920), num_others=36, **size)
        for model in models(quick=quick):
            each = model.race(root, 0 if quick else 2)
            rows.append(run(each, QUICK_PACE if quick else PACE))
            show(rows[-1])
            targets += judged(each, rows[-1])
    show_targets(targets)
    about = {**machine(), "load_average_before_and_after": [*load_averages, load_average()]}
    write_results(arguments.output, {**about, "results": rows, "targets": targets})


if __name__ == "__main__":
    main()
