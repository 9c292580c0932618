# SPDX-License-Identifier: Apache-2.0
"""Poses over time."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.errors import FileError

from . import poses

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class Trajectory:
    """Where something is at any time: on the straight line between two known poses, turning evenly (slerp).

    Attributes:
        times: ``(n,)``, n > 0, of any unit, not decreasing; whole numbers are compared exactly.
        known_poses: ``(n, 3, 4)``, see `poses`.
    """

    times: npt.NDArray[Any]
    known_poses: Float64Array

    def at(self, times: npt.ArrayLike) -> Float64Array:
        """Poses at times ``(...)``: ``(..., 3, 4)``. Before the first time, the first pose; likewise the last."""
        wanted = np.clip(np.asarray(times), self.times[0], self.times[-1])
        after = np.clip(np.searchsorted(self.times, wanted, side="left"), 0, len(self.times) - 1)
        is_known = self.times[after] == wanted
        before = np.where(is_known, after, after - 1)
        span = np.where(is_known, 1, self.times[after] - self.times[before]).astype(np.float64)
        part = ((wanted - self.times[before]) / span)[..., np.newaxis]
        first, last = self.known_poses[before], self.known_poses[after]
        rotation = poses.rotation_of_quaternion(
            _between(
                poses.quaternion_of_rotation(first[..., :3]), poses.quaternion_of_rotation(last[..., :3]), part
            )
        )
        place = first[..., 3] + (last[..., 3] - first[..., 3]) * part
        return np.where(is_known[..., np.newaxis, np.newaxis], last, poses.pose(rotation, place))


def _between(first: Float64Array, last: Float64Array, part: Float64Array) -> Float64Array:
    """Quaternions on the shorter way from one to another."""
    cosine = np.sum(first * last, axis=-1, keepdims=True)
    last = np.where(cosine < 0, -last, last)
    angle = np.arccos(np.clip(np.abs(cosine), 0, 1))
    sine = np.sin(angle)
    is_small = sine < 1e-6  # there, the straight line is as good, and nothing divides by nearly 0
    divisor = np.where(is_small, 1, sine)
    weight_first = np.where(is_small, 1 - part, np.sin((1 - part) * angle) / divisor)
    weight_last = np.where(is_small, part, np.sin(part * angle) / divisor)
    return np.asarray(weight_first * first + weight_last * last)


def half_period(times: npt.NDArray[Any]) -> float:
    """Half the usual distance of some times; without end where there are fewer than two."""
    return float(np.median(np.diff(times))) / 2 if len(times) > 1 else float("inf")


def require_ascending(times: npt.NDArray[Any], where: str, *, strictly: bool = False) -> None:
    """Refuse times that go back; ``where`` names the file and the column.

    Raises:
        FileError: They do.
    """
    steps = np.diff(times)
    is_wrong = steps <= 0 if strictly else steps < 0
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        rule = "ascend" if strictly else "not go back"
        raise FileError(f"{where}: times must {rule}, got {times[row]} and then {times[row + 1]} (row {row + 1}).")
