# SPDX-License-Identifier: Apache-2.0
"""Visibility of the boxes of an image, by operators of DALI or of NumPy.

Painter's algorithm: on a canvas of pixels, the boxes are painted from the farthest to the nearest; boxes of
which a pixel is left are visible. No canvas of the size of the image is needed to know that: only the order of the
edges of the boxes counts. The result equals the canvas, to the pixel, for any size of the image. In a graph
boxes are compared as bit sets, which takes memory in ``N ** 3``: 0.5 GB per sample for 1000 boxes of one image. Of
arrays, a canvas of the edges is painted.
"""

from __future__ import annotations

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import math, types
from nvidia.dali.data_node import DataNode

from ..sample_data.graph_mode import do_not_convert
from . import functions
from .element_selection import column, computable, exact_constant, row, rows_at, with_row_before
from .functions import Array, Value

_DT = types.DALIDataType
_WORD_SIZE = 64
_MOST_WORDS = 255  # so that their numbers fit into uint8; of more boxes, the result would take terabytes
# A constant of all numbers would take most of the time in which a pipeline is built.
_NUMBERS = np.arange(1 << 9, dtype=np.int32)
_BITS = (np.uint64(1) << np.arange(_WORD_SIZE, dtype=np.uint64)).view(np.int64)


def _checked(bboxes: Value, num_boxes: Value) -> Value:
    """Return ``(N, 4)``; the graph fails if it has another shape."""
    if not functions.is_node(bboxes):
        return functions.reshape(bboxes, [*num_boxes, 4])
    return fn.reshape(bboxes, shape=fn.cat(num_boxes, exact_constant(np.array([4]))), layout="")


def _cut(bboxes: Value, image_hw: Value, rounding: str | None) -> tuple[Value, Value]:
    """Get the least and the greatest x and y of boxes, ``(N, 2)`` each, cut to the image.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        image_hw: ``(2,)`` of the same type, height and width.
        rounding: "outwards" or "inwards" to whole pixels, None for no rounding.
    """
    first, second = bboxes[:, 0:2], bboxes[:, 2:4]
    # Of NaN and another number, `min` and `max` return the second one. In this order, one of the two is NaN.
    low, high = functions.minimum(first, second), functions.maximum(second, first)
    if rounding == "outwards":
        low, high = functions.floor(low), functions.ceil(high)
    elif rounding == "inwards":
        low, high = functions.ceil(low), functions.floor(high)
    size = functions.stack(image_hw[1], image_hw[0])
    return functions.clamp(low, 0.0, size), functions.clamp(high, 0.0, size)


@do_not_convert
def visible_boxes(
    bboxes: Value, depths: Value, depth_type: types.DALIDataType, image_hw: Value, shrink: bool = False
) -> Value:
    """Find the boxes of which a pixel is left when painted from the farthest to the nearest: ``(N,)`` bool.

    Boxes are rounded to whole pixels and cut to the image. Of boxes of equal depth, the last one is the nearest.
    Boxes without a pixel, or with NaN, are not visible and hide nothing.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        depths: ``(N,)``, on the CPU; NaN is farthest.
        depth_type: Its type, a number type.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        shrink: Whether to round inwards instead of outwards.
    """
    rounding = "inwards" if shrink else "outwards"
    if not functions.is_node(bboxes, depths, image_hw):
        return _visible_on_canvas(*_cut(_checked(bboxes, depths.shape), image_hw, rounding), depths)
    numbers = _numbers_up_to(depths.shape(dtype=_DT.INT32) + 2 * _WORD_SIZE)
    # A first box without pixels, so that there is one.
    boxes = with_row_before(_checked(bboxes, depths.shape()), 0)
    corners = fn.cat(*_cut(boxes, image_hw, rounding), axis=1)
    place = with_row_before(column(_places(computable(depths, depth_type), numbers)), -1)
    bits = exact_constant(_BITS[None, :, None, None])
    result = _visible_by_words(corners, place, numbers, bits)
    is_visible: DataNode = result[1:] != 0
    return is_visible


