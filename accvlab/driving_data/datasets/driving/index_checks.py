# SPDX-License-Identifier: Apache-2.0
"""Values that no sample can use, from whatever files they were read; each is named by its frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError

from .array_types import Array, Bool, Float64
from .driving_index import DrivingIndex

_SKEW = 1e-2  # of an axis, by rounding
_ROUNDING = 1e-3
_USUAL_STEP_S = (1e-3, 1e3)  # where times are outside of it, they are in another unit
_ORIGINS = ("pickle", "tables", "folder", "root")
_RIGID = "a rotation and a finite translation"


def require_usable(
    index: DrivingIndex,
    wants: Callable[[str], bool],
    scenes: Iterable[object] | None = None,
    *,
    has_own_times: bool = True,
) -> None:
    """Refuse what is requested of an index, and cannot be used.

    Tokens and times that are there twice, times in another unit; poses that are no rigid motions, intrinsics
    without focal lengths above 0, boxes without sizes, and numbers that are not finite.

    Args:
        index: The index.
        wants: Whether a part is requested, see `RequestedParts.wants`.
        scenes: Names of the scenes that are requested; None for all.
        has_own_times: Whether times of frames are those of the data set, in its unit.

    Raises:
        FileError: There are such values; the message names the frame.
    """
    checks = _Checks(index, _is_of_wanted_scene(index, scenes))
    checks.require_order(has_own_times=has_own_times)
    frames, cameras, lidar, boxes = index.frames, index.cameras, index.lidar, index.boxes
    checks.refuse(~_is_rigid(frames.world_from_ego), "the pose of the vehicle", _RIGID, frames.world_from_ego)
    checks.refuse(~_is_rigid(frames.ego_from_base), "the pose of the lidar", _RIGID, frames.ego_from_base)
    for name in ("can_bus", "ego_status", "motion"):
        values = getattr(frames, name)
        if values is not None and (name == "motion" or wants(name)):
            checks.refuse(~np.isfinite(values).all(axis=1), name, "finite numbers", values)
    for number, name in enumerate(index.camera_names if cameras is not None else ()):
        if cameras is not None and wants(f"cameras/{name}"):
            has_image = cameras.file[:, number] != b""
            for what, column in (
                ("camera_from_base", cameras.camera_from_base),
                ("ego_from_camera", cameras.ego_from_camera),
            ):
                pose = np.asarray(column[:, number])
                checks.refuse(has_image & ~_is_rigid(pose), f"{what} of {name!r}", _RIGID, pose)
            matrix = np.asarray(cameras.intrinsics[:, number])
            rule = "a matrix of finite numbers with focal lengths above 0, whose last row is 0, 0, 1"
            checks.refuse(has_image & ~_is_intrinsic(matrix), f"intrinsics of {name!r}", rule, matrix)
    if lidar is not None and wants("lidar"):
        is_wrong = np.append(~_is_rigid(lidar.world_from_lidar), False)  # of frames without a record
        pose = np.append(lidar.world_from_lidar, np.eye(3, 4)[np.newaxis], axis=0)
        checks.refuse(is_wrong[lidar.of_frame], "the pose of its lidar record", _RIGID, pose[lidar.of_frame])
    if boxes is not None and wants("boxes"):
        rows = np.concatenate([boxes.center, boxes.size, boxes.rotation], axis=1)
        is_wrong = ~np.isfinite(rows).all(axis=1) | (boxes.size < 0).any(axis=1)
        first = np.flatnonzero(is_wrong)
        frame_of_box = np.searchsorted(boxes.first, first, side="right") - 1
        of_frame = np.zeros(index.num_frames, bool)
        of_frame[frame_of_box] = True
        values = np.zeros((index.num_frames, rows.shape[1]))
        values[frame_of_box[::-1]] = rows[first[::-1]]  # of several, the first
        rule = "finite numbers with sizes of at least 0 (center, size, quaternion)"
        checks.refuse(of_frame, "a box", rule, values)


def _is_of_wanted_scene(index: DrivingIndex, scenes: Iterable[object] | None) -> Bool:
    if scenes is None:
        return np.ones(index.num_frames, bool)
    is_wanted = np.isin(index.frames.scene, [os.fsencode(str(name)) for name in scenes])
    return np.repeat(is_wanted, np.diff(index.frames.first_of_scene))


def _is_rigid(pose: Array) -> Bool:
    rotation, place = np.asarray(pose[..., :3]), np.asarray(pose[..., 3])
    with np.errstate(invalid="ignore", over="ignore"):
        gram = np.einsum("...ij,...kj->...ik", rotation, rotation)
        is_rotation = np.abs(gram - np.eye(3)).max(axis=(-1, -2), initial=0) < _SKEW
        is_rotation &= np.linalg.det(rotation) > 0
    return np.asarray(is_rotation & np.isfinite(place).all(axis=-1))


def _is_intrinsic(matrix: Float64) -> Bool:
    is_usable = np.isfinite(matrix).all(axis=(-1, -2)) & (matrix[..., 0, 0] > 0) & (matrix[..., 1, 1] > 0)
    with np.errstate(invalid="ignore"):
        return np.asarray(is_usable & (np.abs(matrix[..., 2, :] - [0, 0, 1]).max(axis=-1, initial=0) < _ROUNDING))


@attrs.frozen(eq=False)
class _Checks:
    """Names frames of an index whose values cannot be used."""

    index: DrivingIndex
    is_wanted: Bool

    def refuse(self, is_wrong: Bool, what: str, rule: str, values: Any) -> None:
        """Refuse the first wanted frame that is wrong, with its value."""
        wrong = np.flatnonzero(is_wrong & self.is_wanted)
        if len(wrong):
            got = shown(np.asarray(values[wrong[0]]).tolist())
            more = f" (and {len(wrong) - 1} more frames like it)" * (len(wrong) > 1)
            raise FileError(f"{self._name(wrong[0])}: {what} must be {rule}, got {got}{more}.")

    def require_order(self, *, has_own_times: bool) -> None:
        """Refuse tokens and times that are there twice, and times in another unit."""
        frames, wanted = self.index.frames, np.flatnonzero(self.is_wanted)
        tokens, time = np.asarray(frames.token)[wanted], np.asarray(frames.time)[wanted]
        order = np.argsort(tokens, kind="stable")
        again = order[1:][tokens[order[1:]] == tokens[order[:-1]]]
        if len(again):
            raise FileError(
                f"{self._name(wanted[again.min()])}: its token is that of an earlier frame. Each frame may be "
                f"there once: remove one."
            )
        is_first = np.isin(wanted, frames.first_of_scene)
        step_s = np.diff(time)[~is_first[1:]]
        late = np.flatnonzero(~is_first[1:])[~(step_s > 0)] + 1
        if len(late):
            before, after = time[late[0] - 1 : late[0] + 1].tolist()
            name = self._name(wanted[late[0]])
            raise FileError(f"{name}: times must ascend in its scene, got {before!r} and then {after!r} seconds.")
        least_s, most_s = _USUAL_STEP_S
        if has_own_times and len(step_s) and not least_s <= np.median(step_s) <= most_s:
            raise FileError(
                f"{self._name(wanted[0])}: frames must be {least_s:g} to {most_s:g} seconds apart, the usual "
                f"distance is {np.median(step_s):g} seconds. Times are in another unit than the format has: "
                f"convert them."
            )

    def _name(self, frame: int) -> str:
        frames, origin = self.index.frames, self.index.origin
        token, scene = (
            os.fsdecode(bytes(each)) for each in (frames.token[frame], frames.scene[self.index.scene_of(frame)])
        )
        where = next((f" of {str(origin[name])!r}" for name in _ORIGINS if name in origin), "")
        return f"The frame {token!r} in the scene {scene!r}{where}"
