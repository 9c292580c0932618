# SPDX-License-Identifier: Apache-2.0
"""Small drives in the layouts of published data sets, for tests, examples and first trials."""

from __future__ import annotations

import csv
import importlib
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from accvlab.dali_pipeline_framework.checks import choice
from accvlab.dali_pipeline_framework.extension import needed_package

from ..datasets.driving import driving_index as tables
from ..datasets.driving import poses
from ..datasets.driving.driving_index import DrivingIndex, first_column, names_column
from ..datasets.driving.scene_parts import project_boxes

_LEVEL = [1.0, 0.0, 0.0, 0.0]  # quaternions, w first
_AHEAD = [0.5, -0.5, 0.5, -0.5]  # of a camera that looks along x
_BACK = [0.5, -0.5, -0.5, 0.5]
_LOOKING_AHEAD = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


def made_drive(folder: str | os.PathLike[str], layout: str = "index") -> Path:
    """Write a small drive: a vehicle on a straight road, a car ahead of it. It takes less than a second.

    - ``"index"``: six frames in two scenes, two cameras, points, boxes, 2D boxes, CAN bus; an index in ``index``
    - ``"folders"``: two drives as many teams have them: poses in CSV, boxes and calibration in JSON, a folder of
      JPEGs for each of three cameras of two sizes
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

    Returns:
        ``folder``.

    Raises:
        SettingError: There is no such layout, or a package to write it is not installed.
    """
    root = Path(folder)
    write = _WRITERS[choice(layout, "layout", tuple(_WRITERS))]
    root.mkdir(parents=True, exist_ok=True)
    write(root)
    return root


# --- pictures and tables ------------------------------------------------------------------------------------


