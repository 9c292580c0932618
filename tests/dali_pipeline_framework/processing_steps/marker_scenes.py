"""Rendered scenes: colored markers at known points in space, seen by the cameras of a rig.

A marker is a Gaussian spot in one of six pure colors on a gray image, at the place, to a fraction of a pixel,
where its point is projected to. So where it is can be measured in any image that is made of this one by moving
pixels, without knowing where it should be.
"""

from __future__ import annotations

import attrs
import cv2
import numpy as np

COLORS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], float)
SIGMA_PX = 2.5
# Beyond, a marker of 200 levels is less than half a level: a pixel of it counts as gray.
REACH_IN_SIGMAS = 3.6
_GRAY = 30
_LEVELS = 200
_GRID = (2, 3)


@attrs.frozen
class Scene:
    """Points in space, and the cameras of a rig that see some of them.

    Attributes:
        points: Ego coordinates, ``(num_points, 3)``; those of a camera follow on each other.
        ego_to_world: ``(4, 4)``.
        cameras: The cameras.
    """

    points: np.ndarray
    ego_to_world: np.ndarray
    cameras: tuple[Camera, ...]


@attrs.frozen
class Camera:
    """A camera of a scene.

    Attributes:
        hw: Height and width of its images.
        intrinsics: ``(3, 3)``.
        camera_from_ego: ``(4, 4)``.
        seen: Indices of the points that it sees, one per color.
    """

    hw: tuple[int, int]
    intrinsics: np.ndarray
    camera_from_ego: np.ndarray
    seen: np.ndarray


def make_scene(seed: int, sizes_hw: list[tuple[int, int]]) -> Scene:
    """Make a scene at random, with a camera per image size, height and width, of at least 40 x 60 pixels.

    Markers are at least 18 pixels away from each other, and 9 from the border.
    """
    rng = np.random.default_rng(seed)
    cameras, points = [], []
    for number, hw in enumerate(sizes_hw):
        rotation = _rotation(rng, [0, -np.pi / 2, 0]) if number else _rotation(rng, [0, 0, 0])
        camera_from_ego = np.eye(4)
        camera_from_ego[:3, :3] = rotation
        camera_from_ego[:3, 3] = rng.uniform(-2, 2, 3)
        focal = rng.uniform(0.7, 1.2, 2) * hw[1]
        intrinsics = np.array(
            [[focal[0], 0, hw[1] * rng.uniform(0.4, 0.6)], [0, focal[1], hw[0] * rng.uniform(0.4, 0.6)], [0, 0, 1]]
        )
        pixels = _pixels(rng, hw)
        depths = rng.uniform(4, 30, (len(pixels), 1))
        rays = np.linalg.solve(intrinsics, np.concatenate([pixels, np.ones_like(depths)], 1).T).T
        in_camera = np.concatenate([rays * depths, np.ones_like(depths)], 1)
        seen = np.arange(len(COLORS)) + number * len(COLORS)
        points.append(np.linalg.solve(camera_from_ego, in_camera.T).T[:, :3])
        cameras.append(Camera(hw, intrinsics, camera_from_ego, seen))
    ego_to_world = np.eye(4)
    ego_to_world[:3, :3] = _rotation(rng, [0, 0, rng.uniform(-np.pi, np.pi)])
    ego_to_world[:3, 3] = rng.uniform(-300, 300, 3)
    return Scene(np.concatenate(points), ego_to_world, tuple(cameras))


def _rotation(rng: np.random.Generator, vector: list[float]) -> np.ndarray:
    """By a vector, and up to 0.3 radians more about each axis."""
    rotation, _ = cv2.Rodrigues(np.array(vector) + rng.uniform(-0.3, 0.3, 3))
    return rotation


def _pixels(rng: np.random.Generator, hw: tuple[int, int]) -> np.ndarray:
    """A place per color, ``(6, 2)`` x, y, somewhere in the cell of a grid each."""
    rows, columns = _GRID
    cell_wh = np.array([hw[1] / columns, hw[0] / rows])
    corners = np.array([[column, row] for row in range(rows) for column in range(columns)]) * cell_wh
    return rng.permutation(corners + rng.uniform(9, cell_wh - 9, (rows * columns, 2)))


def projected(matrix: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where points ``(N, 3)`` are in the image, ``(N, 2)``, and their depths, ``(N,)``."""
    homogeneous = points.astype(float) @ matrix[:3, :3].astype(float).T + matrix[:3, 3].astype(float)
    return homogeneous[:, :2] / homogeneous[:, 2:], homogeneous[:, 2]


def rendered(scene: Scene, number: int, shift: int = 0) -> np.ndarray:
    """The image of a camera, ``(H, W, 3)`` uint8; with ``shift``, the colors are handed on by so many markers."""
    camera = scene.cameras[number]
    centers, _ = projected((camera.intrinsics @ camera.camera_from_ego[:3]), scene.points[camera.seen])
    y, x = (np.arange(extent) + 0.5 for extent in camera.hw)
    image = np.full((*camera.hw, 3), float(_GRAY))
    for color, (u, v) in zip(np.roll(COLORS, shift, axis=0), centers, strict=True):
        along_x, along_y = (np.exp(-((at - center) ** 2) / (2 * SIGMA_PX**2)) for at, center in ((x, u), (y, v)))
        image += _LEVELS * np.outer(along_y, along_x)[..., None] * color
    return image.round().clip(0, 255).astype(np.uint8)


def found_markers(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measure where the markers are, whatever is gray.

    Args:
        image: ``(h, w, 3)``, uint8 in [0, 255] or float in [0, 1].

    Returns:
        The centers, ``(6, 2)`` x, y, NaN for colors that do not occur, and how much of each color there is, in
        pixels of full color, ``(6,)``.
    """
    levels = image.astype(float) * (1.0 if image.dtype == np.uint8 else 255.0)
    y, x = (np.arange(extent) + 0.5 for extent in image.shape[:2])
    centers, amounts = [], []
    for color in COLORS.astype(bool):
        weight = (levels[..., color].min(-1) - levels[..., ~color].max(-1)).clip(0)
        weight[weight < 1] = 0  # rounding makes gray a bit colored
        amount = weight.sum()
        sums = np.array([weight.sum(0) @ x, weight.sum(1) @ y])
        centers.append(sums / amount if amount else np.full(2, np.nan))
        amounts.append(amount / _LEVELS)
    return np.array(centers), np.array(amounts)
