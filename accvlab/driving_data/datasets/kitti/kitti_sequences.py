# SPDX-License-Identifier: Apache-2.0
"""What the sequences of KITTI have in common: text files, images and points by number, rectified cameras."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError, file_error
from accvlab.dali_pipeline_framework.extension import read_table

from ..driving import poses
from ..driving.driving_index import Float64
from ..driving.scene_parts import Scene, SceneImages, SceneRecords

_NUMBERED = re.compile(r"(\d+)\.(?:png|jpe?g|bin)", re.IGNORECASE)


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        FileError: It cannot be read.
    """
    try:
        return read_table(path, "ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, OSError) else ValueError("it is no text")
        raise file_error(f"The file {str(path)!r} cannot be read", reason) from error


def read_rows(path: Path, num_columns: int, what: str) -> Float64:
    """Read a file of numbers, ``(n, num_columns)``; empty lines are left out.

    Raises:
        FileError: A line has another number of columns, or something that is no number.
    """
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.strip():
            try:
                row = [float(word) for word in line.split()]
                if len(row) != num_columns or not np.isfinite(row).all():
                    raise ValueError
            except ValueError:
                raise FileError(
                    f"Each line of {str(path)!r} must have {num_columns} numbers ({what}), line {number} is "
                    f"{line[:80]!r}."
                ) from None
            rows.append(row)
    return np.array(rows, np.float64).reshape(-1, num_columns)


def numbered_files(folder: Path) -> dict[int, str]:
    """Names of the images or points in a folder by their numbers, in order; empty where there is no folder."""
    if not folder.is_dir():
        return {}
    found = {int(match[1]): name for name in os.listdir(folder) if (match := _NUMBERED.fullmatch(name))}
    return dict(sorted(found.items()))


@attrs.frozen(eq=False)
class Calibration:
    """What a calibration file says. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        path: The file.
        matrices: The numbers of each line, by its name.
    """

    path: Path
    matrices: Mapping[str, Float64]

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a file of lines ``name: numbers``; the colon may be missing."""
        matrices = {}
        for number, line in enumerate(read_text(path).splitlines(), 1):
            name, _, rest = line.strip().partition(" ")
            if name:
                try:
                    matrices[name.rstrip(":")] = np.array([float(word) for word in rest.split()])
                except ValueError:
                    raise FileError(
                        f"Line {number} of {str(path)!r} must hold numbers, got {line[:80]!r}."
                    ) from None
        return cls(path, matrices)

    def _matrix(self, shape: tuple[int, int], *names: str) -> Float64:
        found = [name for name in names if name in self.matrices]
        if not found:
            raise FileError(f"{str(self.path)!r} has no {listed(names)}. It has: {listed(self.matrices)}.")
        values = self.matrices[found[0]]
        if len(values) != shape[0] * shape[1] or not np.isfinite(values).all():
            raise FileError(
                f"{found[0]} in {str(self.path)!r} must be {shape[0]} x {shape[1]} numbers, got {len(values)}."
            )
        return values.reshape(shape)

    def pose(self, *names: str) -> Float64:
        """Read a rigid motion, ``(3, 4)``; ``names`` are those that releases give it."""
        matrix = self._matrix((3, 4), *names)
        return poses.pose(self._rotation(matrix[:, :3], names[0]), matrix[:, 3])

    def rotation(self, *names: str) -> Float64:
        """Read a rotation as a pose, ``(3, 4)``."""
        return poses.pose(self._rotation(self._matrix((3, 3), *names), names[0]), np.zeros(3))

    def _rotation(self, matrix: Float64, name: str) -> Float64:
        """The rotation that is nearest: the files have seven digits."""
        first, sizes, second = np.linalg.svd(matrix)
        rotation: Float64 = first @ second
        if np.abs(sizes - 1).max() > 1e-3 or np.linalg.det(rotation) < 0:
            raise FileError(f"{name} in {str(self.path)!r} must be a rotation, got {matrix.tolist()}.")
        return rotation

    def camera(self, number: int) -> tuple[Float64, Float64]:
        """Intrinsics of a camera, and its pose ``camera_from_rectified``.

        The projection matrix of KITTI is their product: all cameras look in one direction.
        """
        projection = self._matrix((3, 4), f"P{number}")
        intrinsics = projection[:, :3]
        if min(intrinsics[0, 0], intrinsics[1, 1]) <= 0 or abs(intrinsics[2, 2] - 1) > 1e-6:
            raise FileError(f"P{number} in {str(self.path)!r} must be a projection, got {projection.tolist()}.")
        return intrinsics, poses.pose(np.eye(3), np.linalg.solve(intrinsics, projection[:, 3]))


POINT_COLUMNS = ("x", "y", "z", "reflectance")


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


def make_scene(
    root: Path,
    name: str,
    numbers: Sequence[int],
    calibration: Calibration,
    *,
    image_folders: Mapping[str, str],
    points_folder: str,
    time: Float64,
    world_from_ego: Float64,
    ego_from_base: Float64,
    rectified_from_base: Float64,
) -> Scene:
    """Put the n frames of a sequence together.

    Args:
        root: What the folders are relative to.
        name: Its name.
        numbers: Number of each frame in the names of files.
        calibration: Of its cameras.
        image_folders: Folder of each camera, by name.
        points_folder: Folder of the points.
        time: ``(n,)`` seconds.
        world_from_ego: ``(n, 3, 4)``.
        ego_from_base: ``(3, 4)``, the lidar on the vehicle.
        rectified_from_base: ``(3, 4)``, the lidar in coordinates of the rectified cameras.
    """
    images = {}
    for camera, folder in image_folders.items():
        files = numbered_files(root / folder)
        has = np.flatnonzero([number in files for number in numbers])
        intrinsics, camera_from_rectified = calibration.camera(int(camera[-1]))
        camera_from_base = poses.joined(camera_from_rectified, rectified_from_base)
        images[camera] = SceneImages(
            frames=has,
            file=[f"{folder}/{files[numbers[frame]]}" for frame in has.tolist()],
            time=time[has],
            intrinsics=intrinsics,
            camera_from_base=camera_from_base,
            ego_from_camera=poses.joined(ego_from_base, poses.inverse(camera_from_base)),
        )
    clouds = numbered_files(root / points_folder)
    has_points = np.array([number in clouds for number in numbers])
    num_before = np.cumsum(has_points) - has_points
    lidar = SceneRecords(
        file=[f"{points_folder}/{clouds[number]}" for number in numbers if number in clouds],
        time=time[has_points],
        world_from_lidar=poses.joined(world_from_ego, ego_from_base)[has_points],
        of_frame=np.where(has_points, num_before, -1),
        num_before=num_before,
    )
    return Scene(
        name=name,
        token=[f"{name}/{number:06d}" for number in numbers],
        time=time,
        world_from_ego=world_from_ego,
        ego_from_base=ego_from_base,
        images=images,
        lidar=lidar if has_points.any() else None,
    )
