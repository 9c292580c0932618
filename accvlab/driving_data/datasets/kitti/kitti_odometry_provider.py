# SPDX-License-Identifier: Apache-2.0
"""A provider for the odometry sequences of KITTI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from accvlab.dali_pipeline_framework.checks import file_path
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses
from ..driving.driving_fields import DrivingFieldSettings, most_sweeps, with_driving_fields
from ..driving.driving_index import DrivingIndex, cached_index
from ..driving.driving_provider import DrivingProvider
from ..driving.poses import require_ascending
from ..driving.scene_parts import Scene, index_of_scenes
from .kitti_sequences import POINT_COLUMNS, Calibration, frame_numbers, make_scene, read_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CAMERAS = ("image_0", "image_1", "image_2", "image_3")


class KittiOdometryProvider(DrivingProvider):
    """KITTI odometry: cameras, lidar and the poses of the vehicle, without boxes.

    The files, relative to the root; of the cameras and the points, those that are there::

        sequences/00/calib.txt, times.txt
        sequences/00/image_2/000000.png, image_3/..., velodyne/000000.bin
        poses/00.txt

    Sequences without poses (11 to 21) are left out. Samples are as `DrivingProvider` has them; the lidar is the
    base, and the vehicle too: its axes point as those of a vehicle do. The world is the place of the lidar at the
    start of the sequence. (The poses of KITTI are those of camera 0.)

    Example::

        provider = KittiOdometryProvider("/data/kitti/dataset", cameras=["image_2", "image_3"], lidar=True)
    """

    @with_driving_fields
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Find the sequences and open their index; it is made where it is not there.

        Args:
            root: The folder with ``sequences`` and ``poses``.
            scenes: Names of the sequences, in the order wanted; None for all.
            index_cache: Folder where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else
                ``~/.cache/accvlab/driving``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: There are no sequences with poses, or a file cannot be read or is not as it should be.
            SettingError: The data set lacks what is asked for.
        """
        top = Path(file_path(root, "root")).absolute()
        names = sorted(path.stem for path in (top / "poses").glob("*.txt"))
        names = [name for name in names if (top / "sequences" / name).is_dir()]
        if not names:
            raise FileError(
                f"There is no sequence in {str(top)!r} that has both a folder in 'sequences' and a file in "
                "'poses'."
            )
        sweeps = most_sweeps(fields)
        sources = [top / "poses" / f"{name}.txt" for name in names]
        for name in names:
            folder = top / "sequences" / name
            parts = [folder / part for part in (*_CAMERAS, "velodyne") if (folder / part).is_dir()]
            sources += [folder / "calib.txt", folder / "times.txt", *parts]
        index = cached_index(
            lambda: odometry_index(top, names, sweeps),
            sources,
            {"reader": "kitti odometry 1", "most_sweeps": sweeps},
            index_cache,
        )
        self._index_cache = index_cache
        super().__init__(index, top, scenes=scenes, **fields)


def odometry_index(root: Path, names: Sequence[str], most_sweeps: int) -> DrivingIndex:
    """Make the index of sequences."""
    cameras = [
        camera for camera in _CAMERAS if any((root / "sequences" / name / camera).is_dir() for name in names)
    ]
    return index_of_scenes(
        [_scene(root, name, cameras) for name in names],
        base="lidar",
        camera_names=cameras,
        most_sweeps=most_sweeps,
        point_columns=POINT_COLUMNS,
        origin={"format": "KITTI odometry", "root": str(root)},
    )


def _scene(root: Path, name: str, cameras: Sequence[str]) -> Scene:
    folder = root / "sequences" / name
    calibration = Calibration.read(folder / "calib.txt")
    time = read_rows(folder / "times.txt", 1, "seconds")[:, 0]
    require_ascending(time, f"The file {str(folder / 'times.txt')!r}", strictly=True)
    pose_file = root / "poses" / f"{name}.txt"
    of_camera_0 = read_rows(pose_file, 12, "a 3 x 4 matrix").reshape(-1, 3, 4)
    image_folders = {camera: f"sequences/{name}/{camera}" for camera in cameras}
    numbers = frame_numbers(root, image_folders, f"sequences/{name}/velodyne")
    for path, count in ((folder / "times.txt", len(time)), (pose_file, len(of_camera_0))):
        if numbers[-1] >= count:
            raise FileError(f"{str(path)!r} has {count} lines, but the sequence has a frame {numbers[-1]}.")
    camera_0_from_base = calibration.pose("Tr", "Tr_velo_to_cam", "Tr_velo_cam")
    world_from_ego = poses.joined(poses.joined(poses.inverse(camera_0_from_base), of_camera_0), camera_0_from_base)
    chosen = np.array(numbers)
    return make_scene(
        root,
        name,
        numbers,
        calibration,
        image_folders=image_folders,
        points_folder=f"sequences/{name}/velodyne",
        time=time[chosen],
        world_from_ego=world_from_ego[chosen],
        ego_from_base=np.eye(3, 4),
        rectified_from_base=camera_0_from_base,
    )
