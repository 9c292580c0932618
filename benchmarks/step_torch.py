# SPDX-License-Identifier: Apache-2.0
"""The work of the steps with OpenCV and NumPy, in data sets of PyTorch: each worker has one thread.

Random numbers have the ranges that the steps have in `step_contestants`; ways are those that are quickest, and
that training code in OpenCV uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import step_settings as settings
import torch
from races import START_METHOD
from step_data import NUM_SAMPLES
from torch.utils.data import DataLoader, Dataset

Image = npt.NDArray[Any]
_RNG = np.random.default_rng()
_MEAN, _STD_DEV = np.array(settings.MEAN), np.array(settings.STD_DEV)


# --- single steps: an image, (H, W, 3) uint8, or its JPEG, and what the step makes of it ------------------


def decode(jpeg: Image) -> Image:
    return cv2.cvtColor(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def normalize(image: Image) -> Image:
    result = image.astype(np.float32)
    cv2.subtract(result, (*_MEAN, 0.0), result)
    cv2.multiply(result, (*(1 / _STD_DEV), 0.0), result)
    return result


def normalize_to_chw(image: Image) -> Image:
    return np.ascontiguousarray(normalize(image).transpose(2, 0, 1))


def distort(image: Image) -> Image:
    """Brightness and contrast, then hue and saturation in HSV, as many detectors do it."""
    steps = np.arange(256)
    brightness, contrast = _RNG.uniform(*settings.BRIGHTNESS), _RNG.uniform(*settings.CONTRAST)
    brightened = cv2.LUT(image, np.clip(steps * contrast + brightness, 0, 255).astype(np.uint8))
    hsv = cv2.cvtColor(brightened, cv2.COLOR_RGB2HSV)
    hue = ((steps + _RNG.uniform(*settings.HUE_DEGREES) / 2) % 180).astype(np.uint8)
    saturation = np.clip(steps * _RNG.uniform(*settings.SATURATION), 0, 255).astype(np.uint8)
    table = np.stack([hue, saturation, steps.astype(np.uint8)], -1)[None]
    return cv2.cvtColor(cv2.LUT(hsv, table), cv2.COLOR_HSV2RGB)


def rotate(image: Image) -> Image:
    height, width = image.shape[:2]
    degrees = _RNG.uniform(*settings.ROTATION_DEGREES)
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    matrix = np.diag([settings.OUTPUT_HW[1] / width, settings.OUTPUT_HW[0] / height]) @ matrix
    matrix[:, 2] += matrix[:, :2] @ [0.5, 0.5] - 0.5  # OpenCV counts from the centers of pixels
    return cv2.warpAffine(image, matrix, settings.OUTPUT_HW[::-1], flags=cv2.INTER_LINEAR)


def region_resized(image: Image, matrix: npt.NDArray[np.float64], output_hw: tuple[int, int]) -> Image:
    """Crop to whole pixels, resize, mirror: quicker than a warp."""
    corners = (np.array([[0, 0], output_hw[::-1]]) - matrix[:, 2]) / np.diag(matrix)
    left, top = np.maximum(np.rint(corners.min(0)), 0).astype(int)
    right, bottom = np.rint(corners.max(0)).astype(int)
    resized = cv2.resize(image[top:bottom, left:right], output_hw[::-1], interpolation=cv2.INTER_LINEAR)
    return cv2.flip(resized, 1) if matrix[0, 0] < 0 else resized


def resize_matrix(hw: tuple[int, int]) -> npt.NDArray[np.float64]:
    """To `settings.OUTPUT_HW`, what is too much cut off in the middle, (2, 3)."""
    size, output = np.array(hw[::-1]), np.array(settings.OUTPUT_HW[::-1])
    factor = (output / size).max()
    return np.column_stack([np.eye(2) * factor, (output - size * factor) / 2])


def resize_crop_flip_matrix(hw: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Of `ImageResizeCropFlipper`, (2, 3)."""
    height, width = hw
    scale = max(_RNG.uniform(*settings.SCALE), settings.OUTPUT_HW[0] / height, settings.OUTPUT_HW[1] / width)
    crop_x = (scale * width - settings.OUTPUT_HW[1]) * _RNG.random()
    crop_y = scale * height - settings.OUTPUT_HW[0]
    if _RNG.random() < settings.FLIP_PROB:
        return np.array([[-scale, 0, settings.OUTPUT_HW[1] + crop_x], [0, scale, -crop_y]])
    return np.array([[scale, 0, -crop_x], [0, scale, -crop_y]])


def resize(image: Image) -> Image:
    return region_resized(image, resize_matrix(image.shape[:2]), settings.OUTPUT_HW)


def decode_resize_crop_flip(jpeg: Image) -> Image:
    image = decode(jpeg)
    return region_resized(image, resize_crop_flip_matrix(image.shape[:2]), settings.OUTPUT_HW)


def flip(image: Image) -> Image:
    return cv2.flip(image, 1) if _RNG.random() < settings.FLIP_PROB else image.copy()


def mask_grid(image: Image) -> Image:
    tile = int(_RNG.integers(*settings.GRID_TILE))
    rows, columns = ((np.arange(size) - _RNG.uniform(0, tile)) % tile < tile / 2 for size in image.shape[:2])
    masked = image.copy()
    masked[np.ix_(rows, columns)] = 0
    return masked


class ChangedImages(Dataset[torch.Tensor]):
    """One and the same image, changed anew each time."""

    def __init__(self, change: Callable[[Image], Image], image: Image) -> None:
        self.change, self.image = change, image

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.change(self.image))


# --- loading ----------------------------------------------------------------------------------------------


def _one_thread(worker: int) -> None:
    cv2.setNumThreads(0)
    torch.set_num_threads(1)


def torch_loader(
    dataset: Dataset[Any],
    batch_size: int,
    num_workers: int,
    collate: Callable[[list[Any]], Any] | None = None,
    *,
    shuffle: bool = False,
) -> DataLoader[Any]:
    """A loader of PyTorch; without workers it loads in this process."""
    if num_workers == 0:
        return DataLoader(dataset, batch_size, shuffle=shuffle, collate_fn=collate)
    return DataLoader(
        dataset,
        batch_size,
        shuffle=shuffle,
        num_workers=num_workers,
        collate_fn=collate,
        multiprocessing_context=START_METHOD,
        persistent_workers=True,
        worker_init_fn=_one_thread,
    )
