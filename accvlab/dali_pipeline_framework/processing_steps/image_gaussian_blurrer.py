# SPDX-License-Identifier: Apache-2.0
"""Blur images at random."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from ..checks import field_name, number, probability
from ..draws.random_draws import FieldKey, RandomDraw, UniformDraw
from ..operators.image_pixels import with_layout, with_pixels
from ..sample_data import Name, SampleDataGroup
from .image_use import PIXELS, ImageUse, as_pixels
from .named_fields import FieldSearch
from .pipeline_step_base import PipelineStepBase

_NO_BLUR = np.float32(0.05)  # weight of the next pixel: exp(-200), 0 in float32


class ImageGaussianBlurrer(PipelineStepBase):
    """Blurs every image of a name, anywhere in the sample, by a Gaussian of random width, with a probability.

    Input and output: decoded, ``(height, width, channels)`` or a clip ``(frames, height, width, channels)``, uint8
    or float32 of any range, on the CPU or the GPU. Images that are known to be otherwise are refused. The standard
    deviation is drawn once for all images of the group that the step is applied to, and all frames. The kernel
    reaches 3 times ``max_sigma`` to each side; at the border, the image is mirrored. What is not blurred stays
    bit-identical, but for signs of zeros. An image without a layout gets one; one without pixels makes the graph
    fail.

    Price on the CPU for 1600 x 900 uint8: 60 to 90 ms with a window of 7 pixels, also where nothing is blurred.
    Blur images after they are made smaller.

    Example:
        >>> step = ImageGaussianBlurrer("image", 0.1, 2.0, prob=0.5)
    """

    def __init__(
        self,
        image_name: Name,
        min_sigma: float = 0.1,
        max_sigma: float = 2.0,
        prob: float = 0.5,
        key: str | Sequence[Name] | FieldKey = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            min_sigma: Least standard deviation, above 0, pixels.
            max_sigma: Greatest standard deviation, up to 20 pixels.
            prob: Probability that an image is blurred, in [0, 1].
            key: What the numbers are held constant over: "sample", "rig", "sequence", "sequence-rig", the path of
                a data field of the input, or a `FieldKey`.

        Raises:
            SettingError: A number or the key is not of this form.
        """
        max_sigma = number(max_sigma, "max_sigma", above=0, at_most=20)
        min_sigma = number(min_sigma, "min_sigma", above=0, at_most=max_sigma, advice="`max_sigma` is its limit.")
        self._image_name = field_name(image_name, "image_name")
        self._prob = probability(prob, "prob")
        self._window_size = 2 * math.ceil(3 * max_sigma) + 1
        self._draws = (
            UniformDraw("decision", 0.0, 1.0, key=key),
            UniformDraw("sigma", min_sigma, max_sigma, key=key),
        )

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the decision and the standard deviation."""
        return self._draws

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare that images must have channels last."""
        return [ImageUse(self._image_name, PIXELS, as_pixels)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        is_blurred = fn.cast(self.draw("decision") < np.float32(self._prob), dtype=types.DALIDataType.FLOAT)
        sigma = is_blurred * (self.draw("sigma") - _NO_BLUR) + _NO_BLUR
        for path in data.find_all_occurrences(self._image_name):
            # Without a layout, `fn.gaussian_blur` blurs across channels as well.
            image = with_layout(with_pixels(data.get_item_in_path(path)))
            blurred = fn.gaussian_blur(image, sigma=sigma, window_size=self._window_size)
            data.set_item_in_path(path, blurred)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        dtypes = [types.DALIDataType.UINT8, types.DALIDataType.FLOAT]
        search.find(self._image_name, "an image", dtypes, group_of="images")
        search.raise_problems()
        return data_empty
