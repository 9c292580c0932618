# SPDX-License-Identifier: Apache-2.0
"""What the sequences of KITTI have in common: images and points by number, one lidar, rectified cameras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses
from ..driving.driving_index import DrivingIndex
from ..driving.scene_parts import Scene, SceneImages, SceneRecords, index_of_scenes
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
    root: Path, sequences: Sequence[KittiSequence], camera_names: Sequence[str], most_sweeps: int, **others: Any
) -> DrivingIndex:
    """Put sequences together; ``others`` are further columns and names of the index."""
    return index_of_scenes(
        [_scene(root, sequence) for sequence in sequences],
        base="lidar",
        camera_names=camera_names,
        most_sweeps=most_sweeps,
        point_columns=POINT_COLUMNS,
        **others,
    )


def _scene(root: Path, sequence: KittiSequence) -> Scene:
    numbers, images = sequence.numbers, {}
    for camera, folder in sequence.image_folders.items():
        files = numbered_files(root / folder)
        has = np.flatnonzero([number in files for number in numbers])
        camera_from_base = sequence.camera_from_base[camera]
        images[camera] = SceneImages(
            frames=has,
            file=[f"{folder}/{files[numbers[frame]]}" for frame in has.tolist()],
            time=sequence.time[has],
            intrinsics=sequence.intrinsics[camera],
            camera_from_base=camera_from_base,
            ego_from_camera=poses.joined(sequence.ego_from_base, poses.inverse(camera_from_base)),
        )
    clouds = numbered_files(root / sequence.points_folder)
    has_points = np.array([number in clouds for number in numbers])
    num_before = np.cumsum(has_points) - has_points
    lidar = SceneRecords(
        file=[f"{sequence.points_folder}/{clouds[number]}" for number in numbers if number in clouds],
        time=sequence.time[has_points],
        world_from_lidar=poses.joined(sequence.world_from_ego, sequence.ego_from_base)[has_points],
        of_frame=np.where(has_points, num_before, -1),
        num_before=num_before,
    )
    return Scene(
        name=sequence.name,
        token=[f"{sequence.name}/{number:06d}" for number in numbers],
        time=sequence.time,
        world_from_ego=sequence.world_from_ego,
        ego_from_base=sequence.ego_from_base,
        images=images,
        lidar=lidar if has_points.any() else None,
    )
