# SPDX-License-Identifier: Apache-2.0
"""KITTI, odometry and tracking: the files and the indices of sequences, the labels, and the providers.

Labels of objects are in coordinates of the rectified camera 0, their 2D boxes in images of camera 2.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import file_path, flag, listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, file_error
from accvlab.dali_pipeline_framework.extension import read_table

from .driving import poses
from .driving.array_types import Array, Bool, Float64, Int64
from .driving.driving_fields import most_sweeps
from .driving.driving_index import Box2dColumns, DrivingIndex, first_column, numbers_column
from .driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from .driving.poses import require_ascending
from .driving.requested_parts import RequestedParts, index_of_parts, requested_scenes
from .driving.scene_parts import Scene, SceneImages, SceneRecords, index_of_scenes

_IMAGES = re.compile(r"(\d+)\.(?:png|jpe?g)", re.IGNORECASE)
_CLOUDS = re.compile(r"(\d+)\.bin", re.IGNORECASE)


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Lines that are not empty: where each is, for errors, and its words."""
    try:
        text = read_table(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, OSError) else ValueError("it is no text")
        raise file_error(f"The file {str(path)!r} cannot be read", reason) from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f"Line {number} of {str(path)!r}", line.split()


def _numbers(where: str, words: Sequence[str], counts: Sequence[int], what: str) -> list[float]:
    """Numbers in words, of which there must be one of some counts."""
    try:
        row = [float(word) for word in words]
        if len(row) in counts and np.isfinite(row).all():
            return row
    except ValueError:
        pass
    rule = f"{where} must have {' or '.join(map(str, counts))} numbers ({what})"
    raise FileError(f"{rule}, got {shown(' '.join(words))}.")


def read_rows(path: Path, num_columns: int, what: str, last: int = -1) -> Float64:
    """Read a file of numbers, ``(n, num_columns)``; empty lines are left out.

    Raises:
        FileError: A line has another number of columns, or something that is no number; or there is no line of the
            ``last`` frame.
    """
    rows = [_numbers(where, words, [num_columns], what) for where, words in _lines(path)]
    _require_rows(path, len(rows), last)
    return np.array(rows, np.float64).reshape(-1, num_columns)


def _require_rows(path: Path, num_rows: int, last: int) -> None:
    if last >= num_rows:
        advice = "Download it again, or cut what is longer."
        raise FileError(f"{str(path)!r} has {num_rows} lines, but the sequence has a frame {last}. {advice}")


def numbered_files(root: Path, folder: str, names: re.Pattern[str]) -> dict[int, str]:
    """Names of the images or points in a folder by their numbers, in order; empty where there is no folder.

    Raises:
        FileError: There are two of a number.
    """
    found: dict[int, str] = {}
    for name in sorted(os.listdir(root / folder)) if (root / folder).is_dir() else ():
        match = names.fullmatch(name)
        if match and found.setdefault(int(match[1]), name) != name:
            both = f"{found[int(match[1])]} and {name}"
            raise FileError(
                f"{str(root / folder)!r} has two files of the frame {int(match[1])}: {both}. Remove one."
            )
    return {number: f"{folder}/{name}" for number, name in sorted(found.items())}


