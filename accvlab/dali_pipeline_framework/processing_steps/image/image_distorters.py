# SPDX-License-Identifier: Apache-2.0
"""Steps that change brightness and contrast, blur, or add JPEG artefacts, at random."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import number_range
from ...draws.random_draws import IntegerDraw, UniformDraw
from ...engine.dali.graph_definition import branched
from ...operators.array_packages import needed_package
from ...operators.image_pixels import Image, by_frame, scaled, with_layout, with_pixels
from ..image_use import white_at_full_scale
from ..named_fields import Key, Names
from .image_pixel_step import ArrayChange, ImagePixelStep, PixelChange, whole_range

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
