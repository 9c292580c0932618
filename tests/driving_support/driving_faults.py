"""The mistakes that are made when driving data are read: each changes an index, consistently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.driving_index import DrivingIndex, first_column

Change = Callable[[DrivingIndex], DrivingIndex]


def _with(table: str, **columns: Any) -> Callable[[DrivingIndex], DrivingIndex]:
    """Columns are functions of the index."""

    def changed(index: DrivingIndex) -> DrivingIndex:
        values = {name: of(index) for name, of in columns.items()}
        return attrs.evolve(index, **{table: attrs.evolve(getattr(index, table), **values)}, boxes_2d=None)

    return changed


def _of(table: str, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """A column is a function of what it was."""
    return _with(table, **{name: lambda index: change(np.array(getattr(getattr(index, table), name)))})


def _vehicle(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return _of("frames", "world_from_ego", change)


def _cameras(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Change where cameras are, in both of their poses."""

    def from_base(index):
        mounted = change(np.array(index.cameras.ego_from_camera))
        return poses.joined(poses.inverse(mounted), np.asarray(index.frames.ego_from_base)[:, np.newaxis])

    return _with(
        "cameras",
        ego_from_camera=lambda index: change(np.array(index.cameras.ego_from_camera)),
        camera_from_base=from_base,
    )


def _in_world(index: DrivingIndex) -> DrivingIndex:
    world_from_ego = np.asarray(index.frames.world_from_ego)[:, np.newaxis]
    return _cameras(lambda pose: poses.joined(world_from_ego, pose))(index)


def _transposed(pose: np.ndarray) -> np.ndarray:
    return poses.pose(np.swapaxes(pose[..., :3], -1, -2), pose[..., 3])


def _w_last(quaternion: np.ndarray) -> np.ndarray:
    """What is read where w is the last of four numbers, but taken for the first."""
    return quaternion[..., [1, 2, 3, 0]]


def _quaternion_read_wrongly(pose: np.ndarray) -> np.ndarray:
    return poses.pose_of_quaternion(_w_last(poses.quaternion_of_rotation(pose[..., :3])), pose[..., 3])


def _frame(index: DrivingIndex) -> np.ndarray:
    return np.repeat(np.arange(index.num_frames), np.diff(index.boxes.first))


def _world_from_base(index: DrivingIndex) -> np.ndarray:
    """At each box."""
    frames = index.frames
    return poses.joined(np.asarray(frames.world_from_ego), np.asarray(frames.ego_from_base))[_frame(index)]


