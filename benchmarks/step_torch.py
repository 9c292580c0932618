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
from step_data import (
    DETECTION_FIELDS,
    IMAGE_HW,
    MULTI_CAMERA_FIELDS,
    NUM_CAMERAS,
    NUM_CATEGORIES,
    NUM_SAMPLES,
    DrivingSamples,
)
from torch.utils.data import DataLoader, Dataset

Image = npt.NDArray[Any]
_RNG = np.random.default_rng()
_MEAN, _STD_DEV = np.array(settings.MEAN), np.array(settings.STD_DEV)


# --- single steps: an image, (H, W, 3) uint8, or its JPEG, and what the step makes of it ------------------


def decode(jpeg: Image) -> Image:
    return cv2.cvtColor(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def to_range_01(image: Image) -> Image:
    return np.multiply(image, np.float32(1 / 255), dtype=np.float32)


def normalize(image: Image) -> Image:
    result = image.astype(np.float32)
    cv2.subtract(result, (*_MEAN, 0.0), result)
    cv2.multiply(result, (*(1 / _STD_DEV), 0.0), result)
    return result


def normalize_to_half(image: Image) -> Image:
    return normalize(image).astype(np.float16)


def normalize_to_chw(image: Image) -> Image:
    return np.ascontiguousarray(normalize(image).transpose(2, 0, 1))


def pad(image: Image) -> Image:
    height, width = image.shape[:2]
    return cv2.copyMakeBorder(image, 0, -height % settings.TILE, 0, -width % settings.TILE, cv2.BORDER_CONSTANT)


def brighten(image: Image) -> Image:
    brightness, contrast = _RNG.uniform(*settings.BRIGHTNESS), _RNG.uniform(*settings.CONTRAST)
    changed = np.clip(np.arange(256) * contrast + brightness, 0, 255).astype(np.uint8)
    return cv2.LUT(image, changed)


def distort(image: Image) -> Image:
    """Brightness and contrast, then hue and saturation in HSV, as many detectors do it."""
    hsv = cv2.cvtColor(brighten(image), cv2.COLOR_RGB2HSV)
    steps = np.arange(256)
    hue = ((steps + _RNG.uniform(*settings.HUE_DEGREES) / 2) % 180).astype(np.uint8)
    saturation = np.clip(steps * _RNG.uniform(*settings.SATURATION), 0, 255).astype(np.uint8)
    table = np.stack([hue, saturation, steps.astype(np.uint8)], -1)[None]
    return cv2.cvtColor(cv2.LUT(hsv, table), cv2.COLOR_HSV2RGB)


def rotate(image: Image) -> Image:
    height, width = image.shape[:2]
    degrees = _RNG.uniform(*settings.ROTATION_DEGREES)
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    matrix = np.diag([settings.OUTPUT_HW[1] / width, settings.OUTPUT_HW[0] / height]) @ matrix
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


def resize_crop_flip(image: Image) -> Image:
    return region_resized(image, resize_crop_flip_matrix(image.shape[:2]), settings.OUTPUT_HW)


def decode_resize_crop_flip(jpeg: Image) -> Image:
    return resize_crop_flip(decode(jpeg))


def zoom_matrix(hw: tuple[int, int], output_hw: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Enlarge about the middle, mirror, and fill the output, (2, 3)."""
    size, output = np.array(hw[::-1]), np.array(output_hw[::-1])
    factor = (output / size).max() * _RNG.uniform(*settings.ZOOM)
    scale = np.array([-factor if _RNG.random() < settings.FLIP_PROB else factor, factor])
    return np.column_stack([np.diag(scale), output / 2 - scale * size / 2])


def zoom(image: Image) -> Image:
    return region_resized(image, zoom_matrix(image.shape[:2], settings.OUTPUT_HW), settings.OUTPUT_HW)


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


# --- chains -----------------------------------------------------------------------------------------------


class MultiCameraSamples(Dataset[list[torch.Tensor]]):
    """Images resized at random and normalized, matrices and 3D boxes changed accordingly."""

    def __init__(self, samples: DrivingSamples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        names = MULTI_CAMERA_FIELDS
        sample = dict(zip(names, self.samples.load(index, names), strict=True))
        motion, inverse, angle, factor = _bev_motion()
        plane = np.eye(4)
        plane[:2, :3] = resize_crop_flip_matrix(IMAGE_HW)
        for camera in range(NUM_CAMERAS):
            resized = self.resized(sample[f"jpeg_{camera}"], plane[:2, :3])
            sample[f"jpeg_{camera}"] = normalize_to_chw(resized)
            sample[f"intrinsics_{camera}"] = _single(plane[:3, :3] @ sample[f"intrinsics_{camera}"])
            sample[f"image_from_ego_{camera}"] = _single(plane @ sample[f"image_from_ego_{camera}"] @ inverse)
        sample["centers"] = _single(sample["centers"] @ motion[:3, :3].T + motion[:3, 3])
        sample["velocities"] = _single(sample["velocities"] @ motion[:3, :3].T)
        sample["sizes"] = _single(sample["sizes"] * factor)
        sample["yaws"] = _single((sample["yaws"] + angle + np.pi) % (2 * np.pi) - np.pi)
        sample["ego_to_world"] = _single(sample["ego_to_world"] @ inverse)
        return [torch.from_numpy(sample[name]) for name in names]

    def resized(self, jpeg: Image, matrix: npt.NDArray[np.float64]) -> Image:
        return region_resized(decode(jpeg), matrix, settings.OUTPUT_HW)


class ReducedMultiCameraSamples(MultiCameraSamples):
    """The same, of images that are decoded at half their size where they are shown no larger than that."""

    def resized(self, jpeg: Image, matrix: npt.NDArray[np.float64]) -> Image:
        if matrix[1, 1] > 0.5:
            return super().resized(jpeg, matrix)
        image = cv2.cvtColor(cv2.imdecode(jpeg, cv2.IMREAD_REDUCED_COLOR_2), cv2.COLOR_BGR2RGB)
        return region_resized(image, matrix * [2.0, 2.0, 1.0], settings.OUTPUT_HW)


def _single(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return values.astype(np.float32)


def _bev_motion() -> tuple[Any, Any, float, float]:
    angle, factor = _RNG.uniform(*settings.BEV_ANGLE_RAD), _RNG.uniform(*settings.BEV_SCALE)
    rotation = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    motion, inverse = np.eye(4), np.eye(4)
    motion[:3, :3], inverse[:3, :3] = rotation * factor, rotation.T / factor
    return motion, inverse, angle, factor


class DetectionSamples(Dataset[list[torch.Tensor]]):
    """Distorted, zoomed, mirrored, normalized and padded images, boxes, categories, and heatmaps."""

    def __init__(self, samples: DrivingSamples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        jpeg, boxes, categories = self.samples.load(index, DETECTION_FIELDS)
        image = distort(decode(jpeg))
        matrix = zoom_matrix(image.shape[:2], settings.DETECTION_HW)
        image = pad(normalize(region_resized(image, matrix, settings.DETECTION_HW)))
        corners = boxes.reshape(-1, 2, 2) * np.diag(matrix) + matrix[:, 2]
        boxes = np.concatenate([corners.min(1), corners.max(1)], 1).astype(np.float32)
        heatmaps = draw_heatmaps(boxes, categories, image.shape[:2])
        return [torch.from_numpy(each) for each in (image, boxes, categories, heatmaps)]


def draw_heatmaps(boxes: Image, categories: Image, hw: tuple[int, int]) -> npt.NDArray[np.float32]:
    """The greatest Gaussian, object by object in its window, (categories, h, w)."""
    height, width = settings.HEATMAP_HW
    maps = np.zeros((NUM_CATEGORIES, height, width), np.float32)
    scaled = boxes * np.tile([width / hw[1], height / hw[0]], 2)
    area = np.prod(scaled[:, 2:] - scaled[:, :2], 1)
    on_map = np.clip(scaled, 0, [width, height] * 2)
    is_active = np.prod(on_map[:, 2:] - on_map[:, :2], 1) >= 0.25 * area
    clipped = np.clip(scaled, 0, [width - 1, height - 1] * 2)
    centers = np.clip((scaled[:, :2] + scaled[:, 2:]) / 2, 0, [width - 1, height - 1])
    nearest = np.minimum(centers - clipped[:, :2], clipped[:, 2:] - centers).min(1)
    for (x, y), radius, category in zip(
        centers[is_active].astype(int),
        np.clip(nearest[is_active] * 0.8, 0.5, 10.0),
        categories[is_active],
        strict=True,
    ):
        reach = int(np.ceil(radius))
        rows = np.arange(max(y - reach, 0), min(y + reach + 1, height))
        columns = np.arange(max(x - reach, 0), min(x + reach + 1, width))
        squared = (rows[:, None] - y) ** 2 + (columns - x) ** 2
        window = maps[category, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        np.maximum(window, np.exp(squared * (-4.5 / radius**2)), out=window, casting="unsafe")
    return maps


def lists_where_ragged(samples: list[list[torch.Tensor]]) -> list[Any]:
    """A batch of each field: a tensor, or a list where shapes may differ."""
    columns = [[*column] for column in zip(*samples, strict=True)]
    return [torch.stack(column) if len({each.shape for each in column}) == 1 else column for column in columns]


# --- loading ----------------------------------------------------------------------------------------------


def _one_thread(worker: int) -> None:
    cv2.setNumThreads(0)
    torch.set_num_threads(1)


def torch_loader(
    dataset: Dataset[Any], batch_size: int, num_workers: int, collate: Callable[[list[Any]], Any] | None = None
) -> DataLoader[Any]:
    """A loader of PyTorch; without workers it loads in this process."""
    if num_workers == 0:
        return DataLoader(dataset, batch_size, collate_fn=collate)
    return DataLoader(
        dataset,
        batch_size,
        num_workers=num_workers,
        collate_fn=collate,
        multiprocessing_context=START_METHOD,
        persistent_workers=True,
        worker_init_fn=_one_thread,
    )
