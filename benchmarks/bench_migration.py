# SPDX-License-Identifier: Apache-2.0
"""What each stage of a move from PyTorch's loader gains, for a data set with transforms of albumentations.

Images of 1600 x 900 pixels are decoded, resized, cropped to 704 x 256, mirrored and changed in brightness, by two
worker processes each (by this process with ``--quick``), in turns in one run:

- ``PyTorch``: a map-style data set decodes and transforms, in `torch.utils.data.DataLoader`;
- ``wrapped``: the same data set in a `TorchDatasetProvider`;
- ``JPEG bytes``: it delivers the bytes of the files; `ImageDecoder` and `AlbumentationsStep` do the same to them;
- ``own steps``: steps of this package in place of albumentations.

    python benchmarks/bench_migration.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from races import START_METHOD, Pace, Race, endless, run, show
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework import (
    AlbumentationsStep,
    DataLoader,
    ImageDecoder,
    ImageResizeCropFlipper,
    PhotoMetricDistorter,
    TorchDatasetProvider,
)

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would ask the network
WIDTH, HEIGHT, OUTPUT_HW = 1600, 900, (256, 704)
SCALE = OUTPUT_HW[1] / WIDTH
BATCH_SIZE, NUM_WORKERS, NUM_IMAGES = 4, 2, 64
FULL = Pace(num_turns=7, num_seconds=4.0, warm_up_seconds=1.0, most_turns=30)
QUICK = Pace(num_turns=1, num_seconds=0.1, warm_up_seconds=0.0)


def transform() -> Callable[..., dict[str, Any]]:
    """As a training with albumentations has it."""
    import albumentations

    made: Callable[..., dict[str, Any]] = albumentations.Compose(
        [
            albumentations.Resize(round(HEIGHT * SCALE), OUTPUT_HW[1]),
            albumentations.RandomCrop(*OUTPUT_HW),
            albumentations.HorizontalFlip(p=0.5),
            albumentations.RandomBrightnessContrast(0.2, 0.2, p=1.0),
        ]
    )
    return made


class Files(torch.utils.data.Dataset[dict[str, Any]]):
    """The bytes of image files."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(map(str, folder.glob("*.jpg")))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.fromfile(self.paths[index], np.uint8)}


class Images(Files):
    """Decoded and transformed images."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.transform = transform()

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = cv2.cvtColor(cv2.imread(self.paths[index]), cv2.COLOR_BGR2RGB)
        return {"image": self.transform(image=image)["image"]}


def write_images(folder: Path, number: int) -> None:
    """Write JPEG files of about 280 kB."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    for index in range(number):
        noise = np.random.default_rng(index).integers(0, 24, (HEIGHT, WIDTH, 3))
        pixels = (np.stack([rows // 5, columns // 9, (rows + columns) // 13], -1) + noise) % 256
        cv2.imwrite(str(folder / f"{index:03d}.jpg"), pixels.astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 80])


def contestants(folder: Path, num_workers: int, resources: ExitStack) -> dict[str, Callable[[], int]]:
    """All stages, each with workers of its own."""
    of_workers = {"multiprocessing_context": START_METHOD, "persistent_workers": True} if num_workers else {}
    in_torch = torch.utils.data.DataLoader(
        Images(folder),
        BATCH_SIZE,
        shuffle=True,
        drop_last=True,
        num_workers=num_workers,
        **of_workers,  # type: ignore[arg-type]
    )

    def loader(data_set: Files, steps: Sequence[Any] = ()) -> DataLoader:
        provider = TorchDatasetProvider(data_set)
        made = DataLoader(
            provider, BATCH_SIZE, steps=steps, shuffle=True, num_workers=num_workers, start_method=START_METHOD
        )
        return resources.enter_context(made)

    crop = ImageResizeCropFlipper(
        "image", output_hw=OUTPUT_HW, scale_range=(SCALE, SCALE), flip_prob=0.5, is_encoded=True
    )
    distorter = PhotoMetricDistorter("image", [-32, 32], [0, 0], [0.8, 1.2], [1, 1], prob_swap_channels=0)
    decoder = ImageDecoder("image", use_device_mixed=True)
    stages: dict[str, Iterable[Any]] = {
        "PyTorch": in_torch,
        "wrapped": loader(Images(folder)),
        "JPEG bytes": loader(Files(folder), [decoder, AlbumentationsStep(transform(), "image")]),
        "own steps": loader(Files(folder), [crop, distorter]),
    }
    batches = {name: endless(stage) for name, stage in stages.items()}
    resources.callback(lambda: [each.close() for each in batches.values()])  # type: ignore[attr-defined]
    return {name: lambda each=each: len(next(each)["image"]) for name, each in batches.items()}  # type: ignore[misc]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the figures to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    load_averages = [load_average()]
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), 8 if options.quick else NUM_IMAGES)
        num_workers = 0 if options.quick else NUM_WORKERS
        pairs = tuple((name, "PyTorch") for name in ("wrapped", "JPEG bytes", "own steps"))
        race = Race(
            "stages of a move from PyTorch",
            "images",
            lambda it: contestants(Path(folder), num_workers, it),
            reported=pairs,
        )
        row = run(race, QUICK if options.quick else FULL)
    show(row)
    about = {**machine(), "load_average_before_and_after": [*load_averages, load_average()]}
    write_results(options.output, {**about, "results": [row], "targets": []})


if __name__ == "__main__":
    main()
