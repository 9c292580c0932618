# SPDX-License-Identifier: Apache-2.0
"""Small drives in the layouts of published data sets, for tests, examples and first trials."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import choice, listed
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import needed_package

from ..datasets.driving import poses
from ..datasets.driving.array_types import Array, Float64
from ..datasets.driving.driving_index import DrivingIndex
from ..datasets.driving.frame_records import CameraImage, DrivingFrame, ObjectBox, index_of_frames
from ..datasets.driving.scene_parts import box2d_columns
from . import layouts
from .written_files import Files, arrow_file, picture, video, write_files


def made_drive(
    folder: str | os.PathLike[str],
    layout: str = "index",
    drive: DrivingIndex | None = None,
    files: Mapping[str, Any] | None = None,
) -> Path:
    """Write a small drive: a vehicle on a straight road, a car ahead of it. It takes less than a second.

    - ``"index"``: six frames in two scenes, two cameras, points, boxes, 2D boxes, CAN bus; an index in ``index``
    - ``"folders"``: two drives in a common layout: poses in CSV, boxes and calibration in JSON, a folder of JPEGs
      for each of three cameras, in two sizes
    - ``"nuscenes"``: tables ``v1.0-mini``; two scenes of four keyframes and records between, two cameras, a lidar
    - ``"infos"``: ``infos.pkl`` of four frames among 24 moving objects, boxes as ``"w,l,h,-yaw-pi/2"``
    - ``"navsim"``: a log of 16 frames of split ``trainval``, three of eight cameras, and ``navtrain.yaml``
    - ``"argoverse"``: a log of two frames, ``train/log-1``
    - ``"kitti"``: two frames of tracking, ``training``
    - ``"py123d"``: a log of three frames, ``logs/made_train/drive``
    - ``"physical_ai"``: two clips of two cameras, videos in ZIP files
    - ``"lerobot"``: three episodes in two videos

    Args:
        folder: Where to write; it is made.
        layout: Which of these to write.
        drive: Index to write in place of the small drive, with cameras and boxes, e.g. of `index_of_frames`; for
            ``"navsim"`` also with a lidar. Only the first five layouts take one.
        files: Contents of the files that ``drive`` names, by name: images as bytes, points as arrays.

    Returns:
        ``folder``.

    Raises:
        SettingError: There is no such layout, ``drive`` does not fit it, or a package that writes it is missing.
    """
    plain = _PLAIN[choice(layout, "layout", tuple(_PLAIN))]
    if drive is None:
        return write_files(Path(folder), plain())
    if layout not in _OF_INDEX:
        raise SettingError(
            f"`drive` must be None with the layout {layout!r}; it may be given with {listed(_OF_INDEX)}."
        )
    return write_files(Path(folder), _OF_INDEX[layout](layouts.Content(drive, files or {})))


_OF_INDEX: Final[dict[str, Callable[[layouts.Content], Files]]] = {
    "index": layouts.index_files,
    "folders": layouts.folder_files,
    "nuscenes": layouts.nuscenes_files,
    "infos": layouts.infos_files,
    "navsim": layouts.navsim_files,
}

# --- the small drives ---------------------------------------------------------------------------------------

_LEVEL = [1.0, 0.0, 0.0, 0.0]  # quaternions, w first
_AHEAD = [0.5, -0.5, 0.5, -0.5]  # of a camera that looks along x
_LOOKING_AHEAD = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


@attrs.frozen
class _Camera:
    """Pinhole camera that is level; ``yaw`` is the angle of its axis."""

    hw: tuple[int, int]
    focal_px: float
    center_px: tuple[float, float]
    place: tuple[float, float, float]
    yaw: float = 0.0

    def image(self, file: str) -> CameraImage:
        """Record of an image."""
        (x, y), focal = self.center_px, self.focal_px
        turn = poses.rotation_of_quaternion(poses.quaternion_of_yaw(self.yaw))
        return CameraImage(
            file=file,
            intrinsics=np.array([[focal, 0, x], [0, focal, y], [0, 0, 1]]),
            ego_from_camera=poses.pose(turn @ _LOOKING_AHEAD, self.place),
        )


def _car(center: Sequence[float], size: Sequence[float], speed: float | None = None, **others: Any) -> ObjectBox:
    velocity = None if speed is None else [speed, 0, 0]
    return ObjectBox(center=center, size=size, velocity=velocity, **{"yaw": 0.0, "category": "car", **others})


def _straight_road(
    cameras: Mapping[str, _Camera],
    scenes: Mapping[str, tuple[float, Sequence[str]]],
    objects: Callable[[float], list[ObjectBox]],
    *,
    period_s: float = 0.5,
    speed: float = 10.0,
    images: str = "{camera}/{number}.jpg",
    ego_from_lidar: Float64 | None = None,
    points: tuple[str, Array] | None = None,
    with_images: Sequence[str] = (),
) -> layouts.Content:
    """Drive of a vehicle that goes ahead.

    Args:
        cameras: By name.
        scenes: Start of each, seconds, and names of its frames.
        objects: Boxes in coordinates of the vehicle, so many seconds after the start of a scene.
        period_s: Time between frames.
        speed: Speed of the vehicle, m/s.
        images: Pattern of the names of images.
        ego_from_lidar: Pose of the lidar on the vehicle.
        points: Pattern of the names of lidar records, and their points.
        with_images: Cameras whose images are written; empty: all.
    """
    records: list[DrivingFrame] = []
    for scene, (start, tokens) in scenes.items():
        for place, token in enumerate(tokens):
            elapsed = round(place * period_s, 6)
            names = {name: images.format(camera=name, number=len(records), token=token) for name in cameras}
            records.append(
                DrivingFrame(
                    scene=scene,
                    token=token,
                    time=start + elapsed,
                    world_from_ego=poses.pose(np.eye(3), [speed * elapsed, 0, 0]),
                    cameras={name: cameras[name].image(file) for name, file in names.items()},
                    boxes=objects(elapsed),
                )
            )
    drive = index_of_frames(records, ego_from_lidar=ego_from_lidar)
    files: Files = {}
    if points:
        drive = layouts.with_lidar(drive, points[0])
        files = dict.fromkeys(layouts.texts(layouts.Content(drive, {}).lidar.file), points[1])
    return _with_images(drive, files, {name: cameras[name].hw for name in cameras}, with_images or [*cameras])


def _with_images(
    drive: DrivingIndex, files: Files, sizes: Mapping[str, Sequence[int]], with_images: Sequence[str]
) -> layouts.Content:
    """Add sizes of images, 2D boxes of what they show, and images of that."""
    content = layouts.Content(drive, files)
    wh = np.array([hw[::-1] for hw in sizes.values()])
    seen = box2d_columns(content.boxes, content.cameras, np.tile(wh, (drive.num_frames, 1, 1)))
    for image, file in enumerate(layouts.texts(content.cameras.file)):
        frame, camera = divmod(image, len(sizes))
        if drive.camera_names[camera] in with_images:
            boxes = seen.box[slice(*seen.first[image : image + 2])]
            files[file] = picture([*sizes.values()][camera], frame, boxes[0] if len(boxes) else None)
    cameras = attrs.evolve(content.cameras, image_wh=np.tile(wh, (len(content.scenes), 1, 1)))
    return layouts.Content(attrs.evolve(drive, cameras=cameras, boxes_2d=seen), files)


def _index() -> Files:
    hw, center = (90, 160), (80, 45)
    content = _straight_road(
        {"FRONT": _Camera(hw, 100, center, (0, 0, 0)), "REAR": _Camera(hw, 100, center, (0, 0, 0), np.pi)},
        {"town": (0.0, [f"frame {number}" for number in range(4)]), "road": (2.0, ["frame 4", "frame 5"])},
        lambda elapsed: [_car([20, 1, 0], [4.5, 2, 1.5], 10)],
        ego_from_lidar=np.eye(3, 4),
        points=("LIDAR/{number}.bin", np.full((10, 5), 8)),
    )
    frames, count = content.frames, content.drive.num_frames
    frames = attrs.evolve(frames, can_bus=np.zeros((count, 18)), ego_status=np.zeros((count, 10)))
    return layouts.index_files(layouts.Content(attrs.evolve(content.drive, frames=frames), content.files))


def _folders() -> Files:
    cameras = {
        name: _Camera(hw, 0.75 * hw[1], (hw[1] / 2, hw[0] / 2), (1.5, float(np.sign(yaw)) / 2, 1.6), yaw)
        for name, hw, yaw in (("front", (90, 160), 0.0), ("left", (60, 100), 0.9), ("right", (60, 100), -0.9))
    }
    content = _straight_road(
        cameras,
        {name: (100.0, [f"{name} {k}" for k in range(count)]) for name, count in (("monday", 6), ("tuesday", 4))},
        lambda elapsed: [
            _car([25 - 8 * elapsed, 2, 0.8], [4.5, 1.9, 1.6], track=7, yaw=0.1),
            _car([12 + 8 * elapsed, -3, 0.8], [4.3, 1.8, 1.5], track=9),
        ],
        speed=8,
        images="{camera}/{token}.jpg",
    )
    return layouts.folder_files(content)


def _nuscenes() -> Files:
    lidar = poses.pose(np.eye(3), [0, 0, 1.6])
    tokens = ["k{}0", "{}1", "{}2", "k{}1", "{}4", "{}5", "k{}2", "{}7", "{}8", "k{}3"]
    content = _straight_road(
        {
            name: _Camera((90, 160), 120, (80, 45), (0, 0, 1.6), yaw)
            for name, yaw in (("CAM_FRONT", 0.0), ("CAM_BACK", np.pi))
        },
        {  # of the split mini_train, and of mini_val; two keyframes a second
            "scene-0061": (0.0, [token.format("A") for token in tokens]),
            "scene-0103": (100.0, [token.format("B") for token in tokens]),
        },
        lambda elapsed: [_car([12, 1, 1], [4, 2, 1.5], category="vehicle.car", track="car")],
        period_s=0.5 / 3,
        ego_from_lidar=lidar,
        images="{camera}/{number}.jpg",
        points=("LIDAR_TOP/{number}.pcd.bin", np.ones((4, 5))),
    )
    count = len(content.boxes.center)
    boxes = attrs.evolve(
        content.boxes,
        attribute=np.zeros(count, np.int32),
        visibility=np.full(count, 4, np.int32),
        num_lidar_points=np.full(count, 9, np.int32),
    )
    drive = attrs.evolve(content.drive, boxes=boxes, attributes=["vehicle.moving"])
    return layouts.nuscenes_files(layouts.Content(drive, content.files), frames_per_keyframe=3)


def _infos() -> Files:
    rng, count, speed = np.random.default_rng(7), 24, 5.0
    places, yaws = rng.uniform(-20, 20, (count, 2)), rng.uniform(-3, 3, count)
    velocities = 6 * np.column_stack([np.cos(yaws), np.sin(yaws)])
    kinds = {"car": [4.6, 1.9, 1.7], "truck": [7.1, 2.5, 2.9]}

    def objects(elapsed: float) -> list[ObjectBox]:
        centers = places + (velocities - [speed, 0]) * elapsed
        return [
            ObjectBox(
                center=[*centers[number], kinds[kind][2] / 2],
                size=kinds[kind],
                yaw=yaws[number],
                category=kind,
                track=number,
                velocity=velocities[number],
            )
            for number, kind in enumerate(["truck", "car"] * (count // 2))
        ]

    content = _straight_road(
        {"CAM_FRONT": _Camera((90, 160), 126.6, (81.6, 49.1), (1.7, 0, 1.5))},
        {"scene-0061": (1_532_402_927.0, [f"frame-{number}" for number in range(4)])},
        objects,
        speed=speed,
        images="samples/{camera}/{number}.jpg",
        ego_from_lidar=poses.pose_of_quaternion(poses.quaternion_of_yaw(-np.pi / 2), [0.9, 0, 1.84]),
    )
    return layouts.infos_files(content)


def _navsim() -> Files:
    points = np.array([[5.0, 1.0, 1.5, 9, 0, 0], [8.0, -2.0, 0.0, 7, 1, 0]])
    log, names = "2021.05.12.22.00.38_veh-35_01008_01518", ("F0", "L0", "L1", "L2", "R0", "R1", "R2", "B0")
    content = _straight_road(
        {f"CAM_{name}": _Camera((1080, 1920), 1545, (960, 560), (1, 0, 1.5)) for name in names},
        {log: (1_620_000_000.0, [f"{number:016x}" for number in range(16)])},
        lambda elapsed: [_car([12, 3, 0.8], [4.5, 1.9, 1.6], 4, category="vehicle", track="a")],
        speed=4,
        images=f"{log}/{{camera}}/{{token}}.jpg",
        ego_from_lidar=np.eye(3, 4),
        points=(f"{log}/MergedPointCloud/{{token}}.pcd", points),
        with_images=["CAM_F0", "CAM_L0", "CAM_R0"],
    )
    frames = attrs.evolve(content.frames, motion=np.tile([4.0, 0, 0, 0], (16, 1)))
    drive = attrs.evolve(content.drive, frames=frames)
    settings = {"num_history_frames": 4, "num_future_frames": 10, "frame_interval": 1, "has_route": "true"}
    files = layouts.navsim_files(layouts.Content(drive, content.files))
    return {**files, "navtrain.yaml": "".join(f"{name}: {value}\n" for name, value in settings.items())}


def _argoverse() -> Files:
    start, ms, camera = 315_966_265_000_000_000, 1_000_000, ["ring_front_center"]
    level, ahead = (dict(zip(("qw", "qx", "qy", "qz"), turn, strict=True)) for turn in (_LEVEL, _AHEAD))
    times, size = start + np.arange(21) * 10 * ms, {"length_m": 4.5, "width_m": 1.9, "height_m": 1.6}
    car = {"timestamp_ns": [start], "track_uuid": "a-car", "category": "REGULAR_VEHICLE", "num_interior_pts": 30}
    lens = {"fx_px": 80.0, "fy_px": 80.0, "cx_px": 32.0, "cy_px": 24.0}
    tables: Files = {
        "city_SE3_egovehicle": {"timestamp_ns": times, **_place(np.arange(21) * 0.1, 0.0, 0.0), **level},
        "calibration/egovehicle_SE3_sensor": {"sensor_name": camera, **_place(1.6, 0.0, 1.4), **ahead},
        "calibration/intrinsics": {"sensor_name": camera, **lens},
        "annotations": {**car, **size, **_place(12.0, 1.0, 0.8), **level},
    }
    files: Files = {f"{name}.feather": table for name, table in tables.items()}
    for number in range(2):
        time = start + number * 100 * ms
        rest = {"intensity": 1, "laser_number": 1, "offset_ns": 1}
        files[f"sensors/lidar/{time}.feather"] = {"x": [1.0], "y": 2.0, "z": 3.0, **rest}
        files[f"sensors/cameras/{camera[0]}/{time + 20 * ms}.jpg"] = picture((48, 64), number)
    return {f"train/log-1/{name}": content for name, content in files.items()}


def _place(x: Any, y: float, z: float) -> Files:
    return {"tx_m": x, "ty_m": y, "tz_m": z}


def _kitti() -> Files:
    texts = {
        "calib": "P2: 70 0 32 4.2 0 70 24 0 0 0 1 0\nR_rect 1 0 0 0 1 0 0 0 1\n"
        "Tr_velo_cam 0 -1 0 0 0 0 -1 -0.08 1 0 0 -0.27\nTr_imu_velo 1 0 0 -0.8 0 1 0 0.3 0 0 1 -0.8\n",
        "label_02": "0 5 Car 0 0 -1.5 20 20 40 40 1.5 1.7 4.2 2 1.6 10 -1.57\n"
        "0 -1 DontCare -1 -1 -10 1 2 9 9 -1 -1 -1 -1000 -1000 -1000 -10\n",
        "oxts": "".join(f"49 8.0000{number} 110" + " 0" * 27 + "\n" for number in range(2)),
    }
    images = {f"image_02/0000/{number:06d}.png": picture((48, 64), number, suffix=".png") for number in range(2)}
    files = {f"{name}/0000.txt": text for name, text in texts.items()} | images
    return {f"training/{name}": content for name, content in files.items()}


def _py123d() -> Files:
    arrow = needed_package("pyarrow")
    whole, pose = arrow.int64(), arrow.list_(arrow.float64(), 7)
    times, numbers = [1_000_000 + 100_000 * number for number in range(3)], ([0, 1, 2], whole)
    camera, ego = "camera.pcam_f0", "ego_state_se3"
    lens = {"camera_model": "pinhole", "intrinsics": [60.0, 60.0, 32.0, 24.0, 0.0]}  # fx, fy, cx, cy, skew
    tables: dict[str, tuple[dict[str, Any], dict[str, tuple[Sequence[Any], Any]]]] = {
        ego: (
            {},
            {
                f"{ego}.timestamp_us": (times, whole),
                f"{ego}.imu_se3": ([[10.0 * number, 0, 0, *_LEVEL] for number in range(3)], pose),
            },
        ),
        camera: (
            {**lens, "camera_to_imu_se3": [1.5, 0, 1.6, *_AHEAD]},
            {
                f"{camera}.timestamp_us": ([time + 20_000 for time in times], whole),
                f"{camera}.data": ([picture((48, 64), number) for number in range(3)], arrow.binary()),
                f"{camera}.camera_to_global_se3": ([None] * 3, pose),
            },
        ),
        "sync": (
            {"dataset": "made", "split": "made_train", "log_name": "drive"},
            {
                "sync.uuid": ([bytes([number] * 16) for number in range(3)], arrow.binary(16)),
                "sync.timestamp_us": (times, whole),
                ego: numbers,
                camera: numbers,
            },
        ),
    }
    return {f"logs/made_train/drive/{name}.arrow": arrow_file(*table) for name, table in tables.items()}


def _physical_ai() -> Files:
    delays_us = {"camera_cross_left_120fov": 0, "camera_front_wide_120fov": 30_000}
    seconds, film = np.arange(0, 4.5, 0.01), video(range(40), g="5")
    place = np.stack([10 * seconds, seconds**2, 0 * seconds], axis=-1)
    turn = poses.quaternion_of_yaw(np.arctan2(2 * seconds, 10))
    return layouts.physical_ai_files(
        {"clip-a": 0, "clip-b": 0},
        dict.fromkeys(delays_us, poses.pose(_LOOKING_AHEAD, [1.7, 0.0, 1.4])),
        video_of=lambda clip, camera: film,
        times_of=lambda camera: np.arange(40) * 100_000 + delays_us[camera],
        motion=(np.rint(seconds * 1e6).astype(int), poses.pose_of_quaternion(turn, place)),
        lens=[96, 64, 48.0, 32.0, 0.0, 0.02, 0.0, 0.0, 0.0, 0.0, 50.0, 0.0, 0.0, 0.0],
        vehicle=[4.8, 2.0, 1.5, 1.4, 2.8, 1.6],
        event_t0s=[[100_000, 2_000_000, 2_500_000], [1_900_000]],
        end_timestamp=[4_000_000] * 2,
    )


def _lerobot() -> Files:
    arrow, feature, lengths = needed_package("pyarrow"), "observation.images.front", [20, 10, 15]
    total, path = sum(lengths), "chunk-{chunk_index:03d}/file-{file_index:03d}"
    frame = np.concatenate([np.arange(length) for length in lengths])
    action = np.stack([frame / 10, np.zeros(total)], axis=1).astype(np.float32)
    start = np.array([0.0, 2.0, 0.0])
    statistics = {what: getattr(action, what)(axis=0).tolist() for what in ("mean", "std", "min", "max")}
    whole, first = {"dtype": "int64", "shape": [1]}, "chunk-000/file-000.parquet"
    return {
        f"videos/{feature}/chunk-000/file-000.mp4": video(range(30), g="2", bf="0"),
        f"videos/{feature}/chunk-000/file-001.mp4": video(range(30, 45), g="2", bf="0"),
        f"data/{first}": {
            "action": arrow.array(action.tolist(), arrow.list_(arrow.float32(), 2)),
            "timestamp": (frame / 10).astype(np.float32),
            "frame_index": frame,
            "episode_index": np.repeat([0, 1, 2], lengths),
            "index": np.arange(total),
            "task_index": 0,
        },
        f"meta/episodes/{first}": {
            "episode_index": [0, 1, 2],
            "length": lengths,
            "dataset_from_index": np.cumsum(lengths) - lengths,
            **{f"{what}_index": 0 for what in ("data/chunk", "data/file", f"videos/{feature}/chunk")},
            f"videos/{feature}/file_index": [0, 0, 1],
            f"videos/{feature}/from_timestamp": start,
            f"videos/{feature}/to_timestamp": start + np.array(lengths) / 10,
        },
        "meta/tasks.parquet": {"task_index": [0], "task": ["follow the road"]},
        "meta/info.json": {
            "codebase_version": "v3.0",
            "fps": 10,
            "features": {
                feature: {"dtype": "video", "shape": [64, 96, 3]},
                "action": {"dtype": "float32", "shape": [2]},
                "timestamp": {"dtype": "float32", "shape": [1]},
                **dict.fromkeys(["frame_index", "episode_index", "index", "task_index"], whole),
            },
            "data_path": f"data/{path}.parquet",
            "video_path": f"videos/{{video_key}}/{path}.mp4",
        },
        "meta/stats.json": {"action": {**statistics, "count": [total]}},
    }


_PLAIN: Final[dict[str, Callable[[], Files]]] = {
    "index": _index,
    "folders": _folders,
    "nuscenes": _nuscenes,
    "infos": _infos,
    "navsim": _navsim,
    "argoverse": _argoverse,
    "kitti": _kitti,
    "py123d": _py123d,
    "physical_ai": _physical_ai,
    "lerobot": _lerobot,
}
