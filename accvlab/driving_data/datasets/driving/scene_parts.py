# SPDX-License-Identifier: Apache-2.0
"""Columns of indices: of what each scene has, put together; and 2D boxes, projected from 3D boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.extension import nearest

from . import driving_index as tables
from . import poses
from .array_types import Array, Bool, Float64, Int64
from .driving_index import DrivingIndex, first_column, names_column
from .ego_motion import SmoothTrajectory

WITHOUT_BOXES = "without_boxes"
"""In the origin of an index: scenes that have no boxes at all, where others have."""


@attrs.frozen(eq=False, kw_only=True)
class SceneImages:
    """Images of one camera, at m of the n frames of a scene. See `CameraColumns`.

    Attributes:
        frames: Frames that have an image, ``(m,)``.
        file: ``(m,)``.
        time: ``(m,)``.
        intrinsics: ``(3, 3)``, or ``(n, 3, 3)``.
        camera_from_base: ``(3, 4)``, or ``(n, 3, 4)``.
        ego_from_camera: ``(3, 4)``, or ``(n, 3, 4)``.
        video_frame: ``(m,)``; None where files are no videos.
        row: ``(m,)``; None where files are no tables.
        lens: ``(14,)``, see `LENS`; None where it is not known.
        frame_times: Times of all frames of the video, ``(k,)`` microseconds; None where they are not known.
        image_wh: Width and height that the calibration is for; None where they are not known.
    """

    frames: Int64
    file: Sequence[str]
    time: Float64
    intrinsics: Float64
    camera_from_base: Float64
    ego_from_camera: Float64
    video_frame: Int64 | None = None
    row: Int64 | None = None
    lens: Float64 | None = None
    frame_times: Int64 | None = None
    image_wh: tuple[int, int] | None = None


@attrs.frozen(eq=False, kw_only=True)
class SceneRecords:
    """Lidar records of a scene, by time. See `LidarColumns`.

    Attributes:
        file: ``(r,)``.
        time: ``(r,)``.
        world_from_lidar: ``(r, 3, 4)``.
        of_frame: ``(n,)``, numbers in the scene; -1 for none.
        num_before: Number of records before each frame's own, ``(n,)``.
        row: ``(r,)``; None where files are no tables.
    """

    file: Sequence[str]
    time: Float64
    world_from_lidar: Float64
    of_frame: Int64
    num_before: Int64
    row: Int64 | None = None


@attrs.frozen(eq=False, kw_only=True)
class Scene:
    """What a scene of n frames has. See `FrameColumns`.

    Attributes:
        name: Its name.
        token: ``(n,)``.
        time: ``(n,)``.
        world_from_ego: ``(n, 3, 4)``.
        ego_from_base: ``(3, 4)``.
        can_bus: ``(n, 18)``.
        images: By camera.
        lidar: Its lidar records.
        boxes: Columns of `BoxColumns`, in any order, with the ``frame`` of each box in place of ``first``.
            Velocities are not known where there are none. Categories are numbers, or names.
        motion: How the vehicle moved, by microseconds; of all scenes or none.
        vehicle_size: ``(6,)``; of all scenes or none.
    """

    name: str
    token: Sequence[str]
    time: Float64
    world_from_ego: Float64
    ego_from_base: Float64 = attrs.field(factory=lambda: np.eye(3, 4))
    can_bus: Float64 | None = None
    images: Mapping[str, SceneImages] = attrs.field(factory=dict)
    lidar: SceneRecords | None = None
    boxes: Mapping[str, Array] | None = None
    motion: SmoothTrajectory | None = None
    vehicle_size: Float64 | None = None


def moving_camera(
    ego_from_camera: Float64, has: Int64, world_from_camera: Float64, world_from_ego: Float64
) -> Float64:
    """Poses ``camera_from_base`` of a camera, ``(n, 3, 4)``, where the vehicle is the base.

    Args:
        ego_from_camera: Where it is mounted, ``(3, 4)``.
        has: Frames that have an image, ``(m,)``.
        world_from_camera: Where the camera was at the times of the images, ``(m, 3, 4)``.
        world_from_ego: Where the vehicle was at the times of the frames, ``(n, 3, 4)``.
    """
    camera_from_base = np.broadcast_to(poses.inverse(ego_from_camera), world_from_ego.shape).copy()
    camera_from_base[has] = poses.joined(poses.inverse(world_from_camera), world_from_ego[has])
    return camera_from_base


def image_columns(
    image_times: Int64,
    chosen: Int64,
    world_from_ego: Float64,
    ego: poses.Trajectory | SmoothTrajectory,
    mounted: Float64,
    *,
    per_second: float,
) -> tuple[Int64, dict[str, Any]]:
    """Make the columns of the images of a camera that are chosen for the frames.

    Args:
        image_times: Times of all images of the camera, ``(k,)``.
        chosen: Number of the image of each frame, ``(n,)``; -1 for none.
        world_from_ego: Where the vehicle was at the times of the frames, ``(n, 3, 4)``.
        ego: Where the vehicle was at any time.
        mounted: Where the camera is on the vehicle, ``(3, 4)``.
        per_second: Unit of all times.

    Returns:
        The number of the image of each frame that has one, ``(m,)``, and columns of `SceneImages`.
    """
    has = np.flatnonzero(chosen >= 0)
    taken = image_times[chosen[has]]
    return chosen[has], {
        "frames": has,
        "time": taken / per_second,
        "camera_from_base": moving_camera(mounted, has, poses.joined(ego.at(taken), mounted), world_from_ego),
        "ego_from_camera": mounted,
    }


def images_near(
    image_times: Int64, within: float, frame_times: Int64, *where: Any, per_second: float
) -> tuple[Int64, dict[str, Any]]:
    """As `image_columns`, of the image that is nearest in time to each frame, and not farther than ``within``."""
    chosen = nearest(image_times, frame_times, within)
    return image_columns(image_times, chosen, *where, per_second=per_second)


def sweep_columns(behind: Int64, num_sweeps: Int64) -> tuple[Int64, Int64]:
    """``first_sweep`` and ``sweep`` of `LidarColumns`: so many records before one for each frame."""
    place = tables.rows_from(np.zeros_like(num_sweeps), num_sweeps)
    return first_column(num_sweeps), np.repeat(behind, num_sweeps) - 1 - place


def index_of_scenes(
    scenes: Sequence[Scene], *, base: str, camera_names: Sequence[str], most_sweeps: int = 0, **others: Any
) -> DrivingIndex:
    """Put scenes together.

    Args:
        scenes: The scenes.
        base: As in `DrivingIndex`.
        camera_names: Names of the cameras, in their order.
        most_sweeps: Number of earlier lidar records of each frame at most.
        others: Further columns and names of `DrivingIndex`.
    """
    can_bus = [scene.can_bus for scene in scenes if scene.can_bus is not None]
    vehicle_size = [scene.vehicle_size for scene in scenes if scene.vehicle_size is not None]
    ego_from_base = np.array([scene.ego_from_base for scene in scenes]).reshape(-1, 3, 4)
    counts = np.array([len(scene.time) for scene in scenes], np.int64)
    without_boxes = [scene.name for scene in scenes if not scene.boxes]
    if 0 < len(without_boxes) < len(scenes):
        others["origin"] = {**others.get("origin", {}), WITHOUT_BOXES: without_boxes}
    time = np.concatenate([np.zeros(0), *(scene.time for scene in scenes)])
    return DrivingIndex(
        base=base,
        camera_names=camera_names,
        frames=tables.FrameColumns(
            scene=names_column([scene.name for scene in scenes]),
            first_of_scene=first_column(counts),
            token=names_column([token for scene in scenes for token in scene.token]),
            time=time,
            world_from_ego=np.concatenate([np.zeros((0, 3, 4)), *(scene.world_from_ego for scene in scenes)]),
            ego_from_base=np.repeat(ego_from_base, counts, axis=0),
            can_bus=np.concatenate(can_bus) if len(can_bus) == len(scenes) > 0 else None,
            vehicle_size=np.stack(vehicle_size) if len(vehicle_size) == len(scenes) > 0 else None,
        ),
        cameras=camera_columns(scenes, time, camera_names) if camera_names else None,
        lidar=_lidar(scenes, most_sweeps) if any(scene.lidar for scene in scenes) else None,
        motion=_motion([scene.motion for scene in scenes if scene.motion is not None]),
        **_boxes(scenes, **others),
    )


def camera_columns(scenes: Sequence[Scene], time: Float64, names: Sequence[str]) -> tables.CameraColumns:
    """Put the images of scenes together; ``time`` is that of all frames."""
    shape = (len(time), len(names))
    of_images: dict[str, Any] = {name: np.full(shape, -1, np.int64) for name in ("video_frame", "row")}
    of_images |= {"file": np.full(shape, "", object), "time": np.repeat(time[:, np.newaxis], len(names), axis=1)}
    of_frames: dict[str, Any] = {name: poses.identity(*shape) for name in ("camera_from_base", "ego_from_camera")}
    of_frames["intrinsics"] = np.broadcast_to(np.eye(3), (*shape, 3, 3)).copy()
    first = 0
    for scene in scenes:
        own = slice(first, first + len(scene.time))
        for camera, images in scene.images.items():
            place = names.index(camera)
            rows = {**dict.fromkeys(of_frames, own), **dict.fromkeys(of_images, first + images.frames)}
            for name, column in {**of_frames, **of_images}.items():
                if getattr(images, name) is not None:
                    column[rows[name], place] = getattr(images, name)
        first = own.stop
    columns = {name: of_images[name] for name in ("video_frame", "row") if (of_images[name] >= 0).any()}
    columns["time"] = of_images["time"]
    columns["file"] = names_column(of_images["file"].reshape(-1).tolist()).reshape(shape)

    def of_videos(name: str, unknown: object) -> list[Any]:
        """What each camera has in each scene; none where no camera has it."""
        found = [getattr(scene.images.get(camera), name, None) for scene in scenes for camera in names]
        is_known = any(value is not None for value in found)
        return [unknown if value is None else value for value in found] if is_known else []

    for name, unknown in (
        ("lens", np.full(sum(tables.LENS.values()), np.nan)),
        ("image_wh", np.zeros(2, np.int64)),
    ):
        if values := of_videos(name, unknown):
            columns[name] = np.array(values, unknown.dtype).reshape(len(scenes), len(names), -1)
    if times := of_videos("frame_times", np.zeros(0, np.int64)):
        columns |= {"first_time": first_column([*map(len, times)]), "frame_time": np.concatenate(times)}
    return tables.CameraColumns(**columns, **of_frames)


def _motion(motions: Sequence[SmoothTrajectory]) -> tables.MotionColumns | None:
    if not motions:
        return None
    columns = zip(*(attrs.astuple(motion, recurse=False) for motion in motions), strict=True)
    joined = dict(zip(("time", "quaternion", "position", "slope"), map(np.concatenate, columns), strict=True))
    return tables.MotionColumns(first=first_column([len(motion.times) for motion in motions]), **joined)


def _lidar(scenes: Sequence[Scene], most_sweeps: int) -> tables.LidarColumns:
    lidars = [scene.lidar or _no_records(len(scene.time)) for scene in scenes]
    first_of_scene = first_column([len(lidar.time) for lidar in lidars])[:-1]
    first = np.repeat(first_of_scene, [len(scene.time) for scene in scenes])
    names = ("time", "world_from_lidar", "of_frame", "num_before")
    joined = {name: np.concatenate([getattr(lidar, name) for lidar in lidars]) for name in names}
    num_before, of_frame = joined.pop("num_before"), joined.pop("of_frame")
    first_sweep, sweep = sweep_columns(num_before + first, np.minimum(num_before, most_sweeps))
    rows = [lidar.row for lidar in lidars if lidar.row is not None]
    return tables.LidarColumns(
        file=names_column([file for lidar in lidars for file in lidar.file]),
        of_frame=np.where(of_frame >= 0, of_frame + first, -1),
        first_sweep=first_sweep,
        sweep=sweep,
        row=np.concatenate(rows) if rows else None,
        **joined,
    )


def _no_records(num_frames: int) -> SceneRecords:
    none, before = np.full(num_frames, -1, np.int64), np.zeros(num_frames, np.int64)
    empty = poses.identity(0)
    return SceneRecords(file=(), time=np.zeros(0), world_from_lidar=empty, of_frame=none, num_before=before)


def _boxes(scenes: Sequence[Scene], **others: Any) -> dict[str, Any]:
    """The boxes of all scenes, and the names of categories where those are not given; with the ``others``."""
    first_frame = first_column([len(scene.time) for scene in scenes])
    pairs = [(scene.boxes, first) for scene, first in zip(scenes, first_frame, strict=False) if scene.boxes]
    if not pairs:
        return others
    frame = np.concatenate([boxes["frame"] + first for boxes, first in pairs])
    order = np.argsort(frame, kind="stable")
    names = [name for name in pairs[0][0] if name != "frame"]
    columns = {name: np.concatenate([boxes[name] for boxes, _ in pairs])[order] for name in names}
    columns.setdefault("velocity", np.full((len(columns["center"]), 3), np.nan))
    if columns["category"].dtype.kind == "U":
        others.setdefault("categories", np.unique(columns["category"]).tolist())
        columns["category"] = tables.numbers_column(columns["category"].tolist(), others["categories"])
    counts = np.bincount(frame, minlength=first_frame[-1])
    return {"boxes": tables.BoxColumns(first=first_column(counts), **columns), **others}


# Ahead, left and up, of the corners.
_SIGNS = np.array([(x, y, z) for x in (1, -1) for y in (1, -1) for z in (1, -1)], np.float64)
_FIRST, _SECOND = (np.array(ends) for ends in zip(*combinations(range(8), 2), strict=True))
# Pairs of box and camera that are projected at a time: some kilobytes each.
_PAIRS = 1 << 14


@attrs.frozen(eq=False)
class ProjectedBoxes:
    """What images show of boxes.

    Attributes:
        box: ``x1, y1, x2, y2``, ``(n, 4)``, pixels.
        center: Projection of the center, ``(n, 2)``, pixels.
        depth: Of the center, ``(n,)``.
        is_seen: Whether the center is in front of the camera and the box in the image, ``(n,)``; the others mean
            nothing.
    """

    box: Float64
    center: Float64
    depth: Float64
    is_seen: Bool


def project_boxes(
    center: npt.ArrayLike,
    size: npt.ArrayLike,
    rotation: npt.ArrayLike,
    camera_from_base: Float64,
    intrinsics: Float64,
    image_wh: npt.ArrayLike,
) -> ProjectedBoxes:
    """Project boxes into images, one image for each box.

    As ``get_2d_boxes`` and ``post_process_coords`` of the nuScenes devkit, and the converters made of them: the
    corners in front of the camera are projected; the 2D box is around what the image has of their convex hull.

    Args:
        center: ``(n, 3)``.
        size: Length, width, height, ``(n, 3)``.
        rotation: Quaternions, w first, ``(n, 4)``.
        camera_from_base: ``(n, 3, 4)``.
        intrinsics: ``(n, 3, 3)``.
        image_wh: Width and height, ``(n, 2)``.
    """
    center, wh = np.asarray(center, np.float64), np.asarray(image_wh, np.float64)
    offsets = _SIGNS * np.asarray(size, np.float64)[:, np.newaxis] / 2
    corners = poses.moved(poses.pose_of_quaternion(rotation, center)[:, np.newaxis], offsets)
    points = np.concatenate([corners, center[:, np.newaxis]], axis=1)  # (n, 9, 3)
    in_camera = poses.moved(camera_from_base[:, np.newaxis], points)
    projected = np.einsum("nij,nkj->nki", intrinsics, in_camera)
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = projected[..., :2] / projected[..., 2:]
    is_front = in_camera[:, :8, 2] > 0
    low, high = _cut_hulls(pixels[:, :8], is_front, wh)
    is_seen = (in_camera[:, 8, 2] > 0) & (low < high).all(axis=1)
    return ProjectedBoxes(np.concatenate([low, high], axis=1), pixels[:, 8], in_camera[:, 8, 2], is_seen)


def _cut_hulls(points: Float64, is_used: Bool, wh: Float64) -> tuple[Float64, Float64]:
    """Least and greatest coordinates of what images have of the convex hulls of points, each ``(n, 2)``.

    The corners of what is left of a hull are its own corners in the image, and the ends of what it has of the four
    sides. On the line of a side, the hull is what lies between the outermost crossings of lines between its
    points.
    """
    is_inside = (is_used & ((points >= 0) & (points <= wh[:, np.newaxis])).all(axis=2))[..., np.newaxis]
    low = np.where(is_inside, points, np.inf).min(axis=1)
    high = np.where(is_inside, points, -np.inf).max(axis=1)
    is_chord = is_used[:, _FIRST] & is_used[:, _SECOND]
    first, second = points[:, _FIRST], points[:, _SECOND]  # (n, 28, 2)
    for axis, line in ((0, 0 * wh[:, 0]), (0, wh[:, 0]), (1, 0 * wh[:, 1]), (1, wh[:, 1])):
        along, start, end = 1 - axis, first[..., axis], second[..., axis]
        to_line = line[:, np.newaxis] - start
        crosses = is_chord & (to_line * (line[:, np.newaxis] - end) <= 0) & (start != end)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            at = first[..., along] + to_line / (end - start) * (second[..., along] - first[..., along])
        least = np.maximum(np.where(crosses, at, np.inf).min(axis=1), 0)
        most = np.minimum(np.where(crosses, at, -np.inf).max(axis=1), wh[:, along])
        is_cut = (least <= most)[:, np.newaxis]
        ends = np.stack([[least, most], [line, line]], axis=-1)[..., [along, axis]]  # (2, n, x and y)
        low = np.where(is_cut, np.minimum(low, ends[0]), low)
        high = np.where(is_cut, np.maximum(high, ends[1]), high)
    return low, high


def box2d_columns(boxes: tables.BoxColumns, cameras: tables.CameraColumns, image_wh: Int64) -> tables.Box2dColumns:
    """2D boxes of all boxes in all images of their frame that have a file, of widths and heights ``(F, C, 2)``."""
    num_frames, num_cameras = cameras.time.shape
    frame_of_box = np.repeat(np.arange(num_frames), np.diff(boxes.first))
    is_there = cameras.file != b""
    none = np.zeros(0, np.int64)
    parts: list[tuple[Array, ...]] = [(none, none, np.zeros((0, 4)), np.zeros((0, 2)), np.zeros(0))]
    num_pairs = len(frame_of_box) * num_cameras
    for start in range(0, num_pairs, _PAIRS):
        row, camera = np.divmod(np.arange(start, min(start + _PAIRS, num_pairs)), num_cameras)
        frame = frame_of_box[row]
        depth = np.einsum("ni,ni->n", cameras.camera_from_base[frame, camera, 2, :3], boxes.center[row])
        depth += cameras.camera_from_base[frame, camera, 2, 3]
        kept = np.flatnonzero((depth > 0) & is_there[frame, camera])
        row, camera, frame = row[kept], camera[kept], frame[kept]
        found = project_boxes(
            boxes.center[row],
            boxes.size[row],
            boxes.rotation[row],
            cameras.camera_from_base[frame, camera],
            cameras.intrinsics[frame, camera],
            image_wh[frame, camera],
        )
        seen = found.is_seen
        image = frame * num_cameras + camera
        parts.append((image[seen], row[seen], found.box[seen], found.center[seen], found.depth[seen]))
    image, row, box, center, depth = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(image, kind="stable")
    return tables.Box2dColumns(
        first=first_column(np.bincount(image, minlength=num_frames * num_cameras)),
        box=box[order],
        center=center[order],
        depth=depth[order],
        category=boxes.category[row[order]],
        box_row=row[order],
    )
