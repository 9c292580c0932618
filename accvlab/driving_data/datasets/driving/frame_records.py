# SPDX-License-Identifier: Apache-2.0
"""An index made of one record per frame: pose, images, boxes. The shortest way from own data to a provider."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import elements, listed, shown, whole_number
from accvlab.dali_pipeline_framework.errors import SettingError

from . import poses
from .array_types import Array, Float64
from .driving_index import DrivingIndex
from .index_checks import require_usable
from .scene_parts import Scene, SceneImages, index_of_scenes

_LARGEST_YAW = 4 * np.pi  # of headings that are counted on from turn to turn
_SKEW = 1e-3  # of an axis, by rounding


@attrs.frozen(kw_only=True)
class CameraImage:
    """The image of a camera in a `DrivingFrame`.

    Attributes:
        file: File of the image, relative to the root of the provider; a video, if ``video_frame`` is given.
        intrinsics: ``(3, 3)``: camera coordinates to pixels times depth. None: unknown; samples have the identity.
        ego_from_camera: Pose of the camera on the vehicle, ``(3, 4)`` or ``(4, 4)``; x right, y down, z ahead.
            None: unknown; samples have the identity.
        time: When it was taken, seconds; None: at the time of the frame. The motion of the vehicle in between is
            part of the camera's pose in the sample.
        video_frame: Number of the image in the video, from 0.
    """

    file: str
    intrinsics: npt.ArrayLike | None = None
    ego_from_camera: npt.ArrayLike | None = None
    time: float | None = None
    video_frame: int | None = None


@attrs.frozen(kw_only=True)
class ObjectBox:
    """A 3D box of a `DrivingFrame`, in coordinates of the vehicle at the time of the frame, meters.

    Attributes:
        center: x ahead, y to the left, z up.
        size: Length, width, height.
        yaw: Angle of the length from x, counter-clockwise seen from above, radians.
        category: Name of its category.
        track: Number or name of the object, the same in all frames of a scene; None where unknown.
        velocity: Over ground, along x, y (and z) of the vehicle, m/s; None where unknown.
    """

    center: npt.ArrayLike
    size: npt.ArrayLike
    yaw: float
    category: str
    track: int | str | None = None
    velocity: npt.ArrayLike | None = None


@attrs.frozen(kw_only=True)
class DrivingFrame:
    """Record of a frame, for a sample of a `DrivingProvider`.

    Attributes:
        scene: Name of the drive that the frame is part of.
        time: Seconds; ascends in each scene.
        world_from_ego: Pose of the vehicle, ``(3, 4)`` or ``(4, 4)``: x ahead, y to the left, z up. None: unknown;
            samples have the identity.
        cameras: Images by name of the camera. Samples with a camera can be made only of frames that have it.
        boxes: Objects; None where they were not labelled. All frames or none have them.
        token: Name of the frame; None: ``SCENE/NUMBER``.
    """

    scene: str
    time: float
    world_from_ego: npt.ArrayLike | None = None
    cameras: Mapping[str, CameraImage] = attrs.field(factory=dict)
    boxes: Sequence[ObjectBox] | None = None
    token: str | None = None


def index_of_frames(
    frames: Iterable[DrivingFrame],
    *,
    categories: Sequence[str] | None = None,
    ego_from_lidar: npt.ArrayLike | None = None,
) -> DrivingIndex:
    """Make an index from records of frames; frames of different scenes may be mixed.

    Args:
        frames: The frames, by time in each scene.
        categories: Names of the categories of boxes, in the order of their numbers; None: sorted by name.
        ego_from_lidar: Pose of a lidar on the vehicle, ``(3, 4)``: then the geometry of samples is in coordinates
            of the lidar, ``reference="lidar"``, for models that were trained on such data. The lidar may be a
            virtual one. None: samples are in the coordinates of the vehicle.

    Raises:
        SettingError: A value has a wrong form (the message names frame and field); two frames have one token, or
            times do not ascend; or there are no frames.
    """
    scenes: dict[str, list[DrivingFrame]] = {}
    for frame in frames:
        _check(frame)
        scenes.setdefault(frame.scene, []).append(frame)
    every = [frame for of_scene in scenes.values() for frame in of_scene]
    if not every:
        raise SettingError("There must be at least one frame.")
    labelled = [frame for frame in every if frame.boxes is not None]
    if labelled and len(labelled) < len(every):
        raise SettingError(
            f"All frames or none must have `boxes`, but {len(every) - len(labelled)} of {len(every)} have None. "
            f"Frames without an object have an empty list."
        )
    found = sorted({box.category for frame in labelled for box in frame.boxes or ()})
    unknown = [name for name in found if categories is not None and name not in categories]
    if unknown:
        raise SettingError(
            f"`categories` lacks {listed(map(repr, unknown))}, of boxes; it has {listed(categories or ())}."
        )
    lidar = _pose(ego_from_lidar, "`ego_from_lidar`")
    index = index_of_scenes(
        [_scene(name, of_scene, lidar, has_boxes=bool(labelled)) for name, of_scene in scenes.items()],
        base="ego" if ego_from_lidar is None else "lidar",
        camera_names=list(dict.fromkeys(name for frame in every for name in frame.cameras)),
        categories=found if categories is None else categories,
        origin={"format": "records of frames"},
    )
    require_usable(index, lambda part: part == "boxes", has_own_times=False, error=SettingError)
    return index


def _check(frame: DrivingFrame) -> None:
    """Refuse values whose type is wrong."""
    _require(isinstance(frame, DrivingFrame), "Records", "of the class DrivingFrame", frame)
    place = _place(frame)
    for name, value in (("scene", frame.scene), ("token", "" if frame.token is None else frame.token)):
        _require(isinstance(value, str), f"{place}: `{name}`", "text", value)
    _array(frame.time, (), f"{place}: `time`")
    is_dict = isinstance(frame.cameras, Mapping)
    _require(is_dict, f"{place}: `cameras`", "a dict of images by name of the camera", frame.cameras)
    for name, image in frame.cameras.items():
        where = f"{place}: cameras[{name!r}]"
        _require(isinstance(name, str), f"{place}: the name of a camera", "text", name)
        _require(isinstance(image, CameraImage), where, "a CameraImage", image)
        is_path = isinstance(image.file, str | os.PathLike) and bool(str(image.file))
        _require(is_path, f"{where}.file", "the path of a file", image.file)
        if image.time is not None:
            _array(image.time, (), f"{where}.time")
        if image.video_frame is not None:
            whole_number(image.video_frame, f"{where}.video_frame", at_least=0)
    boxes = () if frame.boxes is None else frame.boxes
    is_list = isinstance(boxes, Sequence) and not isinstance(boxes, str)
    _require(is_list, f"{place}: `boxes`", "a list of ObjectBox", boxes)
    for number, box in enumerate(boxes):
        where = f"{place}: boxes[{number}]"
        _require(isinstance(box, ObjectBox), where, "an ObjectBox", box)
        is_name = isinstance(box.category, str) and bool(box.category)
        _require(is_name, f"{where}: `category`", "a name", box.category)
        is_track = isinstance(box.track, Hashable) and not isinstance(box.track, float)
        _require(is_track, f"{where}: `track`", "a whole number, text or None", box.track)


def _require(is_right: bool, what: str, rule: str, value: object) -> None:
    if not is_right:
        raise SettingError(f"{what} must be {rule}, got {shown(value)}.")


def _scene(name: str, frames: Sequence[DrivingFrame], ego_from_base: Float64, *, has_boxes: bool) -> Scene:
    time = np.array([frame.time for frame in frames], np.float64)
    late = np.flatnonzero(np.diff(time) <= 0)
    if len(late):
        before, after = frames[late[0]], frames[late[0] + 1]
        raise SettingError(
            f"Times of the frames of a scene must ascend, but {_place(after)} follows on {before.time!r} s. Give "
            f"seconds, and sort the frames by time."
        )
    world_from_ego = np.stack(
        [_pose(frame.world_from_ego, f"{_place(frame)}: `world_from_ego`") for frame in frames]
    )
    cameras = dict.fromkeys(camera for frame in frames for camera in frame.cameras)
    world_from_base = poses.joined(world_from_ego, ego_from_base)
    ego = poses.Trajectory(time, world_from_ego)
    return Scene(
        name=name,
        token=[frame.token or f"{name}/{number}" for number, frame in enumerate(frames)],
        time=time,
        world_from_ego=world_from_ego,
        ego_from_base=ego_from_base,
        images={camera: _images(camera, frames, ego, world_from_base) for camera in cameras},
        boxes=_boxes(frames, ego_from_base) if has_boxes else None,
    )


def _images(
    camera: str, frames: Sequence[DrivingFrame], ego: poses.Trajectory, world_from_base: Float64
) -> SceneImages:
    has = np.array([number for number, frame in enumerate(frames) if camera in frame.cameras])
    images = {f"{_place(frames[row])}: cameras[{camera!r}]": frames[row].cameras[camera] for row in has}
    time = np.array([image.time for image in images.values()], np.float64)  # None is NaN
    time = np.where(np.isnan(time), ego.times[has], time)
    mounted = np.stack([_pose(image.ego_from_camera, f"{at}.ego_from_camera") for at, image in images.items()])
    intrinsics = np.stack(
        [
            np.eye(3) if image.intrinsics is None else _array(image.intrinsics, (3, 3), f"{at}.intrinsics")
            for at, image in images.items()
        ]
    )
    numbers = [image.video_frame for image in images.values()]
    if None in numbers and {*numbers} != {None}:
        rule = "`video_frame` must be given for all images of a camera or none"
        raise SettingError(f"{[*images][numbers.index(None)]}: {rule}.")
    # Frames without an image have the calibration of the next that has one.
    near = np.minimum(np.searchsorted(has, np.arange(len(frames))), len(has) - 1)
    world_from_camera = poses.joined(ego.known_poses, mounted[near])
    world_from_camera[has] = poses.joined(ego.at(time), mounted)
    return SceneImages(
        frames=has,
        file=[str(image.file) for image in images.values()],
        time=time,
        intrinsics=intrinsics[near],
        camera_from_base=poses.joined(poses.inverse(world_from_camera), world_from_base),
        ego_from_camera=mounted[near],
        video_frame=None if None in numbers else np.array(numbers, np.int64),
    )


def _boxes(frames: Sequence[DrivingFrame], ego_from_base: Float64) -> dict[str, Array]:
    boxes = [(number, box) for number, frame in enumerate(frames) for box in frame.boxes or ()]
    places = [f"{_place(frames[number])}: a box ({box.category!r})" for number, box in boxes]

    def column(field: str, *shape: int) -> Float64:
        rows = [
            _array(getattr(box, field), shape, f"{place}: `{field}`")
            for (_, box), place in zip(boxes, places, strict=True)
        ]
        return np.array(rows, np.float64).reshape(-1, *shape)

    yaw, base_from_ego = column("yaw"), poses.inverse(ego_from_base)
    wrong = np.flatnonzero(np.abs(yaw) > _LARGEST_YAW)
    if len(wrong):
        raise SettingError(
            f"{places[wrong[0]]}: `yaw` must be in radians, got {yaw[wrong[0]]:g}, more than two turns: it seems "
            f"to be in degrees. Convert it by `math.radians`."
        )
    turn = poses.quaternion_of_rotation(base_from_ego[:, :3])
    velocity = np.full((len(boxes), 3), np.nan)
    for row, (_, box) in enumerate(boxes):
        if box.velocity is not None:
            given = elements(box.velocity)
            along = box.velocity if given is None or len(given) != 2 else [*given, 0]
            velocity[row] = _array(along, (3,), f"{places[row]}: `velocity`")
    number_of: dict[Any, int] = {None: -1}
    return {
        "frame": np.array([number for number, _ in boxes], np.int64),
        "center": poses.moved(base_from_ego, column("center", 3)),
        "size": column("size", 3),
        "rotation": poses.product_of_quaternions(turn, poses.quaternion_of_yaw(yaw)),
        "velocity": poses.turned(base_from_ego, velocity),
        "category": np.array([box.category for _, box in boxes], np.str_),
        "instance": np.array([number_of.setdefault(box.track, len(number_of) - 1) for _, box in boxes], np.int64),
    }


def _place(frame: DrivingFrame) -> str:
    return f"the frame at {frame.time!r} s of the scene {frame.scene!r}"


def _array(value: Any, shape: tuple[int, ...], what: str) -> Float64:
    try:
        given = np.asarray(value)
        array = given.astype(np.float64) if given.dtype.kind in "fiu" else np.full(1, np.nan)
    except (TypeError, ValueError):
        array = np.full(1, np.nan)
    kind = f"finite numbers of the shape {shape}" if shape else "a finite number"
    _require(array.shape == shape and bool(np.isfinite(array).all()), what, kind, value)
    return array


def _pose(value: Any, what: str) -> Float64:
    if value is None:
        return np.eye(3, 4)
    rows = elements(value)
    pose = _array(value, (3, 4) if rows is None or len(rows) != 4 else (4, 4), what)[:3]
    _require(bool(poses.is_rigid(pose, _SKEW)), what, "a rotation and a translation, (3, 4)", pose.tolist())
    return pose
