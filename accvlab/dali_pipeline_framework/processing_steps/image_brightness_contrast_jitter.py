# SPDX-License-Identifier: Apache-2.0
"""Change brightness and contrast of images at random."""

from __future__ import annotations

from collections.abc import Sequence

import nvidia.dali.fn as fn
from nvidia.dali import types

from ..checks import field_name, number_range
from ..draws.random_draws import FieldKey, RandomDraw, UniformDraw
from ..sample_data import Name, SampleDataGroup
from .image_use import ImageUse, as_pixels, white_at_full_scale
from .named_fields import FieldSearch
from .pipeline_step_base import PipelineStepBase


class ImageBrightnessContrastJitter(PipelineStepBase):
    """Multiplies brightness and contrast of every image of a name, anywhere in the sample, by random factors.

    Input and output: decoded, ``(height, width, channels)``, layout ``HWC``, uint8 in [0, 255] or float32 in
    [0, 1], on the CPU or the GPU; images that are known to have other values are refused. uint8 is rounded and
    saturated, float32 is not clipped::

        output = brightness * (center + contrast * (input - center))      center = 128 (uint8), 0.5 (float32)

    All images of the group that the step is applied to get the same factors. For factors of their own, apply the
    step to each camera by a wrapper, e.g. `DataGroupArrayWithNameElementsAppliedStep`, with a ``key`` that differs
    between groups.

    Price on the CPU for 1600 x 900 uint8, one operator (``fn.brightness_contrast``): 2 ms.
    """

    def __init__(
        self,
        image_name: Name,
        brightness_range: tuple[float, float] = (0.8, 1.2),
        contrast_range: tuple[float, float] = (0.8, 1.2),
        key: str | Sequence[Name] | FieldKey = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            brightness_range: Least and greatest factor of the brightness, of at least 0.
            contrast_range: Least and greatest factor of the contrast, of at least 0.
            key: What the factors are held constant over: "sample", "rig", "sequence", "sequence-rig", the path of
                a data field of the input, or a `FieldKey`.

        Raises:
            SettingError: A range or the key is not of this form.
        """
        self._image_name = field_name(image_name, "image_name")
        self._draws = tuple(
            UniformDraw(name, *number_range(limits, f"{name}_range", at_least=0), key=key)
            for name, limits in (("brightness", brightness_range), ("contrast", contrast_range))
        )

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare a factor for the brightness and one for the contrast."""
        return self._draws

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must have their full range."""
        return [ImageUse(self._image_name, white_at_full_scale, as_pixels)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        brightness, contrast = self.draw("brightness"), self.draw("contrast")
        for path in data.find_all_occurrences(self._image_name):
            is_uint8 = data.get_type_of_item_in_path(path) == types.DALIDataType.UINT8
            changed = fn.brightness_contrast(
                data.get_item_in_path(path),
                brightness=brightness,
                contrast=contrast,
                contrast_center=128.0 if is_uint8 else 0.5,
            )
            data.set_item_in_path(path, changed)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        search.find(
            self._image_name, "an image", [types.DALIDataType.UINT8, types.DALIDataType.FLOAT], group_of="images"
        )
        search.raise_problems()
        return data_empty
