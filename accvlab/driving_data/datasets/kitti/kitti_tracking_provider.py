# SPDX-License-Identifier: Apache-2.0
"""KITTI tracking: labels, the index of its sequences, and the provider.

Objects are in coordinates of the rectified camera 0, 2D boxes in images of camera 2.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_path, flag
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving import poses
from ..driving.driving_fields import DrivingFieldSettings, most_sweeps, with_driving_fields
from ..driving.driving_index import Box2dColumns, BoxColumns, DrivingIndex, cached_index, first_column
from ..driving.driving_provider import DrivingProvider
from .kitti_sequences import Calibration, KittiSequence, frame_numbers, make_index, read_rows, read_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

Float64Array = npt.NDArray[np.float64]

DONT_CARE = "DontCare"
LABELLED_CAMERA = "image_02"
CATEGORIES = ("Car", "Van", "Truck", "Pedestrian", "Person", "Cyclist", "Tram", "Misc")
# By KITTI's number: whether the edge of the image cuts an object off.
ATTRIBUTES = ("not_truncated", "partly_truncated", "largely_truncated")
# By KITTI's number: fully visible, partly occluded, largely occluded, unknown.
_VISIBILITIES = (4, 3, 1, 0)
# A box has x along the length, y to the left, z up; at rotation_y 0, x is the x of the camera.
_CAMERA_FROM_BOX = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])


@attrs.frozen
class Label:
    """One line.

    Attributes:
        frame: Place of the frame in its sequence.
        track: Number of the object; -1 for none.
        category: Name.
        truncation: 0 to 2.
        occlusion: 0 to 3.
        box: ``x1, y1, x2, y2``, pixels.
        size: Length, width, height.
        location: Center of the lower face in coordinates of the rectified camera 0.
        rotation_y: Angle about the y axis of that camera, which points down.
    """

    frame: int
    track: int
    category: str
    truncation: int
    occlusion: int
    box: tuple[float, ...]
    size: tuple[float, ...]
    location: tuple[float, ...]
    rotation_y: float


def read_labels(path: Path, numbers: Sequence[int]) -> list[Label]:
    """Read the labels of a sequence with these numbers of frames; those of a frame stand together.

    Raises:
        FileError: A line is not as it should be, or is of a frame that is not there.
    """
    place_of = {number: place for place, number in enumerate(numbers)}
    labels = []
    for line_number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        where = f"Line {line_number} of {str(path)!r}"
        try:
            if len(words) not in (17, 18):
                raise ValueError(f"there must be 17 values, got {len(words)}")
            values = [float(word) for word in words[3:17]]
            if not np.isfinite(values).all():
                raise ValueError("values must be finite")
            label = Label(
                frame=int(words[0]),
                track=int(words[1]),
                category=words[2],
                truncation=int(values[0]),
                occlusion=int(values[1]),
                box=tuple(values[3:7]),
                size=(values[9], values[8], values[7]),
                location=tuple(values[10:13]),
                rotation_y=values[13],
            )
            if not -1 <= label.track < 2**31:
                raise ValueError(f"the track must be a number from -1 to 2**31 - 1, got {words[1]}")
            if label.category != DONT_CARE and min(label.size) <= 0:
                raise ValueError(f"height, width and length must be above 0, got {words[10:13]}")
        except ValueError as error:
            raise FileError(f"{where} is no label: {error}. It is {line[:120]!r}.") from None
        if label.frame not in place_of:
            raise FileError(
                f"{where} is of frame {label.frame}, which the sequence does not have: its frames are "
                f"{numbers[0]} to {numbers[-1]}."
            )
        labels.append(attrs.evolve(label, frame=place_of[label.frame]))
    return sorted(labels, key=lambda label: label.frame)


def categories_of(labels: Sequence[Sequence[Label]]) -> list[str]:
    """Names of the categories: those of KITTI, and others that occur."""
    found = {label.category for of_sequence in labels for label in of_sequence}
    return [*CATEGORIES, *sorted(found - {*CATEGORIES, DONT_CARE})]


def box_columns(
    labels: Sequence[Sequence[Label]],
    sequences: Sequence[KittiSequence],
    rectified_from_base: Sequence[Float64Array],
    categories: Sequence[str],
    cameras: Sequence[str],
) -> tuple[BoxColumns, Box2dColumns | None]:
    """Make the columns of the labels of all sequences."""
    number_of = {name: number for number, name in enumerate(categories)}
    objects: list[Label] = []
    centers, rotations = [], []
    counts: list[int] = []
    boxes, projections, depths, classes, box_rows = [], [], [], [], []
    counts_2d: list[int] = []
    for of_sequence, sequence, pose in zip(labels, sequences, rectified_from_base, strict=True):
        base_from_rectified = poses.inverse(pose)
        of_frames: list[list[Label]] = [[] for _ in sequence.numbers]
        for label in of_sequence:
            of_frames[label.frame].append(label)
        for of_frame in of_frames:
            counts.append(sum(label.category != DONT_CARE for label in of_frame))
            for label in of_frame:
                row, center = -1, np.zeros(3)
                if label.category != DONT_CARE:
                    row = len(objects)
                    objects.append(label)
                    center = poses.moved(base_from_rectified, np.array(label.location) - [0, label.size[2] / 2, 0])
                    centers.append(center)
                    rotations.append(base_from_rectified[:, :3] @ _about_y(label.rotation_y) @ _CAMERA_FROM_BOX)
                if LABELLED_CAMERA in cameras:
                    x1, y1, x2, y2 = label.box
                    projection, depth = np.array([(x1 + x2) / 2, (y1 + y2) / 2]), -1.0
                    if row >= 0:
                        in_camera = poses.moved(sequence.camera_from_base[LABELLED_CAMERA], center)
                        depth = float(in_camera[2])
                        if depth > 0:
                            projected = sequence.intrinsics[LABELLED_CAMERA] @ in_camera
                            projection = projected[:2] / projected[2]
                    boxes.append(label.box)
                    projections.append(projection)
                    depths.append(depth)
                    classes.append(number_of.get(label.category, -1))
                    box_rows.append(row)
            counts_2d += [len(of_frame) if camera == LABELLED_CAMERA else 0 for camera in cameras]
    columns = BoxColumns(
        first=first_column(counts),
        center=np.array(centers, np.float64).reshape(-1, 3),
        size=np.array([label.size for label in objects], np.float64).reshape(-1, 3),
        rotation=poses.quaternion_of_rotation(np.array(rotations, np.float64).reshape(-1, 3, 3)),
        velocity=np.full((len(objects), 3), np.nan),
        category=np.array([number_of[label.category] for label in objects], np.int32),
        instance=np.array([label.track for label in objects], np.int64),
        attribute=np.array(
            [label.truncation if 0 <= label.truncation < len(ATTRIBUTES) else -1 for label in objects], np.int32
        ),
        visibility=np.array(
            [_VISIBILITIES[label.occlusion] if 0 <= label.occlusion <= 3 else 0 for label in objects], np.int32
        ),
    )
    if LABELLED_CAMERA not in cameras:
        return columns, None
    return columns, Box2dColumns(
        first=first_column(counts_2d),
        box=np.array(boxes, np.float64).reshape(-1, 4),
        center=np.array(projections, np.float64).reshape(-1, 2),
        depth=np.array(depths, np.float64),
        category=np.array(classes, np.int32),
        box_row=np.array(box_rows, np.int64),
    )


def _about_y(angle: float) -> Float64Array:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]])


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
