# SPDX-License-Identifier: Apache-2.0
"""The work of the steps written by hand in DALI, as directly as it can be written there.

Sizes of images are known here, and each function does one thing only, so nothing is general.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import step_data
import step_settings as settings
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math
from nvidia.dali.pipeline import pipeline_def
from step_data import (
    DETECTION_FIELDS,
    MULTI_CAMERA_FIELDS,
    NUM_CAMERAS,
    NUM_CATEGORIES,
    DrivingSamples,
)

HEIGHT, WIDTH = step_data.IMAGE_HW
_DT = types.DALIDataType


def uniform(limits: tuple[float, float]) -> Any:
    return fn.random.uniform(range=limits)


def constant(values: Any) -> Any:
    """A node: NumPy arrays cannot stand to the left of one."""
    return types.Constant(np.array(values, np.float32), device="cpu")


def coin() -> Any:
    return fn.random.coin_flip(probability=settings.FLIP_PROB)


# --- single steps ------------------------------------------------------------------------------------------


def decode(jpeg: Any) -> Any:
    return fn.decoders.image(jpeg)


def to_range_01(image: Any) -> Any:
    return image * np.float32(1 / 255)


def normalize(image: Any, dtype: Any = _DT.FLOAT, layout: str = "HWC") -> Any:
    return fn.crop_mirror_normalize(
        image, mean=[*settings.MEAN], std=[*settings.STD_DEV], dtype=dtype, output_layout=layout
    )


def normalize_to_half(image: Any) -> Any:
    return normalize(image, _DT.FLOAT16)


def normalize_to_chw(image: Any) -> Any:
    return normalize(image, layout="CHW")


def pad(image: Any) -> Any:
    return fn.pad(image, axes=(0, 1), align=(settings.TILE, settings.TILE))


def brighten(image: Any) -> Any:
    """Brightness, then contrast: what is above white before the contrast is lost."""
    shifted = fn.brightness_contrast(image, brightness_shift=uniform(settings.BRIGHTNESS) / 255.0)
    return fn.brightness_contrast(shifted, brightness=uniform(settings.CONTRAST))


def distort(image: Any) -> Any:
    return fn.hsv(brighten(image), hue=uniform(settings.HUE_DEGREES), saturation=uniform(settings.SATURATION))


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


def zoom_region(output_hw: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Corner and end of the region that is shown, ``(2,)``, and the matrix, ``(2, 3)``."""
    factor = max(output_hw[0] / HEIGHT, output_hw[1] / WIDTH) * uniform(settings.ZOOM)
    factors = fn.stack(factor, factor * (1.0 - 2.0 * coin()))
    half = constant(output_hw) / 2.0 / factors
    center = constant([HEIGHT / 2, WIDTH / 2])
    scale = fn.stack(factors[1], factors[0])
    offset = constant(output_hw[::-1]) / 2.0 - scale * constant([WIDTH / 2, HEIGHT / 2])
    matrix = fn.transforms.translation(fn.transforms.scale(scale=scale), offset=offset)
    return center - half, center + half, matrix


def zoom(image: Any) -> Any:
    corner, end, _ = zoom_region(settings.OUTPUT_HW)
    return region_resized(image, corner, end, settings.OUTPUT_HW)


def crop_region() -> tuple[Any, Any, Any]:
    """First and last corner of the region that is shown, ``(2,)``, mirrored or not, and the matrix, ``(2, 3)``."""
    scale = dali_math.max(
        uniform(settings.SCALE), max(settings.OUTPUT_HW[0] / HEIGHT, settings.OUTPUT_HW[1] / WIDTH)
    )
    size = constant(settings.OUTPUT_HW) / scale
    left, top = (WIDTH - size[1]) * uniform((0.0, 1.0)), HEIGHT - size[0]
    is_mirrored = coin()
    sign = 1.0 - 2.0 * is_mirrored
    offset = fn.stack(is_mirrored * float(settings.OUTPUT_HW[1]) - sign * scale * left, -scale * top)
    matrix = fn.transforms.translation(fn.transforms.scale(scale=fn.stack(scale * sign, scale)), offset=offset)
    start, end = left + size[1] * is_mirrored, left + size[1] * (1.0 - is_mirrored)
    return fn.stack(top, start), fn.stack(top + size[0], end), matrix


