# SPDX-License-Identifier: Apache-2.0
"""Add the artefacts of JPEG compression to images."""

from __future__ import annotations

from collections.abc import Sequence

import nvidia.dali.fn as fn
from nvidia.dali import types

from ..checks import field_name, whole_number
from ..draws.random_draws import FieldKey, IntegerDraw, RandomDraw
from ..operators.image_pixels import with_pixels
from ..sample_data import Name, SampleDataGroup
from .image_use import ImageUse, as_pixels, white_at_full_scale
from .named_fields import FieldSearch
from .pipeline_step_base import PipelineStepBase


class ImageJpegDistorter(PipelineStepBase):
    """Adds the artefacts of JPEG compression of a random quality to every image of a name, anywhere in the sample.

    Input and output: decoded, ``(height, width, 3)`` RGB or a clip ``(frames, height, width, 3)``, uint8 in
    [0, 255], on the CPU or the GPU. Images that are known to be otherwise are refused. All images of the group
    that the step is applied to, and all frames, are compressed with the same quality. An image without a layout
    gets one, one without pixels makes the graph fail.

    Price on the CPU for 1600 x 900: 10 ms.

    Example:
        >>> step = ImageJpegDistorter("image", 30, 95, key="rig")
    """

    def __init__(
        self,
        image_name: Name,
        min_quality: int = 30,
        max_quality: int = 95,
        key: str | Sequence[Name] | FieldKey = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            min_quality: Least quality, as JPEG encoders count it, in [1, 100].
            max_quality: Greatest quality; may be drawn as well.
            key: What the quality is held constant over: "sample", "rig", "sequence", "sequence-rig", the path of
                a data field of the input, or a `FieldKey`.

        Raises:
            SettingError: The qualities or the key are not of this form.
        """
        max_quality = whole_number(max_quality, "max_quality", at_least=1, at_most=100)
        min_quality = whole_number(
            min_quality, "min_quality", at_least=1, at_most=max_quality, advice="`max_quality` is its limit."
        )
        self._image_name = field_name(image_name, "image_name")
        self._quality = IntegerDraw("quality", min_quality, max_quality + 1, key=key)

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the quality."""
        return [self._quality]

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must be in [0, 255]."""
        return [ImageUse(self._image_name, white_at_full_scale, as_pixels)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        quality = self.draw("quality")
        for path in data.find_all_occurrences(self._image_name):
            image = with_pixels(data.get_item_in_path(path))
            data.set_item_in_path(path, fn.jpeg_compression_distortion(image, quality=quality))
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        search.find(self._image_name, "an image", [types.DALIDataType.UINT8], group_of="images")
        search.raise_problems()
        return data_empty