def _visible_on_canvas(low: Array, high: Array, depths: Array) -> Array:
    """Find the visible boxes: ``(N,)`` bool. The canvas has a cell where the image has several pixels.

    ``low`` and ``high`` are the least and the greatest x and y, ``(N, 2)``.
    """
    is_visible = np.zeros(len(low), bool)
    has_pixels = np.all(low < high, axis=1)
    edges = [np.unique(np.concatenate([low[has_pixels, axis], high[has_pixels, axis]])) for axis in (0, 1)]
    (left, right), (top, bottom) = (
        (np.searchsorted(edges[axis], low[:, axis]), np.searchsorted(edges[axis], high[:, axis]))
        for axis in (0, 1)
    )
    canvas = np.full((len(edges[1]), len(edges[0])), -1)
    # From the farthest to the nearest; NaN comes first, and of equal ones the last comes last.
    for box in (len(depths) - 1 - np.argsort(depths[::-1], kind="stable"))[::-1].tolist():
        if has_pixels[box]:
            canvas[top[box] : bottom[box], left[box] : right[box]] = box
    is_visible[canvas[canvas >= 0]] = True
    return is_visible


def _numbers_up_to(count: DataNode) -> DataNode:
    """Make 0, 1, 2, ..., ``(count,)`` int32, up to ``2 ** 18``."""
    number = types.Constant(_NUMBERS, device="cpu")
    first = fn.slice(number, start=[0], end=(count + (len(_NUMBERS) - 1)) // len(_NUMBERS), axes=[0])
    return fn.slice(
        fn.reshape(column(first * len(_NUMBERS)) + row(number), shape=[-1]), start=[0], end=count, axes=[0]
    )


def _places(depths: DataNode, numbers: DataNode) -> DataNode:
    """Count the boxes that are nearer, ``(N,)`` int32: the place of a box from near to far."""
    number = fn.slice(numbers, start=[0], end=depths.shape(dtype=_DT.INT32), axes=[0])
    one, other = column(depths), row(depths)
    # NaN is equal to nothing, not even to itself.
    nan_one, nan_other = one != one, other != other
    is_equal = (one == other) | (nan_one & nan_other)
    is_nearer = (one < other) | ((one == one) & nan_other) | (is_equal & (column(number) > row(number)))
    count: DataNode = fn.reductions.sum(_as_numbers(is_nearer), axes=[0], dtype=_DT.UINT64)
    return fn.cast(count, dtype=_DT.INT32)


# If a pixel of a box is left, move to the left as long as pixels are left, then upwards, and so on: one ends at a
# left or upper edge of the box itself, or right after the right or lower edge of a nearer one. So only pixels are
# looked at that lie at such edges of *some* box:
#
#          x0_a   x0_b    x1_a   x1_b        columns to look at
#      y0_a +──────────────+                 N boxes: 2 N columns, 2 N rows
#           |  a           |
#      y0_b |      +-------|------+          nearest box there = first of those that cover the pixel
#           |      :       |   b  |
#      y1_a +──────────────+      |
#      y1_b        +--------------+
#
# The boxes over a column of pixels are a bit set, 64 boxes to a number, the nearest box in the lowest bit; so are
# those over a row. The lowest common bit is the box that is seen where they cross, and the union of these bits is
# the result:
#
#     over the column   ...0110        over the row   ...0011        seen there   ...0010
#
# Of N boxes, there are N / 64 words for 4 N ** 2 pixels.


def _visible_by_words(boxes: DataNode, places: DataNode, numbers: DataNode, bits: DataNode) -> DataNode:
    """Find the visible boxes: ``(1 + N,)`` uint8.

    Args:
        boxes: ``(1 + N, 4)``: left, top, right, bottom; the first one has no pixels.
        places: ``(1 + N, 1)`` int32, from near to far; -1 for the first box.
        numbers: 0, 1, 2, ...
        bits: ``(1, 64, 1, 1)`` int64, the bits of a word.
    """
    place = places[:, 0]
    # Whole words of boxes, from near to far; what is missing in the last word is the first box.
    positions = _boxes_at_places(place, numbers)
    words = fn.reshape(rows_at(boxes, positions), shape=[-1, _WORD_SIZE, 4, 1])  # (W, 64, 4, 1)
    left, top, right, bottom = (words[:, :, side : side + 1] for side in range(4))  # (W, 64, 1, 1)
    over_rows = _bits(bits, fn.reshape(boxes[:, 1::2], shape=[1, 1, -1, 1]), top, bottom)  # (W, 2 + 2 N, 1)
    over_columns = _bits(bits, fn.reshape(words[:, :, 0::2], shape=[1, 1, _WORD_SIZE, -1]), left, right)
    over_pixels = fn.expand_dims(over_rows, axes=[1]) & fn.expand_dims(over_columns, axes=[2])  # (W, 64, 2 W)
    is_seen = fn.reshape(_union(bits, _nearest(over_pixels, numbers)), shape=[-1, 1])  # from near to far
    result: DataNode = rows_at(is_seen, math.max(place, 0))[:, 0]
    return result


def _boxes_at_places(place: DataNode, numbers: DataNode) -> DataNode:
    """Get the positions of the boxes from near to far, ``(64 W,)`` int32, filled up with 0."""
    # place: (1 + N,), where each box goes, -1 for the first one
    count = place.shape(dtype=_DT.INT32)  # 1 + N
    number = fn.slice(numbers, start=[0], end=count, axes=[0])
    num_words = math.max((count + (_WORD_SIZE - 2)) // _WORD_SIZE, 1)
    goes_to = fn.slice(numbers, start=[0], end=num_words * _WORD_SIZE, axes=[0])
    is_there = fn.cast(column(goes_to) == row(place), dtype=_DT.INT32)
    positions: DataNode = fn.reductions.sum(is_there * row(number), axes=[1], dtype=_DT.INT32)
    return positions


def _bits(bits: DataNode, positions: DataNode, low: DataNode, high: DataNode) -> DataNode:
    """Make bit sets of the boxes that cover positions along an axis: ``(W, a, b)`` int64."""
    # bits: (1, 64, 1, 1); positions: (1, 1, a, b), pixels; low, high: (W, 64, 1, 1), first pixels and ends
    covers = (positions >= low) & (positions < high)
    sets: DataNode = fn.reductions.sum(covers * bits, axes=[1])
    return sets


def _nearest(boxes: DataNode, numbers: DataNode) -> DataNode:
    """Get the lowest bit alone, in the first word that is not 0: ``(W, ...)`` int64, four axes, as ``boxes``."""
    number = fn.slice(numbers, start=[0], end=boxes.shape(dtype=_DT.INT32)[0:1], axes=[0])
    preference = fn.cast(_MOST_WORDS - number, dtype=_DT.UINT8)  # less for each word, and above 0
    preferred = fn.cast(boxes != 0, dtype=_DT.UINT8) * fn.expand_dims(preference, axes=[1, 2, 3])
    is_first = preferred == fn.reductions.max(preferred, axes=[0], keep_dims=True)
    nearest: DataNode = (boxes & -boxes) * is_first
    return nearest


def _union(bits: DataNode, boxes: DataNode) -> DataNode:
    """Find the bits that are set anywhere: ``(W, 64)`` uint8 of ``(W, 64, a, b)`` bit sets."""
    half = _WORD_SIZE
    while half > 1:  # there is no reduction by `|`
        half //= 2
        boxes = boxes[:, :half] | boxes[:, half : 2 * half]
    found: DataNode = fn.reductions.max(_as_numbers((boxes & bits) != 0), axes=[2, 3])  # of (W, 64, a, b)
    return found


@do_not_convert
@np.errstate(invalid="ignore")
def boxes_of_minimum_size(bboxes: Value, num_boxes: Value, image_hw: Value, size: float) -> Value:
    """Find the boxes that, cut to the image, have both sides of at least ``size`` pixels: ``(N,)`` bool.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``, on the CPU.
        num_boxes: ``(1,)``, N.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        size: The least size.
    """
    low, high = _cut(_checked(bboxes, num_boxes), image_hw, None)
    is_large = high - low >= float(np.float32(size))  # as DALI takes it
    return is_large[:, 0] & is_large[:, 1]


def _as_numbers(truth: DataNode) -> DataNode:
    return fn.reinterpret(truth, dtype=_DT.UINT8)
