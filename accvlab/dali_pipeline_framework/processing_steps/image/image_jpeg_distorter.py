# SPDX-License-Identifier: Apache-2.0
"""Add the artefacts of JPEG compression to images."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...draws.random_draws import IntegerDraw
from ...engine.dali.graph_definition import branched
from ...operators.array_packages import needed_package
from ...operators.image_pixels import by_frame, with_layout, with_pixels
from ..image_use import white_at_full_scale
from ..named_fields import Key, Names
from .image_pixel_step import ArrayChange, ImagePixelStep, PixelChange, whole_range


class ImageJpegDistorter(ImagePixelStep):
    """Adds the artefacts of JPEG compression of a random quality to every image of a name, anywhere in the sample.

    Input and output: decoded, ``(height, width, 3)`` RGB or a clip ``(frames, height, width, 3)``, uint8 in
    [0, 255], on the CPU or the GPU. Images that are known to be otherwise are refused. All images of the group
    that the step is applied to, and all frames, are compressed with the same quality. An image without a layout
    gets one, one without pixels makes the graph fail.

    Example:
        >>> step = ImageJpegDistorter("image", quality_range=(30, 95), key="rig")
    """

    _dtypes = (types.DALIDataType.UINT8,)
    _needs = staticmethod(white_at_full_scale)
    _needs_pixels = True
    _num_channels = (3,)

    def __init__(
        self,
        image_names: Names,
        *,
        prob: float = 1.0,
        quality_range: tuple[int, int] = (30, 95),
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images.
            prob: Probability that a sample is changed, in [0, 1].
            quality_range: Least and greatest quality, as JPEG encoders count it, in [1, 100]; both may be drawn.
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.

        Raises:
            SettingError: An argument is not of this form.
        """
        super().__init__(image_names, prob, key)
        least, most = whole_range(quality_range, "quality_range", at_least=1, at_most=100)
        self._draws += (IntegerDraw("quality", least, most + 1, key=key),)

    def _change(self) -> PixelChange:
        is_changed, quality = self._is_changed(), self.draw("quality")

        def distorted(image: DataNode, dtype: types.DALIDataType) -> DataNode:
            image = with_pixels(image)
            if self._prob == 1:
                return _distorted(image, quality)
            return branched(is_changed, [with_layout(image), quality], _distorted, lambda same, _: same)

        return distorted

    def _array_change(self) -> ArrayChange | None:
        if not self._is_changed():
            return None
        quality = int(self.draw("quality"))
        return lambda image: by_frame(image, lambda frame: _distorted_frame(frame, quality))


def _distorted(image: DataNode, quality: DataNode) -> DataNode:
    return fn.jpeg_compression_distortion(image, quality=quality)


def _distorted_frame(frame: npt.NDArray[np.uint8], quality: int) -> npt.NDArray[np.uint8]:
    """Compress with OpenCV, as DALI does on the CPU: the result is the same."""
    cv2 = needed_package("cv2")
    bgr = cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
    _, file = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded = cv2.imdecode(file, cv2.IMREAD_COLOR)
    rgb: npt.NDArray[np.uint8] = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB, decoded)
    return rgb
