# SPDX-License-Identifier: Apache-2.0
"""Rigid motions, also over time: ``(..., 3, 4)`` float64 ``[rotation | translation]``; quaternions, w first.

A pose is named ``target_from_source``: ``p_target = rotation @ p_source + translation``.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.extension import nearest

from .array_types import Array, Bool, Float64, Int64


def pose(rotation: npt.ArrayLike, translation: npt.ArrayLike) -> Float64:
    """Make poses from rotation matrices ``(..., 3, 3)`` and translations ``(..., 3)``."""
    rotation, translation = np.asarray(rotation, np.float64), np.asarray(translation, np.float64)
    return np.concatenate([rotation, translation[..., np.newaxis]], axis=-1)


def pose_of_quaternion(quaternion: npt.ArrayLike, translation: npt.ArrayLike) -> Float64:
    """Make poses of quaternions ``(..., 4)``, w first and of any length but 0, and translations ``(..., 3)``."""
    return pose(rotation_of_quaternion(quaternion), translation)


def rotation_of_quaternion(quaternion: npt.ArrayLike) -> Float64:
    """Rotation matrices ``(..., 3, 3)`` of quaternions ``(..., 4)``, w first and of any length but 0."""
    quaternion = np.asarray(quaternion, np.float64)
    w, x, y, z = np.moveaxis(quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_of_rotation(rotation: npt.ArrayLike) -> Float64:
    """Quaternions ``(..., 4)``, w first and not negative, of rotation matrices ``(..., 3, 3)``.

    They are computed from the largest of the four components, to divide by no small number (Shepperd, 1978).
    """
    r = np.asarray(rotation, np.float64)
    xx, yy, zz = r[..., 0, 0], r[..., 1, 1], r[..., 2, 2]
    wx, wy, wz = r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]
    xy, xz, yz = r[..., 0, 1] + r[..., 1, 0], r[..., 0, 2] + r[..., 2, 0], r[..., 1, 2] + r[..., 2, 1]
    # Each row is the quaternion times four times one of its own components.
    candidates = np.stack(
        [
            np.stack([1 + xx + yy + zz, wx, wy, wz], axis=-1),
            np.stack([wx, 1 + xx - yy - zz, xy, xz], axis=-1),
            np.stack([wy, xy, 1 - xx + yy - zz, yz], axis=-1),
            np.stack([wz, xz, yz, 1 - xx - yy + zz], axis=-1),
        ],
        axis=-2,
    )
    largest = np.argmax(np.diagonal(candidates, axis1=-2, axis2=-1), axis=-1)
    chosen = np.take_along_axis(candidates, largest[..., np.newaxis, np.newaxis], axis=-2)[..., 0, :]
    chosen = chosen / np.linalg.norm(chosen, axis=-1, keepdims=True)
    return np.asarray(np.where(chosen[..., :1] < 0, -chosen, chosen))


def quaternion_of_yaw(yaw: npt.ArrayLike) -> Float64:
    """Quaternions ``(..., 4)``, w first, of angles about z, radians."""
    half = np.asarray(yaw, np.float64) / 2
    return np.stack([np.cos(half), np.zeros_like(half), np.zeros_like(half), np.sin(half)], axis=-1)


def yaw_of_quaternion(quaternion: npt.ArrayLike) -> Float64:
    """Angles about z, ``(...)``, radians in [-pi, pi]: where the x axis points, seen from above."""
    w, x, y, z = np.moveaxis(np.asarray(quaternion, np.float64), -1, 0)
    return np.asarray(np.arctan2(2 * (x * y + w * z), w * w + x * x - y * y - z * z))


def product_of_quaternions(first: npt.ArrayLike, second: npt.ArrayLike) -> Float64:
    """Quaternions ``(..., 4)``, w first, of turning by the second and then by the first."""
    w1, x1, y1, z1 = np.moveaxis(np.asarray(first, np.float64), -1, 0)
    w2, x2, y2, z2 = np.moveaxis(np.asarray(second, np.float64), -1, 0)
    return np.stack(
        [
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
        ],
        axis=-1,
    )


def inverse(pose: Float64) -> Float64:
    """Inverse poses, ``source_from_target``."""
    rotation = np.swapaxes(pose[..., :3], -1, -2)
    return np.concatenate([rotation, -rotation @ pose[..., 3:]], axis=-1)


def joined(first: Float64, second: Float64) -> Float64:
    """Join ``a_from_b`` and ``b_from_c`` to ``a_from_c``."""
    rotation = first[..., :3] @ second[..., :3]
    return np.concatenate([rotation, first[..., :3] @ second[..., 3:] + first[..., 3:]], axis=-1)


def moved(pose: Float64, points: npt.ArrayLike) -> Float64:
    """Points ``(..., 3)`` in the target frame; one pose for all, or one for each."""
    return turned(pose, points) + pose[..., 3]


def turned(pose: Float64, vectors: npt.ArrayLike) -> Float64:
    """Vectors ``(..., 3)``, e.g. velocities, in the target frame; one pose for all, or one for each."""
    return np.asarray(np.einsum("...ij,...j->...i", pose[..., :3], np.asarray(vectors, np.float64)))


def as_matrix(pose: Float64) -> Float64:
    """Poses as ``(..., 4, 4)``."""
    matrix = np.zeros((*pose.shape[:-2], 4, 4))
    matrix[..., :3, :] = pose
    matrix[..., 3, 3] = 1
    return matrix


def identity(*shape: int) -> Float64:
    """Poses that move nothing, ``(*shape, 3, 4)``."""
    return np.broadcast_to(np.eye(3, 4), (*shape, 3, 4)).copy()


def is_rigid(pose: Float64, tolerance: float) -> Bool:
    """Whether poses are finite, and their axes orthonormal within a tolerance and no mirror image, ``(...)``."""
    rotation, place = np.asarray(pose[..., :3]), np.asarray(pose[..., 3])
    with np.errstate(invalid="ignore", over="ignore"):
        gram = np.einsum("...ij,...kj->...ik", rotation, rotation)
        is_rotation = np.abs(gram - np.eye(3)).max(axis=(-1, -2), initial=0) < tolerance
        return np.asarray(is_rotation & (np.linalg.det(rotation) > 0) & np.isfinite(place).all(axis=-1))


@attrs.frozen(eq=False)
class Trajectory:
    """Where something is at any time: on the straight line between two known poses, turning evenly (slerp).

    Attributes:
        times: ``(n,)``, n > 0, of any unit, not decreasing; whole numbers are compared exactly.
        known_poses: ``(n, 3, 4)``.
    """

    times: Array
    known_poses: Float64

    def at(self, times: npt.ArrayLike) -> Float64:
        """Poses at times ``(...)``: ``(..., 3, 4)``. Before the first time, the first pose; likewise the last."""
        wanted = np.clip(np.asarray(times), self.times[0], self.times[-1])
        after = np.clip(np.searchsorted(self.times, wanted, side="left"), 0, len(self.times) - 1)
        is_known = self.times[after] == wanted
        before = np.where(is_known, after, after - 1)
        span = np.where(is_known, 1, self.times[after] - self.times[before]).astype(np.float64)
        part = ((wanted - self.times[before]) / span)[..., np.newaxis]
        first, last = self.known_poses[before], self.known_poses[after]
        rotation = rotation_of_quaternion(
            slerp(quaternion_of_rotation(first[..., :3]), quaternion_of_rotation(last[..., :3]), part)
        )
        place = first[..., 3] + (last[..., 3] - first[..., 3]) * part
        return np.where(is_known[..., np.newaxis, np.newaxis], last, pose(rotation, place))


def slerp(first: Float64, last: Float64, part: Float64) -> Float64:
    """Quaternions ``(..., 4)`` on the shorter way from one to another, of length 1; ``part`` is in [0, 1]."""
    cosine = np.sum(first * last, axis=-1, keepdims=True)
    last = np.where(cosine < 0, -last, last)
    angle = np.arccos(np.clip(np.abs(cosine), 0, 1))
    sine = np.sin(angle)
    is_small = sine < 1e-6  # there, the straight line is as good, and nothing divides by nearly 0
    divisor = np.where(is_small, 1, sine)
    weight_first = np.where(is_small, 1 - part, np.sin((1 - part) * angle) / divisor)
    weight_last = np.where(is_small, part, np.sin(part * angle) / divisor)
    return np.asarray(weight_first * first + weight_last * last)


def half_period(times: Array) -> float:
    """Half the median interval of ascending times; infinite for fewer than two."""
    return float(np.median(np.diff(times))) / 2 if len(times) > 1 else float("inf")


def last_before(times: Array, wanted: npt.ArrayLike) -> Int64:
    """Number of the last time at or before each wanted one; -1 for those before the first or after the last."""
    found = np.searchsorted(times, wanted, side="right") - 1
    return np.where(np.asarray(wanted) <= times[-1], found, -1)


_MOST_GAP_S, _MOST_BEYOND_S = 0.5, 0.1  # the places of vehicles are recorded at 2 Hz and more


def require_known(known: Int64, wanted: Int64, per_second: float, where: str) -> None:
    """Refuse times of frames far from all known places of the vehicle, where its place would be guessed.

    Args:
        known: Times of the known places, ascending.
        wanted: Times of the frames.
        per_second: Number of units of time per second.
        where: Name of the file with the places, for the message.

    Raises:
        FileError: The nearest known place of a frame is more than 0.5 s away, or the frame is more than 0.1 s
            before the first place or after the last one.
    """
    is_far = nearest(known, wanted, _MOST_GAP_S * per_second) < 0
    beyond = _MOST_BEYOND_S * per_second
    far = wanted[is_far | (wanted < known[0] - beyond) | (wanted > known[-1] + beyond)]
    if len(far):
        first, last, time = (f"{each / per_second:.3f}" for each in (known[0], known[-1], far[0]))
        distance_s = np.abs(known - far[0]).min() / per_second
        raise FileError(
            f"{where} must have a place of the vehicle near each frame; {len(far)} of {len(wanted)} frames have "
            f"none: the nearest to {time} s is {distance_s:.3f} s away, the first is at {first} s, the last at "
            f"{last} s. Get the whole file, or leave the scene out (`scenes`)."
        )


def require_ascending(times: Array, where: str, *, strictly: bool = False) -> None:
    """Refuse times that go back; ``where`` names the file and the column.

    Raises:
        FileError: Times go back.
    """
    steps = np.diff(times)
    is_wrong = ~(steps > 0 if strictly else steps >= 0)  # also NaN
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        rule = "ascend" if strictly else "not go back"
        raise FileError(f"{where}: times must {rule}, got {times[row]} and then {times[row + 1]} (row {row + 1}).")
