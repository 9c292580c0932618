# SPDX-License-Identifier: Apache-2.0
"""The motion of the vehicle as a smooth curve, and what it looks like from one of its places."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from . import poses
from .array_types import Array, Float64, Int64


@attrs.frozen(eq=False)
class SmoothTrajectory:
    """Where the vehicle is at any time: on a cubic spline through its known places, turning evenly between them.

    The second derivative of the spline is continuous everywhere, the third at ``times[1]`` and ``times[-2]``
    ("not a knot"; C. de Boor, A Practical Guide to Splines, chapter IV).

    Attributes:
        times: ``(n,)``, n > 0, of any unit, ascending; whole numbers are compared exactly.
        quaternion: ``(n, 4)``, w first, of length 1.
        position: ``(n, 3)``.
        slope: ``(n, 3)``, derivatives of the position.
    """

    times: Int64
    quaternion: Float64
    position: Float64
    slope: Float64

    @classmethod
    def through(cls, times: Int64, known_poses: Float64) -> SmoothTrajectory:
        """Make the spline through poses ``(n, 3, 4)``."""
        position = known_poses[..., 3]
        slope = spline_slopes((times - times[0]).astype(np.float64), position)
        return cls(times, poses.quaternion_of_rotation(known_poses[..., :3]), position, slope)

    def at(self, times: npt.ArrayLike) -> Float64:
        """Poses at times ``(...)``: ``(..., 3, 4)``. Before the first time, the first pose; likewise the last."""
        wanted = np.clip(np.asarray(times), self.times[0], self.times[-1])
        before = np.clip(np.searchsorted(self.times, wanted, side="right") - 1, 0, max(len(self.times) - 2, 0))
        after = np.minimum(before + 1, len(self.times) - 1)
        span = (self.times[after] - self.times[before]).astype(np.float64)[..., np.newaxis]
        part = (wanted - self.times[before])[..., np.newaxis] / np.where(span > 0, span, 1)
        rotation = poses.slerp(self.quaternion[before], self.quaternion[after], part)
        # Cubic Hermite polynomials of values and slopes at both ends.
        first, last = self.position[before], self.position[after]
        rest = 1 - part
        position = first * rest**2 * (1 + 2 * part) + last * part**2 * (1 + 2 * rest)
        position += span * part * rest * (rest * self.slope[before] - part * self.slope[after])
        return poses.pose_of_quaternion(rotation, position)


def spline_slopes(x: Float64, y: Float64) -> Float64:
    """Derivatives ``(n, k)`` of the "not a knot" spline through ``y`` ``(n, k)`` at ascending ``x`` ``(n,)``.

    Of fewer than four points, the polynomial through them.
    """
    if len(x) < 4:
        unit, powers = x[-1] or 1.0, np.arange(1, len(x))
        coefficients = np.linalg.solve(np.vander(x / unit, increasing=True), y)[1:]
        return np.asarray(powers * (x / unit)[:, np.newaxis] ** (powers - 1) @ coefficients / unit)
    step = np.diff(x)
    secant = np.diff(y, axis=0) / step[:, np.newaxis]
    # Rows: lower[i] * slope[i - 1] + middle[i] * slope[i] + upper[i] * slope[i + 1] = right[i].
    lower, upper = np.r_[0, step[1:], x[-1] - x[-3]], np.r_[x[2] - x[0], step[:-1], 0]
    middle = np.r_[step[1], 2 * (step[:-1] + step[1:]), step[-2]]
    inner = 3 * (step[1:, np.newaxis] * secant[:-1] + step[:-1, np.newaxis] * secant[1:])
    ends = [
        (secant[one] * far * (near + 2 * (near + far)) + secant[two] * near**2) / (near + far)
        for one, two, near, far in ((0, 1, step[0], step[1]), (-1, -2, step[-1], step[-2]))
    ]
    return _solved(lower, middle, upper, np.stack([ends[0], *inner, ends[1]]))


def _solved(lower: Array, middle: Array, upper: Array, right: Array) -> Float64:
    """Solve tridiagonal equations, ``(n, k)``, by elimination (Thomas); on Python's numbers, which is quicker."""
    below, diagonal, above = lower.tolist(), middle.tolist(), upper.tolist()
    factors = [0.0]
    for row in range(1, len(diagonal)):
        factors.append(below[row] / diagonal[row - 1])
        diagonal[row] -= factors[row] * above[row - 1]
    columns = []
    for column in right.T.tolist():
        for row in range(1, len(column)):
            column[row] -= factors[row] * column[row - 1]
        column[-1] /= diagonal[-1]
        for row in range(len(column) - 2, -1, -1):
            column[row] = (column[row] - above[row] * column[row + 1]) / diagonal[row]
        columns.append(column)
    return np.array(columns).T


def places_around(trajectory: SmoothTrajectory, time: int, others: Int64) -> Float64:
    """Poses of the vehicle at other times in its own frame at one time, ``(n, 3, 4)``."""
    world_from_ego = trajectory.at(np.append(others, time))
    return poses.joined(poses.inverse(world_from_ego[-1]), world_from_ego[:-1])
