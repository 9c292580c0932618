# SPDX-License-Identifier: Apache-2.0
"""3D boxes of frames: as annotated at keyframes, moved along between them, with velocities.

Formulas of the nuScenes devkit 1.1.11: ``get_boxes``, ``box_velocity``.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

from ..driving import poses
from ..driving.array_types import Float64, Int32, Int64
from ..driving.driving_index import BoxColumns, first_column, rows_from
from .sensors import Frames, Scenes, SensorRecords, checked_poses
from .splits import CATEGORIES
from .tables import Rows, Table, read_table

# Seconds between two neighbouring annotations, beyond which no velocity is estimated from them.
_MAX_TIME_DIFFERENCE = 1.5
_LEVELS = {b"v0-40": 1, b"v40-60": 2, b"v60-80": 3, b"v80-100": 4}


@attrs.frozen(eq=False)
class Annotations:
    """Annotated boxes, in world coordinates, in the order of their table.

    Attributes:
        table: Their table.
        sample: Row of the sample of each.
        velocity: Over ground; NaN where unknown.
        instance: Row of the object.
        category: Number of the category.
        attribute: Number of the attribute; -1 for none.
        visibility: 1 to 4; 0 where unknown.
        categories: Names of the categories.
        attributes: Names of the attributes.
    """

    table: Table
    sample: Rows
    velocity: Float64
    instance: Rows
    category: Int32
    attribute: Int32
    visibility: Int32
    categories: tuple[str, ...]
    attributes: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path, scenes: Scenes) -> Annotations:
        """Read the annotations.

        Raises:
            FileError: They are damaged.
        """
        table = read_table(
            folder / "sample_annotation.json",
            *("token", "sample_token", "instance_token", "visibility_token", "attribute_tokens", "prev", "next"),
            *("translation", "size", "rotation", "num_lidar_pts", "num_radar_pts"),
            is_kept=scenes.keeps,
        )
        instances = read_table(folder / "instance.json", "token", "category_token", "nbr_annotations")
        categories = read_table(folder / "category.json", "token", "name")
        attributes = read_table(folder / "attribute.json", "token", "name")
        levels = read_table(folder / "visibility.json", "token", "level")
        sample = scenes.samples.rows_of(table, "sample_token")
        instance = instances.rows_of(table, "instance_token")
        counts = np.bincount(instance, minlength=len(instances))
        is_read = np.ones(len(counts), bool) if scenes.tokens is None else counts > 0  # of objects of other scenes
        instances.refuse_fewer(counts, "nbr_annotations", "annotations", is_read)
        category = categories.rows_of(instances, "category_token")[instance]
        attribute = attributes.rows_of(table, "attribute_tokens", may_be_empty=True)
        level = levels.rows_of(table, "visibility_token", may_be_empty=True)
        number_of_level = np.array([*(_LEVELS.get(name, 0) for name in levels["level"].tolist()), 0], np.int32)
        checked_poses(table)
        is_size = np.asarray((np.isfinite(table["size"]) & (table["size"] >= 0)).all(axis=1))
        table.refuse(~is_size, "must have a size of numbers of at least 0", "size")
        names = [name.decode() for name in categories["name"].tolist()]
        is_nuscenes = not names or not {*CATEGORIES}.isdisjoint(names)
        return cls(
            table=table,
            sample=sample,
            velocity=_velocities(table, scenes.samples["timestamp"][sample]),
            instance=instance,
            category=category.astype(np.int32),
            attribute=attribute.astype(np.int32),
            visibility=number_of_level[level],
            # Those that tables of nuScenes lack are there too: classes have the same numbers for parts of it.
            # Other data in its format have categories of their own alone.
            categories=(*names, *(name for name in CATEGORIES if is_nuscenes and name not in names)),
            attributes=tuple(name.decode() for name in attributes["name"].tolist()),
        )


def _velocities(table: Table, time: Int64) -> Float64:
    """Velocities over ground, ``(n, 3)``: from the annotation before to the one after."""
    own = np.arange(len(table))
    before, after = (table.rows_of(table, name, may_be_empty=True) for name in ("prev", "next"))
    most = np.where((before >= 0) & (after >= 0), 2 * _MAX_TIME_DIFFERENCE, _MAX_TIME_DIFFERENCE)
    before, after = np.where(before < 0, own, before), np.where(after < 0, own, after)
    seconds = 1e-6 * time[after] - 1e-6 * time[before]
    is_known = (before != after) & (seconds <= most)
    with np.errstate(divide="ignore", invalid="ignore"):
        velocity = (table["translation"][after] - table["translation"][before]) / seconds[:, np.newaxis]
    return np.where(is_known[:, np.newaxis], velocity, np.nan)


@attrs.frozen(eq=False)
class WorldBoxes:
    """Boxes of frames, in world coordinates.

    Attributes:
        first: First box of each frame.
        row: Annotation of each.
        center: Centers.
        rotation: Quaternions.
    """

    first: Int64
    row: Rows
    center: Float64
    rotation: Float64

    @property
    def frame(self) -> Rows:
        """Number of the frame of each box."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def boxes_of_frames(annotations: Annotations, scenes: Scenes, data: SensorRecords, frames: Frames) -> WorldBoxes:
    """Boxes of the sample of each frame; between keyframes, at the time of the frame."""
    by_sample = np.argsort(annotations.sample, kind="stable")
    num_of_sample = np.bincount(annotations.sample, minlength=len(scenes.samples))
    first_of_sample = first_column(num_of_sample)
    num_boxes = num_of_sample[frames.sample]
    row = by_sample[rows_from(first_of_sample[frames.sample], num_boxes)]
    center, rotation = (annotations.table[name][row] for name in ("translation", "rotation"))
    boxes = WorldBoxes(first_column(num_boxes), row, center, rotation)
    if not frames.is_key.all():
        _move_along(boxes, annotations, scenes, data, frames)
    return boxes


