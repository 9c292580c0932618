# SPDX-License-Identifier: Apache-2.0
"""Convert the color space of images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali.data_node import DataNode
from nvidia.dali.types import DALIDataType, DALIImageType

from ...checks import choice
from ...operators.array_packages import needed_package
from ...operators.image_pixels import (
    Image,
    by_frame,
    checked_image,
    looked_up,
    recolored,
    scaling_table,
    with_pixels,
)
from ..image_use import white_at_full_scale
from ..named_fields import Names
from .image_pixel_step import ArrayChange, ImagePixelStep, PixelChange

IMAGE_TYPES = (DALIImageType.RGB, DALIImageType.BGR, DALIImageType.YCbCr, DALIImageType.GRAY)
_RGB, _BGR, _YCBCR, _GRAY = IMAGE_TYPES

# ITU-R BT.601, with offsets in the last column.
_YCBCR_FROM_RGB = np.array(
    [
        [0.25678824, 0.50412941, 0.09790588, 16],
        [-0.1482229, -0.29099279, 0.43921569, 128],
        [0.43921569, -0.36778831, -0.07142737, 128],
    ]
)
_RGB_FROM_YCBCR = np.array(
    [
        [255 / 219, 0, 1.59602679, -16 * 255 / 219 - 128 * 1.59602679],
        [255 / 219, -0.39176229, -0.81296765, -16 * 255 / 219 + 128 * (0.39176229 + 0.81296765)],
        [255 / 219, 2.01723214, 0, -16 * 255 / 219 - 128 * 2.01723214],
    ]
)
_MATRICES: Mapping[tuple[DALIImageType, DALIImageType], npt.NDArray[np.float64]] = {
    (_RGB, _YCBCR): _YCBCR_FROM_RGB,
    (_BGR, _YCBCR): _YCBCR_FROM_RGB[:, [2, 1, 0, 3]],
    (_YCBCR, _RGB): _RGB_FROM_YCBCR,
    (_YCBCR, _BGR): _RGB_FROM_YCBCR[::-1],
}
_OPENCV_CODES: Mapping[tuple[DALIImageType, DALIImageType], str] = {
    (_RGB, _BGR): "COLOR_RGB2BGR",
    (_BGR, _RGB): "COLOR_RGB2BGR",
    (_RGB, _GRAY): "COLOR_RGB2GRAY",
    (_BGR, _GRAY): "COLOR_BGR2GRAY",
    (_GRAY, _RGB): "COLOR_GRAY2RGB",
    (_GRAY, _BGR): "COLOR_GRAY2RGB",
}


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

    image_tolerance = 1 / 255  # one level, from and to YCbCr

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

    def _array_change(self) -> ArrayChange | None:
        before, after = self._from_image_type, self._to_image_type
        return None if before == after else self._converted

    def _converted(self, image: Image) -> Image:
        spaces = self._from_image_type, self._to_image_type
        checked_image(image, needs_pixels=True, num_channels=[1 if spaces[0] == _GRAY else 3])
        if spaces in _MATRICES:
            return recolored(image, _MATRICES[spaces])
        if spaces in _OPENCV_CODES:
            cv2 = needed_package("cv2")
            code = getattr(cv2, _OPENCV_CODES[spaces])
            return by_frame(image, lambda frame: cv2.cvtColor(frame, code))
        if spaces == (_YCBCR, _GRAY):
            return looked_up(image[..., :1], scaling_table(np.float32(255 / 219), np.float32(-16 * 255 / 219)))
        result = np.full((*image.shape[:-1], 3), 128, np.uint8)
        result[..., :1] = looked_up(image, scaling_table(np.float32(219 / 255), np.float32(16)))
        return result
