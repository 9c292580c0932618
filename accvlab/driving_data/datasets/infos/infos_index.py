# SPDX-License-Identifier: Apache-2.0
"""The index of the frames of an info pickle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import driving_index as tables
from ..driving import poses
from ..driving.array_types import Float64, Int64
from ..driving.driving_index import DrivingIndex
from ..driving.requested_parts import RequestedParts
from ..driving.scene_parts import Scene, SceneImages, camera_columns
from . import info_boxes
from .box_convention import RawBoxColumns, checked_layout, decoded, is_name_of_vehicle
from .info_boxes import RawBoxes, RawBoxes2d
from .info_files import no_garbage_collected, plain_pickle
from .info_forms import InfoPickle, info_pickle
from .info_rows import UNFIT, Rows, stacked
from .info_sequences import GAPS, StoredFrames, sequences_of

_POINT_COLUMNS = ("x", "y", "z", "intensity", "ring")
_SAME_TIME_S = 1e-3


class _FrameOfFile:
    """Finds the keyframe whose lidar file a sweep names, with other folders in front or without."""

    def __init__(self, files: Sequence[str], time: Float64, time_of_sweep: Callable[[int], float]) -> None:
        self._files, self._time, self._time_of_sweep = files, time, time_of_sweep
        self._of_file = {file: number for number, file in enumerate(files)}
        self._of_name: dict[str, list[int]] = {}
        for number, file in enumerate(files):
            self._of_name.setdefault(file.rpartition("/")[2], []).append(number)

    def __call__(self, file: str, sweep: int) -> int | None:
        if file in self._of_file:
            return self._of_file[file]
        found = self._of_name.get(file.rpartition("/")[2], [])
        for number in found:
            known = self._files[number]
            if f"/{file}".endswith(f"/{known}") or f"/{known}".endswith(f"/{file}"):
                return number
        # Folders differ: the same file only if nothing else has its name, and it is of the same time.
        if len(found) != 1 or abs(self._time[found[0]] - self._time_of_sweep(sweep)) >= _SAME_TIME_S:
            return None
        return found[0]


@attrs.frozen(kw_only=True)
class IndexSettings:
    """What an index of a pickle depends on.

    Attributes:
        boxes_convention: See `box_convention`; None where it was not stated.
        z: See `box_convention`.
        order: See `sequences_of`; None for that of the reference data sets.
        boxes: Whether there are boxes, where the pickle has them.
        boxes_2d: Whether 2D boxes are read; without, only what they say of the objects.
        lidar: Whether lidar records are read.
        map_lines: Whether map lines are read.
    """

    boxes_convention: str | None
    z: str
    order: str | None
    boxes: bool
    boxes_2d: bool
    lidar: bool
    map_lines: bool


@attrs.frozen(kw_only=True)
class _Form:
    """Where a form of pickles has what both have.

    Attributes:
        cameras: Key of the images.
        sweeps: Key of the lidar records before the frame.
        per_second: Unit of times.
        has_matrices: Whether poses are matrices (4, 4); else a rotation and a translation.
        image: Key of the file of an image.
        intrinsics: Usual key of the intrinsics of a camera.
        mounted: Key of the pose of a camera on the vehicle.
        mounted_lidar: Key of the pose of the lidar on the vehicle, of records before the frame.
        pose: Key of the pose between the lidar and the camera.
        is_base_from_camera: Whether ``pose`` is that of the camera in the coordinates of the lidar.
        boxes: Reads the boxes.
        boxes_2d: Reads the 2D boxes.
    """

    cameras: str
    sweeps: str
    per_second: float
    has_matrices: bool
    image: str
    intrinsics: str
    mounted: str
    mounted_lidar: str
    pose: str
    is_base_from_camera: bool
    boxes: Callable[[Rows, Sequence[str]], RawBoxes | None]
    boxes_2d: Callable[..., RawBoxes2d | None]


_FORMS = {
    "infos": _Form(
        cameras="cams",
        sweeps="sweeps",
        per_second=1e6,
        has_matrices=False,
        image="data_path",
        intrinsics="cam_intrinsic",
        mounted="sensor2ego",
        mounted_lidar="sensor2ego",
        pose="sensor2lidar",
        is_base_from_camera=True,
        boxes=info_boxes.boxes_of_infos,
        boxes_2d=info_boxes.boxes_2d_of_infos,
    ),
    "data_list": _Form(
        cameras="images",
        sweeps="lidar_sweeps",
        per_second=1.0,
        has_matrices=True,
        image="img_path",
        intrinsics="cam2img",
        mounted="cam2ego",
        mounted_lidar="lidar2ego",
        pose="lidar2cam",
        is_base_from_camera=False,
        boxes=info_boxes.boxes_of_data_list,
        boxes_2d=info_boxes.boxes_2d_of_data_list,
    ),
}


@no_garbage_collected()
def index_of_pickle(path: str, settings: IndexSettings, parts: RequestedParts) -> DrivingIndex:
    """Read a pickle and make its index. Files have the names that they have in the pickle.

    Raises:
        FileError: It cannot be read, or something in it is missing or wrong.
        SettingError: The boxes contradict what was stated of them, or nothing says what their columns are.
    """
    with plain_pickle(path) as content:
        return _Maker(info_pickle(content, path), settings, parts).index()


@attrs.define(slots=False, eq=False)
class _Maker:
    """Makes the columns of the frames of a pickle."""

    _pickle: InfoPickle
    _settings: IndexSettings
    _parts: RequestedParts

    def __attrs_post_init__(self) -> None:
        """Order the frames."""
        self._form, pickle = _FORMS[self._pickle.form], self._of_scenes(self._pickle)
        stored = pickle.frames
        time = stored.times() / self._form.per_second
        world_from_ego = self._poses(stored, "ego2global", "the pose of the vehicle")
        numbers = stored.find("frame_idx")
        self._sequences = sequences_of(
            StoredFrames(
                path=pickle.path,
                token=pickle.tokens,
                time=time,
                position=world_from_ego[..., 3],
                scene=[None if one is None else str(one) for one in stored.find(*_SCENE)],
                number=np.array(stored.each(numbers, lambda one: np.nan if one is None else float(int(one)))),
                previous=[one if isinstance(one, str) else None for one in stored.find("prev_token", "prev")],
                has_sweeps=np.array([bool(one) for one in stored.find(self._form.sweeps)]),
            ),
            self._settings.order or ("time" if pickle.form == "infos" else "stored"),
        )
        if self._parts.scenes is not None:
            self._sequences = self._sequences.taken(self._parts.of_scenes(self._sequences.names))
        order = self._sequences.order
        self._frames, self._tokens = stored.taken(order), [pickle.tokens[number] for number in order]
        self._time, self._world_from_ego = time[order], world_from_ego[order]
        # Of a data_list, the lidar has a dict of its own; its pose may also be in that of the frame.
        self._points = self._frames.dicts("lidar_points", may_lack=True)
        frames = self._frames
        if self._form.has_matrices:
            own = zip(self._points.find("lidar2ego"), frames.values, strict=True)
            values = [row if pose is None else {"lidar2ego": pose} for pose, row in own]
            frames = Rows(values, frames.place)
        self._ego_from_base = self._poses(frames, "lidar2ego", "the pose of the lidar")
        self._world_from_base = poses.joined(self._world_from_ego, self._ego_from_base)
        self._cams = self._frames.dicts(self._form.cameras, may_lack=True)
        self._cameras = [str(name) for name in dict.fromkeys(chain.from_iterable(self._cams.values))]

    def _of_scenes(self, pickle: InfoPickle) -> InfoPickle:
        """The frames of the only scenes to read, where each frame says its scene; else all frames."""
        if self._parts.scenes is None:
            return pickle
        names = [None if one is None else str(one) for one in pickle.frames.find(*_SCENE)]
        if None in names:
            return pickle
        kept = self._parts.of_scenes([str(name) for name in names])
        return attrs.evolve(pickle, frames=pickle.frames.taken(kept), tokens=[pickle.tokens[row] for row in kept])

    def _poses(self, rows: Rows, name: str, what: str) -> Float64:
        return rows.poses(name, what, are_matrices=self._form.has_matrices)

    def index(self) -> DrivingIndex:
        """Make the index."""
        sequences, settings, parts = self._sequences, self._settings, self._parts
        cameras = self._camera_columns() if self._cameras else None
        others = info_boxes.map_lines(self._frames) if settings.map_lines else {}
        others |= self._lidar() if settings.lidar else {}
        columns: dict[str, Any] = parts.read("boxes", self._boxes) or {} if settings.boxes else {}
        origin: dict[str, Any] = {
            "pickle": self._pickle.path,
            "form": self._pickle.form,
            "order": sequences.kind,
            "scenes": sequences.rule,
            GAPS: sequences.gaps,
            **columns.pop("origin", {}),
        }
        if settings.boxes and cameras is not None:
            with parts.reading("boxes_2d"):
                columns |= self._boxes_2d(cameras, columns.get("boxes"))
        return DrivingIndex(
            base="lidar",
            frames=tables.FrameColumns(
                scene=tables.names_column(sequences.names),
                first_of_scene=tables.first_column(sequences.lengths),
                token=tables.names_column(self._tokens),
                time=self._time,
                world_from_ego=self._world_from_ego,
                ego_from_base=self._ego_from_base,
                can_bus=parts.read("can_bus", lambda: self._vectors("can_bus", 18)),
                ego_status=parts.read("ego_status", lambda: self._vectors("ego_status", 10)),
            ),
            cameras=cameras,
            camera_names=self._cameras,
            origin=origin,
            **columns,
            **others,
        )

    def _vectors(self, name: str, size: int) -> Float64 | None:
        values = self._frames.all_or_none(self._frames.find(name), name)
        return None if values is None else self._frames.array(name, size, values=values)

    # --- cameras and lidar ------------------------------------------------------------------------------

    def _camera_columns(self) -> tables.CameraColumns:
        images: dict[str, SceneImages] = {}
        for name in self._cameras:
            with self._parts.reading(f"cameras/{name}"):
                images[name] = self._images(name)
        frames = Scene(name="", token=(), time=self._time, world_from_ego=self._world_from_ego, images=images)
        return camera_columns([frames], self._time, self._cameras)

    def _images(self, name: str) -> SceneImages:
        form, has = self._form, np.arange(len(self._cams))
        if type(None) in {*map(type, self._cams.find(name))}:
            has = np.array([row for row, cams in enumerate(self._cams.values) if name in cams])
        images = self._cams.taken(has.tolist()).dicts(name)
        kinds = ("",) if form.has_matrices else ("_rotation", "_translation")
        images.fetch(
            form.image, "timestamp", *(pose + kind for pose in (form.mounted, form.pose) for kind in kinds)
        )
        stamps = images.find("timestamp")
        if form.has_matrices:  # where an image has no time, it is that of the frame
            frames = self._frames.taken(has.tolist()).need("timestamp")
            stamps = [frame if own is None else own for own, frame in zip(stamps, frames, strict=True)]
        intrinsics = _matrices(images, form.intrinsics, "cam_intrinsic", "camera_intrinsics", "cam2img")
        mounted = self._poses(images, form.mounted, "the pose of the camera")
        between = self._poses(images, form.pose, "the pose between lidar and camera")
        # Frames without an image have the calibration of the next that has one.
        near = np.minimum(np.searchsorted(has, np.arange(len(self._frames))), len(has) - 1)
        prefix = self._pickle.prefixes.get(name, "")
        return SceneImages(
            frames=has,
            file=_names_of_files(prefix, images.texts(form.image)),
            time=images.times(stamps if form.has_matrices else None) / form.per_second,
            intrinsics=intrinsics[near],
            camera_from_base=(poses.inverse(between) if form.is_base_from_camera else between)[near],
            ego_from_camera=mounted[near],
        )

    def _lidar(self) -> dict[str, Any]:
        """One record per file: a keyframe is also a sweep of later frames."""
        frames, form = self._frames, self._form
        own = self._points if form.has_matrices else frames
        prefix = self._pickle.prefixes.get("pts", "") if form.has_matrices else ""
        every, num_sweeps = frames.flattened(frames.find(form.sweeps), form.sweeps)
        points = every.dicts("lidar_points") if form.has_matrices else every
        sweep_files = points.texts("lidar_path" if form.has_matrices else "data_path")
        given = frames.all_or_none(own.find("lidar_path"), "the file of the lidar")
        if given is None:
            return {}
        files = [prefix + str(file) for file in given]
        record_of = {file: number for number, file in enumerate(files)}
        if len(record_of) < len(files):
            again = next(number for number, file in enumerate(files) if record_of[file] != number)
            what = f"{frames.place(again)}: the lidar file {files[again]!r}"
            raise FileError(f"{what} is also that of another frame.")
        frame_of = _FrameOfFile(
            files, self._time, lambda sweep: float(every.taken([sweep]).times()[0]) / form.per_second
        )
        others: dict[str, int] = {}  # the first sweep of each further file
        numbers = []
        for sweep, file in enumerate(sweep_files):
            number = frame_of(file, sweep)
            if number is None:
                number = record_of.setdefault(file, len(record_of))
                others.setdefault(file, sweep)
            numbers.append(number)
        found = [*others.values()]
        sweeps, points = every.taken(found), points.taken(found)
        world_from_lidar = poses.joined(
            self._poses(sweeps, "ego2global", "the pose of the vehicle of a sweep"),
            self._poses(points, form.mounted_lidar, "the pose of the lidar of a sweep"),
        )
        columns = tables.LidarColumns(
            file=tables.names_column(_names_of_files("", [*record_of])),
            time=np.concatenate([self._time, sweeps.times() / form.per_second]),
            world_from_lidar=np.concatenate([self._world_from_base, world_from_lidar]),
            of_frame=np.arange(len(files)),
            first_sweep=tables.first_column(num_sweeps),
            sweep=np.array(numbers, np.int64),
        )
        widths = {width or len(_POINT_COLUMNS) for width in self._points.find("num_pts_feats")}
        width = widths.pop()
        if widths or not 3 <= width <= len(_POINT_COLUMNS):
            raise FileError(
                f"{self._pickle.path!r}: points must have 3 to 5 values, as many in all frames, got {width}."
            )
        return {"lidar": columns, "point_columns": _POINT_COLUMNS[:width]}

    # --- boxes ------------------------------------------------------------------------------------------

    def _boxes(self) -> dict[str, Any]:
        raw, settings = self._form.boxes(self._frames, self._pickle.categories), self._settings
        if raw is None:
            return {}
        self._check_boxes(raw)
        is_vehicle = np.array([*map(is_name_of_vehicle, raw.categories), False])
        columns = RawBoxColumns(
            values=raw.values,
            frame=np.repeat(np.arange(len(raw.counts)), raw.counts),
            is_vehicle=is_vehicle[raw.category],
            velocity=raw.velocity,
            ego_from_base=self._ego_from_base,
        )
        is_stated = self._pickle.form == "data_list" or not len(raw.values)
        convention, z = settings.boxes_convention, settings.z
        layout = checked_layout(columns, convention, z, self._pickle.path, is_data_list=is_stated)
        center, size, yaw = decoded(raw.values, layout, z)
        boxes = tables.BoxColumns(
            first=tables.first_column(raw.counts),
            center=center,
            size=size,
            rotation=poses.quaternion_of_yaw(yaw),
            velocity=np.column_stack([raw.velocity, np.where(np.isnan(raw.velocity[:, 0]), np.nan, 0.0)]),
            category=raw.category,
            instance=raw.instance,
            visibility=raw.visibility,
            num_lidar_points=raw.num_lidar_points,
            num_radar_points=raw.num_radar_points,
        )
        return {
            "boxes": boxes,
            "categories": raw.categories,
            "origin": {"boxes_convention": layout, "z": z},
        }

    def _check_boxes(self, raw: RawBoxes) -> None:
        is_right = np.isfinite(raw.values)
        is_right[:, 3:6] &= raw.values[:, 3:6] >= 0
        if not is_right.all():
            is_off = ~is_right.all(axis=-1)
            row = int(np.argmax(is_off))
            first = tables.first_column(raw.counts)
            frame = int(np.searchsorted(first, row, side="right")) - 1
            raise FileError(
                f"{self._frames.place(frame)}: box {row - first[frame]} must have finite numbers and sizes of at "
                f"least 0, got {raw.values[row].tolist()}."
            )

    def _boxes_2d(self, cameras: tables.CameraColumns, boxes: tables.BoxColumns | None) -> dict[str, Any]:
        """2D boxes; and the 3D boxes with what only the 2D boxes say of them."""
        known, only_objects = self._pickle.categories, not self._settings.boxes_2d
        raw = self._form.boxes_2d(self._frames, self._cameras, known, only_objects=only_objects)
        if raw is None:
            return {}
        box_row: Int64 = np.full(len(raw.place), -1, np.int64)
        found: dict[str, Any] = {}
        if boxes is not None:
            camera_from_base = cameras.camera_from_base.reshape(-1, 3, 4)
            box_row = info_boxes.rows_of_objects(raw, camera_from_base, boxes.first, boxes.center)
            attributes, num_boxes = info_boxes.ATTRIBUTES, len(boxes.category)
            visibility = info_boxes.told_of_objects(raw.visibility, box_row, num_boxes, 0)
            attribute = info_boxes.told_of_objects(raw.attribute, box_row, num_boxes, -1)
            if attribute is not None:
                attribute = np.where(attribute < len(attributes), attribute, -1).astype(np.int32)
                found["attributes"] = attributes
            visibility = visibility if boxes.visibility is None else boxes.visibility
            found["boxes"] = attrs.evolve(boxes, visibility=visibility, attribute=attribute)
        if raw.columns is not None:
            first = tables.first_column(raw.counts)
            found["boxes_2d"] = tables.Box2dColumns(first=first, box_row=box_row, **raw.columns)
        return found if boxes is not None else {**found, "categories": known}


_INTRINSICS = ": intrinsics must be a matrix (3, 3) of finite numbers"
_SCENE = ("scene_token", "scene_name", "scene_id")


def _names_of_files(prefix: str, files: list[str]) -> list[str]:
    """Paths with slashes; empty where one names a folder, which is no file."""
    names = [prefix + file for file in files] if prefix else files
    if "\\" in "".join(names):
        names = [name.replace("\\", "/") for name in names]
    if "/\0" in "\0".join([*names, ""]):
        names = ["" if name.endswith("/") else name for name in names]
    return names


def _matrices(images: Rows, *names: str) -> Float64:
    """Intrinsics ``(n, 3, 3)``; those of 4 x 4 are cut."""
    values = images.need(*names)
    try:
        matrices = stacked(values, (3, 3))
    except UNFIT:
        matrices = np.zeros(0)
    if matrices.shape != (len(values), 3, 3):
        given = images.each(values, np.shape)
        for row, (value, shape) in enumerate(zip(values, given, strict=True)):
            if shape not in ((3, 3), (4, 4), (3, 4)):
                raise FileError(f"{images.place(row)}{_INTRINSICS}, got {shown(value)}.")
        matrices = images.array(names[0], 3, 3, values=[np.asarray(value)[:3, :3] for value in values])
    images.refuse(np.asarray(~np.isfinite(matrices).all(axis=(1, 2))), _INTRINSICS, values)
    return matrices
