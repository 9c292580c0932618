# SPDX-License-Identifier: Apache-2.0
"""The index of the frames of an info pickle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import driving_index as tables
from ..driving import poses
from ..driving.array_types import Float64, Int32, Int64
from ..driving.driving_index import DrivingIndex
from ..driving.requested_parts import RequestedParts
from ..driving.scene_parts import Scene, SceneImages, camera_columns
from .box_convention import RawBoxColumns, checked_layout, decoded, is_name_of_vehicle
from .info_files import load_plain_pickle, no_garbage_collected
from .info_forms import ATTRIBUTES, LINE_CATEGORIES, raw_infos_of
from .raw_info import RawBoxes, RawBoxes2d, RawInfo, RawSweep, Sequences, pose_column, sequences_of

_POINT_COLUMNS = ("x", "y", "z", "intensity", "ring")
# Centers of the same object as 2D and as 3D box; float32 at 100 m is exact to 0.01 mm.
_SAME_PLACE_M = 0.01


@attrs.frozen(kw_only=True)
class IndexSettings:
    """What an index of a pickle depends on.

    Attributes:
        boxes_convention: See `box_convention`; None where it was not stated.
        z: See `box_convention`.
        order: See `sequences_of`; None for that of the reference data sets.
        boxes: Whether there are boxes, where the pickle has them.
    """

    boxes_convention: str | None
    z: str
    order: str | None
    boxes: bool


@no_garbage_collected()
def index_of_pickle(path: str, settings: IndexSettings, parts: RequestedParts) -> DrivingIndex:
    """Read a pickle and make its index. Files have the names that they have in the pickle.

    Raises:
        FileError: It cannot be read, or something in it is missing or wrong.
        SettingError: The boxes contradict what was stated of them, or nothing says what their columns are.
    """
    form, names, stored = raw_infos_of(load_plain_pickle(path), path, parts)
    places = [info.place for info in stored]
    world_from_ego = pose_column([info.world_from_ego for info in stored], places, "the pose of the vehicle")
    order = settings.order or ("time" if form == "infos" else "stored")
    sequences = sequences_of(stored, world_from_ego[..., 3], order, path)
    infos = [stored[number] for number in sequences.order]
    maker = _Maker(path, form, names, infos, world_from_ego[sequences.order], sequences, parts)
    return maker.index(settings)


@attrs.define(slots=False)
class _Maker:
    """Makes the columns, of frames in order."""

    _path: str
    _form: str
    _names: Sequence[str]
    _infos: Sequence[RawInfo]
    _world_from_ego: Float64
    _sequences: Sequences
    _parts: RequestedParts

    def __attrs_post_init__(self) -> None:
        self._places = [info.place for info in self._infos]
        self._time = np.array([info.time for info in self._infos], np.float64)
        in_ego = [info.ego_from_base for info in self._infos]
        self._ego_from_base = pose_column(in_ego, self._places, "the pose of the lidar")
        self._world_from_base = poses.joined(self._world_from_ego, self._ego_from_base)
        self._cameras = list(dict.fromkeys(name for info in self._infos for name in info.cameras))

    def index(self, settings: IndexSettings) -> DrivingIndex:
        sequences = self._sequences
        cameras = self._camera_columns() if self._cameras else None
        boxes, categories, layout = self._box_columns(settings) if settings.boxes else (None, (), None)
        boxes_2d = None
        if settings.boxes and cameras is not None:
            with self._parts.reading("boxes_2d"):
                boxes_2d, boxes = self._box_2d_columns(cameras, boxes, categories)
        lines_and_lidar = {**(self._parts.read("map_lines", self._lines) or {})}
        lines_and_lidar |= self._parts.read("lidar", self._lidar) or {}
        origin: dict[str, Any] = {
            "pickle": self._path,
            "form": self._form,
            "order": self._sequences.kind,
            "scenes": sequences.rule,
        }
        if layout is not None:
            origin |= {"boxes_convention": layout, "z": settings.z}
        return DrivingIndex(
            base="lidar",
            frames=tables.FrameColumns(
                scene=tables.names_column(sequences.names),
                first_of_scene=tables.first_column(sequences.lengths),
                token=tables.names_column([info.token for info in self._infos]),
                time=self._time,
                world_from_ego=self._world_from_ego,
                ego_from_base=self._ego_from_base,
                can_bus=self._vectors("can_bus"),
                ego_status=self._vectors("ego_status"),
            ),
            cameras=cameras,
            boxes=boxes,
            boxes_2d=boxes_2d,
            camera_names=self._cameras,
            categories=categories,
            attributes=ATTRIBUTES if boxes is not None and boxes.attribute is not None else (),
            origin=origin,
            **lines_and_lidar,
        )

    def _vectors(self, name: str) -> Float64 | None:
        values = self._parts.read(name, lambda: self._of_all(name, name))
        return None if values is None else np.stack(values)

    def _of_all(self, name: str, what: str) -> list[Any] | None:
        """What all frames have; None where none of them has it, or where it was left out."""
        if {"lines": "map_lines", "lidar_file": "lidar"}.get(name, name) in self._parts.left_out:
            return None
        values = [getattr(info, name) for info in self._infos]
        lacking = [number for number, value in enumerate(values) if value is None]
        if lacking and len(lacking) < len(values):
            raise FileError(
                f"{self._places[lacking[0]]} lacks {what}, as do {len(lacking)} of {len(values)} frames; the "
                f"others have it. All frames or none must have it."
            )
        return None if lacking else values

    # --- cameras and lidar ------------------------------------------------------------------------------

    def _camera_columns(self) -> tables.CameraColumns:
        images: dict[str, SceneImages] = {}
        for name in self._cameras:
            with self._parts.reading(f"cameras/{name}"):
                images[name] = self._images(name)
        frames = Scene(name="", token=(), time=self._time, world_from_ego=self._world_from_ego, images=images)
        return camera_columns([frames], self._time, self._cameras)

    def _images(self, name: str) -> SceneImages:
        rows = [row for row, info in enumerate(self._infos) if name in info.cameras]
        raw = [self._infos[row].cameras[name] for row in rows]
        where = [f"{self._places[row]}, camera {name!r}" for row in rows]
        intrinsics = _matrices([camera.intrinsics for camera in raw], where)
        mounted = pose_column([camera.ego_from_camera for camera in raw], where, "the pose of the camera")
        between = pose_column([camera.pose for camera in raw], where, "the pose between lidar and camera")
        # Frames without an image have the calibration of the next that has one.
        near = np.minimum(np.searchsorted(rows, np.arange(len(self._infos))), len(rows) - 1)
        return SceneImages(
            frames=np.array(rows),
            file=[_name_of_file(camera.file) for camera in raw],
            time=np.array([camera.time for camera in raw], np.float64),
            intrinsics=intrinsics[near],
            camera_from_base=(poses.inverse(between) if self._form == "infos" else between)[near],
            ego_from_camera=mounted[near],
        )

    def _lidar(self) -> dict[str, Any]:
        """One record per file: a keyframe is also a sweep of later frames."""
        files = self._of_all("lidar_file", "the file of the lidar")
        if files is None:
            return {}
        record_of = {str(file): number for number, file in enumerate(files)}
        if len(record_of) < len(files):
            again = next(number for number, file in enumerate(files) if record_of[str(file)] != number)
            what = f"{self._places[again]}: the lidar file {files[again]!r}"
            raise FileError(f"{what} is also that of another frame.")
        names = {str(file).rpartition("/")[2]: number for number, file in enumerate(files)}
        found: dict[str, tuple[RawSweep, str]] = {}
        numbers: list[int] = []
        for sweep, place in ((sweep, info.place) for info in self._infos for sweep in info.sweeps or ()):
            number = names.get(sweep.file.rpartition("/")[2])
            if number is None:
                number = record_of.setdefault(sweep.file, len(files) + len(found))
                found.setdefault(sweep.file, (sweep, place))
            numbers.append(number)
        sweeps, places = [sweep for sweep, _ in found.values()], [place for _, place in found.values()]
        world_from_lidar = poses.joined(
            pose_column([sweep.world_from_ego for sweep in sweeps], places, "the pose of the vehicle of a sweep"),
            pose_column([sweep.ego_from_lidar for sweep in sweeps], places, "the pose of the lidar of a sweep"),
        )
        columns = tables.LidarColumns(
            file=tables.names_column(
                [_name_of_file(str(file)) for file in (*files, *(sweep.file for sweep in sweeps))]
            ),
            time=np.concatenate([self._time, np.array([sweep.time for sweep in sweeps], np.float64)]),
            world_from_lidar=np.concatenate([self._world_from_base, world_from_lidar]),
            of_frame=np.arange(len(files)),
            first_sweep=tables.first_column([len(info.sweeps or ()) for info in self._infos]),
            sweep=np.array(numbers, np.int64),
        )
        widths = {info.num_point_columns or len(_POINT_COLUMNS) for info in self._infos}
        width = widths.pop()
        if widths or not 3 <= width <= len(_POINT_COLUMNS):
            raise FileError(f"{self._path!r}: points must have 3 to 5 values, as many in all frames, got {width}.")
        return {"lidar": columns, "point_columns": _POINT_COLUMNS[:width]}

    # --- boxes ------------------------------------------------------------------------------------------

    def _box_columns(
        self, settings: IndexSettings
    ) -> tuple[tables.BoxColumns | None, tuple[str, ...], str | None]:
        given: list[RawBoxes] | None = self._of_all("boxes", "boxes")
        if given is None:
            return None, (), None
        counts = [len(boxes.boxes) for boxes in given]
        names = [name for boxes in given for name in boxes.names]
        others = {name for name in names if name is not None} - set(self._names)
        categories = (*self._names, *sorted(others))  # those of the converters come first, in their order
        values = np.concatenate([boxes.boxes for boxes in given])
        self._check_boxes(values, counts)
        velocity = np.concatenate(
            [np.full((len(b.boxes), 2), np.nan) if b.velocities is None else b.velocities for b in given]
        )
        instance = _instances_of(given)
        is_vehicle = {name: is_name_of_vehicle(name) for name in set(names)}
        raw = RawBoxColumns(
            values=values,
            frame=np.repeat(np.arange(len(counts)), counts),
            is_vehicle=np.array([is_vehicle[name] for name in names], bool),
            velocity=velocity,
            ego_from_base=self._ego_from_base,
        )
        layout = checked_layout(
            raw,
            settings.boxes_convention,
            settings.z,
            self._path,
            is_data_list=self._form == "data_list" or not sum(counts),
        )
        center, size, yaw = decoded(values, layout, settings.z)
        columns = tables.BoxColumns(
            first=tables.first_column(counts),
            center=center,
            size=size,
            rotation=poses.quaternion_of_yaw(yaw),
            velocity=np.column_stack([velocity, np.where(np.isnan(velocity[:, 0]), np.nan, 0.0)]),
            category=tables.numbers_column(names, categories),
            instance=instance,
            visibility=_joined_numbers(given, "visibilities", 0),
            num_lidar_points=_joined_numbers(given, "num_lidar_points", -1),
            num_radar_points=_joined_numbers(given, "num_radar_points", -1),
        )
        return columns, categories, layout

    def _check_boxes(self, values: Float64, counts: Sequence[int]) -> None:
        is_off = ~np.isfinite(values).all(axis=-1) | (values[:, 3:6] < 0).any(axis=-1)
        if is_off.any():
            row = int(np.argmax(is_off))
            first = tables.first_column(counts)
            frame = int(np.searchsorted(first, row, side="right")) - 1
            raise FileError(
                f"{self._places[frame]}: box {row - first[frame]} must have finite numbers and sizes of at "
                f"least 0, got {values[row].tolist()}."
            )

    def _box_2d_columns(
        self, cameras: tables.CameraColumns, boxes: tables.BoxColumns | None, categories: tuple[str, ...]
    ) -> tuple[tables.Box2dColumns | None, tables.BoxColumns | None]:
        """2D boxes; and the 3D boxes with what only the 2D boxes say of them."""
        of_frames = self._of_all("boxes_2d", "2D boxes")
        if of_frames is None:
            return None, boxes
        images = [of_frame.get(name, _NO_BOXES_2D) for of_frame in of_frames for name in self._cameras]
        counts = [len(image.names) for image in images]
        columns = tables.Box2dColumns(
            first=tables.first_column(counts),
            box=np.concatenate([image.boxes for image in images]),
            center=np.concatenate([image.centers for image in images]),
            depth=np.concatenate([image.depths for image in images]),
            category=tables.numbers_column((name for image in images for name in image.names), categories),
            box_row=np.full(sum(counts), -1, np.int64)
            if boxes is None
            else _rows_of_objects(images, cameras, boxes),
        )
        if boxes is None:
            return columns, None
        num_boxes = len(boxes.category)
        visibility = _told_of_objects(images, columns.box_row, "visibilities", num_boxes, 0)
        attribute = _told_of_objects(images, columns.box_row, "attributes", num_boxes, -1)
        if attribute is not None:
            attribute = np.where(attribute < len(ATTRIBUTES), attribute, -1).astype(np.int32)
        return columns, attrs.evolve(
            boxes, visibility=boxes.visibility if boxes.visibility is not None else visibility, attribute=attribute
        )

    def _lines(self) -> dict[str, Any]:
        of_frames = self._of_all("lines", "map lines")
        if of_frames is None:
            return {}
        lines = [line for of_frame in of_frames for line in of_frame]
        categories = (*LINE_CATEGORIES, *sorted({name for name, _ in lines} - {*LINE_CATEGORIES}))
        columns = tables.LineColumns(
            first=tables.first_column([len(of_frame) for of_frame in of_frames]),
            category=tables.numbers_column((name for name, _ in lines), categories),
            first_point=tables.first_column([len(points) for _, points in lines]),
            point=np.concatenate([np.zeros((0, 2)), *(points for _, points in lines)]),
        )
        return {"lines": columns, "line_categories": categories}


_NO_BOXES_2D = RawBoxes2d(np.zeros((0, 4)), np.zeros((0, 2)), np.zeros(0), ())


def _name_of_file(path: str) -> str:
    """A path with slashes; empty where it names a folder, which is no file."""
    name = path.replace("\\", "/")
    return "" if name.endswith("/") else name


def _matrices(raw: Sequence[Any], places: Sequence[str]) -> Float64:
    """Intrinsics ``(n, 3, 3)``; those of 4 x 4 are cut."""
    matrices = np.zeros((len(raw), 3, 3))
    for row, (value, place) in enumerate(zip(raw, places, strict=True)):
        try:
            matrix = np.asarray(value, np.float64)
        except (ValueError, TypeError, OverflowError):
            matrix = np.zeros(0)
        if matrix.shape not in ((3, 3), (4, 4), (3, 4)) or not np.isfinite(matrix).all():
            raise FileError(f"{place}: intrinsics must be a matrix (3, 3) of finite numbers, got {shown(value)}.")
        matrices[row] = matrix[:3, :3]
    return matrices


def _instances_of(given: Sequence[RawBoxes]) -> Int64 | None:
    if any(boxes.instances is None and len(boxes.boxes) for boxes in given):
        return None
    instances = [one for boxes in given if boxes.instances is not None for one in boxes.instances]
    number_of: dict[str, int] = {}
    numbers = [
        number_of.setdefault(one, len(number_of)) if isinstance(one, str) else int(one) for one in instances
    ]
    return np.array(numbers, np.int64)


def _joined_numbers(given: Sequence[RawBoxes | RawBoxes2d], name: str, unknown: int) -> Int32 | None:
    """What all boxes have of a name; None where those that there are have none."""
    columns = [getattr(boxes, name) for boxes in given]
    if all(column is None for column, boxes in zip(columns, given, strict=True) if boxes.names):
        return None
    parts = [
        np.full(len(boxes.names), unknown) if column is None else column
        for boxes, column in zip(given, columns, strict=True)
    ]
    return np.concatenate(parts).astype(np.int32)


def _rows_of_objects(
    images: Sequence[RawBoxes2d], cameras: tables.CameraColumns, boxes: tables.BoxColumns
) -> Int64:
    """Row of the box that has its center where the object of each 2D box has it; -1 for none, or more than one."""
    num_cameras = cameras.file.shape[1]
    rows = []
    for number, image in enumerate(images):
        found = np.full(len(image.names), -1, np.int64)
        frame, camera = divmod(number, num_cameras)
        first, end = (int(row) for row in boxes.first[frame : frame + 2])
        if len(found) and image.places is not None and end > first:
            centers = poses.moved(cameras.camera_from_base[frame, camera], boxes.center[first:end])
            is_same = np.abs(image.places[:, np.newaxis] - centers).max(axis=-1) < _SAME_PLACE_M
            found = np.where(is_same.sum(axis=1) == 1, first + is_same.argmax(axis=1), -1)
        rows.append(found)
    return np.concatenate(rows)


def _told_of_objects(
    images: Sequence[RawBoxes2d], box_row: Int64, name: str, num_boxes: int, unknown: int
) -> Int32 | None:
    """What 2D boxes say of the objects; None where they say nothing."""
    numbers = _joined_numbers(images, name, unknown)
    if numbers is None:
        return None
    column = np.full(num_boxes, unknown, np.int32)
    is_known = box_row >= 0
    column[box_row[is_known]] = numbers[is_known]
    return column
