# SPDX-License-Identifier: Apache-2.0
"""An index made of one record per frame: pose, images, boxes. The shortest way from own data to a provider."""

from __future__ import annotations

import os
from collections import Counter
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
from .scene_parts import Scene, SceneImages, index_of_scenes

_LARGEST_YAW = 4 * np.pi  # of headings that are counted on from turn to turn
_FARTHEST_S = 10.0  # of an image from its frame


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
        SettingError: A value has a wrong form, or seems to be in another unit (the message names frame and field);
            two frames have one token; or there are no frames.
    """
    scenes: dict[str, list[DrivingFrame]] = {}
    for frame in frames:
        _check(frame)
        scenes.setdefault(frame.scene, []).append(frame)
    every = [frame for of_scene in scenes.values() for frame in of_scene]
    if not every:
        raise SettingError("There must be at least one frame.")
    tokens = Counter(frame.token for frame in every if frame.token is not None)
    repeated = [token for token, count in tokens.items() if count > 1]
    if repeated:
        first, second, *_ = (frame for frame in every if frame.token == repeated[0])
        raise SettingError(
            f"Each frame must have a `token` of its own, but {_place(first)} and {_place(second)} have "
            f"{repeated[0]!r}. Leave `token` out for names by scene and number."
        )
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
    lidar = np.eye(3, 4) if ego_from_lidar is None else _pose(ego_from_lidar, "`ego_from_lidar`")
    names = list(dict.fromkeys(name for frame in every for name in frame.cameras))
    return index_of_scenes(
        [_scene(name, of_scene, lidar, has_boxes=bool(labelled)) for name, of_scene in scenes.items()],
        base="ego" if ego_from_lidar is None else "lidar",
        camera_names=names,
        categories=found if categories is None else categories,
        origin={"format": "records of frames"},
    )


def _check(frame: DrivingFrame) -> None:
    if not isinstance(frame, DrivingFrame):
        raise SettingError(f"Records must be of the class DrivingFrame, got {shown(frame)}.")
    for name, value in (("scene", frame.scene), ("token", frame.token)):
        if not isinstance(value, str) and not (value is None and name == "token"):
            raise SettingError(f"{_place(frame)}: `{name}` must be text, got {shown(value)}.")
    _array(frame.time, (), f"{_place(frame)}: `time`")
    if not isinstance(frame.cameras, Mapping):
        rule = "must be a dict of images by name of the camera"
        raise SettingError(f"{_place(frame)}: `cameras` {rule}, got {shown(frame.cameras)}.")
    for name, image in frame.cameras.items():
        place = f"{_place(frame)}: cameras[{name!r}]"
        if not isinstance(name, str):
            raise SettingError(f"{place} must have a name that is text, got {shown(name)}.")
        if not isinstance(image, CameraImage):
            raise SettingError(f"{place} must be a CameraImage, got {shown(image)}.")
        if not isinstance(image.file, str | os.PathLike) or not str(image.file):
            raise SettingError(f"{place}.file must be the path of a file, got {shown(image.file)}.")
        if image.time is not None:
            _array(image.time, (), f"{place}.time")
            _refuse_unit(image.time, [frame.time - _FARTHEST_S, frame.time + _FARTHEST_S], f"{place}.time")
        if image.video_frame is not None:
            whole_number(image.video_frame, f"{place}.video_frame", at_least=0)
    boxes = () if frame.boxes is None else frame.boxes
    if not isinstance(boxes, Sequence) or isinstance(boxes, str):
        raise SettingError(f"{_place(frame)}: `boxes` must be a list of ObjectBox, got {shown(boxes)}.")
    for number, box in enumerate(boxes):
        place = f"{_place(frame)}: boxes[{number}]"
        if not isinstance(box, ObjectBox):
            raise SettingError(f"{place} must be an ObjectBox, got {shown(box)}.")
        if not isinstance(box.category, str) or not box.category:
            raise SettingError(f"{place}: `category` must be a name, got {shown(box.category)}.")
        if isinstance(box.track, float) or not isinstance(box.track, Hashable):
            raise SettingError(f"{place}: `track` must be a whole number, text or None, got {shown(box.track)}.")


def _refuse_unit(time: float, span: Sequence[float], what: str) -> None:
    """Refuse a time that is in a span only if it is in another unit than seconds."""
    units = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}
    for factor, unit in units.items():
        if span[0] <= time / factor <= span[1] and not span[0] <= time <= span[1]:
            rule = f"{what} must be in seconds as the others, here from {span[0]:.6g} to {span[1]:.6g} s"
            raise SettingError(f"{rule}, got {time!r}, which seems to be {unit}. Divide it by {factor:g}.")


def _scene(name: str, frames: Sequence[DrivingFrame], ego_from_base: Float64, *, has_boxes: bool) -> Scene:
    time = np.array([frame.time for frame in frames], np.float64)
    is_other = np.abs(time) > 100 * np.abs(np.median(time))
    for number in np.flatnonzero(is_other).tolist() if (~is_other).sum() > 1 else ():
        slack_s = 2 * float(np.median(np.diff(time[~is_other])))
        before, after = time[:number][~is_other[:number]], time[number:][~is_other[number:]]
        low = before[-1] if len(before) else after[0] - slack_s
        span = [float(low), float(after[0] if len(after) else low + slack_s)]
        _refuse_unit(float(time[number]), span, f"{_place(frames[number])}: `time`")
    late = np.flatnonzero(np.diff(time) <= 0)
    if len(late):
        before, after = frames[late[0]], frames[late[0] + 1]
        raise SettingError(
            f"Times of the frames of a scene must ascend, but {_place(after)} follows on {before.time!r} s. Sort "
            f"the frames by time."
        )
    world_from_ego = np.stack(
        [_pose(frame.world_from_ego, f"{_place(frame)}: `world_from_ego`") for frame in frames]
    )
    world_from_base = poses.joined(world_from_ego, ego_from_base)
    ego = poses.Trajectory(time, world_from_ego)
    cameras = dict.fromkeys(camera for frame in frames for camera in frame.cameras)
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
    images = [frames[number].cameras[camera] for number in has]
    places = [f"{_place(frames[number])}: cameras[{camera!r}]" for number in has]
    time = np.array(
        [
            frames[number].time if image.time is None else image.time
            for number, image in zip(has, images, strict=True)
        ],
        np.float64,
    )
    mounted = [
        _pose(image.ego_from_camera, f"{place}.ego_from_camera")
        for image, place in zip(images, places, strict=True)
    ]
    matrices = [
        _array(np.eye(3) if image.intrinsics is None else image.intrinsics, (3, 3), f"{place}.intrinsics")
        for image, place in zip(images, places, strict=True)
    ]
    videos = [image.video_frame is not None for image in images]
    if any(videos) and not all(videos):
        raise SettingError(
            f"{places[videos.index(False)]}: `video_frame` must be given for all images of a camera or none."
        )
    # Frames without an image have the calibration of the next that has one.
    near = np.minimum(np.searchsorted(has, np.arange(len(frames))), len(has) - 1)
    ego_from_camera = np.stack(mounted)[near]
    camera_from_base = poses.joined(
        poses.inverse(poses.joined(ego.at(ego.times), ego_from_camera)), world_from_base
    )
    world_from_camera = poses.joined(ego.at(time), np.stack(mounted))
    camera_from_base[has] = poses.joined(poses.inverse(world_from_camera), world_from_base[has])
    return SceneImages(
        frames=has,
        file=[str(image.file) for image in images],
        time=time,
        intrinsics=np.stack(matrices)[near],
        camera_from_base=camera_from_base,
        ego_from_camera=ego_from_camera,
        video_frame=np.array([image.video_frame for image in images], np.int64) if all(videos) else None,
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
    size = column("size", 3)
    wrong = np.flatnonzero((size < 0).any(axis=1))
    if len(wrong):
        raise SettingError(f"{places[wrong[0]]}: `size` must be at least 0 m, got {size[wrong[0]].tolist()}.")
    turn = poses.quaternion_of_rotation(base_from_ego[:, :3])
    velocity = np.full((len(boxes), 3), np.nan)
    for row, (_, box) in enumerate(boxes):
        if box.velocity is not None:
            given = elements(box.velocity)
            along = box.velocity if given is None or len(given) != 2 else [*given, 0]
            velocity[row] = _array(along, (3,), f"{places[row]}: `velocity`")
    number_of: dict[Any, int] = {}
    tracks = [-1 if box.track is None else number_of.setdefault(box.track, len(number_of)) for _, box in boxes]
    return {
        "frame": np.array([number for number, _ in boxes], np.int64),
        "center": poses.moved(base_from_ego, column("center", 3)),
        "size": size,
        "rotation": poses.product_of_quaternions(turn, poses.quaternion_of_yaw(yaw)),
        "velocity": poses.turned(base_from_ego, velocity),
        "category": np.array([box.category for _, box in boxes], np.str_),
        "instance": np.array(tracks, np.int64),
    }


def _place(frame: DrivingFrame) -> str:
    return f"the frame at {frame.time!r} s of the scene {frame.scene!r}"


def _array(value: Any, shape: tuple[int, ...], what: str) -> Float64:
    try:
        given = np.asarray(value)
        array = given.astype(np.float64) if given.dtype.kind in "fiu" else np.full(1, np.nan)
    except (TypeError, ValueError):
        array = np.full(1, np.nan)
    if array.shape != shape or not np.isfinite(array).all():
        kind = f"finite numbers of the shape {shape}" if shape else "a finite number"
        raise SettingError(f"{what} must be {kind}, got {shown(value)}.")
    return array


def _pose(value: Any, what: str) -> Float64:
    if value is None:
        return np.eye(3, 4)
    rows = elements(value)
    pose = _array(value, (3, 4) if rows is None or len(rows) != 4 else (4, 4), what)[:3]
    off = np.abs(pose[:, :3] @ pose[:, :3].T - np.eye(3)).max()
    if off > 1e-3 or np.linalg.det(pose[:, :3]) < 0:
        raise SettingError(f"{what} must be a rotation and a translation, (3, 4), got {shown(pose.tolist())}.")
    return pose