def _yaws(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return _of("boxes", "rotation", lambda turn: poses.quaternion_of_yaw(change(poses.yaw_of_quaternion(turn))))


def _own_velocity(index: DrivingIndex) -> np.ndarray:
    place, time = np.asarray(index.frames.world_from_ego)[..., 3], np.asarray(index.frames.time)
    velocity = np.zeros_like(place)
    for first, end in np.stack([index.frames.first_of_scene[:-1], index.frames.first_of_scene[1:]], axis=-1):
        velocity[first:end] = np.gradient(place[first:end], time[first:end], axis=0)
    return poses.turned(poses.inverse(_world_from_base(index)), velocity[_frame(index)])


def _centers_exchanged(matrix: np.ndarray) -> np.ndarray:
    changed = matrix.copy()
    changed[..., :2, 2] = matrix[..., 1::-1, 2]
    return changed


def _sides_exchanged(index: DrivingIndex) -> DrivingIndex:
    sides = {"LEFT": "RIGHT", "RIGHT": "LEFT", "left": "right", "right": "left"}
    names = ["_".join(sides.get(word, word) for word in name.split("_")) for name in index.camera_names]
    return attrs.evolve(index, camera_names=names)


def _times(factor: float) -> Change:
    def changed(index):
        index = _of("frames", "time", lambda time: time * factor)(index)
        return _of("cameras", "time", lambda time: time * factor)(index)

    return changed


def _late(index: DrivingIndex) -> DrivingIndex:
    """Boxes of the frame before; those of the first frame twice."""
    frames, first = np.arange(index.num_frames), np.asarray(index.boxes.first)
    of_frame = np.maximum(frames - 1, index.frames.first_of_scene[[index.scene_of(frame) for frame in frames]])
    rows = np.concatenate([np.arange(first[frame], first[frame + 1]) for frame in of_frame])
    columns = {column.name: getattr(index.boxes, column.name) for column in attrs.fields(type(index.boxes))}
    kept = {name: values[rows] for name, values in columns.items() if values is not None and name != "first"}
    kept["first"] = first_column(np.diff(first)[of_frame])
    return attrs.evolve(index, boxes=attrs.evolve(index.boxes, **kept), boxes_2d=None)


def _boxes(change: Callable[[np.ndarray], np.ndarray], yaw: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Change the axes of all that boxes have."""

    def changed(index):
        for name in ("center", "velocity"):
            index = _of("boxes", name, change)(index)
        return _yaws(yaw)(index)

    return changed


def _upright(hint: str) -> str:
    return rf"images must be upright: sample \d+, {CAMERA}its y axis is \d+ deg off straight down(.*\n)*.*{hint}"


def _inside(hint: str) -> str:
    return f"the principal point is .*: {hint}"


HEADING, SEEM = "vehicles must move along their heading: .*boxes.yaws: .*", "Yaws seem to be"
STANDING = r"objects that stand must stay where they are in the world: sample \d+: three quarters .*"
VELOCITY = r"velocities must be those of the motion: sample \d+, boxes.velocities: an object has .*"
DRIVING = r"the vehicle must drive ahead: sample \d+, ego.world_from_ego: "
SIZES, CAMERA = "vehicles must have the size of vehicles: .*", r"camera 0 '\w+': "
IN_WORLD = "Boxes seem to be in the world: give them|Give their centers in the reference frame, not in the world"
MILLIMETERS = [1, 1, 1, 1000]


def _rotation_in_world(index: DrivingIndex) -> np.ndarray:
    turn = poses.quaternion_of_rotation(_world_from_base(index)[..., :3])
    return poses.product_of_quaternions(turn, index.boxes.rotation)


def _focal_in_mm(matrix: np.ndarray) -> np.ndarray:
    return np.where(np.eye(3) > [[0.0], [0], [1]], 2.0, matrix)


def _sizes(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return _of("boxes", "size", change)


def _intrinsics(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return _of("cameras", "intrinsics", change)


def _velocities(change: Callable[[np.ndarray, DrivingIndex], np.ndarray]) -> Change:
    return _with("boxes", velocity=lambda index: change(index.boxes.velocity, index))


# What is wrong, and what is said of it.
FAULTS: dict[str, tuple[Change, str]] = {
    "cameras in the world": (
        _in_world,
        f"{CAMERA}moves as the vehicle does(.*\n)*.*Give ego_from_camera, not world_",
    ),
    "cameras in mm": (
        _cameras(lambda pose: pose * MILLIMETERS),
        rf"{CAMERA}is \d+ m from the vehicle's origin(.*\n)*.*Give meters",
    ),
    "camera rotation transposed": (_cameras(_transposed), _upright("transposed")),
    "camera pose inverted": (_cameras(poses.inverse), _upright("not its inverse")),
    "camera axes of OpenGL": (_cameras(lambda pose: pose * [1, -1, -1, 1]), _upright("x right, y up, z back")),
    "camera quaternions": (_cameras(_quaternion_read_wrongly), "must be upright: (.*\n)*.*order of quaternions"),
    "names of cameras exchanged": (_sides_exchanged, "looks to the"),
    "cx and cy exchanged": (_intrinsics(_centers_exchanged), _inside("cx and cy seem to be exch")),
    "intrinsics of twice the size": (
        _intrinsics(lambda matrix: matrix * [[2.0], [2], [1]]),
        _inside(r"seems to be of images of about \d+ x \d+"),
    ),
    "focal length in mm": (_intrinsics(_focal_in_mm), "focal lengths are 2 and 2, which sees 17. deg"),
    "yaw with the wrong sign": (_yaws(np.negative), f"{HEADING}{SEEM} mirrored"),
    "yaw in degrees": (_yaws(np.rad2deg), f"{HEADING}(Check yaws: radians|Yaws seem)"),
    "yaw of the width": (_yaws(lambda yaw: yaw + np.pi / 2), f"{HEADING}{SEEM} turned by 90 deg"),
    "yaw in the world": (_with("boxes", rotation=_rotation_in_world), f"{HEADING}{SEEM} in the world"),
    "vehicle pose inverted": (_vehicle(poses.inverse), "The pose seems to be ego_from_world: give world_from_ego"),
    "vehicle rotation transposed": (_vehicle(_transposed), "rotation seems to be transposed: give world_from_ego"),
    "vehicle quaternion": (_vehicle(_quaternion_read_wrongly), f"{DRIVING}the vehicle moves|objects .* jump"),
    "vehicle place in mm": (_vehicle(lambda pose: pose * MILLIMETERS), f"{DRIVING}the vehicle drives at .* m/s"),
    "length and width exchanged": (
        _sizes(lambda size: size[:, [1, 0, 2]]),
        "vehicles must be longer than wide: .*Exchange the first two columns",
    ),
    "sizes in cm": (_sizes(lambda size: size * 100), f"{SIZES}Give meters"),
    "sizes from height on": (_sizes(lambda size: size[:, [2, 1, 0]]), f"{SIZES}in this order"),
    "velocities in the world": (
        _velocities(lambda velocity, index: poses.turned(_world_from_base(index), velocity)),
        f"{VELOCITY}in the world: turn them into the reference frame",
    ),
    "velocities relative": (
        _velocities(lambda velocity, index: velocity - _own_velocity(index)),
        f"{VELOCITY}relative to the vehicle",
    ),
    "velocities in km/h": (
        _velocities(lambda velocity, index: 3.6 * velocity),
        rf"{VELOCITY}3\.[5-7]\d? times too fast: give m/s",
    ),
    "times in ms": (_times(1e3), "times must be seconds: .*Give seconds .of milliseconds"),
    "boxes in the world": (
        _with("boxes", center=lambda index: poses.moved(_world_from_base(index), index.boxes.center)),
        IN_WORLD,
    ),
    "boxes in cm": (
        _of("boxes", "center", lambda center: center * 100),
        "must be around the vehicle: .*in meters",
    ),
    "boxes mirrored": (_boxes(lambda of: of * [1, -1, 1], np.negative), f"{STANDING}Boxes seem to be mirrored"),
    "boxes in axes of another lidar": (
        _boxes(lambda of: of[:, [1, 0, 2]] * [-1, 1, 1], lambda yaw: yaw + np.pi / 2),
        f"{STANDING}Boxes seem to be turned by 90 deg",
    ),
    "boxes one frame late": (_late, f"{STANDING}Boxes seem to be those of the frame before"),
}