def _picture(path: Path, height: int, width: int, number: int = 0, box: Sequence[float] | None = None) -> None:
    """Write an image: sky, a road that grows lighter from frame to frame, and a car."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_encoded(height, width, number, box, path.suffix))


def _encoded(
    height: int, width: int, number: int = 0, box: Sequence[float] | None = None, suffix: str = ".jpg"
) -> bytes:
    cv2 = needed_package("cv2")
    image = np.full((height, width, 3), (230, 190, 150), np.uint8)
    image[height // 2 :] = 70 + 10 * (number % 16)
    if box is not None:
        x1, y1, x2, y2 = (int(value) for value in box)
        image[y1:y2, x1:x2] = 40, 40, 200
    return bytes(cv2.imencode(suffix, image)[1])


def _video(path: Path, rate: int, frames: Sequence[int], options: Mapping[str, str]) -> None:
    av = needed_package("av")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options=dict(options))
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for frame in frames:
            image = np.full((64, 96, 3), 5 * frame % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))


def _parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    arrow, parquet = needed_package("pyarrow"), importlib.import_module("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table(dict(columns)), path)
    return path


# --- layouts ------------------------------------------------------------------------------------------------


def _write_index(root: Path) -> None:
    lengths, names = [4, 2], ("FRONT", "REAR")
    count, shape = sum(lengths), (sum(lengths), len(names))
    time = np.arange(count, dtype=np.float64) * 0.5
    world_from_ego = poses.identity(count)
    world_from_ego[:, 0, 3] = 5 * np.arange(count)  # 5 m from frame to frame
    backwards = poses.pose_of_quaternion(poses.quaternion_of_yaw([0.0, np.pi]), np.zeros((2, 3)))
    ego_from_camera = poses.joined(backwards, poses.pose(_LOOKING_AHEAD, np.zeros(3)))
    files = [[f"{name}/{frame}.jpg" for name in names] for frame in range(count)]
    for frame, of_frame in enumerate(files):
        for camera, file in enumerate(of_frame):
            _picture(root / file, 90, 160, frame, None if camera else (65, 40, 85, 50))
        (root / "LIDAR").mkdir(exist_ok=True)
        np.full((10, 5), 8, np.float32).tofile(root / f"LIDAR/{frame}.bin")
    DrivingIndex(
        base="lidar",
        camera_names=names,
        categories=["car"],
        point_columns=["x", "y", "z", "intensity", "ring"],
        frames=tables.FrameColumns(
            scene=names_column(["town", "road"]),
            first_of_scene=first_column(lengths),
            token=names_column([f"frame {number}" for number in range(count)]),
            time=time,
            world_from_ego=world_from_ego,
            ego_from_base=poses.identity(count),
            can_bus=np.zeros((count, 18)),
            ego_status=np.zeros((count, 10)),
        ),
        cameras=tables.CameraColumns(
            file=names_column(np.ravel(files).tolist()).reshape(shape),
            time=np.repeat(time[:, np.newaxis], len(names), axis=1),
            intrinsics=np.tile([[100.0, 0, 80], [0, 100, 45], [0, 0, 1]], (*shape, 1, 1)),
            camera_from_base=np.tile(poses.inverse(ego_from_camera), (count, 1, 1, 1)),
            ego_from_camera=np.tile(ego_from_camera, (count, 1, 1, 1)),
        ),
        lidar=tables.LidarColumns(
            file=names_column([f"LIDAR/{frame}.bin" for frame in range(count)]),
            time=time,
            world_from_lidar=world_from_ego,
            of_frame=np.arange(count),
            first_sweep=first_column([0, 1, 1, 1, 0, 1]),
            sweep=np.array([0, 1, 2, 4]),
        ),
        boxes=tables.BoxColumns(
            first=first_column([1] * count),
            center=np.tile([20.0, 1, 0], (count, 1)),
            size=np.tile([4.5, 2, 1.5], (count, 1)),
            rotation=poses.quaternion_of_yaw(np.zeros(count)),
            velocity=np.tile([10.0, 0, 0], (count, 1)),
            category=np.zeros(count, np.int32),
        ),
        boxes_2d=tables.Box2dColumns(
            first=first_column(np.ravel([[1, 0]] * count)),
            box=np.tile([65.0, 40, 85, 50], (count, 1)),
            center=np.tile([75.0, 45], (count, 1)),
            depth=np.full(count, 20.0),
            category=np.zeros(count, np.int32),
            box_row=np.arange(count),
        ),
    ).save(root / "index")


def _write_folders(root: Path) -> None:
    sizes = {"front": (90, 160), "left": (60, 100), "right": (60, 100)}
    angles = {"front": 0.0, "left": 0.9, "right": -0.9}
    mounted = {
        name: poses.joined(
            poses.pose_of_quaternion(poses.quaternion_of_yaw(angle), [1.5, 0.5 * np.sign(angle), 1.6]),
            poses.pose(_LOOKING_AHEAD, np.zeros(3)),
        )
        for name, angle in angles.items()
    }
    matrices = {
        name: np.array([[0.75 * width, 0, width / 2], [0, 0.75 * width, height / 2], [0, 0, 1]])
        for name, (height, width) in sizes.items()
    }
    calibration = {
        name: {"intrinsics": matrices[name].tolist(), "ego_from_camera": pose.tolist()}
        for name, pose in mounted.items()
    }
    for drive, count in (("monday", 6), ("tuesday", 4)):
        folder = root / drive
        folder.mkdir()
        (folder / "calibration.json").write_text(json.dumps(calibration))
        rows, objects = [["frame", "time", "x", "y", "yaw"]], {}
        for number in range(count):
            frame, travelled = f"{number:04d}", 4.0 * number
            rows.append([frame, f"{100 + 0.5 * number:.6f}", f"{travelled}", "0.0", "0.0"])
            objects[frame] = [
                {"track": 7, "kind": "car", "xyz": [25 - travelled, 2, 0.8], "lwh": [4.5, 1.9, 1.6], "yaw": 0.1},
                {"track": 9, "kind": "car", "xyz": [12 + travelled, -3, 0.8], "lwh": [4.3, 1.8, 1.5], "yaw": 0.0},
            ]
            for name, (height, width) in sizes.items():
                boxes = [_seen(one, mounted[name], matrices[name], height, width) for one in objects[frame]]
                box = next((each for each in boxes if each is not None), None)
                _picture(folder / name / f"{frame}.jpg", height, width, number, box)
        with (folder / "poses.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        (folder / "boxes.json").write_text(json.dumps(objects))


def _seen(
    one: Mapping[str, Any], ego_from_camera: Any, intrinsics: Any, height: int, width: int
) -> tuple[float, float, float, float] | None:
    found = project_boxes(
        [one["xyz"]],
        [one["lwh"]],
        [poses.quaternion_of_yaw(one["yaw"])],
        poses.inverse(ego_from_camera)[np.newaxis],
        intrinsics[np.newaxis],
        [[width, height]],
    )
    x1, y1, x2, y2 = found.box[0].tolist()
    return (x1, y1, x2, y2) if found.is_seen[0] else None


def _write_nuscenes(root: Path) -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in (
            *("sensor", "calibrated_sensor", "log", "scene", "category", "attribute", "visibility", "instance"),
            *("sample", "sample_data", "ego_pose", "sample_annotation"),
        )
    }
    intrinsics = [[120, 0, 80], [0, 120, 45], [0, 0, 1]]
    sensors = {"CAM_FRONT": _AHEAD, "CAM_BACK": _BACK, "LIDAR_TOP": _LEVEL}
    for name, rotation in sensors.items():
        is_camera = name.startswith("CAM")
        rows["sensor"].append({"token": name, "channel": name, "modality": "camera" if is_camera else "lidar"})
        calibration = {"token": name, "sensor_token": name, "translation": [0, 0, 1.6], "rotation": rotation}
        rows["calibrated_sensor"].append({**calibration, "camera_intrinsic": intrinsics if is_camera else []})
        (root / name).mkdir()
    rows["log"].append(
        {"token": "l", "logfile": "n1", "vehicle": "n", "date_captured": "2020-01-01", "location": "here"}
    )
    rows["category"].append({"token": "c", "name": "vehicle.car"})
    rows["attribute"].append({"token": "a", "name": "vehicle.moving"})
    rows["visibility"].append({"token": "4", "level": "v80-100"})
    names = {"A": "scene-0061", "B": "scene-0103"}  # of the split mini_train, and of mini_val
    for start_s, scene in enumerate(names):
        first = {"token": scene, "log_token": "l", "name": names[scene], "first_sample_token": f"k{scene}0"}
        rows["scene"].append(first)
        rows["instance"].append({"token": f"i{scene}", "category_token": "c"})
        # Two keyframes a second; of three records between them, each third is one.
        for record in range(10):
            time, keyframe = 100_000_000 * start_s + record * 500_000 // 3, -(-record // 3)
            pose = {"token": f"e{scene}{record}", "timestamp": time, "rotation": _LEVEL}
            rows["ego_pose"].append({**pose, "translation": [5 * record / 3, 0, 0]})
            for name in sensors:
                is_camera = name.startswith("CAM")
                file = f"{name}/{scene}{record}.{'jpg' if is_camera else 'pcd.bin'}"
                if is_camera:
                    _picture(root / file, 90, 160, record, (60, 40, 85, 55) if name == "CAM_FRONT" else None)
                else:
                    np.ones((4, 5), np.float32).tofile(root / file)
                rows["sample_data"].append(
                    {
                        "token": f"{name}{scene}{record}",
                        "sample_token": f"k{scene}{keyframe}",
                        "ego_pose_token": pose["token"],
                        "calibrated_sensor_token": name,
                        "timestamp": time,
                        "filename": file,
                        "is_key_frame": record % 3 == 0,
                        "width": 160,
                        "height": 90,
                        **_neighbours(f"{name}{scene}", record, 9),
                    }
                )
            if record % 3 == 0:
                token, near = f"k{scene}{keyframe}", _neighbours(f"k{scene}", keyframe, 3)
                rows["sample"].append({"token": token, "timestamp": time, "scene_token": scene, **near})
                rows["sample_annotation"].append(
                    {
                        "token": f"b{scene}{keyframe}",
                        "sample_token": token,
                        "instance_token": f"i{scene}",
                        "visibility_token": "4",
                        "attribute_tokens": ["a"],
                        "translation": [5 * keyframe + 12, 1, 1],
                        "size": [2, 4, 1.5],
                        "rotation": _LEVEL,
                        "num_lidar_pts": 9,
                        "num_radar_pts": 0,
                        **_neighbours(f"b{scene}", keyframe, 3),
                    }
                )
    (root / "v1.0-mini").mkdir()
    for name, records in rows.items():
        (root / "v1.0-mini" / f"{name}.json").write_text(json.dumps(records))


def _neighbours(kind: str, number: int, last: int) -> dict[str, str]:
    return {
        "prev": f"{kind}{number - 1}" if number else "",
        "next": f"{kind}{number + 1}" if number < last else "",
    }


def _write_infos(root: Path) -> None:
    rng, count, speed = np.random.default_rng(7), 24, 5.0
    is_car = np.arange(count) % 2 == 1
    sizes = np.where(is_car[:, np.newaxis], [4.6, 1.9, 1.7], [7.1, 2.5, 2.9])  # length, width, height
    places, yaws = rng.uniform(-20, 20, (count, 2)), rng.uniform(-3, 3, count)
    velocities = 6 * np.column_stack([np.cos(yaws), np.sin(yaws)])
    infos = []
    for frame in range(4):
        name, time = f"samples/CAM_FRONT/{frame}.jpg", 1_532_402_927_000_000 + 500_000 * frame
        _picture(root / name, 90, 160, frame)
        centers = places + velocities * 0.5 * frame - [0, speed * 0.5 * frame]
        camera = {
            "data_path": f"./data/nuscenes/{name}",  # where it was on the machine of the converter
            "timestamp": time,
            "cam_intrinsic": np.array([[126.6, 0, 81.6], [0, 126.6, 49.1], [0, 0, 1]]),
            "sensor2lidar_rotation": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
            "sensor2lidar_translation": np.array([0.0, 0.8, -0.34]),
            "sensor2ego_rotation": _AHEAD,
            "sensor2ego_translation": [1.7, 0.0, 1.5],
        }
        columns = [centers, sizes[:, 2] / 2 - 1.84, sizes[:, [1, 0, 2]], -yaws - np.pi / 2]  # as of BEVFormer
        infos.append(
            {
                "token": f"frame-{frame}",
                "scene_token": "scene-0061",
                "timestamp": time,
                "ego2global_rotation": _LEVEL,
                "ego2global_translation": [speed * 0.5 * frame, 0.0, 0.0],
                "lidar2ego_rotation": [np.sqrt(0.5), 0.0, 0.0, -np.sqrt(0.5)],
                "lidar2ego_translation": [0.9, 0.0, 1.84],
                "cams": {"CAM_FRONT": camera},
                "gt_boxes": np.column_stack(columns),
                "gt_names": np.where(is_car, "car", "truck"),
                "gt_velocity": velocities,
                "num_lidar_pts": np.full(count, 9),
                "num_radar_pts": np.zeros(count, int),
            }
        )
    (root / "infos.pkl").write_bytes(pickle.dumps({"infos": infos, "metadata": {"version": "v1.0"}}))


_PCD = """VERSION 0.7
FIELDS x y z intensity ring lidar_info
SIZE 4 4 4 1 1 1
TYPE F F F U U U
COUNT 1 1 1 1 1 1
POINTS 2
DATA binary
"""


def _write_navsim(root: Path) -> None:
    log, blobs = "2021.05.12.22.00.38_veh-35_01008_01518", root / "sensor_blobs/trainval"
    points = np.array([(5.0, 1.0, 1.5, 9, 0, 0), (8.0, -2.0, 0.0, 7, 1, 0)], "<f4,<f4,<f4,u1,u1,u1")
    frames = []
    for number in range(16):
        token = f"{number:016x}"
        names = [f"CAM_{name}" for name in ("F0", "L0", "L1", "L2", "R0", "R1", "R2", "B0")]
        images = {name: f"{log}/{name}/{token}.jpg" for name in names}
        for name in ("CAM_F0", "CAM_L0", "CAM_R0"):
            _picture(blobs / images[name], 1080, 1920, number)
        cloud = blobs / log / "MergedPointCloud" / f"{token}.pcd"
        cloud.parent.mkdir(parents=True, exist_ok=True)
        cloud.write_bytes(_PCD.encode() + points.tobytes())
        camera = {
            "sensor2lidar_rotation": _LOOKING_AHEAD,
            "sensor2lidar_translation": np.array([1.0, 0, 1.5]),
            "cam_intrinsic": np.array([[1545.0, 0, 960], [0, 1545, 560], [0, 0, 1]]),
            "distortion": np.zeros(5),
        }
        frames.append(
            {
                "token": token,
                "timestamp": 1_620_000_000_000_000 + 500_000 * number,
                "map_location": "us-nv-las-vegas-strip",
                "roadblock_ids": ["1"],
                "lidar_path": f"{log}/MergedPointCloud/{token}.pcd",
                "lidar2ego_translation": np.zeros(3),
                "lidar2ego_rotation": np.array(_LEVEL),
                "ego2global_translation": np.array([2.0 * number, 0, 0]),
                "ego2global_rotation": np.array(_LEVEL),
                "ego_dynamic_state": [4.0, 0, 0, 0],
                "driving_command": np.array([0, 1, 0, 0]),
                "cams": {name: {"data_path": path, **camera} for name, path in images.items()},
                "anns": {
                    "gt_boxes": np.array([[12, 3, 0.8, 4.5, 1.9, 1.6, 0]], np.float32),
                    "gt_names": np.array(["vehicle"]),
                    "gt_velocity_3d": np.array([[4, 0, 0]], np.float32),
                    "track_tokens": ["a"],
                },
            }
        )
    (root / "navsim_logs/trainval").mkdir(parents=True)
    (root / "navsim_logs/trainval" / f"{log}.pkl").write_bytes(pickle.dumps(frames))
    settings = {"num_history_frames": 4, "num_future_frames": 10, "frame_interval": 1, "has_route": "true"}
    (root / "navtrain.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))


def _write_argoverse(root: Path) -> None:
    arrow, feather = needed_package("pyarrow"), importlib.import_module("pyarrow.feather")
    log, start, ms = root / "train/log-1", 315_966_265_000_000_000, 1_000_000

    def write(name: str, **columns: Any) -> None:
        length = max(len(column) for column in columns.values() if np.ndim(column))
        path = log / name
        path.parent.mkdir(parents=True, exist_ok=True)
        feather.write_feather(
            arrow.table({key: np.broadcast_to(value, length) for key, value in columns.items()}), str(path)
        )

    still = dict(zip(("qw", "qx", "qy", "qz"), _LEVEL, strict=True))
    axes = dict(zip(("qw", "qx", "qy", "qz"), _AHEAD, strict=True))
    times, camera = start + np.arange(21) * 10 * ms, ["ring_front_center"]
    write("city_SE3_egovehicle.feather", timestamp_ns=times, tx_m=np.arange(21) * 0.1, ty_m=0.0, tz_m=0.0, **still)
    write("calibration/egovehicle_SE3_sensor.feather", sensor_name=camera, tx_m=1.6, ty_m=0.0, tz_m=1.4, **axes)
    write("calibration/intrinsics.feather", sensor_name=camera, fx_px=80.0, fy_px=80.0, cx_px=32.0, cy_px=24.0)
    for number in range(2):
        time = start + number * 100 * ms
        rest = {name: [1] for name in ("intensity", "laser_number", "offset_ns")}
        write(f"sensors/lidar/{time}.feather", x=[1.0], y=[2.0], z=[3.0], **rest)
        _picture(log / f"sensors/cameras/ring_front_center/{time + 20 * ms}.jpg", 48, 64, number)
    size = {"length_m": 4.5, "width_m": 1.9, "height_m": 1.6, "tx_m": 12.0, "ty_m": 1.0, "tz_m": 0.8}
    write(
        "annotations.feather",
        timestamp_ns=[start],
        track_uuid=["a-car"],
        category=["REGULAR_VEHICLE"],
        num_interior_pts=[30],
        **size,
        **still,
    )


def _write_kitti(root: Path) -> None:
    files = {
        "calib/0000.txt": "P2: 70 0 32 4.2 0 70 24 0 0 0 1 0\nR_rect 1 0 0 0 1 0 0 0 1\n"
        "Tr_velo_cam 0 -1 0 0 0 0 -1 -0.08 1 0 0 -0.27\nTr_imu_velo 1 0 0 -0.8 0 1 0 0.3 0 0 1 -0.8\n",
        "label_02/0000.txt": "0 5 Car 0 0 -1.5 20 20 40 40 1.5 1.7 4.2 2 1.6 10 -1.57\n"
        "0 -1 DontCare -1 -1 -10 1 2 9 9 -1 -1 -1 -1000 -1000 -1000 -10\n",
        "oxts/0000.txt": "".join(f"49 8.{number} 110" + " 0" * 27 + "\n" for number in range(2)),
    }
    for name, text in files.items():
        path = root / "training" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for number in range(2):
        _picture(root / f"training/image_02/0000/{number:06d}.png", 48, 64, number)


def _write_py123d(root: Path) -> None:
    arrow, msgpack = needed_package("pyarrow"), needed_package("msgpack")
    log = root / "logs/made_train/drive"
    log.mkdir(parents=True)

    def write(name: str, metadata: Mapping[str, Any], columns: Mapping[str, tuple[Sequence[Any], Any]]) -> None:
        schema = arrow.schema([(key, kind) for key, (_, kind) in columns.items()])
        schema = schema.with_metadata({b"metadata": msgpack.packb(metadata)})
        with arrow.ipc.new_file(str(log / f"{name}.arrow"), schema) as file:
            file.write_batch(arrow.record_batch([arrow.array(*each) for each in columns.values()], schema=schema))

    times, pose = [1_000_000 + 100_000 * number for number in range(3)], arrow.list_(arrow.float64(), 7)
    images = [_encoded(48, 64, number) for number in range(3)]
    camera = {
        "camera_model": "pinhole",
        "intrinsics": [60.0, 60.0, 32.0, 24.0, 0.0],  # fx, fy, cx, cy, skew
        "camera_to_imu_se3": [1.5, 0, 1.6, *_AHEAD],
    }
    ego = [[10.0 * number, 0, 0, *_LEVEL] for number in range(3)]
    moments, numbers = (times, arrow.int64()), ([0, 1, 2], arrow.int64())
    write("ego_state_se3", {}, {"ego_state_se3.timestamp_us": moments, "ego_state_se3.imu_se3": (ego, pose)})
    of_camera: dict[str, tuple[Sequence[Any], Any]] = {
        "camera.pcam_f0.timestamp_us": ([time + 20_000 for time in times], arrow.int64()),
        "camera.pcam_f0.data": (images, arrow.binary()),
        "camera.pcam_f0.camera_to_global_se3": ([None] * 3, pose),
    }
    write("camera.pcam_f0", camera, of_camera)
    of_sync: dict[str, tuple[Sequence[Any], Any]] = {
        "sync.uuid": ([bytes([number] * 16) for number in range(3)], arrow.binary(16)),
        "sync.timestamp_us": moments,
        "ego_state_se3": numbers,
        "camera.pcam_f0": numbers,
    }
    write("sync", {"dataset": "made", "split": "made_train", "log_name": "drive"}, of_sync)


def _write_physical_ai(root: Path) -> None:
    clips, cameras = ["clip-a", "clip-b"], ["camera_cross_left_120fov", "camera_front_wide_120fov"]
    made = root / "made"

    def pack(folder: str, feature: str, member: str, path: Path) -> None:
        archive = root / folder / f"{feature}.chunk_0000.zip"
        archive.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "a") as file:
            file.write(path, member)
        path.unlink()

    seconds = np.arange(0, 4.5, 0.01)
    yaw, zero = np.arctan2(2 * seconds, 10), 0 * seconds
    motion = {"timestamp": np.rint(seconds * 1e6).astype(int), "x": 10 * seconds, "y": seconds**2, "z": zero}
    motion |= {"qw": np.cos(yaw / 2), "qx": zero, "qy": zero, "qz": np.sin(yaw / 2)}
    for clip in clips:
        for number, camera in enumerate(cameras):
            _video(made / "made.mp4", 10, range(40), {"g": "5"})
            pack(f"camera/{camera}", camera, f"{clip}.{camera}.mp4", made / "made.mp4")
            times = np.arange(40) * 100_000 + 30_000 * number  # not synchronous
            table = _parquet(made / "made.parquet", {"timestamp": times})
            pack(f"camera/{camera}", camera, f"{clip}.{camera}.timestamps.parquet", table)
        table = _parquet(made / "made.parquet", motion)
        pack("labels/egomotion", "egomotion", f"{clip}.egomotion.parquet", table)
    made.rmdir()
    rows = [["feature", "directory", "chunk_path", "clip_files_in_zip"]]
    for camera in cameras:
        members = {
            "video": f"{{clip_id}}.{camera}.mp4",
            "frame_timestamps": f"{{clip_id}}.{camera}.timestamps.parquet",
        }
        rows.append(
            [camera, "camera", f"camera/{camera}/{camera}.chunk_{{chunk_id:04d}}.zip", json.dumps(members)]
        )
    egomotion = json.dumps({"egomotion": "{clip_id}.egomotion.parquet"})
    rows.append(["egomotion", "labels", "labels/egomotion/egomotion.chunk_{chunk_id:04d}.zip", egomotion])
    lens = {"width": 96, "height": 64, "cx": 48.0, "cy": 32.0}
    lens |= {f"{way}_poly_{power}": 0.0 for way in ("fw", "bw") for power in range(5)}
    lens |= {"fw_poly_1": 50.0, "bw_poly_1": 0.02}
    place = dict(zip(("qw", "qx", "qy", "qz", "x", "y", "z"), (*_AHEAD, 1.7, 0.0, 1.4), strict=True))
    size = {"length": 4.8, "width": 2.0, "height": 1.5, "rear_axle_to_bbox_center": 1.4}
    size |= {"wheelbase": 2.8, "track_width": 1.6}
    ids, sensors = zip(*[(clip, camera) for clip in clips for camera in cameras], strict=True)
    tables_of_chunk: dict[str, dict[str, Any]] = {
        "camera_intrinsics": {
            "clip_id": ids,
            "camera_name": sensors,
            **{key: [value] * 4 for key, value in lens.items()},
        },
        "sensor_extrinsics": {
            "clip_id": ids,
            "sensor_name": sensors,
            **{key: [value] * 4 for key, value in place.items()},
        },
        "vehicle_dimensions": {"clip_id": clips, **{key: [value] * 2 for key, value in size.items()}},
    }
    for name, columns in tables_of_chunk.items():
        _parquet(root / f"calibration/{name}/{name}.chunk_0000.parquet", columns)
        rows.append([name, "calibration", f"calibration/{name}/{name}.chunk_{{chunk_id:04d}}.parquet", ""])
    with (root / "features.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    events = {"event_t0s": [[100_000, 2_000_000, 2_500_000], [1_900_000]], "end_timestamp": [4_000_000] * 2}
    _parquet(root / "clip_index.parquet", {"clip_id": clips, "chunk": [0, 0], **events})


def _write_lerobot(root: Path) -> None:
    arrow, feature, lengths = needed_package("pyarrow"), "observation.images.front", [20, 10, 15]
    total, path = sum(lengths), "chunk-{chunk_index:03d}/file-{file_index:03d}"
    for file, frames in enumerate([range(30), range(30, 45)]):
        _video(root / f"videos/{feature}/chunk-000/file-{file:03d}.mp4", 10, frames, {"g": "2", "bf": "0"})
    frame = np.concatenate([np.arange(length) for length in lengths])
    action = np.stack([frame / 10, np.zeros(total)], axis=1).astype(np.float32)
    _parquet(
        root / "data/chunk-000/file-000.parquet",
        {
            "action": arrow.array(action.tolist(), arrow.list_(arrow.float32(), 2)),
            "timestamp": (frame / 10).astype(np.float32),
            "frame_index": frame,
            "episode_index": np.repeat([0, 1, 2], lengths),
            "index": np.arange(total),
            "task_index": np.zeros(total, np.int64),
        },
    )
    start = np.array([0.0, 2.0, 0.0])
    _parquet(
        root / "meta/episodes/chunk-000/file-000.parquet",
        {
            "episode_index": [0, 1, 2],
            "length": lengths,
            "dataset_from_index": np.cumsum(lengths) - lengths,
            **{f"data/{what}_index": [0, 0, 0] for what in ("chunk", "file")},
            f"videos/{feature}/chunk_index": [0, 0, 0],
            f"videos/{feature}/file_index": [0, 0, 1],
            f"videos/{feature}/from_timestamp": start,
            f"videos/{feature}/to_timestamp": start + np.array(lengths) / 10,
        },
    )
    _parquet(root / "meta/tasks.parquet", {"task_index": [0], "task": ["follow the road"]})
    whole = {"dtype": "int64", "shape": [1]}
    info = {
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
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    statistics = {what: getattr(action, what)(axis=0).tolist() for what in ("mean", "std", "min", "max")}
    (root / "meta/stats.json").write_text(json.dumps({"action": {**statistics, "count": [total]}}))


_WRITERS: Final[dict[str, Callable[[Path], None]]] = {
    "index": _write_index,
    "folders": _write_folders,
    "nuscenes": _write_nuscenes,
    "infos": _write_infos,
    "navsim": _write_navsim,
    "argoverse": _write_argoverse,
    "kitti": _write_kitti,
    "py123d": _write_py123d,
    "physical_ai": _write_physical_ai,
    "lerobot": _write_lerobot,
}
