# SPDX-License-Identifier: Apache-2.0
"""The index of a driving data set: everything but pixels and points, as arrays that several processes map.

Letters in shapes: S scenes, F frames, C cameras, I images (frames times cameras), V videos (scenes times
cameras), T frames of all videos, E known places of the vehicle in all scenes, R lidar records, K sweeps of all
frames, N boxes of all frames, M 2D boxes of all images, L map lines of all frames, P points of all lines. A
column whose name starts with ``first`` says where the elements of each frame (scene, image, line) begin in the
columns that have one row per element; its last entry is where the last of them end.

Poses are ``(..., 3, 4)``, see `poses`. The *base* is the frame of reference of all geometry of a frame: the lidar
at the frame's time, or the vehicle where there is no lidar. Lengths are meters, times seconds, angles radians. The
vehicle, ``ego``, has x ahead, y to the left, z up; cameras have x to the right, y down, z ahead.
"""

from __future__ import annotations

import functools
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import bullets, choice, file_path, instance
from accvlab.dali_pipeline_framework.errors import SettingError, file_error
from accvlab.dali_pipeline_framework.extension import StoredFile
from accvlab.dali_pipeline_framework.providers import Columns, load_or_make

from .array_types import Array, Bool, Float64, Int32, Int64, Names
from .ego_motion import SmoothTrajectory

_KIND = "index of driving data"


@attrs.frozen(eq=False, kw_only=True)
class FrameColumns:
    """Frames, scene by scene, by time.

    Attributes:
        scene: Name of each scene.
        first_of_scene: First frame of each scene.
        token: Name of each frame in its data set.
        time: When the frame was taken.
        world_from_ego: Pose of the vehicle at that time.
        ego_from_base: Pose of the base on the vehicle.
        can_bus: BEVFormer's 18 CAN-bus values: position, orientation, acceleration, rotation rate, velocity,
            heading.
        ego_status: SparseDrive's 10 values: acceleration, rotation rate, velocity, steering angle.
        motion: Velocity, m/s, and acceleration, m/s^2, of the vehicle, each along its x and y.
        driving_command: Direction to go, one-hot: left, straight, right, unknown.
        has_route: Whether the data set has a route for the frame.
        vehicle_size: Size of the vehicle of each scene: length, width, height, rear axle to center, wheelbase,
            track.
    """

    scene: Annotated[Names, "S"]
    first_of_scene: Annotated[Int64, "S+1", "F"]
    token: Annotated[Names, "F"]
    time: Annotated[Float64, "F"]
    world_from_ego: Annotated[Float64, "F 3 4"]
    ego_from_base: Annotated[Float64, "F 3 4"]
    can_bus: Annotated[Float64, "F 18"] | None = None
    ego_status: Annotated[Float64, "F 10"] | None = None
    motion: Annotated[Float64, "F 4"] | None = None
    driving_command: Annotated[Int64, "F 4"] | None = None
    has_route: Annotated[Bool, "F"] | None = None
    vehicle_size: Annotated[Float64, "S 6"] | None = None


@attrs.frozen(eq=False, kw_only=True)
class CameraColumns:
    """Images of the cameras.

    Attributes:
        file: File of each image, relative to the root of the data; empty where there is none.
        time: When each image was taken.
        intrinsics: Camera coordinates to pixels times depth.
        camera_from_base: The base at the frame's time in coordinates of the camera at the image's time: the motion
            of the vehicle between the two is contained.
        ego_from_camera: Pose of the camera on the vehicle.
        video_frame: Number of the image in ``file``, if that is a video; else -1.
        row: Row of the image in ``file``, if that is a table; else -1.
        distortion: Coefficients of OpenCV's model: k1, k2, p1, p2, k3.
        lens: F-theta model of each camera in each scene: the values of ``lens`` in samples, in their order.
        first_time: First entry in ``frame_time`` of each video, scene by scene, camera by camera.
        frame_time: Times of all frames of the videos, by their number, microseconds.
        image_wh: Width and height of the images that the calibration of each camera in each scene is for; 0 where
            unknown.
    """

    file: Annotated[Names, "F C"]
    time: Annotated[Float64, "F C"]
    intrinsics: Annotated[Float64, "F C 3 3"]
    camera_from_base: Annotated[Float64, "F C 3 4"]
    ego_from_camera: Annotated[Float64, "F C 3 4"]
    video_frame: Annotated[Int64, "F C"] | None = None
    row: Annotated[Int64, "F C"] | None = None
    distortion: Annotated[Float64, "F C 5"] | None = None
    lens: Annotated[Float64, "S C 14"] | None = None
    first_time: Annotated[Int64, "V+1", "T"] | None = None
    frame_time: Annotated[Int64, "T"] | None = None
    image_wh: Annotated[Int64, "S C 2"] | None = None


