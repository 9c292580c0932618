# SPDX-License-Identifier: Apache-2.0
"""Erase random rectangles of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..checks import number_list, number_range, whole_number
from ..draws.random_draws import UniformDraw
from ..operators.image_pixels import with_layout, with_pixels
from ..sample_data import SampleDataGroup
from .image_pixel_step import ImagePixelStep, PixelChange
from .image_use import fill_problems
from .named_fields import FieldSearch, Key, Names

_DT = types.DALIDataType
_NUM_ATTEMPTS = 10  # as torchvision


class RandomEraser(ImagePixelStep):
    """Fills random rectangles of every image of a name, anywhere in the sample, with a value, with a probability.

    Input and output: decoded, ``(height, width, channels)`` or a clip ``(frames, height, width, channels)``, uint8
    or float32 of any range, on the CPU or the GPU. Images that are known to be otherwise are refused. The
    rectangles are those of ``torchvision.transforms.RandomErasing`` (Zhong et al., Random Erasing Data
    Augmentation, https://arxiv.org/abs/1708.04896): for each one ::

        area   = height * width * uniform(scale_range)
        aspect = exp(uniform(log(ratio_range)))         height of the rectangle by its width
        h, w   = round(sqrt(area * aspect)), round(sqrt(area / aspect))

    anywhere inside of the image. Where ``h >= height`` or ``w >= width``, ``area`` and ``aspect`` are drawn again;
    after ten times, the rectangle is left out. The numbers are drawn once for all images of the group that the
    step is applied to: images of one size, and all frames of a clip, get the same rectangles. All other pixels
    stay bit-identical, but for signs of zeros. An image without a layout gets one; an image without pixels makes
    the graph fail, and so does a layout in which channels are not last, where the format does not know it.

    Example:
        >>> step = RandomEraser("image", prob=0.5, num_rectangles=3, fill_value=[124, 116, 104])
    """

    def __init__(
        self,
        image_names: Names,
        *,
        prob: float = 0.5,
        scale_range: tuple[float, float] = (0.02, 0.33),
        ratio_range: tuple[float, float] = (0.3, 3.3),
        num_rectangles: int = 1,
        fill_value: float | Sequence[float] = 0.0,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images.
            prob: Probability that rectangles of a sample are erased, in [0, 1].
            scale_range: Least and greatest area of a rectangle, as a fraction of that of the image, in [0, 1].
            ratio_range: Least and greatest height of a rectangle by its width, above 0.
            num_rectangles: How many rectangles are erased; they may overlap.
            fill_value: What erased pixels get: a number, or one for each channel, among the values that images
                have at this place of the chain. An image with another number of channels makes the graph fail.
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.

        Raises:
            SettingError: An argument is not of this form.
        """
        super().__init__(image_names, prob, key)
        areas = number_range(scale_range, "scale_range", at_least=0, at_most=1)
        logs = [math.log(ratio) for ratio in number_range(ratio_range, "ratio_range", above=0)]
        what = "a number, or a list of one for each channel"
        self._fill_value = number_list(fill_value, "fill_value", what, may_be_one=True)
        self._num_rectangles = whole_number(num_rectangles, "num_rectangles", at_least=1)
        attempts = (self._num_rectangles, _NUM_ATTEMPTS)
        self._draws += (
            UniformDraw("area", *areas, shape=attempts, key=key),
            UniformDraw("log_aspect", *logs, shape=attempts, key=key),
            UniformDraw("place", 0.0, 1.0, shape=(self._num_rectangles, 2), key=key),
        )

    def _change(self) -> PixelChange:
        drawn: dict[str, Any] = {draw.name: self.draw(draw.name) for draw in self._draws}
        order = np.arange(_NUM_ATTEMPTS, 0, -1, dtype=np.float32)  # the greatest for the first attempt
        preferences = self._is_changed() * order
        # Heights and widths of all attempts for an area of 1, (num_rectangles, attempts, 2).
        root_area, root_aspect = dali_math.sqrt(drawn["area"]), dali_math.exp(drawn["log_aspect"] * 0.5)
        sides = fn.stack(root_area * root_aspect, root_area / root_aspect, axis=2)
        flat = [2 * self._num_rectangles]

        def erased(image: DataNode, dtype: types.DALIDataType) -> DataNode:
            image = with_layout(with_pixels(image))
            size = image.shape(dtype=_DT.INT32)[-3:-1]
            shapes = _first_that_fits(sides, preferences, size)
            room = size - shapes
            anchors = dali_math.min(dali_math.floor(drawn["place"] * (room + 1.0)), room)
            return fn.erase(
                image,
                anchor=fn.reshape(anchors, shape=flat),
                shape=fn.reshape(shapes, shape=flat),
                axis_names="HW",
                fill_value=self._fill_value,
            )

        return erased

    def _check_images(self, data_empty: SampleDataGroup, search: FieldSearch) -> None:
        uses = self.declare_images(data_empty)
        search.problems += fill_problems(data_empty, uses, "fill_value", self._fill_value)


def _first_that_fits(sides: DataNode, preferences: DataNode, size: Any) -> DataNode:
    """Heights and widths of rectangles, ``(num_rectangles, 2)`` float32, pixels; 0 where no attempt fits.

    Args:
        sides: Of all attempts, ``(num_rectangles, attempts, 2)``, for an image with an area of 1.
        preferences: Of the attempts that fit the one with the greatest is taken, ``(attempts,)``; none of 0.
        size: Height and width of the image, ``(2,)`` int32.
    """
    # `fn.cast` rounds to the nearest whole number.
    rounded = fn.cast(sides * dali_math.sqrt(size[0] * size[1]), dtype=_DT.INT32)
    fits = fn.reductions.min(size - rounded, axes=[2]) > 0
    preference = fits * preferences
    best = dali_math.max(fn.reductions.max(preference, axes=[1], keep_dims=True), 1.0)
    is_chosen = fn.expand_dims(preference == best, axes=[2])
    chosen: DataNode = fn.reductions.sum(rounded * is_chosen, axes=[1], dtype=_DT.FLOAT)
    return chosen
