# SPDX-License-Identifier: Apache-2.0
"""The two forms of info pickles: ``infos`` and ``metadata``, or ``data_list`` and ``metainfo``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving.array_types import Float64, Int64
from ..driving.requested_parts import RequestedParts
from .raw_info import Entry, RawBoxes, RawBoxes2d, RawCamera, RawInfo, RawPose, RawSweep, as_entry

_T = TypeVar("_T")

# In the order of the converters' own labels, which is not that of the classes of every model.
CATEGORIES = (
    *("car", "truck", "trailer", "bus", "construction_vehicle"),
    *("bicycle", "motorcycle", "pedestrian", "traffic_cone", "barrier"),
)
ATTRIBUTES = (
    *("cycle.with_rider", "cycle.without_rider"),
    *("pedestrian.moving", "pedestrian.standing", "pedestrian.sitting_lying_down"),
    *("vehicle.moving", "vehicle.parked", "vehicle.stopped"),
)
LINE_CATEGORIES = ("ped_crossing", "divider", "boundary")

# The present spelling, and those of releases before.
_CATEGORY_KEYS = ("categories", "classes", "CLASSES")

_INSTANCES = ("instance_inds", "gt_inds", "instance_ids", "track_ids", "instance_tokens", "gt_ins_tokens")


def raw_infos_of(content: Any, path: str, parts: RequestedParts) -> tuple[str, Sequence[str], list[RawInfo]]:
    """Read what a pickle holds.

    Returns:
        Its form, ``"infos"`` or ``"data_list"``, the names of categories by label, the frames as they are stored.

    Raises:
        FileError: It is no info pickle, or something in it is missing or of the wrong kind.
    """
    _refuse_other_kinds(content, path)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = {"infos": content}
    if not isinstance(content, dict) or not ("infos" in content or "data_list" in content):
        found = f"keys {listed(map(repr, content))}" if isinstance(content, dict) else shown(content)
        raise FileError(
            f"The pickle {path!r} must be a dict with the key 'infos' or 'data_list', as the converters of "
            f"mmdetection3d and of projects built on it write it; it has {found}."
        )
    form = "infos" if "infos" in content else "data_list"
    infos = content[form]
    if not isinstance(infos, list | tuple) or not infos:
        raise FileError(f"The pickle {path!r} must have frames in {form!r}, got {shown(infos)}.")
    names = _category_names(content.get("metainfo"), path) if form == "data_list" else CATEGORIES
    prefixes = _folder_prefixes(content.get("metainfo"))
    raw = []
    for number, info in enumerate(infos):
        place = f"{path!r}: {form}[{number}]"
        entry = as_entry(info, place)
        given = entry.get("token", "sample_idx")
        token = str(number if given is None else given)
        entry = Entry(entry.values, f"{place} (token {token!r})")
        reading = _Reading(entry, parts)
        with _naming_unexpected(entry.place):
            if form == "infos":
                raw.append(_of_infos(reading, token))
            else:
                raw.append(_of_data_list(reading, token, names, prefixes))
    return form, names, raw


_NO_POSES = "which have neither times nor poses of the vehicle"
_OTHERS = {
    "kitti": f"one of KITTI's object detection, {_NO_POSES}: the sequences of KITTI are opened by "
    "`KittiTrackingProvider` and `KittiOdometryProvider`",
    "waymo": "one of Waymo, with its own frames of reference: convert its records by py123d, whose logs "
    "`ArrowLogProvider` opens",
    "dbinfos": "a database of objects for pasting (`dbinfos`), without frames: give the pickle with the frames",
}


def _refuse_other_kinds(content: Any, path: str) -> None:
    """Refuse pickles of other data sets by name."""
    kind, meta = None, content.get("metainfo", content.get("metadata")) if isinstance(content, dict) else None
    frames = content.get("infos", content.get("data_list")) if isinstance(content, dict) else content
    first = frames[0] if isinstance(frames, list | tuple) and frames else None
    if isinstance(meta, dict) and str(meta.get("dataset", "")).lower() in ("kitti", "waymo"):
        kind = str(meta["dataset"]).lower()
    elif isinstance(first, dict) and {"image", "point_cloud"} <= first.keys() and "cams" not in first:
        points, name = first["point_cloud"], path.rpartition("/")[2].lower()
        has_six = isinstance(points, dict) and points.get("num_features") == 6
        is_waymo = has_six or "waymo" in name or ("pose" in first and "timestamp" in first)
        kind = "waymo" if is_waymo else "kitti"
    elif isinstance(content, dict) and frames is None:
        lists = [value for value in content.values() if isinstance(value, list) and value]
        if lists and all(isinstance(one[0], dict) and "box3d_lidar" in one[0] for one in lists):
            kind = "dbinfos"
    if kind is not None:
        raise FileError(
            f"The pickle {path!r} is {_OTHERS[kind]}. InfosProvider reads pickles of nuScenes, and of others that "
            f"are made as those."
        )


@contextlib.contextmanager
def _naming_unexpected(place: str) -> Iterator[None]:
    """Name the place of values of other kinds than the converters write, where none is expected."""
    try:
        yield
    except FileError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        raise FileError(f"{place} is not as the converters write it: {type(error).__name__}: {error}.") from error


@attrs.frozen
class _Reading:
    """Reads the parts of a frame."""

    info: Entry
    parts: RequestedParts

    def part(self, name: str, read: Callable[[], _T]) -> _T | None:
        """Read a part; None where it cannot be read and is not requested."""
        with self.parts.reading(name), _naming_unexpected(self.info.place):
            return read()
        return None

    def cameras(self, entries: str, read: Callable[[str, Entry], RawCamera]) -> dict[str, RawCamera]:
        """Read the cameras that can be read."""
        stored = as_entry(self.info.get(entries) or {}, f"{self.info.place}[{entries!r}]").values
        found: dict[str, RawCamera] = {}
        for key, value in stored.items():
            name, place = str(key), f"{self.info.place}[{entries!r}][{str(key)!r}]"
            with self.parts.reading(f"cameras/{name}"), _naming_unexpected(self.info.place):
                found[name] = read(name, as_entry(value, place))
        return found


# --- infos ----------------------------------------------------------------------------------------------


def _of_infos(reading: _Reading, token: str) -> RawInfo:
    info, part = reading.info, reading.part
    cameras = reading.cameras("cams", lambda _, camera: _camera_of_infos(camera))
    previous = info.values.get("prev_token", info.values.get("prev"))
    has_sweeps, has_2d = info.get("sweeps") is not None, info.get("bboxes2d") is not None
    return RawInfo(
        **_of_both_forms(reading, previous, "scene_token", "scene_name"),
        token=token,
        time=_microseconds(info),
        world_from_ego=_pose(info, "ego2global"),
        ego_from_base=_pose(info, "lidar2ego"),
        cameras=cameras,
        lidar_file=info.get("lidar_path"),
        sweeps=part("lidar", lambda: [*map(_sweep_of_infos, info.entries("sweeps"))]) if has_sweeps else None,
        boxes=part("boxes", lambda: _boxes_of_infos(info)),
        boxes_2d=part("boxes_2d", lambda: _boxes_2d_of_infos(info, [*map(str, info.get("cams") or ())]))
        if has_2d
        else None,
    )


def _of_both_forms(reading: _Reading, previous: object, *scene_names: str) -> dict[str, Any]:
    """What both forms say of a frame in one way."""
    info, part = reading.info, reading.part
    scene, number = info.get(*scene_names), info.get("frame_idx")
    return {
        "place": info.place,
        "scene": None if scene is None else str(scene),
        "number": None if number is None else int(number),
        "previous": previous if isinstance(previous, str) else None,
        "can_bus": part("can_bus", lambda: _vector(info, "can_bus", 18)),
        "ego_status": part("ego_status", lambda: _vector(info, "ego_status", 10)),
        "lines": part("map_lines", lambda: _lines(info)),
    }


def _pose(entry: Entry, name: str) -> RawPose:
    return entry.need(f"{name}_rotation"), entry.need(f"{name}_translation")


def _microseconds(entry: Entry) -> float:
    return _time(entry) / 1e6


def _time(entry: Entry) -> float:
    value = entry.need("timestamp")
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise FileError(f"{entry.place}['timestamp'] must be a number, got {shown(value)}.")
    return float(value)


def _camera_of_infos(camera: Entry) -> RawCamera:
    return RawCamera(
        file=_file(camera, "data_path"),
        time=_microseconds(camera),
        intrinsics=camera.need("cam_intrinsic", "camera_intrinsics", "cam2img"),
        ego_from_camera=_pose(camera, "sensor2ego"),
        pose=_pose(camera, "sensor2lidar"),
    )


def _file(entry: Entry, name: str) -> str:
    value = entry.need(name)
    if not isinstance(value, str):
        raise FileError(f"{entry.place}[{name!r}] must be the name of a file, got {shown(value)}.")
    return value


def _sweep_of_infos(sweep: Entry) -> RawSweep:
    own = _pose(sweep, "ego2global"), _pose(sweep, "sensor2ego")
    return RawSweep(_file(sweep, "data_path"), _microseconds(sweep), *own)


def _boxes_of_infos(info: Entry) -> RawBoxes | None:
    if info.get("gt_boxes") is None:
        return None
    boxes = info.get("gt_boxes")
    is_long = np.ndim(boxes) == 2 and np.shape(boxes)[1] == 9
    array = info.array(boxes, "gt_boxes", -1, 9 if is_long else 7)
    count, names = len(array), [str(name) for name in info.need("gt_names")]
    if len(names) != count:
        raise FileError(f"{info.place}['gt_names'] has {len(names)} names, but there are {count} boxes.")
    velocities = info.get("gt_velocity")
    if velocities is not None:
        velocities = info.array(velocities, "gt_velocity", count, 2) if count else np.zeros((0, 2))
    elif is_long:
        velocities = array[:, 7:]

    def numbers(name: str) -> Int64 | None:
        value = info.get(name)
        return None if value is None else info.numbers(value, name, count)

    return RawBoxes(
        boxes=array[:, :7],
        names=names,
        velocities=velocities,
        instances=_instances(info, count),
        visibilities=_levels(info.get("visibility_tokens")),
        num_lidar_points=_lidar_points(numbers("num_lidar_pts"), numbers("valid_flag")),
        num_radar_points=numbers("num_radar_pts"),
    )


def _lidar_points(counts: Int64 | None, is_valid: Int64 | None) -> Int64 | None:
    """Numbers of points; where only a flag says whether there are any, 0 or not known."""
    return np.where(is_valid != 0, -1, 0) if counts is None and is_valid is not None else counts


def _instances(info: Entry, count: int) -> Int64 | list[str] | None:
    name = next((name for name in _INSTANCES if info.get(name) is not None), None)
    if name is None:
        return None
    value = info.get(name)
    if len(value) != count:
        raise FileError(f"{info.place}[{name!r}] has {len(value)} objects, but there are {count} boxes.")
    return [*map(str, value)] if count and isinstance(value[0], str) else info.numbers(value, name, count)


def _levels(values: Sequence[object] | None) -> Int64 | None:
    """Visibilities from 1 to 4, of numbers or text, 0 for all else; None where there are none at all."""
    if values is None or (len(values) and all(value is None for value in values)):
        return None
    texts = [str(value) for value in values]
    return np.array([int(text) if text in ("1", "2", "3", "4") else 0 for text in texts], np.int64)


def _boxes_2d_of_infos(info: Entry, cameras: Sequence[str]) -> dict[str, RawBoxes2d]:
    lists = {name: info.need(name) for name in ("bboxes2d", "labels2d", "centers2d", "depths")}
    lists |= {name: info.get(name) for name in ("bboxes3d_cams", "visibilities") if info.get(name) is not None}
    for name, values in lists.items():
        if len(values) != len(cameras):
            raise FileError(f"{info.place}[{name!r}] is of {len(values)} cameras, but 'cams' has {len(cameras)}.")
    boxes = {}
    for number, camera in enumerate(cameras):
        count = len(lists["labels2d"][number])
        of_objects = lists["bboxes3d_cams"][number] if "bboxes3d_cams" in lists else None
        boxes[camera] = RawBoxes2d(
            boxes=_rows(info, lists["bboxes2d"][number], "bboxes2d", count, 4),
            centers=_rows(info, lists["centers2d"][number], "centers2d", count, 2),
            depths=info.array(lists["depths"][number], "depths", count),
            names=[_name_of(label, CATEGORIES, info, "labels2d") for label in lists["labels2d"][number]],
            places=None if of_objects is None else _rows(info, of_objects, "bboxes3d_cams", count, 7)[:, :3],
            visibilities=_levels(lists["visibilities"][number]) if "visibilities" in lists else None,
        )
    return boxes


def _rows(info: Entry, value: Any, name: str, count: int, width: int) -> Float64:
    """Rows of at least so many numbers, of which there may be none, in any form."""
    if not count:
        return np.zeros((0, width))
    given = np.shape(np.asarray(value))
    return info.array(value, name, count, max(width, given[-1]) if len(given) == 2 else width)


def _name_of(label: Any, names: Sequence[str], info: Entry, key: str) -> str | None:
    number = int(label)
    if number >= len(names):
        what = f"{info.place}[{key!r}] has the label {number}"
        raise FileError(f"{what}, but there are {len(names)} categories, from 0: {listed(names)}.")
    return None if number < 0 else names[number]


def _vector(info: Entry, name: str, size: int) -> Float64 | None:
    value = info.get(name)
    return None if value is None else info.array(value, name, size)


def _lines(info: Entry) -> list[tuple[str, Float64]] | None:
    lines = info.get("map_annos", "annotation")
    if lines is None:
        return None
    raw = []
    for label, points in as_entry(lines, f"{info.place}['map_annos']").values.items():
        name = str(label)
        if isinstance(label, int | np.integer) and 0 <= label < len(LINE_CATEGORIES):
            name = LINE_CATEGORIES[label]
        for line in points:
            width = np.shape(line)[-1] if np.ndim(line) == 2 else 2
            raw.append((name, info.array(line, "map_annos", -1, width)[:, :2]))
    return raw


# --- data_list ------------------------------------------------------------------------------------------


def _of_data_list(reading: _Reading, token: str, names: Sequence[str], prefixes: Mapping[str, str]) -> RawInfo:
    info, part = reading.info, reading.part
    points = Entry({}, info.place) if info.get("lidar_points") is None else info.entry("lidar_points")
    lidar_file, lidar2ego = points.get("lidar_path"), points.get("lidar2ego")

    def boxes_2d() -> dict[str, RawBoxes2d] | None:
        if info.get("cam_instances") is None:
            return None
        of_names = {str(name): boxes for name, boxes in info.get("cam_instances").items()}
        return {name: _boxes_2d_of_data_list(boxes, info, name, names) for name, boxes in of_names.items()}

    return RawInfo(
        **_of_both_forms(reading, info.get("prev_token", "prev"), "scene_token", "scene_name", "scene_id"),
        token=token,
        time=_time(info),
        world_from_ego=(info.need("ego2global"), None),
        ego_from_base=(info.need("lidar2ego") if lidar2ego is None else lidar2ego, None),
        cameras=reading.cameras(
            "images", lambda name, camera: _camera_of_data_list(camera, info, prefixes.get(name, ""))
        ),
        lidar_file=None if lidar_file is None else prefixes.get("pts", "") + str(lidar_file),
        num_point_columns=points.get("num_pts_feats"),
        sweeps=part("lidar", lambda: [*map(_sweep_of_data_list, info.entries("lidar_sweeps"))]),
        boxes=part("boxes", lambda: _boxes_of_data_list(info, names)),
        boxes_2d=part("boxes_2d", boxes_2d),
    )


def _category_names(metainfo: Any, path: str) -> Sequence[str]:
    """Names of the categories by label, of ``metainfo``."""
    given = metainfo if isinstance(metainfo, dict) else {}
    values = next((given[name] for name in _CATEGORY_KEYS if given.get(name) is not None), None)
    if isinstance(values, dict):
        labels = [int(label) if str(label).isdecimal() else -1 for label in values.values()]
        by_label = dict(zip(labels, map(str, values), strict=True))
        if sorted(by_label) != list(range(len(by_label))) or len(by_label) != len(values):
            rule = f"{path!r}: metainfo['categories'] must number its {len(values)} names from 0"
            raise FileError(f"{rule}, got {shown(values)}.")
        return [by_label[label] for label in range(len(by_label))]
    if isinstance(values, list | tuple):
        names = [str(name) for name in values]
        if len(set(names)) < len(names):
            raise FileError(f"{path!r}: metainfo must name each category once, got {shown(values)}.")
        return names
    keys = " or ".join(map(repr, _CATEGORY_KEYS))
    raise FileError(
        f"{path!r}: metainfo must have the key {keys}, a dict or list of names, got {shown(metainfo)}."
    )


def _folder_prefixes(metainfo: object) -> dict[str, str]:
    """Folders of the files of sensors, where ``metainfo`` names them."""
    given = metainfo.get("data_prefix") if isinstance(metainfo, dict) else None
    if not isinstance(given, dict):
        return {}
    return {str(name): f"{str(folder).rstrip('/')}/" for name, folder in given.items() if folder}


def _camera_of_data_list(camera: Entry, info: Entry, prefix: str) -> RawCamera:
    return RawCamera(
        file=prefix + _file(camera, "img_path"),
        time=_time(info if camera.get("timestamp") is None else camera),
        intrinsics=camera.need("cam2img"),
        ego_from_camera=(camera.need("cam2ego"), None),
        pose=(camera.need("lidar2cam"), None),
    )


def _sweep_of_data_list(sweep: Entry) -> RawSweep:
    points, world_from_ego = sweep.entry("lidar_points"), (sweep.need("ego2global"), None)
    file, time = _file(points, "lidar_path"), _time(sweep)
    return RawSweep(file, time, world_from_ego, (points.need("lidar2ego"), None))


def _boxes_of_data_list(info: Entry, names: Sequence[str]) -> RawBoxes | None:
    if info.get("instances") is None:
        return None
    instances = info.entries("instances")
    count = len(instances)

    def numbers(*keys: str) -> Int64 | None:
        """Whole numbers, -1 where there is none; None where there are none at all."""
        values = [instance.get(*keys) for instance in instances]
        if all(value is None for value in values):
            return None
        return info.numbers([-1 if value is None else value for value in values], keys[0], count)

    velocities = [instance.get("velocity") for instance in instances]
    velocity = None
    if not count or any(value is not None for value in velocities):
        known = [(np.nan, np.nan) if value is None else value for value in velocities]
        velocity = info.array(known, "velocity", -1, 2)
    tokens = [instance.get("instance_token") for instance in instances]
    visibilities = [instance.get("visibility", "visibility_token") for instance in instances]
    return RawBoxes(
        boxes=info.array([instance.need("bbox_3d") for instance in instances], "instances", -1, 7),
        names=[
            _name_of(instance.need("bbox_label_3d", "bbox_label"), names, instance, "bbox_label_3d")
            for instance in instances
        ],
        velocities=velocity,
        instances=[str(token) for token in tokens]
        if count and all(token is not None for token in tokens)
        else numbers("instance_id", "track_id", "instance_inds"),
        visibilities=_levels(visibilities) if count else None,
        num_lidar_points=_lidar_points(numbers("num_lidar_pts"), numbers("bbox_3d_isvalid")),
        num_radar_points=numbers("num_radar_pts"),
    )


def _boxes_2d_of_data_list(boxes: Any, info: Entry, camera: str, names: Sequence[str]) -> RawBoxes2d:
    entries = [
        as_entry(value, f"{info.place}['cam_instances'][{camera!r}][{number}]")
        for number, value in enumerate(boxes)
    ]
    count = len(entries)
    places = [entry.get("bbox_3d") for entry in entries]
    has_places = bool(places) and all(place is not None for place in places)
    attributes = [entry.get("attr_label") for entry in entries]
    return RawBoxes2d(
        boxes=_rows(info, [entry.need("bbox") for entry in entries], "bbox", count, 4),
        centers=_rows(info, [entry.need("center_2d") for entry in entries], "center_2d", count, 2),
        depths=info.array([entry.need("depth") for entry in entries], "depth", count),
        names=[
            _name_of(entry.need("bbox_label", "bbox_label_3d"), names, entry, "bbox_label") for entry in entries
        ],
        places=info.array([place[:3] for place in places], "bbox_3d", -1, 3) if has_places else None,
        attributes=[-1 if value is None else int(value) for value in attributes] if has_places else None,
    )
