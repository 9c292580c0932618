# SPDX-License-Identifier: Apache-2.0
"""Scale images at random, crop a region of fixed size, and mirror it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checks import flag, number_range, probability
from ...draws.random_draws import RandomDraw, UniformDraw
from ...operators import functions
from ...operators.functions import constant
from ...operators.image_transform import AxisScaling, Resampling
from ...sample_data import SampleDataGroup
from ..named_fields import Key, Names
from .image_transform_step import ImagePlaneChange, ImageTransformStep, PixelFields, checked_hw, with_pixel_fields

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ImageResizeCropFlipper(ImageTransformStep):
    """Scales images at random, crops a region of fixed size, and mirrors it at random, all in one resize.

    It is the usual augmentation of multi-camera detectors (``ResizeCropFlipRotImage`` of StreamPETR and BEVDet,
    without the rotation). With ``W, H`` for the input, ``w, h`` for the output, and the random numbers ``scale``,
    ``bottom``, ``share`` and ``is_flipped``::

        crop_y = (1 - bottom) * scale * H - h              the lowest part `bottom` of the image is left out
        crop_x = share * max(scale * W - w, 0)             at a random place; 0.5: in the middle
        x_out = scale * x - crop_x, mirrored: w - x_out    y_out = scale * y - crop_y

    Nothing is rounded to whole pixels, so that matrices are exact (the originals round the crop down). What lies
    beyond the image is ``fill_value``. With ``is_kept_inside``, ``scale`` is at least what fills the output, and
    ``crop_y`` at least 0, so that nothing beyond the image is shown.

    For evaluation, `for_evaluation` gives the step without chance that these detectors use: the scale that fills
    the output, the mean part at the bottom left out, the middle in x, not mirrored. What cannot vary is not drawn.

    Fields, shapes and types are those of `AffineTransformer`, pixels and ``is_encoded`` those of `ImageResizer`.
    All images and size fields of a sample must have one size and get the same change; for a change of their own,
    apply the step to each camera by a wrapper.

    Example:
        >>> step = ImageResizeCropFlipper(
        ...     "image", output_hw=[256, 704], scale_range=(0.44, 0.55), projection_names="intrinsics", key="rig"
        ... )
        >>> in_evaluation = step.for_evaluation()
        >>> [draw.constant for draw in in_evaluation.declare_draws(SampleDataGroup())]  # nothing is drawn
        [0.0, 0.5, 0.0]
    """

    @with_pixel_fields
    def __init__(
        self,
        image_names: Names | None,
        *,
        output_hw: Sequence[int],
        scale_range: tuple[float, float] | None,
        bottom_crop_range: tuple[float, float] = (0.0, 0.0),
        crop_x_range: tuple[float, float] = (0.0, 1.0),
        flip_prob: float = 0.5,
        is_kept_inside: bool = False,
        fill_value: float = 0,
        is_encoded: bool = False,
        reduced_decoding: bool = False,
        key: Key = "sample",
        **fields: Unpack[PixelFields],
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            output_hw: Height and width of the output.
            scale_range: Least and greatest scale: pixels of the output per pixel of the input, greater than 0.
                None: always the least scale that fills the output, ``max(h / H, w / W)``.
            bottom_crop_range: Least and greatest part of the height, in [0, 1], that is cut off at the bottom.
            crop_x_range: Least and greatest place of the crop in x, ``share``, in [0, 1]: 0 is the left end of the
                image, 1 the right end. (0.5, 0.5) crops the middle.
            flip_prob: Probability that a sample is mirrored, in [0, 1].
            is_kept_inside: Whether nothing beyond the image may be shown.
            fill_value: Value of what the images do not show.
            is_encoded: As for `ImageResizer`.
            reduced_decoding: As for `ImageResizer`.
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.
            **fields: As for `ImageResizer`.

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, fill_value, is_encoded, reduced_decoding, **fields)
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._is_kept_inside = flag(is_kept_inside, "is_kept_inside")
        self._flip_prob = probability(flip_prob, "flip_prob")
        draws = [
            UniformDraw(
                "bottom", *number_range(bottom_crop_range, "bottom_crop_range", at_least=0, at_most=1), key=key
            ),
            UniformDraw("share", *number_range(crop_x_range, "crop_x_range", at_least=0, at_most=1), key=key),
            # Mirrored where it is below the probability; nothing is drawn where it cannot vary.
            UniformDraw("is_flipped", 0.0, 1.0 if 0 < self._flip_prob < 1 else 0.0, key=key),
        ]
        if scale_range is not None:
            draws.insert(0, UniformDraw("scale", *number_range(scale_range, "scale_range", above=0), key=key))
        self._draws = {draw.name: draw for draw in draws}

    def for_evaluation(self) -> ImageResizeCropFlipper:
        """Get the same step without chance, as StreamPETR and BEVDet evaluate.

        ``scale`` is what fills the output, ``bottom`` the mean of its range, ``crop_x`` the middle; not mirrored.
        """
        step = copy.copy(self)
        bottom = self._draws["bottom"]
        mean = (bottom.low + bottom.high) / 2
        fixed = {"bottom": mean, "share": 0.5, "is_flipped": 0.0}
        step._flip_prob = 0.0
        step._draws = {name: UniformDraw(name, value, value, key=bottom.key) for name, value in fixed.items()}
        return step

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare scale, part at the bottom, place of the crop, and whether it is mirrored."""
        return tuple(self._draws.values())

    def _change_of(self, hw: Any) -> ImagePlaneChange:
        # All in pixels of the input, row and column.
        output_hw: Any = constant(self._output_hw, hw)
        scale: Any = self.draw("scale") if "scale" in self._draws else None
        bottom, share, drawn = (self.draw(name) for name in ("bottom", "share", "is_flipped"))
        if scale is None or self._is_kept_inside:
            filling = functions.reductions.max(output_hw / hw)
            scale = filling if scale is None else functions.maximum(scale, filling)
        size = output_hw / scale
        least = np.array([0 if self._is_kept_inside else -np.inf, 0], np.float32)
        corner: Any = functions.maximum(hw - size, least) * functions.stack(constant(1, hw), share)
        if self._draws["bottom"].constant != 0:
            cut_off = hw * functions.stack(bottom, constant(0, hw))
            corner = functions.maximum(corner - cut_off, least)
        is_flipped = drawn < np.float32(self._flip_prob)
        mirrored = size * functions.stack(constant(False, hw, np.bool_), is_flipped)
        start, end = corner + mirrored, corner + size - mirrored
        scales = functions.stack(scale, scale * (is_flipped * np.float32(-2) + np.float32(1)))
        scaling = AxisScaling(scales, -start * scales, start, end, self._output_hw)
        resampling = Resampling.REGION if self._is_kept_inside else Resampling.PASTED_REGION
        return self._resized(scaling, hw, resampling)
