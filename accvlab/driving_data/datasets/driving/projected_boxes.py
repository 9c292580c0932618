# SPDX-License-Identifier: Apache-2.0
"""2D boxes of 3D boxes in images: around the hull of the projected corners, cut with the image."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from . import poses
from .driving_index import Box2dColumns, BoxColumns, CameraColumns, first_column

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

# Ahead, left and up, of the corners.
_SIGNS = np.array([(x, y, z) for x in (1, -1) for y in (1, -1) for z in (1, -1)], np.float64)
_FIRST, _SECOND = (np.array(ends) for ends in zip(*combinations(range(8), 2), strict=True))
# Pairs of box and camera that are projected at a time: some kilobytes each.
_PAIRS = 1 << 14


@attrs.frozen(eq=False)
class ProjectedBoxes:
    """What images show of boxes.

    Attributes:
        box: ``x1, y1, x2, y2``, ``(n, 4)``, pixels.
        center: Projection of the center, ``(n, 2)``, pixels.
        depth: Of the center, ``(n,)``.
        is_seen: Whether the center is in front of the camera and the box in the image, ``(n,)``; the others mean
            nothing.
    """

    box: Float64
    center: Float64
    depth: Float64
    is_seen: Bool


def project_boxes(
    center: npt.ArrayLike,
    size: npt.ArrayLike,
    rotation: npt.ArrayLike,
    camera_from_base: Float64,
    intrinsics: Float64,
    image_wh: npt.ArrayLike,
) -> ProjectedBoxes:
    """Project boxes into images, one image for each box.

    As ``get_2d_boxes`` and ``post_process_coords`` of the nuScenes devkit, and the converters made of them: the
    corners in front of the camera are projected; the 2D box is around what the image has of their convex hull.

    Args:
        center: ``(n, 3)``.
        size: Length, width, height, ``(n, 3)``.
        rotation: Quaternions, w first, ``(n, 4)``.
        camera_from_base: ``(n, 3, 4)``.
        intrinsics: ``(n, 3, 3)``.
        image_wh: Width and height, ``(n, 2)``.
    """
    center, wh = np.asarray(center, np.float64), np.asarray(image_wh, np.float64)
    offsets = _SIGNS * np.asarray(size, np.float64)[:, np.newaxis] / 2
    corners = poses.moved(poses.pose_of_quaternion(rotation, center)[:, np.newaxis], offsets)
    points = np.concatenate([corners, center[:, np.newaxis]], axis=1)  # (n, 9, 3)
    in_camera = poses.moved(camera_from_base[:, np.newaxis], points)
    projected = np.einsum("nij,nkj->nki", intrinsics, in_camera)
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = projected[..., :2] / projected[..., 2:]
    is_front = in_camera[:, :8, 2] > 0
    low, high = _cut_hulls(pixels[:, :8], is_front, wh)
    is_seen = (in_camera[:, 8, 2] > 0) & (low < high).all(axis=1)
    return ProjectedBoxes(np.concatenate([low, high], axis=1), pixels[:, 8], in_camera[:, 8, 2], is_seen)


def _cut_hulls(points: Float64, is_used: Bool, wh: Float64) -> tuple[Float64, Float64]:
    """Least and greatest coordinates of what images have of the convex hulls of points, each ``(n, 2)``.

    The corners of what is left of a hull are its own corners in the image, and the ends of what it has of the four
    sides. On the line of a side, the hull is what lies between the outermost crossings of lines between its
    points.
    """
    is_inside = (is_used & ((points >= 0) & (points <= wh[:, np.newaxis])).all(axis=2))[..., np.newaxis]
    low = np.where(is_inside, points, np.inf).min(axis=1)
    high = np.where(is_inside, points, -np.inf).max(axis=1)
    is_chord = is_used[:, _FIRST] & is_used[:, _SECOND]
    first, second = points[:, _FIRST], points[:, _SECOND]  # (n, 28, 2)
    for axis in (0, 1):
        along = 1 - axis
        start, end = first[..., axis], second[..., axis]
        for line in (np.zeros(len(wh)), wh[:, axis]):
            to_line = line[:, np.newaxis] - start
            crosses = is_chord & (to_line * (line[:, np.newaxis] - end) <= 0) & (start != end)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                at = first[..., along] + to_line / (end - start) * (second[..., along] - first[..., along])
            least = np.maximum(np.where(crosses, at, np.inf).min(axis=1), 0)
            most = np.minimum(np.where(crosses, at, -np.inf).max(axis=1), wh[:, along])
            is_cut = least <= most
            low[:, along] = np.where(is_cut, np.minimum(low[:, along], least), low[:, along])
            high[:, along] = np.where(is_cut, np.maximum(high[:, along], most), high[:, along])
            low[:, axis] = np.where(is_cut, np.minimum(low[:, axis], line), low[:, axis])
            high[:, axis] = np.where(is_cut, np.maximum(high[:, axis], line), high[:, axis])
    return low, high


def box2d_columns(boxes: BoxColumns, cameras: CameraColumns, image_wh: npt.NDArray[np.int64]) -> Box2dColumns:
    """2D boxes of all boxes in all images of their frame that have a file, of widths and heights ``(F, C, 2)``."""
    num_frames, num_cameras = cameras.time.shape
    frame_of_box = np.repeat(np.arange(num_frames), np.diff(boxes.first))
    is_there = cameras.file != b""
    none = np.zeros(0, np.int64)
    parts: list[tuple[npt.NDArray[Any], ...]] = [(none, none, np.zeros((0, 4)), np.zeros((0, 2)), np.zeros(0))]
    num_pairs = len(frame_of_box) * num_cameras
    for start in range(0, num_pairs, _PAIRS):
        row, camera = np.divmod(np.arange(start, min(start + _PAIRS, num_pairs)), num_cameras)
        frame = frame_of_box[row]
        depth = np.einsum("ni,ni->n", cameras.camera_from_base[frame, camera, 2, :3], boxes.center[row])
        depth += cameras.camera_from_base[frame, camera, 2, 3]
        kept = np.flatnonzero((depth > 0) & is_there[frame, camera])
        row, camera, frame = row[kept], camera[kept], frame[kept]
        found = project_boxes(
            boxes.center[row],
            boxes.size[row],
            boxes.rotation[row],
            cameras.camera_from_base[frame, camera],
            cameras.intrinsics[frame, camera],
            image_wh[frame, camera],
        )
        seen = found.is_seen
        image = frame * num_cameras + camera
        parts.append((image[seen], row[seen], found.box[seen], found.center[seen], found.depth[seen]))
    image, row, box, center, depth = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(image, kind="stable")
    return Box2dColumns(
        first=first_column(np.bincount(image, minlength=num_frames * num_cameras)),
        box=box[order],
        center=center[order],
        depth=depth[order],
        category=boxes.category[row[order]],
        box_row=row[order],
    )
