# SPDX-License-Identifier: Apache-2.0
"""Bring images to the range from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types

from ...checks import field_name
from ...operators.field_types import leaf_at
from ...operators.image_pixels import fill_with_scaled
from ...sample_data import ImageContent, LeafFormat, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name
from ..image_use import ARRAY, ImageUse, range_before
from ..named_fields import FieldSearch
from ..pipeline_step_base import PipelineStepBase
from .image_pixel_step import change_images

_PER_LEVEL = np.float32(1 / 255)
_CAST_FIRST = (types.DALIDataType.FLOAT16, types.DALIDataType.FLOAT64)  # DALI's product is no float32


class ImageRange01Normalizer(PipelineStepBase):
    """Divides every image of a name, anywhere in the sample, by 255.

    Input: decoded images or clips of any shape and layout, on the CPU or the GPU: uint8 in [0, 255], or another
    type of numbers, in the same range. Images that are known to have other values are refused. Output, in the same
    field: float32 in [0, 1], the same shape and layout::

        output = float32(input) * float32(1 / 255)

    To normalize by mean and standard deviation as well, let `ImageMeanStdDevNormalizer` do both at once: multiply
    ``mean`` and ``std_dev`` by 255.

    Example:
        >>> ImageRange01Normalizer("image")
        ImageRange01Normalizer(image_name='image')
    """

    treats_elements_alike = True

    def __init__(self, image_name: Name) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
        """
        self._image_name = field_name(image_name, "image_name")

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images in [0, 255] come to [0, 1]."""
        return [ImageUse(self._image_name, attrs.evolve(ARRAY, value_range=(0, 255)), _divided)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._image_name):
            image = data.get_item_in_path(path)
            if data.get_type_of_item_in_path(path) in _CAST_FIRST:
                image = fn.cast(image, dtype=types.DALIDataType.FLOAT)
            scaled = image * _PER_LEVEL
            ndim = leaf_at(data, path).ndim
            data.change_type_of_data_and_remove_data(path, types.DALIDataType.FLOAT, new_ndim=ndim)
            data.set_item_in_path(path, scaled)
        return data

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        paths = data.find_all_occurrences(self._image_name)
        change_images(data, paths, _divided_array, types.DALIDataType.FLOAT)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        paths = search.find(self._image_name, "an image", [*NUMPY_TYPES], group_of="images")
        search.raise_problems()
        for path in paths:
            ndim = leaf_at(data_empty, path).ndim
            data_empty.change_type_of_data_and_remove_data(path, types.DALIDataType.FLOAT, new_ndim=ndim)
        return data_empty


def _divided(leaf: LeafFormat) -> ImageContent:
    value_range = None if range_before(leaf) is None else (0, 1)
    return attrs.evolve(leaf.content, is_encoded=False, value_range=value_range)


def _divided_array(image: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    result = np.empty(image.shape, np.float32)
    rows = (-1, image.shape[-1] if image.ndim else 1)
    if image.size:
        fill_with_scaled(result.reshape(rows), image.reshape(rows), None, _PER_LEVEL)
    return result
