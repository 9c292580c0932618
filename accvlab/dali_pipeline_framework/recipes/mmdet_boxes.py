# SPDX-License-Identifier: Apache-2.0
"""Boxes as the models of the mmdetection3d family take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..sample_data import SampleDataGroup

LAYOUTS = ("l,w,h,yaw", "w,l,h,-yaw-pi/2")
"""Columns 3 to 6: that of mmdetection3d from 1.0, and that of before."""


def mmdet_boxes(
    boxes: SampleDataGroup,
    *,
    layout: str,
    z: str,
    bev_range: tuple[float, float, float, float] | None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Make ``gt_bboxes_3d``, ``(n, 9)`` float32, and ``gt_labels_3d``, ``(n,)`` int64.

    Columns: x, y, z, three sizes and the angle as the layout says (in [-pi, pi) where there is a range, as in the
    published code), and the velocity along x and y, 0 where it is not known. Boxes of no class are left out.

    Args:
        boxes: The group of boxes of a sample of `DrivingProvider`.
        layout: One of `LAYOUTS`.
        z: ``"bottom"`` or ``"center"``.
        bev_range: Least x and y, greatest x and y of centers; what lies on it or beyond is left out. None for all.
    """
    sizes = boxes["sizes"].astype(np.float64)
    centers = boxes["centers"].astype(np.float64)
    yaws = boxes["yaws"].astype(np.float64)
    if z == "bottom":
        centers[:, 2] -= sizes[:, 2] / 2
    if layout == "w,l,h,-yaw-pi/2":
        sizes, yaws = sizes[:, [1, 0, 2]], -yaws - np.pi / 2
    velocities = np.nan_to_num(boxes["velocities"][:, :2].astype(np.float64), nan=0.0)
    is_kept = boxes["categories"] >= 0
    if bev_range is not None:
        least, greatest = bev_range[:2], bev_range[2:]
        is_kept &= ((centers[:, :2] > least) & (centers[:, :2] < greatest)).all(axis=1)
        yaws = (yaws + np.pi) % (2 * np.pi) - np.pi
    columns = np.column_stack([centers, sizes, yaws, velocities]).astype(np.float32)
    return columns[is_kept], boxes["categories"][is_kept].astype(np.int64)
