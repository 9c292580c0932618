# SPDX-License-Identifier: Apache-2.0
"""What a sample of driving data holds: the settings that choose it, and the format."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Mapping, Sequence, Sized
from itertools import pairwise
from typing import Any, Literal, TypedDict

import attrs
import numpy as np
from attrs.validators import optional
from nvidia.dali import types

from accvlab.dali_pipeline_framework import SampleDataGroup, checks
from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, one_of, shown, valid
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import DECODED_IMAGE, Colors, numbers_name
from accvlab.dali_pipeline_framework.sample_data import ENCODED_IMAGE
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from .array_types import Int32, Int64
from .driving_index import LENS, DrivingIndex

_DT = types.DALIDataType
_logger = logging.getLogger(__name__)


class DrivingFieldSettings(TypedDict, total=False):
    """The settings of `DrivingFields`, for providers that pass them on."""

    cameras: Sequence[str] | None
    images: Literal["decoded", "encoded"]
    colors: Colors
    lidar: bool
    num_sweeps: int
    boxes: bool | None
    boxes_2d: bool
    classes: Sequence[str] | Mapping[str, str] | None
    min_points: int
    min_lidar_points: int
    num_future_frames: int
    num_ego_future_frames: int
    can_bus: bool
    ego_status: bool
    map_lines: bool
    image_times: Sequence[float]
    ego_history: Sequence[float]
    ego_future: Sequence[float]
    lenses: bool
    vehicle_size: bool
    reference: str | None


def _as_tuple(values: Any) -> Any:
    """Names, or times, as a tuple; what is no list of them, as it is."""
    found = checks.elements(values) if isinstance(values, Sized) else None
    return values if found is None else tuple(found)


def checked_names(names: object, name: str, rule: str = "a list of names") -> tuple[Any, ...] | None:
    """Get names of a selection as a tuple, some of which may be unknown; None as it is.

    Args:
        names: The names.
        name: Name of the setting, for messages.
        rule: What it must be, for messages.

    Raises:
        SettingError: They are no list, in an order that is the same in each process, or one of lists.
    """
    if names is None:
        return None
    if isinstance(names, str):
        raise SettingError(f"`{name}` must be a list of names, got one: write [{names!r}].")
    found = _as_tuple(names)
    if not isinstance(found, tuple) or not all(isinstance(each, Hashable) for each in found):
        raise checks.setting_error(name, rule, names, "Give the names as texts in one list.")
    return found


def _camera_names(cameras: Sequence[str] | None) -> Any:
    return checked_names(cameras, "cameras")


def checked_classes(classes: Sequence[str] | Mapping[str, str] | None, name: str = "classes") -> Any:
    """Get names of classes as a tuple, or as a mapping of categories; None as it is.

    Args:
        classes: The names.
        name: Name of the setting, for messages.

    Raises:
        SettingError: They are no names in an order, or a class is named twice: others would have other numbers.
    """
    rule = "a list of names, or a mapping of them"
    names = classes if isinstance(classes, Mapping) else checked_names(classes, name, rule)
    for each in [*(names or ()), *(names.values() if isinstance(names, Mapping) else ())]:
        checks.text(each, name)
    if isinstance(names, tuple) and len(set(names)) < len(names):
        repeated = sorted({each for each in names if names.count(each) > 1})
        raise SettingError(f"`{name}` may name a class once only, got several times: {listed(repeated)}.")
    return names


_REMEDIES = {
    "reference": " Leave `reference` out, or make the index with the pose of a lidar, which may be a virtual one: "
    "`index_of_frames(..., ego_from_lidar=...)`.",
    "image_times": " It needs the times of all frames of the videos, and `motion`: the index has "
    "`CameraColumns.frame_time` and `MotionColumns`.",
}


@attrs.frozen(kw_only=True)
class DrivingFields:
    """Fields of the samples of a `DrivingProvider`.

    Attributes:
        cameras: Names of the cameras, in the order wanted; None for all, () for none.
        images: Of videos: ``"decoded"`` for their frames, or ``"encoded"`` for small video files, for
            `VideoDecoder`. Files of images are delivered as they are.
        colors: How videos that state no color matrix are converted: by BT.601, as programs that record pictures
            write them, or with ``"stream"`` as players do. See `FrameConverter`.
        lidar: Whether lidar points are loaded.
        num_sweeps: Number of earlier lidar sweeps in a sample; those before the start of a scene
            have no points.
        boxes: Whether there are 3D boxes; None: where the data set has them.
        boxes_2d: Whether there are 2D boxes of each image.
        classes: Names of the classes, in the order of their numbers; boxes of other categories are left out. Or a
            mapping of the names of the data set to the names of the classes, numbered as they first appear. None:
            all categories of the data set, in its order.
        min_points: Boxes with fewer lidar and radar points together are left out, unless their number is unknown.
        min_lidar_points: Boxes with fewer lidar points are left out, unless their number is unknown.
        num_future_frames: Number of following frames for which the places of boxes are given.
        num_ego_future_frames: Number of following frames for which the place of the vehicle is given.
        can_bus: Whether samples have BEVFormer's 18 CAN-bus values, ``can_bus``.
        ego_status: Whether samples have SparseDrive's 10 values, ``ego_status``.
        map_lines: Whether there are lines of a map.
        image_times: Offsets in seconds from the frame, ascending. For each, the last image at or before it is
            loaded; the images are stacked along a first axis. Empty: the image of the frame. Only for videos whose
            times are known; for other data, `Windows` takes the images of other frames.
        ego_history: At which times before the frame the places of the vehicle are given: seconds, ascending, at
            most 0, such as ``(-1, -0.5, 0)``. Computed from the motion of the vehicle at these very times, not
            from the nearest frames.
        ego_future: At which times after the frame: seconds, ascending, above 0.
        lenses: Whether there is the f-theta lens of each camera.
        vehicle_size: Whether there is the size of the vehicle.
        reference: Coordinate frame, ``"lidar"`` or ``"ego"``, of all fields whose documentation names no other.
            None: the `DrivingProvider.base` of the data set. Data sets that are mixed must have the same.
    """

    cameras: Sequence[str] | None = attrs.field(default=None, converter=_camera_names)
    images: Literal["decoded", "encoded"] = attrs.field(
        default="decoded", validator=one_of(Literal["decoded", "encoded"])
    )
    colors: Colors = attrs.field(default="bt601", validator=one_of(Colors))
    lidar: bool = attrs.field(default=False, validator=valid(checks.flag))
    num_sweeps: int = attrs.field(default=0, validator=valid(checks.whole_number, at_least=0))
    boxes: bool | None = attrs.field(default=None, validator=optional(valid(checks.flag)))
    boxes_2d: bool = attrs.field(default=False, validator=valid(checks.flag))
    classes: Sequence[str] | Mapping[str, str] | None = attrs.field(default=None, converter=checked_classes)
    min_points: int = attrs.field(default=0, validator=valid(checks.whole_number, at_least=0))
    min_lidar_points: int = attrs.field(default=0, validator=valid(checks.whole_number, at_least=0))
    num_future_frames: int = attrs.field(default=0, validator=valid(checks.whole_number, at_least=0))
    num_ego_future_frames: int = attrs.field(default=0, validator=valid(checks.whole_number, at_least=0))
    can_bus: bool = attrs.field(default=False, validator=valid(checks.flag))
    ego_status: bool = attrs.field(default=False, validator=valid(checks.flag))
    map_lines: bool = attrs.field(default=False, validator=valid(checks.flag))
    image_times: Sequence[float] = attrs.field(default=(), converter=_as_tuple)
    ego_history: Sequence[float] = attrs.field(default=(), converter=_as_tuple)
    ego_future: Sequence[float] = attrs.field(default=(), converter=_as_tuple)
    lenses: bool = attrs.field(default=False, validator=valid(checks.flag))
    vehicle_size: bool = attrs.field(default=False, validator=valid(checks.flag))
    reference: str | None = attrs.field(
        default=None, validator=valid(checks.choice, allowed=(None, "lidar", "ego"))
    )

    def __attrs_post_init__(self) -> None:
        """Refuse what is not of its form."""
        if self.num_sweeps and not self.lidar:
            raise SettingError(f"`num_sweeps` is {self.num_sweeps}: sweeps need `lidar=True`.")
        if self.num_future_frames and self.boxes is False:
            raise SettingError("`num_future_frames` gives the places of boxes: it needs `boxes`.")
        for name, range_s, above, most in (
            ("image_times", "", -math.inf, math.inf),
            ("ego_history", " up to 0", -math.inf, 0),
            ("ego_future", " above 0", 0, math.inf),
        ):
            times, rule = getattr(self, name), f"a list of seconds{range_s}, ascending"
            if not isinstance(times, tuple) or times:
                checks.number_list(times, name, rule)
                if times[-1] > most or any(late <= early for early, late in pairwise((above, *times))):
                    raise checks.setting_error(name, rule, times)

    # --- of an index ------------------------------------------------------------------------------------

    def completed(self, index: DrivingIndex, scenes: Sequence[int] | None = None) -> DrivingFields:
        """Fill in settings that are None, for an index.

        Args:
            index: The index.
            scenes: Numbers of the requested scenes; None for all.

        Raises:
            SettingError: The index lacks requested parts; the message lists them.
        """
        cameras = index.camera_names if self.cameras is None else self.cameras
        has_boxes, has_lidar = index.boxes is not None, index.lidar is not None
        has_tracks = index.boxes is not None and index.boxes.instance is not None
        has_times = index.cameras is not None and index.cameras.frame_time is not None and index.motion is not None
        reference = self.reference or index.base
        problems = _problems_of_names("cameras", "camera", cameras, index.camera_names)
        if len(set(cameras)) < len(cameras):
            problems.append(f"cameras: each may be named once, got {shown(cameras)}.")
        for name, is_wanted, has in (
            ("lidar", self.lidar, has_lidar),
            ("num_sweeps", self.num_sweeps > 0, has_lidar),
            ("boxes", self.boxes or self.num_future_frames > 0, has_boxes),
            ("boxes_2d", self.boxes_2d, index.boxes_2d is not None or (has_boxes and index.cameras is not None)),
            ("can_bus", self.can_bus, index.frames.can_bus is not None),
            ("ego_status", self.ego_status, index.frames.ego_status is not None),
            ("map_lines", self.map_lines, index.lines is not None),
            ("image_times", bool(self.image_times), has_times),
            ("ego_history", bool(self.ego_history), index.motion is not None),
            ("ego_future", bool(self.ego_future), index.motion is not None),
            ("lenses", self.lenses, index.cameras is not None and index.cameras.lens is not None),
            ("vehicle_size", self.vehicle_size, index.frames.vehicle_size is not None),
            ("num_future_frames", self.num_future_frames > 0, has_tracks),
            ("reference", reference == "lidar", index.base == "lidar"),
        ):
            if is_wanted and not has:
                problems.append(f"{name}: the data set has none.{_REMEDIES.get(name, '')}")
        if self.boxes is None and not has_boxes and not self.boxes_2d and self.classes is not None:
            problems.append("classes: the data set has no boxes. Leave `classes` out, or write `boxes=False`.")
        problems += self._problems_of_classes(index, scenes)
        if self.boxes is not False and not problems:
            problems += self._problems_of_points(index)
        if problems:
            raise SettingError(f"The data set lacks what is requested:\n{bullets(problems)}")
        return attrs.evolve(
            self,
            cameras=tuple(cameras),
            boxes=has_boxes if self.boxes is None else self.boxes,
            reference=reference,
        )

    def _problems_of_classes(self, index: DrivingIndex, scenes: Sequence[int] | None) -> list[str]:
        """What is wrong with ``classes`` that are no categories, or that no box has.

        If only the requested scenes, or only the 2D boxes, have no such box, there is a warning.
        """
        of_boxes = self.boxes is not False and index.boxes is not None
        if self.classes is None or not (of_boxes or self.boxes_2d):
            return []
        names_2d = index.box2d_categories or index.categories
        known, boxes = (index.categories, index.boxes) if of_boxes else (names_2d, index.boxes_2d or index.boxes)
        problems = _problems_of_names("classes", "category", [*self.classes], known)
        if problems or boxes is None:
            return problems
        empty, there = self._empty_classes(boxes.category, known, index)
        if empty == [*self.class_names(index)]:
            return [f"classes: no box of the data set is one of them. Its boxes are: {there}."]
        if empty:
            _logger.warning("classes: no box of the data set is %s. Its boxes are: %s.", listed(empty), there)
        others = []
        if scenes is not None and len(scenes) < len(index.frames.scene):
            rows = _rows_of_scenes(boxes.first, index, scenes)
            what = "box of the chosen scenes is one of them, their samples have none. The boxes of these scenes"
            others.append((what, boxes.category[rows], known))
        if of_boxes and self.boxes_2d and index.boxes_2d is not None:
            what = "2D box of the data set is one of them, samples have none. The 2D boxes"
            others.append((what, index.boxes_2d.category, names_2d))
        for what, category, names in others:
            empty, there = self._empty_classes(category, names, index)
            if empty == [*self.class_names(index)]:
                warn_user(f"`classes`: no {what} are: {there}.")
        return []

    def _empty_classes(self, category: Int32, known: Sequence[str], index: DrivingIndex) -> tuple[list[str], str]:
        """Classes that no box has, none where there are no boxes; the categories of boxes with their counts."""
        counts = np.bincount(category + 1, minlength=len(known) + 1)[1:]
        there = [f"{name} ({count})" for name, count in zip(known, counts, strict=True) if count]
        found = {*np.array(self.class_of_category(known, index))[[*np.flatnonzero(counts), -1]].tolist()}
        empty = [name for number, name in enumerate(self.class_names(index)) if number not in found]
        return empty if len(category) else [], listed(there, 30) if there else "of no category"

    def _problems_of_points(self, index: DrivingIndex) -> list[str]:
        """What is wrong with least numbers of points that no box of the data set has."""
        boxes = index.boxes
        if boxes is None or boxes.num_lidar_points is None or boxes.num_lidar_points.min(initial=0) < 0:
            return []
        most = {"min_lidar_points": boxes.num_lidar_points, "min_points": boxes.num_lidar_points}
        if boxes.num_radar_points is not None:
            most["min_points"] = boxes.num_lidar_points + np.maximum(boxes.num_radar_points, 0)
        return [
            f"{name}: no box of the data set has {least} points, the most are {points.max()} of a box."
            for name, points in most.items()
            if len(points) and points.max() < (least := getattr(self, name))
        ]

    @property
    def motion_offsets_s(self) -> dict[str, Sequence[float]]:
        """Offsets of the requested places of the vehicle, by name of their group, seconds from the frame."""
        given = {"ego_history": self.ego_history, "ego_future": self.ego_future}
        return {name: times for name, times in given.items() if times}

    def class_names(self, index: DrivingIndex) -> tuple[str, ...]:
        """Names of the classes, by number."""
        if self.classes is None:
            return index.categories
        return tuple(dict.fromkeys(self.classes.values() if isinstance(self.classes, Mapping) else self.classes))

    def class_of_category(self, names: Sequence[str], index: DrivingIndex) -> list[int]:
        """Number of the class of each category, -1 for none.

        One more element, -1, comes last, so that the category -1, used as an index, gives -1.
        """
        number_of = {name: number for number, name in enumerate(self.class_names(index))}
        renamed = self.classes if isinstance(self.classes, Mapping) else {name: name for name in number_of}
        return [*(number_of.get(renamed.get(name, ""), -1) for name in names), -1]

    def blueprint(self, *, is_video: bool = False, kinds: Sequence[str] = ()) -> SampleDataGroup:
        """Format of the samples, see `DrivingProvider`; for settings that were `completed`.

        Args:
            is_video: Whether images are frames of videos.
            kinds: Codecs of the videos, where they are delivered encoded.
        """
        sample = _group(("token scene", _DT.STRING, None), ("frame", _DT.INT32, 0), ("is_first", _DT.BOOL, 0))
        _add(sample, ("timestamp", _DT.FLOAT64, 0))
        sample.add_data_group_field("ego", self._ego())
        places = _group(("positions", _DT.FLOAT, 2), ("rotations", _DT.FLOAT, 3), ("times", _DT.FLOAT64, 1))
        for name in self.motion_offsets_s:
            sample.add_data_group_field(name, places)
        if self.cameras:
            sample.add_data_group_field_array("cameras", self._camera(is_video, kinds), len(self.cameras))
        lidar = _group(("points", _DT.FLOAT, 2), ("reference_from_lidar", _DT.FLOAT64, 2))
        _add(lidar, ("timestamp", _DT.FLOAT64, 0))
        if self.lidar:
            sample.add_data_group_field("lidar", lidar)
        if self.num_sweeps:
            sample.add_data_group_field_array("sweeps", lidar, self.num_sweeps)
        if self.boxes:
            sample.add_data_group_field("boxes", self._boxes())
        if self.map_lines:
            lines = _group(("points", _DT.FLOAT, 2), ("num_points categories", _DT.INT32, 1))
            sample.add_data_group_field("map_lines", lines)
        return sample

    def _ego(self) -> SampleDataGroup:
        fields = [("world_from_ego ego_from_reference world_from_reference", _DT.FLOAT64, 2)]
        fields += [("can_bus", _DT.FLOAT64, 1)] * bool(self.can_bus)
        fields += [("status", _DT.FLOAT64, 1)] * bool(self.ego_status)
        fields += [("vehicle_size", _DT.FLOAT64, 1)] * self.vehicle_size
        future = [("future_positions", _DT.FLOAT, 2), ("is_future_known", _DT.BOOL, 1)]
        return _group(*fields, *future * bool(self.num_ego_future_frames))

    def _camera(self, is_video: bool, kinds: Sequence[str]) -> SampleDataGroup:
        camera, is_file = SampleDataGroup(), not is_video or self.images == "encoded"
        content = attrs.evolve(ENCODED_IMAGE, codecs=tuple(kinds)) if is_file else DECODED_IMAGE
        num_more = int(bool(self.image_times))
        if num_more and not is_file:
            content = attrs.evolve(content, layout="FHWC")
        camera.add_data_field("image", _DT.UINT8, ndim=1 if is_file else 3 + num_more, content=content)
        if is_video and is_file:
            _add(camera, (numbers_name("image"), _DT.INT32, num_more))
        _add(camera, ("name", _DT.STRING, None), ("timestamp", _DT.FLOAT64, num_more))
        _add(camera, ("intrinsics", _DT.FLOAT64, 2), ("camera_from_reference", _DT.FLOAT64, 2 + num_more))
        _add(camera, ("ego_from_camera", _DT.FLOAT64, 2))
        if self.lenses:
            camera.add_data_group_field("lens", _group((" ".join(LENS), _DT.FLOAT64, 1)))
        if self.boxes_2d:
            floats = ("boxes centers", _DT.FLOAT, 2), ("depths", _DT.FLOAT, 1)
            camera.add_data_group_field("boxes_2d", _group(*floats, ("categories box_rows", _DT.INT32, 1)))
        return camera

    def _boxes(self) -> SampleDataGroup:
        fields = [("centers sizes", _DT.FLOAT, 2), ("yaws", _DT.FLOAT, 1), ("velocities", _DT.FLOAT, 2)]
        fields.append(("categories attributes visibilities num_lidar_points num_radar_points", _DT.INT32, 1))
        fields.append(("instances", _DT.INT64, 1))
        future = [("future_centers", _DT.FLOAT, 3), ("is_future_known", _DT.BOOL, 2)]
        return _group(*fields, *future * bool(self.num_future_frames))


def _add(group: SampleDataGroup, *fields: tuple[str, types.DALIDataType, int | None]) -> None:
    """Add fields of one type and number of dimensions each; their names are separated by spaces."""
    for names, dtype, ndim in fields:
        for name in names.split():
            group.add_data_field(name, dtype, ndim=ndim)


def _group(*fields: tuple[str, types.DALIDataType, int | None]) -> SampleDataGroup:
    group = SampleDataGroup()
    _add(group, *fields)
    return group


def _rows_of_scenes(first: Int64, index: DrivingIndex, scenes: Sequence[int]) -> Int64:
    """Rows of the boxes, or 2D boxes, of scenes; ``first`` is their first row by frame or by image."""
    per_frame = (len(first) - 1) // max(index.num_frames, 1)
    edges = np.asarray(first)[np.asarray(index.frames.first_of_scene) * per_frame]
    return np.concatenate([np.arange(edges[scene], edges[scene + 1]) for scene in scenes])


def most_sweeps(fields: DrivingFieldSettings) -> int:
    """Number of sweeps that an index has for each frame: those requested, at least 10, as most models take."""
    num_sweeps: object = fields.get("num_sweeps")
    return max(10, num_sweeps) if isinstance(num_sweeps, int) else 10


def _problems_of_names(setting: str, what: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    there = f"There are: {listed(known)}."
    return [
        f"{setting}: there is no {what} {shown(name)}.{did_you_mean(name, known)} {there}"
        for name in names
        if name not in known
    ]
