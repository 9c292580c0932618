# SPDX-License-Identifier: Apache-2.0
"""Boxes as lines: in images, cut off where they are behind the camera, and from above."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]

# Corners in units of half the length, width and height; the first four are the front.
_CORNERS = np.array(
    [[1, 1, 1], [1, -1, 1], [1, -1, -1], [1, 1, -1], [-1, 1, 1], [-1, -1, 1], [-1, -1, -1], [-1, 1, -1]],
    np.float64,
)
_EDGES = np.array(
    [
        [0, 1],
        [1, 2],
        [2, 3],
        [3, 0],
        [4, 5],
        [5, 6],
        [6, 7],
        [7, 4],
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
        [0, 2],
        [1, 3],
    ]
)
_NEAREST_DEPTH_M = 0.1


def box_corners(centers: npt.ArrayLike, sizes: npt.ArrayLike, yaws: npt.ArrayLike) -> Float64Array:
    """Corners of upright boxes, ``(N, 8, 3)``, the front first; sizes are length, width, height, ``(N, 3)``."""
    centers, sizes, yaws = (np.asarray(values, np.float64) for values in (centers, sizes, yaws))
    local = _CORNERS * sizes.reshape(-1, 1, 3) / 2
    cos, sin = np.cos(yaws).reshape(-1, 1), np.sin(yaws).reshape(-1, 1)
    x, y = cos * local[..., 0] - sin * local[..., 1], sin * local[..., 0] + cos * local[..., 1]
    return np.stack([x, y, local[..., 2]], axis=-1) + centers.reshape(-1, 1, 3)


def projected_edges(corners: Float64Array, image_from_reference: npt.ArrayLike) -> Float64Array:
    """Lines of boxes in an image, ``(N, 14, 2, 2)`` pixels; NaN for lines behind the camera.

    Args:
        corners: As `box_corners` gives them, ``(N, 8, 3)``.
        image_from_reference: ``(3 or 4, 4)``, to pixels times depth.
    """
    matrix = np.asarray(image_from_reference, np.float64)[:3]
    points = corners @ matrix[:, :3].T + matrix[:, 3]  # (N, 8, 3)
    start, end = points[:, _EDGES[:, 0]], points[:, _EDGES[:, 1]]
    start, end = _cut_off(start, end), _cut_off(end, start)
    lines = np.stack([start, end], axis=2)
    lines[(lines[..., 2] < _NEAREST_DEPTH_M * (1 - 1e-9)).any(axis=2)] = np.nan
    return np.asarray(lines[..., :2] / lines[..., 2:])


def _cut_off(start: Float64Array, end: Float64Array) -> Float64Array:
    """Move the start along the line to the nearest depth, where it is nearer than that and the end is not."""
    depth = end[..., 2] - start[..., 2]
    is_cut = (start[..., 2] < _NEAREST_DEPTH_M) & (end[..., 2] > _NEAREST_DEPTH_M)
    share = np.where(is_cut, (_NEAREST_DEPTH_M - start[..., 2]) / np.where(is_cut, depth, 1), 0)
    return np.asarray(start + share[..., np.newaxis] * (end - start))


def projected_points(
    points: npt.ArrayLike, image_from_reference: npt.ArrayLike
) -> tuple[Float64Array, Float64Array]:
    """Pixels ``(M, 2)`` and depths ``(M,)`` of those of the points ``(N, 3)`` that are ahead of the camera."""
    matrix = np.asarray(image_from_reference, np.float64)[:3]
    image = np.asarray(points, np.float64) @ matrix[:, :3].T + matrix[:, 3]
    image = image[image[:, 2] > _NEAREST_DEPTH_M]
    return image[:, :2] / image[:, 2:], image[:, 2]
