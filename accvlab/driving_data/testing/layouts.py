# SPDX-License-Identifier: Apache-2.0
"""Files of drives in published layouts, made from an index.

Values of an index for which a layout has no place are left out. Images and points keep their names in the index,
except in layouts that have names of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.errors import SettingError

from ..datasets.driving import poses
from ..datasets.driving.array_types import Array, Float64
from ..datasets.driving.driving_index import DrivingIndex, LidarColumns, names_column
from ..datasets.driving.scene_parts import sweep_columns
from .written_files import Files, picture

Record = dict[str, Any]


class Content:
    """Values of a drive that layouts write.

    Args:
        drive: Its index, with cameras and boxes.
        files: Contents of the files that the index names, by name.

    Raises:
        SettingError: There are no cameras, or no boxes.
    """

    def __init__(self, drive: DrivingIndex, files: Mapping[str, Any]) -> None:
        """Derive the poses of the vehicle and of boxes in the world."""
        if not isinstance(drive, DrivingIndex) or drive.cameras is None or drive.boxes is None:
            raise SettingError(f"`drive` must be an index with cameras and boxes, got {drive!r}.")
        self.drive, self.files = drive, files
        self.frames, self.cameras, self.boxes = drive.frames, drive.cameras, drive.boxes
        self.scenes = texts(drive.frames.scene)
        self.tokens = texts(drive.frames.token)
        self.rows_of_scene = [range(*pair) for pair in pairwise(drive.frames.first_of_scene.tolist())]
        self.frame_of_box = np.repeat(np.arange(drive.num_frames), np.diff(self.boxes.first))
        self.world_from_base = poses.joined(drive.frames.world_from_ego, drive.frames.ego_from_base)
        camera_from_base = self.cameras.camera_from_base
        self.world_from_camera = poses.joined(self.world_from_base[:, np.newaxis], poses.inverse(camera_from_base))
        self.box_pose = poses.pose_of_quaternion(self.boxes.rotation, self.boxes.center)

    def world_from_ego(self, camera: int) -> Float64:
        """Poses of the vehicle at the times of the images of a camera, ``(F, 3, 4)``."""
        mounted = self.cameras.ego_from_camera[:, camera]
        return poses.joined(self.world_from_camera[:, camera], poses.inverse(mounted))

    def boxes_of(self, frame: int) -> slice:
        """Rows of the boxes of a frame."""
        return slice(*self.boxes.first[frame : frame + 2].tolist())

    def instances(self) -> Array:
        """Numbers of objects ``(N,)``; boxes of unknown objects are objects of their own."""
        own = -1 - np.arange(len(self.boxes.center))
        given = own if self.boxes.instance is None else self.boxes.instance
        return np.where(given < 0, own, given)

    def image(self, frame: int, camera: int) -> Any:
        """Content of an image.

        Raises:
            SettingError: It is not given.
        """
        name = self.cameras.file[frame, camera].decode()
        if name not in self.files:
            raise SettingError(f"`files` must have the contents of all images, but lacks {name!r}.")
        return self.files[name]

    def of_boxes(self, name: str, unknown: int) -> list[int]:
        """Values of boxes, with a placeholder where a value is not known."""
        column = getattr(self.boxes, name)
        given = np.full(len(self.boxes.center), -1) if column is None else column
        return np.where(given < 0, unknown, given).tolist()  # type: ignore[no-any-return]

    @property
    def lidar(self) -> LidarColumns:
        """The lidar.

        Raises:
            SettingError: There is none.
        """
        if self.drive.lidar is None:
            raise SettingError(f"`drive` must be an index with a lidar for this layout, got {self.drive!r}.")
        return self.drive.lidar


def texts(names: Array) -> list[str]:
    """Names of a column of an index."""
    return [name.decode() for name in names.reshape(-1).tolist()]


def quaternion(pose: Float64) -> Float64:
    """Quaternions of poses."""
    return poses.quaternion_of_rotation(pose[..., :3])


def with_lidar(drive: DrivingIndex, pattern: str) -> DrivingIndex:
    """Add a lidar with a record per frame; frames but the first of a scene have the record before as sweep.

    Args:
        drive: The index.
        pattern: Names of files, with ``{number}`` of the frame, or its ``{token}``.
    """
    numbers, tokens = np.arange(drive.num_frames), texts(drive.frames.token)
    has_sweep = np.isin(numbers, drive.frames.first_of_scene, invert=True)
    first_sweep, sweep = sweep_columns(numbers, has_sweep.astype(np.int64))
    lidar = LidarColumns(
        file=names_column([pattern.format(number=number, token=token) for number, token in enumerate(tokens)]),
        time=drive.frames.time,
        world_from_lidar=poses.joined(drive.frames.world_from_ego, drive.frames.ego_from_base),
        of_frame=numbers,
        first_sweep=first_sweep,
        sweep=sweep,
    )
    return attrs.evolve(drive, lidar=lidar, point_columns=("x", "y", "z", "intensity", "ring"))


def _posed(name: str, pose: Float64) -> Record:
    return {f"{name}rotation": quaternion(pose).tolist(), f"{name}translation": pose[:, 3].tolist()}


# --- the index itself, and files of one's own -------------------------------------------------------------


def index_files(content: Content) -> Files:
    """Make an index in ``index``, with the files that it names."""
    return {"index": content.drive, **content.files}


def folder_files(content: Content) -> Files:
    """Make a folder per scene: poses in CSV, boxes and calibration in JSON, a folder of images per camera."""
    files: Files = {}
    cameras, boxes, names = content.cameras, content.boxes, content.drive.camera_names
    instances, yaw = content.instances(), poses.yaw_of_quaternion(content.boxes.rotation)
    for scene, rows in zip(content.scenes, content.rows_of_scene, strict=True):
        objects, lines = {}, [["frame", "time", "x", "y", "yaw"]]
        for number, frame in enumerate(rows):
            pose, name = content.frames.world_from_ego[frame], f"{number:04d}"
            place = [*pose[:2, 3].tolist(), float(np.arctan2(pose[1, 0], pose[0, 0]))]
            lines.append([name, f"{content.frames.time[frame]:.6f}", *map(str, place)])
            objects[name] = [
                {
                    "track": int(instances[row]),
                    "kind": content.drive.categories[boxes.category[row]],
                    "xyz": boxes.center[row].tolist(),
                    "lwh": boxes.size[row].tolist(),
                    "yaw": float(yaw[row]),
                }
                for row in range(*boxes.first[frame : frame + 2])
            ]
            for camera, of_camera in enumerate(names):
                files[f"{scene}/{of_camera}/{name}.jpg"] = content.image(frame, camera)
        files[f"{scene}/poses.csv"], files[f"{scene}/boxes.json"] = lines, objects
        files[f"{scene}/calibration.json"] = {
            name: {
                "intrinsics": cameras.intrinsics[rows[0], camera].tolist(),
                "ego_from_camera": cameras.ego_from_camera[rows[0], camera].tolist(),
            }
            for camera, name in enumerate(names)
        }
    return files


# --- nuScenes ---------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Sensor:
    """Records of a camera or the lidar, one per frame."""

    channel: str
    file: Sequence[str]
    time: Float64
    world_from_ego: Float64
    ego_from_sensor: Float64
    wh: Sequence[int] = (0, 0)
    matrix: Float64 | None = None


def nuscenes_files(content: Content, frames_per_keyframe: int = 1, version: str = "v1.0-mini") -> Files:
    """Make the thirteen tables of nuScenes; frames between keyframes are sweeps, without boxes.

    Args:
        content: The drive. The sizes of images are those of `cameras.image_wh`.
        frames_per_keyframe: Every how many-th frame is a keyframe; those behind the last one are left out.
        version: Name of the folder of the tables.
    """
    sensors = _sensors(content)
    tables: dict[str, list[Record]] = {
        "sensor": [
            {
                "token": sensor.channel,
                "channel": sensor.channel,
                "modality": "lidar" if sensor.matrix is None else "camera",
            }
            for sensor in sensors
        ],
        "category": _vocabulary("name", content.drive.categories),
        "attribute": _vocabulary("name", content.drive.attributes),
        "visibility": _vocabulary("level", ("v0-40", "v40-60", "v60-80", "v80-100")),
        **{name: [] for name in ("scene", "log", "sample", "calibrated_sensor", "ego_pose", "sample_data")},
    }
    keyframes = [frame for rows in content.rows_of_scene for frame in rows[::frames_per_keyframe]]
    for scene, rows in zip(content.scenes, content.rows_of_scene, strict=True):
        of_scene = rows[::frames_per_keyframe]
        for name, record in _scene(content, scene, of_scene).items():
            tables[name] += record
        for name, records in _records(content, sensors, rows[: of_scene[-1] - rows[0] + 1], of_scene).items():
            tables[name] += records
    tables |= _annotations(content, keyframes)
    logs = [log["token"] for log in tables["log"]]
    tables["map"] = [
        {"token": "map", "category": "semantic_prior", "filename": "maps/map.png", "log_tokens": logs}
    ]
    for table, by in _LINKED.items():
        _link(tables[table], by)
    files = {f"{version}/{name}.json": records for name, records in tables.items()}
    return {**files, "maps/map.png": picture((2, 2), 0, suffix=".png"), **content.files}


def _sensors(content: Content) -> list[_Sensor]:
    cameras, lidar, frames = content.cameras, content.drive.lidar, content.frames
    size = np.zeros((1, len(content.drive.camera_names), 2)) if cameras.image_wh is None else cameras.image_wh
    sensors = [
        _Sensor(
            channel=name,
            file=texts(cameras.file[:, number]),
            time=cameras.time[:, number],
            world_from_ego=content.world_from_ego(number),
            ego_from_sensor=cameras.ego_from_camera[:, number],
            wh=size[0, number].astype(int).tolist(),
            matrix=cameras.intrinsics[:, number],
        )
        for number, name in enumerate(content.drive.camera_names)
    ]
    if lidar is not None:
        file = np.where(lidar.of_frame < 0, b"", lidar.file[lidar.of_frame])
        time, world_from_ego = lidar.time[lidar.of_frame], frames.world_from_ego
        sensors.append(_Sensor("LIDAR_TOP", texts(file), time, world_from_ego, frames.ego_from_base))
    return sensors


def _scene(content: Content, scene: str, keyframes: range) -> dict[str, list[Record]]:
    tokens = [content.tokens[frame] for frame in keyframes]
    times = [round(content.frames.time[frame] * 1e6) for frame in keyframes]
    samples = [
        {"token": token, "timestamp": time, "scene_token": scene}
        for token, time in zip(tokens, times, strict=True)
    ]
    ends = {"first_sample_token": tokens[0], "last_sample_token": tokens[-1], "nbr_samples": len(tokens)}
    log = {"logfile": f"made-{scene}", "vehicle": "made", "date_captured": "2020-01-01", "location": "made-road"}
    return {
        "sample": samples,
        "scene": [{"token": scene, "log_token": f"log {scene}", "name": scene, "description": scene, **ends}],
        "log": [{"token": f"log {scene}", **log}],
    }


def _records(
    content: Content, sensors: Sequence[_Sensor], rows: range, keyframes: range
) -> dict[str, list[Record]]:
    """Calibrations, poses and records of the sensors in a scene; sweeps belong to the keyframe that follows."""
    tables: dict[str, list[Record]] = {name: [] for name in ("calibrated_sensor", "ego_pose", "sample_data")}
    calibration_of = {sensor.channel: f"{sensor.channel} {content.tokens[rows[0]]}" for sensor in sensors}
    for sensor in sensors:
        matrix = [] if sensor.matrix is None else sensor.matrix[rows[0]].tolist()
        mounted = {"sensor_token": sensor.channel, "camera_intrinsic": matrix}
        token, pose = calibration_of[sensor.channel], _posed("", sensor.ego_from_sensor[rows[0]])
        tables["calibrated_sensor"].append({"token": token, **mounted, **pose})
    for (place, frame), sensor in product(enumerate(rows), sensors):
        if not sensor.file[frame]:
            continue
        token, time = f"{sensor.channel} {content.tokens[frame]}", round(sensor.time[frame] * 1e6)
        pose = _posed("", sensor.world_from_ego[frame])
        tables["ego_pose"].append({"token": token, "timestamp": time, **pose})
        tables["sample_data"].append(
            {
                "token": token,
                "sample_token": content.tokens[keyframes[-(-place // keyframes.step)]],
                "ego_pose_token": token,
                "calibrated_sensor_token": calibration_of[sensor.channel],
                "timestamp": time,
                "fileformat": sensor.file[frame].partition(".")[2].split(".")[0],
                "is_key_frame": frame in keyframes,
                "width": sensor.wh[0],
                "height": sensor.wh[1],
                "filename": sensor.file[frame],
            }
        )
    return tables


def _annotations(content: Content, keyframes: Sequence[int]) -> dict[str, list[Record]]:
    boxes, instances, names = content.boxes, content.instances(), content.drive.categories
    pose = poses.joined(content.world_from_base[content.frame_of_box], content.box_pose)
    attribute, visibility = content.of_boxes("attribute", -1), content.of_boxes("visibility", 0)
    num_lidar, num_radar = content.of_boxes("num_lidar_points", 0), content.of_boxes("num_radar_points", 0)
    annotations: list[Record] = []
    objects: dict[str, Record] = {}
    for row in np.flatnonzero(np.isin(content.frame_of_box, keyframes)).tolist():
        frame = int(content.frame_of_box[row])
        token = f"object {content.drive.scene_of(frame)} {instances[row]}"
        annotations.append(
            {
                "token": f"box {row}",
                "sample_token": content.tokens[frame],
                "instance_token": token,
                "visibility_token": str(visibility[row]) if visibility[row] else "",
                "attribute_tokens": [content.drive.attributes[attribute[row]]] if attribute[row] >= 0 else [],
                **_posed("", pose[row]),
                "size": boxes.size[row, [1, 0, 2]].tolist(),
                "num_lidar_pts": num_lidar[row],
                "num_radar_pts": num_radar[row],
            }
        )
        one = objects.setdefault(token, {"token": token, "category_token": names[boxes.category[row]]})
        one.setdefault("first_annotation_token", f"box {row}")
        one |= {"last_annotation_token": f"box {row}", "nbr_annotations": one.get("nbr_annotations", 0) + 1}
    return {"sample_annotation": annotations, "instance": [*objects.values()]}


_LINKED = {
    "sample": "scene_token",
    "sample_data": "calibrated_sensor_token",
    "sample_annotation": "instance_token",
}
"""Tables whose records name the one before and the one after them, among those with the same value of a field."""


def _link(records: list[Record], by: str) -> None:
    last: dict[str, Record] = {}
    for record in records:
        before = last.get(record[by])
        record |= {"prev": before["token"] if before else "", "next": ""}
        if before:
            before["next"] = record["token"]
        last[record[by]] = record


def _vocabulary(field: str, names: Sequence[str]) -> list[Record]:
    tokens = [str(number) for number in range(1, len(names) + 1)] if field == "level" else names
    return [{"token": token, field: name, "description": ""} for token, name in zip(tokens, names, strict=True)]


# --- pickles of frames ------------------------------------------------------------------------------------


def infos_files(content: Content) -> Files:
    """Make an info pickle, with boxes as ``w,l,h,-yaw-pi/2``."""
    infos = [info_of(content, frame) for frame in range(content.drive.num_frames)]
    return {"infos.pkl": {"infos": infos, "metadata": {"version": "v1.0"}}, **content.files}


def info_of(content: Content, frame: int, prefix: str = "./data/nuscenes/") -> Record:
    """Make the entry of a frame, as converters of nuScenes write it; ``prefix`` comes before names of files."""
    frames, boxes = content.frames, content.boxes
    scene, rows = content.drive.scene_of(frame), content.boxes_of(frame)
    yaw = -poses.yaw_of_quaternion(boxes.rotation[rows]) - np.pi / 2
    info = {
        "token": content.tokens[frame],
        "scene_token": content.scenes[scene],
        "timestamp": round(frames.time[frame] * 1e6),
        **_posed("ego2global_", frames.world_from_ego[frame]),
        **_posed("lidar2ego_", frames.ego_from_base[frame]),
        "cams": {
            name: _info_camera(content, frame, number, prefix)
            for number, name in enumerate(content.drive.camera_names)
        },
        "gt_boxes": np.column_stack([boxes.center[rows], boxes.size[rows][:, [1, 0, 2]], yaw]),
        "gt_names": np.array([content.drive.categories[number] for number in boxes.category[rows]]),
        "gt_velocity": boxes.velocity[rows, :2],
        "num_lidar_pts": np.array(content.of_boxes("num_lidar_points", 9)[rows], np.int64),
        "num_radar_pts": np.array(content.of_boxes("num_radar_points", 0)[rows], np.int64),
    }
    lidar = content.drive.lidar
    if lidar is not None:
        records = lidar.sweep[slice(*lidar.first_sweep[frame : frame + 2])].tolist()
        base_from_ego = poses.inverse(frames.ego_from_base[frame])
        info["lidar_path"] = prefix + lidar.file[lidar.of_frame[frame]].decode()
        info["sweeps"] = [
            {
                "data_path": prefix + lidar.file[record].decode(),
                "type": "lidar",
                "timestamp": round(lidar.time[record] * 1e6),
                **_posed("sensor2ego_", frames.ego_from_base[frame]),
                **_posed("ego2global_", poses.joined(lidar.world_from_lidar[record], base_from_ego)),
            }
            for record in records
        ]
    return info


def _info_camera(content: Content, frame: int, camera: int, prefix: str) -> Record:
    cameras = content.cameras
    base_from_camera = poses.inverse(cameras.camera_from_base[frame, camera])
    return {
        "data_path": prefix + cameras.file[frame, camera].decode(),
        "type": content.drive.camera_names[camera],
        "timestamp": round(cameras.time[frame, camera] * 1e6),
        "cam_intrinsic": cameras.intrinsics[frame, camera],
        "sensor2lidar_rotation": base_from_camera[:, :3],
        "sensor2lidar_translation": base_from_camera[:, 3],
        **_posed("sensor2ego_", cameras.ego_from_camera[frame, camera]),
        **_posed("ego2global_", content.frames.world_from_ego[frame]),
    }


def navsim_files(content: Content, split: str = "trainval") -> Files:
    """Make a pickle of frames per scene, with the images and point clouds of ``sensor_blobs``."""
    files: Files = {f"sensor_blobs/{split}/{name}": value for name, value in content.files.items()}
    for scene, rows in zip(content.scenes, content.rows_of_scene, strict=True):
        files[f"navsim_logs/{split}/{scene}.pkl"] = [_navsim_frame(content, frame) for frame in rows]
    return files


def _navsim_frame(content: Content, frame: int) -> Record:
    frames, boxes, cameras, lidar = content.frames, content.boxes, content.cameras, content.lidar
    rows = content.boxes_of(frame)
    yaw = poses.yaw_of_quaternion(boxes.rotation[rows])
    motion = np.zeros(4) if frames.motion is None else frames.motion[frame]
    command = np.array([0, 1, 0, 0]) if frames.driving_command is None else frames.driving_command[frame]
    has_route = frames.has_route is None or frames.has_route[frame]
    distortion = np.zeros((*cameras.time.shape, 5)) if cameras.distortion is None else cameras.distortion
    lidar_from_camera = poses.inverse(cameras.camera_from_base[frame])
    return {
        "token": content.tokens[frame],
        "timestamp": round(frames.time[frame] * 1e6),
        "log_name": content.scenes[content.drive.scene_of(frame)],
        "map_location": "us-nv-las-vegas-strip",
        "roadblock_ids": ["1", "2"] if has_route else [],
        "lidar_path": lidar.file[lidar.of_frame[frame]].decode(),
        **{name: np.array(value) for name, value in _posed("lidar2ego_", frames.ego_from_base[frame]).items()},
        **{name: np.array(value) for name, value in _posed("ego2global_", frames.world_from_ego[frame]).items()},
        "ego_dynamic_state": motion.tolist(),
        "driving_command": command,
        "cams": {
            name: {
                "data_path": cameras.file[frame, number].decode(),
                "sensor2lidar_rotation": lidar_from_camera[number, :, :3],
                "sensor2lidar_translation": lidar_from_camera[number, :, 3],
                "cam_intrinsic": cameras.intrinsics[frame, number],
                "distortion": distortion[frame, number],
            }
            for number, name in enumerate(content.drive.camera_names)
        },
        "anns": {
            "gt_boxes": np.column_stack([boxes.center[rows], boxes.size[rows], yaw]).astype(np.float32),
            "gt_names": np.array([content.drive.categories[number] for number in boxes.category[rows]]),
            "gt_velocity_3d": boxes.velocity[rows].astype(np.float32),
            "track_tokens": [f"track-{number}" for number in content.instances()[rows]],
        },
    }


# --- clips in archives ------------------------------------------------------------------------------------

_LENS = ("width", "height", "cx", "cy", *(f"{way}_poly_{power}" for way in ("bw", "fw") for power in range(5)))
_VEHICLE = ("length", "width", "height", "rear_axle_to_bbox_center", "wheelbase", "track_width")


def columns_of_poses(pose: Float64) -> Record:
    """Columns of poses ``(n, 3, 4)`` in PhysicalAI-AV."""
    values = np.column_stack([quaternion(pose), pose[..., 3]])
    return dict(zip(("qw", "qx", "qy", "qz", "x", "y", "z"), values.T, strict=True))


def physical_ai_files(
    chunk_of: Mapping[str, int],
    cameras: Mapping[str, Float64],
    *,
    video_of: Callable[[str, str], bytes],
    times_of: Callable[[str], Array],
    motion: tuple[Array, Float64],
    lens: Sequence[Any],
    vehicle: Sequence[float],
    **clip_index: Any,
) -> Files:
    """Make clips of PhysicalAI-AV, packed by chunk.

    Args:
        chunk_of: Chunk of each clip.
        cameras: Pose of each camera on the vehicle.
        video_of: Function of clip and camera that returns a video.
        times_of: Function of a camera that returns the times of its frames, microseconds.
        motion: Times, microseconds, and poses of the vehicle, of all clips.
        lens: F-theta model, see `LENS`: numbers of all cameras, or a list of those of each.
        vehicle: Sizes of the vehicle, see `FrameColumns`.
        clip_index: Further columns of the table of clips.
    """
    chunks: dict[int, list[str]] = {}
    for clip, chunk in chunk_of.items():
        chunks.setdefault(chunk, []).append(clip)
    driven = {"timestamp": motion[0], **columns_of_poses(motion[1])}
    mounted = columns_of_poses(np.stack([*cameras.values()]))
    files: Files = {}
    rows = [["feature", "directory", "chunk_path", "clip_files_in_zip"]]

    def add(folder: str, feature: str, content: Callable[[list[str]], Files], members: Mapping[str, str]) -> None:
        path = f"{folder}/{feature}/{feature}.chunk_{{chunk_id:04d}}.{'zip' if members else 'parquet'}"
        rows.append([feature, folder, path, json.dumps(members) if members else ""])
        files.update({path.format(chunk_id=chunk): content(clips) for chunk, clips in chunks.items()})

    def recorded(camera: str, clips: list[str]) -> Files:
        videos = {f"{clip}.{camera}.mp4": video_of(clip, camera) for clip in clips}
        return videos | {f"{clip}.{camera}.timestamps.parquet": {"timestamp": times_of(camera)} for clip in clips}

    for camera in cameras:
        stem = f"{{clip_id}}.{camera}"
        members = {"video": f"{stem}.mp4", "frame_timestamps": f"{stem}.timestamps.parquet"}
        add("camera", camera, partial(recorded, camera), members)
    driven_of = lambda clips: {f"{clip}.egomotion.parquet": driven for clip in clips}  # noqa: E731
    add("labels", "egomotion", driven_of, {"egomotion": "{clip_id}.egomotion.parquet"})
    of_camera: dict[str, Mapping[str, Any]] = {
        "camera_intrinsics": {"camera_name": [*cameras], **dict(zip(_LENS, lens, strict=True))},
        "sensor_extrinsics": {"sensor_name": [*cameras], **mounted},
        "vehicle_dimensions": dict(zip(_VEHICLE, ([value] for value in vehicle), strict=True)),
    }
    for table, columns in of_camera.items():
        add("calibration", table, partial(_for_each_clip, columns), {})
    index = {"clip_id": [*chunk_of], "chunk": [*chunk_of.values()], **clip_index}
    return {**files, "features.csv": rows, "clip_index.parquet": index}


def _for_each_clip(columns: Mapping[str, Any], clips: list[str]) -> Files:
    """Rows of a clip, repeated for each; single values are those of all rows."""
    count = max(len(np.atleast_1d(column)) for column in columns.values())
    repeated = {name: np.tile(np.broadcast_to(column, count), len(clips)) for name, column in columns.items()}
    return {"clip_id": np.repeat(clips, count), **repeated}
