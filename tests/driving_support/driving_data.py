"""A small driving data set with all columns, in a folder of real files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from support.arrays import encoded_image, gradient

from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.driving_index import (
    Box2dColumns,
    BoxColumns,
    CameraColumns,
    DrivingIndex,
    FrameColumns,
    LidarColumns,
    LineColumns,
    first_column,
    names_column,
)

CAMERAS = ("FRONT", "LEFT")
HW = (30, 44)  # of the images of `write_drive`
PINHOLE = np.array([[1, 1, 1], [0, 1, 1], [0, 0, 0]])
LAST = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 1]])
SCENES = {"scene-a": 3, "scene-b": 2}


def random_poses(rng: np.random.Generator, *shape: int, scale: float = 10.0) -> np.ndarray:
    quaternions = rng.normal(size=(*shape, 4))
    return poses.pose_of_quaternion(quaternions, rng.normal(size=(*shape, 3)) * scale)


def write_driving_data(root: Path, seed: int = 0, base: str = "lidar") -> DrivingIndex:
    """Write images (PPM) and points, and make the index of it: five frames in two scenes."""
    rng = np.random.default_rng(seed)
    num_frames, num_cameras = sum(SCENES.values()), len(CAMERAS)
    files = [[f"images/{frame}_{camera}.ppm" for camera in CAMERAS] for frame in range(num_frames)]
    (root / "images").mkdir(parents=True)
    (root / "points").mkdir()
    for frame in range(num_frames):
        for camera, name in enumerate(files[frame]):
            (root / name).write_bytes(b"P6 6 4 255\n" + bytes([10 * frame + camera] * 72))
        rng.normal(size=(4 + frame, 5)).astype(np.float32).tofile(root / f"points/{frame}.bin")
    num_boxes = np.array([2, 3, 0, 1, 2])
    instances = np.array([7, 8, 8, 7, 9, 3, 3, 4])
    world_from_ego = random_poses(rng, num_frames, scale=100)
    ego_from_base = random_poses(rng, num_frames) if base == "lidar" else poses.identity(num_frames)
    boxes_per_image = np.array([1, 0, 2, 1, 0, 0, 1, 0, 0, 1])
    num_boxes_2d = int(boxes_per_image.sum())
    index = DrivingIndex(
        base=base,
        camera_names=CAMERAS,
        categories=("car", "pedestrian", "barrier"),
        attributes=("moving", "parked"),
        line_categories=("divider", "boundary"),
        point_columns=("x", "y", "z", "intensity", "ring"),
        origin={"made by": "a test"},
        frames=FrameColumns(
            scene=names_column(list(SCENES)),
            first_of_scene=first_column(list(SCENES.values())),
            token=names_column([f"frame-{number}" for number in range(num_frames)]),
            time=1.5e9 + np.arange(num_frames) * 0.5,
            world_from_ego=world_from_ego,
            ego_from_base=ego_from_base,
            can_bus=rng.normal(size=(num_frames, 18)),
            ego_status=rng.normal(size=(num_frames, 10)),
        ),
        cameras=CameraColumns(
            file=names_column([name for names in files for name in names]).reshape(num_frames, num_cameras),
            time=1.5e9 + np.arange(num_frames)[:, np.newaxis] * 0.5 + np.array([0.01, 0.02]),
            intrinsics=rng.uniform(1, 5, size=(num_frames, num_cameras, 3, 3)) * PINHOLE + LAST,
            camera_from_base=random_poses(rng, num_frames, num_cameras),
            ego_from_camera=random_poses(rng, num_frames, num_cameras),
        ),
        lidar=LidarColumns(
            file=names_column([f"points/{frame}.bin" for frame in range(num_frames)]),
            time=1.5e9 + np.arange(num_frames) * 0.5,
            world_from_lidar=poses.joined(world_from_ego, ego_from_base),
            of_frame=np.arange(num_frames),
            first_sweep=first_column([0, 1, 2, 0, 1]),
            sweep=np.array([0, 1, 0, 3]),
        ),
        boxes=BoxColumns(
            first=first_column(num_boxes),
            center=rng.normal(size=(8, 3)) * 20,
            size=rng.uniform(1, 5, size=(8, 3)),
            rotation=poses.quaternion_of_yaw(rng.uniform(-3, 3, size=8)),
            velocity=np.where(np.arange(8)[:, np.newaxis] == 4, np.nan, rng.normal(size=(8, 3))),
            category=np.array([0, 1, 1, 0, 2, -1, 0, 1], np.int32),
            instance=instances,
            attribute=np.array([0, -1, 1, 0, -1, -1, 1, 0], np.int32),
            visibility=np.array([1, 2, 3, 4, 0, 1, 2, 3], np.int32),
            num_lidar_points=np.array([5, 0, 1, 9, 0, 3, -1, 2], np.int32),
            num_radar_points=np.array([0, 0, 1, 2, 0, 0, -1, 0], np.int32),
        ),
        boxes_2d=Box2dColumns(
            first=first_column(boxes_per_image),
            box=np.sort(rng.uniform(0, 6, size=(num_boxes_2d, 2, 2)), axis=1).reshape(-1, 4),
            center=rng.uniform(0, 6, size=(num_boxes_2d, 2)),
            depth=rng.uniform(1, 50, size=num_boxes_2d),
            category=np.array([0, 1, 0, 2, 0, 1], np.int32),
            box_row=np.array([0, 2, 3, 4, -1, 7]),
        ),
        lines=LineColumns(
            first=first_column([1, 0, 2, 0, 0]),
            category=np.array([0, 1, 1], np.int32),
            first_point=first_column([3, 2, 4]),
            point=rng.normal(size=(9, 2)) * 10,
        ),
    )
    _put_boxes_ahead(index)
    index.cameras.ego_from_camera[:] = poses.joined(
        ego_from_base[:, np.newaxis], poses.inverse(index.cameras.camera_from_base)
    )
    return index


def write_drive(root: Path) -> DrivingIndex:
    """As `write_driving_data`, with JPEGs of `HW`, calibrated so that something is seen."""
    index = write_driving_data(root)
    for number, name in enumerate(index.cameras.file.ravel().tolist()):
        shade = 10 * (number // len(CAMERAS)) + number % len(CAMERAS)
        (root / name.decode()).write_bytes(bytes(encoded_image(gradient(*HW, shade), "JPEG")))
    index.cameras.intrinsics[:] = [[20.0, 0, 22], [0, 20, 15], [0, 0, 1]]
    return index


def _put_boxes_ahead(index: DrivingIndex) -> None:
    """Move cameras back until what they show is in front of them."""
    first = index.boxes_2d.first
    for image in range(len(first) - 1):
        rows = index.boxes_2d.box_row[first[image] : first[image + 1]]
        camera = index.cameras.camera_from_base[divmod(image, len(CAMERAS))]
        depths = poses.moved(camera, index.boxes.center[rows[rows >= 0]])[:, 2]
        camera[2, 3] += max(0, 1 - depths.min(initial=1))


def with_column(table: str, name: str, value: Any) -> Callable[[DrivingIndex], DrivingIndex]:
    """Change a column of an index; the value may be a function of what it was."""

    def changed(index: DrivingIndex) -> DrivingIndex:
        columns = getattr(index, table)
        new = value(np.array(getattr(columns, name))) if callable(value) else value
        return attrs.evolve(index, **{table: attrs.evolve(columns, **{name: new})})

    return changed


def index_of(provider: DrivingProvider) -> DrivingIndex:
    """The index that a provider reads, which has no public name."""
    return provider._index


def files_of(provider: DrivingProvider, sample_index: int) -> list[str]:
    """Names of the files of a sample, relative to the root."""
    return provider.describe_sample(sample_index).partition(", files ")[2].split(", ")
