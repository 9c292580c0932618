# SPDX-License-Identifier: Apache-2.0
"""Mirror images left to right, with all that is given in their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..checks import probability
from ..draws.random_draws import FieldKey, RandomDraw, UniformDraw
from ..sample_data import Name, SampleDataGroup
from .image_transform_step import ImagePlaneChange, ImageTransformStep


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

    Price on the CPU for 1600 x 900 pixels, uint8: 1 to 2 ms per image, mirrored or not. Where images are resized
    as well, let `ImageResizeCropFlipper` or `AffineTransformer` do both at the price of the resizing.

    Example:
        >>> step = HorizontalFlipper("image", point_field_names="keypoints", box_field_names="boxes", key="rig")
    """

    def __init__(
        self,
        image_field_names: Name | Sequence[Name] | None,
        prob: float = 0.5,
        *,
        image_hw_field_names: Name | Sequence[Name] | None = None,
        projection_matrix_field_names: Name | Sequence[Name] | None = None,
        point_field_names: Name | Sequence[Name] | None = None,
        box_field_names: Name | Sequence[Name] | None = None,
        mask_field_names: Name | Sequence[Name] | None = None,
        transform_image_on_gpu: bool = True,
        key: str | Sequence[Name] | FieldKey = "sample",
    ) -> None:
        """Create the step.

        Args:
            image_field_names: Name or names of the images; None where there are only size fields.
            prob: Probability that a sample is mirrored.
            image_hw_field_names: Name or names of fields with the size of the images.
            projection_matrix_field_names: Name or names of projection matrices, or intrinsics.
            point_field_names: Name or names of points.
            box_field_names: Name or names of boxes with edges along the axes, ``x1 <= x2`` and ``y1 <= y2``.
            mask_field_names: Name or names of masks.
            transform_image_on_gpu: Whether images are mirrored on the GPU, in a pipeline that has one. Otherwise
                they are mirrored where they are.
            key: What the draw is held constant over: "sample", "rig", "sequence", "sequence-rig", the path of a
                data field of the input, or a `FieldKey`.

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
        super().__init__(fields, 0, transform_image_on_gpu)
        self._prob = probability(prob, "prob")
        self._draws = (UniformDraw("is_flipped", key=key),)

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare whether a sample is mirrored."""
        return self._draws

    def _change_of(self, hw: DataNode) -> ImagePlaneChange:
        width: Any = hw[1]
        is_flipped: Any = self.draw("is_flipped") < np.float32(self._prob)
        flag = fn.cast(is_flipped, dtype=types.DALIDataType.INT32)
        scale = is_flipped * np.array([-2, 0], np.float32) + np.float32(1)
        offset = width * is_flipped * np.array([1, 0], np.float32)
        matrix = fn.transforms.translation(fn.transforms.scale(scale=scale), offset=offset)

        def flipped(image: DataNode, fill_value: float, is_mask: bool) -> DataNode:
            return fn.flip(image, horizontal=flag)

        return ImagePlaneChange(matrix, flipped, None)
