# SPDX-License-Identifier: Apache-2.0
"""Bring images to a fixed size, with all that is given in their pixels."""

from __future__ import annotations

from collections.abc import Sequence

from nvidia.dali.data_node import DataNode

from ..checks import choice
from ..operators.image_transform import Resampling, ResizingAnchor, ResizingMode, resizing
from ..sample_data import Name
from .image_transform_step import ImagePlaneChange, ImageTransformStep, checked_hw

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
    ``is_encoded``, only this region of an image file is decoded (the pixels are the same to 1 grey level): where a
    third of a JPEG is cut off, decoding and resizing take 0.87 times as long as with `ImageDecoder`. Images that
    are known to be decoded are refused with ``is_encoded``, and without it those that are known to be encoded, or
    to have a layout other than ``HWC`` and ``FHWC``.

    Price on the CPU for 1600 x 900 to 704 x 256 pixels, uint8, per image: 2 ms. In batches of 8, each field of
    projection matrices takes 0.04 ms per sample, points or boxes 0.01 ms.

    Example:
        >>> step = ImageResizer("image", [256, 704], "crop", projection_matrix_field_names="intrinsics")
    """

    def __init__(
        self,
        image_field_names: Name | Sequence[Name] | None,
        output_hw: Sequence[int],
        mode: str = "stretch",
        anchor: str = "center",
        *,
        image_hw_field_names: Name | Sequence[Name] | None = None,
        projection_matrix_field_names: Name | Sequence[Name] | None = None,
        point_field_names: Name | Sequence[Name] | None = None,
        box_field_names: Name | Sequence[Name] | None = None,
        mask_field_names: Name | Sequence[Name] | None = None,
        fill_value: float = 0,
        is_encoded: bool = False,
        transform_image_on_gpu: bool = True,
    ) -> None:
        """Create the step.

        Args:
            image_field_names: Name or names of the images; None where there are only size fields.
            output_hw: Height and width of the output.
            mode: "stretch", "pad" or "crop".
            anchor: What stays in place with "pad" and "crop": "center", "top_or_left" or "bottom_or_right".
            image_hw_field_names: Name or names of fields with the size of the images.
            projection_matrix_field_names: Name or names of projection matrices, or intrinsics.
            point_field_names: Name or names of points.
            box_field_names: Name or names of boxes with edges along the axes, ``x1 <= x2`` and ``y1 <= y2``.
            mask_field_names: Name or names of masks.
            fill_value: Value of what the images do not show.
            is_encoded: Whether the fields hold image files, ``(num_bytes,)`` uint8, as for `ImageDecoder`. Only
                the part that is shown is decoded, to RGB.
            transform_image_on_gpu: Whether images are resized on the GPU, in a pipeline that has one. Otherwise
                they are resized where they are.

        Raises:
            SettingError: There are neither images nor sizes, or an argument is not of its form.
        """
        fields = {
            "image": image_field_names,
            "mask": mask_field_names,
            "image_hw": image_hw_field_names,
            "projection_matrix": projection_matrix_field_names,
            "point": point_field_names,
            "box": box_field_names,
        }
        super().__init__(fields, fill_value, transform_image_on_gpu, is_encoded)
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._mode = choice(mode, "mode", _MODES)
        self._anchor = choice(anchor, "anchor", _ANCHORS)

    def _change_of(self, hw: DataNode) -> ImagePlaneChange:
        mode = _MODES[self._mode]
        scaling = resizing(hw, self._output_hw, mode, _ANCHORS[self._anchor])
        resampling = Resampling.PASTED_REGION if mode == ResizingMode.PAD else Resampling.REGION
        return self._resized(scaling, hw, resampling)
