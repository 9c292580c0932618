# SPDX-License-Identifier: Apache-2.0
"""Pixels of images: checks in the graph, and changes of arrays.

Arrays are changed by OpenCV, with few passes over the pixels, and with DALI's roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ..engine.dali.graph_definition import branched
from ..engine.dali.texts import ASKS_FOR_DECODER, failing_with
from ..errors import FieldValueError
from ..sample_data.graph_mode import do_not_convert
from .array_packages import needed_package
from .functions import Array, Value, cast_array

_OTHER_CHANNELS = f"an image has another number of channels than there are means ({ASKS_FOR_DECODER})"
_INT32 = types.DALIDataType.INT32


@do_not_convert
def pipeline_has_gpu() -> bool:
    """Whether the pipeline that is being defined, if there is one, has a GPU."""
    return Pipeline.current() is None or Pipeline.current().device_id is not None


@do_not_convert
def with_layout(image: DataNode, known: str | None = None) -> DataNode:
    """Return an image or clip unchanged, with the layout ``HWC`` or ``FHWC`` where it has none.

    Another layout, e.g. ``CHW``, makes the graph fail. Operators that need a layout assume a wrong one, or fail,
    where it is missing. Costs nothing where the format knows it. Else a pass over the pixels: always on the GPU,
    on the CPU only if the layout is missing.
    """
    if known in ("HWC", "FHWC"):
        return fn.reshape(image, layout=known)
    if image.device == "gpu":
        return _guessed_layout(image)
    letters: Value = fn.get_property(image, key="layout")
    # A byte before, so that there is one.
    letters = fn.slice(letters, start=[-1], rel_end=[1.0], axes=[0], out_of_bounds_policy="pad")
    is_known = letters[-1] == ord("C")
    return branched(is_known, [image], lambda known: known, _guessed_layout)


def _guessed_layout(image: DataNode) -> DataNode:
    """Set a missing layout; refuse a layout in which channels are not last."""
    same: DataNode = fn.brightness_contrast(image, brightness=1.0, contrast=1.0, contrast_center=0.0)
    return same


@do_not_convert
def zero_where_channels_fit(image: DataNode, num_channels: int) -> DataNode:
    """Return a zero, int32, whose computation fails where an image has another number of channels.

    Passed as an argument to the operator on the image, it makes the graph fail before the operator runs:
    ``fn.crop_mirror_normalize`` never finishes a batch in which only some images have another number of channels,
    and the pipeline would wait for it forever.
    """
    same = failing_with(
        _OTHER_CHANNELS,
        fn.reshape,
        types.Constant(np.zeros(num_channels, np.int32), device="cpu"),
        shape=fn.reshape(image.shape(dtype=_INT32)[-1], shape=[1]),
    )
    zero: DataNode = same.shape(dtype=_INT32) - num_channels
    return zero


Image: TypeAlias = Array
"""``(height, width, channels)`` or ``(frames, height, width, channels)``."""

_LEVELS = np.arange(256, dtype=np.uint8)
# The same, each in a row of its own: with vector instructions, and without.
_LEVELS_IN_ROWS = np.repeat(_LEVELS[:, None], 2, axis=1)[:, :1]
_CACHED_BYTES = 1 << 19
_COPIED_AS = {1: np.uint8, 2: np.uint16, 4: np.float32, 8: np.float64}
_SPLIT_BY_OPENCV = (np.dtype(np.uint8), np.dtype(np.float32))


def checked_image(image: Image, *, needs_pixels: bool, num_channels: Sequence[int] = ()) -> Image:
    """Return an image.

    Raises:
        FieldValueError: It has other axes than an image or a clip, or no pixels, or other numbers of channels.
    """
    if image.ndim not in (3, 4):
        raise FieldValueError(
            f"an image is (height, width, channels), a clip (frames, height, width, channels), got an array of "
            f"shape {image.shape}; {ASKS_FOR_DECODER}"
        )
    if needs_pixels and not image.size:
        raise FieldValueError(f"an image of no pixels, of shape {image.shape}")
    if num_channels and image.shape[-1] not in num_channels:
        needed = " or ".join(map(str, num_channels))
        raise FieldValueError(f"an image with {needed} channels is needed, got shape {image.shape}")
    return image


def frames_of(image: Image) -> Image:
    """Get an image as a clip of one frame."""
    return image if image.ndim == 4 else image[None]


def by_frame(image: Image, change: Callable[[Array], Array]) -> Image:
    """Change each frame; it may come back without an axis for its only channel."""
    changed = [change(frame) for frame in frames_of(image)]
    if image.ndim == 3:
        return changed[0].reshape(*image.shape[:2], -1)
    return np.stack(changed).reshape(*image.shape[:3], -1)


def looked_up(image: Image, table: Array, is_transposed: bool = False) -> Array:
    """Compute ``table[image]`` for uint8 images.

    Args:
        image: The image, uint8.
        table: For each level, ``(256,)``, or for each level of each channel, ``(256, channels)``; any numbers.
        is_transposed: Whether the channels come first in the result, for tables of channels.
    """
    if not image.size:
        return np.empty(_shape(image, is_transposed), table.dtype)
    # OpenCV only copies the numbers, so it is their size that counts.
    as_table = table.view(_COPIED_AS[table.dtype.itemsize])
    look_up = needed_package("cv2").LUT
    if is_transposed:
        result = np.empty(_shape(image, True), as_table.dtype)
        for frame, target in zip(frames_of(image), frames_of(result), strict=True):
            for plane, of_channel, found in zip(planes_of(frame), as_table.T.copy(), target, strict=True):
                look_up(plane, of_channel[None], found)
        return result.view(table.dtype)
    flat = image.reshape(-1, image.shape[-1]) if table.ndim == 1 else image.reshape(-1, 1, image.shape[-1])
    result = np.asarray(look_up(flat, as_table[None]))
    return result.view(table.dtype).reshape(image.shape)


def scaling_table(gain: np.floating[Any], offset: np.floating[Any]) -> npt.NDArray[np.uint8]:
    """Compute ``gain * level + offset`` for each level, float32, rounded and saturated."""
    return np.asarray(cast_array(_LEVELS * gain + offset, np.uint8))


def scaled(image: Image, gain: np.float32, offset: np.float32) -> Image:
    """Compute ``gain * image + offset``, float32; uint8 images are rounded and saturated."""
    if image.dtype != np.uint8:
        result: Image = image * gain
        result += offset
        return result
    table = scaling_table(gain, offset)
    add_weighted = needed_package("cv2").addWeighted
    # Twice as fast as a table; but some levels may be rounded in another way.
    weights = float(gain), float(offset)
    if image.size and all(
        np.array_equal(add_weighted(each, weights[0], each, 0.0, weights[1]).ravel(), table)
        for each in (_LEVELS, _LEVELS_IN_ROWS)
    ):
        flat = image.reshape(-1, image.shape[-1])
        found: Image = add_weighted(flat, weights[0], flat, 0.0, weights[1])
        return found.reshape(image.shape)
    return looked_up(image, table)


def recolored(image: Image, matrix: npt.NDArray[np.floating[Any]], is_own: bool = False) -> Image:
    """Multiply the color of each pixel by a matrix.

    Args:
        image: uint8 or float32. uint8 is saturated, and within one level of what float32 gives.
        matrix: ``(3, 3)``, or with a column of what is added, ``(3, 4)``.
        is_own: Whether nobody else has the image, so that it may be changed: new memory may cost more than the
            change.
    """
    if not image.size:
        return image
    rows = image.reshape(-1, image.shape[-2], image.shape[-1])
    transform = needed_package("cv2").transform
    matrix = np.ascontiguousarray(matrix, np.float32)
    if not is_own:
        found: Image = transform(rows, matrix)
        return found.reshape(image.shape)
    num_rows = max(1, _CACHED_BYTES // rows[0].nbytes)
    for start in range(0, len(rows), num_rows):  # OpenCV copies what it changes in place
        part = rows[start : start + num_rows]
        transform(part, matrix, part)
    return rows.reshape(image.shape)


def planes_of(frame: Array) -> Sequence[Array]:
    """Split ``(height, width, channels)``, at least one pixel, into channels, each ``(height, width)``."""
    if frame.dtype in _SPLIT_BY_OPENCV:
        planes: Sequence[Array] = needed_package("cv2").split(frame)
        return planes
    return [*np.moveaxis(frame, -1, 0)]


def scaled_channels(
    image: Image, mean: npt.NDArray[np.float32], factor: npt.NDArray[np.float32], is_transposed: bool
) -> npt.NDArray[np.float32]:
    """Compute ``(image - mean) * factor`` for each channel, float32; the channels may come first in the result."""
    result = np.empty(_shape(image, is_transposed), np.float32)
    if not image.size:
        return result
    if not is_transposed:
        rows, width = (-1, image.shape[-1] * image.shape[-2]), image.shape[-2]
        fill_with_scaled(result.reshape(rows), image.reshape(rows), np.tile(mean, width), np.tile(factor, width))
        return result
    for frame, target in zip(frames_of(image), frames_of(result), strict=True):
        for channel, plane in enumerate(planes_of(frame)):
            fill_with_scaled(target[channel], plane, mean[channel], factor[channel])
    return result


def _shape(image: Image, is_transposed: bool) -> tuple[int, ...]:
    *others, height, width, num_channels = image.shape
    return (*others, num_channels, height, width) if is_transposed else image.shape


def fill_with_scaled(
    result: npt.NDArray[np.float32], values: Array, mean: Value, factor: Array | np.float32
) -> None:
    """Set ``result``, ``(rows, columns)``, to ``(values - mean) * factor``, in float32.

    Mean and factor are for each column, or for all; a mean of None is 0.
    """
    num_rows = max(1, _CACHED_BYTES // (4 * result.shape[1]))
    for start in range(0, len(result), num_rows):  # in parts, which stay in the cache
        part = result[start : start + num_rows]
        np.copyto(part, values[start : start + num_rows], casting="unsafe")
        if mean is not None:
            part -= mean
        part *= factor
