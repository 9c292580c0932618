# SPDX-License-Identifier: Apache-2.0
"""Draw Gaussians of objects into heatmaps, by operators of DALI.

A Gaussian on a square window is a product of two curves, so all objects are the rows of one array::

    curves    (1 + N, width + height)   row 0 is zero; then, per object, exp(-dx^2 / 2 sigma^2) where
                                        |dx| <= ceil(radius), else 0, and the same for dy
    map c     (height, width)           the maximum, over the active objects of category c, of column times row
"""

from __future__ import annotations

import attrs
import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from accvlab.dali_pipeline_framework.processing_steps.element_selection import ElementSelection
from accvlab.dali_pipeline_framework.sample_data.graph_mode import do_not_convert

_DT = types.DALIDataType


@attrs.frozen
class DrawnObjects:
    """What is drawn, on the CPU.

    Attributes:
        centers: ``(N, 2)`` int32: x, y, pixels.
        radii: ``(N, 1)`` float32, above 0, pixels.
        is_active: ``(N,)`` bool: which objects are drawn.
        categories: ``(N,)`` of any integer type; None where all are drawn into one map.
    """

    centers: DataNode
    radii: DataNode
    is_active: DataNode
    categories: DataNode | None = None


@do_not_convert
def heatmaps(objects: DrawnObjects, hw: tuple[int, int], num_categories: int, sigma_of_radius: float) -> DataNode:
    """Draw objects.

    Args:
        objects: The objects.
        hw: Height and width of a map.
        num_categories: How many maps there are; objects of other categories are not drawn.
        sigma_of_radius: Standard deviation of a Gaussian with a radius of 1 pixel.

    Returns:
        ``(num_categories, height, width)`` float32, or ``(height, width)`` where there are no categories.
    """
    curves = _curves(objects, hw, sigma_of_radius)
    if objects.categories is None:
        return _map(curves, objects.is_active, hw)
    maps = [
        _map(curves, objects.is_active & (objects.categories == category), hw)
        for category in range(num_categories)
    ]
    return fn.stack(*maps)


def _curves(objects: DrawnObjects, hw: tuple[int, int], sigma_of_radius: float) -> DataNode:
    x = np.concatenate([np.arange(hw[1]), np.zeros(hw[0])]).astype(np.float32)
    y = np.concatenate([np.zeros(hw[1]), np.arange(hw[0])]).astype(np.float32)
    is_x = np.concatenate([np.ones(hw[1]), np.zeros(hw[0])]).astype(np.float32)
    centers = fn.cast(objects.centers, dtype=_DT.FLOAT)
    # The center of each column of the array: x of the object for the first ones, y for the others.
    center = centers[:, 0:1] * is_x[None] + centers[:, 1:2] * (1 - is_x)[None]
    distance = center - (x + y)[None]  # (N, width + height)
    sigma = objects.radii * np.float32(sigma_of_radius)
    inverse = -0.5 / (sigma * sigma)
    is_inside = fn.cast(dali_math.abs(distance) <= dali_math.ceil(objects.radii), dtype=_DT.FLOAT)
    curves = dali_math.exp(distance * distance * inverse) * is_inside
    num_rows = fn.cast(objects.is_active.shape(), dtype=_DT.INT32)
    return fn.reshape(
        fn.slice(curves, start=[-1], end=num_rows, axes=[0], out_of_bounds_policy="pad", fill_values=[0.0]),
        layout="",
    )


def _map(curves: DataNode, is_drawn: DataNode, hw: tuple[int, int]) -> DataNode:
    rows = fn.sequence_rearrange(curves, new_order=ElementSelection.by_mask(is_drawn).positions)
    along_x = fn.reshape(rows[:, : hw[1]], shape=[-1, 1, hw[1]])
    along_y = fn.reshape(rows[:, hw[1] :], shape=[-1, hw[0], 1])
    drawn: DataNode = fn.reductions.max(along_y * along_x, axes=[0])
    return drawn
