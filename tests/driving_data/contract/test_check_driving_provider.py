"""What `check_provider` says of driving data, and providers that break one rule each."""

from __future__ import annotations

import contextlib
import functools
import operator
import re

import attrs
import numpy as np
import pytest
from driving_support.driving_data import write_driving_data

from accvlab.dali_pipeline_framework.errors import ContractError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.contract.driving_contract import driving_problems
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.datasets.driving import poses

ALL = {
    "lidar": True,
    "num_sweeps": 1,
    "boxes_2d": True,
    "num_future_frames": 1,
    "num_ego_future_frames": 1,
    "map_lines": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("driving")
    return write_driving_data(root), root


def with_row(row, value):
    def changed(array):
        array = np.array(array)
        array[row] = value
        return array

    return changed


def times(factor):
    return lambda array: np.asarray(array) * np.asarray(factor, np.asarray(array).dtype)


def turned(*diagonal):
    return lambda matrix: np.diag(diagonal) @ matrix


CAMERA, BOXES_2D, POSE = ("cameras", 0), ("cameras", 0, "boxes_2d"), ("cameras", 0, "camera_from_reference")
OF_POSE, AGREE = "cameras[0].camera_from_reference: ", "they agree: give that"
TURNED = "must be about inverse(ego_from_camera) @ ego_from_reference, but the two are 180 degrees and 0.0 m apart"
ADVICE = "0.01 s from the frame. Check which of them is the inverse"
LENGTHS = "boxes: all fields must have one number of elements, got centers: 3, sizes: 3, yaws: 3, velocities: 2"
FAR = np.array([[0, 0, 0, 11.0], *np.zeros((3, 4))])
CASES = [
    (("ego", "world_from_ego"), times(1.5), "ego.world_from_ego: its last row must be 0, 0, 0, 1"),
    (POSE, turned(-1, 1, 1, 1), f"{OF_POSE}its rotation must be orthonormal, got a mirror image"),
    ((*CAMERA, "ego_from_camera"), turned(1.1, 1.1, 1.1, 1), "its rotation must be orthonormal, got off by 0.21"),
    (
        ("ego", "world_from_reference"),
        with_row((0, 3), 7.0),
        "ego.world_from_reference: must be world_from_ego @ ego",
    ),
    (
        (*CAMERA, "intrinsics"),
        with_row((0, 0), 0.0),
        "cameras[0].intrinsics: focal lengths must be above 0, got 0.0",
    ),
    ((*CAMERA, "intrinsics"), np.transpose, "intrinsics: must be [[fx, skew, cx], [0, fy, cy], [0, 0, 1]]"),
    (("boxes", "sizes"), with_row((2, 1), 0.0), "boxes.sizes: must be above 0, got ... in row 2"),
    (("boxes", "yaws"), with_row(1, 3.5), "boxes.yaws: must be in [-pi, pi], got 3.5 in row 1"),
    (("boxes", "centers"), with_row(0, np.nan), "boxes.centers: must be finite, row 0 is not"),
    (("boxes", "categories"), with_row(0, 3), "boxes.categories: must be in [-1, 2], got 3 in row 0"),
    (("boxes", "sizes"), lambda array: array[:2], "boxes: all fields ...sizes: 2"),
    (("boxes", "attributes"), with_row(0, 2), "boxes.attributes: must be in [-1, 1], got 2"),
    (("boxes", "visibilities"), with_row(0, -1), "boxes.visibilities: must be in [0, 4], got -1"),
    (("boxes", "instances"), with_row(0, 9), "boxes.instances: must be there once in a frame, got 9"),
    (("boxes", "velocities"), lambda array: array[:2], LENGTHS),
    ((*BOXES_2D, "boxes"), lambda array: array[:, [2, 3, 0, 1]], "boxes_2d.boxes: must be x1 <= x2 and y1 <= y2"),
    ((*BOXES_2D, "box_rows"), with_row(0, 3), "cameras[0].boxes_2d.box_rows: must be in [-1, 2], got 3 in row 0"),
    (
        POSE,
        turned(1, -1, -1, 1),
        "boxes_2d.box_rows: ...in front of the camera, that of the 2D box ... the depth -",
    ),
    (("lidar", "points"), lambda array: array[:, :4], "lidar.points: must have 5 columns (x, y, z"),
    (POSE, turned(-1, -1, 1, 1), f"{OF_POSE}{TURNED}, {ADVICE}"),
    (POSE, lambda array: array + FAR, f"{OF_POSE}... the two are 0 degrees and 11.0 m apart"),
    ((*CAMERA, "ego_from_camera"), np.linalg.inv, f"{OF_POSE}...With the inverse of ego_from_camera {AGREE}"),
    (POSE, np.linalg.inv, f"{OF_POSE}...With the inverse of camera_from_reference {AGREE}"),
    ((*CAMERA, "timestamp"), times(1e6), "must be within 10 s of the frame's, got ...Give both in seconds"),
    (("lidar", "timestamp"), times(1e3), "lidar.timestamp: must be within 10 s of the frame's"),
    (("map_lines", "points"), lambda array: array[:2], "map_lines.num_points: must add up to 2, got 6"),
    (("is_first",), lambda array: np.array(True), "is_first: must be whether `frame` is 0"),
]


def test_what_is_right_passes(data):
    check_provider(DrivingProvider(*data, **ALL), num_workers=0)
    check_provider(DrivingProvider(*data, reference="ego", **ALL), num_workers=0)


@pytest.mark.parametrize(("path", "change", "words"), CASES)
def test_the_field_that_breaks_a_rule_is_named(data, path, change, words):
    provider = DrivingProvider(*data, **ALL)
    sample = provider.get_data(2 if path[0] == "map_lines" else 1)
    *groups, name = path
    group = functools.reduce(operator.getitem, groups, sample)
    group[name] = change(group[name])
    pattern = ".*".join(map(re.escape, words.split("...")))
    found = "\n".join(driving_problems(provider, sample))
    assert re.search(pattern, found), found


def test_places_of_the_vehicle_are_checked(data):
    provider = DrivingProvider(*data)
    sample, turn = provider.get_data(1), np.tile(np.diag([1.1, 1, 1]), (2, 1, 1))
    places = {"times": np.array([0.5, 0.0]), "rotations": turn, "positions": np.ones((2, 3))}
    found = [*driving_problems(provider, {name: sample[name] for name in sample} | {"ego_history": places})]
    assert [problem.partition(", got ")[0] for problem in found] == [
        "ego_history: its rotation must be orthonormal",
        "ego_history.times: must ascend",
        "ego_history: must be in the frame of the vehicle at the time of the frame",
    ]


def test_the_sample_is_named(data):
    class Changed(DrivingProvider):
        def get_data(self, sample_index):
            sample = super().get_data(sample_index)
            sample["boxes"]["yaws"] = sample["boxes"]["yaws"] + 7 * (sample_index == 1)
            return sample

    rule = r"must be as DrivingProvider says: sample 1\n(.*\n)*.*boxes.yaws: must be in"
    with pytest.raises(ContractError, match=rule):
        check_provider(Changed(*data, **ALL), num_workers=0)


@pytest.mark.parametrize("offsets", [(-0.2, -0.1), (-0.2, -0.1, 0.0)])
def test_2d_boxes_are_those_of_the_frame_where_there_are_images_of_several_times(data, offsets):
    """The vehicle drove backward by more than 60 m/s: of earlier images, the boxes are behind the camera."""
    provider = DrivingProvider(*data, **ALL)
    sample = provider.get_data(1)
    camera, (row, *_) = sample["cameras"][0], sample["cameras"][0]["boxes_2d"]["box_rows"]
    mounted = np.linalg.inv(camera["ego_from_camera"]) @ sample["ego"]["ego_from_reference"]
    center = sample["boxes"]["centers"][row]
    depth = float(mounted[2, :3] @ center + mounted[2, 3])
    assert 0 < depth < 6.5
    matrices = np.tile(mounted, (len(offsets), 1, 1))
    matrices[:, 2, 3] += 65 * np.array(offsets)
    several = {name: camera[name] for name in camera} | {
        "timestamp": sample["timestamp"] + np.array(offsets),
        "camera_from_reference": matrices,
    }
    plain = {name: sample[name] for name in sample} | {"cameras": {0: several}}
    assert driving_problems(provider, plain) == []
    plain["boxes"] = {name: np.array(plain["boxes"][name]) for name in plain["boxes"]}
    plain["boxes"]["centers"][row] -= 2 * depth * mounted[2, :3]
    assert driving_problems(provider, plain) == [
        f"cameras[0].boxes_2d.box_rows: the centers of these boxes must be in front of the camera, that of the 2D "
        f"box 0 has the depth {-depth:.3f} by camera_from_reference"
    ]


def test_times_must_ascend(data):
    index, root = data
    time = index.frames.time.copy()
    time[1] = time[2]
    changed = attrs.evolve(index, frames=attrs.evolve(index.frames, time=time))
    rule = r"times must ascend in each scene: scene 'scene-a', sample 2, timestamp: must be after"
    with pytest.raises(ContractError, match=rule):
        check_provider(DrivingProvider(changed, root), num_workers=0)


def test_a_camera_may_move_between_the_two_times(data):
    index, root = data
    camera_from_base = index.cameras.camera_from_base.copy()
    camera_from_base[..., 3] += [5.0, 3.0, 4.0]
    turn = poses.pose_of_quaternion(poses.quaternion_of_yaw(np.deg2rad(15)), np.zeros(3))
    moved = attrs.evolve(index.cameras, camera_from_base=poses.joined(turn, camera_from_base))
    check_provider(DrivingProvider(attrs.evolve(index, cameras=moved), root), num_workers=0)


@pytest.mark.parametrize(
    ("name", "size", "is_wrong"),
    [
        ("car", [1.9, 4.5, 1.6], True),
        ("BUS", [1.9, 4.5, 1.6], True),
        ("vehicle.bus.rigid", [1.9, 4.5, 1.6], True),
        ("car", [4.5, 1.9, 1.6], False),
        ("barrier of concrete", [0.5, 2.5, 1.0], False),
    ],
)
def test_vehicles_must_be_longer_than_wide(data, name, size, is_wrong):
    index, root = data
    none = np.zeros(8, np.int32)
    boxes = attrs.evolve(index.boxes, size=np.tile(np.array(size), (8, 1)), category=none, attribute=None)
    changed = attrs.evolve(index, boxes=boxes, boxes_2d=None, categories=(name, "pedestrian", "barrier"))
    message = (
        r"vehicles must be longer than wide: sample 0, boxes.sizes: length, width, height of a vehicle are "
        r"\[1.9, 4.5, 1.6\]; of 8 boxes of vehicles in these samples, 8 are wider than long. Exchange"
    )
    with pytest.raises(ContractError, match=message) if is_wrong else contextlib.nullcontext():
        check_provider(DrivingProvider(changed, root), num_workers=0)
