"""What `check_provider` says of driving data, and providers that break one rule each."""

from __future__ import annotations

import contextlib

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


class Changed(DrivingProvider):
    """Samples with one value changed."""

    change = ()

    def get_data(self, sample_index):
        sample = super().get_data(sample_index)
        if sample_index == 1:
            *groups, name, changed = self.change
            group = sample
            for each in groups:
                group = group[each]
            group[name] = changed(group[name])
        return sample


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


def shift(meters):
    matrix = np.zeros((4, 4))
    matrix[0, 3] = meters
    return matrix


CASES = {
    "rotation": (("ego", "world_from_ego", times(1.5)), r"ego.world_from_ego: its last row must be 0, 0, 0, 1"),
    "mirror": (
        ("cameras", 1, "camera_from_reference", times([[-1.0], [1], [1], [1]])),
        r"cameras\[1\].camera_from_reference: its rotation must be orthonormal, got a mirror image",
    ),
    "scale": (
        ("cameras", 0, "ego_from_camera", times([[1.1], [1.1], [1.1], [1]])),
        r"cameras\[0\].ego_from_camera: its rotation must be orthonormal, got off by 0.21",
    ),
    "chain": (
        ("ego", "world_from_reference", with_row((0, 3), 7.0)),
        "ego.world_from_reference: must be world_from_ego @ ego_from_reference",
    ),
    "focal": (
        ("cameras", 0, "intrinsics", with_row((0, 0), 0.0)),
        r"cameras\[0\].intrinsics: focal lengths must be above 0, got 0.0 and",
    ),
    "intrinsics": (
        ("cameras", 0, "intrinsics", np.transpose),
        r"cameras\[0\].intrinsics: must be \[\[fx, skew, cx\], \[0, fy, cy\], \[0, 0, 1\]\]",
    ),
    "sizes": (("boxes", "sizes", with_row((2, 1), 0.0)), r"boxes.sizes: must be above 0, got .* in row 2"),
    "yaws": (("boxes", "yaws", with_row(1, 3.5)), r"boxes.yaws: must be in \[-pi, pi\], got 3.5 in row 1"),
    "centers": (("boxes", "centers", with_row(0, np.nan)), "boxes.centers: must be finite, row 0 is not"),
    "categories": (
        ("boxes", "categories", with_row(0, 3)),
        r"boxes.categories: must be in \[-1, 2\], got 3 in row 0",
    ),
    "categories far out": (("boxes", "categories", with_row(0, 99)), r"boxes.categories: .*got 99 in row 0"),
    "lengths of sizes": (("boxes", "sizes", lambda array: array[:2]), "boxes: all fields .*sizes: 2"),
    "attributes": (("boxes", "attributes", with_row(0, 2)), r"boxes.attributes: must be in \[-1, 1\], got 2"),
    "visibilities": (
        ("boxes", "visibilities", with_row(0, -1)),
        r"boxes.visibilities: must be in \[0, 4\], got -1",
    ),
    "instances": (("boxes", "instances", with_row(0, 9)), "boxes.instances: must be there once in a frame, got 9"),
    "lengths": (
        ("boxes", "velocities", lambda array: array[:2]),
        "boxes: all fields must have one number of elements, got centers: 3, sizes: 3, yaws: 3, velocities: 2",
    ),
    "corners": (
        ("cameras", 0, "boxes_2d", "boxes", lambda array: array[:, [2, 3, 0, 1]]),
        r"cameras\[0\].boxes_2d.boxes: must be x1 <= x2 and y1 <= y2",
    ),
    "rows": (
        ("cameras", 0, "boxes_2d", "box_rows", with_row(0, 3)),
        r"cameras\[0\].boxes_2d.box_rows: must be in \[-1, 2\], got 3 in row 0",
    ),
    "depth": (
        ("cameras", 0, "camera_from_reference", lambda array: np.diag([1.0, -1, -1, 1]) @ array),
        r"cameras\[0\].boxes_2d.box_rows: .*in front of the camera, that of the 2D box \d has the depth -",
    ),
    "points": (("lidar", "points", lambda array: array[:, :4]), r"lidar.points: must have 5 columns \(x, y, z"),
    "camera turned": (
        ("cameras", 0, "camera_from_reference", lambda array: np.diag([-1.0, -1, 1, 1]) @ array),
        r"cameras\[0\].camera_from_reference: must be about inverse\(ego_from_camera\) @ ego_from_reference, but "
        r"the two are 180 degrees and 0.0 m apart, 0.01 s from the frame. Check which of them is the inverse",
    ),
    "camera elsewhere": (
        ("cameras", 0, "camera_from_reference", lambda array: array + shift(11.0)),
        r"cameras\[0\].camera_from_reference: .* the two are 0 degrees and 11.0 m apart",
    ),
    "mounting": (
        ("cameras", 0, "ego_from_camera", np.linalg.inv),
        r"cameras\[0\].camera_from_reference: .*With the inverse of ego_from_camera they agree: give that",
    ),
    "pose": (
        ("cameras", 0, "camera_from_reference", np.linalg.inv),
        r"cameras\[0\].camera_from_reference: .*With the inverse of camera_from_reference they agree: give that",
    ),
    "microseconds": (
        ("cameras", 1, "timestamp", times(1e6)),
        r"cameras\[1\].timestamp: must be within 10 s of the frame's, got .*Give both in seconds",
    ),
    "time of points": (("lidar", "timestamp", times(1e3)), r"lidar.timestamp: must be within 10 s of the frame's"),
    "lines": (
        ("map_lines", "points", lambda array: np.zeros_like(array, shape=(2, 2))),
        "map_lines.num_points: must add up to 2, got 0",
    ),
    "first": (("is_first", lambda array: np.array(True)), "is_first: must be whether `frame` is 0"),
}


def test_what_is_right_passes(data):
    index, root = data
    check_provider(DrivingProvider(index, root, **ALL), num_workers=0)
    check_provider(DrivingProvider(index, root, reference="ego", **ALL), num_workers=0)


@pytest.mark.parametrize("case", CASES)
def test_names_sample_and_field(data, case):
    index, root = data
    change, message = CASES[case]
    provider = Changed(index, root, **ALL)
    provider.change = change
    with pytest.raises(
        ContractError, match=rf"must be as DrivingProvider says: sample 1\n(.*\n)*.*{message}"
    ) as raised:
        check_provider(provider, num_workers=0)
    assert "IndexError" not in str(raised.value)


@pytest.mark.parametrize("offsets", [(-0.2,), (-0.1, 0.0), (-0.2, -0.1), (-0.2, -0.1, 0.0)])
def test_2d_boxes_are_those_of_the_frame_where_there_are_images_of_several_times(data, offsets):
    """The vehicle drove backward by more than 60 m/s: of earlier images, the boxes are behind the camera."""
    index, root = data
    provider = DrivingProvider(index, root, **ALL)
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
    with pytest.raises(
        ContractError,
        match=r"times must ascend in each scene: scene 'scene-a', sample 2, timestamp: must be after",
    ):
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
