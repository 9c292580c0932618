"""Rigid transforms, boxes and projection.

Conventions, used in the whole package:

- A transform ``target_from_source`` is a (4, 4) matrix: ``p_target = target_from_source @ p_source``.
- World: x and y horizontal, z up, metres. Ego: x forward, y left, z up, origin on the ground below the rear
  axle. Camera: x right, y down, z forward, origin in the pinhole.
- Yaw turns counter-clockwise about z, in radians; a box with yaw 0 looks along x.
- Box sizes are length (along the heading), width, height; box centres are the middle of the volume.
- Pixels: (0, 0) is the top-left *corner* of the top-left pixel, whose middle is (0.5, 0.5); x right, y down.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "BOX_EDGES",
    "BOX_FACES",
    "NEAR_M",
    "box_corners",
    "invert_rigid",
    "project_points",
    "projected_extents",
    "rotation_about_z",
    "transform_points",
    "wrap_angle",
    "yaw_of",
]

Floats = NDArray[np.float64]

NEAR_M = 0.1
"""Depth of the near plane in metres: what is closer to a camera is cut off."""

# Corner order, seen from above (x up, y left); 4 to 7 lie above 0 to 3:
#
#     0 --- 1    front
#     |     |
#     3 --- 2    back
_CORNER_SIGNS = np.array(
    [[1, 1, -1], [1, -1, -1], [-1, -1, -1], [-1, 1, -1], [1, 1, 1], [1, -1, 1], [-1, -1, 1], [-1, 1, 1]],
    dtype=np.float64,
)

BOX_EDGES: tuple[tuple[int, int], ...] = (
    *((0, 1), (1, 2), (2, 3), (3, 0)),
    *((4, 5), (5, 6), (6, 7), (7, 4)),
    *((0, 4), (1, 5), (2, 6), (3, 7)),
)
"""The 12 edges of a box as pairs of corner numbers: bottom, top, uprights."""


BOX_FACES = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))
"""The 6 faces of a box as corner numbers."""


def rotation_about_z(yaw_rad: ArrayLike) -> Floats:
    """Rotation matrices about the z axis, (..., 3, 3), for angles of shape (...)."""
    yaw = np.asarray(yaw_rad, dtype=np.float64)
    rotation = np.zeros((*yaw.shape, 3, 3))
    rotation[..., 0, 0] = rotation[..., 1, 1] = np.cos(yaw)
    rotation[..., 1, 0] = np.sin(yaw)
    rotation[..., 0, 1] = -rotation[..., 1, 0]
    rotation[..., 2, 2] = 1.0
    return rotation


def invert_rigid(target_from_source: ArrayLike) -> Floats:
    """``source_from_target`` of rigid transforms of shape (..., 4, 4)."""
    matrix = np.asarray(target_from_source, dtype=np.float64)
    rotation = np.swapaxes(matrix[..., :3, :3], -1, -2)
    inverse = np.zeros_like(matrix)
    inverse[..., :3, :3] = rotation
    inverse[..., :3, 3] = -np.einsum("...ij,...j->...i", rotation, matrix[..., :3, 3])
    inverse[..., 3, 3] = 1.0
    return inverse


def transform_points(target_from_source: ArrayLike, points: ArrayLike) -> Floats:
    """Points of shape (..., 3), moved by one (4, 4) transform."""
    matrix = np.asarray(target_from_source, dtype=np.float64)
    return np.asarray(points, dtype=np.float64) @ matrix[:3, :3].T + matrix[:3, 3]


def yaw_of(target_from_source: ArrayLike) -> Floats:
    """Yaw in radians of transforms of shape (..., 4, 4) that only turn about z; shape (...)."""
    matrix = np.asarray(target_from_source, dtype=np.float64)
    return np.asarray(np.arctan2(matrix[..., 1, 0], matrix[..., 0, 0]))


def wrap_angle(angle_rad: ArrayLike) -> Floats:
    """The same angles in [-pi, pi)."""
    return np.asarray((np.asarray(angle_rad, dtype=np.float64) + np.pi) % (2.0 * np.pi) - np.pi)


def box_corners(centres: ArrayLike, sizes: ArrayLike, yaws: ArrayLike) -> Floats:
    """Corners of upright boxes.

    Args:
        centres: (N, 3), metres.
        sizes: (N, 3), length, width, height in metres.
        yaws: (N,), radians, in the frame of the centres.

    Returns:
        (N, 8, 3), in the frame of the centres. Corners 0 to 3 are the bottom: front left, front right, back
        right, back left; 4 to 7 lie above them in the same order.

    Example:
        >>> box_corners([[10.0, 0.0, 1.0]], [[4.0, 2.0, 2.0]], [0.0])[0, 0].tolist()
        [12.0, 1.0, 0.0]
    """
    centres = np.asarray(centres, dtype=np.float64).reshape(-1, 3)
    half_sizes = 0.5 * np.asarray(sizes, dtype=np.float64).reshape(-1, 3)
    rotations = rotation_about_z(np.asarray(yaws, dtype=np.float64).reshape(-1))
    local = _CORNER_SIGNS * half_sizes[:, None, :]  # (N, 8, 3)
    return np.asarray(np.einsum("nij,nkj->nki", rotations, local) + centres[:, None, :])


def project_points(points_ego: ArrayLike, image_from_ego: ArrayLike) -> tuple[Floats, Floats]:
    """Project points into one camera.

    Args:
        points_ego: (..., 3), ego frame, metres.
        image_from_ego: (3, 4), intrinsics times camera_from_ego.

    Returns:
        Pixels (..., 2), NaN for points that do not lie in front of the pinhole, and depths (...) along the
        optical axis in metres (zero or negative for those). Pixels may lie outside the image.

    Example:
        >>> image_from_ego = [[50.0, -100.0, 0.0, 0.0], [50.0, 0.0, -100.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
        >>> pixels, depths = project_points([[10.0, 1.0, 0.0]], image_from_ego)
        >>> pixels.tolist(), depths.tolist()
        ([[40.0, 50.0]], [10.0])
    """
    matrix = np.asarray(image_from_ego, dtype=np.float64)
    homogeneous = np.asarray(points_ego, dtype=np.float64) @ matrix[:, :3].T + matrix[:, 3]
    depths = homogeneous[..., 2]
    divisors = np.where(depths > 0.0, depths, np.nan)
    return homogeneous[..., :2] / divisors[..., None], depths


def projected_extents(corners_ego: ArrayLike, image_from_ego: ArrayLike, near_m: float = NEAR_M) -> Floats:
    """Smallest axis-aligned rectangles around projected boxes, cut at the near plane.

    Args:
        corners_ego: (N, 8, 3), from `box_corners`, ego frame.
        image_from_ego: (3, 4).
        near_m: depth of the near plane.

    Returns:
        (N, 4), x_min, y_min, x_max, y_max in pixels, not cut at the image borders; NaN for boxes that lie
        wholly behind the near plane.
    """
    corners = np.asarray(corners_ego, dtype=np.float64).reshape(-1, 8, 3)
    matrix = np.asarray(image_from_ego, dtype=np.float64)
    homogeneous = corners @ matrix[:, :3].T + matrix[:, 3]  # (N, 8, 3): x * z, y * z, z
    start, end = (homogeneous[:, [edge[side] for edge in BOX_EDGES]] for side in (0, 1))  # (N, 12, 3)
    crosses = (start[..., 2] < near_m) != (end[..., 2] < near_m)
    rise = np.where(crosses, end[..., 2] - start[..., 2], 1.0)
    on_plane = start + ((near_m - start[..., 2]) / rise)[..., None] * (end - start)
    candidates = np.concatenate([homogeneous, on_plane], axis=1)  # (N, 20, 3)
    is_kept = np.concatenate([homogeneous[..., 2] >= near_m, crosses], axis=1)
    pixels = candidates[..., :2] / np.where(is_kept, candidates[..., 2], 1.0)[..., None]
    low = np.where(is_kept[..., None], pixels, np.inf).min(axis=1)
    high = np.where(is_kept[..., None], pixels, -np.inf).max(axis=1)
    extents = np.concatenate([low, high], axis=1)
    extents[~is_kept.any(axis=1)] = np.nan
    return extents
