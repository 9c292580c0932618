# SPDX-License-Identifier: Apache-2.0
"""Bring images to a fixed size, with all that is given in their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...checks import choice
from ...operators.image_transform import Resampling, ResizingAnchor, ResizingMode, resizing
from ..named_fields import Names
from .image_transform_step import ImagePlaneChange, ImageTransformStep, PixelFields, checked_hw, with_pixel_fields

_MODES = {mode.name.lower(): mode for mode in ResizingMode}
_ANCHORS = {anchor.name.lower(): anchor for anchor in ResizingAnchor}

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    ``is_encoded``, only this region of an image file is decoded (the pixels are the same to 1 grey level): where a
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
