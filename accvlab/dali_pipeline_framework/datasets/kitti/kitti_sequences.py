# SPDX-License-Identifier: Apache-2.0
"""What the sequences of KITTI have in common: images and points by number, one lidar, rectified cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import listed
from ...errors import FileError
from ..driving import poses
from ..driving.driving_index import (
    Box2dColumns,
    BoxColumns,
    CameraColumns,
    DrivingIndex,
    FrameColumns,
    LidarColumns,
    first_column,
    names_column,
)
from .text_files import numbered_files

Float64Array = npt.NDArray[np.float64]
POINT_COLUMNS = ("x", "y", "z", "reflectance")


@attrs.frozen(eq=False, kw_only=True)
class KittiSequence:
    """One sequence of n frames.

    Attributes:
        name: Its name.
        numbers: Number of each frame in the names of files.
        image_folders: Folder of each camera, relative to the root, by name.
        points_folder: Folder of the points.
        time: ``(n,)`` seconds.
        world_from_ego: ``(n, 3, 4)``.
        ego_from_base: ``(3, 4)``, the lidar on the vehicle.
        intrinsics: Of each camera, ``(3, 3)``.
        camera_from_base: Of each camera, ``(3, 4)``.
    """

    name: str
    numbers: Sequence[int]
    image_folders: Mapping[str, str]
    points_folder: str
    time: Float64Array
    world_from_ego: Float64Array
    ego_from_base: Float64Array
    intrinsics: Mapping[str, Float64Array]
    camera_from_base: Mapping[str, Float64Array]


def frame_numbers(root: Path, image_folders: Mapping[str, str], points_folder: str) -> list[int]:
    """Numbers of the frames of a sequence: those of its images and points.

    Raises:
        FileError: There are none.
    """
    folders = [*image_folders.values(), points_folder]
    numbers = sorted({number for folder in folders for number in numbered_files(root / folder)})
    if not numbers:
        raise FileError(
            f"There are no images (000000.png) or points (000000.bin) in {listed(folders)} of {str(root)!r}."
        )
    return numbers


def make_index(
    root: Path,
    sequences: Sequence[KittiSequence],
    camera_names: Sequence[str],
    most_sweeps: int,
    origin: Mapping[str, Any],
    boxes: BoxColumns | None = None,
    boxes_2d: Box2dColumns | None = None,
    categories: Sequence[str] = (),
    attributes: Sequence[str] = (),
) -> DrivingIndex:
    """Put sequences together; boxes are those of all frames."""
    counts = [len(sequence.numbers) for sequence in sequences]
    num_frames = sum(counts)
    shape = (num_frames, len(camera_names))
    images = np.array([[""] * len(camera_names) for _ in range(num_frames)], object)
    intrinsics = np.broadcast_to(np.eye(3), (*shape, 3, 3)).copy()
    camera_from_base = poses.identity(*shape)
    points: list[tuple[int, str]] = []
    sweeps: list[list[int]] = []
    of_frame = np.full(num_frames, -1, np.int64)
    first = 0
    for sequence in sequences:
        own = slice(first, first + len(sequence.numbers))
        for place, camera in enumerate(camera_names):
            folder = sequence.image_folders[camera]
            files = numbered_files(root / folder)
            for frame, number in enumerate(sequence.numbers):
                if number in files:
                    images[first + frame, place] = f"{folder}/{files[number]}"
            intrinsics[own, place] = sequence.intrinsics[camera]
            camera_from_base[own, place] = sequence.camera_from_base[camera]
        clouds = numbered_files(root / sequence.points_folder)
        first_cloud = len(points)
        for frame, number in enumerate(sequence.numbers):
            last = len(points)
            sweeps.append(list(range(last - 1, max(first_cloud, last - most_sweeps) - 1, -1)))
            if number in clouds:
                of_frame[first + frame] = last
                points.append((first + frame, f"{sequence.points_folder}/{clouds[number]}"))
        first = own.stop
    time = np.concatenate([sequence.time for sequence in sequences])
    world_from_ego = np.concatenate([sequence.world_from_ego for sequence in sequences])
    ego_from_base = np.concatenate(
        [np.broadcast_to(one.ego_from_base, (len(one.numbers), 3, 4)) for one in sequences]
    )
    of_point = np.array([frame for frame, _ in points], np.int64)
    lidar = LidarColumns(
        file=names_column([name for _, name in points]),
        time=time[of_point],
        world_from_lidar=poses.joined(world_from_ego, ego_from_base)[of_point],
        of_frame=of_frame,
        first_sweep=first_column([len(earlier) for earlier in sweeps]),
        sweep=np.array([record for earlier in sweeps for record in earlier], np.int64),
    )
    return DrivingIndex(
        base="lidar",
        camera_names=camera_names,
        categories=categories,
        attributes=attributes,
        point_columns=POINT_COLUMNS,
        origin=origin,
        frames=FrameColumns(
            scene=names_column([sequence.name for sequence in sequences]),
            first_of_scene=first_column(counts),
            token=names_column([f"{one.name}/{number:06d}" for one in sequences for number in one.numbers]),
            time=time,
            world_from_ego=world_from_ego,
            ego_from_base=ego_from_base,
        ),
        cameras=CameraColumns(
            file=names_column(images.reshape(-1).tolist()).reshape(shape),
            time=np.repeat(time[:, np.newaxis], len(camera_names), axis=1),
            intrinsics=intrinsics,
            camera_from_base=camera_from_base,
            ego_from_camera=poses.joined(ego_from_base[:, np.newaxis], poses.inverse(camera_from_base)),
        )
        if camera_names
        else None,
        lidar=lidar if points else None,
        boxes=boxes,
        boxes_2d=boxes_2d,
    )
