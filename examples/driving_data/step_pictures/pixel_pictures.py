"""Pictures of steps that read images, or change their pixels in place."""

from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from numpy.typing import NDArray
from nvidia.dali.types import DALIDataType
from PIL import Image

from accvlab.dali_pipeline_framework import (
    GridMasker,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    LambdaStep,
    PhotoMetricDistorter,
    for_each,
)
from step_pictures.drawing import Tile, histogram, side_by_side
from step_pictures.pipelines import decoded, draws_of, processed
from step_pictures.scene import FRONT, IMAGE_HW, Scene

__all__ = [
    "decoder",
    "grid_mask",
    "lambda_step",
    "mean_std_dev",
    "photo_metric",
    "range_01",
    "wrappers",
]


def decoder(scene: Scene) -> Image.Image:
    """A file as gray pixels, and the image in it."""
    sample = scene.camera()
    file: NDArray[np.uint8] = sample["image"]
    rows = -(-len(file) // IMAGE_HW[1])
    as_pixels = np.pad(file, (0, rows * IMAGE_HW[1] - len(file))).reshape(rows, IMAGE_HW[1])
    image = decoded(sample)["image"]
    return side_by_side(
        [
            Tile(as_pixels, f"before: {file.shape} uint8, the bytes of a JPEG file"),
            Tile(image, f"after: {image.shape} uint8"),
        ]
    )


def photo_metric(scene: Scene) -> Image.Image:
    """Five draws."""
    step = PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], prob_swap_channels=0.2)
    return _before_and_draws(scene, step, 5, seed=1)


def grid_mask(scene: Scene) -> Image.Image:
    """Three draws."""
    step = GridMasker("image", prob=1.0, tile_range=(40, 90), ratio_range=(0.4, 0.6), angle_range=(0.0, 0.5))
    return _before_and_draws(scene, step, 3, seed=0)


def _before_and_draws(scene: Scene, step: Any, num_draws: int, seed: int) -> Image.Image:
    sample = scene.camera()
    drawn = draws_of(sample, step, num_draws, seed)
    tiles = [Tile(tree["image"], f"after, draw {number}") for number, tree in enumerate(drawn, start=1)]
    return side_by_side([Tile(decoded(sample)["image"], "before"), *tiles])


def mean_std_dev(scene: Scene) -> Image.Image:
    """The values of the channels."""
    step = ImageMeanStdDevNormalizer("image", [123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    return _values(scene, step, (-3.0, 3.0), "after: float32, about -2 to 2.5")


def range_01(scene: Scene) -> Image.Image:
    """The values of the channels."""
    return _values(scene, ImageRange01Normalizer("image"), (0.0, 1.0), "after: float32, 0 to 1")


def _values(scene: Scene, step: Any, limits: tuple[float, float], label: str) -> Image.Image:
    sample = scene.camera()
    [tree] = draws_of(sample, step, 1)
    return side_by_side(
        [
            Tile(histogram(decoded(sample)["image"], (0.0, 256.0)), "before: uint8, 0 to 255"),
            Tile(histogram(tree["image"], limits), label),
        ]
    )


def lambda_step(scene: Scene) -> Image.Image:
    """A negative."""
    sample = scene.camera()
    uint8 = DALIDataType.UINT8
    step = LambdaStep(
        lambda image: fn.cast(255 - image, dtype=uint8), input_names="image", output_types={"image": uint8}
    )
    [tree] = draws_of(sample, step, 1)
    return side_by_side([Tile(decoded(sample)["image"], "before"), Tile(tree["image"], "after: 255 - image")])


def wrappers(scene: Scene) -> Image.Image:
    """Three cameras: as they are, with the same draws, and with draws of their own."""
    numbers = (2, FRONT, 1)
    sample = {"cameras": {place: {"image": scene.camera(number)["image"]} for place, number in enumerate(numbers)}}
    step = PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], 1.0, 1.0, 1.0, 1.0, 0.0)
    decode = ImageDecoder("image", use_device_mixed=True)
    tiles = []
    for label, steps in (
        ("before", [decode]),
        ("step", [decode, step]),
        ("wrapped step", [decode, for_each("cameras", step)]),
    ):
        [tree] = processed([sample], steps, seed=4)
        for place in range(len(numbers)):
            image = tree["cameras"][place]["image"]
            tiles.append(Tile(_halved(image), f"cameras[{place}], {label}"))
    return side_by_side(tiles, num_columns=3)


def _halved(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width, channels = image.shape
    return image.reshape(height // 2, 2, width // 2, 2, channels).mean(axis=(1, 3)).astype(np.uint8)