@attrs.frozen(eq=False)
class Calibration:
    """What a calibration file says. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        path: The file.
        lines: The words of each line, by its name.
    """

    path: Path
    lines: Mapping[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read a file of lines ``name: numbers``; the colon may be missing."""
        return cls(path, {name.rstrip(":"): words for _, (name, *words) in _lines(path)})

    def _matrix(self, shape: tuple[int, int], *names: str) -> Float64:
        name = next((name for name in names if name in self.lines), None)
        if name is None:
            raise FileError(f"{str(self.path)!r} has no {listed(names)}. It has: {listed(self.lines)}.")
        where, rule = f"{name} in {str(self.path)!r}", f"a matrix of {shape[0]} x {shape[1]}"
        return np.reshape(_numbers(where, self.lines[name], [math.prod(shape)], rule), shape)

    def pose(self, *names: str) -> Float64:
        """Read a rigid motion, ``(3, 4)``; ``names`` are those that releases give it."""
        matrix = self._matrix((3, 4), *names)
        return poses.pose(self._rotation(matrix[:, :3], names[0]), matrix[:, 3])

    def of_lidar(self) -> Float64:
        """Read the pose of the lidar in coordinates of camera 0, ``(3, 4)``."""
        return self.pose("Tr", "Tr_velo_to_cam", "Tr_velo_cam")

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
# Camera coordinates of a vehicle with x ahead, y to the left, z up.
_CAMERA_FROM_VEHICLE = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])


_POINTS = "velodyne"


def _part_of(sensor: str) -> str:
    """Name of the part that a sensor is, see `RequestedParts`."""
    return "lidar" if sensor == _POINTS else f"cameras/{sensor}"


class SequenceFiles:
    """The images and points of a sequence.

    Attributes:
        name: Its name.
        files: Names of the files of each sensor, relative to the root, by their numbers.
        last: The greatest number of a file of the requested sensors, or else of all; -1 where there is none.
    """

    def __init__(self, root: Path, name: str, folder: str, cameras: Sequence[str], parts: RequestedParts) -> None:
        """Find the files; ``folder`` is that of a sensor: ``"sequences/00/{}"``.

        Raises:
            FileError: There are none, though sensors are requested.
        """
        self.name, self._parts = name, parts
        self.files: dict[str, dict[int, str]] = {}
        for sensor in (*cameras, _POINTS):
            names = _CLOUDS if sensor == _POINTS else _IMAGES
            found = parts.read(_part_of(sensor), partial(numbered_files, root, folder.format(sensor), names))
            self.files[sensor] = found or {}
        requested = [sensor for sensor in self.files if parts.wants(_part_of(sensor))]
        counted = [sensor for sensor in requested if self.files[sensor]] or self.files
        self.last = max((number for sensor in counted for number in self.files[sensor]), default=-1)
        if self.last < 0 and (requested or parts.settings.get("cameras") is None):
            folders = listed(map(folder.format, self.files))
            raise FileError(
                f"There are no images (000000.png) or points (000000.bin) in {folders} of {str(root)!r}."
            )

    def require_rows(self, path: Path, num_rows: int) -> None:
        """Refuse a sensor with files of frames of which a file has no line.

        Raises:
            FileError: There is one, and it is requested.
        """
        for sensor, files in self.files.items():
            with self._parts.reading(_part_of(sensor)):
                self.files[sensor] = {}
                _require_rows(path, num_rows, max(files, default=-1))
                self.files[sensor] = files

    def scene(
        self,
        calibration: Calibration,
        *,
        time: Float64,
        world_from_ego: Float64,
        ego_from_base: Float64,
        rectified_from_base: Float64,
        has_lidar: bool = True,
    ) -> Scene:
        """Put the n frames together: those of the numbers from 0 on.

        Args:
            calibration: Of the cameras.
            time: ``(n,)`` seconds.
            world_from_ego: ``(n, 3, 4)``.
            ego_from_base: ``(3, 4)``, the base on the vehicle.
            rectified_from_base: ``(3, 4)``, the base in coordinates of the rectified cameras.
            has_lidar: Whether the base is the lidar; else its place is not known.
        """
        images, numbers = {}, np.arange(len(time))
        is_there = {name: np.isin(numbers, [*files]) for name, files in self.files.items()}
        has_points = is_there.pop(_POINTS)
        for camera, has in is_there.items():
            with self._parts.reading(f"cameras/{camera}"):
                intrinsics, camera_from_rectified = calibration.camera(int(camera[-1]))
                camera_from_base = poses.joined(camera_from_rectified, rectified_from_base)
                images[camera] = SceneImages(
                    frames=np.flatnonzero(has),
                    file=[*self.files[camera].values()],
                    time=time[has],
                    intrinsics=intrinsics,
                    camera_from_base=camera_from_base,
                    ego_from_camera=poses.joined(ego_from_base, poses.inverse(camera_from_base)),
                )
        lidar = None
        if has_lidar and has_points.any():
            num_before: Int64 = np.cumsum(has_points) - has_points
            lidar = SceneRecords(
                file=[*self.files[_POINTS].values()],
                time=time[has_points],
                world_from_lidar=poses.joined(world_from_ego, ego_from_base)[has_points],
                of_frame=np.where(has_points, num_before, -1),
                num_before=num_before,
            )
        return Scene(
            name=self.name,
            token=[f"{self.name}/{number:06d}" for number in numbers.tolist()],
            time=time,
            world_from_ego=world_from_ego,
            ego_from_base=ego_from_base,
            images=images,
            lidar=lidar,
        )


_ODOMETRY_CAMERAS = ("image_0", "image_1", "image_2", "image_3")


class KittiOdometryProvider(DrivingProvider):
    """KITTI odometry: cameras, lidar and the poses of the vehicle, without boxes.

    The files, relative to the root; cameras and points may be missing::

        sequences/00/calib.txt, times.txt
        sequences/00/image_2/000000.png, image_3/..., velodyne/000000.bin
        poses/00.txt

    Sequences without poses (11 to 21) are left out. Samples are as `DrivingProvider` has them; the reference frame
    (``base``) is the lidar's, and it is the vehicle's too: its axes point as the axes of a vehicle. The world is
    the frame of the lidar at the start of the sequence. (KITTI has the poses of camera 0.) If ``calib.txt`` has no
    ``Tr``, as in the downloads of images, there is no lidar in any sequence: the base is the vehicle, which is at
    camera 0 then.

    A sequence has as many frames as ``times.txt`` and the poses have lines; each frame needs all requested files.

    Example::

        provider = KittiOdometryProvider("/data/kitti/dataset", cameras=["image_2", "image_3"], lidar=True)
    """

    @with_provider_settings
    def __init__(self, root: str | os.PathLike[str], **settings: Unpack[ProviderSettings]) -> None:
        """Find the sequences and open their index, which is made on first use.

        Args:
            root: The folder with ``sequences`` and ``poses``.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no sequences with poses, or a file cannot be read or is damaged.
            SettingError: The data set, or a frame, lacks a requested part.
        """
        top = Path(file_path(root, "root")).absolute()
        names = sorted(path.stem for path in (top / "poses").glob("[!.]*.txt"))
        names = [name for name in names if (top / "sequences" / name).is_dir()]
        if not names:
            rule = "both a folder in 'sequences' and a file in 'poses'"
            raise FileError(f"There is no sequence in {str(top)!r} that has {rule}.")
        names, sweeps = requested_scenes(names, settings), most_sweeps(settings)
        sources = [top / "poses" / f"{name}.txt" for name in names]
        for name in names:
            own = ("calib.txt", "times.txt", *_ODOMETRY_CAMERAS, _POINTS)
            sources += [top / "sequences" / name / each for each in own]
        key = {"reader": "kitti odometry 3", "most_sweeps": sweeps}
        index = index_of_parts(lambda parts: odometry_index(top, names, sweeps, parts), sources, key, settings)
        super().__init__(index, top, **settings)
        self._refuse_missing_files(repr(str(top)), also_points=True)


def odometry_index(root: Path, names: Sequence[str], most_sweeps: int, parts: RequestedParts) -> DrivingIndex:
    """Make the index of sequences."""
    folders = [root / "sequences" / name for name in names]
    cameras = [camera for camera in _ODOMETRY_CAMERAS if any((folder / camera).is_dir() for folder in folders)]
    calibrations = [Calibration.read(folder / "calib.txt") for folder in folders]
    with_lidar = [parts.read("lidar", calibration.of_lidar) for calibration in calibrations]
    has_lidar = all(pose is not None for pose in with_lidar)
    scenes = []
    for name, folder, calibration, camera_0_from_lidar in zip(
        names, folders, calibrations, with_lidar, strict=True
    ):
        camera_0_from_base = poses.pose(_CAMERA_FROM_VEHICLE, np.zeros(3))  # the vehicle is at camera 0
        if has_lidar and camera_0_from_lidar is not None:
            camera_0_from_base = camera_0_from_lidar
        files = SequenceFiles(root, name, f"sequences/{name}/{{}}", cameras, parts)
        path = folder / "times.txt"
        time = read_rows(path, 1, "seconds")[:, 0]
        files.require_rows(path, len(time))
        require_ascending(time, f"The file {str(path)!r}", strictly=True)
        of_camera_0 = read_rows(root / "poses" / f"{name}.txt", 12, "a 3 x 4 matrix", len(time) - 1)
        _require_rows(path, len(time), len(of_camera_0) - 1)
        world_from_camera_0 = poses.joined(poses.inverse(camera_0_from_base), of_camera_0.reshape(-1, 3, 4))
        scenes.append(
            files.scene(
                calibration,
                time=time,
                world_from_ego=poses.joined(world_from_camera_0, camera_0_from_base),
                ego_from_base=np.eye(3, 4),
                rectified_from_base=camera_0_from_base,
                has_lidar=has_lidar,
            )
        )
    return index_of_scenes(
        scenes,
        base="lidar" if has_lidar else "ego",
        camera_names=cameras,
        most_sweeps=most_sweeps,
        point_columns=POINT_COLUMNS,
        origin={"format": "KITTI odometry", "root": str(root)},
    )


DONT_CARE = "DontCare"
LABELLED_CAMERA = "image_02"
CATEGORIES = ("Car", "Van", "Truck", "Pedestrian", "Person", "Cyclist", "Tram", "Misc")
# By KITTI's number: whether the edge of the image cuts an object off.
ATTRIBUTES = ("not_truncated", "partly_truncated", "largely_truncated")
# By KITTI's number: fully visible, partly occluded, largely occluded, unknown.
_VISIBILITIES = np.array((4, 3, 1, 0), np.int32)
# A box has x along the length, y to the left, z up; at rotation_y 0, x is the x of the camera.
_CAMERA_FROM_BOX = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])


@attrs.frozen(eq=False)
class Labels:
    """The labels of a sequence, by frame.

    Attributes:
        category: Names, ``(n,)``.
        values: The further values, ``(n, 16)``: number of the frame and of the object (-1 for none), truncation,
            occlusion, alpha, 2D box, height, width, length, location (center of the lower face in coordinates of
            the rectified camera 0), and the angle about the y axis of that camera, which points down.
    """

    category: Array
    values: Float64

    @classmethod
    def read(cls, path: Path, num_frames: int) -> Labels:
        """Read the labels of a sequence of so many frames.

        Raises:
            FileError: A line is not as it should be, or is of a frame that is not there.
        """
        categories, rows = [], []
        for where, words in _lines(path):
            categories.append(words.pop(2) if len(words) > 2 else "")
            rows.append(_numbers(where, words, (16, 17), "a label, besides its category")[:16])
            if not 0 <= rows[-1][0] < num_frames:
                got = f"got one of the frame {rows[-1][0]:.0f}"
                raise FileError(f"{where} must be a label of the frames 0 to {num_frames - 1}, {got}.")
        values = np.array(rows, np.float64).reshape(-1, 16)
        order = np.argsort(values[:, 0], kind="stable")
        return cls(np.array(categories, np.str_)[order], values[order])

    @property
    def is_object(self) -> Bool:
        """Which are of objects, not of areas to leave out."""
        return np.asarray(self.category != DONT_CARE)

    def boxes(self, base_from_rectified: Float64) -> dict[str, Array]:
        """Make the columns of the boxes of a sequence, see `Scene`."""
        values = self.values[self.is_object]
        frame, track, truncation, occlusion = values[:, :4].astype(np.int64).T
        size, center = values[:, [11, 10, 9]], values[:, 12:15].copy()
        center[:, 1] -= size[:, 2] / 2  # y points down
        sin, cos, zero, one = np.sin(values[:, 15]), np.cos(values[:, 15]), 0 * frame, 0 * frame + 1
        about_y = np.moveaxis(np.array([[cos, zero, sin], [zero, one, zero], [-sin, zero, cos]]), 2, 0)
        is_known = (truncation >= 0) & (truncation < len(ATTRIBUTES))
        return {
            "frame": frame,
            "center": poses.moved(base_from_rectified, center),
            "size": size,
            "rotation": poses.quaternion_of_rotation(base_from_rectified[:, :3] @ about_y @ _CAMERA_FROM_BOX),
            "category": self.category[self.is_object],
            "instance": track,
            "attribute": np.where(is_known, truncation, -1).astype(np.int32),
            "visibility": _VISIBILITIES[np.where((occlusion >= 0) & (occlusion <= 3), occlusion, 3)],
        }


def boxes_2d_of(index: DrivingIndex, labels: Labels) -> Box2dColumns | None:
    """Make the 2D boxes of the labels of all sequences; None without the camera that they are of."""
    cameras, boxes = index.cameras, index.boxes
    if cameras is None or boxes is None or LABELLED_CAMERA not in index.camera_names:
        return None
    camera, num_cameras = index.camera_names.index(LABELLED_CAMERA), len(index.camera_names)
    frame, is_object, box = labels.values[:, 0].astype(np.int64), labels.is_object, labels.values[:, 5:9]
    in_camera = poses.moved(cameras.camera_from_base[frame[is_object], camera], boxes.center)
    projected = np.einsum("nij,nj->ni", cameras.intrinsics[frame[is_object], camera], in_camera)
    projection, depth = (box[:, :2] + box[:, 2:]) / 2, np.full(len(box), -1.0)
    depth[is_object] = in_camera[:, 2]
    is_front = in_camera[:, 2] > 0
    projection[np.flatnonzero(is_object)[is_front]] = projected[is_front, :2] / projected[is_front, 2:]
    return Box2dColumns(
        first=first_column(np.bincount(frame * num_cameras + camera, minlength=index.num_frames * num_cameras)),
        box=box,
        center=projection,
        depth=depth,
        category=numbers_column(labels.category.tolist(), index.categories),
        box_row=np.where(is_object, np.cumsum(is_object) - 1, -1),
    )


_TRACKING_CAMERAS = ("image_02", "image_03")
_PERIOD_S = 0.1
_EARTH_RADIUS_M = 6378137.0
_OF_IMU = ("Tr_imu_velo", "Tr_imu_to_velo")


class KittiTrackingProvider(DrivingProvider):
    """KITTI tracking: cameras, lidar, the poses of the vehicle, and boxes with tracks.

    The files, relative to the root (the folder ``training``); cameras and points may be missing::

        calib/0000.txt, label_02/0000.txt, oxts/0000.txt
        image_02/0000/000000.png, image_03/0000/..., velodyne/0000/000000.bin

    Samples are as `DrivingProvider` has them. A sequence has as many frames as ``oxts`` has lines; without poses,
    it ends at the last file of the requested sensors. Each frame needs the requested images; one without a
    file of points, as some of the published ones, has (0, K) points.
    KITTI has no times here: frames are 0.1 s apart. The lidar is the base; the vehicle is the IMU, and the world
    has x to the east, y to the north, z up, with the IMU at the start of the sequence as its origin.

    - ``location`` of KITTI is the center of the lower face, in coordinates of the rectified camera 0, and
      ``rotation_y`` turns about its y, which points down: here, ``centers`` are in the middle of the box, ``yaws``
      are about z. Velocities are not known.
    - ``visibilities``: 4, 3, 1 for KITTI's fully visible, partly and largely occluded; 0 for unknown.
    - ``attributes``: whether the image cuts the object off (``truncated`` of KITTI), see `attribute_names`.
    - ``boxes_2d`` are of ``image_02``; areas that are ``DontCare`` are in ``boxes_2d`` only, with category and row
      -1, depth -1 and the middle of the box as ``centers``. `DrivingFields.classes` leaves them out.

    Example::

        root, classes = "/data/kitti/tracking/training", ["Car", "Pedestrian"]
        provider = KittiTrackingProvider(root, classes=classes, lidar=True)
    """

    @with_provider_settings
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        with_poses: bool = True,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Find the sequences and open their index, which is made on first use.

        Args:
            root: The folder with ``calib``.
            with_poses: Whether there are poses of the vehicle (``oxts``). If not, the vehicle stays at the origin,
                and future places and earlier points are wrong.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no sequences, or a file cannot be read or is damaged.
            SettingError: The data set lacks a requested part.
        """
        top = Path(file_path(root, "root")).absolute()
        with_poses = flag(with_poses, "with_poses")
        names = sorted(path.stem for path in (top / "calib").glob("[!.]*.txt"))
        if not names:
            raise FileError(f"There is no sequence in {str(top)!r}: no file in its folder 'calib'.")
        names, sweeps = requested_scenes(names, settings), most_sweeps(settings)
        sources = []
        for name in names:
            sources += [top / "calib" / f"{name}.txt"] + [top / "oxts" / f"{name}.txt"] * with_poses
            sources += [top / part / name for part in (*_TRACKING_CAMERAS, _POINTS)]
            sources.append(top / "label_02" / f"{name}.txt")
        key: dict[str, Any] = {"reader": "kitti tracking 3", "most_sweeps": sweeps, "with_poses": with_poses}
        if not with_poses:  # then the requested sensors decide how many frames there are
            sensors = (*(f"cameras/{camera}" for camera in _TRACKING_CAMERAS), "lidar")
            key["sensors"] = [*filter(RequestedParts(settings).wants, sensors)]
        index = index_of_parts(
            lambda parts: tracking_index(top, names, with_poses, sweeps, parts), sources, key, settings
        )
        super().__init__(index, top, **settings)
        self._refuse_missing_files(repr(str(top)))


def tracking_index(
    root: Path, names: Sequence[str], with_poses: bool, most_sweeps: int, parts: RequestedParts
) -> DrivingIndex:
    """Make the index of sequences."""
    cameras = [camera for camera in _TRACKING_CAMERAS if any((root / camera / name).is_dir() for name in names)]
    scenes: list[Scene] = []
    labels = [Labels(np.zeros(0, np.str_), np.zeros((0, 16)))]
    for name in names:
        calibration = Calibration.read(root / "calib" / f"{name}.txt")
        rectified_from_lidar = poses.joined(
            calibration.rotation("R_rect", "R0_rect", "R_rect_00"),
            calibration.pose("Tr_velo_cam", "Tr_velo_to_cam"),
        )
        files = SequenceFiles(root, name, f"{{}}/{name}", cameras, parts)
        path = root / "label_02" / f"{name}.txt"
        world_from_ego, lidar_from_ego = poses.identity(files.last + 1), np.eye(3, 4)
        if with_poses:
            oxts = root / "oxts" / f"{name}.txt"
            rows = read_rows(oxts, 30, "a record of the GPS and the IMU")
            files.require_rows(oxts, len(rows))
            world_from_ego = pose_of_oxts(rows)
        else:
            files.require_rows(path, files.last + 1)
        if with_poses or calibration.lines.keys() & {*_OF_IMU}:  # else, it is of no use
            lidar_from_ego = calibration.pose(*_OF_IMU)
        count = len(world_from_ego)
        scene = files.scene(
            calibration,
            time=np.arange(count, dtype=np.float64) * _PERIOD_S,
            world_from_ego=world_from_ego,
            ego_from_base=poses.inverse(lidar_from_ego),
            rectified_from_base=rectified_from_lidar,
        )
        own = parts.read("boxes", partial(Labels.read, path, count)) if path.exists() else None
        if own is not None:
            scene = attrs.evolve(scene, boxes=own.boxes(poses.inverse(rectified_from_lidar)))
            own.values[:, 0] += sum(len(before.time) for before in scenes)
            labels.append(own)
        scenes.append(scene)
    whole = Labels(*(np.concatenate([getattr(own, name) for own in labels]) for name in ("category", "values")))
    others = {*whole.category.tolist()} - {*CATEGORIES, DONT_CARE}
    has_labels = any(scene.boxes for scene in scenes)
    index = index_of_scenes(
        scenes,
        base="lidar",
        camera_names=cameras,
        most_sweeps=most_sweeps,
        categories=[*CATEGORIES, *sorted(others)] * has_labels,
        attributes=ATTRIBUTES * has_labels,
        point_columns=POINT_COLUMNS,
        origin={"format": "KITTI tracking", "root": str(root)},
    )
    return attrs.evolve(index, boxes_2d=boxes_2d_of(index, whole))


def pose_of_oxts(rows: Float64) -> Float64:
    """Poses of records ``(n, 30)`` of latitude, longitude, altitude, roll, pitch, yaw, ..., as KITTI's devkit
    does.

    Mercator's projection, scaled to the first latitude; the origin is the first place.
    """
    latitude, longitude = np.radians(rows[:, 0]), np.radians(rows[:, 1])
    scale = np.cos(latitude[0]) * _EARTH_RADIUS_M
    east, north = scale * longitude, scale * np.log(np.tan(np.pi / 4 + latitude / 2))
    place = np.stack([east, north, rows[:, 2]], axis=-1)
    (roll_cos, pitch_cos, _), (roll_sin, pitch_sin, _) = np.cos(rows[:, 3:6].T / 2), np.sin(rows[:, 3:6].T / 2)
    zero = np.zeros(len(rows))
    roll = np.stack([roll_cos, roll_sin, zero, zero], axis=-1)
    pitch = np.stack([pitch_cos, zero, pitch_sin, zero], axis=-1)
    turn = poses.product_of_quaternions(pitch, roll)
    turn = poses.product_of_quaternions(poses.quaternion_of_yaw(rows[:, 5]), turn)
    return poses.pose_of_quaternion(turn, place - place[0])
