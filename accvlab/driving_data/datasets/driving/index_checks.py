# SPDX-License-Identifier: Apache-2.0
"""Values that no sample can use, from whatever files they were read; each is named by its frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError

from .array_types import Array, Bool
from .driving_index import DrivingIndex
from .poses import is_rigid

_SKEW = 1e-2  # of an axis, by rounding
_ROUNDING = 1e-3
_USUAL_STEP_S = (1e-3, 1e3)  # where times are outside of it, they are in another unit
_ORIGINS = ("pickle", "tables", "folder", "root")
_RIGID = "a rotation and a finite translation"
_INTRINSICS = "a matrix of finite numbers with focal lengths above 0, whose last row is 0, 0, 1"
_BOX = "finite numbers with sizes of at least 0 (center, size, quaternion)"


def require_usable(
    index: DrivingIndex,
    wants: Callable[[str], bool],
    scenes: Iterable[object] | None = None,
    *,
    has_own_times: bool = True,
    error: type[Exception] = FileError,
) -> None:
    """Refuse what is requested of an index, and cannot be used.

    Tokens and times that are there twice, times in another unit; poses that are no rigid motions, intrinsics
    without focal lengths above 0, boxes without sizes, and numbers that are not finite.

    Args:
        index: The index.
        wants: Whether a part is requested, see `RequestedParts.wants`.
        scenes: Names of the scenes that are requested; None for all.
        has_own_times: Whether times of frames are those of the data set, in its unit.
        error: The class of the error.

    Raises:
        FileError: There are such values; the message names the frame.
    """
    is_wanted = np.ones(index.num_frames, bool)
    if scenes is not None:
        names = [os.fsencode(str(name)) for name in scenes]
        is_wanted = np.repeat(np.isin(index.frames.scene, names), np.diff(index.frames.first_of_scene))
    wanted = np.flatnonzero(is_wanted)
    wrong = _wrong_order(index, wanted, has_own_times)
    if wrong is not None:
        raise error(f"{_name(index, wrong[0])}: {wrong[1]}")
    for what, rule, values, is_wrong in _values(index, wants):
        frames = np.flatnonzero(is_wrong & is_wanted)
        if len(frames):
            got = shown(np.asarray(values[frames[0]]).tolist())
            more = f" (and {len(frames) - 1} more frames like it)" * (len(frames) > 1)
            raise error(f"{_name(index, frames[0])}: {what} must be {rule}, got {got}{more}.")


def _wrong_order(index: DrivingIndex, wanted: Array, has_own_times: bool) -> tuple[int, str] | None:
    """The first frame whose token or time is wrong among those wanted, and what is wrong with it."""
    tokens, time = np.asarray(index.frames.token)[wanted], np.asarray(index.frames.time)[wanted]
    order = np.argsort(tokens, kind="stable")
    again = order[1:][tokens[order[1:]] == tokens[order[:-1]]]
    if len(again):
        rule = "its token is that of an earlier frame. Each frame may be there once: remove one."
        return wanted[again.min()], rule
    in_scene = np.flatnonzero(~np.isin(wanted[1:], index.frames.first_of_scene)) + 1
    step_s = time[in_scene] - time[in_scene - 1]
    for late in in_scene[~(step_s > 0)][:1]:
        before, after = time[late - 1 : late + 1].tolist()
        return wanted[late], f"times must ascend in its scene, got {before!r} and then {after!r} seconds."
    usual_s, (least_s, most_s) = np.median(step_s) if len(step_s) else 1, _USUAL_STEP_S
    if has_own_times and not least_s <= usual_s <= most_s:
        rule = f"frames must be {least_s:g} to {most_s:g} seconds apart, the usual distance is {usual_s:g} seconds"
        return wanted[0], f"{rule}. Times are in another unit than the format has: convert them."
    return None


def _values(index: DrivingIndex, wants: Callable[[str], bool]) -> Iterator[tuple[str, str, Any, Bool]]:
    """What frames have, its rule, its value of each frame, and for which it is wrong."""
    frames, cameras, lidar, boxes = index.frames, index.cameras, index.lidar, index.boxes
    for what, pose in (("vehicle", frames.world_from_ego), ("lidar", frames.ego_from_base)):
        yield f"the pose of the {what}", _RIGID, pose, ~is_rigid(pose, _SKEW)
    for name in ("can_bus", "ego_status", "motion"):
        values = getattr(frames, name)
        if values is not None and (name == "motion" or wants(name)):
            yield name, "finite numbers", values, ~np.isfinite(values).all(axis=1)
    for number, name in enumerate(index.camera_names):
        if cameras is not None and wants(f"cameras/{name}"):
            has_image = cameras.file[:, number] != b""
            for what in ("camera_from_base", "ego_from_camera"):
                pose = np.asarray(getattr(cameras, what)[:, number])
                yield f"{what} of {name!r}", _RIGID, pose, has_image & ~is_rigid(pose, _SKEW)
            matrix = np.asarray(cameras.intrinsics[:, number])
            with np.errstate(invalid="ignore"):
                is_last = np.abs(matrix[:, 2] - [0, 0, 1]).max(axis=-1, initial=0) < _ROUNDING
            is_usable = (
                np.isfinite(matrix).all(axis=(1, 2)) & (matrix[:, [0, 1], [0, 1]] > 0).all(axis=1) & is_last
            )
            yield f"intrinsics of {name!r}", _INTRINSICS, matrix, has_image & ~is_usable
    if lidar is not None and wants("lidar"):
        pose = np.append(lidar.world_from_lidar, np.eye(3, 4)[np.newaxis], axis=0)[lidar.of_frame]  # -1: the last
        yield "the pose of its lidar record", _RIGID, pose, ~is_rigid(pose, _SKEW)
    if boxes is not None and wants("boxes"):
        rows = np.concatenate([boxes.center, boxes.size, boxes.rotation], axis=1)
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1) | (boxes.size < 0).any(axis=1))[::-1]
        frame = np.searchsorted(boxes.first, wrong, side="right") - 1
        is_wrong, values = np.zeros(index.num_frames, bool), np.zeros((index.num_frames, rows.shape[1]))
        is_wrong[frame], values[frame] = True, rows[wrong]  # of several, the first
        yield "a box", _BOX, values, is_wrong


def _name(index: DrivingIndex, frame: int) -> str:
    frames, origin = index.frames, index.origin
    token, scene = (
        os.fsdecode(bytes(each)) for each in (frames.token[frame], frames.scene[index.scene_of(frame)])
    )
    where = next((f" of {str(origin[name])!r}" for name in _ORIGINS if name in origin), "")
    return f"The frame {token!r} in the scene {scene!r}{where}"
