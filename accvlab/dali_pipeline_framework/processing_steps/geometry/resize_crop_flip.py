# SPDX-License-Identifier: Apache-2.0
"""Steps that resize, crop and flip images together with their geometry."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from ...checks import choice, flag, number_range, probability
from ...draws.random_draws import RandomDraw, UniformDraw
from ...operators import functions, image_arrays
from ...operators.functions import constant
from ...operators.image_transform import AxisScaling, Resampling, ResizingAnchor, ResizingMode, resizing
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


_MODES = {mode.name.lower(): mode for mode in ResizingMode}
_ANCHORS = {anchor.name.lower(): anchor for anchor in ResizingAnchor}


class ImageResizer(ImageTransformStep):
    """Brings images, anywhere in the sample, to one size, and changes all that is given in their pixels
    accordingly.

    ========  =========================================================================================
    mode      what is shown
    ========  =========================================================================================
    stretch   all of the image; each axis is scaled by itself
    pad       all of the image at its aspect ratio; the rest is ``fill_value``
    crop      as much of the image as fills the output, at its aspect ratio; the rest is cut off
    ========  =========================================================================================

    Fields, shapes and types are those of `AffineTransformer`. The images and size fields of a sample must have one
    size; for cameras of different sizes, apply the step to each camera by a wrapper.

    Pixels are interpolated bilinearly, without antialiasing, by ``fn.resize`` of the region that is shown. With
    ``is_encoded``, a graph decodes only this region of a file (the pixels are the same to 1 grey level): where a
    third of a JPEG is cut off, decoding and resizing take 0.87 times as long as with `ImageDecoder`. Images that
    are known to be decoded are refused with ``is_encoded``, and without it those that are known to be encoded, or
    to have a layout other than ``HWC`` and ``FHWC``.

    Example:
        >>> step = ImageResizer("image", output_hw=[256, 704], mode="crop", projection_names="intrinsics")
    """

    @with_pixel_fields
    def __init__(
        self,
        image_names: Names | None,
        *,
        output_hw: Sequence[int],
        mode: str = "stretch",
        anchor: str = "center",
        fill_value: float = 0,
        is_encoded: bool = False,
        reduced_decoding: bool = False,
        **fields: Unpack[PixelFields],
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            output_hw: Height and width of the output.
            mode: "stretch", "pad" or "crop".
            anchor: What stays in place with "pad" and "crop": "center", "top_or_left" or "bottom_or_right".
            fill_value: Value of what the images do not show.
            is_encoded: Whether the fields hold image files, ``(num_bytes,)`` uint8, as for `ImageDecoder`. Only
                the part that is shown is decoded, to RGB.
            reduced_decoding: Whether JPEG files may be decoded at a half, a quarter or an eighth of their size, as
                long as each pixel of the output has one of the decoded image: cheaper, and smoother where images
                are made much smaller. Such a step runs on arrays only, not in a graph.
            **fields: `PixelFields`: ``hw_names``, ``projection_names``, ``point_names``, ``box_names`` and
                ``mask_names``, name or names of what else is changed; ``on_gpu``, whether images are changed on
                the GPU, in a pipeline that has one (by default; otherwise they are changed where they are).

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, fill_value, is_encoded, reduced_decoding, **fields)
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._mode = choice(mode, "mode", _MODES)
        self._anchor = choice(anchor, "anchor", _ANCHORS)

    def _change_of(self, hw: Any) -> ImagePlaneChange:
        mode = _MODES[self._mode]
        scaling = resizing(hw, self._output_hw, mode, _ANCHORS[self._anchor])
        resampling = Resampling.PASTED_REGION if mode == ResizingMode.PAD else Resampling.REGION
        return self._resized(scaling, hw, resampling)


class HorizontalFlipper(ImageTransformStep):
    """Mirrors images, anywhere in the sample, left to right at random, with all that is given in their pixels.

    The images of a sample, of width ``W``, are mirrored all or not at all::

        x_out = W - x        points; boxes: x1_out = W - x2, x2_out = W - x1
        P_out = [[-1, 0, W], [0, 1, 0], [0, 0, 1]] @ P        projection matrices and intrinsics

    So a point in space is projected to where its mirrored picture is. (It is the picture that is mirrored, not the
    scene: the focal length along x becomes negative.) Size fields stay as they are.

    Fields, shapes and types are those of `AffineTransformer`, and so is what is refused; pixels are copied. The
    images and size fields of a sample must have one size; for cameras of different sizes, apply the step to each
    camera by a wrapper.

    Example:
        >>> step = HorizontalFlipper("image", point_names="keypoints", box_names="boxes", key="rig")
    """

    image_tolerance = 0.0

    @with_pixel_fields
    def __init__(
        self, image_names: Names | None, *, prob: float = 0.5, key: Key = "sample", **fields: Unpack[PixelFields]
    ) -> None:
        """Create the step.

        Args:
            image_names: Name or names of the images; None where there are only size fields.
            prob: Probability that a sample is mirrored, in [0, 1].
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.
            **fields: `PixelFields`: ``hw_names``, ``projection_names``, ``point_names``, ``box_names`` and
                ``mask_names``, name or names of what else is changed; ``on_gpu``, whether images are changed on
                the GPU, in a pipeline that has one (by default; otherwise they are changed where they are).

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        super().__init__(image_names, **fields)
        self._prob = probability(prob, "prob")
        self._draws = (UniformDraw("is_flipped", key=key),)

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare whether a sample is mirrored."""
        return self._draws

    def _change_of(self, hw: Any) -> ImagePlaneChange:
        width: Any = hw[1]
        is_flipped: Any = self.draw("is_flipped") < np.float32(self._prob)
        flag = functions.cast(is_flipped, types.DALIDataType.INT32)
        scale = is_flipped * np.array([-2, 0], np.float32) + np.float32(1)
        offset = width * is_flipped * np.array([1, 0], np.float32)
        transforms = functions.transforms
        matrix = transforms.translation(transforms.scale(scale=scale), offset=offset)

        def flipped(image: Any, fill_value: float, is_mask: bool) -> Any:
            if functions.is_node(image):
                return fn.flip(image, horizontal=flag)
            return image_arrays.flipped(image) if is_flipped else image

        return ImagePlaneChange(matrix, flipped, None)
