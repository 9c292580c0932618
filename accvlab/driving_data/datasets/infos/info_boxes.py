# SPDX-License-Identifier: Apache-2.0
"""Boxes, 2D boxes and map lines of the frames of info pickles, in both forms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import driving_index as tables
from ..driving import poses
from ..driving.array_types import Float64, Int32, Int64
from .info_rows import UNFIT, Rows
from .pickled_values import StoredArray

ATTRIBUTES = (
    *("cycle.with_rider", "cycle.without_rider"),
    *("pedestrian.moving", "pedestrian.standing", "pedestrian.sitting_lying_down"),
    *("vehicle.moving", "vehicle.parked", "vehicle.stopped"),
)
_LINE_CATEGORIES = ("ped_crossing", "divider", "boundary")
_INSTANCES = ("instance_inds", "gt_inds", "instance_ids", "track_ids", "instance_tokens", "gt_ins_tokens")
_LEVELS = {"1": 1, "2": 2, "3": 3, "4": 4, 1: 1, 2: 2, 3: 3, 4: 4}
# Centers of the same object as 2D and as 3D box; float32 at 100 m is exact to 0.01 mm.
_SAME_PLACE_M = 0.01
_FARTHEST_M = 1e5


@attrs.frozen(eq=False, kw_only=True)
class RawBoxes:
    """Boxes of all frames; see `BoxColumns`. None: not known.

    Attributes:
        counts: Number of boxes of each frame.
        values: As they are in the pickle, ``(N, 7)``.
        velocity: ``(N, 2)``.
        category: Number of each in ``categories``, -1 for none.
        categories: Names of the categories.
    """

    counts: Int64
    values: Float64
    velocity: Float64
    category: Int32
    categories: tuple[str, ...]
    instance: Int64 | None
    visibility: Int32 | None
    num_lidar_points: Int32 | None
    num_radar_points: Int32 | None


@attrs.frozen(eq=False, kw_only=True)
class RawBoxes2d:
    """2D boxes of all images; see `Box2dColumns`.

    Attributes:
        counts: Number of boxes of each image, frame by frame, camera by camera.
        columns: The boxes, by column; None where only the objects are read.
        place: Centers of the objects in coordinates of the camera, ``(M, 3)``; NaN where unknown.
        visibility: Of the objects, or None.
        attribute: Of the objects, or None.
    """

    counts: Int64
    columns: dict[str, Any] | None
    place: Float64
    visibility: Int32 | None = None
    attribute: Int32 | None = None


def _filled(frames: Rows, name: str, values: Sequence[Any], counts: Int64, unknown: int) -> Int32 | None:
    """A number for each box; the unknown one where a frame does not say it; None where no frame does."""
    if not any(value is not None for value, count in zip(values, counts, strict=True) if count):
        return None
    parts = [np.full(n, unknown) if value is None else value for value, n in zip(values, counts, strict=True)]
    return frames.joined(name, parts, counts).astype(np.int32)


def _numbers(rows: Rows, *names: str) -> Int32 | None:
    """A whole number for each row, -1 where there is none; None where no row has one."""
    values = rows.find(*names)
    if all(value is None for value in values):
        return None
    return rows.array(names[0], values=[-1 if value is None else value for value in values]).astype(np.int32)


def _levels(values: Sequence[Any] | None) -> list[int] | None:
    """Visibilities from 1 to 4, of numbers or text, 0 for all else; None where there are none at all."""
    if values is None or (len(values) and all(value is None for value in values)):
        return None
    return [_LEVELS.get(value, 0) for value in values]


def _points(counts: Int32 | None, is_valid: Int32 | None) -> Int32 | None:
    """Numbers of points; where only a flag says whether there are any, 0 or not known."""
    return np.where(is_valid != 0, -1, 0).astype(np.int32) if counts is None and is_valid is not None else counts


def _numbered(values: Sequence[Any]) -> Int64:
    """Numbers of objects, of numbers or of tokens."""
    number_of: dict[str, int] = {}
    numbers = [number_of.setdefault(one, len(number_of)) if isinstance(one, str) else int(one) for one in values]
    return np.array(numbers, np.int64)


def _labels(values: Float64, categories: Sequence[str], place: Callable[[int], str]) -> Int32:
    """Numbers of categories, of labels; -1 for none."""
    wrong = np.flatnonzero(values >= len(categories))
    if len(wrong):
        raise FileError(
            f"{place(int(wrong[0]))} has the label {values[wrong[0]]:.0f}, but there are {len(categories)} "
            f"categories, from 0: {listed(categories)}."
        )
    return np.maximum(values, -1).astype(np.int32)


# --- infos ----------------------------------------------------------------------------------------------


def boxes_of_infos(frames: Rows, known: Sequence[str]) -> RawBoxes | None:
    """Read the boxes of ``infos``; None where there are none."""
    given = frames.all_or_none(frames.find("gt_boxes"), "boxes")
    if given is None:
        return None
    width = 9 if _width(given) == 9 else 7
    values, counts = frames.lists("gt_boxes", given, width)
    names = frames.each(frames.need("gt_names"), _texts)
    for row, (of_frame, count) in enumerate(zip(names, counts, strict=True)):
        if len(of_frame) != count:
            what = f"{frames.place(row)}['gt_names'] has {len(of_frame)} names"
            raise FileError(f"{what}, but there are {count} boxes.")
    velocity = values[:, 7:] if width == 9 else np.full((len(values), 2), np.nan)
    velocities = frames.find("gt_velocity")
    if any(each is not None for each in velocities):
        unknown = [np.full((n, 2), np.nan) if v is None else v for v, n in zip(velocities, counts, strict=True)]
        velocity = frames.joined("gt_velocity", unknown, counts, 2)
    flat = [*chain.from_iterable(names)]
    categories = (*known, *sorted({*flat}.difference(known)))  # those of the converters come first, in their order

    def numbers(name: str, unknown: int = -1) -> Int32 | None:
        return _filled(frames, name, frames.find(name), counts, unknown)

    levels = frames.each(frames.find("visibility_tokens"), _levels)
    return RawBoxes(
        counts=counts,
        values=values[:, :7],
        velocity=velocity,
        category=tables.numbers_column(flat, categories),
        categories=categories,
        instance=_instances(frames, counts),
        visibility=_filled(frames, "visibility_tokens", levels, counts, 0),
        num_lidar_points=_points(numbers("num_lidar_pts"), numbers("valid_flag", 1)),
        num_radar_points=numbers("num_radar_pts"),
    )


def _texts(names: Any) -> list[str]:
    if isinstance(names, StoredArray) and (texts := np.asarray(names)).dtype.kind == "U":
        found: list[str] = texts.tolist()
        return found
    return [str(name) for name in names]


def _instances(frames: Rows, counts: Int64) -> Int64 | None:
    given = frames.find(*_INSTANCES)
    if any(one is None for one, count in zip(given, counts, strict=True) if count):
        return None
    lists = frames.each(given, lambda own: [] if own is None else np.asarray(own).reshape(-1).tolist())
    for row, (own, count) in enumerate(zip(lists, counts, strict=True)):
        if len(own) != count:
            name = next(name for name in _INSTANCES if frames.values[row].get(name) is not None)
            what = f"{frames.place(row)}[{name!r}] has {len(own)} objects"
            raise FileError(f"{what}, but there are {count} boxes.")
    return _numbered([*chain.from_iterable(lists)])


def boxes_2d_of_infos(
    frames: Rows, cameras: Sequence[str], known: Sequence[str], *, only_objects: bool
) -> RawBoxes2d | None:
    """Read the 2D boxes of ``infos``, or only what they say of the objects; None where there are none."""
    if frames.all_or_none(frames.find("bboxes2d"), "2D boxes") is None:
        return None
    own = [tuple(map(str, given or ())) for given in frames.find("cams")]
    needed = ("labels2d",) if only_objects else ("bboxes2d", "labels2d", "centers2d", "depths")
    lists = {name: frames.need(name) for name in needed}
    lists |= {name: frames.find(name) for name in ("bboxes3d_cams", "visibilities")}
    # Place of each camera in the lists of a frame, -1 where the frame has no such camera.
    places_in = {names: [names.index(name) if name in names else -1 for name in cameras] for names in {*own}}
    num = len(cameras)
    by_image = Rows([{}] * (len(own) * num), lambda image: frames.place(image // num))
    found: dict[str, list[Any]] = {}
    for name, values in lists.items():
        if name in ("bboxes3d_cams", "visibilities") and any(value is None for value in values):
            continue
        for row, count in enumerate(frames.each(values, len)):
            if count != len(own[row]):
                what = f"{frames.place(row)}[{name!r}] is of {count} cameras"
                raise FileError(f"{what}, but 'cams' has {len(own[row])}.")
        found[name] = [
            () if place < 0 else of_frame[place]
            for of_frame, names in zip(values, own, strict=True)
            for place in places_in[names]
        ]
    labels, counts = by_image.lists("labels2d", found["labels2d"])
    of_box = np.repeat(np.arange(len(own) * num), counts)
    places = np.full((len(of_box), 3), np.nan)
    if "bboxes3d_cams" in found:
        width = max(_width(found["bboxes3d_cams"]), 3)
        places = by_image.joined("bboxes3d_cams", found["bboxes3d_cams"], counts, width)[:, :3]
    levels = by_image.each(found["visibilities"], _levels) if "visibilities" in found else [None] * len(by_image)
    visibility, columns = _filled(by_image, "visibilities", levels, counts, 0), None
    if not only_objects:
        columns = {
            "box": by_image.joined("bboxes2d", found["bboxes2d"], counts, 4),
            "center": by_image.joined("centers2d", found["centers2d"], counts, 2),
            "depth": by_image.joined("depths", found["depths"], counts),
            "category": _labels(labels, known, lambda box: f"{by_image.place(of_box[box])}['labels2d']"),
        }
    return RawBoxes2d(counts=counts, columns=columns, place=places, visibility=visibility)


def _width(arrays: Sequence[Any]) -> int:
    """Number of columns of the first array that has rows; 0 where none has, or another shape."""
    with contextlib.suppress(*UNFIT):
        return next((np.shape(array)[1] for array in arrays if len(array)), 0)
    return 0


def _columns_of(value: Any, count: int) -> Float64:
    """The first columns of an array ``(n, m)``; where it has no rows, it may be of any shape."""
    array = np.asarray(value, np.float64)
    if not array.size:
        return np.zeros((0, count))
    if array.ndim != 2 or array.shape[1] < count:
        raise ValueError(f"the shape must be (n, {count}) or wider, got {array.shape}")
    return array[:, :count]


def map_lines(frames: Rows) -> dict[str, Any]:
    """Read the map lines; none where there are none."""
    given = frames.all_or_none(frames.find("map_annos", "annotation"), "map lines")
    if given is None:
        return {}

    def lines_of(annotations: Mapping[Any, Any]) -> list[tuple[str, Float64]]:
        names = dict(enumerate(_LINE_CATEGORIES))
        return [
            (names.get(label, str(label)), _columns_of(line, 2))
            for label, lines in annotations.items()
            for line in lines
        ]

    of_frames = frames.each(given, lines_of)
    lines = [*chain.from_iterable(of_frames)]
    categories = (*_LINE_CATEGORIES, *sorted({name for name, _ in lines} - {*_LINE_CATEGORIES}))
    columns = tables.LineColumns(
        first=tables.first_column([len(of_frame) for of_frame in of_frames]),
        category=tables.numbers_column((name for name, _ in lines), categories),
        first_point=tables.first_column([len(points) for _, points in lines]),
        point=np.concatenate([np.zeros((0, 2)), *(points for _, points in lines)]),
    )
    return {"lines": columns, "line_categories": categories}


# --- data_list ------------------------------------------------------------------------------------------


def boxes_of_data_list(frames: Rows, known: Sequence[str]) -> RawBoxes | None:
    """Read the boxes of a ``data_list``; None where there are none."""
    lists = frames.all_or_none(frames.find("instances"), "boxes")
    if lists is None:
        return None
    boxes, counts = frames.flattened(lists, "instances")
    velocities, tokens = boxes.find("velocity"), boxes.find("instance_token")
    unknown = (np.nan, np.nan)
    numbers = _numbers(boxes, "instance_id", "track_id", "instance_inds")
    instance = None if numbers is None else numbers.astype(np.int64)
    if tokens and all(token is not None for token in tokens):
        instance = _numbered([*map(str, tokens)])
    labels = boxes.array("bbox_label_3d", values=boxes.need("bbox_label_3d", "bbox_label"))
    levels = _levels(boxes.find("visibility", "visibility_token"))
    return RawBoxes(
        counts=counts,
        values=boxes.array("bbox_3d", 7),
        velocity=boxes.array("velocity", 2, values=[unknown if each is None else each for each in velocities]),
        category=_labels(labels, known, lambda box: f"{boxes.place(box)}['bbox_label_3d']"),
        categories=tuple(known),
        instance=instance,
        visibility=None if levels is None else np.array(levels, np.int32),
        num_lidar_points=_points(_numbers(boxes, "num_lidar_pts"), _numbers(boxes, "bbox_3d_isvalid")),
        num_radar_points=_numbers(boxes, "num_radar_pts"),
    )


def boxes_2d_of_data_list(
    frames: Rows, cameras: Sequence[str], known: Sequence[str], *, only_objects: bool
) -> RawBoxes2d | None:
    """Read the 2D boxes of a ``data_list``, or only what they say of the objects; None where there are none."""
    if frames.all_or_none(frames.find("cam_instances"), "2D boxes") is None:
        return None
    of_frames, num = frames.dicts("cam_instances"), len(cameras)
    lists = [of_frame.get(name) for of_frame in of_frames.values for name in cameras]
    images = Rows([{}] * len(lists), lambda image: f"{of_frames.place(image // num)}[{cameras[image % num]!r}]")
    boxes, counts = images.flattened(lists)
    places, attributes = boxes.find("bbox_3d"), boxes.find("attr_label")
    nowhere, columns = (np.nan,) * 3, None
    if not only_objects:
        labels = boxes.array("bbox_label", values=boxes.need("bbox_label", "bbox_label_3d"))
        columns = {
            "box": boxes.array("bbox", 4),
            "center": boxes.array("center_2d", 2),
            "depth": boxes.array("depth"),
            "category": _labels(labels, known, lambda box: f"{boxes.place(box)}['bbox_label']"),
        }
    return RawBoxes2d(
        counts=counts,
        columns=columns,
        place=boxes.array("bbox_3d", 3, values=[nowhere if place is None else place[:3] for place in places]),
        attribute=_numbers(boxes, "attr_label") if any(one is not None for one in attributes) else None,
    )


# --- objects of 2D boxes --------------------------------------------------------------------------------


def rows_of_objects(raw: RawBoxes2d, camera_from_base: Float64, first: Int64, center: Float64) -> Int64:
    """Row of the box that has its center where the object of each 2D box has it; -1 for none, or more than one.

    Args:
        raw: The 2D boxes.
        camera_from_base: Of each image, ``(num_images, 3, 4)``.
        first: First box of each frame.
        center: Centers of the boxes, in the base.
    """
    num_frames = len(first) - 1
    image = np.repeat(np.arange(len(raw.counts)), raw.counts)
    frame = image // max(len(raw.counts) // max(num_frames, 1), 1)
    # Boxes by frame and by x: few are as far ahead as the place, and these are compared.
    key = np.repeat(np.arange(num_frames), np.diff(first)) * _FARTHEST_M + center[:, 0]
    order = np.argsort(key, kind="stable")
    wanted = frame * _FARTHEST_M + poses.moved(poses.inverse(camera_from_base)[image], raw.place)[:, 0]
    begin, end = (np.searchsorted(key[order], wanted + side * 2 * _SAME_PLACE_M) for side in (-1, 1))
    counts = np.where(np.isnan(wanted), 0, end - begin)
    box = np.repeat(np.arange(len(image)), counts)
    row = order[tables.rows_from(begin, counts)]
    at = poses.moved(camera_from_base[image[box]], center[row])
    is_same = np.abs(raw.place[box] - at).max(axis=-1, initial=0) < _SAME_PLACE_M
    box, row = box[is_same], row[is_same]
    is_only = np.bincount(box, minlength=len(image))[box] == 1
    found = np.full(len(image), -1, np.int64)
    found[box[is_only]] = row[is_only]
    return found


def told_of_objects(values: Int32 | None, box_row: Int64, num_boxes: int, unknown: int) -> Int32 | None:
    """What 2D boxes say of the objects; None where they say nothing."""
    if values is None:
        return None
    column = np.full(num_boxes, unknown, np.int32)
    is_known = box_row >= 0
    column[box_row[is_known]] = values[is_known]
    return column