LENS = {"image_wh": 2, "center": 2, "backward": 5, "forward": 5}
"""Numbers of an f-theta lens: width and height; pixel of the axis; polynomials of pixels to radians, and back."""


@attrs.frozen(eq=False, kw_only=True)
class MotionColumns:
    """How the vehicle moved in each scene, as the columns of a `SmoothTrajectory`.

    Attributes:
        first: First known place of each scene.
        time: Microseconds, on the clock of the frames; they ascend in each scene.
        quaternion: See `SmoothTrajectory`.
        position: In the world.
        slope: Meters per microsecond.
    """

    first: Annotated[Int64, "S+1", "E"]
    time: Annotated[Int64, "E"]
    quaternion: Annotated[Float64, "E 4"]
    position: Annotated[Float64, "E 3"]
    slope: Annotated[Float64, "E 3"]

    def of_scene(self, scene: int) -> SmoothTrajectory:
        """The motion in a scene."""
        rows = slice(*self.first[scene : scene + 2].tolist())
        return SmoothTrajectory(self.time[rows], self.quaternion[rows], self.position[rows], self.slope[rows])


@attrs.frozen(eq=False, kw_only=True)
class LidarColumns:
    """Lidar records, keyframes and sweeps.

    Attributes:
        file: File of each record, relative to the root of the data.
        time: When it was taken.
        world_from_lidar: Pose of the sensor at that time.
        of_frame: The record of each frame; -1 for none.
        first_sweep: First entry of each frame in ``sweep``.
        sweep: Earlier records of each frame, the newest first.
        row: Row of each record in ``file``, where that is a table.
    """

    file: Annotated[Names, "R"]
    time: Annotated[Float64, "R"]
    world_from_lidar: Annotated[Float64, "R 3 4"]
    of_frame: Annotated[Int64, "F"]
    first_sweep: Annotated[Int64, "F+1", "K"]
    sweep: Annotated[Int64, "K"]
    row: Annotated[Int64, "R"] | None = None


@attrs.frozen(eq=False, kw_only=True)
class BoxColumns:
    """3D boxes of objects.

    Attributes:
        first: First box of each frame.
        center: Centers, in the base.
        size: Length, width, height.
        rotation: Quaternions, w first, from box to base; the length is along x of the box.
        velocity: Over ground, in the base, m/s; NaN where unknown.
        category: Number of the category; -1 for none.
        instance: Number of the object, the same in all frames of a scene; -1 where unknown.
        attribute: Number of the attribute; -1 for none.
        visibility: 1 to 4: up to 40, 60, 80, 100 % visible; 0 where unknown.
        num_lidar_points: In the box; -1 where unknown.
        num_radar_points: In the box; -1 where unknown.
    """

    first: Annotated[Int64, "F+1", "N"]
    center: Annotated[Float64, "N 3"]
    size: Annotated[Float64, "N 3"]
    rotation: Annotated[Float64, "N 4"]
    velocity: Annotated[Float64, "N 3"]
    category: Annotated[Int32, "N"]
    instance: Annotated[Int64, "N"] | None = None
    attribute: Annotated[Int32, "N"] | None = None
    visibility: Annotated[Int32, "N"] | None = None
    num_lidar_points: Annotated[Int32, "N"] | None = None
    num_radar_points: Annotated[Int32, "N"] | None = None


