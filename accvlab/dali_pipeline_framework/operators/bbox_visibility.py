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

The boxes over a column of pixels are a bit set, 64 boxes to a number, the nearest box in the lowest bit; so are
those over a row. The lowest common bit is the box that is seen where they cross, and the union of these bits is
the result::

    over the column   ...0110        over the row   ...0011        seen there   ...0010

It is that of the canvas, to the pixel, for any size of the image. Of N boxes, there are ``N / 64`` words for
``4 N ** 2`` pixels.
"""

from __future__ import annotations

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import math, types
from nvidia.dali.data_node import DataNode

from ..sample_data.graph_mode import do_not_convert
from .element_selection import rows_at, with_row_before
from .field_types import computable, exact_constant

_DT = types.DALIDataType
_MOST_BOXES = 1024
_WORD_SIZE = 64
_BITS = (np.uint64(1) << np.arange(_WORD_SIZE, dtype=np.uint64)).view(np.int64)


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
    Boxes without a pixel, or with NaN, are not visible and hide nothing. At most 1024 boxes.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        depths: ``(N,)``, on the CPU; NaN is farthest.
        depth_type: Its type, a number type.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        shrink: Whether to round inwards instead of outwards.
    """
    sides = cut_sides(bboxes, depths.shape(), image_hw, "inwards" if shrink else "outwards")
    place = with_row_before(_column(_places(computable(depths, depth_type))), -1)[:, 0]  # (1 + N,)
    boxes = with_row_before(fn.stack(*attrs.astuple(sides), axis=1), 0)  # (1 + N, 4); the first one has no pixels
    # Whole words of boxes, from near to far; what is missing in the last word is the first box.
    words = fn.reshape(rows_at(boxes, _boxes_at_places(place)), shape=[-1, _WORD_SIZE, 4, 1])  # (W, 64, 4, 1)
    left, top, right, bottom = (words[:, :, side : side + 1] for side in range(4))  # (W, 64, 1, 1)
    over_rows = _bits(fn.reshape(boxes[:, 1::2], shape=[1, 1, -1, 1]), top, bottom)  # (W, 2 + 2 N, 1)
    over_columns = _bits(fn.reshape(words[:, :, 0::2], shape=[1, 1, _WORD_SIZE, -1]), left, right)  # (W, 64, 2 W)
    over_pixels = fn.expand_dims(over_rows, axes=[1]) & fn.expand_dims(over_columns, axes=[2])
    is_seen = fn.reshape(_union(_nearest(over_pixels)), shape=[-1, 1])  # from near to far
    result: DataNode = rows_at(is_seen, math.max(place, 0))[1:, 0] == 1
    return result


def _places(depths: DataNode) -> DataNode:
    """How many boxes are nearer, ``(N,)`` int32: the place of a box from near to far."""
    count = fn.cast(depths.shape(), dtype=_DT.INT32)
    numbers = types.Constant(np.arange(_MOST_BOXES, dtype=np.int32))
    number = fn.slice(numbers, start=[0], end=count, axes=[0])  # ERROR: there are more than 1024 boxes
    one, other = _column(depths), _row(depths)
    # NaN is equal to nothing, not even to itself.
    nan_one, nan_other = one != one, other != other
    is_equal = (one == other) | (nan_one & nan_other)
    is_nearer = (one < other) | ((one == one) & nan_other) | (is_equal & (_column(number) > _row(number)))
    num_nearer: DataNode = fn.reductions.sum(fn.cast(is_nearer, dtype=_DT.INT32), axes=[0], dtype=_DT.INT32)
    return num_nearer


def _boxes_at_places(place: DataNode) -> DataNode:
    """Positions of the boxes from near to far, ``(64 W,)`` int32, filled up with 0.

    Args:
        place: ``(1 + N,)``: where each box goes; -1 for the first one.
    """
    numbers = types.Constant(np.arange(_MOST_BOXES + 1, dtype=np.int32))
    count = fn.cast(place.shape(), dtype=_DT.INT32)  # 1 + N
    number = fn.slice(numbers, start=[0], end=count, axes=[0])
    num_words = math.max((count + (_WORD_SIZE - 2)) // _WORD_SIZE, 1)
    goes_to = fn.slice(numbers, start=[0], end=num_words * _WORD_SIZE, axes=[0])
    is_there = fn.cast(_column(goes_to) == _row(place), dtype=_DT.INT32)
    positions: DataNode = fn.reductions.sum(is_there * _row(number), axes=[1], dtype=_DT.INT32)
    return positions


def _bits(positions: DataNode, low: DataNode, high: DataNode) -> DataNode:
    """Bit sets of the boxes that cover positions along an axis: ``(W, a, b)`` int64.

    Args:
        positions: ``(1, 1, a, b)``, pixels.
        low: ``(W, 64, 1, 1)``: first pixels of the boxes.
        high: ``(W, 64, 1, 1)``: ends of the boxes.
    """
    covers = (positions >= low) & (positions < high)
    bits: DataNode = fn.reductions.sum(covers * exact_constant(_BITS[None, :, None, None]), axes=[1])
    return bits


def _nearest(boxes: DataNode) -> DataNode:
    """The lowest bit alone, in the first word that is not 0: ``(W, ...)`` int64, four axes, as ``boxes``."""
    preference = exact_constant(np.arange(_MOST_BOXES // _WORD_SIZE, 0, -1, dtype=np.uint8)[:, None, None, None])
    num_words = fn.cast(boxes.shape()[0:1], dtype=_DT.INT32)
    of_word = fn.slice(preference, start=[0], end=num_words, axes=[0])
    preferred = fn.cast(boxes != 0, dtype=_DT.UINT8) * of_word
    is_first = preferred == fn.reductions.max(preferred, axes=[0], keep_dims=True)
    nearest: DataNode = (boxes & -boxes) * is_first
    return nearest


def _union(boxes: DataNode) -> DataNode:
    """Which bits are set anywhere: ``(W, 64)`` uint8 of ``(W, 64, a, b)`` bit sets."""
    half = _WORD_SIZE
    while half > 1:  # there is no reduction by `|`
        half //= 2
        boxes = boxes[:, :half] | boxes[:, half : 2 * half]
    is_set = (boxes & exact_constant(_BITS[None, :, None, None])) != 0  # (W, 64, a, b)
    union: DataNode = fn.reductions.max(fn.reinterpret(is_set, dtype=_DT.UINT8), axes=[2, 3])
    return union


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
