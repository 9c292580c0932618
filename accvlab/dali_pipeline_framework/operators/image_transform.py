# SPDX-License-Identifier: Apache-2.0
"""Affine transformations of the image plane in a graph: of images, and of all that is given in pixels.

Coordinates: ``(x, y)`` in pixels, x to the right, y down, ``(0, 0)`` at the outer corner of the first pixel. So an
image is the rectangle from ``(0, 0)`` to ``(width, height)``, and pixel ``(row, column)`` has its center at
``(column + 0.5, row + 0.5)``.

A transformation is one matrix per sample, ``(2, 3)`` float32 on the CPU: ``p_out = matrix @ [x, y, 1]``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..engine.dali.broken_rules import failing_with
from ..errors import SettingError

_FLOAT = types.DALIDataType.FLOAT
_INT32 = types.DALIDataType.INT32
_TWO = np.array([2], np.int32)
_SIZES_DIFFER = "the images or size fields of a sample differ in size; wrap the step"
# Added to an index to put it out of bounds, so that DALI refuses it.
_FAR_OUTSIDE = 1 << 24
# Margin decoded around a region: neighbors for the interpolation and for the chroma upsampling of JPEG.
_MARGIN_PX = 4


class ResizingMode(Enum):
    """How an image is brought to a size of another aspect ratio."""

    STRETCH = 0
    """All of the image, in all of the output. Each axis is scaled by itself."""
    PAD = 1
    """All of the image at its aspect ratio; what remains of the output is filled."""
    CROP = 2
    """The output filled, at the aspect ratio of the image; what is too much is cut off."""


class ResizingAnchor(Enum):
    """What stays in place when an image is padded or cropped."""

    CENTER = 0
    TOP_OR_LEFT = 1
    BOTTOM_OR_RIGHT = 2


_SHARE_BEFORE = {
    ResizingAnchor.CENTER: 0.5,
    ResizingAnchor.TOP_OR_LEFT: 0.0,
    ResizingAnchor.BOTTOM_OR_RIGHT: 1.0,
}


class Resampling(Enum):
    """How images are resampled. Chosen from the settings of a step, not from data."""

    WARP = 0
    """``fn.warp_affine``: any matrix."""
    REGION = 1
    """``fn.resize`` of a region: nothing rotated or sheared, and the output shows nothing beyond the image."""
    PASTED_REGION = 2
    """``fn.resize`` of the visible part, pasted into the output: nothing rotated or sheared."""


# --- sizes ----------------------------------------------------------------------------------------------


def image_hw(image: DataNode) -> DataNode:
    """Height and width of ``(H, W, C)`` or ``(F, H, W, C)``: ``(2,)`` int32 on the CPU."""
    hw: DataNode = image.shape(dtype=_INT32)[-3:-1]
    return hw


def sizes_of_encoded(images: Sequence[DataNode]) -> DataNode:
    """Height and width of image files from their headers, ``(num_images, 2)`` int32 on the CPU."""
    shapes: Any = fn.stack(*[fn.peek_image_shape(encoded, dtype=_INT32) for encoded in images])
    sizes: DataNode = shapes[:, 0:2]
    return sizes


def one_size_of_all(sizes: DataNode, num_sizes: int) -> DataNode:
    """The size that all images of a sample have, ``(2,)`` int32.

    A sample where sizes differ, or are not at least one pixel, is an error of the graph.

    Args:
        sizes: ``(num_sizes, 2)`` int32.
        num_sizes: How many.
    """
    least: Any = sizes if num_sizes == 1 else fn.reductions.min(sizes, axes=[0])
    most = sizes if num_sizes == 1 else fn.reductions.max(sizes, axes=[0])
    # Two additional axes of length 1 change nothing and cost nothing; any other lengths do not fit the data.
    ones = fn.cat(fn.reshape(dali_math.min(least, 1), shape=[-1]), _TWO)
    hw = failing_with(
        "an image has no pixels or no channels (is it decoded before?)", fn.reshape, most, shape=ones
    )
    if num_sizes > 1:
        ones = fn.cat(most - least + 1, _TWO)
        hw = failing_with(_SIZES_DIFFER, fn.reshape, hw, shape=ones)
    size: DataNode = fn.reshape(hw, shape=[2])
    return size


def one_size_of_fields(sizes: Sequence[DataNode]) -> Any:
    """The size that all have, ``(2,)`` float32, where they are not only those of images.

    A sample where sizes differ, or are not at least one pixel and finite, is an error of the graph.
    """
    stacked: Any = fn.stack(*[fn.cast(size, dtype=_FLOAT) for size in sizes])  # (num_sizes, 2)
    are_sizes = fn.cast((stacked >= 1) & (stacked < np.float32(np.inf)), dtype=_INT32)
    no_size = (1 - fn.reductions.min(are_sizes)) * _FAR_OUTSIDE
    size: Any = failing_with(
        "a size is below 1 pixel, or not finite (is the image decoded before?)", operator.getitem, stacked, no_size
    )
    if len(sizes) > 1:
        differ = fn.cast(fn.reductions.max(fn.cast(stacked != size, dtype=_FLOAT)), dtype=_INT32) * _FAR_OUTSIDE
        size = failing_with(_SIZES_DIFFER, operator.getitem, stacked, differ)
    return size


def swapped(pair: Any) -> DataNode:
    """Width and height of height and width, or the reverse, ``(2,)`` float32."""
    reverse: DataNode = fn.coord_transform(fn.reshape(pair, shape=[1, 2]), M=[0.0, 1.0, 1.0, 0.0])
    return fn.reshape(reverse, shape=[2])


def constant(values: npt.ArrayLike) -> Any:
    """Numbers as a node: NumPy arrays cannot stand to the left of a node."""
    return types.Constant(np.array(values, np.float32), device="cpu")


# --- matrices -------------------------------------------------------------------------------------------


def checked_resizing(mode: object, anchor: object) -> tuple[ResizingMode, ResizingAnchor | None]:
    """Return mode and anchor of a resizing.

    Raises:
        SettingError: They are not of these kinds, or do not fit together.
    """
    if not isinstance(mode, ResizingMode):
        raise SettingError(f"`resizing_mode` must be a ResizingMode (STRETCH, PAD or CROP), got {mode!r}.")
    if anchor is not None and not isinstance(anchor, ResizingAnchor):
        raise SettingError(
            f"`resizing_anchor` must be a ResizingAnchor (CENTER, TOP_OR_LEFT or BOTTOM_OR_RIGHT), got {anchor!r}."
        )
    if mode == ResizingMode.STRETCH and anchor is not None:
        raise SettingError(
            f"`resizing_anchor` must be left out with STRETCH, which fills the output; got {anchor}."
        )
    if mode != ResizingMode.STRETCH and anchor is None:
        raise SettingError(f"`resizing_anchor` must be given with {mode.name}: what stays in place?")
    return mode, anchor


@attrs.frozen
class AxisScaling:
    """A transformation that only scales, mirrors and shifts: ``out = scale * in + offset`` for each axis.

    All are ``(2,)`` float32, for rows and columns, where nothing else is said. What is not used costs nothing.

    Attributes:
        scale: Pixels of the output per pixel of the input; less than 0 where an axis is mirrored.
        offset: Where the first corner of the input comes to lie in the output.
        start: What the first corner of the output shows of the input.
        end: The same of the last corner; less than ``start`` where an axis is mirrored.
        output_hw: Height and width of the output.
    """

    scale: Any
    offset: Any
    start: Any
    end: Any
    output_hw: tuple[int, int]

    @classmethod
    def of_matrix(cls, matrix: DataNode, output_hw: tuple[int, int]) -> AxisScaling:
        """What a matrix does that does not rotate or shear, ``(2, 3)``."""
        rows: Any = fn.transforms.combine(matrix, _swapping())  # of row and column
        scale, offset = fn.reductions.sum(rows[:, 0:2], axes=[1]), rows[:, 2]
        return cls(scale, offset, -offset / scale, (constant(output_hw) - offset) / scale, output_hw)

    def matrix_after(self, matrix: DataNode | None = None) -> DataNode:
        """The matrix of another transformation and then this one, ``(2, 3)``."""
        before = () if matrix is None else (matrix,)
        swapping = _swapping()
        scaling = fn.transforms.translation(fn.transforms.scale(scale=self.scale), offset=self.offset)
        both: DataNode = fn.transforms.combine(*before, swapping, scaling, swapping)
        return both


def _swapping() -> DataNode:
    """The matrix that swaps rows and columns."""
    matrix: DataNode = constant([[0, 1, 0], [1, 0, 0]])
    return matrix


def resizing(
    hw: Any, output_hw: tuple[int, int], mode: ResizingMode, anchor: ResizingAnchor | None
) -> AxisScaling:
    """Scale an image of one size to another size.

    Args:
        hw: Height and width of the input, ``(2,)``.
        output_hw: Height and width of the output.
        mode: What happens where aspect ratios differ.
        anchor: What stays in place; None with ``STRETCH``.
    """
    size, origin = constant(output_hw), constant([0, 0])
    ratio = size / hw
    if mode == ResizingMode.STRETCH or anchor is None:
        return AxisScaling(ratio, origin, origin, hw * np.float32(1), output_hw)
    factor = fn.reductions.min(ratio) if mode == ResizingMode.PAD else fn.reductions.max(ratio)
    scale, extent = fn.stack(factor, factor), size / factor
    share = _SHARE_BEFORE[anchor]
    if share == 0:
        return AxisScaling(scale, origin, origin, extent, output_hw)
    start = (hw - extent) * np.float32(share)
    offset = (size - hw * factor) * np.float32(share)
    return AxisScaling(scale, offset, start, start + extent, output_hw)


# --- fields given in pixels -----------------------------------------------------------------------------


def transformed_points(points: DataNode, matrix: DataNode, dtype: types.DALIDataType) -> DataNode:
    """Transform points, ``(..., 2 * k)``: each two following numbers are ``x, y``.

    The arithmetic is float32. Whole numbers are rounded.
    """
    shape: Any = points.shape(dtype=_INT32)
    pairs = failing_with(
        "points must be x, y pairs", fn.reshape, points, shape=fn.cat(shape[:-1], shape[-1:] // 2, _TWO)
    )
    moved = fn.coord_transform(_as_float(pairs, dtype), MT=matrix)
    return _as_type(fn.reshape(moved, shape=shape), dtype)


def boxes_matrix(matrix: Any) -> DataNode:
    """The ``(4, 5)`` matrix that takes a box ``x1, y1, x2, y2`` to the smallest box around its image.

    With the linear part ``A = P + N``, where ``P`` holds what is positive and ``N`` what is negative::

        low' = P @ low + N @ high + t        high' = N @ low + P @ high + t
    """
    linear, offset = matrix[:, 0:2], matrix[:, 2:3]
    positive, negative = dali_math.max(linear, np.float32(0)), dali_math.min(linear, np.float32(0))
    of_boxes: DataNode = fn.cat(
        fn.cat(positive, negative, offset, axis=1), fn.cat(negative, positive, offset, axis=1)
    )
    return of_boxes


def transformed_boxes(boxes: DataNode, matrix_of_boxes: DataNode, dtype: types.DALIDataType) -> DataNode:
    """Transform boxes, ``(..., 4)`` with ``x1 <= x2`` and ``y1 <= y2``, by a matrix of `boxes_matrix`."""
    shape = boxes.shape(dtype=_INT32)
    moved = failing_with(
        "boxes must be x1, y1, x2, y2", fn.coord_transform, _as_float(boxes, dtype), MT=matrix_of_boxes
    )
    # DALI forgets the number of columns where no sample of a batch has boxes.
    return _as_type(fn.reshape(moved, shape=shape), dtype)


def projections_rows(matrix: Any) -> tuple[DataNode, DataNode]:
    """The two rows of a matrix as columns, ``(3, 1)`` each, for `transformed_projections`."""
    return fn.reshape(matrix[0], shape=[3, 1]), fn.reshape(matrix[1], shape=[3, 1])


def transformed_projections(
    projections: DataNode, rows: tuple[DataNode, DataNode], dtype: types.DALIDataType
) -> DataNode:
    """Multiply projections by a transformation from the left, ``(..., 3 or 4, num_columns)``.

    The first three rows give ``x * z``, ``y * z`` and ``z``; so the third and a fourth row stay as they are.

    Args:
        projections: The projections.
        rows: The transformation, from `projections_rows`.
        dtype: Type of the projections.
    """
    given = _as_float(projections, dtype)
    rule = "projection matrices must have 3 or 4 rows"
    upper = failing_with(rule, fn.slice, given, start=[0], shape=[3], axes=[-2])
    changed = [fn.reductions.sum(upper * row, axes=[-2], keep_dims=True) for row in rows]
    unchanged = fn.slice(given, start=[2], shape=[2], axes=[-2], out_of_bounds_policy="trim_to_shape")
    product = fn.cat(*changed, unchanged, axis=-2)
    product = failing_with(rule, fn.reshape, product, shape=projections.shape())
    return _as_type(product, dtype)


def _as_float(values: DataNode, dtype: types.DALIDataType) -> DataNode:
    return values if dtype == _FLOAT else fn.cast(values, dtype=_FLOAT)


def _as_type(values: DataNode, dtype: types.DALIDataType) -> DataNode:
    return values if dtype == _FLOAT else fn.cast(values, dtype=dtype)


# --- images ---------------------------------------------------------------------------------------------


@attrs.frozen
class Resampler:
    """Resamples the images of a sample, with arguments that are computed once for all of them.

    Attributes:
        resampling: Which operators are used.
        output_hw: Height and width of the output.
        arguments: Arguments of the operator, ``(2,)`` or a matrix per sample.
        decoded_part: For encoded images: first row and column, and size, of the part to decode, ``(2,)`` int32
            each; regions are relative to it.
    """

    resampling: Resampling
    output_hw: tuple[int, int]
    arguments: dict[str, Any]
    decoded_part: tuple[DataNode, DataNode] | None = None

    @classmethod
    def warping(cls, matrix: DataNode, output_hw: tuple[int, int]) -> Resampler:
        """Prepare for any affine transformation from the input to the output, ``(2, 3)``."""
        return cls(Resampling.WARP, output_hw, {"matrix": matrix})

    @classmethod
    def resizing(cls, resampling: Resampling, scaling: AxisScaling, hw: Any) -> Resampler:
        """Prepare for a transformation without rotation and shearing.

        Args:
            resampling: Which operators are used; not `WARP`.
            scaling: The transformation from the input to the output.
            hw: Height and width of the input, ``(2,)``.
        """
        output_hw = scaling.output_hw
        if resampling == Resampling.REGION:
            return cls(resampling, output_hw, {"roi_start": scaling.start, "roi_end": scaling.end})
        # Output pixels whose center lies in the image: [first, end). Where there are none, one pixel of an empty
        # region is computed (DALI reads out of bounds if a region lies outside), and pasted outside of the output.
        size, zero = constant(output_hw), np.float32(0)
        near, scale = scaling.offset, scaling.scale
        far = near + scale * hw
        first = dali_math.clamp(dali_math.ceil(dali_math.min(near, far) - 0.5), zero, size)
        end = dali_math.clamp(dali_math.floor(dali_math.max(near, far) - 0.5) + 1, zero, size)
        is_visible = end > first
        part = {
            "roi_start": (first - near) / scale * is_visible,
            "roi_end": (end - near) / scale * is_visible,
            "size": dali_math.max(end - first, np.float32(1)),
            "start": fn.cast(size * is_visible - first - size, dtype=_INT32),
        }
        return cls(resampling, output_hw, part)

    def of_encoded(self, hw: Any) -> Resampler:
        """The same for image files, of which only the visible part is decoded. Not for `WARP`."""
        start, end = self.arguments["roi_start"], self.arguments["roi_end"]
        zero = np.float32(0)
        # `fn.cast` rounds to the nearest whole number.
        least = dali_math.clamp(dali_math.min(start, end) - np.float32(_MARGIN_PX + 0.5), zero, hw)
        most = dali_math.clamp(dali_math.max(start, end) + np.float32(_MARGIN_PX + 0.5), zero, hw)
        corner = fn.cast(least, dtype=_INT32)
        part = corner, fn.cast(most, dtype=_INT32) - corner
        regions = {"roi_start": start - corner, "roi_end": end - corner}
        return attrs.evolve(self, arguments={**self.arguments, **regions}, decoded_part=part)

    def decoded(self, encoded: DataNode, device: str) -> DataNode:
        """Decode the visible part of an image file, as RGB."""
        corner, size = self.decoded_part or (None, None)
        image: DataNode = fn.decoders.image_slice(
            encoded, start=corner, shape=size, axis_names="HW", device=device
        )
        return image

    def __call__(self, image: Any, fill_value: float = 0, is_mask: bool = False) -> DataNode:
        """Resample an image, ``(H, W, C)`` or ``(F, H, W, C)``.

        Args:
            image: The image, on the CPU or the GPU.
            fill_value: Value of output pixels outside of the input.
            is_mask: Whether the values are labels, which takes nearest-neighbor instead of bilinear interpolation.
        """
        interpolation = types.DALIInterpType.INTERP_NN if is_mask else types.DALIInterpType.INTERP_LINEAR
        if self.resampling == Resampling.WARP:
            warped: DataNode = fn.warp_affine(
                image,
                **self.arguments,
                size=[*self.output_hw],
                interp_type=interpolation,
                fill_value=fill_value,
                inverse_map=False,
            )
            return warped
        region = dict(self.arguments)
        start = region.pop("start", None)
        size = region.pop("size", [*self.output_hw])
        part: Any = fn.resize(image, **region, size=size, interp_type=interpolation, antialias=False)
        if start is not None:
            part = fn.slice(
                part,
                start=start,
                shape=[*self.output_hw],
                axis_names="HW",
                out_of_bounds_policy="pad",
                fill_values=fill_value,
            )
        resized_image: DataNode = part
        return resized_image