def resize_crop_flip(image: Any) -> Any:
    start, end, _ = crop_region()
    return region_resized(image, start, end, settings.OUTPUT_HW)


def decoded_part(start: Any, end: Any) -> tuple[Any, Any]:
    """Corner and size, ``(2,)`` int32, of the pixels that a region needs."""
    limits = np.array([HEIGHT, WIDTH], np.float32)
    corner = dali_math.max(dali_math.floor(dali_math.min(start, end)) - 1.0, np.float32(0))
    far = dali_math.min(dali_math.ceil(dali_math.max(start, end)) + 1.0, limits)
    return fn.cast(corner, dtype=_DT.INT32), fn.cast(far - corner, dtype=_DT.INT32)


def decode_resize_crop_flip(jpeg: Any) -> Any:
    start, end, _ = crop_region()
    corner, size = decoded_part(start, end)
    image = fn.decoders.image_slice(jpeg, start=corner, shape=size, axis_names="HW")
    return region_resized(image, start - corner, end - corner, settings.OUTPUT_HW)


def flip(image: Any) -> Any:
    return fn.flip(image, horizontal=coin())


def mask_grid(image: Any) -> Any:
    tile = fn.random.uniform(range=settings.GRID_TILE, dtype=_DT.INT32)
    shift_x, shift_y = uniform((0.0, 1.0)) * tile, uniform((0.0, 1.0)) * tile
    return fn.grid_mask(image, tile=tile, ratio=0.5, angle=0.0, shift_x=shift_x, shift_y=shift_y)


# --- chains ------------------------------------------------------------------------------------------------


class Source:
    """The callable of a pipeline, in its workers."""

    def __init__(self, samples: DrivingSamples, names: tuple[str, ...]) -> None:
        self.samples, self.names = samples, names

    def __call__(self, info: types.SampleInfo) -> tuple[Any, ...]:
        return tuple(self.samples.load(info.idx_in_epoch, self.names))


def source(samples: DrivingSamples, names: tuple[str, ...], is_parallel: bool) -> dict[str, Any]:
    """A node for each field."""
    nodes = fn.external_source(
        Source(samples, names),
        num_outputs=len(names),
        batch=False,
        parallel=is_parallel,
        **({"prefetch_queue_depth": 2} if is_parallel else {}),
    )
    return dict(zip(names, nodes, strict=True))


@pipeline_def
def multi_camera(samples: DrivingSamples, is_parallel: bool = True) -> tuple[Any, ...]:
    """Images resized at random and normalized, matrices and 3D boxes changed accordingly."""
    fields = source(samples, MULTI_CAMERA_FIELDS, is_parallel)
    start, end, matrix = crop_region()
    corner, size = decoded_part(start, end)
    start, end = start - corner, end - corner
    motion, inverse, angle_rad, factor = bev_motion()
    plane = fn.cat(fn.cat(matrix, np.zeros((2, 1), np.float32), axis=1), np.eye(4, dtype=np.float32)[2:])
    plane_3 = plane[:3, :3]
    for camera in range(NUM_CAMERAS):
        jpeg = fields[f"jpeg_{camera}"]
        image = fn.decoders.image_slice(jpeg, start=corner, shape=size, axis_names="HW")
        fields[f"jpeg_{camera}"] = normalize_to_chw(region_resized(image, start, end, settings.OUTPUT_HW))
        fields[f"intrinsics_{camera}"] = product(plane_3, fields[f"intrinsics_{camera}"])
        projection = product(plane, fields[f"image_from_ego_{camera}"])
        fields[f"image_from_ego_{camera}"] = fn.coord_transform(projection, M=inverse)
    fields["centers"] = fn.coord_transform(fields["centers"], MT=motion)
    fields["velocities"] = fn.coord_transform(fields["velocities"], M=motion[:, :3])
    fields["sizes"] = fields["sizes"] * factor
    yaws = fields["yaws"] + angle_rad
    fields["yaws"] = yaws - dali_math.floor(yaws * (0.5 / math.pi) + 0.5) * (2 * math.pi)
    fields["ego_to_world"] = fn.coord_transform(fields["ego_to_world"], M=inverse)
    return tuple(fields[name] for name in MULTI_CAMERA_FIELDS)


