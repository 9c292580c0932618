# SPDX-License-Identifier: Apache-2.0
"""Pad images to multiples of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from ...checks import field_name, number
from ...errors import FieldValueError, SettingError
from ...operators import functions, image_arrays
from ...operators.field_types import leaf_at
from ...sample_data import SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name
from ..image_use import ImageUse, as_array, axis_of_height, check_fill_value, with_height_and_width
from ..named_fields import FieldSearch, as_names, find_paths
from ..pipeline_step_base import PipelineStepBase

_DT = types.DALIDataType
_RULE = "an image has height, width, channels"
_SIZE_TYPES = [_DT.INT32, _DT.INT64, _DT.UINT32, _DT.UINT64, _DT.INT16, _DT.UINT16, _DT.FLOAT, _DT.FLOAT64]


class ImageToTileSizePadder(PipelineStepBase):
    """Pads every image of a name, anywhere in the sample, at the bottom and on the right, to multiples of a tile.

    Input: decoded, ``(height, width, channels)`` or a clip ``(frames, height, width, channels)``, of any numbers,
    on the CPU or the GPU. Where the format knows another layout, as ``CHW`` behind a normalizer with this
    ``output_layout``, its height and width are padded. Output, in the same field: the same with ``ceil(height /
    tile_height) * tile_height`` rows and ``ceil(width / tile_width) * tile_width`` columns. Content stays where it
    is, so points, boxes and projection matrices stay valid. Images of a batch may differ in size.

    Fields that hold the size of an image are adjusted if they are named (``hw_names``).

    Example:
        >>> ImageToTileSizePadder("image", (64, 32))
        ImageToTileSizePadder(image_name='image', tile_size_xy=(64, 32), hw_names=(), fill_value=0.0)
    """

    treats_elements_alike = True

    def __init__(
        self,
        image_name: Name,
        tile_size_to_pad_to: int | Sequence[int],
        *,
        hw_names: Name | Sequence[Name] | None = None,
        fill_value: float = 0.0,
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            tile_size_to_pad_to: Width and height of a tile, in this order (x, y), pixels; or one number for both.
            hw_names: Names of fields that hold height and width of an image, ``(2,)``, in pixels: they
                are rounded up as the images are.
            fill_value: Value of the pixels that are added, among the values that images have at this place of the
                chain.

        Raises:
            SettingError: The tile is not one or two whole numbers of at least 1, or a name is none.
        """
        self._image_name = field_name(image_name, "image_name")
        self._tile_size_xy = _checked_tile(tile_size_to_pad_to)
        self._hw_names = as_names(hw_names, "hw_names")
        self._fill_value = number(fill_value, "fill_value")

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images stay as they are, whatever their layout."""
        return [ImageUse(self._image_name, with_height_and_width, as_array)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._image_name):
            image = data.get_item_in_path(path)
            is_bool = data.get_type_of_item_in_path(path) == _DT.BOOL
            if is_bool:  # which `fn.slice` refuses
                image = fn.reinterpret(image, dtype=_DT.UINT8)
            height = axis_of_height(leaf_at(data, path))
            image_hw = image.shape(dtype=_DT.INT32)[height : height + 2 or None]
            # Fails where there are fewer axes.
            padded_hw = functions.failing_with(_RULE, self._padded, image_hw)
            padded = fn.slice(
                image,
                start=[0, 0],
                shape=padded_hw,
                axes=[height, height + 1],
                out_of_bounds_policy="pad",
                fill_values=[self._fill_value],
            )
            data.set_item_in_path(path, fn.reinterpret(padded, dtype=_DT.BOOL) if is_bool else padded)
        self._pad_sizes(data)
        return data

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._image_name):
            image = data.get_item_in_path(path)
            height = axis_of_height(leaf_at(data, path)) % max(image.ndim, 1)
            if image.ndim < 3:
                raise FieldValueError(f"{_RULE[0].upper()}{_RULE[1:]}; got {image.shape}.")
            padded_hw = self._padded(np.array(image.shape[height : height + 2], np.int32))
            data.set_item_in_path(path, image_arrays.padded(image, height, padded_hw.tolist(), self._fill_value))
        self._pad_sizes(data)
        return data

    def _pad_sizes(self, data: SampleDataGroup) -> None:
        for path in find_paths(data, self._hw_names):
            size_hw = data.get_item_in_path(path)
            padded_hw = self._padded(functions.cast(size_hw, _DT.INT32))
            data.set_item_in_path(path, functions.cast_like(padded_hw, size_hw))

    def _padded(self, size_hw: Any) -> Any:
        """Height and width, ``(2,)`` int32, rounded up to tiles."""
        width, height = self._tile_size_xy
        tile_hw = np.array([height, width], np.int32)
        # One number needs no operator. The first sum is of two numbers: it fails where there are others.
        size: Any = width if width == height else functions.constant(tile_hw, size_hw, np.int32)
        return (size_hw + (tile_hw - 1)) // size * size

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        images = search.find(self._image_name, "an image", [*NUMPY_TYPES], group_of="images")
        search.find(self._hw_names, "a height and a width", _SIZE_TYPES, group_of="image sizes")
        check_fill_value(search, images, [self._fill_value])
        return search.result()


def _checked_tile(tile: object) -> tuple[int, int]:
    try:
        sizes = np.asarray(tile)
    except ValueError:
        sizes = np.empty(0)
    is_whole = sizes.dtype.kind in "iu" or (sizes.dtype.kind == "f" and (sizes == np.floor(sizes)).all())
    if sizes.shape not in ((), (1,), (2,)) or not is_whole or (sizes < 1).any() or (sizes > 2**20).any():
        raise SettingError(
            f"`tile_size_to_pad_to` must be a whole number of at least 1, or two of them, (x, y), got {tile!r}."
        )
    width, height = np.broadcast_to(sizes, 2).tolist()
    return int(width), int(height)
