# SPDX-License-Identifier: Apache-2.0
"""Visibility of the boxes of an image, by the painter's algorithm.

On a canvas of pixels, boxes are painted from the farthest to the nearest; a box with a pixel left is visible.
The canvas needs a cell only where edges of boxes divide the image: the result equals that of all pixels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .functions import Array, clamp, maximum, minimum


def _cut(bboxes: Array, image_hw: Array, rounding: str | None) -> tuple[Array, Array]:
    """Get the least and the greatest x and y of boxes, ``(N, 2)`` each, cut to the image.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``.
        image_hw: ``(2,)`` of the same type, height and width.
        rounding: "outwards" or "inwards" to whole pixels, None for no rounding.
    """
    first, second = bboxes[:, 0:2], bboxes[:, 2:4]
    # Of NaN and another number, these return the second one. In this order, one of the two is NaN.
    low, high = minimum(first, second), maximum(second, first)
    if rounding == "outwards":
        low, high = np.floor(low), np.ceil(high)
    elif rounding == "inwards":
        low, high = np.ceil(low), np.floor(high)
    size = image_hw[::-1]
    return clamp(low, image_hw.dtype.type(0), size), clamp(high, image_hw.dtype.type(0), size)


@np.errstate(invalid="ignore")
def visible_boxes(bboxes: Array, depths: Array, image_hw: Array, shrink: bool = False) -> npt.NDArray[np.bool_]:
    """Find the boxes of which a pixel is left when painted from the farthest to the nearest: ``(N,)`` bool.

    Boxes are rounded to whole pixels and cut to the image. Of boxes of equal depth, the last one is the nearest.
    Boxes without a pixel, or with NaN, are not visible and hide nothing.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``.
        depths: ``(N,)`` of any number type; NaN is farthest.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        shrink: Whether to round inwards instead of outwards.
    """
    low, high = _cut(bboxes, image_hw, "inwards" if shrink else "outwards")
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


@np.errstate(invalid="ignore")
def boxes_of_minimum_size(bboxes: Array, image_hw: Array, size: float) -> npt.NDArray[np.bool_]:
    """Find the boxes that, cut to the image, have both sides of at least ``size`` pixels: ``(N,)`` bool.

    Args:
        bboxes: ``(N, 4)`` float32 or float64, two opposite corners ``x, y, x, y``.
        image_hw: ``(2,)`` of the type of the boxes, height and width.
        size: The least size, rounded to float32.
    """
    low, high = _cut(bboxes, image_hw, None)
    return np.asarray((high - low >= float(np.float32(size))).all(axis=1))
