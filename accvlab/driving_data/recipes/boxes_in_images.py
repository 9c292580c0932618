# SPDX-License-Identifier: Apache-2.0
"""2D labels of augmented images, as StreamPETR filters them: cropped, large enough, not hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .image_augmentation import ImagePlan

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


def visible_boxes(
    boxes: npt.NDArray[Any], centers: npt.NDArray[Any], depths: npt.NDArray[Any], plan: ImagePlan, min_size: float
) -> tuple[Float64Array, Float64Array, Int64Array]:
    """Bring the boxes of an image to its augmented form, and find those that can be seen.

    Scaled, moved and limited to the output; kept where width and height are at least ``min_size``; mirrored; then
    sorted by depth, the farthest first, and painted one over the other: kept is what is not painted over. The
    farthest box also stays as long as some pixel of the image is not painted. Rotation is left out, as there.

    Args:
        boxes: ``(M, 4)``, x1, y1, x2, y2, pixels of the file.
        centers: ``(M, 2)``, pixels of the file; limited to the output, too.
        depths: ``(M,)``.
        plan: What is done to the image.
        min_size: Least width and height, pixels of the output.

    Returns:
        Boxes ``(K, 4)``, centers ``(K, 2)``, and their rows ``(K,)`` in what was given.
    """
    height, width = plan.output_hw
    top, left = plan.corner
    offset, limit = np.array([left, top, left, top]), np.array([width, height, width, height])
    moved = np.clip(np.asarray(boxes, np.float64) * plan.scale - offset, 0, limit)
    points = np.clip(np.asarray(centers, np.float64) * plan.scale - offset[:2], 0, limit[:2])
    sizes = moved[:, 2:] - moved[:, :2]
    rows = np.flatnonzero((sizes >= min_size).all(axis=1))
    moved, points = moved[rows], points[rows]
    if plan.is_flipped:
        moved[:, [0, 2]] = width - moved[:, [2, 0]]
        points[:, 0] = width - points[:, 0]
    far_to_near = np.argsort(-np.asarray(depths)[rows], kind="stable")
    order = far_to_near[_seen(moved[far_to_near], plan.output_hw)]
    return moved[order], points[order], rows[order]


def _seen(boxes: Float64Array, hw: tuple[int, int]) -> Int64Array:
    """Numbers of the boxes that are left of those painted one after the other over a map of zeros."""
    if not len(boxes):
        return np.zeros(0, np.int64)
    corners = np.concatenate([np.ceil(boxes[:, :2]), np.floor(boxes[:, 2:])], axis=1).astype(np.int64)
    # Painted on the cells between all edges: the same without the pixels inside.
    edges_x = np.unique(np.concatenate([[0, hw[1]], corners[:, 0], corners[:, 2]]))
    edges_y = np.unique(np.concatenate([[0, hw[0]], corners[:, 1], corners[:, 3]]))
    first_x, end_x = np.searchsorted(edges_x, corners[:, 0]), np.searchsorted(edges_x, corners[:, 2])
    first_y, end_y = np.searchsorted(edges_y, corners[:, 1]), np.searchsorted(edges_y, corners[:, 3])
    painted = np.zeros((len(edges_y) - 1, len(edges_x) - 1), np.int64)
    for number in range(len(boxes)):
        painted[first_y[number] : end_y[number], first_x[number] : end_x[number]] = number
    return np.unique(painted)
