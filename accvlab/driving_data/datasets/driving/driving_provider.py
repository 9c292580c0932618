# SPDX-License-Identifier: Apache-2.0
"""A data provider for driving data of any origin: samples of one format, from an index."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import bullets, index_in, listed, shown
from accvlab.dali_pipeline_framework.errors import FieldValueError, FileError, SettingError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import (
    StoragePath,
    image_orientation,
    image_size,
    is_gray_of_16_bits,
    is_url,
    numbers_name,
)
from accvlab.dali_pipeline_framework.providers import EncodedClipValue, FieldColumns, Storage, WantedFields
from accvlab.dali_pipeline_framework.sample_data import FieldPath
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments, has_settings
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from . import driving_index as tables
from . import poses
from .array_types import Array, Float32, Float64, Int32, Int64, UInt8
from .driving_fields import DrivingFields, DrivingFieldSettings, checked_names
from .driving_index import DrivingIndex
from .ego_motion import places_around
from .requested_parts import numbers_of_scenes, require_scenes
from .scene_parts import WITHOUT_BOXES, project_boxes
from .video_frames import FrameKey, VideoFrames

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack

    from accvlab.dali_pipeline_framework.testing import Finding
else:
    Unpack = dict  # typing_extensions is for type checkers only; annotations stay readable


_logger = logging.getLogger(__name__)

_Init = TypeVar("_Init", bound=Callable[..., Any])
_OTHER_TIMES = (
    "Ask for other times or moments, leave the camera (`cameras`) or the scene (`scenes`) out, or skip samples "
    "that fail (`FaultPolicy`)."
)
_LEAVE_OUT = "Leave the camera (`cameras`) or the scene (`scenes`) out."
_MOST_LISTED = 16  # folders at once, since each may be on another machine
# Of poses that are the same but for rounding, far from the origin of the world; meters, or parts of an axis.
_ROUNDING = 1e-8
LIDAR = "the lidar"
"""What the lidar is called among the sensors that have files."""

# Parts of a sample, see `DrivingProvider._parts`: its first fields, and those of derived classes.
_HEAD: FieldPath = ("token", "scene", "frame", "is_first", "timestamp")
_OTHERS: FieldPath = ()


class DrivingProvider(DataProvider):
    """Frames of driving data: cameras, lidar, the vehicle, boxes. One format for data sets of any origin.

    One sample per frame. The settings, see `DrivingFields`, choose the fields. C cameras, N boxes, P points::

        token                        STRING    name of the frame in its data set
        scene                        STRING
        frame                        INT32     place in its scene, from 0
        is_first                     BOOL      whether the scene begins
        timestamp                    FLOAT64   seconds
        ego
            world_from_ego           FLOAT64 (4, 4)    at the time of the frame
            ego_from_reference       FLOAT64 (4, 4)
            world_from_reference     FLOAT64 (4, 4)
            can_bus                  FLOAT64 (18,)     `can_bus`
            status                   FLOAT64 (10,)     `ego_status`
            vehicle_size             FLOAT64 (6,)      `vehicle_size`: length, width, height, rear axle to
                                                       center, wheelbase, track width, meters
            future_positions         FLOAT (T, 3)      origin of the reference frame in the T following frames
            is_future_known          BOOL (T,)         False, and zeros, beyond the end of the scene
        ego_history, ego_future
            positions                FLOAT (T, 3)      of the vehicle in its own frame at the time of the frame
            rotations                FLOAT (T, 3, 3)   from its own frame at T times to that frame
            times                    FLOAT64 (T,)      seconds from the frame
        cameras[0..C-1]
            image                    UINT8 (num_bytes,)  a file; of videos (H, W, 3), RGB
            image_to_decode          INT32             with ``images="encoded"``, the frame in the video file
            name                     STRING
            timestamp                FLOAT64           seconds
            intrinsics               FLOAT64 (3, 3)    to pixels times depth, as the data set has it
            camera_from_reference    FLOAT64 (4, 4)    with the motion between the two times
            ego_from_camera          FLOAT64 (4, 4)    where the camera is mounted
            lens                                       `lenses`; f-theta, NaN where unknown
                image_wh             FLOAT64 (2,)      width and height
                center               FLOAT64 (2,)      pixel that the axis meets
                backward             FLOAT64 (5,)      polynomial: pixels from the center -> angle
                forward              FLOAT64 (5,)      polynomial: angle to the axis -> pixels from the center
            boxes_2d
                boxes                FLOAT (M, 4)      x1, y1, x2, y2, pixels
                centers              FLOAT (M, 2)      projections of the centers, pixels
                depths               FLOAT (M,)        meters
                categories           INT32 (M,)        as for the boxes
                box_rows             INT32 (M,)        row in `boxes`; -1 where unknown or left out
        lidar, sweeps[0..S-1]                          sweeps: before the frame, the newest first
            points                   FLOAT (P, K)      x, y, z in coordinates of the sensor, and its measurements
            reference_from_lidar     FLOAT64 (4, 4)    with the motion between the two times
            timestamp                FLOAT64           seconds
        boxes
            centers                  FLOAT (N, 3)
            sizes                    FLOAT (N, 3)      length, width, height
            yaws                     FLOAT (N,)        in (-pi, pi], angle from x to the length
            velocities               FLOAT (N, 3)      over ground, m/s; NaN where unknown
            categories               INT32 (N,)        index into `class_names`; -1 for none
            attributes               INT32 (N,)        index into `attribute_names`; -1 for none
            visibilities             INT32 (N,)        1 to 4: up to 40, 60, 80, 100 %; 0 where unknown
            num_lidar_points         INT32 (N,)        -1 where unknown
            num_radar_points         INT32 (N,)        -1 where unknown
            instances                INT64 (N,)        the same object has one number in a scene; -1: not known
            future_centers           FLOAT (N, T, 3)   in the T following frames
            is_future_known          BOOL (N, T)       False, and zeros, where the object is not there
        map_lines
            points                   FLOAT (P, 2)      of all lines, one after the other
            num_points               INT32 (L,)        of each line
            categories               INT32 (L,)        index into `line_category_names`

    Lengths are meters, angles radians. Unless stated otherwise, fields are in the *reference frame*: the lidar's,
    or the vehicle's (x ahead, y to the left, z up). Matrices are named ``target_from_source``.

    Frames of a scene follow each other, by time; samplers take `sequence_lengths`. A pickle of the provider has
    the folder of the index: each process maps the index, and files are read in the workers.
    """

    @explains_unknown_arguments
    @has_settings(DrivingFieldSettings, DrivingFields)
    def __init__(
        self,
        index: DrivingIndex | str | os.PathLike[str],
        data_root: StoragePath,
        *,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Open an index.

        Args:
            index: The index, or the folder where it was saved.
            data_root: What names of files are relative to: a folder or a URL.
            scenes: Names of the scenes, in the order wanted; None for all.
            index_cache: Folder where indices are kept, also of videos; None for ``$ACCVLAB_INDEX_CACHE``, or
                else ``accvlab/driving`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
            storage_options: Arguments of the remote file system of ``data_root``, also for videos there.
            **fields: Fields of the samples: settings of `DrivingFields`.

        Raises:
            FileError: The index cannot be opened.
            SettingError: The data set lacks requested parts, or there are no frames.
        """
        self._given_index = index if isinstance(index, DrivingIndex) else os.path.abspath(index)
        self._storage = Storage(data_root, storage_options)
        self._storage_options = storage_options
        self._index_cache, self._opened_ns = index_cache, time.time_ns()
        wanted = DrivingFields(**fields)
        self._scenes = numbers_of_scenes([_text(name) for name in self._index.frames.scene], scenes)
        self._fields = wanted.completed(self._index, None if scenes is None else self._scenes)
        if not self.get_number_of_samples():
            raise SettingError("There are no frames in the chosen scenes.")
        self._is_video  # noqa: B018 - refuses images of two forms
        known = {*self.origin.get(WITHOUT_BOXES, ())} if self._fields.boxes else ()
        without = [name for name in self.scene_names if name in known]
        if without:
            warn_user(
                f"{len(without)} of {len(self._scenes)} scenes have no boxes, e.g. {without[0]!r}, though others "
                f"have: their samples are as those without objects. Leave them out (`scenes`), or the boxes "
                f"(`boxes=False`)."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Settings and paths, not what is made of them in each process; the index where it was never saved."""
        members = [member for cls in type(self).__mro__ for member in vars(cls).items()]
        made = {name for name, member in members if isinstance(member, cached_property)}
        return {name: value for name, value in self.__dict__.items() if name not in made}

    @cached_property
    def _index(self) -> DrivingIndex:
        given = self._given_index
        return given if isinstance(given, DrivingIndex) else DrivingIndex.open(given)

    @cached_property
    def _video_frames(self) -> VideoFrames:
        folder = tables.cache_folder(self._index_cache) / "videos"
        opened_ns = self._opened_ns
        return VideoFrames(folder, self._storage_options, self._fields.colors, unchanged_since_ns=opened_ns)

    # --- what there is ----------------------------------------------------------------------------------

    @property
    def fields(self) -> DrivingFields:
        """Fields of the samples."""
        return self._fields

    @property
    def base(self) -> str:
        """Frame of reference of the data set: ``"lidar"``, or ``"ego"`` where it has no lidar."""
        return self._index.base

    @property
    def right_axis(self) -> str:
        """Axis of the reference frame nearest to the vehicle's right: ``"x"``, ``"-x"``, ``"y"`` or ``"-y"``."""
        right = -self._ego_from_reference(self._frame(0))[1, :2]
        axis = int(np.argmax(np.abs(right)))
        return "-" * bool(right[axis] < 0) + "xy"[axis]

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras, in the order of the samples."""
        return tuple(self._fields.cameras or ())

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of 3D boxes, by number."""
        return self._fields.class_names(self._index)

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Names of the attributes of boxes, by number."""
        return self._index.attributes

    @property
    def line_category_names(self) -> tuple[str, ...]:
        """Names of the categories of map lines, by number."""
        return self._index.line_categories

    @property
    def point_columns(self) -> tuple[str, ...]:
        """Names of the columns of lidar points."""
        return self._index.point_columns

    @property
    def origin(self) -> Mapping[str, Any]:
        """Source of the data set, and how it was read."""
        return self._index.origin

    @property
    def scene_names(self) -> tuple[str, ...]:
        """Names of the scenes, in the order of the samples."""
        return tuple(os.fsdecode(self._index.frames.scene[scene]) for scene in self._scenes)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of frames of each scene, in the order of the samples."""
        return tuple(np.diff(self._index.frames.first_of_scene)[[*self._scenes]].tolist())

    @property
    def timestamps(self) -> Float64:
        """Time of each frame, ``(num_samples,)`` float64, seconds."""
        return np.asarray(self._index.frames.time)[self._frames]

    def frame_times_s(self, path: FieldPath = ()) -> Float64 | None:
        """Get the times of the frames; for fields of a camera or of the lidar, its own times."""
        cameras, lidar, frames = self._index.cameras, self._index.lidar, self._frames
        if path[:1] == ("cameras",) and cameras is not None:
            camera, back = self._views[int(path[1])]
            has_image = np.asarray(cameras.file[frames - back, camera]) != b""
            return np.where(has_image, cameras.time[frames - back, camera], np.nan)
        if path[:1] == ("lidar",) and lidar is not None:
            return np.append(lidar.time, np.nan)[lidar.of_frame[frames]]  # -1 of a frame without points
        return None if path else self.timestamps

    @cached_property
    def _frames(self) -> Int64:
        """Number in the index of each sample."""
        first_of_scene = np.asarray(self._index.frames.first_of_scene)
        return tables.rows_from(first_of_scene[[*self._scenes]], np.array(self.sequence_lengths))

    def get_number_of_samples(self) -> int:
        """Get the number of frames."""
        return sum(self.sequence_lengths)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample, see the class."""
        return self._blueprint.get_empty_like_self()

    @cached_property
    def _blueprint(self) -> SampleDataGroup:
        return self._fields.blueprint(is_video=self._is_video, kinds=self._video_kinds)

    @cached_property
    def _video_kinds(self) -> tuple[str, ...]:
        """Codecs of the videos, where they are delivered encoded: of the first of each camera that can be read."""
        cameras = self._index.cameras
        if cameras is None or not self._is_video or self._fields.images == "decoded":
            return ()
        return self._video_frames.kinds(
            (
                path
                for path, number in (self._frame_key(cameras, frame, camera) for frame in self._frames.tolist())
                if number >= 0
            )
            for camera in self._camera_numbers
        )

    @cached_property
    def _dtypes(self) -> list[Any]:
        """Type of each data field, of NumPy."""
        return [SampleDataGroup.get_numpy_type_for_dali_type(dtype) for dtype in self._blueprint.field_types_flat]

    @cached_property
    def _camera_numbers(self) -> list[int]:
        return [self._index.camera_names.index(name) for name in self.camera_names]

    def describe_sample(self, sample_index: int) -> str:
        """Scene, frame and token, and the files of a sample."""
        index, frame = self._index, self._frame(sample_index)
        scene = index.scene_of(frame)
        number, name = frame - index.frames.first_of_scene[scene], _text(index.frames.scene[scene])
        views = () if index.cameras is None else self._views
        names, cameras = index.camera_names, index.cameras
        files = [
            self._file_name(cameras.file[frame - back, camera], names[camera])
            for camera, back in views
            if cameras is not None
        ]
        if self._fields.lidar and index.lidar is not None and index.lidar.of_frame[frame] >= 0:
            files.append(self._file_name(index.lidar.file[index.lidar.of_frame[frame]], LIDAR))
        text = f"scene {name!r}, frame {number}, token {_text(index.frames.token[frame])!r}"
        return text + f", files {listed(files)}" * bool(files)

    def __repr__(self) -> str:
        """Summarise what was found."""
        return (
            f"{type(self).__name__}({self.get_number_of_samples()} frames in {len(self._scenes)} scene(s), "
            f"{len(self.camera_names)} camera(s), reference: {self._fields.reference})"
        )

    def describe(self) -> str:
        """Describe the data set and its source (`DrivingProvider.origin`), in lines."""
        return "\n".join([repr(self), *self._window_lines(), *self._origin_lines()])

    def _window_lines(self) -> list[str]:
        fields = self._fields
        windows = {"image_times": fields.image_times, **fields.motion_offsets_s}
        return [
            f"{name}: {len(times)}, {times[0]:g} to {times[-1]:g} s" for name, times in windows.items() if times
        ]

    def _origin_lines(self) -> list[str]:
        lines = []
        for name, value in self.origin.items():
            is_list = isinstance(value, Mapping | list | tuple)
            text = f"{len(value)}: {listed(value, 5)}" if is_list and value else "none" if is_list else str(value)
            lines.append(f"{name}: {text}")
        return lines

    def _refuse_missing_files(self, place: str, *, also_images: bool = True, also_points: bool = False) -> None:
        """Refuse frames without an image of a camera, or without points, that are requested.

        Args:
            place: What names the files, for the message.
            also_images: Whether frames must have images, where they are requested; else there is a warning in the
                log.
            also_points: The same for points.

        Raises:
            SettingError: Some have none.
        """
        frames, index, missing = self._frames, self._index, list[tuple[int, str]]()
        if index.cameras is not None:
            for camera, back in self._views:
                taken = frames - back
                without = taken[np.asarray(index.cameras.file[taken, camera]) == b""].tolist()
                missing += [(frame, index.camera_names[camera]) for frame in without if also_images]
                if without and not also_images:
                    what = f"no image of {index.camera_names[camera]}"
                    self._log_missing(without, what, place, "their samples cannot be loaded")
        if self._fields.lidar and index.lidar is not None:
            without = frames[index.lidar.of_frame[frames] < 0].tolist()
            missing += [(frame, "the points") for frame in without if also_points]
            if without and not also_points:
                self._log_missing(without, "no points", place, "they are empty")
        if missing:
            problems = [f"{_text(index.frames.token[frame])!r} has none of {what}" for frame, what in missing]
            rule = f"Each frame must have what is requested of it in {place}, but:\n{bullets(problems, 5)}"
            raise SettingError(f"{rule}\n{_LEAVE_OUT} Or get what is missing.")

    def _log_missing(self, without: Sequence[int], what: str, place: str, follows: str) -> None:
        token, num_frames = _text(self._index.frames.token[without[0]]), len(self._frames)
        frames = f"{len(without)} of {num_frames} frames, e.g. {token!r}"
        _logger.warning("%s have %s in %s: %s.", frames, what, place, follows)

    def _wanted_files(self) -> dict[str, tuple[Int64, list[bytes]]]:
        """By sensor: frames that need files, and the names of these in the index, ``(n,)`` each."""
        frames, index, wanted = self._frames, self._index, dict[str, tuple[Int64, list[bytes]]]()
        if index.cameras is not None:
            for camera in dict.fromkeys(camera for camera, _ in self._views):
                taken = np.unique([frames - back for other, back in self._views if other == camera])
                names = np.asarray(index.cameras.file[:, camera])[taken]
                wanted[index.camera_names[camera]] = taken[names != b""], names[names != b""].tolist()
        if self._fields.lidar and index.lidar is not None:
            of_frame = np.asarray(index.lidar.of_frame)[frames].tolist()
            needed = {
                record: frame for frame, record in zip(frames.tolist(), of_frame, strict=True) if record >= 0
            }
            for frame in frames.tolist() if self._fields.num_sweeps else ():
                for record in self._earlier_records(index.lidar, frame):
                    needed.setdefault(record, frame)
            records = [*needed]
            wanted[LIDAR] = np.array([*needed.values()], np.int64), np.asarray(index.lidar.file)[records].tolist()
        return wanted

    def _check_files(self, place: str, advice: str = "") -> None:
        """Compare the files that are requested with those in the folders; remote ones are not looked for.

        Args:
            place: What names the files, for messages.
            advice: What else helps where none of a sensor is there.

        Raises:
            FileError: None of the files of a sensor is there.
        """
        if self._storage.is_remote:
            return
        files = {
            sensor: [
                (frame, *name.rpartition(b"/")[::2]) for frame, name in zip(frames.tolist(), names, strict=True)
            ]
            for sensor, (frames, names) in self._wanted_files().items()
        }
        path_of = {
            (sensor, folder): os.path.dirname(
                self._storage.path(self._file_name(folder + b"/" * bool(folder) + b"name", sensor))
            )
            for sensor, of_sensor in files.items()
            for folder in {folder for _, folder, _ in of_sensor}
        }
        with ThreadPoolExecutor(_MOST_LISTED) as threads:
            there = dict(zip(path_of, threads.map(_names_in, path_of.values()), strict=True))
        missing, total = list[tuple[int, str]](), 0
        for sensor, of_sensor in files.items():
            lacking = [
                (frame, os.path.join(path_of[sensor, folder], os.fsdecode(name)))
                for frame, folder, name in of_sensor
                if (known := there[sensor, folder]) is not None and name not in known
            ]
            if lacking and len(lacking) == len(of_sensor):
                raise error_that_is_also(
                    FileError,
                    [FileNotFoundError],
                    f"None of the {len(of_sensor)} files of {sensor} that {place} names is there, e.g. "
                    f"{lacking[0][1]!r}. Get them, or leave the sensor out (`cameras`, `lidar`).{advice}",
                )
            missing, total = [*missing, *lacking], total + len(of_sensor)
        if missing:
            warn_user(self._about_missing(missing, total, place))

    def _about_missing(self, missing: Sequence[tuple[int, str]], total: int, place: str) -> str:
        lacking = {self._index.scene_of(frame) for frame in {frame for frame, _ in missing}}
        whole = [name for name, scene in zip(self.scene_names, self._scenes, strict=True) if scene not in lacking]
        advice = f" {len(whole)} of {len(self._scenes)} scenes have all of theirs: `scenes={shown(whole[:3])}`."
        return (
            f"{len(missing)} of {total} files that {place} names are not there, e.g. {missing[0][1]!r}. Samples "
            f"that need them cannot be loaded: get them, leave their scenes or sensors out, or skip samples that "
            f"fail (`FaultPolicy`).{advice if whole else ''}"
        )

    # --- samples ----------------------------------------------------------------------------------------

    def _frame(self, sample_index: int) -> int:
        return int(self._frames[index_in(sample_index, "sample_index", len(self._frames))])

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load a frame, see the class.

        Raises:
            SettingError: There is no such frame; the error is also an IndexError.
            FileError: A file is missing or cannot be read.
        """
        flat = [value for load in self._parts(sample_index).values() for value in load()]
        sample = self._blueprint.get_empty_like_self()  # without what a subclass adds to it
        sample.set_data([_as_array(value, dtype) for value, dtype in zip(flat, self._dtypes, strict=True)])
        return sample

    def _parts(self, sample_index: int) -> dict[FieldPath, Callable[[], Sequence[object]]]:
        """By the path of what they load: functions that load parts of a sample, in flat order."""
        index, fields, frame = self._index, self._fields, self._frame(sample_index)
        frames, scene = index.frames, index.scene_of(frame)
        number = frame - int(frames.first_of_scene[scene])
        following = range(frame + 1, int(frames.first_of_scene[scene + 1]))
        names = bytes(frames.token[frame]), bytes(frames.scene[scene])
        parts: dict[FieldPath, Callable[[], Sequence[object]]] = {
            _HEAD: lambda: (*names, number, number == 0, frames.time[frame]),
            ("ego",): partial(self._ego, frame, following),
        }
        parts |= {(name,): partial(self._motion, name, frame) for name in fields.motion_offsets_s}
        if index.cameras is not None:
            for place, (camera, back) in enumerate(self._views):
                parts["cameras", place, "image"] = partial(self._images, index.cameras, frame - back, camera)
                parts["cameras", place] = partial(self._camera, index.cameras, frame, camera, back)
        if fields.lidar and index.lidar is not None:
            sweeps = self._earlier_records(index.lidar, frame)
            sweeps += [-1] * (fields.num_sweeps - len(sweeps))
            parts["lidar",] = partial(self._record, index.lidar, frame, index.lidar.of_frame[frame])
            for place, record in enumerate(sweeps):
                parts["sweeps", place] = partial(self._record, index.lidar, frame, record)
        if fields.boxes and index.boxes is not None:
            parts["boxes",] = partial(self._boxes, index.boxes, frame, following)
        if fields.map_lines and index.lines is not None:
            parts["map_lines",] = partial(self._lines, index.lines, frame)
        parts[_OTHERS] = partial(self._others, sample_index)
        return parts

    @cached_property
    def _part_of(self) -> dict[FieldPath, tuple[FieldPath, int]]:
        """Of each field its part, and its place there."""
        parts, counts, found = self._parts(0), Counter[FieldPath](), {}
        for path in self._blueprint.format.flat_paths:
            in_part = (*path[:2], "image") if path[2:] == (numbers_name("image"),) else path
            own = [in_part[:length] for length in (3, 2, 1) if in_part[:length] in parts]
            part = _HEAD if path[0] in _HEAD else own[0] if own else _OTHERS
            found[path] = part, counts[part]
            counts[part] += 1
        return found

    def load_fields(self, wanted: WantedFields) -> FieldColumns | None:
        """Load some fields of some frames, and no others; each video in one pass of its decoder."""
        if not wanted.keys() <= self._part_of.keys():
            return None
        dtype_of = dict(zip(self._part_of, self._dtypes, strict=True))
        columns: dict[FieldPath, list[object]] = {path: [None] * len(samples) for path, samples in wanted.items()}
        uses: dict[int, list[tuple[FieldPath, int]]] = {}
        for path, samples in wanted.items():
            for place, sample in enumerate(samples):
                uses.setdefault(sample, []).append((path, place))
        images = [(sample, path[1]) for sample, of in uses.items() for path in dict(of) if path[2:] == ("image",)]
        with self._decoded_together((sample, self._views[int(view)]) for sample, view in images):
            for sample, of in uses.items():
                parts, loaded = self._parts(sample), dict[FieldPath, Sequence[object]]()
                for path, place in of:
                    part, number = self._part_of[path]
                    if part not in loaded:
                        loaded[part] = parts[part]()
                    columns[path][place] = _as_array(loaded[part][number], dtype_of[path])
        return columns

    def load_clips(self, path: FieldPath, samples: Int64) -> Sequence[EncodedClipValue] | None:
        """Cut frames of a camera's videos out; each row of ``samples``, of one scene, becomes one file."""
        cameras, fields = self._index.cameras, self._fields
        is_single = self._is_video and fields.images == "encoded" and not fields.image_times
        if cameras is None or path[2:] != ("image",) or not is_single:
            return None
        camera, back = self._views[int(path[1])]
        clips = []
        for row in samples:
            frames = [self._frame(sample) - back for sample in row.tolist()]
            keys = [self._frame_key(cameras, frame, camera) for frame in frames]
            for frame, (_, number) in zip(frames, keys, strict=True):
                if number < 0:
                    self._image(cameras, frame, camera)  # there is none: raises
            clips.append(self._encoded(cameras, keys, frames[0], camera))
        return clips

    def _encoded(
        self, cameras: tables.CameraColumns, keys: Sequence[FrameKey], frame: int, camera: int
    ) -> EncodedClipValue:
        """Cut frames of a camera out of their video; ``frame`` is the first frame of the data set."""
        path, other = keys[0][0], next((each for each, _ in keys if each != keys[0][0]), None)
        if other is not None:
            token, name = _text(self._index.frames.token[frame]), self._index.camera_names[camera]
            raise FieldValueError(
                f"The images of {name!r} from the frame {token!r} on are in several videos: {path!r}, {other!r}. "
                f"With images='encoded', one sample needs one video: pass images='decoded', or choose other "
                f"windows."
            )
        clip = self._video_frames.encoded_frames(path, [number for _, number in keys], self._video_kinds)
        video = self._video_frames.index(path)
        self._compare(cameras, frame, camera, None, (video.height, video.width))
        return clip

    def first_image_file(self) -> UInt8 | None:
        """Read the image of the first camera in the first sample; None where there is no camera, or a video.

        Raises:
            FileError: It cannot be read.
        """
        cameras = self._index.cameras
        if cameras is None or not self.camera_names or self._is_video:
            return None
        return np.asarray(self._image(cameras, self._frame(0), self._camera_numbers[0]))

    def contract_findings(self, samples: Mapping[int, SampleDataGroup], seed: int) -> Iterable[Finding]:
        """Check samples by the rules of driving data, see `DataProvider.contract_findings`.

        *   Times ascend in each scene, and are seconds: frames of a scene are at most 1000 s apart, most of them
            at most 15 s, images and points at most 10 s from their frame.
        *   Matrices are rigid motions; focal lengths are above 0.
        *   Cameras are at the place where they are mounted: ``camera_from_reference`` is
            ``inverse(ego_from_camera) @ ego_from_reference``, within 20 degrees and 10 m, and the motion of the
            vehicle between the two times.
        *   ``ego_history`` and ``ego_future`` are poses; at the time of the frame they agree with the pose of the
            vehicle.
        *   All fields of boxes have the same number of elements; boxes have sizes above 0, yaws in [-pi, pi], and
            categories that have a name; no object occurs twice in a frame. The boxes that 2D boxes belong to are
            in front of the camera.

        Check whether up to 4 scenes, with 6 consecutive frames each, are plausible. Each rule has a figure in the
        report, and is silent where there is too little to judge, such as fewer than eight boxes:

        *   Cameras are within 30 m of the vehicle's origin, and keep their place on the vehicle while it moves;
            unless they look down, their y axis is within 60 degrees of down; cameras named left, right, front or
            back do not look to the opposite (``left`` may look ahead, as one of a pair).
        *   Principal points are near the middle of images; inside, if images are cropped. Of the boxes in the
            direction of a camera, 8 to 60 m away, the camera sees at least a fifth.
        *   Boxes are less than 400 m away (median). Vehicles (a class with a word such as ``car``, ``truck``,
            ``bus``, ``trailer``, ``van``, ``vehicle``) are longer than wide, at least half of them, and 1 to 40 m
            long.
        *   The vehicle drives along its heading, within 45 degrees, when faster than 3 m/s; it drives backward
            only slower than that.
        *   Objects that stand stay where they are in the world. If objects jump, this is a problem if they would
            not with another pose of the vehicle (its inverse, or the pose of another frame) or with other axes of
            the boxes, or if their velocity is zero.
        *   Velocities agree with the motion of tracked objects over ground, and vehicles move along their heading.
        """
        from ...contract.driving_contract import contract_findings

        return contract_findings(self, samples, seed)

    @property
    def loads_batches(self) -> bool:
        """Whether images are frames of videos: for a batch, each video is decoded in one forward pass."""
        return self._is_video and bool(self._camera_numbers)

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load frames; each video is decoded in one forward pass for all of them."""
        with self._decoded_together((index, view) for index in sample_indices for view in self._views):
            yield from map(self.get_data, sample_indices)

    def _decoded_together(self, images: Iterable[tuple[int, tuple[int, int]]]) -> AbstractContextManager[None]:
        """Decode images of samples and views (`_views`) before they are loaded, each video in one pass."""
        cameras = self._index.cameras
        if cameras is None or cameras.video_frame is None:
            return nullcontext()
        keys: list[FrameKey] = []
        for index, (camera, back) in images:
            with suppress(FieldValueError):  # raised again for the sample
                keys += self._frame_keys(cameras, self._frame(index) - back, camera)
        return self._video_frames.shared(key for key in keys if key[1] >= 0)

    @property
    def _is_in_base(self) -> bool:
        """Whether the base is the reference frame."""
        return self._fields.reference == self._index.base

    def _reference_from_base(self, frame: int) -> Float64:
        return np.eye(3, 4) if self._is_in_base else self._index.frames.ego_from_base[frame]

    def _ego_from_reference(self, frame: int) -> Float64:
        base_from_reference = poses.inverse(self._reference_from_base(frame))
        return poses.joined(self._index.frames.ego_from_base[frame], base_from_reference)

    def _world_from_base(self, frame: int) -> Float64:
        return poses.joined(self._index.frames.world_from_ego[frame], self._index.frames.ego_from_base[frame])

    def _ego(self, frame: int, following: range) -> list[object]:
        frames, fields = self._index.frames, self._fields
        ego_from_reference = self._ego_from_reference(frame)
        world_from_reference = poses.joined(frames.world_from_ego[frame], ego_from_reference)
        own_poses = (frames.world_from_ego[frame], ego_from_reference, world_from_reference)
        flat: list[object] = [*poses.as_matrix(np.array(own_poses))]
        if fields.can_bus and frames.can_bus is not None:
            flat.append(np.array(frames.can_bus[frame]))
        if fields.ego_status and frames.ego_status is not None:
            flat.append(np.array(frames.ego_status[frame]))
        if fields.vehicle_size and frames.vehicle_size is not None:
            flat.append(frames.vehicle_size[self._index.scene_of(frame)])
        if fields.num_ego_future_frames:
            positions = np.zeros((fields.num_ego_future_frames, 3))
            later = following[: fields.num_ego_future_frames]
            world_from_later = frames.world_from_ego[later.start : later.stop]
            if self._is_in_base:
                world_from_later = poses.joined(world_from_later, frames.ego_from_base[later.start : later.stop])
            positions[: len(later)] = poses.moved(poses.inverse(world_from_reference), world_from_later[..., 3])
            flat += [positions, np.arange(len(positions)) < len(later)]
        return flat

    def _motion(self, name: str, frame: int) -> list[object]:
        """Places of the vehicle at the times of ``ego_history`` or ``ego_future``."""
        if self._index.motion is None:
            return []
        time_s, scene = float(self._index.frames.time[frame]), self._index.scene_of(frame)
        known, now = self._index.motion.of_scene(scene), round(time_s * 1e6)
        offsets_s = np.array(self._fields.motion_offsets_s[name])
        times = now + np.rint(offsets_s * 1e6).astype(np.int64)
        if min(now, times[0]) < known.times[0] or max(now, times[-1]) > known.times[-1]:
            first, last = (f"{time / 1e6:.6g} s" for time in known.times[[0, -1]])
            raise FieldValueError(
                f"`{name}` must lie within the recorded motion of the vehicle: the frame of {time_s:.6g} s in the "
                f"scene {_text(self._index.frames.scene[scene])!r} needs {times[0] / 1e6:.6g} s to "
                f"{times[-1] / 1e6:.6g} s, but the motion is known from {first} to {last}. {_OTHER_TIMES}"
            )
        places = places_around(known, now, times)
        return [places[..., 3], places[..., :3], offsets_s]

    def _camera(self, cameras: tables.CameraColumns, frame: int, camera: int, back: int) -> list[object]:
        """Fields of an image, which a camera took so many frames before the frame of the sample."""
        taken, base_from_reference = frame - back, poses.inverse(self._reference_from_base(frame))
        if back:
            base_from_base = poses.joined(
                poses.inverse(self._world_from_base(taken)), self._world_from_base(frame)
            )
            base_from_reference = poses.joined(base_from_base, base_from_reference)
        time, camera_from_base = cameras.time[taken, camera], cameras.camera_from_base[taken, camera]
        if self._fields.image_times and self._index.motion is not None:
            times = self._window(cameras, frame, camera)[1]
            world_from_ego = self._index.motion.of_scene(self._index.scene_of(frame)).at(times)
            camera_from_world = poses.inverse(poses.joined(world_from_ego, cameras.ego_from_camera[frame, camera]))
            time, camera_from_base = times / 1e6, poses.joined(camera_from_world, self._world_from_base(frame))
        flat = [
            self._index.camera_names[camera],
            time,
            np.array(cameras.intrinsics[taken, camera]),
            poses.as_matrix(poses.joined(camera_from_base, base_from_reference)),
            poses.as_matrix(cameras.ego_from_camera[taken, camera]),
        ]
        if self._fields.lenses:
            lens = np.full(sum(tables.LENS.values()), np.nan)
            if cameras.lens is not None:
                lens = np.array(cameras.lens[self._index.scene_of(frame), camera])
            flat += np.split(lens, np.cumsum([*tables.LENS.values()])[:-1])
        if self._fields.boxes_2d and self._index.boxes_2d is not None:
            flat += self._boxes_2d(self._index.boxes_2d, taken, camera)
        elif self._fields.boxes_2d and self._index.boxes is not None:
            flat += self._projected_boxes(self._index.boxes, cameras, taken, camera)
        return flat

    def _compare(
        self,
        cameras: tables.CameraColumns,
        frame: int,
        camera: int,
        file: UInt8 | None,
        image_hw: tuple[int, ...] = (0, 0),
    ) -> None:
        """Warn, once for each camera, of an image that its intrinsics are not for: a file, or one of this size."""
        scene = self._index.scene_of(frame)
        if (scene, camera) in self._compared_cameras:
            return
        self._compared_cameras.add((scene, camera))
        stated = (0, 0) if cameras.image_wh is None else tuple(cameras.image_wh[scene, camera].tolist())
        orientation = 1 if file is None else image_orientation(file)
        problem = f"is turned when it is decoded, by its EXIF orientation {orientation}" * (orientation != 1)
        if not problem and any(stated):
            with suppress(FieldValueError):  # what is no image fails when it is decoded
                height, width = image_hw if file is None else image_size(file)
                problem = f"is {width} x {height} pixels (width, height)" * ((width, height) != stated)
        if file is not None and is_gray_of_16_bits(file) and camera not in self._warned_cameras:
            self._warned_cameras.add(camera)
            warn_user(
                f"The images of {self._index.camera_names[camera]!r} are gray of 16 bits, as those of depth: "
                f"`ImageDecoder` makes 8 bits of them. Decode them in a step of your own, or leave the camera out."
            )
        if problem and camera not in self._warned_cameras:
            self._warned_cameras.add(camera)
            name, token = self._index.camera_names[camera], _text(self._index.frames.token[frame])
            size = f"an image of {stated[0]} x {stated[1]}" if any(stated) else "the image as it is stored"
            warn_user(
                f"The image of {name!r} in the frame {token!r} {problem}, but its intrinsics are those of {size}. "
                f"Change the intrinsics in a step of your own, or the images."
            )

    @cached_property
    def _compared_cameras(self) -> set[tuple[int, int]]:
        return set()

    @cached_property
    def _warned_cameras(self) -> set[int]:
        return set()

    def _images(self, cameras: tables.CameraColumns, frame: int, camera: int) -> list[object]:
        """Get the image of a frame; of a video that is delivered encoded, its file and the number in it."""
        if self._is_video and self._fields.images == "encoded":
            keys = self._frame_keys(cameras, frame, camera)
            if keys[0][1] >= 0:
                file, places = self._encoded(cameras, keys, frame, camera)
                return [file, places if self._fields.image_times else places[0]]
        image = self._image(cameras, frame, camera)
        if image.ndim == 1:
            self._compare(cameras, frame, camera, image)
        else:
            self._compare(cameras, frame, camera, None, image.shape[-3:-1])
        return [image]

    def _window(self, cameras: tables.CameraColumns, frame: int, camera: int) -> tuple[Int64, Int64]:
        """Frames of a video at `image_times`: numbers, and when they were taken, microseconds; ``(T,)`` each."""
        times = self._video_times(cameras, frame, camera)
        time_s, scene = float(self._index.frames.time[frame]), self._index.scene_of(frame)
        wanted = round(time_s * 1e6) + np.rint(np.multiply(self._fields.image_times, 1e6)).astype(np.int64)
        numbers = poses.last_before(times, wanted) if len(times) else np.full(len(wanted), -1)
        if (numbers < 0).any():
            missing_s = wanted[int(np.argmax(numbers < 0))] / 1e6
            raise FieldValueError(
                f"There must be an image of each camera at or before each time of `image_times`: the frame of "
                f"{time_s:.6g} s in the scene {_text(self._index.frames.scene[scene])!r} needs "
                f"one of {missing_s:.6g} s, but {self._span(cameras, frame, camera)}. {_OTHER_TIMES}"
            )
        return numbers, times[numbers]

    def _video_times(self, cameras: tables.CameraColumns, frame: int, camera: int) -> Int64:
        """Times of all frames of a video; none where they are not known."""
        if cameras.frame_time is None or cameras.first_time is None:
            return np.zeros(0, np.int64)
        video = self._index.scene_of(frame) * len(self._index.camera_names) + camera
        return cameras.frame_time[slice(*cameras.first_time[video : video + 2].tolist())]

    def _span(self, cameras: tables.CameraColumns, frame: int, camera: int) -> str:
        """From when to when there are images of a camera, for messages."""
        times, name = self._video_times(cameras, frame, camera), repr(self._index.camera_names[camera])
        if not len(times):
            return f"{name} has no video there"
        return f"the images of {name} are from {times[0] / 1e6:.6g} s to {times[-1] / 1e6:.6g} s"

    def _record(self, lidar: tables.LidarColumns, frame: int, record: int) -> list[object]:
        if record < 0:
            no_points = np.zeros((0, len(self.point_columns)), np.float32)
            return [no_points, np.eye(4), self._index.frames.time[frame]]
        base_from_world = poses.inverse(self._world_from_base(frame))
        base_from_lidar = poses.joined(base_from_world, lidar.world_from_lidar[record])
        if np.abs(base_from_lidar - np.eye(3, 4)).max() < _ROUNDING:
            base_from_lidar = np.eye(3, 4)
        reference_from_lidar = poses.joined(self._reference_from_base(frame), base_from_lidar)
        return [self._points(lidar, record), poses.as_matrix(reference_from_lidar), lidar.time[record]]

    # --- what providers of other files override ---------------------------------------------------------

    def _file_name(self, name: bytes, sensor: str) -> str:
        """Name of a file relative to the root, of its name in the index; ``sensor`` is the camera, or `LIDAR`."""
        return _text(name)

    @cached_property
    def _views(self) -> list[tuple[int, int]]:
        """Number of the camera of each image of a sample, and how many frames before its own it was taken."""
        return [(camera, 0) for camera in self._camera_numbers]

    def _others(self, sample_index: int) -> list[object]:
        """Fields that the blueprint of a derived class has after all others."""
        return []

    def _earlier_records(self, lidar: tables.LidarColumns, frame: int) -> list[int]:
        """Numbers of the earlier lidar records that the sample of a frame has, the newest first."""
        found: list[int] = lidar.sweep[_elements(lidar.first_sweep, frame)][: self._fields.num_sweeps].tolist()
        return found

    @cached_property
    def _is_video(self) -> bool:
        """Whether `_image` delivers decoded frames of the chosen cameras."""
        cameras = self._index.cameras
        if cameras is None or cameras.video_frame is None or not self._camera_numbers:
            return False
        chosen = np.ix_(self._frames, np.array(self._camera_numbers))
        has_file, is_video = np.asarray(cameras.file)[chosen] != b"", np.asarray(cameras.video_frame)[chosen] >= 0
        of_video, of_files = (has_file & is_video).any(axis=0), (has_file & ~is_video).any(axis=0)
        if of_video.any() and of_files.any():
            kinds = [
                f"{name}: {'videos and files' if video and file else 'videos' if video else 'files'}"
                for name, video, file in zip(self.camera_names, of_video, of_files, strict=True)
            ]
            rule = "The images of a sample must be all encoded or all of videos"
            advice = "choose `cameras` or `scenes` that go together"
            raise SettingError(f"{rule}: {advice}. There are: {listed(kinds)}.")
        return not of_files.any()

    def _image(self, cameras: tables.CameraColumns, frame: int, camera: int) -> UInt8:
        """Read the image of a frame: the bytes of its file, ``(num_bytes,)`` uint8; of a video, its pixels."""
        if self._fields.image_times:
            keys = self._frame_keys(cameras, frame, camera)
            return np.stack([self._video_frames.frame(*key) for key in keys])
        name, number = self._frame_key(cameras, frame, camera)
        if not name:
            token, name = _text(self._index.frames.token[frame]), self._index.camera_names[camera]
            span = f": {self._span(cameras, frame, camera)}" if cameras.frame_time is not None else ""
            raise FileError(f"The frame {token!r} has no image of camera {name!r}{span}. {_LEAVE_OUT}")
        return self._storage.read_bytes(name) if number < 0 else self._video_frames.frame(name, number)

    def _frame_key(self, cameras: tables.CameraColumns, frame: int, camera: int) -> FrameKey:
        """Path and number of a frame of a video; name and -1 of a file that is none."""
        name = self._file_name(cameras.file[frame, camera], self._index.camera_names[camera])
        number = -1 if cameras.video_frame is None else int(cameras.video_frame[frame, camera])
        if number < 0:
            return name, number
        path, times = self._storage.path(name), self._video_times(cameras, frame, camera)
        if len(times):
            self._video_frames.expect(path, len(times))
        return path, number

    def _frame_keys(self, cameras: tables.CameraColumns, frame: int, camera: int) -> list[FrameKey]:
        """As `_frame_key`, of all images of a camera in a sample."""
        if not self._fields.image_times:
            return [self._frame_key(cameras, frame, camera)]
        numbers, (path, _) = self._window(cameras, frame, camera)[0], self._frame_key(cameras, frame, camera)
        return [(path, number) for number in numbers.tolist()]

    def _points(self, lidar: tables.LidarColumns, record: int) -> Float32:
        """Read the points of a lidar record, ``(P, K)``: float32, one point after the other."""
        name = self._file_name(lidar.file[record], LIDAR)
        content = self._storage.read_bytes(name)
        num_columns = len(self.point_columns)
        if len(content) % (4 * num_columns):
            rule = f"must hold points of {num_columns} float32 ({listed(self.point_columns)})"
            got = f"but has {len(content)} bytes: it is cut short or no such file"
            raise FileError(f"The file {self._storage.path(name)!r} {rule}, {got}.")
        return content.view(np.float32).reshape(-1, num_columns)

    # --- boxes ------------------------------------------------------------------------------------------

    @cached_property
    def _class_of_category(self) -> Int32:
        return np.array(self._fields.class_of_category(self._index.categories, self._index), np.int32)

    @cached_property
    def _class_of_category_2d(self) -> Int32:
        names = self._index.box2d_categories or self._index.categories
        return np.array(self._fields.class_of_category(names, self._index), np.int32)

    def _kept_rows(self, boxes: tables.BoxColumns, frame: int) -> Int64:
        """Rows of the boxes of a frame that are not left out."""
        fields = self._fields
        rows = np.arange(*boxes.first[frame : frame + 2])
        is_kept = np.ones(len(rows), bool)
        if fields.classes is not None:
            is_kept &= self._class_of_category[boxes.category[rows]] >= 0
        lidar = _rows_of(boxes.num_lidar_points, rows, -1)
        if fields.min_lidar_points:
            is_kept &= (lidar >= fields.min_lidar_points) | (lidar < 0)
        if fields.min_points:
            radar = _rows_of(boxes.num_radar_points, rows, 0)
            is_kept &= (lidar + np.maximum(radar, 0) >= fields.min_points) | (lidar < 0)
        return rows[is_kept]

    def _boxes(self, boxes: tables.BoxColumns, frame: int, following: range) -> list[object]:
        rows, reference_from_base = self._kept_rows(boxes, frame), self._reference_from_base(frame)
        rotation = boxes.rotation[rows]
        if not self._is_in_base:
            turn = poses.quaternion_of_rotation(reference_from_base[:, :3])
            rotation = poses.product_of_quaternions(turn, rotation)
        instances = _rows_of(boxes.instance, rows, -1)
        flat = [
            poses.moved(reference_from_base, boxes.center[rows]),
            boxes.size[rows],
            poses.yaw_of_quaternion(rotation),
            poses.turned(reference_from_base, boxes.velocity[rows]),
            self._class_of_category[boxes.category[rows]],
            _rows_of(boxes.attribute, rows, -1),
            _rows_of(boxes.visibility, rows, 0),
            _rows_of(boxes.num_lidar_points, rows, -1),
            _rows_of(boxes.num_radar_points, rows, -1),
            instances,
        ]
        if self._fields.num_future_frames:
            flat += self._future_of(boxes, frame, following, instances)
        return flat

    def _future_of(self, boxes: tables.BoxColumns, frame: int, following: range, instances: Int64) -> list[object]:
        most = self._fields.num_future_frames
        centers, is_known = np.zeros((len(instances), most, 3)), np.zeros((len(instances), most), bool)
        base_from_world = poses.inverse(self._world_from_base(frame))
        reference_from_world = poses.joined(self._reference_from_base(frame), base_from_world)
        tracked = np.flatnonzero(instances >= 0)
        for step, later in enumerate(following[:most]):
            rows = _elements(boxes.first, later)
            of_later = _rows_of(boxes.instance, rows, -1)
            _, here, there = np.intersect1d(instances[tracked], of_later, return_indices=True)
            reference_from_later = poses.joined(reference_from_world, self._world_from_base(later))
            centers[tracked[here], step] = poses.moved(reference_from_later, boxes.center[rows][there])
            is_known[tracked[here], step] = True
        return [centers, is_known]

    def _boxes_2d(self, boxes_2d: tables.Box2dColumns, frame: int, camera: int) -> list[object]:
        image = frame * len(self._index.camera_names) + camera
        rows = _elements(boxes_2d.first, image)
        classes = self._class_of_category_2d[boxes_2d.category[rows]]
        is_kept = classes >= (0 if self._fields.classes is not None else -1)
        box_rows = np.full(len(classes), -1, np.int64)
        if self._fields.boxes and self._index.boxes is not None:
            place_of = {int(row): place for place, row in enumerate(self._kept_rows(self._index.boxes, frame))}
            box_rows[:] = [place_of.get(int(row), -1) for row in boxes_2d.box_row[rows]]
        columns = (boxes_2d.box[rows], boxes_2d.center[rows], boxes_2d.depth[rows], classes, box_rows)
        return [column[is_kept] for column in columns]

    def _projected_boxes(
        self, boxes: tables.BoxColumns, cameras: tables.CameraColumns, frame: int, camera: int
    ) -> list[object]:
        """2D boxes of a data set that has none: those around what the image shows of its 3D boxes."""
        rows = self._kept_rows(boxes, frame)
        count = len(rows)
        found = project_boxes(
            boxes.center[rows],
            boxes.size[rows],
            boxes.rotation[rows],
            np.broadcast_to(cameras.camera_from_base[frame, camera], (count, 3, 4)),
            np.broadcast_to(cameras.intrinsics[frame, camera], (count, 3, 3)),
            np.broadcast_to(self._image_wh(cameras, frame, camera), (count, 2)),
        )
        seen = np.flatnonzero(found.is_seen)
        classes = self._class_of_category[boxes.category[rows[seen]]]
        places = seen if self._fields.boxes else np.full(len(seen), -1)
        return [found.box[seen], found.center[seen], found.depth[seen], classes, places]

    def _image_wh(self, cameras: tables.CameraColumns, frame: int, camera: int) -> tuple[int, int]:
        """Width and height of the images of a camera in a scene, of the first that this process needs."""
        key = self._index.scene_of(frame), camera
        if key not in self._sizes:
            image = self._image(cameras, frame, camera)
            self._sizes[key] = (image_size(image) if image.ndim == 1 else image.shape[-3:-1])[::-1]
        return self._sizes[key]

    @cached_property
    def _sizes(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {}

    def _lines(self, lines: tables.LineColumns, frame: int) -> list[object]:
        rows = _elements(lines.first, frame)
        starts = lines.first_point[rows.start : rows.stop + 1]
        points = lines.point[starts[0] : starts[-1]]
        points = np.column_stack([points, np.zeros(len(points))])
        moved = poses.moved(self._reference_from_base(frame), points)
        return [moved[:, :2], np.diff(starts), np.array(lines.category[rows])]


class ProviderSettings(DrivingFieldSettings, total=False):
    """The settings that providers of the files of a data set pass on to `DrivingProvider`."""

    scenes: Sequence[str] | None
    index_cache: str | os.PathLike[str] | None


def with_provider_settings(init: _Init) -> _Init:
    """Decorate an ``__init__`` that passes on `ProviderSettings`; errors for unknown arguments say so.

    It gets ``cameras`` and ``scenes`` as tuples, or None; what are no lists of names is refused before.
    """

    @wraps(init)
    def with_names(self: Any, /, *args: Any, **given: Any) -> None:
        if given.get("cameras") is not None:
            given["cameras"] = checked_names(given["cameras"], "cameras")
        if given.get("scenes") is not None:
            given["scenes"] = require_scenes(given["scenes"])
        init(self, *args, **given)

    return cast(_Init, explains_unknown_arguments(has_settings(ProviderSettings, DrivingProvider)(with_names)))


def _elements(first: Int64, place: int) -> slice:
    """Where the elements of a frame, or of an image, are in their columns."""
    return slice(int(first[place]), int(first[place + 1]))


def _names_in(folder: str) -> frozenset[bytes] | None:
    """Names of what is in a folder, none where there is no folder; None where it cannot be read."""
    if is_url(folder):  # in an archive
        return None
    try:
        return frozenset(map(os.fsencode, os.listdir(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError:
        return None


def _text(name: bytes) -> str:
    return os.fsdecode(bytes(name))


def _as_array(value: object, dtype: npt.DTypeLike) -> Array:
    return (
        np.frombuffer(os.fsencode(value), np.uint8) if isinstance(value, str | bytes) else np.asarray(value, dtype)
    )


def _rows_of(column: Array | None, rows: Int64 | slice, unknown: int) -> Int64:
    """Rows of a column as int64, or the number for what is not known; ``rows`` are numbers, or a slice."""
    if column is None:
        return np.full(rows.stop - rows.start if isinstance(rows, slice) else len(rows), unknown, np.int64)
    return np.asarray(column[rows], np.int64)
