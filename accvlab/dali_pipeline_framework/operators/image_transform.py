# SPDX-License-Identifier: Apache-2.0
"""Affine transformations of the image plane: of images, and of all that is given in pixels.

Coordinates: ``(x, y)`` in pixels, x to the right, y down, ``(0, 0)`` at the outer corner of the first pixel. So an
image is the rectangle from ``(0, 0)`` to ``(width, height)``, and pixel ``(row, column)`` has its center at
``(column + 0.5, row + 0.5)``.

A transformation is one matrix per sample, ``(2, 3)`` float32 on the CPU: ``p_out = matrix @ [x, y, 1]``.

Only images are changed in a graph, too (`Resampler`), by numbers that were computed on arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..engine.dali.texts import ASKS_FOR_DECODER
from ..errors import FieldValueError
from ..sample_data.graph_mode import graph_context
from . import functions, image_arrays
from .functions import Array, Value, failing_with

_FLOAT = types.DALIDataType.FLOAT
_INT32 = types.DALIDataType.INT32
# Margin decoded around a region: neighbors for the interpolation and for the chroma upsampling of JPEG.
_MARGIN_PX = 4
_WIDE_MARGIN_PX = 16  # for filters of up to eight pixels of the output


class ResizingMode(Enum):
    """Method to resize an image to a size of another aspect ratio."""

    STRETCH = 0
    """All of the image, in all of the output. Each axis is scaled by itself."""
    PAD = 1
    """All of the image at its aspect ratio; the rest of the output is filled."""
    CROP = 2
    """The output filled, at the aspect ratio of the image; the rest of the image is cut off."""


class ResizingAnchor(Enum):
    """Part of an image that stays in place when it is padded or cropped."""

    CENTER = 0
    TOP_OR_LEFT = 1
    BOTTOM_OR_RIGHT = 2


_SHARE_BEFORE = {ResizingAnchor.CENTER: 0.5, ResizingAnchor.TOP_OR_LEFT: 0.0, ResizingAnchor.BOTTOM_OR_RIGHT: 1.0}


class Resampling(Enum):
    """Method of resampling; depends on the settings of a step, not on data."""

    WARP = 0
    """``fn.warp_affine``: any matrix."""
    REGION = 1
    """``fn.resize`` of a region: nothing rotated or sheared, and the output shows nothing beyond the image."""
    PASTED_REGION = 2
    """``fn.resize`` of the visible part, pasted into the output: nothing rotated or sheared."""


# --- sizes ----------------------------------------------------------------------------------------------


def image_hw(image: Value) -> Value:
    """Get the size of ``(H, W, C)`` or ``(F, H, W, C)``: ``(2,)`` float32."""
    if image.ndim < 3:
        raise FieldValueError(f"An image has height, width, channels; got {image.shape} ({ASKS_FOR_DECODER}).")
    return np.array(image.shape[-3:-1], np.float32)


def one_size(sizes: Sequence[Value], *, are_of_images: bool) -> Value:
    """Get the size that all images, or images and size fields, of a sample have, ``(2,)`` float32.

    Raises:
        FieldValueError: Sizes differ, or are not at least one pixel and finite.
    """
    rows = [np.ravel(functions.cast(size, _FLOAT)).tolist() for size in sizes]
    if not all(len(row) == 2 and 1 <= length < np.inf for row in rows for length in row):
        no_pixels = f"An image has no pixels or no channels ({ASKS_FOR_DECODER})"
        no_size = "A size is below 1 pixel, or not finite (is the image decoded before?)"
        raise FieldValueError(f"{no_pixels if are_of_images else no_size}. Sizes: {rows}.")
    if any(row != rows[0] for row in rows):
        raise FieldValueError(
            f"The images or size fields of a sample differ in size; wrap the step. Sizes: {rows}."
        )
    return np.array(rows[0], np.float32)


# --- matrices -------------------------------------------------------------------------------------------


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

    scale: Value
    offset: Value
    start: Value
    end: Value
    output_hw: tuple[int, int]

    @classmethod
    def of_matrix(cls, matrix: Value, output_hw: tuple[int, int]) -> AxisScaling:
        """Make the scaling of a matrix without rotation and shearing, ``(2, 3)``."""
        rows: Value = functions.combined(matrix, _SWAPPING)  # of row and column
        scale, offset = rows[:, 0:2].sum(axis=1), rows[:, 2]
        return cls(scale, offset, -offset / scale, (np.array(output_hw, np.float32) - offset) / scale, output_hw)

    def matrix_after(self, matrix: Value = None) -> Value:
        """Get the matrix of this transformation after another one, ``(2, 3)``."""
        before = () if matrix is None else (matrix,)
        scaling = functions.combined(functions.scaling(self.scale), functions.translation(self.offset))
        return functions.combined(*before, _SWAPPING, scaling, _SWAPPING)


# Swaps rows and columns.
_SWAPPING = np.array([[0, 1, 0], [1, 0, 0]], np.float32)


def resizing(
    hw: Value, output_hw: tuple[int, int], mode: ResizingMode, anchor: ResizingAnchor | None
) -> AxisScaling:
    """Scale an image of one size to another size.

    Args:
        hw: Height and width of the input, ``(2,)``.
        output_hw: Height and width of the output.
        mode: What happens where aspect ratios differ.
        anchor: What stays in place; None with ``STRETCH``.
    """
    size, origin = np.array(output_hw, np.float32), np.zeros(2, np.float32)
    ratio = size / hw
    if mode == ResizingMode.STRETCH or anchor is None:
        return AxisScaling(ratio, origin, origin, hw * np.float32(1), output_hw)
    factor = ratio.min() if mode == ResizingMode.PAD else ratio.max()
    scale, extent = np.array([factor, factor]), size / factor
    share = np.float32(_SHARE_BEFORE[anchor])
    start, offset = (hw - extent) * share, (size - hw * factor) * share
    return AxisScaling(scale, offset, start, start + extent, output_hw)


# --- fields given in pixels -----------------------------------------------------------------------------


def transformed_points(points: Value, matrix: Value, dtype: types.DALIDataType) -> Value:
    """Transform points, ``(..., 2 * k)``: each two following numbers are ``x, y``.

    The arithmetic is float32. Whole numbers are rounded.
    """
    pairs = failing_with("points must be x, y pairs", _in_pairs, points)
    moved = functions.coord_transform(functions.cast(pairs, _FLOAT), matrix)
    return functions.cast(np.reshape(moved, points.shape), dtype)


def _in_pairs(points: Array) -> Array:
    return np.reshape(points, (*points.shape[:-1], points.shape[-1] // 2, 2))


def boxes_matrix(matrix: Value) -> Value:
    """Make the ``(4, 5)`` matrix that maps a box ``x1, y1, x2, y2`` to the smallest box around its image.

    With the linear part ``A = P + N``, where ``P`` holds what is positive and ``N`` what is negative::

        low' = P @ low + N @ high + t        high' = N @ low + P @ high + t
    """
    linear, offset = matrix[:, 0:2], matrix[:, 2:3]
    positive, negative = (of(linear, np.float32(0)) for of in (np.maximum, np.minimum))
    return np.block([[positive, negative, offset], [negative, positive, offset]])


def transformed_boxes(boxes: Value, matrix_of_boxes: Value, dtype: types.DALIDataType) -> Value:
    """Transform boxes, ``(..., 4)`` with ``x1 <= x2`` and ``y1 <= y2``, by a matrix of `boxes_matrix`."""
    rule, given = "boxes must be x1, y1, x2, y2", functions.cast(boxes, _FLOAT)
    return functions.cast(failing_with(rule, functions.coord_transform, given, matrix_of_boxes), dtype)


def transformed_projections(projections: Value, matrix: Value, dtype: types.DALIDataType) -> Value:
    """Multiply projections by a transformation from the left, ``(..., 3 or 4, num_columns)``.

    The first three rows give ``x * z``, ``y * z`` and ``z``; so the third and a fourth row stay as they are.

    Raises:
        FieldValueError: They have another number of rows.
    """
    given = functions.cast(projections, _FLOAT)
    if given.ndim < 2 or given.shape[-2] not in (3, 4):
        raise FieldValueError(f"Projection matrices must have 3 or 4 rows, got the shape {given.shape}.")
    changed = [(given[..., :3, :] * row[:, None]).sum(axis=-2, keepdims=True) for row in matrix]
    return functions.cast(np.concatenate([*changed, given[..., 2:, :]], axis=-2), dtype)


# --- images ---------------------------------------------------------------------------------------------


@attrs.frozen
class Resampler:
    """Resamples the arrays of a sample, with arguments that are computed once for all of them.

    Attributes:
        resampling: Method of resampling.
        output_hw: Height and width of the output.
        arguments: By name, as those of DALI's operators: ``(2,)`` each, or a matrix.
    """

    resampling: Resampling
    output_hw: tuple[int, int]
    arguments: dict[str, Value]

    @classmethod
    def resizing(cls, resampling: Resampling, scaling: AxisScaling, hw: Value) -> Resampler:
        """Prepare for a transformation without rotation and shearing; for others there is `WARP` with a matrix.

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
        size, zero, half, one = np.array(output_hw, np.float32), np.float32(0), np.float32(0.5), np.float32(1)
        near, scale = scaling.offset, scaling.scale
        far = near + scale * hw
        least, most = functions.minimum(near, far), functions.maximum(near, far)
        first = functions.clamp(np.ceil(least - half), zero, size)
        end = functions.clamp(np.floor(most - half) + one, zero, size)
        is_visible = end > first
        part = {
            "roi_start": (first - near) / scale * is_visible,
            "roi_end": (end - near) / scale * is_visible,
            "size": functions.maximum(end - first, one),
            "start": functions.cast(size * is_visible - first - size, _INT32),
        }
        return cls(resampling, output_hw, part)

    def parameters(self, hw: Value, *, is_encoded: bool, is_antialiased: bool = False) -> dict[str, Value]:
        """Get the numbers by which `resampled_in_graph` resamples images of a size; see `parameter_types`."""
        if not is_encoded:
            return self.arguments
        start, end, zero = self.arguments["roi_start"], self.arguments["roi_end"], np.float32(0)
        # `cast` rounds to the nearest whole number.
        margin = np.float32((_WIDE_MARGIN_PX if is_antialiased else _MARGIN_PX) + 0.5)
        least = functions.clamp(functions.minimum(start, end) - margin, zero, hw)
        most = functions.clamp(functions.maximum(start, end) + margin, zero, hw)
        corner = functions.cast(least, _INT32)
        regions = {"roi_start": start - corner, "roi_end": end - corner}
        part = {"decoded_start": corner, "decoded_shape": functions.cast(most, _INT32) - corner}
        return {**self.arguments, **regions, **part}

    @staticmethod
    def parameter_types(resampling: Resampling, is_encoded: bool) -> dict[str, types.DALIDataType]:
        """Get names and types of these numbers.

        Of image files, only a part is decoded, to which the regions are relative: its first row and column, and
        its size, ``(2,)`` int32 each.
        """
        if resampling == Resampling.WARP:
            return {"matrix": _FLOAT}
        regions = {"roi_start": _FLOAT, "roi_end": _FLOAT}
        if resampling == Resampling.PASTED_REGION:
            regions |= {"size": _FLOAT, "start": _INT32}
        return {**regions, "decoded_start": _INT32, "decoded_shape": _INT32} if is_encoded else regions

    def __call__(
        self,
        image: Array,
        fill_value: float = 0,
        is_mask: bool = False,
        decoded: image_arrays.DecodedFile | None = None,
    ) -> Array:
        """Resample an image, ``(H, W, C)`` or ``(F, H, W, C)``.

        Args:
            image: The image.
            fill_value: Value of output pixels outside of the input.
            is_mask: Whether the values are labels, which takes nearest-neighbor instead of bilinear interpolation.
            decoded: Where the image comes from, if that is a file; not for `WARP`.
        """
        if self.resampling == Resampling.WARP:
            return image_arrays.warped(image, self.arguments["matrix"], self.output_hw, fill_value, is_mask)
        start, end = self.arguments["roi_start"], self.arguments["roi_end"]
        shape = (*image.shape[:-3], *self.output_hw, image.shape[-1] if decoded is None else 3)
        if decoded is not None and decoded.reduction > 1:
            start, end = start / np.float32(decoded.reduction), end / np.float32(decoded.reduction)
        (top, left), (height, width) = (0, 0), self.output_hw
        if self.resampling == Resampling.PASTED_REGION:
            top, left = (-self.arguments["start"]).tolist()  # `start`: of the output, seen from the part
            height, width = self.arguments["size"].astype(int).tolist()
        part = np.s_[..., top : top + height, left : left + width, :]
        is_all = (top, left, height, width) == (0, 0, *self.output_hw)
        output = np.empty(shape, image.dtype) if is_all else image_arrays.with_fill(shape, image.dtype, fill_value)
        if top < self.output_hw[0] and left < self.output_hw[1]:
            image_arrays.resample_region(image, start, end, output[part], is_mask)
        return output


