# SPDX-License-Identifier: Apache-2.0
"""F-theta lenses: where images of fisheye cameras show what is around them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@attrs.frozen(eq=False, slots=False)
class FThetaLens:
    """A fisheye lens: pixels from the center are a polynomial of the angle to the axis.

    The axis is z of the camera, x points right in the image and y down. ``lens`` of a camera of a
    `DrivingProvider` with ``lenses=True`` has the four values.

    Attributes:
        image_wh: Width and height of the image, pixels.
        center: Pixel that the axis meets, x and y.
        backward: ``(n,)``, polynomial of pixels from the center that gives the angle, radians; the constant first.
        forward: ``(n,)``, polynomial of the angle that gives pixels from the center.
    """

    image_wh: Array
    center: Array
    backward: Array
    forward: Array

    @cached_property
    def widest_rad(self) -> float:
        """Largest angle to the axis, radians, up to which the distance from the center of the image grows."""
        turns = np.roots((self.forward[1:] * np.arange(1, len(self.forward)))[::-1])
        real = turns.real[(np.abs(turns.imag) < 1e-9) & (turns.real > 0)]
        return float(min([np.pi, *real]))

    def pixels(self, points: npt.ArrayLike) -> Array:
        """Pixels ``(..., 2)`` of points ``(..., 3)`` in the camera's frame; NaN from the angle `widest_rad` on."""
        points = np.asarray(points, np.float64)
        sideways = np.hypot(points[..., 0], points[..., 1])
        angle = np.arctan2(sideways, points[..., 2])
        radius = np.polynomial.polynomial.polyval(angle, self.forward)
        direction = points[..., :2] / np.where(sideways > 0, sideways, 1)[..., np.newaxis]
        is_seen = angle < self.widest_rad
        return np.where(is_seen[..., np.newaxis], self.center + radius[..., np.newaxis] * direction, np.nan)

    def rays(self, pixels: npt.ArrayLike) -> Array:
        """Directions ``(..., 3)`` of length 1, in the camera's frame, of pixels ``(..., 2)``."""
        offset = np.asarray(pixels, np.float64) - self.center
        radius = np.hypot(offset[..., 0], offset[..., 1])
        angle = np.polynomial.polynomial.polyval(radius, self.backward)
        sideways = np.sin(angle)[..., np.newaxis] * offset / np.where(radius > 0, radius, 1)[..., np.newaxis]
        return np.concatenate([sideways, np.cos(angle)[..., np.newaxis]], axis=-1)

    def resized(self, image_wh: npt.ArrayLike) -> FThetaLens | None:
        """Get the lens for the resized whole image; None if its axes were not resized alike (within 1 %)."""
        factors = np.asarray(image_wh, np.float64) / self.image_wh
        if np.abs(factors - factors[0]).max() > 0.01 * factors[0]:
            return None
        factor, powers = factors[0], np.arange(len(self.backward))
        return FThetaLens(
            self.image_wh * factor, self.center * factor, self.backward / factor**powers, self.forward * factor
        )
