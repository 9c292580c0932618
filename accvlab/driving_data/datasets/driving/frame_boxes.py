# SPDX-License-Identifier: Apache-2.0
"""Boxes and map lines of frames of an index, in the frame of reference of the samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from . import poses
from .array_types import Array, Int64
from .driving_index import BoxColumns, CameraColumns, LineColumns
from .frame_places import FramePlaces
from .scene_parts import project_boxes

_UNKNOWN = {"attribute": -1, "visibility": 0, "num_lidar_points": -1, "num_radar_points": -1, "instance": -1}


class FrameBoxes:
    """Boxes and lines of frames, as the fields of samples, in their order."""

    def __init__(self, places: FramePlaces) -> None:
        """Set up; nothing is read."""
        self._index, self._fields, self._places = places.index, places.fields, places
        self._boxes = cast(BoxColumns, places.index.boxes)  # where boxes are asked for, there are some
        index, fields = places.index, places.fields
        names_2d = index.box2d_categories or index.categories
        self._class_of_category, self._class_of_category_2d = (
            np.array(fields.class_of_category(names, index), np.int32) for names in (index.categories, names_2d)
        )

    def boxes(self, frame: int, following: range) -> list[object]:
        """Boxes of a frame, with their places in the following ones."""
        boxes, rows = self._boxes, self._kept_rows(frame)
        reference_from_base = self._places.reference_from_base(frame)
        rotation = boxes.rotation[rows]
        if not self._places.is_base:
            turn = poses.quaternion_of_rotation(reference_from_base[:, :3])
            rotation = poses.product_of_quaternions(turn, rotation)
        known = [self._column(name, rows) for name in _UNKNOWN]
        flat = [
            poses.moved(reference_from_base, boxes.center[rows]),
            boxes.size[rows],
            poses.yaw_of_quaternion(rotation),
            poses.turned(reference_from_base, boxes.velocity[rows]),
            self._class_of_category[boxes.category[rows]],
            *known,
        ]
        return flat + (self._future(frame, following, known[-1]) if self._fields.num_future_frames else [])

    def boxes_2d(self, frame: int, camera: int, image_wh: Callable[[], tuple[int, int]]) -> list[object]:
        """2D boxes of an image; of a data set that has none, those around what the image shows of its 3D boxes."""
        boxes_2d, image = self._index.boxes_2d, frame * len(self._index.camera_names) + camera
        if boxes_2d is None:
            return self._projected(frame, camera, image_wh())
        rows = slice(*boxes_2d.first[image : image + 2].tolist())
        classes = self._class_of_category_2d[boxes_2d.category[rows]]
        kept = self._kept_rows(frame).tolist() if self._fields.boxes else []
        place_of = {row: place for place, row in enumerate(kept)}
        box_rows = np.array([place_of.get(row, -1) for row in boxes_2d.box_row[rows].tolist()], np.int64)
        is_kept = classes >= (0 if self._fields.classes is not None else -1)
        columns = (boxes_2d.box[rows], boxes_2d.center[rows], boxes_2d.depth[rows], classes, box_rows)
        return [column[is_kept] for column in columns]

    def lines(self, frame: int) -> list[object]:
        """Map lines around a frame."""
        lines = cast(LineColumns, self._index.lines)
        first, end = lines.first[frame : frame + 2].tolist()
        starts = lines.first_point[first : end + 1]
        points = lines.point[starts[0] : starts[-1]]
        points = np.column_stack([points, np.zeros(len(points))])
        moved = poses.moved(self._places.reference_from_base(frame), points)
        return [moved[:, :2], np.diff(starts), np.array(lines.category[first:end])]

    def _column(self, name: str, rows: Int64 | slice) -> Int64:
        """Rows of a column as int64, or the number for what is not known."""
        column: Array | None = getattr(self._boxes, name)
        if column is not None:
            return np.asarray(column[rows], np.int64)
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return np.full(count, _UNKNOWN[name], np.int64)

    def _rows(self, frame: int) -> slice:
        return slice(*self._boxes.first[frame : frame + 2].tolist())

    def _kept_rows(self, frame: int) -> Int64:
        """Rows of the boxes of a frame that are not left out."""
        fields, rows = self._fields, self._rows(frame)
        is_kept = np.ones(rows.stop - rows.start, bool)
        if fields.classes is not None:
            is_kept &= self._class_of_category[self._boxes.category[rows]] >= 0
        if fields.min_lidar_points or fields.min_points:
            lidar, radar = self._column("num_lidar_points", rows), self._column("num_radar_points", rows)
            is_enough = (lidar >= fields.min_lidar_points) & (lidar + np.maximum(radar, 0) >= fields.min_points)
            is_kept &= is_enough | (lidar < 0)
        return np.arange(rows.start, rows.stop)[is_kept]

    def _future(self, frame: int, following: range, instances: Int64) -> list[object]:
        boxes, most = self._boxes, self._fields.num_future_frames
        centers, is_known = np.zeros((len(instances), most, 3)), np.zeros((len(instances), most), bool)
        base_from_world, tracked = (
            poses.inverse(self._places.world_from_base(frame)),
            np.flatnonzero(instances >= 0),
        )
        reference_from_world = poses.joined(self._places.reference_from_base(frame), base_from_world)
        for step, later in enumerate(following[:most]):
            rows = self._rows(later)
            of_later = self._column("instance", rows)
            _, here, there = np.intersect1d(instances[tracked], of_later, return_indices=True)
            reference_from_later = poses.joined(reference_from_world, self._places.world_from_base(later))
            centers[tracked[here], step] = poses.moved(reference_from_later, boxes.center[rows][there])
            is_known[tracked[here], step] = True
        return [centers, is_known]

    def _projected(self, frame: int, camera: int, image_wh: tuple[int, int]) -> list[object]:
        boxes, cameras, rows = self._boxes, cast(CameraColumns, self._index.cameras), self._kept_rows(frame)
        of_image = (cameras.camera_from_base[frame, camera], cameras.intrinsics[frame, camera], np.array(image_wh))
        of_boxes = (np.broadcast_to(value, (len(rows), *value.shape)) for value in of_image)
        found = project_boxes(boxes.center[rows], boxes.size[rows], boxes.rotation[rows], *of_boxes)
        seen = np.flatnonzero(found.is_seen)
        classes = self._class_of_category[boxes.category[rows[seen]]]
        places = seen if self._fields.boxes else np.full(len(seen), -1)
        return [found.box[seen], found.center[seen], found.depth[seen], classes, places]