def product(left: Any, right: Any) -> Any:
    """Of two matrices."""
    return fn.transpose(fn.coord_transform(fn.transpose(right), M=left))


def bev_motion() -> tuple[Any, Any, Any, Any]:
    """A turn and a scaling, ``(3, 4)``; the inverse, transposed, ``(4, 4)``; angle and factor."""
    angle_rad, factor = uniform(settings.BEV_ANGLE_RAD), uniform(settings.BEV_SCALE)
    degrees, shrunk = angle_rad * (180 / math.pi), 1.0 / factor
    up = [0.0, 0.0, 1.0]
    motion = fn.transforms.rotation(angle=degrees, axis=up)
    motion = fn.transforms.scale(motion, scale=fn.stack(factor, factor, factor))
    inverse = fn.transforms.scale(scale=fn.stack(shrunk, shrunk, shrunk))
    inverse = fn.transforms.rotation(inverse, angle=-degrees, axis=up)
    last = np.array([[0, 0, 0, 1]], np.float32)
    return motion, fn.transpose(fn.cat(inverse, last)), angle_rad, factor


@pipeline_def
def detection(samples: DrivingSamples, is_parallel: bool = True) -> tuple[Any, ...]:
    """Distorted, zoomed, mirrored, normalized and padded images, boxes, categories, and heatmaps."""
    fields = source(samples, DETECTION_FIELDS, is_parallel)
    start, end, matrix = zoom_region(settings.DETECTION_HW)
    image = region_resized(distort(decode(fields["jpeg_0"])), start, end, settings.DETECTION_HW)
    boxes = fn.coord_transform(fn.reshape(fields["boxes"], shape=[-1, 2]), MT=matrix)
    boxes = fn.reshape(boxes, shape=[-1, 4])
    ends = boxes[:, 0:2], boxes[:, 2:4]
    boxes = fn.cat(dali_math.min(*ends), dali_math.max(*ends), axis=1)
    return pad(normalize(image)), boxes, fields["categories"], heatmaps(boxes, fields["categories"])


def heatmaps(boxes: Any, categories: Any) -> Any:
    """The greatest Gaussian of each category, ``(categories, h, w)``."""
    height, width = settings.HEATMAP_HW
    scaled = boxes * np.tile(np.array([width, height], np.float32) / settings.DETECTION_PADDED_HW[::-1], 2)[None]
    size, center = scaled[:, 2:4] - scaled[:, 0:2], (scaled[:, 2:4] + scaled[:, 0:2]) * 0.5
    seen = dali_math.clamp(scaled, 0.0, np.array([[width, height, width, height]], np.float32))
    seen_size = seen[:, 2:4] - seen[:, 0:2]
    is_active = seen_size[:, 0] * seen_size[:, 1] >= size[:, 0] * size[:, 1] * 0.25
    last = np.array([[width - 1, height - 1]], np.float32)
    clipped = dali_math.clamp(scaled, 0.0, np.tile(last, 2))
    center = dali_math.clamp(center, 0.0, last)
    distance = dali_math.min(center - clipped[:, 0:2], clipped[:, 2:4] - center)
    radius = dali_math.clamp(dali_math.min(distance[:, 0:1], distance[:, 1:2]) * 0.8, 0.5, 10.0)
    pixel = dali_math.floor(center)
    curves = [
        gaussian(pixel[:, axis : axis + 1] - np.arange(count, dtype=np.float32)[None], radius)
        for axis, count in ((0, width), (1, height))
    ]
    maps = []
    for category in range(NUM_CATEGORIES):
        is_drawn = fn.cast(is_active & (categories == category), dtype=_DT.FLOAT)
        along_x = fn.reshape(curves[0] * fn.reshape(is_drawn, shape=[-1, 1]), shape=[-1, 1, width])
        along_y = fn.reshape(curves[1], shape=[-1, height, 1])
        maps.append(fn.reductions.max(along_x * along_y, axes=[0]))
    return fn.stack(*maps)


def gaussian(distance: Any, radius: Any) -> Any:
    """``(N, pixels)``, 0 beyond the radius."""
    is_inside = dali_math.abs(distance) <= dali_math.ceil(radius)
    return dali_math.exp(distance * distance * (-4.5 / (radius * radius))) * is_inside