def _move_along(
    boxes: WorldBoxes, annotations: Annotations, scenes: Scenes, data: SensorRecords, frames: Frames
) -> None:
    """Move boxes of frames between keyframes to where they are between the keyframe before and their own."""
    frame = boxes.frame
    previous = scenes.previous[frames.sample]
    moving = np.flatnonzero((~frames.is_key & (previous >= 0))[frame])
    if not len(moving):
        return
    frame, row = frame[moving], boxes.row[moving]
    # The annotation of the same object in the sample before.
    num_samples = len(scenes.samples)
    key = annotations.instance * num_samples + annotations.sample
    order = np.argsort(key, kind="stable")
    wanted = annotations.instance[row] * num_samples + previous[frame]
    place = np.minimum(np.searchsorted(key[order], wanted, side="right") - 1, len(key) - 1)
    earlier, is_there = order[place], key[order[place]] == wanted
    moving, frame, row, earlier = (values[is_there] for values in (moving, frame, row, earlier))
    sample_time = scenes.samples["timestamp"]
    start, end = sample_time[previous[frame]], sample_time[frames.sample[frame]]
    time = np.clip(data.table["timestamp"][frames.reference[frame]], start, end)
    share = ((time - start) / (end - start))[:, np.newaxis]
    center, rotation = annotations.table["translation"], annotations.table["rotation"]
    boxes.center[moving] = center[earlier] + share * (center[row] - center[earlier])
    rotation = rotation / np.linalg.norm(rotation, axis=1, keepdims=True)
    boxes.rotation[moving] = poses.slerp(rotation[earlier], rotation[row], share)


def box_columns(annotations: Annotations, boxes: WorldBoxes, world_from_base: Float64) -> BoxColumns:
    """Columns of the boxes, in the base of their frame."""
    base_from_world = poses.inverse(world_from_base)
    frame, row = boxes.frame, boxes.row
    turn = poses.quaternion_of_rotation(base_from_world[..., :3])[frame]
    rotation = boxes.rotation / np.linalg.norm(boxes.rotation, axis=1, keepdims=True)
    return BoxColumns(
        first=boxes.first,
        center=poses.moved(base_from_world[frame], boxes.center),
        size=annotations.table["size"][row][:, [1, 0, 2]],  # the tables have width, length, height
        rotation=poses.product_of_quaternions(turn, rotation),
        velocity=poses.turned(base_from_world[frame], annotations.velocity[row]),
        category=annotations.category[row],
        instance=annotations.instance[row],
        attribute=annotations.attribute[row],
        visibility=annotations.visibility[row],
        num_lidar_points=annotations.table["num_lidar_pts"][row].astype(np.int32),
        num_radar_points=annotations.table["num_radar_pts"][row].astype(np.int32),
    )
