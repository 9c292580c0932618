# SPDX-License-Identifier: Apache-2.0
"""The work of the steps written by hand in DALI, as directly as it can be written there.

Sizes of images are known here, and each function does one thing only, so nothing is general.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import step_data
import step_settings as settings
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

HEIGHT, WIDTH = step_data.IMAGE_HW
_DT = types.DALIDataType


def uniform(limits: tuple[float, float]) -> Any:
    return fn.random.uniform(range=limits)


def constant(values: Any) -> Any:
    """A node: NumPy arrays cannot stand to the left of one."""
    return types.Constant(np.array(values, np.float32), device="cpu")


def coin() -> Any:
    return fn.random.coin_flip(probability=settings.FLIP_PROB)


def decode(jpeg: Any) -> Any:
    return fn.decoders.image(jpeg)


def normalize_to_chw(image: Any) -> Any:
    return fn.crop_mirror_normalize(image, mean=[*settings.MEAN], std=[*settings.STD_DEV], output_layout="CHW")


def distort(image: Any) -> Any:
    """Brightness, contrast, hue and saturation; values above white before the contrast are lost."""
    image = fn.brightness_contrast(image, brightness_shift=uniform(settings.BRIGHTNESS) / 255.0)
    image = fn.brightness_contrast(image, brightness=uniform(settings.CONTRAST))
    return fn.hsv(image, hue=uniform(settings.HUE_DEGREES), saturation=uniform(settings.SATURATION))


def rotate(image: Any) -> Any:
    center = [WIDTH / 2, HEIGHT / 2]
    matrix = fn.transforms.rotation(angle=-uniform(settings.ROTATION_DEGREES), center=center)
    matrix = fn.transforms.scale(matrix, scale=[settings.OUTPUT_HW[1] / WIDTH, settings.OUTPUT_HW[0] / HEIGHT])
    return fn.warp_affine(image, matrix, size=[*settings.OUTPUT_HW], fill_value=0, inverse_map=False)


def region_resized(image: Any, corner: Any, end: Any, output_hw: tuple[int, int]) -> Any:
    return fn.resize(image, roi_start=corner, roi_end=end, size=[*output_hw], antialias=False)


def resize(image: Any) -> Any:
    factor = max(settings.OUTPUT_HW[0] / HEIGHT, settings.OUTPUT_HW[1] / WIDTH)
    half = settings.OUTPUT_HW[0] / factor / 2, settings.OUTPUT_HW[1] / factor / 2
    corner = [HEIGHT / 2 - half[0], WIDTH / 2 - half[1]]
    return region_resized(image, corner, [HEIGHT / 2 + half[0], WIDTH / 2 + half[1]], settings.OUTPUT_HW)


def crop_region() -> tuple[Any, Any]:
    """First and last corner of the region that is shown, ``(2,)``, mirrored or not."""
    scale = dali_math.max(
        uniform(settings.SCALE), max(settings.OUTPUT_HW[0] / HEIGHT, settings.OUTPUT_HW[1] / WIDTH)
    )
    size = constant(settings.OUTPUT_HW) / scale
    left, top = (WIDTH - size[1]) * uniform((0.0, 1.0)), HEIGHT - size[0]
    is_mirrored = coin()
    start, end = left + size[1] * is_mirrored, left + size[1] * (1.0 - is_mirrored)
    return fn.stack(top, start), fn.stack(top + size[0], end)


def decoded_part(start: Any, end: Any) -> tuple[Any, Any]:
    """Corner and size, ``(2,)`` int32, of the pixels that a region needs."""
    limits = np.array([HEIGHT, WIDTH], np.float32)
    corner = dali_math.max(dali_math.floor(dali_math.min(start, end)) - 1.0, np.float32(0))
    far = dali_math.min(dali_math.ceil(dali_math.max(start, end)) + 1.0, limits)
    return fn.cast(corner, dtype=_DT.INT32), fn.cast(far - corner, dtype=_DT.INT32)


def decode_resize_crop_flip(jpeg: Any) -> Any:
    start, end = crop_region()
    corner, size = decoded_part(start, end)
    image = fn.decoders.image_slice(jpeg, start=corner, shape=size, axis_names="HW")
    return region_resized(image, start - corner, end - corner, settings.OUTPUT_HW)


def flip(image: Any) -> Any:
    return fn.flip(image, horizontal=coin())


def mask_grid(image: Any) -> Any:
    tile = fn.random.uniform(range=settings.GRID_TILE, dtype=_DT.INT32)
    shift_x, shift_y = uniform((0.0, 1.0)) * tile, uniform((0.0, 1.0)) * tile
    return fn.grid_mask(image, tile=tile, ratio=0.5, angle=0.0, shift_x=shift_x, shift_y=shift_y)
