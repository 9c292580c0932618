# SPDX-License-Identifier: Apache-2.0
"""Data sets of LeRobot next to `LeRobotDataset` in a loader of PyTorch: shuffled windows of three cameras.

Both have two workers, and deliver float32 images ``(T, 3, H, W)`` in [0, 1], states and actions. The other side
runs where LeRobot can be imported::

    pip install --no-deps --target build/lerobot lerobot==0.4.4 datasets==5.2.0 torchcodec==0.13.0 \
        torchvision==0.28.0 draccus==0.10.0 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 pandas==3.1.1
    PYTHONPATH=benchmarks:build/lerobot python benchmarks/bench_lerobot.py --data SET --output results.json
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import psutil
from lerobot_data import write_lerobot
from lerobot_torch import has_lerobot, torch_loader, with_libraries
from races import START_METHOD, GetBatch, Pace, Race, Target, endless, judged, run, show, show_targets
from results_file import load_average, machine, write_results
from step_contestants import NUM_THREADS

from accvlab.dali_pipeline_framework import DataLoader, ImageMeanStdDevNormalizer
from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.driving_data.datasets import LeRobotProvider

LIBRARY, REFERENCE = "Windows of LeRobotProvider", "PyTorch DataLoader, LeRobotDataset"
LEAST_TO_REFERENCE = 2.0
PACE, QUICK_PACE = Pace(5, 8.0, 2.0, 6), Pace(1, 0.01, 0.0)
NUM_COUNTED = 24


@attrs.define
class DataSet:
    """A data set, and what was found out about it.

    Attributes:
        name: Its name in the results.
        root: Its folder.
        batch_size: Samples of a batch.
        worker_mb: Memory of a worker that it shares with no other process, the most of each loader.
    """

    name: str
    root: Path
    batch_size: int
    worker_mb: dict[str, float] = attrs.Factory(dict)

    def windows(self) -> Windows:
        provider = LeRobotProvider(self.root, index_cache=self.root.parent / "bench-indices")
        return Windows(provider, self.offsets_s(provider), unit="s", edges="repeat")

    def offsets_s(self, provider: Any) -> dict[str, list[float]]:
        period = 1 / provider.fps
        images = {camera: [-4 * period, -2 * period, 0.0] for camera in provider.camera_names[:3]}
        state = {"observation.state": [step * period for step in range(-15, 1)]}
        return {**images, **state, "action": [step * period for step in range(64)]}

    def race(self, num_workers: int) -> Race:
        def start(resources: ExitStack) -> dict[str, GetBatch]:
            windows = self.windows()
            steps = [
                ImageMeanStdDevNormalizer(camera, mean=0, std_dev=255, output_layout="FCHW")
                for camera in windows.camera_names
            ]
            loader = DataLoader(
                windows,
                self.batch_size,
                shuffle=True,
                seed=1,
                steps=steps,
                num_workers=num_workers,
                num_threads=NUM_THREADS,
                start_method=START_METHOD,
            )
            contestants = {LIBRARY: self._counted(LIBRARY, resources.enter_context(loader))}
            if has_lerobot():
                reference = torch_loader(self.root, self.offsets_s(windows), self.batch_size, num_workers)
                contestants[REFERENCE] = self._counted(REFERENCE, reference)
            return contestants

        targets = (Target(LIBRARY, REFERENCE, LEAST_TO_REFERENCE),) if has_lerobot() else ()
        name = f"{self.name}, 3 cameras x 3 frames, batches of {self.batch_size}"
        return Race(name, "samples", start, targets=targets, further=self.further)

    def _counted(self, name: str, loader: Any) -> GetBatch:
        """Get batches; after the first one, its workers are those that are new."""
        known = {each.pid for each in psutil.Process().children(recursive=True)}
        batches = endless(loader)
        next(batches)
        workers = [each for each in psutil.Process().children(recursive=True) if each.pid not in known]

        def get_batch() -> int:
            next(batches)
            sizes = [each.memory_full_info().uss / 1e6 for each in workers if each.is_running()]
            self.worker_mb[name] = max([self.worker_mb.get(name, 0.0), *sizes])
            return self.batch_size

        return get_batch

    def further(self) -> dict[str, Any]:
        """Memory, and how many frames are decoded for each that is delivered, in one process."""
        windows = self.windows()
        step = max(len(windows) // NUM_COUNTED, 1)
        for row in sorted(range(0, len(windows), step), key=lambda row: row * 7919 % len(windows)):
            windows.get_data(row)
        decoded = windows.statistics_of_decoding
        windows.close()
        per_frame = round(decoded.num_decoded / decoded.num_delivered, 2)
        return {
            "frames_decoded_per_frame": per_frame,
            "worker_mb": {name: round(size, 1) for name, size in self.worker_mb.items()},
        }


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Data sets of LeRobot next to LeRobotDataset.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders of further data sets")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    quick = arguments.quick
    rows, targets, load_averages = [], [], [load_average()]
    with tempfile.TemporaryDirectory() as folder:
        size = {"num_episodes": 2, "num_frames": 8, "hw": (64, 96)}
        if not quick:
            size = {"num_episodes": 6, "num_frames": 60, "hw": (720, 1280)}
        made = write_lerobot(Path(folder) / "drives", **size)
        sets = [DataSet("made, 1280 x 720, H.264", made, 2 if quick else 8)]
        for root in arguments.data:
            (Path(folder) / root.name).symlink_to(root.absolute())
            sets.append(DataSet(root.name, Path(folder) / root.name, 8))
        for each in sets:
            race = each.race(0 if quick else 2)
            rows.append(run(race, QUICK_PACE if quick else PACE))
            show(rows[-1])
            print(f"  {rows[-1]['frames_decoded_per_frame']} frames decoded for each one delivered")
            for name, megabytes in rows[-1]["worker_mb"].items():
                print(f"  {name}: {megabytes:.0f} MB in a worker at most")
            targets += judged(race, rows[-1])
    show_targets(targets)
    about = {**machine(), "load_average_before_and_after": [*load_averages, load_average()]}
    write_results(arguments.output, {**about, "results": rows, "targets": targets})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as links:
        with_libraries(Path(links))
    main()
