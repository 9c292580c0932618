# SPDX-License-Identifier: Apache-2.0
"""From tables of nuScenes to an index of driving data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ..driving import poses
from ..driving.driving_index import DrivingIndex
from ..driving.projected_boxes import box2d_columns
from .annotations import Annotations, box_columns, boxes_of_frames
from .can_bus import can_columns, can_files
from .frames import KEYFRAMES, Frames, camera_columns, frame_columns, lidar_columns, make_frames, reference_channel
from .sensors import LIDAR, Calibrations, Scenes, SensorRecords
from .tables import TABLES, read_records

# What the columns of points of the lidar are.
POINT_COLUMNS = ("x", "y", "z", "intensity", "ring")


@attrs.frozen
class Conversion:
    """How tables become an index.

    Attributes:
        tables: Folder of the tables.
        frames: ``"keyframes"``, or the sensor of which each record is a frame.
        boxes_2d: Whether boxes are projected into the images.
        max_sweeps: At most how many lidar sweeps belong to a frame.
        can_bus: Folder of the CAN messages; None for none.
    """

    tables: Path
    frames: str
    boxes_2d: bool
    max_sweeps: int
    can_bus: Path | None

    def sources(self) -> list[Path]:
        """The files that are read."""
        tables = (self.tables / f"{name}.json" for name in TABLES)
        return [*tables, *(can_files(self.can_bus) if self.can_bus else ())]

    def settings(self) -> dict[str, Any]:
        """What else the index depends on."""
        return {"format": "nuscenes 1", **attrs.asdict(self)}

    def make_index(self) -> DrivingIndex:
        """Read the tables.

        Raises:
            FileError: They are damaged.
            SettingError: There is no sensor for the frames asked for.
        """
        scenes, calibrations = Scenes.read(self.tables), Calibrations.read(self.tables)
        cameras = calibrations.cameras
        reference = reference_channel(self.frames, (*({LIDAR} & {*calibrations.channel}), *cameras))
        is_by_sample = self.frames == KEYFRAMES
        data = SensorRecords.read(self.tables, scenes, calibrations, cameras if is_by_sample else ())
        frames = make_frames(scenes, data, reference, only_keyframes=is_by_sample)
        columns = frame_columns(scenes, data, calibrations, frames, by_sample=is_by_sample)
        world_from_base = poses.joined(columns.world_from_ego, columns.ego_from_base)
        images = camera_columns(data, calibrations, frames, world_from_base)
        annotations = Annotations.read(self.tables, scenes)
        boxes = box_columns(annotations, boxes_of_frames(annotations, scenes, data, frames), world_from_base)
        if self.can_bus:
            microseconds = np.rint(columns.time * 1e6).astype(np.int64)
            names = [str(record["name"]) for record in scenes.records]
            can_bus, ego_status = can_columns(self.can_bus, names, columns.first_of_scene, microseconds)
            columns = attrs.evolve(columns, can_bus=can_bus, ego_status=ego_status)
        boxes_2d = None
        if self.boxes_2d and images is not None:
            boxes_2d = box2d_columns(boxes, images, _image_sizes(data, frames, cameras))
        lidar = lidar_columns(data, calibrations, frames, self.max_sweeps)
        missing = [] if images is None else np.argwhere(images.file == b"").tolist()
        return DrivingIndex(
            base="ego" if lidar is None else "lidar",
            frames=columns,
            cameras=images,
            lidar=lidar,
            boxes=boxes,
            boxes_2d=boxes_2d,
            camera_names=cameras,
            categories=annotations.categories,
            attributes=annotations.attributes,
            point_columns=POINT_COLUMNS if lidar is not None else (),
            origin={
                "data set": "nuScenes",
                "tables": str(self.tables),
                "frames": self.frames,
                "missing_images": missing,
                "scenes": self._logs(scenes),
            },
        )

    def _logs(self, scenes: Scenes) -> dict[str, dict[str, Any]]:
        """Of each scene: where, when, and with which vehicle it was recorded."""
        logs = {log["token"]: log for log in read_records(self.tables / "log.json", "token")}
        facts = {}
        for record in scenes.records:
            log = logs.get(record["log_token"], {})
            facts[str(record["name"])] = {
                name: log.get(name) for name in ("logfile", "vehicle", "date_captured", "location")
            }
        return facts


def _image_sizes(data: SensorRecords, frames: Frames, cameras: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """Width and height of all images, ``(F, C, 2)``."""
    records = frames.records[:, [data.channels.index(name) for name in cameras]]
    is_used = np.zeros(len(data.table), bool)
    is_used[records[records >= 0]] = True
    width, height = data.table["width"], data.table["height"]
    data.table.refuse(
        is_used & ((width <= 0) | (height <= 0)),
        "must have the size of its image as width and height, which 2D boxes (`boxes_2d`) are cut with",
        "width",
    )
    return np.stack([width[records], height[records]], axis=-1)
