# SPDX-License-Identifier: Apache-2.0
"""Convert the color space of images."""

from __future__ import annotations

import nvidia.dali.fn as fn
from nvidia.dali.data_node import DataNode
from nvidia.dali.types import DALIDataType, DALIImageType

from ..checks import choice
from ..operators.image_pixels import with_pixels
from .image_pixel_step import ImagePixelStep, PixelChange
from .image_use import white_at_full_scale
from .named_fields import Names

IMAGE_TYPES = (DALIImageType.RGB, DALIImageType.BGR, DALIImageType.YCbCr, DALIImageType.GRAY)


class ImageColorSpaceConverter(ImagePixelStep):
    """Converts every image of a name, anywhere in the sample, to another color space.

    Input: decoded, ``(height, width, channels)`` or a clip ``(frames, height, width, channels)``, uint8 in
    [0, 255], on the CPU or the GPU; one channel if gray, else three. Images that are known to be otherwise are
    refused. Output, in the same field: the same with the channels of the other space. YCbCr is that of ITU-R
    BT.601 with levels from 16 to 235 (chroma: 240), gray is the luma of full range. An image without a layout gets
    one, one without pixels makes the graph fail.

    Example:
        >>> step = ImageColorSpaceConverter(
        ...     "image", from_image_type=DALIImageType.RGB, to_image_type=DALIImageType.BGR
        ... )
    """

    _dtypes = (DALIDataType.UINT8,)
    _needs = staticmethod(white_at_full_scale)

    def __init__(
        self, image_names: Names, *, from_image_type: DALIImageType, to_image_type: DALIImageType
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images.
            from_image_type: Color space of the images: ``RGB``, ``BGR``, ``YCbCr`` or ``GRAY``.
            to_image_type: Color space that they get.

        Raises:
            SettingError: A color space is none of these.
        """
        super().__init__(image_names)
        self._draws = ()
        self._from_image_type = choice(from_image_type, "from_image_type", IMAGE_TYPES)
        self._to_image_type = choice(to_image_type, "to_image_type", IMAGE_TYPES)

    def _change(self) -> PixelChange:
        before, after = self._from_image_type, self._to_image_type

        def converted(image: DataNode, dtype: DALIDataType) -> DataNode:
            if before == after:  # which DALI refuses
                return image
            return fn.color_space_conversion(with_pixels(image), image_type=before, output_type=after)

        return converted
