# SPDX-License-Identifier: Apache-2.0
"""Draw Gaussians of objects into heatmaps.

Each object is drawn into a square window. Its Gaussian is a product of two curves there,
``exp(-dx^2 / 2 sigma^2)`` where ``|dx| <= ceil(radius)``, and the same for ``dy``.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from .functions import Array

_Float32 = npt.NDArray[np.float32]


@attrs.frozen
class DrawnObjects:
    """Objects to draw.

    Attributes:
        centers: ``(N, 2)`` float32, whole numbers: x, y, pixels.
        radii: ``(N,)`` float32, above 0, pixels; objects with NaN or -1 are not drawn.
        is_active: ``(N,)`` bool: which objects are drawn.
        categories: ``(N,)`` of any integer type, the number of the map; None where all are drawn into one map.
    """

    centers: Array
    radii: Array
    is_active: Array
    categories: Array | None = None


def heatmaps(objects: DrawnObjects, hw: tuple[int, int], num_categories: int, sigma_of_radius: float) -> _Float32:
    """Draw objects as Gaussians.

    Args:
        objects: The objects.
        hw: Height and width of a map.
        num_categories: How many maps there are.
        sigma_of_radius: Standard deviation of a Gaussian with a radius of 1 pixel.

    Returns:
        ``(num_categories, height, width)`` float32, or ``(height, width)`` where there are no categories.
    """
    categories = objects.categories
    maps = np.zeros((1 if categories is None else num_categories, *hw), np.float32)
    (drawn,) = np.nonzero(objects.is_active & (objects.radii > 0))
    radii, place = np.unique(objects.radii[drawn], return_inverse=True)  # many have the greatest one
    curves = [_curve(radius, sigma_of_radius, max(hw)) for radius in radii]
    numbers = np.zeros(len(drawn), int) if categories is None else categories[drawn]
    of_objects = zip(numbers.tolist(), objects.centers[drawn].astype(int).tolist(), place.tolist(), strict=True)
    for number, (x, y), of_radius in of_objects:
        curve = curves[of_radius]
        first_x, first_y = x - len(curve) // 2, y - len(curve) // 2
        top, bottom = max(first_y, 0), min(first_y + len(curve), hw[0])
        left, right = max(first_x, 0), min(first_x + len(curve), hw[1])
        rows, columns = curve[top - first_y : bottom - first_y, None], curve[left - first_x : right - first_x]
        window = maps[number, top:bottom, left:right]
        np.maximum(window, rows * columns, out=window)
    return maps[0] if categories is None else maps


def _curve(radius: np.float32, sigma_of_radius: float, most: int) -> _Float32:
    """Compute the Gaussian at the distances ``-n, ..., n`` that a radius reaches, ``n <= most``."""
    reach = int(min(np.ceil(radius), most))
    sigma = radius * np.float32(sigma_of_radius)
    distances = np.arange(-reach, reach + 1, dtype=np.float32)
    return np.asarray(np.exp(distances * distances * (np.float32(-0.5) / (sigma * sigma))))
