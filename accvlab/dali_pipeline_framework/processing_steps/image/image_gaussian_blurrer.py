# SPDX-License-Identifier: Apache-2.0
"""Blur images at random."""

from __future__ import annotations

import math

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import number_range
from ...draws.random_draws import UniformDraw
from ...operators.array_packages import needed_package
from ...operators.image_pixels import by_frame, with_layout, with_pixels
from ..named_fields import Key, Names
from .image_pixel_step import ArrayChange, ImagePixelStep, PixelChange

_REACH = 4  # standard deviations to each side, beyond which no weight changes a level
_NO_BLUR = np.float32(0.05)  # weight of the next pixel: exp(-200), 0 in float32


class ImageGaussianBlurrer(ImagePixelStep):
    """Blurs every image of a name, anywhere in the sample, by a Gaussian of random width, with a probability.

    Input and output: decoded, ``(height, width, channels)`` or a clip ``(frames, height, width, channels)``, uint8
    or float32 of any range, on the CPU or the GPU. Images that are known to be otherwise are refused. The standard
    deviation is drawn once for all images of the group that the step is applied to, and all frames. The kernel
    reaches 3 times the greatest one to each side; at the border, the image is mirrored. What is not blurred stays
    bit-identical, but for signs of zeros. An image without a layout gets one; one without pixels makes the graph
    fail.

    Price on the CPU for 1600 x 900 uint8: 60 to 90 ms with a window of 7 pixels, also where nothing is blurred.
    Blur images after they are made smaller. On arrays: 4 ms, nothing where nothing is blurred; a level may differ
    by 1.

    Example:
        >>> step = ImageGaussianBlurrer("image", prob=0.5, sigma_range=(0.1, 2.0))
    """

    image_tolerance = 1 / 255
    _needs_pixels = True

    def __init__(
        self,
        image_names: Names,
        *,
        prob: float = 0.5,
        sigma_range: tuple[float, float] = (0.1, 2.0),
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images.
            prob: Probability that a sample is blurred, in [0, 1].
            sigma_range: Least and greatest standard deviation, above 0 and up to 20 pixels.
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.

        Raises:
            SettingError: An argument is not of this form.
        """
        super().__init__(image_names, prob, key)
        least, most = number_range(sigma_range, "sigma_range", above=0, at_most=20)
        self._window_size = 2 * math.ceil(3 * most) + 1
        self._draws += (UniformDraw("sigma", least, most, key=key),)

    def _change(self) -> PixelChange:
        sigma = (self.draw("sigma") - _NO_BLUR) * self._is_changed() + _NO_BLUR

        def blurred(image: DataNode, dtype: types.DALIDataType) -> DataNode:
            # Without a layout, `fn.gaussian_blur` blurs across channels as well.
            return fn.gaussian_blur(with_layout(with_pixels(image)), sigma=sigma, window_size=self._window_size)

        return blurred

    def _array_change(self) -> ArrayChange | None:
        sigma = float(self.draw("sigma"))
        if not self._is_changed():
            return None
        reach = min(self._window_size // 2, math.ceil(_REACH * sigma))
        weights = np.exp(np.arange(-reach, reach + 1) ** 2 / (-2 * sigma**2))
        kernel = (weights / weights.sum()).astype(np.float32)
        blurred = needed_package("cv2").sepFilter2D
        return lambda image: by_frame(image, lambda frame: blurred(frame, -1, kernel, kernel))
