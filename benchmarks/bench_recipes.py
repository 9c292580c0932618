# SPDX-License-Identifier: Apache-2.0
"""The recipe for StreamPETR.

The recipe's training loader against a PyTorch `DataLoader` that does the same with OpenCV and NumPy; both have
two workers. The data are generated: six cameras of 1600 x 900 pixels, 10 to 60 boxes per frame, and 2D boxes in
the images. *Reduced decoding* decodes a JPEG at half its size if the output is not larger than that. A test
compares the batches of *recipe* with the samples of PyTorch, with fixed random numbers.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from races import QUICK, START_METHOD, GetBatch, Pace, Race, Target, run_all
from results_file import Row
from step_contestants import NUM_THREADS, of_loader
from step_data import IMAGE_HW, NUM_CAMERAS, image_from_ego, intrinsics_of, write_jpegs

from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.driving_data.datasets import DrivingIndex, DrivingProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.driving_index import (
    Box2dColumns,
    BoxColumns,
    CameraColumns,
    FrameColumns,
    first_column,
    names_column,
)
from accvlab.driving_data.recipes import STREAMPETR, StreamPETRSettings
from accvlab.driving_data.recipes.recipe_parts import CAMERAS, CLASSES

LIBRARY, REDUCED = "recipe", "recipe, reduced decoding"
PYTORCH = "PyTorch DataLoader, OpenCV"
LEAST_TO_PYTORCH = 1.5
NUM_SCENES = 8
SETTINGS = StreamPETRSettings()


def make_data(folder: Path, num_images: int, frames_per_scene: int) -> DrivingProvider:
    """Frames in scenes, whose images are used again and again."""
    rng = np.random.default_rng(0)
    files = [Path(name).name for name in write_jpegs(folder, num_images)]
    num_frames = NUM_SCENES * frames_per_scene
    counts = rng.integers(10, 60, num_frames)
    num_boxes = int(counts.sum())
    centers = np.concatenate([rng.uniform(-50, 50, (num_boxes, 2)), rng.uniform(-2, 1, (num_boxes, 1))], axis=1)
    counts_2d = rng.integers(0, 12, num_frames * NUM_CAMERAS)
    num_2d = int(counts_2d.sum())
    corners = rng.uniform(0, 0.8, (num_2d, 2)) * IMAGE_HW[::-1]
    boxes_2d = np.concatenate([corners, corners + rng.uniform(20, 300, (num_2d, 2))], axis=1)
    camera_from_base = []
    for camera in range(NUM_CAMERAS):
        projection = image_from_ego(intrinsics_of(1200.0), camera * np.pi / 3)[:3]
        camera_from_base.append(np.linalg.inv(intrinsics_of(1200.0)) @ projection)
    shape = (num_frames, NUM_CAMERAS)
    index = DrivingIndex(
        base="lidar",
        camera_names=CAMERAS,
        categories=CLASSES,
        frames=FrameColumns(
            scene=names_column([f"scene-{number}" for number in range(NUM_SCENES)]),
            first_of_scene=first_column([frames_per_scene] * NUM_SCENES),
            token=names_column([f"frame-{number}" for number in range(num_frames)]),
            time=np.arange(num_frames) * 0.5,
            world_from_ego=poses.identity(num_frames),
            ego_from_base=poses.identity(num_frames),
        ),
        cameras=CameraColumns(
            file=names_column([files[n % num_images] for n in range(shape[0] * shape[1])]).reshape(shape),
            time=np.repeat(np.arange(num_frames)[:, None] * 0.5, NUM_CAMERAS, axis=1),
            intrinsics=np.broadcast_to(intrinsics_of(1200.0).astype(np.float64), (*shape, 3, 3)),
            camera_from_base=np.broadcast_to(np.stack(camera_from_base).astype(np.float64), (*shape, 3, 4)),
            ego_from_camera=poses.identity(*shape),
        ),
        boxes=BoxColumns(
            first=first_column(counts),
            center=centers,
            size=rng.uniform(1, 5, (num_boxes, 3)),
            rotation=poses.quaternion_of_yaw(rng.uniform(-3, 3, num_boxes)),
            velocity=rng.normal(0, 3, (num_boxes, 3)),
            category=rng.integers(0, len(CLASSES), num_boxes).astype(np.int32),
        ),
        boxes_2d=Box2dColumns(
            first=first_column(counts_2d),
            box=boxes_2d,
            center=corners + 10,
            depth=rng.uniform(2, 60, num_2d),
            category=rng.integers(0, len(CLASSES), num_2d).astype(np.int32),
            box_row=np.full(num_2d, -1),
        ),
    )
    index.save(folder / "index")
    return DrivingProvider(folder / "index", folder, **SETTINGS.provider_fields())


def recipe(
    provider: DrivingProvider, settings: StreamPETRSettings, batch_size: int, num_workers: int, **arguments: Any
) -> DataLoader:
    return STREAMPETR.loader(
        provider,
        batch_size,
        settings,
        num_workers=num_workers,
        num_threads=NUM_THREADS,
        start_method=START_METHOD,
        **arguments,
    )


def in_torch(
    provider: DrivingProvider, settings: StreamPETRSettings, batch_size: int, num_workers: int, **arguments: Any
) -> Any:
    from recipe_torch import StreamPETRSamples, collate
    from step_torch import torch_loader

    return torch_loader(StreamPETRSamples(provider, settings), batch_size, num_workers, collate)


def race(provider: DrivingProvider, batch_size: int, num_workers: int) -> Race:
    def start(resources: ExitStack) -> dict[str, GetBatch]:
        arguments = (provider, SETTINGS, batch_size, num_workers)
        loaders = {
            LIBRARY: resources.enter_context(recipe(*arguments)),
            REDUCED: resources.enter_context(recipe(*arguments, reduced_decoding=True)),
            PYTORCH: in_torch(*arguments),
        }
        return {name: of_loader(loader, batch_size) for name, loader in loaders.items()}

    return Race(
        f"batches of {batch_size}",
        "samples",
        start,
        targets=(Target(LIBRARY, PYTORCH, LEAST_TO_PYTORCH),),
        filling_seconds=0.3 * batch_size * bool(num_workers),
    )


def measure(folder: Path, is_quick: bool) -> tuple[list[Row], list[Row]]:
    provider = make_data(folder, 6 if is_quick else 48, 2 if is_quick else 40)
    races = (race(provider, size, 0 if is_quick else 2) for size in ((1,) if is_quick else (2, 4)))
    return run_all(races, QUICK if is_quick else Pace(4, 1.5, 0.5, 6))
