# SPDX-License-Identifier: Apache-2.0
"""Transform images by random affine transformations, with all that is given in their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...draws.random_draws import RandomDraw
from ...operators.image_transform import (
    AxisScaling,
    Resampler,
    Resampling,
    ResizingAnchor,
    ResizingMode,
    checked_resizing,
    resizing,
    swapped,
)
from ...sample_data import SampleDataGroup
from ..named_fields import Key, Names
from . import affine_transformation_steps as steps_module
from .affine_transformation_steps import (
    Coverage,
    TransformationChain,
    TransformationStep,
    check_order,
    checked_steps,
    coverage_after,
    draws_of,
    extend_by,
)
from .image_resizers import ImagePlaneChange, ImageTransformStep, checked_hw

_PLACE = "steps"


class AffineTransformer(ImageTransformStep):
    """Transforms images by a chain of random steps and brings them to one size.

    The images, and all that is given in their pixels, anywhere in the sample, get the same transformation
    ``M = resize @ step_n @ ... @ step_1``, one ``(2, 3)`` matrix per sample. ``(x, y)`` are pixels, with
    ``(0, 0)`` at the outer corner of the first pixel. Rotation, scaling and shearing are about the center
    ``(W / 2, H / 2)`` of the *viewport*, the rectangle of the size of the input.

    =====================  ==========================================  =========================================
    fields                 input                                       output
    =====================  ==========================================  =========================================
    images                 ``(H, W, C)`` or a clip ``(F, H, W, C)``;   ``(h, w, C)``, ``(F, h, w, C)``; bilinear;
                           uint8, int16, float32                       ``fill_value`` beyond the image
    masks                  as images, values are labels                nearest pixel; 0 beyond the image
    image sizes            ``(2,)`` height, width, of any type         ``output_hw``
    projection matrices    ``(..., 3 or 4, K)``, e.g. intrinsics,      ``[M; 0 0 1] @ P``; a fourth row stays
                           of float; of an array: of one shape
    points                 ``(..., 2 * k)`` x, y, ... of any type      ``M @ [x, y, 1]``; whole numbers rounded
    boxes                  ``(..., 4)`` x1, y1, x2, y2 of any type     the smallest box around the transformed one
    =====================  ==========================================  =========================================

    Any number of points, boxes and matrices is possible, also none. They are not clipped to the image (see
    `CoordinateCropper`). The corners of a box may be in any order, and keep it; points and boxes that are not
    finite stay so. The arithmetic is float32: points are exact to about 0.001 pixels. Types stay as they are.
    Images that are known to be encoded, or to have a layout other than ``HWC`` and ``FHWC``, are refused.

    All images and size fields of a sample must have the same size, at least one pixel, otherwise the batch fails.
    For cameras of different sizes, apply the step to each camera by a wrapper; with a ``key`` of ``"rig"`` they
    share the draws.

    Settings without rotation and shearing are computed by ``fn.resize`` of a region (with mirrored regions for
    flips) instead of ``fn.warp_affine``: the same pixels to 1 grey level, except along the edge of the image,
    where ``fn.warp_affine`` mixes half a pixel of ``fill_value`` in. There is no antialiasing in either case.

    Example:
        >>> T = AffineTransformer
        >>> flip = T.NonUniformScaling(0.5, [-1, 1])
        >>> zoom = T.Selection(1.0, [0.7, 0.3], [T.UniformScaling(1.0, 1.0, 1.5), [T.Rotation(0.5, -5, 5)]])
        >>> step = T(
        ...     [256, 704],
        ...     T.ResizingMode.CROP,
        ...     T.ResizingAnchor.BOTTOM_OR_RIGHT,
        ...     image_field_names="image",
        ...     projection_matrix_field_names="intrinsics",
        ...     transformation_steps=[zoom, flip],
        ... )
    """

    ResizingMode: TypeAlias = ResizingMode
    ResizingAnchor: TypeAlias = ResizingAnchor
    TransformationStep: TypeAlias = TransformationStep
    Translation: TypeAlias = steps_module.Translation
    Rotation: TypeAlias = steps_module.Rotation
    UniformScaling: TypeAlias = steps_module.UniformScaling
    NonUniformScaling: TypeAlias = steps_module.NonUniformScaling
    Shearing: TypeAlias = steps_module.Shearing
    ShiftInsideOriginalImage: TypeAlias = steps_module.ShiftInsideOriginalImage
    ShiftToAlignWithOriginalImageBorder: TypeAlias = steps_module.ShiftToAlignWithOriginalImageBorder
    Selection: TypeAlias = steps_module.Selection

    _argument_of = ImageTransformStep._argument_of | {
        "image": "image_field_names",
        "hw": "image_hw_field_names",
        "projection": "projection_matrix_field_names",
        "point": "point_field_names",
        "on_gpu": "transform_image_on_gpu",
    }

    def __init__(
        self,
        output_hw: Sequence[int],
        resizing_mode: ResizingMode,
        resizing_anchor: ResizingAnchor | None = None,
        image_field_names: Names | None = None,
        image_hw_field_names: Names | None = None,
        projection_matrix_field_names: Names | None = None,
        point_field_names: Names | None = None,
        transformation_steps: Sequence[TransformationStep] | None = None,
        transform_image_on_gpu: bool = True,
        *,
        box_names: Names | None = None,
        mask_names: Names | None = None,
        fill_value: float = 0,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            output_hw: Height and width of the output.
            resizing_mode: How the viewport is brought to this size, after all steps.
            resizing_anchor: What stays in place with ``PAD`` and ``CROP``; to be left out with ``STRETCH``.
            image_field_names: Name or names of the images.
            image_hw_field_names: Name or names of fields with the size of the images. They are needed where no
                images are transformed.
            projection_matrix_field_names: Name or names of projection matrices, or intrinsics.
            point_field_names: Name or names of points.
            transformation_steps: What is done to the viewport, in this order.
            transform_image_on_gpu: Whether images are transformed on the GPU, in a pipeline that has one.
                Otherwise they are transformed where they are.
            box_names: Name or names of boxes with edges along the axes, ``x1 <= x2`` and ``y1 <= y2``.
            mask_names: Name or names of masks.
            fill_value: Value of what the images do not show.
            key: What the draws are held constant over: "sample", "rig", "sequence", "sequence-rig", a path of the
                input, or a `FieldKey`.

        Raises:
            SettingError: There are neither images nor sizes; mode and anchor do not fit; a shift step stands after
                a rotation or shearing; an argument is not of its form.
        """
        super().__init__(
            image_field_names,
            fill_value,
            hw_names=image_hw_field_names,
            projection_names=projection_matrix_field_names,
            point_names=point_field_names,
            box_names=box_names,
            mask_names=mask_names,
            on_gpu=transform_image_on_gpu,
        )
        self._output_hw = checked_hw(output_hw, "output_hw")
        self._resizing_mode, self._resizing_anchor = checked_resizing(resizing_mode, resizing_anchor)
        self._steps = checked_steps(transformation_steps, "`transformation_steps`")
        check_order(self._steps)
        self._draws = tuple(draws_of(self._steps, _PLACE, key))  # type: ignore[arg-type]

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare for each step whether it is applied, and its parameters, as far as they are random."""
        return self._draws

    def _change_of(self, hw: Any) -> ImagePlaneChange:
        chain = TransformationChain(swapped(hw), self.draw)
        extend_by(chain, self._steps, _PLACE)
        last = resizing(hw, self._output_hw, self._resizing_mode, self._resizing_anchor)
        matrix = last.matrix_after(chain.matrix)
        resampling = self._resampling()
        if resampling == Resampling.WARP:
            resampler = Resampler.warping(matrix, self._output_hw)
        else:
            scaling = last if chain.matrix is None else AxisScaling.of_matrix(matrix, self._output_hw)
            resampler = Resampler.resizing(resampling, scaling, hw)
        return ImagePlaneChange(matrix, resampler, self._output_hw)

    def _resampling(self) -> Resampling:
        if not all(step.keeps_axes for step in self._steps):
            return Resampling.WARP
        is_covered = coverage_after(self._steps, Coverage()).is_covered.all()
        return (
            Resampling.REGION
            if is_covered and self._resizing_mode != ResizingMode.PAD
            else Resampling.PASTED_REGION
        )