def resampled_in_graph(
    image: Value,
    output_hw: tuple[int, int],
    parameters: Mapping[str, DataNode],
    *,
    device: str = "cpu",
    fill_value: float = 0,
    is_mask: bool = False,
    is_antialiased: bool = False,
) -> Value:
    """Resample an image in a graph.

    Args:
        image: The image, on the CPU or the GPU; or the bytes of an image file, if the parameters are for those.
        output_hw: Height and width of the output.
        parameters: The numbers of `Resampler.parameters`.
        device: Where an image file is decoded, to RGB.
        fill_value: Value of output pixels outside of the input.
        is_mask: Whether the values are labels, which takes nearest-neighbor interpolation; always decoded, as a
            whole.
        is_antialiased: Whether a cubic filter is used, not for `WARP`. It is as wide as the pixels of the output
            where images are made smaller, as in ``PIL.Image.resize``.
    """
    arguments: dict[str, Any] = dict(parameters)
    corner, shape = arguments.pop("decoded_start", None), arguments.pop("decoded_shape", None)
    if corner is not None and is_mask:
        arguments |= {name: arguments[name] + corner for name in ("roi_start", "roi_end")}
    elif corner is not None:
        options = graph_context.get().decoder_options if device == "mixed" else {}
        image = fn.decoders.image_slice(
            image, start=corner, shape=shape, axis_names="HW", device=device, **options
        )
    is_antialiased &= not is_mask
    smooth = types.DALIInterpType.INTERP_CUBIC if is_antialiased else types.DALIInterpType.INTERP_LINEAR
    interpolation, size = types.DALIInterpType.INTERP_NN if is_mask else smooth, [*output_hw]
    if "matrix" in arguments:
        return fn.warp_affine(
            image, **arguments, size=size, interp_type=interpolation, fill_value=fill_value, inverse_map=False
        )
    start = arguments.pop("start", None)
    arguments.setdefault("size", size)
    part: Value = fn.resize(image, **arguments, interp_type=interpolation, antialias=is_antialiased)
    if start is None:
        return part
    return fn.slice(
        part, start=start, shape=size, axis_names="HW", out_of_bounds_policy="pad", fill_values=fill_value
    )
