# SPDX-License-Identifier: Apache-2.0
"""A data provider for driving data of any origin: samples of one format, from an index."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial, wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import index_in, listed
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import StoragePath, image_size, numbers_name
from accvlab.dali_pipeline_framework.providers import EncodedClipValue, FieldColumns, Storage, WantedFields
from accvlab.dali_pipeline_framework.sample_data import FieldPath
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments, has_settings
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from . import driving_index as tables
from . import poses
from .array_types import Array, Float32, Float64, Int64, Names, UInt8
from .driving_fields import DrivingFields, DrivingFieldSettings, checked_names
from .driving_index import DrivingIndex
from .frame_boxes import FrameBoxes
from .frame_images import FrameImages
from .frame_places import FramePlaces
from .requested_files import LIDAR as LIDAR
from .requested_files import WantedFiles, check_files, refuse_missing_names
from .requested_parts import numbers_of_scenes, require_scenes
from .scene_parts import WITHOUT_BOXES
from .video_frames import VideoFrames

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack

    from accvlab.dali_pipeline_framework.testing import Finding
else:
    Unpack = dict  # typing_extensions is for type checkers only; annotations stay readable


_Init = TypeVar("_Init", bound=Callable[..., Any])
# Of poses that are the same but for rounding, far from the origin of the world; meters, or parts of an axis.
_ROUNDING = 1e-8
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
            future_positions         FLOAT (T, 3)      origin of the reference frame at T following samples
            is_future_known          BOOL (T,)         False, and zeros, beyond the end of the scene
        ego_history, ego_future
            positions                FLOAT (T, 3)      of the vehicle, in its axes at the time of the sample
            rotations                FLOAT (T, 3, 3)   from its axes at T times to its axes at the sample
            times                    FLOAT64 (T,)      seconds from the frame
        cameras[0..C-1]
            image                    UINT8 (num_bytes,)  a file; of videos (H, W, 3), RGB
            image_to_decode          INT32             with ``images="encoded"``, the frame in the video file
            name                     STRING
            timestamp                FLOAT64           seconds
            intrinsics               FLOAT64 (3, 3)    to pixels times depth, as the data set has it
            camera_from_reference    FLOAT64 (4, 4)    with the motion between frame and image
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
            reference_from_lidar     FLOAT64 (4, 4)    with the motion between frame and points
            timestamp                FLOAT64           seconds
        boxes
            centers                  FLOAT (N, 3)
            sizes                    FLOAT (N, 3)      length, width, height
            yaws                     FLOAT (N,)        in [-pi, pi], angle from x to the length
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

    Frames of a scene follow each other, by time; samplers take `sequence_lengths`. A pickled provider holds only
    the path of its index, if that is saved; otherwise, it holds a copy. Each process maps a saved index, and files
    are read in the workers.
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
            data_root: Folder or URL to which the names of files are relative.
            scenes: Names of the scenes, in the order wanted; None for all.
            index_cache: Folder where indices are kept, also of videos; None for ``$ACCVLAB_INDEX_CACHE``, or
                else ``accvlab/driving`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
            storage_options: Arguments of the remote file system of ``data_root``, also for videos there.
            **fields: Fields of the samples: settings of `DrivingFields`.

        Raises:
            FileError: The index cannot be opened.
            SettingError: The data set lacks requested parts, or there are no frames.
        """
        self._index = index if isinstance(index, DrivingIndex) else DrivingIndex.open(index)
        self._stored_index = self._index if self._index.folder is None else self._index.folder
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
        stored = self._stored_index
        return stored if isinstance(stored, DrivingIndex) else DrivingIndex.open(stored)

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
        """Coordinate frame in which the data set states boxes and extrinsics, ``"lidar"`` or ``"ego"``."""
        return self._index.base

    @property
    def right_axis(self) -> str:
        """Axis of the reference frame nearest to the vehicle's right: ``"x"``, ``"-x"``, ``"y"`` or ``"-y"``."""
        right = -self._places.ego_from_reference(self._frame(0))[1, :2]
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
        if not self._is_video or self._fields.images == "decoded":
            return ()
        return self._frame_images.video_kinds(self._frames, self._camera_numbers)

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
        cameras, names = index.cameras, index.camera_names
        files = [
            self._file_name(cameras.file[frame - back, camera], names[camera])
            for camera, back in self._views
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
        windows = {"image_times": self._fields.image_times, **self._fields.motion_offsets_s}
        lines = [f"{name}: {len(of)}, {of[0]:g} to {of[-1]:g} s" for name, of in windows.items() if of]
        return "\n".join([repr(self), *lines, *self._origin_lines()])

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
        wanted = self._needed_files(also_sweeps=False)
        refuse_missing_names(self._index, wanted, place, also_images=also_images, also_points=also_points)

    def _wanted_files(self) -> WantedFiles:
        """Files that samples need and the data set has a name for, with the frame that needs them first."""
        wanted = self._needed_files(also_sweeps=True)
        return {sensor: (frames[names != b""], names[names != b""]) for sensor, (frames, names) in wanted.items()}

    def _needed_files(self, *, also_sweeps: bool) -> WantedFiles:
        frames, index, wanted = self._frames, self._index, dict[str, tuple[Int64, Names]]()
        if index.cameras is not None:
            for camera in dict.fromkeys(camera for camera, _ in self._views):
                taken = np.unique([frames - back for other, back in self._views if other == camera])
                wanted[index.camera_names[camera]] = taken, np.asarray(index.cameras.file[:, camera])[taken]
        if self._fields.lidar and index.lidar is not None:
            records = np.asarray(index.lidar.of_frame)[frames]
            if also_sweeps and self._fields.num_sweeps:
                earlier = [self._earlier_records(index.lidar, frame) for frame in frames.tolist()]
                records = np.array([*records.tolist(), *chain.from_iterable(earlier)], np.int64)
                frames = np.concatenate([frames, np.repeat(frames, [*map(len, earlier)])])
                records, first = np.unique(records, return_index=True)
                frames = frames[first]
            wanted[LIDAR] = frames, np.append(index.lidar.file, b"")[records]
        return wanted

    def _check_files(self, place: str, advice: str = "") -> None:
        """Compare the files that are requested with those in the folders; remote ones are not looked for.

        Args:
            place: What names the files, for messages.
            advice: What else helps where none of a sensor is there.

        Raises:
            FileError: None of the files of a sensor is there.
        """
        if not self._storage.is_remote:

            def path_of(name: bytes, sensor: str) -> str:
                return self._storage.path(self._file_name(name, sensor))

            check_files(self._index, self._scenes, self._wanted_files(), path_of, place, advice)

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
            ("ego",): partial(self._places.ego, frame, following),
        }
        parts |= {(name,): partial(self._places.motion, name, frame) for name in fields.motion_offsets_s}
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
        if fields.boxes:
            parts["boxes",] = partial(self._frame_boxes.boxes, frame, following)
        if fields.map_lines:
            parts["map_lines",] = partial(self._frame_boxes.lines, frame)
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
            keys = [self._frame_images.key(frame, camera) for frame in frames]
            for frame, (_, number) in zip(frames, keys, strict=True):
                if number < 0:
                    self._image(cameras, frame, camera)  # there is none: raises
            clips.append(self._frame_images.encoded(keys, frames[0], camera, self._video_kinds))
        return clips

    def contract_findings(self, samples: Mapping[int, SampleDataGroup], seed: int) -> Iterable[Finding]:
        """Check samples by the rules of driving data, see `DataProvider.contract_findings`.

        *   Times ascend in each scene, and are seconds: each frame is at most 1000 s after the one before it, most
            are at most 15 s after it; images and points are at most 10 s from their frame.
        *   Matrices are rigid motions; focal lengths are above 0.
        *   Cameras are at the place where they are mounted: ``camera_from_reference`` differs from
            ``inverse(ego_from_camera) @ ego_from_reference`` by at most 20 degrees and 10 m, plus 45 degrees
            and 70 m per second between the times of frame and image.
        *   ``ego_history`` and ``ego_future`` are poses; at the time of the frame they agree with the pose of the
            vehicle.
        *   All fields of boxes have the same number of elements; boxes have sizes above 0, yaws in [-pi, pi], and
            categories that have a name or are -1; no object occurs twice in a frame. The boxes that 2D boxes
            belong to are in front of the camera.

        Check whether up to 4 scenes, with 6 consecutive frames each, are plausible. The text of
        ``check_provider`` has a measured value for each rule. A rule finds nothing where there is too little to
        judge, such as fewer than eight boxes:

        *   Cameras are within 30 m of the vehicle's origin, and keep their place on the vehicle while it moves;
            unless they look down, their y axis is within 60 degrees of down; cameras named left, right, front or
            back do not look to the opposite (``left`` may look ahead, as one of a pair).
        *   Principal points are inside the image. One off the middle is reported if it were near the middle with
            cx and cy exchanged, or with another size of the image. Of the boxes in the direction of a camera, 8 to
            60 m away, the camera sees at least a fifth.
        *   Boxes are less than 400 m away (median). At least half of the vehicles (classes with a word such as
            ``car``, ``truck``, ``bus``, ``trailer``, ``van``, ``vehicle``) are longer than wide; their
            median length is 1 to 40 m, and their median height at most 1.5 times that.
        *   The vehicle drives along its heading, within 45 degrees, when faster than 3 m/s; it drives backward
            only slower than that.
        *   Objects that stand stay where they are in the world. Jumps are reported only if they
            would vanish with another pose of the vehicle (its inverse, or the pose of another frame) or other axes
            of the boxes, or if the data set states a velocity of zero for these objects.
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
        if self._index.cameras is None:
            return nullcontext()
        of_frames = ((self._frame(sample) - back, camera) for sample, (camera, back) in images)
        return self._frame_images.together(of_frames)

    @cached_property
    def _places(self) -> FramePlaces:
        return FramePlaces(self._index, self._fields)

    @cached_property
    def _frame_boxes(self) -> FrameBoxes:
        return FrameBoxes(self._places)

    @cached_property
    def _frame_images(self) -> FrameImages:
        return FrameImages(self._index, self._fields, self._storage, self._video_frames, self._file_name)

    def _camera(self, cameras: tables.CameraColumns, frame: int, camera: int, back: int) -> list[object]:
        """Fields of an image, which a camera took so many frames before the frame of the sample."""
        taken, base_from_reference = frame - back, poses.inverse(self._places.reference_from_base(frame))
        if back:
            base_from_base = poses.joined(
                poses.inverse(self._places.world_from_base(taken)), self._places.world_from_base(frame)
            )
            base_from_reference = poses.joined(base_from_base, base_from_reference)
        time, camera_from_base = cameras.time[taken, camera], cameras.camera_from_base[taken, camera]
        if self._fields.image_times and self._index.motion is not None:
            times = self._frame_images.window(frame, camera)[1]
            world_from_ego = self._index.motion.of_scene(self._index.scene_of(frame)).at(times)
            world_from_camera = poses.joined(world_from_ego, cameras.ego_from_camera[frame, camera])
            world_from_base = self._places.world_from_base(frame)
            time, camera_from_base = times / 1e6, poses.joined(poses.inverse(world_from_camera), world_from_base)
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
        if self._fields.boxes_2d:
            flat += self._frame_boxes.boxes_2d(taken, camera, lambda: self._image_wh(cameras, taken, camera))
        return flat

    def _images(self, cameras: tables.CameraColumns, frame: int, camera: int) -> list[object]:
        """Get the image of a frame; of a video that is delivered encoded, its file and the number in it."""
        if self._is_video and self._fields.images == "encoded":
            keys = self._frame_images.keys(frame, camera)
            if keys[0][1] >= 0:
                file, places = self._frame_images.encoded(keys, frame, camera, self._video_kinds)
                return [file, places if self._fields.image_times else places[0]]
        image = self._image(cameras, frame, camera)
        self._frame_images.look_at(frame, camera, image if image.ndim == 1 else image.shape[-3:-1])
        return [image]

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

    def _record(self, lidar: tables.LidarColumns, frame: int, record: int) -> list[object]:
        if record < 0:
            no_points = np.zeros((0, len(self.point_columns)), np.float32)
            return [no_points, np.eye(4), self._index.frames.time[frame]]
        base_from_world = poses.inverse(self._places.world_from_base(frame))
        base_from_lidar = poses.joined(base_from_world, lidar.world_from_lidar[record])
        if np.abs(base_from_lidar - np.eye(3, 4)).max() < _ROUNDING:
            base_from_lidar = np.eye(3, 4)
        reference_from_lidar = poses.joined(self._places.reference_from_base(frame), base_from_lidar)
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
        first, end = lidar.first_sweep[frame : frame + 2].tolist()
        found: list[int] = lidar.sweep[first:end][: self._fields.num_sweeps].tolist()
        return found

    @cached_property
    def _is_video(self) -> bool:
        """Whether `_image` delivers decoded frames of the chosen cameras."""
        cameras = self._index.cameras
        if cameras is None or cameras.video_frame is None or not self._camera_numbers:
            return False
        return self._frame_images.are_of_videos(self._frames, self._camera_numbers)

    def _image(self, cameras: tables.CameraColumns, frame: int, camera: int) -> UInt8:
        """Read the image of a frame: the bytes of its file, ``(num_bytes,)`` uint8; of a video, its pixels."""
        return self._frame_images.read(frame, camera)

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


def _text(name: bytes) -> str:
    return os.fsdecode(bytes(name))


def _as_array(value: object, dtype: npt.DTypeLike) -> Array:
    return (
        np.frombuffer(os.fsencode(value), np.uint8) if isinstance(value, str | bytes) else np.asarray(value, dtype)
    )
