"""Small driving scenes that make sense, and info pickles of them as converters of several projects write them."""

import itertools
import pickle
from pathlib import Path

import attrs
import numpy as np

from accvlab.driving_data.datasets import CameraImage, DrivingFrame, index_of_frames
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.driving_index import (
    DrivingIndex,
    LidarColumns,
    LineColumns,
    first_column,
    names_column,
)
from accvlab.driving_data.datasets.driving.scene_parts import box2d_columns
from accvlab.driving_data.recipes.recipe_parts import CLASSES_OF_CONVERTERS as CATEGORIES
from accvlab.driving_data.testing import layouts, written_files
from driving_support.kinds_of_drives import Kind, scene_of

LAYOUT_OF = dict.fromkeys(("vad", "detr3d", "bevformer", "bevfusion"), "w,l,h,-yaw-pi/2") | {"uniad": "w,l,h,yaw"}
FAMILIES = (*("mmdet3d_v1", "mmdet3d_v2", "streampetr", "sparsedrive", "sparse4d"), *LAYOUT_OF)
CAMERAS = ("CAM_FRONT", "CAM_BACK")


def driving_scenes(
    seed: int = 0,
    *,
    lengths: tuple[int, ...] = (4, 3),
    num_objects: int = 12,
    num_moving: int | None = None,
    noise: float = 0.0,
) -> DrivingIndex:
    """Make scenes of a vehicle that drives among objects on flat ground; vehicles go along their length."""
    rng = np.random.default_rng(seed)
    num_moving = num_objects if num_moving is None else min(num_moving, num_objects)
    kind = Kind(cameras={}, period_s=0.5, has_velocities=True, noise_m=noise, num_objects=num_objects, turn=0.0)
    scenes = [
        scene_of(rng, attrs.evolve(kind, num_moving=num_moving, num_frames=length), number)
        for number, length in enumerate(lengths)
    ]
    records = [_named(frame, number) for number, frame in enumerate(itertools.chain(*scenes))]
    ego_from_lidar = poses.pose_of_quaternion(poses.quaternion_of_yaw(-np.pi / 2 + 0.01), [0.9, 0.1, 1.84])
    index = index_of_frames(records, categories=CATEGORIES, ego_from_lidar=ego_from_lidar)
    count, num_frames = len(index.boxes.center), index.num_frames
    index.boxes.velocity[::7] = np.nan
    index = layouts.with_lidar(index, "samples/LIDAR_TOP/lidar_{number:03}.bin")
    index = attrs.evolve(
        index,
        line_categories=("ped_crossing", "divider", "boundary"),
        frames=attrs.evolve(
            index.frames, can_bus=rng.normal(size=(num_frames, 18)), ego_status=rng.normal(size=(num_frames, 10))
        ),
        boxes=attrs.evolve(
            index.boxes,
            visibility=rng.integers(1, 5, count).astype(np.int32),
            num_lidar_points=rng.integers(0, 50, count).astype(np.int32),
            num_radar_points=rng.integers(0, 3, count).astype(np.int32),
        ),
        lines=_lines(rng, num_frames),
        lidar=_with_own_sweeps(index.lidar),
    )
    wh = np.tile([64, 48], (num_frames, len(CAMERAS), 1))
    return attrs.evolve(index, boxes_2d=box2d_columns(index.boxes, index.cameras, wh))


_AHEAD = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
_MOUNTED = {
    "CAM_FRONT": (poses.pose(_AHEAD, [1.7, 0.0, 1.5]), -0.012),  # with how much later than the lidar images are
    "CAM_BACK": (poses.pose(np.diag([-1.0, -1.0, 1.0]) @ _AHEAD, [0.1, 0.0, 1.5]), 0.03125),
}


def _named(frame: DrivingFrame, number: int) -> DrivingFrame:
    cameras = {
        name: CameraImage(
            file=f"samples/{name}/{name}_{number:03}.jpg",
            intrinsics=[[60, 0, 32], [0, 60, 24], [0, 0, 1]],
            ego_from_camera=mounted,
            time=frame.time + later,
        )
        for name, (mounted, later) in _MOUNTED.items()
    }
    return attrs.evolve(frame, token=f"token-{number:03}", cameras=cameras)


def _with_own_sweeps(lidar: LidarColumns) -> LidarColumns:
    """Add a sweep before each frame but the first of a scene, which has it and the frame before as sweeps."""
    frames, records = np.flatnonzero(np.diff(lidar.first_sweep)), lidar.world_from_lidar
    own = names_column([f"sweeps/LIDAR_TOP/lidar_{frame:03}_before.bin" for frame in frames])
    return attrs.evolve(
        lidar,
        file=np.concatenate([lidar.file, own]),
        time=np.append(lidar.time, lidar.time[frames] - 0.25),
        world_from_lidar=np.concatenate([records, (records[frames] + records[frames - 1]) / 2]),
        first_sweep=2 * lidar.first_sweep,
        sweep=np.column_stack([len(lidar.file) + np.arange(len(frames)), frames - 1]).ravel(),
    )


