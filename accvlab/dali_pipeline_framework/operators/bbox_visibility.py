# SPDX-License-Identifier: Apache-2.0
"""Which boxes of an image can be seen, by operators of DALI or of NumPy.

Painter's algorithm: on a canvas of pixels, the boxes are painted from the farthest to the nearest, and those of
which a pixel is left are visible. No canvas of the size of the image is needed to know that: only the order of the
edges of the boxes counts. The result is that of the canvas, to the pixel, for any size of the image. Few boxes are
compared as bit sets, which is fast but takes memory in ``N ** 3``; many in blocks, which takes it in ``N ** 2``.
Of arrays, a canvas of the edges is painted.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import math, types
from nvidia.dali.data_node import DataNode

from ..engine.dali.graph_definition import branched
from ..sample_data.graph_mode import do_not_convert
from . import functions
from .element_selection import column, row, rows_at, with_row_before
from .field_types import computable, exact_constant

_DT = types.DALIDataType
_Array: TypeAlias = npt.NDArray[Any]
_MOST_IN_WORDS = 384  # with more boxes, blocks are as fast
_WORD_SIZE = 64
_BLOCK_SIZE = 32
# A constant of all numbers would take most of the time in which a pipeline is built.
_NUMBERS = np.arange(1 << 9, dtype=np.int32)
_BITS = (np.uint64(1) << np.arange(_WORD_SIZE, dtype=np.uint64)).view(np.int64)


def _checked(bboxes: Any, num_boxes: Any) -> Any:
    """Return ``(N, 4)``; the graph fails if it has another shape."""
    if not functions.is_node(bboxes):
        return functions.reshape(bboxes, [*num_boxes, 4])
    return fn.reshape(bboxes, shape=fn.cat(num_boxes, exact_constant(np.array([4]))), layout="")


def _cut(bboxes: Any, image_hw: Any, rounding: str | None) -> tuple[Any, Any]:
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
    bboxes: Any, depths: Any, depth_type: types.DALIDataType, image_hw: Any, shrink: bool = False
) -> Any:
    """Tell of which boxes a pixel is left when they are painted from the farthest to the nearest: ``(N,)`` bool.

    Boxes are rounded to whole pixels and cut to the image. Of boxes of equal depth, the last one is the nearest.
    Boxes without a pixel, or with NaN, are not visible and hide nothing. Any number of boxes.

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
    numbers = _numbers_up_to(depths.shape(dtype=_DT.INT32) * 2 + 2 * _WORD_SIZE)
    # A first box without pixels, so that there is one.
    boxes = with_row_before(_checked(bboxes, depths.shape()), 0)
    corners = fn.cat(*_cut(boxes, image_hw, rounding), axis=1)
    place = with_row_before(column(_places(computable(depths, depth_type), numbers)), -1)
    is_few = depths.shape()[0] <= _MOST_IN_WORDS
    bits = exact_constant(_BITS[None, :, None, None])
    result = branched(is_few, [corners, place, numbers, bits], _visible_by_words, _visible_by_blocks)
    is_visible: DataNode = result[1:] != 0
    return is_visible