@attrs.frozen(eq=False, kw_only=True)
class Box2dColumns:
    """2D boxes of objects in images.

    Attributes:
        first: First box of each image; images are counted frame by frame, camera by camera.
        box: ``x1, y1, x2, y2``, pixels.
        center: Projection of the center of the object, pixels.
        depth: Depth of the center.
        category: Number in ``box2d_categories``, or in ``categories`` if those are empty; -1 for none.
        box_row: Row of the object in the columns of boxes; -1 where unknown.
    """

    first: Annotated[Int64, "I+1", "M"]
    box: Annotated[Float64, "M 4"]
    center: Annotated[Float64, "M 2"]
    depth: Annotated[Float64, "M"]
    category: Annotated[Int32, "M"]
    box_row: Annotated[Int64, "M"]


@attrs.frozen(eq=False, kw_only=True)
class LineColumns:
    """Lines of a map around each frame; the last point of a closed line is its first.

    Attributes:
        first: First line of each frame.
        category: Number in ``line_categories``.
        first_point: First point of each line.
        point: Points, in the base.
    """

    first: Annotated[Int64, "F+1", "L"]
    category: Annotated[Int32, "L"]
    first_point: Annotated[Int64, "L+1", "P"]
    point: Annotated[Float64, "P 2"]


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@attrs.frozen(eq=False, kw_only=True, repr=False)
class DrivingIndex:
    """Frames, cameras, lidar and boxes of a data set; tables that it does not have are None.

    Attributes:
        base: Coordinate frame in which the data set states boxes and extrinsics, ``"lidar"`` or ``"ego"``.
        frames: Table of the frames.
        cameras: Table of the images of the cameras.
        lidar: Table of the lidar records.
        boxes: Table of the 3D boxes.
        boxes_2d: Table of the 2D boxes of the images.
        lines: Table of the map lines around the frames.
        motion: Table of the motion of the vehicle in each scene.
        camera_names: Names of the cameras.
        categories: Names of the categories of boxes, by number.
        attributes: Names of the attributes of boxes, by number.
        box2d_categories: Names of the categories of 2D boxes, by number; the order may differ from ``categories``.
        line_categories: Names of the categories of map lines, by number.
        point_columns: Names of the columns of lidar points: ``"x", "y", "z", "intensity", ...``.
        origin: Source of the index, and how it was made: any values for JSON.
        folder: The folder from which `open` mapped it; None for an index that was made in this process.
    """

    base: str
    frames: FrameColumns
    cameras: CameraColumns | None = None
    lidar: LidarColumns | None = None
    boxes: BoxColumns | None = None
    boxes_2d: Box2dColumns | None = None
    lines: LineColumns | None = None
    motion: MotionColumns | None = None
    camera_names: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    categories: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    attributes: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    box2d_categories: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    line_categories: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    point_columns: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    origin: Mapping[str, Any] = attrs.field(factory=dict)
    folder: str | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Check that the columns go together."""
        choice(self.base, "base", ("lidar", "ego"))
        for name, table_class in _TABLES.items():
            if name == "frames" or getattr(self, name) is not None:
                instance(getattr(self, name), name, table_class)
        problems = self._column_problems() or self._category_problems()
        if problems:
            raise SettingError(f"The columns of the index do not go together:\n{bullets(problems)}")

    def _column_problems(self) -> list[str]:
        num_cameras, lengths = len(self.camera_names), {}
        if isinstance(self.frames.time, np.ndarray) and self.frames.time.ndim:
            num_frames = len(self.frames.time)
            lengths = {"F": num_frames, "C": num_cameras, "I": num_frames * num_cameras}
        problems = []
        for table_name, table_class in _TABLES.items():
            table = getattr(self, table_name)
            for name, column in _columns(table_class).items() if table is not None else ():
                values = getattr(table, name)
                if values is not None or column.is_required:
                    problems += _problems_of(f"{table_name}.{name}", values, column, lengths)
        return problems

    def _category_problems(self) -> list[str]:
        """Numbers of categories that have no name."""
        of_2d = "box2d_categories" if self.box2d_categories else "categories"
        problems = []
        for table, names in (("boxes", "categories"), ("boxes_2d", of_2d), ("lines", "line_categories")):
            category, most = getattr(getattr(self, table), "category", np.zeros(0)), len(getattr(self, names)) - 1
            wrong = np.flatnonzero((category < -1) | (category > most))
            if len(wrong):
                problems.append(
                    f"{table}.category: must be in [-1, {most}], as `{names}` has {most + 1} names, got "
                    f"{category[wrong[0]]} in row {wrong[0]}"
                )
        return problems

    def __repr__(self) -> str:
        """Summarise what there is."""
        there = [name for name in _TABLES if name not in ("frames", "cameras") and getattr(self, name) is not None]
        return (
            f"DrivingIndex({self.num_frames} frames in {len(self.frames.scene)} scene(s), "
            f"{len(self.camera_names)} camera(s), {', '.join(there) or 'no boxes'}, base: {self.base})"
        )

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.frames.time)

    def scene_of(self, frame: int) -> int:
        """Number of the scene of a frame."""
        return int(np.searchsorted(self.frames.first_of_scene, frame, side="right")) - 1

    # --- files ------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a folder, see `Columns`.

        Raises:
            FileError: The folder cannot be written.
        """
        self.columns().save(folder)

    def columns(self) -> Columns:
        """Get the columns that `save` writes."""
        arrays = {
            f"{name}.{column}": values
            for name in _TABLES
            if (table := getattr(self, name)) is not None
            for column, values in attrs.asdict(table, recurse=False).items()
            if values is not None
        }
        names = {field.name for field in attrs.fields(DrivingIndex) if field.init}.difference(_TABLES)
        return Columns(_KIND, arrays, {name: getattr(self, name) for name in sorted(names)})

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> DrivingIndex:
        """Map an index that `save` has written: only used parts are read, and processes share them.

        Raises:
            FileError: There is no index of this version, or it is damaged.
        """
        columns = Columns.open(folder, _KIND)
        tables: dict[str, dict[str, Any]] = {}
        for name, array in columns.arrays.items():
            table, _, column = name.partition(".")
            tables.setdefault(table, {})[column] = array
        try:
            index = cls(**columns.notes, **{name: _TABLES[name](**table) for name, table in tables.items()})
        except (KeyError, TypeError, SettingError) as error:
            raise file_error(f"{os.fspath(folder)!r} is no {_KIND} that can be used", error) from error
        object.__setattr__(index, "folder", columns.folder)
        return index


