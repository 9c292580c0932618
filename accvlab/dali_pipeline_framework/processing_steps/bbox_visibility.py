# SPDX-License-Identifier: Apache-2.0
"""Which boxes of an image can be seen, by operators of DALI.

Painter's algorithm: on a canvas of pixels, the boxes are painted from the farthest to the nearest, and those of
which a pixel is left are visible. No canvas is needed to know that. If a pixel of a box is left, move to the left
as long as pixels are left, then upwards, and so on: one ends at a left or upper edge of the box itself, or right
behind the right or lower edge of a nearer one. So only pixels are looked at that lie at such edges of *some* box::

         x0_a   x0_b    x1_a   x1_b        columns to look at
     y0_a +──────────────+                 N boxes: 2 N columns, 2 N rows
          |  a           |
     y0_b |      +-------|------+          nearest box there = greatest weight of those that cover the pixel
          |      :       |   b  |
     y1_a +──────────────+      |
     y1_b        +--------------+

The result is that of the canvas, to the pixel, in ``O(N ** 3)`` for any size of the image.
"""

from __future__ import annotations

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import math, types
from nvidia.dali.data_node import DataNode

from accvlab.dali_pipeline_framework.processing_steps.field_types import computable, exact_constant
from accvlab.dali_pipeline_framework.sample_data.graph_mode import do_not_convert

_DT = types.DALIDataType
_MOST_BOXES = 4096
_EVERYTHING = 65535  # uint16, above all weights


@attrs.frozen
class BoxSides:
    """Sides of boxes with the corners in any order, cut to the image; ``(N,)`` each, in pixels.

    Attributes:
        left: Least x.
        top: Least y.
        right: Greatest x.
        bottom: Greatest y.
    """

    left: DataNode
    top: DataNode
    right: DataNode
    bottom: DataNode


@do_not_convert
def cut_sides(bboxes: DataNode, num_boxes: DataNode, image_hw: DataNode, rounding: str | None) -> BoxSides:
    """Get the sides of boxes, cut to ``[0, width]`` and ``[0, height]``.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        num_boxes: ``(1,)``, N; the graph fails if the boxes have another shape.
        image_hw: ``(2,)`` of the same type, height and width.
        rounding: "outwards" or "inwards" to whole pixels, None for no rounding.
    """
    bboxes = fn.reshape(bboxes, shape=fn.cat(num_boxes, exact_constant(np.array([4]))), layout="")
    height, width = image_hw[0], image_hw[1]
    first_x, first_y, second_x, second_y = (bboxes[:, column] for column in range(4))
    # Of NaN and another number, `min` and `max` return the second one. In this order, one of the two is NaN.
    sides = (
        _rounded(math.min(first_x, second_x), rounding == "inwards", rounding),
        _rounded(math.min(first_y, second_y), rounding == "inwards", rounding),
        _rounded(math.max(second_x, first_x), rounding == "outwards", rounding),
        _rounded(math.max(second_y, first_y), rounding == "outwards", rounding),
    )
    limits = (width, height, width, height)
    return BoxSides(*(math.clamp(side, 0.0, limit) for side, limit in zip(sides, limits, strict=True)))


def _rounded(side: DataNode, up: bool, rounding: str | None) -> DataNode:
    if rounding is None:
        return side
    return math.ceil(side) if up else math.floor(side)


@do_not_convert
def visible_boxes(
    bboxes: DataNode, depths: DataNode, depth_type: types.DALIDataType, image_hw: DataNode, shrink: bool = False
) -> DataNode:
    """Tell of which boxes a pixel is left when they are painted from the farthest to the nearest: ``(N,)`` bool.

    Boxes are rounded to whole pixels and cut to the image. Of boxes of equal depth, the last one is the nearest.
    Boxes without a pixel, or with NaN, are not visible and hide nothing. At most 4096 boxes.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        depths: ``(N,)``, on the CPU; NaN is farthest.
        depth_type: Its type, a number type.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        shrink: Whether to round inwards instead of outwards.
    """
    sides = cut_sides(bboxes, depths.shape(), image_hw, "inwards" if shrink else "outwards")
    weights = _column(_weights(computable(depths, depth_type)))  # (N, 1) uint16
    columns = _row(fn.cat(sides.left, sides.right))  # (1, 2N)
    rows = _row(fn.cat(sides.top, sides.bottom))  # (1, 2N)
    covers_column = (columns >= _column(sides.left)) & (columns < _column(sides.right))  # (N, 2N)
    covers_row = (rows >= _column(sides.top)) & (rows < _column(sides.bottom))  # (N, 2N)
    weight_in_rows = fn.cast(covers_row, dtype=_DT.UINT16) * weights
    any_in_columns = fn.cast(fn.cast(covers_column, dtype=_DT.UINT16) * _EVERYTHING, dtype=_DT.UINT16)
    weight_of_pixels = math.min(  # (N, 2N, 2N)
        fn.expand_dims(weight_in_rows, axes=[2]), fn.expand_dims(any_in_columns, axes=[1])
    )
    nearest = fn.reshape(fn.reductions.max(weight_of_pixels, axes=[0]), shape=[1, -1])  # (1, 4 N**2)
    is_left = fn.reinterpret(nearest == weights, dtype=_DT.UINT8)  # (N, 4 N**2)
    result: DataNode = fn.reductions.max(is_left, axes=[1]) == 1
    return result


def _weights(depths: DataNode) -> DataNode:
    """1 for the farthest box, N for the nearest one, ``(N,)`` uint16."""
    count = fn.cast(depths.shape(), dtype=_DT.INT32)
    places = types.Constant(np.arange(_MOST_BOXES, dtype=np.int32))
    place = fn.slice(places, start=[0], end=count, axes=[0])  # ERROR: there are more than 4096 boxes
    one, other = _column(depths), _row(depths)
    # NaN is equal to nothing, not even to itself.
    nan_one, nan_other = one != one, other != other
    is_equal = (one == other) | (nan_one & nan_other)
    is_farther = (one > other) | (nan_one & (other == other)) | (is_equal & (_column(place) < _row(place)))
    num_farther = fn.reductions.sum(fn.cast(is_farther, dtype=_DT.INT32), axes=[0])
    return fn.cast(num_farther + 1, dtype=_DT.UINT16)


@do_not_convert
def boxes_of_minimum_size(bboxes: DataNode, num_boxes: DataNode, image_hw: DataNode, size: float) -> DataNode:
    """Tell which boxes, cut to the image, have both sides of at least ``size`` pixels: ``(N,)`` bool.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        num_boxes: ``(1,)``, N.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        size: The least size.
    """
    sides = cut_sides(bboxes, num_boxes, image_hw, None)
    is_wide, is_high = sides.right - sides.left >= float(size), sides.bottom - sides.top >= float(size)
    result: DataNode = is_wide & is_high
    return result


def _column(values: DataNode) -> DataNode:
    return fn.expand_dims(values, axes=[1])


def _row(values: DataNode) -> DataNode:
    return fn.expand_dims(values, axes=[0])
