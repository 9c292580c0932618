"""Wireframe boxes on pictures."""

from collections.abc import Sequence
from typing import TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw

from driving_scenes.geometry import BOX_EDGES, NEAR_M

__all__ = ["CATEGORY_COLOURS", "draw_boxes"]

Colour = tuple[int, int, int]

CATEGORY_COLOURS: tuple[Colour, ...] = ((255, 158, 0), (255, 61, 99), (0, 96, 230), (0, 207, 120))
"""RGB by category id."""


def draw_boxes(
    image: NDArray[np.uint8],
    corners_ego: ArrayLike,
    image_from_ego: ArrayLike,
    *,
    colours: Colour | Sequence[Colour] = (255, 158, 0),
    width_px: int = 1,
    near_m: float = NEAR_M,
) -> NDArray[np.uint8]:
    """Draw the 12 edges of boxes, and a line from the middle of the bottom to the front.

    Edges are cut at the near plane and at the image borders.

    Args:
        image: (H, W, 3), RGB; stays as it is.
        corners_ego: (N, 8, 3), from `driving_scenes.geometry.box_corners`.
        image_from_ego: (3, 4).
        colours: one RGB colour, or one per box.
        width_px: width of the lines.
        near_m: depth of the near plane.

    Returns:
        (H, W, 3), the picture with the boxes.

    Raises:
        ValueError: neither one colour nor as many as boxes.
    """
    corners = np.asarray(corners_ego, dtype=np.float64).reshape(-1, 8, 3)
    palette = [colours] * len(corners) if _is_colour(colours) else list(cast(Sequence[Colour], colours))
    if len(palette) != len(corners):
        raise ValueError(
            f"colours must be one RGB colour or one per box: got {len(palette)} colours for "
            f"{len(corners)} boxes. Pass for example [CATEGORY_COLOURS[c] for c in frame.category_ids]."
        )
    canvas = Image.fromarray(np.ascontiguousarray(image))
    pen = ImageDraw.Draw(canvas)
    matrix = np.asarray(image_from_ego, dtype=np.float64)
    for box, colour in zip(corners, palette, strict=True):
        middle, front = box[:4].mean(axis=0), box[:2].mean(axis=0)
        starts = np.array([*(box[start] for start, _ in BOX_EDGES), middle])
        ends = np.array([*(box[end] for _, end in BOX_EDGES), front])
        for line in _visible_lines(starts, ends, matrix, canvas.size, near_m):
            pen.line(line, fill=colour, width=width_px)
    return np.asarray(canvas)


def _is_colour(colours: Colour | Sequence[Colour]) -> TypeGuard[Colour]:
    return isinstance(colours, Sequence) and len(colours) == 3 and all(isinstance(c, int) for c in colours)


def _visible_lines(
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    image_from_ego: NDArray[np.float64],
    size_wh: tuple[int, int],
    near_m: float,
) -> list[tuple[float, float, float, float]]:
    """The visible parts of segments (N, 3), as x0, y0, x1, y1 in the pixel middles that Pillow counts in."""
    width, height = size_wh
    # What is kept satisfies plane @ (x * z, y * z, z) >= limit: near plane, then left, right, top, bottom.
    planes = np.array([[0, 0, 1], [1, 0, 0], [-1, 0, width], [0, 1, 0], [0, -1, height]], dtype=np.float64)
    limits = np.array([near_m, 0.0, 0.0, 0.0, 0.0])
    lines = []
    for start, end in zip(starts, ends, strict=True):
        a, b = (image_from_ego[:, :3] @ point + image_from_ego[:, 3] for point in (start, end))
        low, high = 0.0, 1.0
        for before, after in zip(planes @ a - limits, planes @ b - limits, strict=True):
            if before < 0.0 and after < 0.0:
                low, high = 1.0, 0.0
                break
            if before < 0.0:
                low = max(low, before / (before - after))
            elif after < 0.0:
                high = min(high, before / (before - after))
        if low < high:
            p, q = a + low * (b - a), a + high * (b - a)
            # Pillow counts from the middle of the first pixel.
            lines.append((p[0] / p[2] - 0.5, p[1] / p[2] - 0.5, q[0] / q[2] - 0.5, q[1] / q[2] - 0.5))
    return lines
