# SPDX-License-Identifier: Apache-2.0
"""A provider for the tracking sequences of KITTI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_path, flag
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving import poses
from ..driving.driving_fields import DrivingFieldSettings, most_sweeps, with_driving_fields
from ..driving.driving_index import DrivingIndex
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cached_index
from .kitti_labels import ATTRIBUTES, box_columns, categories_of, read_labels
from .kitti_sequences import KittiSequence, frame_numbers, make_index
from .text_files import Calibration, read_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CAMERAS = ("image_02", "image_03")
_PERIOD_S = 0.1
_EARTH_RADIUS_M = 6378137.0


class KittiTrackingProvider(DrivingProvider):
    """KITTI tracking: cameras, lidar, the poses of the vehicle, and boxes with tracks.

    The files, relative to the root (the folder ``training``); of the cameras and the points, those that are
    there::

        calib/0000.txt, label_02/0000.txt, oxts/0000.txt
        image_02/0000/000000.png, image_03/0000/..., velodyne/0000/000000.bin

    Samples are as `DrivingProvider` has them. KITTI has no times here: frames are 0.1 s apart. The lidar is the
    base; the vehicle is the IMU, and the world has x to the east, y to the north, z up, with the IMU at the start
    of the sequence as its origin.

    - ``location`` of KITTI is the center of the lower face, in coordinates of the rectified camera 0, and
      ``rotation_y`` turns about its y, which points down: here, ``centers`` are those of the box, ``yaws`` are
      about z. Velocities are not known.
    - ``visibilities``: 4, 3, 1 for KITTI's fully visible, partly and largely occluded; 0 for unknown.
    - ``attributes``: whether the image cuts the object off (``truncated`` of KITTI), see `attribute_names`.
    - ``boxes_2d`` are of ``image_02``; areas that are ``DontCare`` are only there, with category and row -1,
      depth -1 and the middle of the box as ``centers``. `DrivingFields.classes` leaves them out.

    Example::

        provider = KittiTrackingProvider("/data/kitti/tracking/training", classes=["Car", "Pedestrian"],
        lidar=True)
    """

    @explains_unknown_arguments()
    @with_driving_fields
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        with_poses: bool = True,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Find the sequences and open their index; it is made where it is not there.

        Args:
            root: The folder with ``calib``.
            with_poses: Whether there are poses of the vehicle (``oxts``). If not, the vehicle stays at the origin:
                futures and earlier points are then of no use.
            scenes: Names of the sequences, in the order wanted; None for all.
            index_cache: Folder where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else
                ``~/.cache/accvlab/driving``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: There are no sequences, or a file cannot be read or is not as it should be.
            SettingError: The data set lacks what is asked for.
        """
        top = Path(file_path(root, "root")).absolute()
        with_poses = flag(with_poses, "with_poses")
        names = sorted(path.stem for path in (top / "calib").glob("*.txt"))
        if not names:
            raise FileError(f"There is no sequence in {str(top)!r}: no file in its folder 'calib'.")
        sweeps = most_sweeps(fields)
        sources = []
        for name in names:
            sources += [top / "calib" / f"{name}.txt"] + [top / "oxts" / f"{name}.txt"] * with_poses
            found = [top / part / name for part in (*_CAMERAS, "velodyne")] + [top / "label_02" / f"{name}.txt"]
            sources += [path for path in found if path.exists()]
        index = cached_index(
            lambda: tracking_index(top, names, with_poses, sweeps),
            sources,
            {"reader": "kitti tracking 1", "most_sweeps": sweeps, "with_poses": with_poses},
            index_cache,
        )
        self._index_cache = index_cache
        super().__init__(index, top, scenes=scenes, **fields)


