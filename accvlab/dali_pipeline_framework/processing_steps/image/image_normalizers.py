# SPDX-License-Identifier: Apache-2.0
"""Steps that normalize pixel values."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import nvidia.dali.fn as fn
from numpy.typing import NDArray
from nvidia.dali.data_node import DataNode
from nvidia.dali.types import DALIDataType

from ...checks import choice, field_name, number_list
from ...errors import FieldValueError, SettingError
from ...operators import image_pixels as pixels
from ...operators.element_selection import NUMBER_TYPES
from ...operators.functions import Array, cast_array
from ...sample_data import FieldPath, ImageContent, LeafFormat
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ...user_warnings import warn_user
from ..field_steps import PixelStep
from ..image_use import ARRAY, as_array, as_pixels
from ..named_fields import FieldSearch

_DT = DALIDataType
_ACCEPTED_INPUTS = (_DT.UINT8, _DT.INT16, _DT.UINT16, _DT.INT32, _DT.FLOAT16, _DT.FLOAT)
_DIRECT_OUTPUTS = (_DT.FLOAT, _DT.FLOAT16, _DT.UINT8, _DT.INT8)
_LAYOUTS = ("", "HWC", "CHW", "FHWC", "FCHW")


class ImageMeanStdDevNormalizer(PixelStep):
    """Normalizes every image with the given name, anywhere in the sample, by a mean and a standard deviation.

    Input: decoded, ``(height, width, channels)``, layout ``HWC`` or none, or a clip
    ``(frames, height, width, channels)``, ``FHWC`` or none, of any numbers, on the CPU or the GPU. For uint8
    images, means and deviations for images in [0, 1] (0.485, ...) are a warning. Output, in the same field:
    ``output_type``, the same shape unless ``output_layout`` says otherwise::

        output = (input - mean[channel]) / std_dev[channel]

    computed in float32 and converted once, also for ``FLOAT16`` and ``FLOAT64``; whole numbers are rounded and
    saturated. An image without a layout gets one. Where there are several numbers, an image with another number of
    channels makes the graph fail. Steps that need values in [0, 255] or [0, 1], or channels last, belong before
    this one.

    Cost on the CPU, one operator (``fn.crop_mirror_normalize``): about 4 ms for 1600 x 900 pixels, uint8 to
    float32; the same with ``output_layout="CHW"``; to float16, it takes three times as long. On arrays, each
    of the three takes 3 ms, with the same results; but float32 images have four times the bytes to bring to the
    graph.

    Example:
        >>> step = ImageMeanStdDevNormalizer("image", [123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
        >>> step = ImageMeanStdDevNormalizer("image", 0.0, 255.0, _DT.FLOAT16)  # all channels alike
    """

    array_form_needs = ("cv2",)
    _output_type: DALIDataType

    @explains_unknown_arguments
    def __init__(
        self,
        image_name: Name,
        mean: float | Sequence[float] | NDArray[np.generic],
        std_dev: float | Sequence[float] | NDArray[np.generic],
        output_type: DALIDataType = _DT.FLOAT,
        *,
        output_layout: str = "",
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            mean: Mean of each channel, in the order of the channels of the image; or one number for all channels,
                however many there are.
            std_dev: Standard deviation, in the same way.
            output_type: Type of the output.
            output_layout: "CHW" (clips: "FCHW") to transpose on the way, which costs nothing; empty for the layout
                of the input.

        Raises:
            SettingError: A mean or standard deviation is not a finite number, a standard deviation is not greater
                than 0, they are for different numbers of channels, the output type is no number type, or the
                output layout is another one.
        """
        self._image_name = field_name(image_name, "image_name")
        self._mean = per_channel(mean, "mean")
        self._std_dev = per_channel(std_dev, "std_dev")
        self._output_type = choice(output_type, "output_type", NUMBER_TYPES)
        self._output_layout = choice(output_layout, "output_layout", _LAYOUTS)
        self._has_warned = False  # formats are asked for several times
        if min(self._std_dev) <= 0:
            raise SettingError(f"Standard deviation must be greater than 0, got `std_dev` {std_dev!r}.")
        if len(self._mean) != len(self._std_dev) and 1 not in (len(self._mean), len(self._std_dev)):
            raise SettingError(
                f"`mean` and `std_dev` must be for the same number of channels, got {len(self._mean)} and "
                f"{len(self._std_dev)} numbers."
            )

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name) -> DataNode:
        """See `PipelineStepBase.graph`."""
        num_channels = max(len(self._mean), len(self._std_dev))
        is_direct = self._output_type in _DIRECT_OUTPUTS
        known = leaf.content.layout or ""
        if known.startswith("F") and self._output_layout:  # without a layout, DALI takes a clip for no clip
            image = pixels.with_layout(image, known)
        normalized = fn.crop_mirror_normalize(
            image if leaf.dtype in _ACCEPTED_INPUTS else fn.cast(image, dtype=_DT.FLOAT),
            mean=[*self._mean],
            std=[*self._std_dev],
            dtype=self._output_type if is_direct else _DT.FLOAT,
            output_layout=self._output_layout,
            mirror=pixels.zero_where_channels_fit(image, num_channels) if num_channels > 1 else 0,
        )
        return normalized if is_direct else fn.cast(normalized, dtype=self._output_type)

    def _on_array(self, image: Array, leaf: LeafFormat) -> Array:
        self._check_array(image)
        num_channels = image.shape[-1]
        mean = np.broadcast_to(np.array(self._mean, np.float32), num_channels)
        factor = np.broadcast_to(np.float32(1) / np.array(self._std_dev, np.float32), num_channels)
        is_transposed = self._output_layout.endswith("CHW")
        dtype = np.dtype(NUMPY_TYPES[self._output_type])
        if image.dtype == np.uint8 and dtype != np.float32:
            table = cast_array((np.arange(256, dtype=np.float32)[:, None] - mean) * factor, dtype)
            return pixels.looked_up(image, table, is_transposed)
        converted: Array = cast_array(pixels.scaled_channels(image, mean, factor, is_transposed), dtype)
        return converted

    def _shape_after(self, shape: tuple[int, ...], leaf: LeafFormat) -> tuple[int, ...]:
        *frames, height, width, channels = shape
        return (*frames, channels, height, width) if self._output_layout.endswith("CHW") else shape

    def _check_array(self, image: Array) -> None:
        pixels.checked_image(image, needs_pixels=False)
        layout, num_means = self._output_layout, max(len(self._mean), len(self._std_dev))
        if num_means not in (1, image.shape[-1]):
            raise FieldValueError(
                f"an image has another number of channels than there are means: shape {image.shape}, "
                f"{num_means} means"
            )
        if layout and len(layout) != image.ndim:
            raise FieldValueError(f"an image of shape {image.shape} cannot get the layout {layout}")

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        leaf = search.leaf(path)
        unfit = fractions_problem(self._mean, self._std_dev) if leaf.dtype == _DT.UINT8 else None
        if unfit and not self._has_warned:
            self._has_warned = True
            advice = f"{unfit}, or put ImageRange01Normalizer before."
            warn_user(f"ImageMeanStdDevNormalizer for {self._image_name!r}: {advice}")
        layout, wanted = leaf.content.layout, self._output_layout
        if layout and wanted and {*layout} != {*wanted}:
            search.add(f"has the layout {layout}, which cannot become `output_layout` {wanted}", path)

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        content = as_pixels(leaf)
        return attrs.evolve(content, layout=self._output_layout or content.layout)


def fractions_problem(mean: Sequence[float], std_dev: Sequence[float]) -> str | None:
    """Describe the problem that means and deviations are for images in [0, 1], for an image in [0, 255].

    Means of 0 with deviations of 1, which only convert, are no fractions.
    """
    is_for_unit = any(mean) and all(0 <= each <= 1 for each in mean) and max(std_dev) <= 1
    if not is_for_unit or {*mean, *std_dev} <= {0.0, 1.0}:
        return None
    means, deviations = ([float(f"{each * 255:.6g}") for each in values] for values in (mean, std_dev))
    return (
        f"`mean` {mean[0]:g} and `std_dev` {std_dev[0]:g} are for images with values 0..1, but the values are "
        f"0..255. Multiply both by 255: mean={means}, std_dev={deviations}"
    )


def per_channel(values: object, argument: str) -> tuple[float, ...]:
    """Get one number per channel, or one for all, from a number, a sequence or an array of up to one long axis."""
    array = np.asarray(values, object)
    is_row = array.ndim > 1 and array.size == max(array.shape)
    return number_list(
        array.ravel() if is_row else values, argument, "a number, or one per channel", may_be_one=True
    )


_PER_LEVEL = np.float32(1 / 255)
_CAST_FIRST = (_DT.FLOAT16, _DT.FLOAT64)  # DALI's product is no float32


class ImageRange01Normalizer(PixelStep):
    """Divides every image with the given name, anywhere in the sample, by 255.

    Input: decoded images or clips of any shape and layout, on the CPU or the GPU: uint8 in [0, 255], or another
    type of numbers in the same range, which is not checked. Images that are known to be encoded are refused.
    Output, in the same field: float32 in [0, 1], the same shape and layout::

        output = float32(input) * float32(1 / 255)

    To normalize by mean and standard deviation as well, let `ImageMeanStdDevNormalizer` do both at once: multiply
    ``mean`` and ``std_dev`` by 255.

    Example:
        >>> ImageRange01Normalizer("image")
        ImageRange01Normalizer(image_name='image')
    """

    _needs = ARRAY
    _output_type = _DT.FLOAT

    @explains_unknown_arguments
    def __init__(self, image_name: Name) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
        """
        self._image_name = field_name(image_name, "image_name")

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name) -> DataNode:
        """See `PipelineStepBase.graph`."""
        return (fn.cast(image, dtype=_DT.FLOAT) if leaf.dtype in _CAST_FIRST else image) * _PER_LEVEL

    def _on_array(self, image: Array, leaf: LeafFormat) -> Array:
        result = np.empty(image.shape, np.float32)
        rows = (-1, image.shape[-1] if image.ndim else 1)
        if image.size:
            pixels.fill_with_scaled(result.reshape(rows), image.reshape(rows), None, _PER_LEVEL)
        return result

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        return as_array(leaf)