def _lines(rng, num_frames: int) -> LineColumns:
    """Each category has one line in every second frame."""
    points = [rng.integers(2, 6) for _ in range(3 * ((num_frames + 1) // 2))]
    return LineColumns(
        first=first_column([3 * (frame % 2 == 0) for frame in range(num_frames)]),
        category=np.tile(np.arange(3, dtype=np.int32), (num_frames + 1) // 2),
        first_point=first_column(points),
        point=rng.normal(size=(sum(points), 2)) * 10,
    )


# --- pickles --------------------------------------------------------------------------------------------


def written_boxes(index: DrivingIndex, layout: str, z: str = "center") -> np.ndarray:
    """Boxes ``(N, 7)`` as a convention has them."""
    center, size = index.boxes.center.copy(), index.boxes.size
    yaw = poses.yaw_of_quaternion(index.boxes.rotation)
    if z == "bottom":
        center[:, 2] -= size[:, 2] / 2
    if layout != "l,w,h,yaw":
        size = size[:, [1, 0, 2]]
    if layout == "w,l,h,-yaw-pi/2":
        yaw = -yaw - np.pi / 2
    return np.column_stack([center, size, yaw])


def pickle_content(index: DrivingIndex, family: str, *, prefix: str = "") -> dict:
    """What the converter of a project writes; ``prefix`` stands before the names of files."""
    boxes = written_boxes(index, LAYOUT_OF.get(family, "l,w,h,yaw"))
    if family == "mmdet3d_v2":
        frames = [_data_list_entry(index, frame, boxes, prefix) for frame in range(index.num_frames)]
        categories = {name: number for number, name in enumerate(CATEGORIES)}
        return {"metainfo": {"categories": categories, "dataset": "nuscenes"}, "data_list": frames}
    content = layouts.Content(index, {})
    frames = [_infos_entry(content, frame, family, boxes, prefix) for frame in range(index.num_frames)]
    return {"infos": frames, "metadata": {"version": "v1.0-made"}}


def write_pickle(path: Path, content: object, protocol: int | None = None) -> Path:
    """Write a pickle."""
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


def write_files(root: Path, index: DrivingIndex) -> Path:
    """Write the images and points that an index names."""
    images, points = index.cameras.file.ravel(), index.lidar.file
    files = {name.decode(): b"P6 6 4 255\n" + bytes([number] * 72) for number, name in enumerate(images)}
    files |= {name.decode(): np.full((3, 5), number) for number, name in enumerate(points, start=len(images))}
    return written_files.write_files(root, files)


def _infos_entry(content: layouts.Content, frame: int, family: str, boxes: np.ndarray, prefix: str) -> dict:
    index, frames = content.drive, content.frames
    scene = index.scene_of(frame)
    start, stop = (int(number) for number in frames.first_of_scene[scene : scene + 2])
    rows = content.boxes_of(frame)
    info = layouts.info_of(content, frame, prefix)
    del info["scene_token"]
    num_points = info["num_lidar_pts"] + info["num_radar_pts"]
    info |= {"gt_boxes": boxes[rows], "valid_flag": num_points > 0}
    before = frames.token[frame - 1].decode() if frame > start else ""
    if family in ("streampetr", "bevformer", "uniad", "vad"):
        after = frames.token[frame + 1].decode() if frame + 1 < stop else ""
        info |= {"prev": before, "next": after, "frame_idx": frame - start}
    if family in ("streampetr", "bevformer", "uniad", "vad", "sparsedrive"):
        info["scene_token"] = frames.scene[scene].decode()
    if family == "bevfusion":
        info |= {"prev_token": before, "prev": frame - 1 if before else -1, "radars": {}}
    if family in ("sparsedrive", "sparse4d"):
        info["instance_inds"] = index.boxes.instance[rows].tolist()
    if family == "uniad":
        info["gt_inds"] = index.boxes.instance[rows]
        info["gt_ins_tokens"] = np.array([f"object {number}" for number in index.boxes.instance[rows]])
        info["visibility_tokens"] = index.boxes.visibility[rows].astype(np.int64)
    if family in ("bevformer", "uniad", "vad"):
        info["can_bus"] = frames.can_bus[frame]
    if family == "sparsedrive":
        info["ego_status"] = frames.ego_status[frame]
        info["map_annos"] = _map_annos(index.lines, frame)
    if family == "streampetr":
        info |= _infos_2d(index, frame)
    return info


def _sweeps(index: DrivingIndex, frame: int) -> list[int]:
    first, end = index.lidar.first_sweep[frame : frame + 2]
    return index.lidar.sweep[first:end].tolist()


def _world_from_ego_of(index: DrivingIndex, frame: int, record: int) -> np.ndarray:
    return poses.joined(index.lidar.world_from_lidar[record], poses.inverse(index.frames.ego_from_base[frame]))


def _map_annos(lines: LineColumns, frame: int) -> dict:
    annos = {0: [], 1: [], 2: []}
    for line in range(int(lines.first[frame]), int(lines.first[frame + 1])):
        annos[int(lines.category[line])].append(lines.point[lines.first_point[line] : lines.first_point[line + 1]])
    return annos


def _images(index: DrivingIndex, frame: int):
    """Rows of the 2D boxes of each camera, and the centers of their objects in coordinates of the camera."""
    for camera in range(len(CAMERAS)):
        first, end = index.boxes_2d.first[frame * len(CAMERAS) + camera :][:2]
        rows = np.arange(first, end)
        centers = index.boxes.center[index.boxes_2d.box_row[rows]]
        yield rows, poses.moved(index.cameras.camera_from_base[frame, camera], centers)


def _infos_2d(index: DrivingIndex, frame: int) -> dict:
    boxes, images = index.boxes_2d, [*_images(index, frame)]
    columns = {"bboxes2d": boxes.box, "centers2d": boxes.center, "depths": boxes.depth}
    found = {name: [of[rows].astype(np.float32) for rows, _ in images] for name, of in columns.items()}
    found["labels2d"] = [boxes.category[rows].astype(np.int64) for rows, _ in images]
    found["bboxes3d_cams"] = [np.float32(np.column_stack([at, np.zeros((len(at), 4))])) for _, at in images]
    visibilities = index.boxes.visibility[boxes.box_row]
    return {**found, "visibilities": [[str(each) for each in visibilities[rows]] for rows, _ in images]}


def _matrix(pose: np.ndarray) -> list[list[float]]:
    return poses.as_matrix(pose).astype(np.float32).tolist()


def _data_list_entry(index: DrivingIndex, frame: int, boxes: np.ndarray, prefix: str) -> dict:
    frames, cameras, lidar, of = index.frames, index.cameras, index.lidar, index.boxes
    lidar_file = lidar.file[lidar.of_frame[frame]].decode()
    lidar2ego = _matrix(frames.ego_from_base[frame])
    entry = {
        "sample_idx": frame,
        "token": frames.token[frame].decode(),
        "timestamp": float(frames.time[frame]),
        "ego2global": _matrix(frames.world_from_ego[frame]),
        "lidar_points": {"num_pts_feats": 5, "lidar_path": Path(lidar_file).name, "lidar2ego": lidar2ego},
        "images": {
            name: {
                "img_path": Path(cameras.file[frame, number].decode()).name,
                "cam2img": cameras.intrinsics[frame, number].tolist(),
                "cam2ego": _matrix(cameras.ego_from_camera[frame, number]),
                "lidar2cam": _matrix(cameras.camera_from_base[frame, number]),
                "timestamp": float(cameras.time[frame, number]),
            }
            for number, name in enumerate(CAMERAS)
        },
        "instances": [
            {
                "bbox_label": int(of.category[row]),
                "bbox_label_3d": int(of.category[row]),
                "bbox_3d": boxes[row].tolist(),
                "bbox_3d_isvalid": np.bool_(of.num_lidar_points[row] + of.num_radar_points[row] > 0),
                "num_lidar_pts": np.int64(of.num_lidar_points[row]),
                "num_radar_pts": np.int64(of.num_radar_points[row]),
                "velocity": of.velocity[row, :2].tolist(),
            }
            for row in range(int(of.first[frame]), int(of.first[frame + 1]))
        ],
        "cam_instances": {
            name: [
                {
                    "bbox": index.boxes_2d.box[row].tolist(),
                    "bbox_label": int(index.boxes_2d.category[row]),
                    "bbox_3d": [*place.tolist(), 1.0, 1.0, 1.0, 0.0],
                    "center_2d": index.boxes_2d.center[row].tolist(),
                    "depth": float(index.boxes_2d.depth[row]),
                    "attr_label": int(row % 9),
                }
                for row, place in zip(rows, places, strict=True)
            ]
            for name, (rows, places) in zip(CAMERAS, _images(index, frame), strict=True)
        },
    }
    sweeps = [
        {
            "timestamp": float(lidar.time[record]),
            "ego2global": _matrix(_world_from_ego_of(index, frame, record)),
            "lidar_points": {"lidar_path": prefix + lidar.file[record].decode(), "lidar2ego": lidar2ego},
        }
        for record in _sweeps(index, frame)
    ]
    return entry | ({"lidar_sweeps": sweeps} if sweeps else {})