def tracking_index(root: Path, names: Sequence[str], with_poses: bool, most_sweeps: int) -> DrivingIndex:
    """Make the index of sequences."""
    cameras = [camera for camera in _CAMERAS if any((root / camera / name).is_dir() for name in names)]
    sequences, rectified_from_base = [], []
    for name in names:
        calibration = Calibration.read(root / "calib" / f"{name}.txt")
        pose = poses.joined(
            calibration.rotation("R_rect", "R0_rect", "R_rect_00"),
            calibration.pose("Tr_velo_cam", "Tr_velo_to_cam"),
        )
        rectified_from_base.append(pose)
        sequences.append(_sequence(root, name, cameras, calibration, pose, with_poses))
    origin = {"format": "KITTI tracking", "root": str(root)}
    label_files = [root / "label_02" / f"{name}.txt" for name in names]
    if not any(path.exists() for path in label_files):
        return make_index(root, sequences, cameras, most_sweeps, origin=origin)
    labels = [
        read_labels(path, sequence.numbers) if path.exists() else []
        for path, sequence in zip(label_files, sequences, strict=True)
    ]
    categories = categories_of(labels)
    boxes, boxes_2d = box_columns(labels, sequences, rectified_from_base, categories, cameras)
    of_labels = {"boxes": boxes, "boxes_2d": boxes_2d, "categories": categories, "attributes": ATTRIBUTES}
    return make_index(root, sequences, cameras, most_sweeps, origin=origin, **of_labels)


def _sequence(
    root: Path,
    name: str,
    cameras: Sequence[str],
    calibration: Calibration,
    rectified_from_base: npt.NDArray[np.float64],
    with_poses: bool,
) -> KittiSequence:
    image_folders = {camera: f"{camera}/{name}" for camera in cameras}
    numbers = frame_numbers(root, image_folders, f"velodyne/{name}")
    world_from_ego = poses.identity(len(numbers))
    if with_poses:
        path = root / "oxts" / f"{name}.txt"
        rows = read_rows(path, 30, "a record of the GPS and the IMU")
        if numbers[-1] >= len(rows):
            raise FileError(f"{str(path)!r} has {len(rows)} lines, but the sequence has a frame {numbers[-1]}.")
        world_from_ego = pose_of_oxts(rows)[np.array(numbers)]
    ego_from_base = poses.inverse(calibration.pose("Tr_imu_velo", "Tr_imu_to_velo"))
    of_cameras = {camera: calibration.camera(int(camera[-1])) for camera in cameras}
    return KittiSequence(
        name=name,
        numbers=numbers,
        image_folders=image_folders,
        points_folder=f"velodyne/{name}",
        time=np.array(numbers) * _PERIOD_S,
        world_from_ego=world_from_ego,
        ego_from_base=ego_from_base,
        intrinsics={camera: matrix for camera, (matrix, _) in of_cameras.items()},
        camera_from_base={
            camera: poses.joined(pose, rectified_from_base) for camera, (_, pose) in of_cameras.items()
        },
    )


def pose_of_oxts(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Poses of records ``(n, 30)`` of latitude, longitude, altitude, roll, pitch, yaw, ..., as KITTI's devkit
    does.

    Mercator's projection, scaled to the first latitude; the origin is the first place.
    """
    latitude, longitude = np.radians(rows[:, 0]), np.radians(rows[:, 1])
    scale = np.cos(latitude[0]) * _EARTH_RADIUS_M
    east, north = scale * longitude, scale * np.log(np.tan(np.pi / 4 + latitude / 2))
    place = np.stack([east, north, rows[:, 2]], axis=-1)
    half = rows[:, 3:6] / 2
    zero = np.zeros(len(rows))
    roll = np.stack([np.cos(half[:, 0]), np.sin(half[:, 0]), zero, zero], axis=-1)
    pitch = np.stack([np.cos(half[:, 1]), zero, np.sin(half[:, 1]), zero], axis=-1)
    turn = poses.product_of_quaternions(
        poses.quaternion_of_yaw(rows[:, 5]), poses.product_of_quaternions(pitch, roll)
    )
    return poses.pose_of_quaternion(turn, place - place[0])
