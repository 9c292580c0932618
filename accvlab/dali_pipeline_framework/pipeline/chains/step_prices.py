# SPDX-License-Identifier: Apache-2.0
"""What image steps cost on the CPU, in the graph and in the workers: measured figures, to choose between the two.

They are relative: only which way is cheaper follows from them, never what is delivered within a form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from nvidia.dali import types

from ...processing_steps.pipeline_step_base import PipelineStepBase
from ...sample_data.dtypes import get_numpy_type_for_dali_type

PIXELS_OF_IMAGE = 1600 * 900
BYTES_OF_FILE = 0.2  # per pixel, of a JPEG
BYTES_OF_PIXEL = 3.0  # uint8
US_PER_MEGABYTE = 820  # from a worker to the graph

# Microseconds of processor time per image of 1600 x 900, uint8, in the graph and in a worker: `bench_steps.py`.
_PRICES: dict[str, tuple[float, float]] = {
    "ImageDecoder": (6900, 6050),
    "ImageResizer": (4150, 1250),
    "ImageResizeCropFlipper": (4250, 1250),
    "decoding a region": (5750, 6750),
    "AffineTransformer": (4300, 1200),
    "AffineTransformer, rotation": (19000, 2350),
    "HorizontalFlipper": (2150, 400),
    "ImageRange01Normalizer": (3300, 2200),
    "ImageMeanStdDevNormalizer": (6300, 3700),
    "ImageToTileSizePadder": (7400, 200),
    "PhotoMetricDistorter": (6350, 2000),
    "PhotoMetricDistorter, hue and saturation": (44300, 2850),
    "ImageBrightnessContrastJitter": (3500, 1550),
    "ImageColorSpaceConverter": (800, 200),
    "ImageColorSpaceConverter, YCbCr": (24300, 1100),
    "ImageGaussianBlurrer": (77850, 4100),
    "ImageJpegDistorter": (12200, 11450),
    "RandomEraser": (3050, 700),
    "GridMasker": (17450, 850),
}

_COLOR_PARTS = ("hue", "saturation")


class StepPrice(NamedTuple):
    """What a step costs for an image of 1600 x 900.

    Attributes:
        graph_us: Microseconds of processor time in the graph.
        workers_us: The same in a worker.
        output_pixels: Pixels of its output; None for as many as it is given.
        bytes_per_pixel: Size of a pixel of its output; None for as large as it is given.
    """

    graph_us: float = 0.0
    workers_us: float = 0.0
    output_pixels: int | None = None
    bytes_per_pixel: float | None = None


def price_of(step: PipelineStepBase) -> StepPrice:
    """Get the price of a step; steps that do not work on the pixels of images have none."""
    applied = getattr(step, "_processing_step_to_apply", None)
    if applied is not None:
        return price_of(applied)
    names = (getattr(step, "priced_as", None), *(base.__name__ for base in type(step).__mro__))
    name = next((name for name in names if name in _PRICES), None)
    if name is None:
        return StepPrice()
    graph_us, workers_us = _PRICES[_variant(step, name)]
    output_hw = getattr(step, "_output_hw", None)
    output_pixels = None if output_hw is None else output_hw[0] * output_hw[1]
    output_type = getattr(step, "_output_type", None)
    bytes_per_pixel = None
    if output_type is not None:
        bytes_per_pixel = 3.0 * np.dtype(get_numpy_type_for_dali_type(output_type)).itemsize
    elif name == "ImageDecoder" or _decodes(step):
        bytes_per_pixel = BYTES_OF_PIXEL
    if _decodes(step):
        graph_of_part, worker_of_part = _PRICES["decoding a region"]
        graph_us, workers_us = graph_us + graph_of_part, workers_us + worker_of_part
    return StepPrice(graph_us, workers_us, output_pixels, bytes_per_pixel)


def _decodes(step: Any) -> bool:
    return bool(getattr(step, "_is_encoded", False))


def _variant(step: Any, name: str) -> str:
    if name == "AffineTransformer" and not all(each.keeps_axes for each in step._steps):
        return f"{name}, rotation"
    if name == "PhotoMetricDistorter" and any(map(step._may, _COLOR_PARTS)):
        return f"{name}, hue and saturation"
    if name == "ImageColorSpaceConverter" and types.DALIImageType.YCbCr in (
        step._from_image_type,
        step._to_image_type,
    ):
        return f"{name}, YCbCr"
    return name
