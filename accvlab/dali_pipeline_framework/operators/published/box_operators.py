# SPDX-License-Identifier: Apache-2.0
"""Operators on boxes and points.

Boxes are ``(N, 4)``, two opposite corners ``x, y, x, y`` in any order, pixels; N may be 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...sample_data.graph_mode import do_not_convert
from ..bbox_visibility import boxes_of_minimum_size, visible_boxes
from ..field_types import computable
from ..point_limits import PointLimits

_DT = types.DALIDataType


@do_not_convert
def check_bbox_visibiity(
    bboxes: DataNode, depths: DataNode, image_hw: DataNode, shrink_bbox_to_obtain_int_coords: bool = False
) -> DataNode:
    """Tell of which boxes a pixel is left when they are painted from the farthest to the nearest.

    Boxes are rounded to whole pixels and cut to the image. Of boxes of equal depth, the last one is the nearest.
    Boxes without a pixel are not visible.

    Args:
        bboxes: ``(N, 4)`` float32.
        depths: ``(N,)`` float32.
        image_hw: ``(2,)`` int32, height and width.
        shrink_bbox_to_obtain_int_coords: Whether boxes are rounded inwards, not outwards.

    Returns:
        ``(N,)`` bool.
    """
    size = fn.cast(image_hw, dtype=_DT.FLOAT)
    is_visible: DataNode = visible_boxes(bboxes, depths, _DT.FLOAT, size, bool(shrink_bbox_to_obtain_int_coords))
    return is_visible


@do_not_convert
def check_minimum_bbox_size(bboxes: DataNode, min_size: float, image_hw: DataNode) -> DataNode:
    """Tell which boxes, cut to the image, have both sides of at least ``min_size`` pixels.

    Args:
        bboxes: ``(N, 4)`` float32.
        min_size: The least size.
        image_hw: ``(2,)`` int32, height and width.

    Returns:
        ``(N,)`` bool.
    """
    size = fn.cast(image_hw, dtype=_DT.FLOAT)
    is_large: DataNode = boxes_of_minimum_size(bboxes, bboxes.shape()[0:1], size, min_size)
    return is_large


@do_not_convert
def check_points_in_box(points: DataNode, min_point: Sequence[float], max_point: Sequence[float]) -> DataNode:
    """Tell which points lie in a box; its border belongs to it, NaN does not.

    Args:
        points: ``(N, D)`` float32.
        min_point: D numbers.
        max_point: D numbers, each at least that of ``min_point``.

    Returns:
        ``(N,)`` bool.

    Raises:
        SettingError: The corners are not two lists of numbers of one length, or a minimum is above its maximum.
    """
    is_inside: DataNode = PointLimits.checked(min_point, max_point).contain(points, _DT.FLOAT)
    return is_inside


@do_not_convert
def crop_coordinates(
    points: DataNode, min_point_np: Sequence[float], max_point_np: Sequence[float], dtype: types.DALIDataType
) -> DataNode:
    """Clamp each column to a range; NaN stays.

    Args:
        points: ``(N, D)``.
        min_point_np: D numbers; fractions are cut off for integers.
        max_point_np: D numbers, each at least that of ``min_point_np``.
        dtype: Type of the points, any number type.

    Raises:
        SettingError: The limits are not two lists of numbers of one length, or a minimum is above its maximum.
    """
    low, high = PointLimits.checked(min_point_np, max_point_np).nodes(points, dtype, inner=False)
    return fn.cast(dali_math.clamp(computable(points, dtype), low, high), dtype=dtype)


@do_not_convert
def get_center_from_bboxes(bboxes: DataNode, dtype_in: types.DALIDataType = _DT.FLOAT) -> DataNode:
    """Get the middle of boxes: ``(N, 2)`` float32, x and y.

    Args:
        bboxes: ``(N, 4)``.
        dtype_in: Its type, any number type.
    """
    boxes = _as_floats(bboxes, dtype_in)
    return fn.cast((boxes[:, 0:2] + boxes[:, 2:4]) * 0.5, dtype=_DT.FLOAT)


@do_not_convert
def get_radii_from_bboxes(
    bboxes: DataNode,
    dtype_bboxes: types.DALIDataType = _DT.FLOAT,
    scaling_factor: float = 0.8,
    centers: DataNode | None = None,
    dtype_center: types.DALIDataType = _DT.FLOAT,
) -> DataNode:
    """Get the distance from the centers to the nearest sides, times a factor: ``(N,)`` float32, pixels.

    It is 0 for centers outside of their boxes.

    Args:
        bboxes: ``(N, 4)``.
        dtype_bboxes: Its type, any number type.
        scaling_factor: The factor.
        centers: ``(N, 2)``, x and y; None for the middle of the boxes.
        dtype_center: Its type, any number type.
    """
    boxes = _as_floats(bboxes, dtype_bboxes)
    corner, opposite = boxes[:, 0:2], boxes[:, 2:4]
    if centers is None:
        center = (corner + opposite) * 0.5
    else:  # one center alone would be taken for all boxes
        center = fn.reshape(_as_floats(centers, dtype_center), shape=corner.shape(), layout="")
    distances = dali_math.min(
        center - dali_math.min(corner, opposite), dali_math.max(corner, opposite) - center
    )  # (N, 2)
    nearest = dali_math.min(distances[:, 0], distances[:, 1])
    return fn.cast(dali_math.max(nearest, 0.0) * float(scaling_factor), dtype=_DT.FLOAT)


def _as_floats(values: DataNode, dtype: types.DALIDataType) -> DataNode:
    """Float64 for what float32 cannot hold exactly."""
    if dtype == _DT.FLOAT:
        return values
    is_small = dtype in (_DT.FLOAT16, _DT.INT8, _DT.UINT8, _DT.INT16, _DT.UINT16)
    return fn.cast(values, dtype=_DT.FLOAT if is_small else _DT.FLOAT64)
