# SPDX-License-Identifier: Apache-2.0
"""The contestants of single steps in `bench_steps`: each gets the next batch and returns its size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
import step_by_hand
import step_settings as settings
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.types import DALIDataType
from races import START_METHOD, GetBatch, endless
from step_data import ImageProvider

from accvlab.dali_pipeline_framework import DataLoader, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    PhotoMetricDistorter,
    PipelineStepBase,
)

NUM_THREADS = 2
GRAPH, WORKERS = "in the graph", "in the workers"
BY_HAND, TORCH = "DALI by hand", "PyTorch, OpenCV"


@attrs.frozen
class StepCase:
    """A step, and who does the same.

    Attributes:
        name: The class of the step, and what its settings make it do.
        step: The step, for a field ``image``.
        work: Name of the function that does the same in `step_by_hand` and in `step_torch`.
        is_encoded: Whether the step gets the bytes of a JPEG.
    """

    name: str
    step: PipelineStepBase
    work: str
    is_encoded: bool = False


def normalizer(layout: str = "") -> ImageMeanStdDevNormalizer:
    return ImageMeanStdDevNormalizer("image", settings.MEAN, settings.STD_DEV, output_layout=layout)


def step_cases() -> list[StepCase]:
    rotation = AffineTransformer(
        settings.OUTPUT_HW,
        AffineTransformer.ResizingMode.STRETCH,
        None,
        "image",
        transformation_steps=[AffineTransformer.Rotation(1.0, *settings.ROTATION_DEGREES)],
    )
    resizer = ImageResizer("image", output_hw=settings.OUTPUT_HW, mode="crop")
    cropper = ImageResizeCropFlipper(
        "image",
        output_hw=settings.OUTPUT_HW,
        scale_range=settings.SCALE,
        flip_prob=settings.FLIP_PROB,
        is_kept_inside=True,
        is_encoded=True,
    )
    always = {f"prob_{part}_aug": 1.0 for part in ("brightness", "hue", "contrast", "saturation")}
    distorter = PhotoMetricDistorter(
        "image",
        settings.BRIGHTNESS,
        settings.HUE_DEGREES,
        settings.CONTRAST,
        settings.SATURATION,
        **always,
        prob_swap_channels=0.0,
    )
    masker = GridMasker("image", prob=1.0, tile_range=(settings.GRID_TILE[0], settings.GRID_TILE[1] - 1))
    size = f"to {settings.OUTPUT_HW[1]} x {settings.OUTPUT_HW[0]}"
    return [
        StepCase("ImageDecoder, JPEG", ImageDecoder("image", False), "decode", True),
        StepCase(f"ImageResizer, {size}, crop", resizer, "resize"),
        StepCase(f"ImageResizeCropFlipper, JPEG {size}", cropper, "decode_resize_crop_flip", True),
        StepCase(f"AffineTransformer, {size}, rotation", rotation, "rotate"),
        StepCase("HorizontalFlipper", HorizontalFlipper("image", prob=settings.FLIP_PROB), "flip"),
        StepCase("ImageMeanStdDevNormalizer, CHW", normalizer(layout="CHW"), "normalize_to_chw"),
        StepCase("PhotoMetricDistorter, with hue and saturation", distorter, "distort"),
        StepCase("GridMasker", masker, "mask_grid"),
    ]


def single_step(
    case: StepCase, image: np.ndarray, batch_size: int, num_workers: int, resources: ExitStack
) -> dict[str, GetBatch]:
    """One image again and again, through one step: nothing is loaded."""
    import step_torch

    def by_step(node: Any) -> Any:
        data = SampleDataGroup()
        data.add_data_field("image", DALIDataType.UINT8)
        data["image"] = node
        return case.step(data)["image"]

    in_workers = DataLoader(
        ImageProvider(image),
        batch_size,
        steps=[case.step],
        run="workers",
        num_workers=num_workers,
        num_threads=NUM_THREADS,
        start_method=START_METHOD,
    )
    images = step_torch.ChangedImages(getattr(step_torch, case.work), image)
    return {
        GRAPH: of_graph(by_step, image, batch_size),
        WORKERS: of_loader(resources.enter_context(in_workers), batch_size),
        BY_HAND: of_graph(getattr(step_by_hand, case.work), image, batch_size),
        TORCH: of_loader(step_torch.torch_loader(images, batch_size, num_workers), batch_size),
    }


def of_graph(define: Callable[[Any], Any], image: np.ndarray, batch_size: int) -> GetBatch:
    """A bare pipeline of DALI."""
    batch = [image] * batch_size
    with Pipeline(batch_size, NUM_THREADS, device_id=None, prefetch_queue_depth=2) as pipeline:
        layout = "HWC" if image.ndim == 3 else None
        node = fn.external_source(lambda: batch, batch=True, no_copy=True, layout=layout)
        pipeline.set_outputs(define(node))
    pipeline.build()

    def get_batch() -> int:
        pipeline.run()
        return batch_size

    return get_batch


def of_loader(loader: Any, batch_size: int) -> GetBatch:
    batches = endless(loader)

    def get_batch() -> int:
        next(batches)
        return batch_size

    return get_batch
