# SPDX-License-Identifier: Apache-2.0
"""Mirror images left to right, with all that is given in their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from ...checks import probability
from ...draws.random_draws import RandomDraw, UniformDraw
from ...operators import functions, image_arrays
from ...sample_data import SampleDataGroup
from ..named_fields import Key, Names
from .image_transform_step import ImagePlaneChange, ImageTransformStep, PixelFields, with_pixel_fields

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
