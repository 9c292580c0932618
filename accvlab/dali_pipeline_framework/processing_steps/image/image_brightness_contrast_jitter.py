# SPDX-License-Identifier: Apache-2.0
"""Change brightness and contrast of images at random."""

from __future__ import annotations

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import number_range
from ...draws.random_draws import UniformDraw
from ...operators.image_pixels import Image, scaled
from ..image_use import white_at_full_scale
from ..named_fields import Key, Names
from .image_pixel_step import ArrayChange, ImagePixelStep, PixelChange

_CENTER_OF_UINT8 = np.float32(128)
_CENTER_OF_FLOAT = np.float32(0.5)


class ImageBrightnessContrastJitter(ImagePixelStep):
    """Multiplies brightness and contrast of every image of a name, anywhere in the sample, by random factors.

    Input and output: decoded, ``(height, width, channels)``, layout ``HWC``, uint8 in [0, 255] or float32 in
    [0, 1], on the CPU or the GPU; images that are known to have other values are refused. uint8 is rounded and
    saturated, float32 is not clipped::

        output = brightness * (center + contrast * (input - center))      center = 128 (uint8), 0.5 (float32)

    All images of the group that the step is applied to get the same factors. For factors of their own, apply the
    step to each camera by a wrapper, e.g. `DataGroupArrayWithNameElementsAppliedStep`, with a ``key`` that differs
    between groups. What is not changed stays bit-identical.
    """

    _needs = staticmethod(white_at_full_scale)

    def __init__(
        self,
        image_names: Names,
        *,
        prob: float = 1.0,
        brightness_range: tuple[float, float] = (0.8, 1.2),
        contrast_range: tuple[float, float] = (0.8, 1.2),
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images.
            prob: Probability that a sample is changed, in [0, 1].
            brightness_range: Least and greatest factor of the brightness, of at least 0.
            contrast_range: Least and greatest factor of the contrast, of at least 0.
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.

        Raises:
            SettingError: An argument is not of this form.
        """
        super().__init__(image_names, prob, key)
        self._draws += tuple(
            UniformDraw(name, *number_range(limits, f"{name}_range", at_least=0), key=key)
            for name, limits in (("brightness", brightness_range), ("contrast", contrast_range))
        )

    def _change(self) -> PixelChange:
        brightness, contrast = self.draw("brightness"), self.draw("contrast")
        if self._prob < 1:
            is_changed = self._is_changed()
            brightness, contrast = (factor * is_changed + (is_changed ^ True) for factor in (brightness, contrast))

        def changed(image: DataNode, dtype: types.DALIDataType) -> DataNode:
            center = _CENTER_OF_UINT8 if dtype == types.DALIDataType.UINT8 else _CENTER_OF_FLOAT
            return fn.brightness_contrast(
                image, brightness=brightness, contrast=contrast, contrast_center=float(center)
            )

        return changed

    def _array_change(self) -> ArrayChange | None:
        brightness, contrast = self.draw("brightness"), self.draw("contrast")
        if not self._is_changed():
            return None

        def changed(image: Image) -> Image:
            center = _CENTER_OF_UINT8 if image.dtype == np.uint8 else _CENTER_OF_FLOAT
            return scaled(image, brightness * contrast, brightness * (center - contrast * center))

        return changed
