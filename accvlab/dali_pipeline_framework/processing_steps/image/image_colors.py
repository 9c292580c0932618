# SPDX-License-Identifier: Apache-2.0
"""Photometric distortion."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import field_name, flag, number_range, probability
from ...draws.draw_scope import Draws
from ...draws.random_draws import IntegerDraw, RandomDraw, UniformDraw
from ...operators import image_pixels as pixels
from ...operators.functions import Value
from ...operators.image_pixels import Image, looked_up, recolored, scaled, scaling_table
from ...sample_data import FieldPath, LeafFormat, SampleDataGroup
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ..field_steps import Parameters, PixelStep
from ..named_fields import FieldSearch, Key

_DT = types.DALIDataType

_PARTS = ("brightness", "contrast", "saturation", "hue", "swap")  # in the order in which they are decided on
_VALUES = ("brightness", "contrast", "hue", "saturation")  # in the order in which they are drawn
_NO_CHANGE = {"brightness": 0.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0, "swap": 0.0}
_PERMUTATIONS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1), (1, 2, 0))

_NO_COLOR_CHANGE = 1e-5  # of a matrix: changes no level

# DALI's ``fn.hue`` and ``fn.saturation``: luma stays, chroma is rotated and scaled.
_YIQ_FROM_RGB = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])


class PhotoMetricDistorter(PixelStep):
    """Randomly changes brightness, contrast, saturation, hue and channel order of every image with the given name.

    Input and output: ``(height, width, 3)`` or a clip ``(frames, height, width, 3)``, with or without a layout,
    uint8 in [0, 255] or float32 in [0, 1], on the CPU or the GPU. The result is clamped to this range: other
    values, e.g. after `ImageMeanStdDevNormalizer`, are lost, and a change of brightness above 1 turns float32
    images black or white. An image without a layout gets one. All images of the group that the step is
    applied to, and all frames of a clip, are changed in the same way.

    Each part is done with its probability, in this order; ``x`` is a channel as a fraction of the full range (for
    uint8, ``delta / 255`` is added)::

        brightness   x = clamp(x + delta)                        delta in gray levels for uint8
        contrast     x = clamp(alpha * x)                        here, or after hue, with equal probability
        saturation   luma stays, chroma is multiplied            DALI's linear model in YIQ, not HSV
        hue          luma stays, chroma is turned by an angle    the same; degrees
        swap         output channel k is input channel permutation[k], each permutation equally probable

    All of it is one gain and offset, and one 3 x 3 matrix: ``clamp(M clamp(g (x + delta)))``. This is exact for
    float32: an early contrast above 1 is the gain ``g``; any other contrast needs no clamp of its own and is a
    factor of ``M``. uint8 images are rounded twice, after gain and offset and after the matrix. If only gain and
    offset, or only the matrix, are applied, the result is within 0.5 gray levels of the exact one, otherwise
    within ``0.5 + 0.5 r``. Here ``r`` is the greatest sum of the magnitudes of a row of ``M``: 1 for the identity,
    1.9 for a saturation of 1.5, 2.5 for this saturation and a hue of 18 degrees. What cannot happen (probability
    0, or a range that changes nothing) is left out.

    In the graph of the CPU, saturation, hue and swap take ten times as long as brightness and contrast, also for
    images for which they are not drawn: they are one ``fn.coord_transform``, which takes about as long as
    ``fn.hsv``. On arrays, only the parts that are drawn take time; with saturation, hue or swap, arrays and the
    graph may differ by one gray level. Distort before images are normalized, and after they are made smaller.

    Example:
        >>> step = PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5], key="rig")
    """

    _dtypes = None
    array_form_needs = ("cv2",)
    image_tolerance = 1 / 255  # of uint8: one level, as soon as saturation, hue or swap may occur

    @explains_unknown_arguments
    def __init__(
        self,
        image_name: Name,
        min_max_brightness: Sequence[float],
        min_max_hue: Sequence[float],
        min_max_contrast: Sequence[float],
        min_max_saturation: Sequence[float],
        prob_brightness_aug: float = 0.5,
        prob_hue_aug: float = 0.5,
        prob_contrast_aug: float = 0.5,
        prob_saturation_aug: float = 0.5,
        prob_swap_channels: float = 0.5,
        is_bgr: bool = False,
        enforce_process_on_gpu: bool = True,
        *,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_name: Name of the images.
            min_max_brightness: Least and greatest ``delta``: in gray levels for uint8 images, as a fraction of the
                range for float32 images.
            min_max_hue: Least and greatest angle, degrees.
            min_max_contrast: Least and greatest ``alpha``, at least 0.
            min_max_saturation: Least and greatest factor of the saturation, at least 0.
            prob_brightness_aug: Probability that the brightness is changed, in [0, 1].
            prob_hue_aug: The same for the hue.
            prob_contrast_aug: The same for the contrast.
            prob_saturation_aug: The same for the saturation.
            prob_swap_channels: The same for the order of channels (the original order is among those drawn).
            is_bgr: Whether the channels of the images are blue, green, red.
            enforce_process_on_gpu: Whether images on the CPU are moved to the GPU, in a pipeline that has one.
            key: Scope in which the draws are constant, see `UniformDraw`.

        Raises:
            SettingError: A range, a probability or the key is not of this form.
        """
        self._image_name = field_name(image_name, "image_name")
        self._ranges = {
            "brightness": number_range(min_max_brightness, "min_max_brightness"),
            "contrast": number_range(min_max_contrast, "min_max_contrast", at_least=0),
            "hue": number_range(min_max_hue, "min_max_hue"),
            "saturation": number_range(min_max_saturation, "min_max_saturation", at_least=0),
        }
        self._probabilities = {
            "brightness": probability(prob_brightness_aug, "prob_brightness_aug"),
            "contrast": probability(prob_contrast_aug, "prob_contrast_aug"),
            "saturation": probability(prob_saturation_aug, "prob_saturation_aug"),
            "hue": probability(prob_hue_aug, "prob_hue_aug"),
            "swap": probability(prob_swap_channels, "prob_swap_channels"),
        }
        self._is_bgr = flag(is_bgr, "is_bgr")
        self._enforce_process_on_gpu = flag(enforce_process_on_gpu, "enforce_process_on_gpu")
        self._draws: tuple[RandomDraw, ...] = (
            *(UniformDraw(f"{part}_decision", 0.0, 1.0, key=key) for part in _PARTS),
            IntegerDraw("contrast_is_early", 0, 2, key=key),
            *(UniformDraw(value, *self._ranges[value], key=key) for value in _VALUES),
            IntegerDraw("permutation", 0, len(_PERMUTATIONS), key=key),
        )

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the decisions, the values, and the order of channels; nothing if nothing can change."""
        return self._draws if self._may(*_PARTS) else ()

    def _image_paths(self, data: SampleDataGroup) -> list[FieldPath]:
        return super()._image_paths(data) if self._may(*_PARTS) else []

    @property
    def _parameter_types(self) -> dict[str, types.DALIDataType]:
        """Gain and offset (as for [0, 1]) of a first stage, the gain after it, the matrix times this gain."""
        return dict.fromkeys(("gain", "offset", "gain_after", *["matrix"] * self._may_recolor), _DT.FLOAT)

    def _parameters(self, drawn: Draws) -> Parameters:
        values = np.array([*(drawn[part] for part in _PARTS[:4]), drawn["permutation"]], np.float32)
        decisions = np.array([drawn[f"{part}_decision"] for part in _PARTS])
        probabilities = np.array([self._probabilities[part] for part in _PARTS], np.float32)
        no_change = np.array([_NO_CHANGE[part] for part in _PARTS], np.float32)
        done = (values - no_change) * (decisions < probabilities) + no_change  # (5,)
        alpha, one, is_early = done[1], np.float32(1), np.float32(drawn["contrast_is_early"])
        gain, gain_after = alpha, one
        if self._has_two_stages or self._may_recolor:
            # A gain above 1 must be clamped before the matrix; one below 1 needs no clamp and may be part of it.
            gain = np.maximum((alpha - one) * is_early + one, one)
            gain_after = alpha / gain
        matrix = [self._matrix(done) * gain_after] if self._may_recolor else []

        def of_image(image: Value, leaf: LeafFormat) -> list[Value]:
            return [gain, gain * (done[0] * np.float32(1 / _white(leaf))), gain_after, *matrix]

        return of_image

    @property
    def _may_recolor(self) -> bool:
        return self._may("saturation", "hue", "swap")

    @property
    def _has_two_stages(self) -> bool:
        """Whether ``clamp(gain (x + delta))`` is computed before the rest."""
        return (any if self._may_recolor else all)(map(self._may, ("brightness", "contrast")))

    def _may(self, *parts: str) -> bool:
        """Whether one of some parts has a probability and a range with which it changes anything."""
        return any(
            self._probabilities[part] > 0 and self._ranges.get(part) != (_NO_CHANGE[part],) * 2 for part in parts
        )

    def _matrix(self, done: Value) -> Value:
        """Compute the matrix of saturation, hue and swap, ``(3, 3)`` float32."""
        saturation, angle_rad = done[2], float(done[3] * np.float32(math.pi / 180))
        weights = [1, saturation * np.float32(math.cos(angle_rad)), saturation * np.float32(math.sin(angle_rad))]
        of_permutation = _matrix_table(self._is_bgr)[int(done[4])]  # (3, 9)
        return (of_permutation * np.array(weights, np.float32)[:, None]).sum(axis=0).reshape(3, 3)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        leaf = search.leaf(path)
        if leaf.dtype not in (_DT.UINT8, _DT.FLOAT):
            problem = f"must be UINT8 (an image in [0, 255]) or FLOAT (in [0, 1]), got {leaf.dtype.name}"
            search.add(problem, path, AssertionError)  # the class that callers of the published API catch

    def _on_array(
        self, image: Image, leaf: LeafFormat, gain: Any, offset: Any, gain_after: Any, matrix: Any = None
    ) -> Image:
        """Change an image, as in the graph; what a sample leaves as it is costs nothing."""
        pixels.checked_image(image, needs_pixels=False, num_channels=() if matrix is None else (3,))
        stages = [(gain, offset * np.float32(_white(leaf)))]
        if matrix is None or np.abs(matrix - gain_after * np.eye(3)).max() < _NO_COLOR_CHANGE:
            matrix = None
            stages.append((gain_after, np.float32(0)))
        stages = [(gain, shift) for gain, shift in stages if gain != 1 or shift != 0]
        if leaf.dtype == _DT.UINT8:
            image = _scaled_levels(image, stages)
            return image if matrix is None else recolored(image, matrix, is_own=bool(stages))
        for gain, shift in stages:
            image = scaled(image, gain, shift)
            np.clip(image, 0, 1, out=image)
        if matrix is not None:
            image = recolored(image, matrix, is_own=bool(stages))
        return np.clip(image, 0, 1)

    def graph(self, image: Any, leaf: LeafFormat, name: Name, **parameters: Any) -> Value:
        """See `PipelineStepBase.graph`."""
        gain, offset, gain_after, *matrix = parameters.values()
        if self._enforce_process_on_gpu and pixels.pipeline_has_gpu():
            image = image.gpu()
        if self._has_two_stages or not matrix:
            image = _scaled(image, gain, offset, leaf.dtype)
        if not matrix:
            return _scaled(image, gain_after, 0.0, leaf.dtype) if self._has_two_stages else image
        recolored = fn.coord_transform(image, M=matrix[0], T=[0.0, 0.0, 0.0], dtype=leaf.dtype)
        # In a batch without any pixels it loses the channels.
        return _clamped(fn.reshape(recolored, shape=image.shape()), leaf.dtype)


def _white(leaf: LeafFormat) -> float:
    return 255.0 if leaf.dtype == _DT.UINT8 else 1.0


def _scaled_levels(image: Image, stages: Sequence[tuple[np.float32, np.float32]]) -> Image:
    """Multiply and add in stages, rounded to a level after each."""
    if len(stages) < 2:
        return scaled(image, *stages[0]) if stages else image
    first, second = (scaling_table(gain, offset) for gain, offset in stages)
    return looked_up(image, second[first])


def _clamped(image: DataNode, dtype: types.DALIDataType) -> DataNode:
    """Limit to [0, 1]; uint8 needs no clamp of its own, since DALI saturates where it converts."""
    return image if dtype == _DT.UINT8 else dali_math.clamp(image, 0.0, 1.0)


def _scaled(image: DataNode, gain: DataNode, offset: DataNode | float, dtype: types.DALIDataType) -> DataNode:
    """Multiply by a gain and add an offset, which is a fraction of the full range, and limit to that."""
    scaled: DataNode = fn.brightness_contrast(
        image, brightness=gain, brightness_shift=offset, contrast=1.0, contrast_center=0.0, dtype=dtype
    )
    return _clamped(scaled, dtype)


@functools.cache
def _matrix_table(is_bgr: bool) -> npt.NDArray[np.float32]:
    """``table[p] = A, B, C``, ``(6, 3, 9)``: the matrix is ``A + s cos(angle) B + s sin(angle) C``.

    ``s`` is the factor of the saturation, ``p`` the permutation.
    """
    rgb_from_yiq = np.linalg.inv(_YIQ_FROM_RGB)
    in_yiq = np.zeros((3, 3, 3))
    in_yiq[0, 0, 0] = 1.0
    in_yiq[1, [1, 2], [1, 2]] = 1.0
    in_yiq[2, [1, 2], [2, 1]] = 1.0, -1.0
    parts = rgb_from_yiq @ in_yiq @ _YIQ_FROM_RGB
    if is_bgr:
        parts = parts[:, ::-1, ::-1]
    stacked = np.stack([parts[:, permutation, :] for permutation in _PERMUTATIONS])
    return stacked.reshape(6, 3, 9).astype(np.float32)
