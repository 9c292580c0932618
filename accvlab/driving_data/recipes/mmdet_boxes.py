# SPDX-License-Identifier: Apache-2.0
"""Boxes as the models of the mmdetection3d family take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import SampleDataGroup

Boxes: TypeAlias = SampleDataGroup | Mapping[str, npt.NDArray[Any]]

LAYOUTS = ("l,w,h,yaw", "w,l,h,-yaw-pi/2")
"""Columns 3 to 6: that of mmdetection3d from 1.0, and that of before."""


def mmdet_boxes(
    boxes: Boxes,
    *,
    layout: str,
    z: str,
    bev_range: tuple[float, float, float, float] | None,
    label_of: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Make ``gt_bboxes_3d``, ``(n, 9)`` float32, and ``gt_labels_3d``, ``(n,)`` int64.

    Columns: x, y, z, three sizes and the angle in [-pi, pi) as the layout says, and the velocity along x and y, 0
    where it is not known. Boxes of no class are left out.

    Args:
        boxes: The group of boxes of a sample of `DrivingProvider`.
        layout: One of `LAYOUTS`.
        z: ``"bottom"`` or ``"center"``.
        bev_range: Least x and y, greatest x and y of centers; what lies on it or beyond is left out. None for all.
        label_of: Label of each category.
    """
    sizes = np.asarray(boxes["sizes"], np.float64)
    centers = np.array(boxes["centers"], np.float64)
    angles = np.asarray(boxes["yaws"], np.float64)
    if z == "bottom":
        centers[:, 2] -= sizes[:, 2] / 2
    if layout == LAYOUTS[1]:
        sizes, angles = sizes[:, [1, 0, 2]], -angles - np.pi / 2
    angles = (angles + np.pi) % (2 * np.pi) - np.pi
    velocities = np.nan_to_num(np.asarray(boxes["velocities"], np.float64)[:, :2], nan=0.0)
    is_kept = boxes["categories"] >= 0
    if bev_range is not None:
        is_kept &= is_in_range(centers, bev_range)
    columns = np.column_stack([centers, sizes, angles, velocities]).astype(np.float32)
    return columns[is_kept], label_of[boxes["categories"][is_kept]]


def is_in_range(centers: npt.NDArray[Any], bev_range: tuple[float, float, float, float]) -> npt.NDArray[np.bool_]:
    """Which centers ``(n, 3)`` lie within a range of x and y, not on its border."""
    xy = centers[:, :2]
    return np.asarray(((xy > bev_range[:2]) & (xy < bev_range[2:])).all(axis=1))


def bev_range_of(point_cloud_range: Sequence[float]) -> tuple[float, float, float, float]:
    """Least x and y, greatest x and y of least and greatest x, y, z."""
    low_x, low_y, _, high_x, high_y, _ = point_cloud_range
    return low_x, low_y, high_x, high_y


def labels_of(class_names: Sequence[str], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Label of each category of a provider; all of them are among ``classes``."""
    return np.array([classes.index(name) for name in class_names], np.int64)