_TABLES: dict[str, Any] = {
    "frames": FrameColumns,
    "cameras": CameraColumns,
    "lidar": LidarColumns,
    "boxes": BoxColumns,
    "boxes_2d": Box2dColumns,
    "lines": LineColumns,
    "motion": MotionColumns,
}


@attrs.frozen
class _Column:
    """What the annotation of a column says.

    Attributes:
        dtype: Type.
        shape: Letters and numbers of the shape.
        elements: Letter of the elements, of a column that says where they begin.
        is_required: Whether each table of the kind has it.
    """

    dtype: Any
    shape: tuple[str, ...]
    elements: str | None
    is_required: bool


@functools.cache
def _columns(table: type[object]) -> dict[str, _Column]:
    columns = {}
    for name, hint in typing.get_type_hints(table, include_extras=True).items():
        is_required = hasattr(hint, "__metadata__")
        annotated = hint if is_required else typing.get_args(hint)[0]
        shape, *elements = annotated.__metadata__
        dtype = typing.get_args(annotated.__origin__)[-1]  # before NumPy 2.5 `np.dtype` of it
        dtype = (typing.get_args(dtype) or (dtype,))[0]
        columns[name] = _Column(dtype, tuple(shape.split()), elements[0] if elements else None, is_required)
    return columns


def names_column(values: Sequence[str | bytes]) -> Names:
    """Make a column of names, ``(n,)`` bytes."""
    names = [os.fsencode(value) for value in values]
    return np.array(names, np.bytes_) if names else np.zeros(0, "S1")


def numbers_column(names: Iterable[str | None], known: Sequence[str]) -> Int32:
    """Make a column of the places of names among those that are known, ``(n,)``; -1 for others."""
    number_of: dict[str | None, int] = {name: number for number, name in enumerate(known)}
    return np.array([number_of.get(name, -1) for name in names], np.int32)


