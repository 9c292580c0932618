# SPDX-License-Identifier: Apache-2.0
"""Points: limits of coordinates, one per axis, and products with matrices in float64."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import elements, number_list, setting_error
from ..errors import FieldValueError, SettingError
from .functions import Array, cast_array, clamp


@attrs.frozen
class PointLimits:
    """A box ``[minimum, maximum]`` in D dimensions; an infinite limit means no limit.

    Attributes:
        minimum: D numbers.
        maximum: D numbers, each at least that in ``minimum``.
    """

    minimum: tuple[float, ...]
    maximum: tuple[float, ...]

    @classmethod
    def checked_range(cls, point_range: Sequence[Sequence[float]], argument: str) -> PointLimits:
        """Make limits of a pair of lists.

        Raises:
            SettingError: No two lists of numbers of one length, NaN, or a first number above the second.
        """
        limits = elements(point_range)
        if limits is None or len(limits) != 2:
            raise setting_error(argument, "two lists of numbers", point_range)
        low, high = limits
        return cls.checked(low, high, (f"{argument}[0]", f"{argument}[1]"))

    @classmethod
    def checked(
        cls,
        minimum_point: Sequence[float],
        maximum_point: Sequence[float],
        arguments: tuple[str, str] = ("minimum_point", "maximum_point"),
    ) -> PointLimits:
        """Make limits of two checked arguments.

        Raises:
            SettingError: Not two lists of numbers of one length, NaN, or a minimum above its maximum.
        """
        rule = "a list of numbers, one per axis of a point"
        minimum, maximum = (
            number_list(point, name.partition("[")[0], rule, is_finite=False)
            for point, name in zip((minimum_point, maximum_point), arguments, strict=True)
        )
        if len(minimum) != len(maximum):
            raise SettingError(
                f"`{arguments[0]}` and `{arguments[1]}` must have one number per axis each, got "
                f"{len(minimum)} and {len(maximum)} numbers."
            )
        if any(low > high for low, high in zip(minimum, maximum, strict=True)):
            raise SettingError(
                f"Each number of `{arguments[0]}` must be at most that of `{arguments[1]}`, got "
                f"{list(minimum)} and {list(maximum)}."
            )
        return cls(minimum, maximum)

    def contain(self, points: Array) -> npt.NDArray[np.bool_]:
        """Find the points ``(N, D)`` within the limits: ``(N,)`` bool.

        Raises:
            FieldValueError: The points have another number of axes than there are limits.
        """
        self._check_axes(points)
        limits = np.array([self.minimum, self.maximum])
        # Whole numbers of up to 32 bits are compared as float64; those of 64 bits by Python, which is exact.
        exact = np.float64 if points.dtype.itemsize < 8 else object
        low, high = cast_array(limits, points.dtype) if points.dtype.kind == "f" else limits.astype(exact)
        return np.asarray(((points >= low) & (points <= high)).all(axis=1))

    def cropped(self, points: Array) -> Array:
        """Clamp points ``(N, D)`` to the limits, without fractions for whole numbers; NaN stays.

        Raises:
            FieldValueError: The points have another number of axes than there are limits.
        """
        self._check_axes(points)
        is_real, limits = points.dtype.kind == "f", np.array([self.minimum, self.maximum])
        low, high = cast_array(limits if is_real else np.trunc(limits), points.dtype)
        return np.asarray(clamp(points, low, high))

    def _check_axes(self, points: Array) -> None:
        if points.shape[1:] != (len(self.minimum),):
            wanted = f"(N, {len(self.minimum)})"
            raise FieldValueError(f"Points must have one number for each limit, {wanted}, got {points.shape}.")


Float64Array = npt.NDArray[np.float64]


def coordinates(points: Array, count: int = 3) -> Float64Array:
    """Get the first columns of points ``(P, K)``: ``(P, count)``.

    Raises:
        FieldValueError: There are fewer columns.
    """
    if points.ndim != 2 or points.shape[1] < count:
        raise FieldValueError(f"Points must be (P, {count}) or have more columns, got the shape {points.shape}.")
    return np.asarray(points[:, :count], np.float64)


def affine(matrix: Array) -> tuple[Float64Array, Float64Array]:
    """Split a matrix ``(3, 4)`` or ``(4, 4)`` into its linear part, ``(3, 3)``, and its offset, ``(3,)``.

    Raises:
        FieldValueError: It has another shape.
    """
    if matrix.shape not in ((3, 4), (4, 4)):
        raise FieldValueError(f"A matrix must be (3, 4) or (4, 4), got the shape {matrix.shape}.")
    whole = np.asarray(matrix, np.float64)
    return whole[:3, :3], whole[:3, 3]


def moved(matrix: Array, points: Float64Array) -> Float64Array:
    """Multiply points ``(P, 3)`` by a matrix ``(3, 4)`` or ``(4, 4)``, without a division.

    Raises:
        FieldValueError: The matrix has another shape.
    """
    factor, offset = affine(matrix)
    return np.asarray(points @ factor.T + offset)