def _visible_on_canvas(low: _Array, high: _Array, depths: _Array) -> _Array:
    """Tell which boxes are visible: ``(N,)`` bool. The canvas has a cell where the image has several pixels.

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
    """0, 1, 2, ..., ``(count,)`` int32, up to ``2 ** 18``; of more boxes, the result would take terabytes."""
    number = types.Constant(_NUMBERS, device="cpu")
    first = fn.slice(number, start=[0], end=(count + (len(_NUMBERS) - 1)) // len(_NUMBERS), axes=[0])
    return fn.slice(
        fn.reshape(column(first * len(_NUMBERS)) + row(number), shape=[-1]), start=[0], end=count, axes=[0]
    )


def _places(depths: DataNode, numbers: DataNode) -> DataNode:
    """How many boxes are nearer, ``(N,)`` int32: the place of a box from near to far."""
    number = fn.slice(numbers, start=[0], end=depths.shape(dtype=_DT.INT32), axes=[0])
    one, other = column(depths), row(depths)
    # NaN is equal to nothing, not even to itself.
    nan_one, nan_other = one != one, other != other
    is_equal = (one == other) | (nan_one & nan_other)
    is_nearer = (one < other) | ((one == one) & nan_other) | (is_equal & (column(number) > row(number)))
    return _count(is_nearer, 0)


# --- few boxes: bit sets --------------------------------------------------------------------------------
#
# If a pixel of a box is left, move to the left as long as pixels are left, then upwards, and so on: one ends at a
# left or upper edge of the box itself, or right behind the right or lower edge of a nearer one. So only pixels are
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
    """Tell which boxes are visible: ``(1 + N,)`` uint8.

    Args:
        boxes: ``(1 + N, 4)``: left, top, right, bottom; the first one has no pixels.
        places: ``(1 + N, 1)`` int32, from near to far; that of the first box is -1.
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
    """Positions of the boxes from near to far, ``(64 W,)`` int32, filled up with 0."""
    # place: (1 + N,), where each box goes, -1 for the first one
    count = place.shape(dtype=_DT.INT32)  # 1 + N
    number = fn.slice(numbers, start=[0], end=count, axes=[0])
    num_words = math.max((count + (_WORD_SIZE - 2)) // _WORD_SIZE, 1)
    goes_to = fn.slice(numbers, start=[0], end=num_words * _WORD_SIZE, axes=[0])
    is_there = fn.cast(column(goes_to) == row(place), dtype=_DT.INT32)
    positions: DataNode = fn.reductions.sum(is_there * row(number), axes=[1], dtype=_DT.INT32)
    return positions


def _bits(bits: DataNode, positions: DataNode, low: DataNode, high: DataNode) -> DataNode:
    """Bit sets of the boxes that cover positions along an axis: ``(W, a, b)`` int64."""
    # bits: (1, 64, 1, 1); positions: (1, 1, a, b), pixels; low, high: (W, 64, 1, 1), first pixels and ends
    covers = (positions >= low) & (positions < high)
    sets: DataNode = fn.reductions.sum(covers * bits, axes=[1])
    return sets


def _nearest(boxes: DataNode, numbers: DataNode) -> DataNode:
    """The lowest bit alone, in the first word that is not 0: ``(W, ...)`` int64, four axes, as ``boxes``."""
    number = fn.slice(numbers, start=[0], end=boxes.shape(dtype=_DT.INT32)[0:1], axes=[0])
    preference = fn.cast(_MOST_IN_WORDS // _WORD_SIZE - number, dtype=_DT.UINT8)  # less for each word, and above 0
    preferred = fn.cast(boxes != 0, dtype=_DT.UINT8) * fn.expand_dims(preference, axes=[1, 2, 3])
    is_first = preferred == fn.reductions.max(preferred, axes=[0], keep_dims=True)
    nearest: DataNode = (boxes & -boxes) * is_first
    return nearest


def _union(bits: DataNode, boxes: DataNode) -> DataNode:
    """Which bits are set anywhere: ``(W, 64)`` uint8 of ``(W, 64, a, b)`` bit sets."""
    half = _WORD_SIZE
    while half > 1:  # there is no reduction by `|`
        half //= 2
        boxes = boxes[:, :half] | boxes[:, half : 2 * half]
    return _any((boxes & bits) != 0, 2, 3)  # of (W, 64, a, b)


# --- many boxes: blocks of edges ------------------------------------------------------------------------
#
# The left and right edges of N boxes, in their order, are 2 N columns, their upper and lower edges 2 N rows. Each
# belongs to one box: of edges at the same place, starts of boxes come first, of nearer boxes before those of
# farther ones, and then ends, of farther boxes before those of nearer ones. So columns without width show nothing
# that is not seen beside them.
#
# Boxes have weights, the nearest one the greatest. A pixel shows the greatest weight that covers it. B columns are
# a block. Over a block of columns and a block of rows,
#
#     block b of columns     B boxes at most have an edge among these columns: looked at pixel by pixel
#     +--+--+--+--+          of the others, which cover all columns of the block or none,
#     |  |  |  |  |  row q       B at most have an edge among the rows of the block: looked at row by row
#     +--+--+--+--+              the others cover all of it or none of it: looked at once
#
# which takes B * 4 N ** 2, 4 N ** 2 and N * (2 N / B) ** 2 comparisons.


def _visible_by_blocks(corners: DataNode, places: DataNode, numbers: DataNode, _: DataNode) -> DataNode:
    """Tell which boxes are visible; see `_visible_by_words`. Here, N is the number of all boxes."""
    table = fn.transpose(fn.cat(corners, fn.cast_like(places, corners), axis=1), perm=[1, 0])  # (5, N)
    low, high, place = table[0:2], table[2:4], table[4:5]
    has_pixels = fn.reductions.min(_as_numbers(low < high), axes=[0], keep_dims=True)
    least = 1  # the weight where no box is
    num_boxes = places.shape(dtype=_DT.INT32)[0:1]
    weight = fn.cast((fn.cast_like(num_boxes, place) - place + least) * has_pixels, dtype=_DT.INT32)  # (1, N)
    rank = _ranks(low, high, place)  # (2, 2 N): columns and rows of low, then high edges
    num_edges = (num_boxes * 2 + (_BLOCK_SIZE - 1)) // _BLOCK_SIZE * _BLOCK_SIZE  # E: whole blocks
    edge = fn.slice(numbers, start=[0], end=num_edges, axes=[0])  # 0, 1, ..., E - 1
    number = fn.slice(numbers, start=[0], end=num_boxes, axes=[0])
    boxes = fn.cat(fn.reshape(rank, shape=[4, -1]), weight, axis=0)  # (5, N): x0, x1, y0, y1, weight

    is_box = fn.expand_dims(edge, axes=[1]) == fn.expand_dims(rank, axes=[1])  # (2, E, 2 N)
    box = fn.reductions.sum(is_box * fn.cat(number, number, axis=0), axes=[2], dtype=_DT.INT32)  # (2, E)
    of_edges = rows_at(fn.transpose(boxes, perm=[1, 0]), fn.reshape(box, shape=[-1]))
    of_edges = fn.reshape(fn.transpose(of_edges, perm=[1, 0]), shape=[10, -1])  # (10, E): of columns, of rows
    along = fn.reshape(of_edges, shape=[10, -1, 1, _BLOCK_SIZE])
    down = fn.reshape(of_edges, shape=[10, -1, _BLOCK_SIZE, 1])

    # Axes: b, c: blocks of columns and rows; p, q: a column, a row in its block; k: an edge in the block.
    at = fn.reshape(edge, shape=[-1, _BLOCK_SIZE, 1])
    start = fn.reshape(at[:, 0:1], shape=[-1, 1])  # (b, 1)
    end = start + _BLOCK_SIZE
    over_columns = (at >= along[0]) & (at < along[2])  # (b, p, k)
    all_rows = fn.reshape(edge, shape=[1, 1, -1])
    over_rows = ((all_rows >= down[4]) & (all_rows < down[6])) * down[8]  # (b, k, E)
    by_pixel = fn.expand_dims(over_columns, axes=[3]) * fn.expand_dims(over_rows, axes=[1])  # (b, p, k, E)

    first, last = fn.expand_dims(along[1], axes=[0]), fn.expand_dims(along[3], axes=[0])  # (1, c, 1, k)
    over_block = (first <= fn.expand_dims(start, axes=[2, 3])) & (last >= fn.expand_dims(end, axes=[2, 3]))
    in_rows = ((at >= along[5]) & (at < along[7])) * along[9]  # (c, q, k)
    by_row = over_block * fn.expand_dims(in_rows, axes=[0])  # (b, c, q, k)

    over_both = (fn.expand_dims(boxes[0:4:2], axes=[1]) <= start) & (fn.expand_dims(boxes[1:4:2], axes=[1]) >= end)
    of_columns, of_rows = over_both[0] * weight, over_both[1]  # (b, N), (c, N)
    by_block = fn.expand_dims(of_columns, axes=[1]) * fn.expand_dims(of_rows, axes=[0])  # (b, c, N)

    of_block = fn.reductions.max(by_block, axes=[2], keep_dims=True)  # (b, c, 1)
    of_row = math.max(math.max(fn.reductions.max(by_row, axes=[3]), of_block), least)  # (b, c, q)
    of_row_flat = fn.expand_dims(fn.reshape(of_row, rel_shape=[1, -1]), axes=[1])  # (b, 1, E)
    seen = math.max(fn.reductions.max(by_pixel, axes=[2]), of_row_flat)  # (b, p, E): the weight that is seen

    is_row_seen = fn.reshape(_any(seen == of_row_flat, 1), shape=of_row.shape()) != 0  # (b, c, q)
    is_block_seen = fn.expand_dims(_any((of_row == of_block) & is_row_seen, 2), axes=[2]) != 0  # (b, c, 1)
    by_edge_of_columns = _any(by_pixel == fn.expand_dims(seen, axes=[2]), 1, 3)  # (b, k)
    is_seen_in_row = (by_row == fn.expand_dims(of_row, axes=[3])) & fn.expand_dims(is_row_seen, axes=[3])
    by_edge_of_rows = _any(is_seen_in_row, 0, 2)  # (c, k)
    by_box = _any((by_block == of_block) & is_block_seen, 0, 1)  # (N,)

    by_edge = fn.reshape(fn.cat(by_edge_of_columns, by_edge_of_rows, axis=0), shape=[-1, 1])  # (2 E, 1)
    edges_of_boxes = fn.cat(rank[0], rank[1] + num_edges, axis=0)
    by_its_edges = fn.reshape(rows_at(by_edge, edges_of_boxes), shape=[4, -1])
    result: DataNode = fn.reductions.max(fn.cat(by_its_edges, row(by_box), axis=0), axes=[0])
    return result


def _ranks(low: DataNode, high: DataNode, place: DataNode) -> DataNode:
    """Positions of edges in their order along each of two axes: ``(2, 2 N)`` int32, low edges, then high ones."""
    # low, high: (2, N), where boxes start and end on the two axes; place: (1, N), from near to far, of their type
    edges = math.max(fn.cat(low, high, axis=1), 0.0)  # of NaN and another number, the second one
    far = fn.reductions.max(place, axes=[1], keep_dims=True) + 1
    # Of edges at one place: starts, the nearest first, then ends, the farthest first.
    next_to = fn.cat(place - far, far - place, axis=1)
    one, other = fn.expand_dims(edges, axes=[2]), fn.expand_dims(edges, axes=[1])
    next_one, next_other = fn.expand_dims(next_to, axes=[2]), fn.expand_dims(next_to, axes=[1])
    return _count((other < one) | ((other == one) & (next_other < next_one)), 2)


@do_not_convert
@np.errstate(invalid="ignore")
def boxes_of_minimum_size(bboxes: Any, num_boxes: Any, image_hw: Any, size: float) -> Any:
    """Tell which boxes, cut to the image, have both sides of at least ``size`` pixels: ``(N,)`` bool.

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


def _count(truth: DataNode, axis: int) -> DataNode:
    """How often it is true along an axis, int32."""
    count: DataNode = fn.reductions.sum(_as_numbers(truth), axes=[axis], dtype=_DT.UINT64)
    return fn.cast(count, dtype=_DT.INT32)


def _any(truth: DataNode, *axes: int) -> DataNode:
    """Whether it is true anywhere along axes, uint8."""
    found: DataNode = fn.reductions.max(_as_numbers(truth), axes=[*axes])
    return found