def first_column(counts: npt.ArrayLike) -> Int64:
    """Make a ``first`` column ``(n + 1,)``, the row where each item's elements begin, from counts ``(n,)``."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]).astype(np.int64)


def rows_from(first: Int64, counts: Int64) -> Int64:
    """Make numbers that count up from each first one: of ``[5, 0]`` and the counts ``[2, 3]``, 5, 6, 0, 1, 2."""
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def _problems_of(name: str, values: Array, column: _Column, lengths: dict[str, int]) -> list[str]:
    """What is wrong with a column; ``lengths``, by letter, are completed by it."""
    if not isinstance(values, np.ndarray) or not np.issubdtype(values.dtype, column.dtype):
        found = getattr(values, "dtype", type(values).__name__)
        return [f"{name}: must be an array of {column.dtype.__name__}, got {found}"]
    expected = []
    for length, letter in zip(values.shape, column.shape, strict=False):
        symbol, _, more = letter.partition("+")
        known = int(symbol) if symbol.isdigit() else lengths.setdefault(symbol, length - int(more or 0))
        expected.append(known + int(more or 0))
    if len(column.shape) != values.ndim or tuple(expected) != values.shape:
        return [f"{name}: must have the shape ({', '.join(column.shape)}), got {values.shape}, with {lengths}"]
    if column.elements is None:
        return []
    if not len(values) or values[0] != 0 or (np.diff(values) < 0).any():
        return [f"{name}: must begin with 0 and not decrease"]
    if lengths.setdefault(column.elements, int(values[-1])) != values[-1]:
        return [f"{name}: must end with {lengths[column.elements]} ({column.elements}), got {values[-1]}"]
    return []


_MOST_ASKED = 8  # at once
SETTING = "`index_cache` (or $ACCVLAB_INDEX_CACHE)"


def cached_index(
    make: Callable[[], DrivingIndex],
    sources: Iterable[str | os.PathLike[str]],
    settings: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
    *,
    is_current: Callable[[DrivingIndex], bool] = lambda known: True,
) -> Path:
    """Get the folder of the index of some files; one is made on first use, by one of several processes.

    An index counts as long as path, size and time of change of the files, and the settings, are what they were.

    Args:
        make: Makes the index.
        sources: The files that it is made of: paths, or `StoredFile`, of whose stores the versions are requested.
        settings: What else it depends on: anything that JSON holds.
        folder: Where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else ``accvlab/driving`` in
            ``$XDG_CACHE_HOME`` or ``~/.cache``.
        is_current: Whether a cached index may be used; otherwise it is made anew.

    Raises:
        FileError: A source cannot be read.
        SettingError: The folder of indices cannot be written.
    """
    return Path(str(opened_index(make, states_of(sources), settings, folder, is_current=is_current).folder))


def opened_index(
    make: Callable[[], DrivingIndex],
    states: list[list[Any]],
    settings: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
    *,
    is_current: Callable[[DrivingIndex], bool] = lambda known: True,
) -> DrivingIndex:
    """Open the index that `cached_index` finds or makes; ``states`` are the states of its sources."""
    return load_or_make(
        cache_folder(folder),
        [states, settings],
        DrivingIndex.open,
        lambda: make().columns(),
        is_current=is_current,
        setting=SETTING,
    )


def states_of(sources: Iterable[str | os.PathLike[str]]) -> list[list[Any]]:
    """Path or URL of each file, its size, and when it was changed or what its store says of its version.

    Raises:
        FileError: A file is not there, or its state cannot be read.
    """
    with ThreadPoolExecutor(_MOST_ASKED) as threads:
        return list(threads.map(_state, sources))


def _state(source: str | os.PathLike[str]) -> list[Any]:
    if isinstance(source, StoredFile) and not source.is_local:
        return [os.fspath(source), *source.storage.state(source.name)]
    path = os.path.abspath(source)
    try:
        state = os.stat(path)
    except OSError as error:
        raise file_error(f"{path!r} cannot be read", error) from error
    return [os.fsdecode(path), state.st_size, state.st_mtime_ns]


def cache_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Where indices are kept."""
    given = os.environ.get("ACCVLAB_INDEX_CACHE") if folder is None else file_path(folder, "index_cache")
    usual = f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/accvlab/driving"
    return Path(given or usual).expanduser().absolute()
