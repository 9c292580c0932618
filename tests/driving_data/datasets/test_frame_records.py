"""An index of records of frames: exact poses, boxes and projections; wrong records with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from support.arrays import encoded_image, gradient
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import (
    CameraImage,
    DrivingFrame,
    DrivingProvider,
    ObjectBox,
    index_of_frames,
    poses,
)

LOOKING_AHEAD = np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])
SIZES = {"front": (60, 100), "rear": (40, 80)}


def camera_of(name: str, file: str, time: float | None = None) -> CameraImage:
    height, width = SIZES[name]
    turn = poses.rotation_of_quaternion(poses.quaternion_of_yaw(0.0 if name == "front" else np.pi))
    return CameraImage(
        file=file,
        intrinsics=[[width / 2, 0, width / 2], [0, width / 2, height / 2], [0, 0, 1]],
        ego_from_camera=poses.pose(turn @ LOOKING_AHEAD, [1.5 if name == "front" else -0.5, 0, 1.6]),
        time=time,
    )


def records(lag_s: float = 0.0) -> list[DrivingFrame]:
    """Two drives of 3 and 2 frames at 10 m/s; a car stands 20 m ahead of the first place."""
    frames = []
    for scene, count in (("monday", 3), ("tuesday", 2)):
        for number in range(count):
            time = 100 + 0.5 * number
            ahead = ObjectBox(
                center=[20 - 5.0 * number, 1, 0.8],
                size=[4, 2, 1.6],
                yaw=0.1,
                category="car",
                track="a",
                velocity=[0, 0],
            )
            cameras = {
                name: camera_of(name, f"{scene}-{number}-{name}.jpg", time - lag_s if lag_s else None)
                for name in SIZES
            }
            if number == 1:
                del cameras["rear"]
            world_from_ego = poses.as_matrix(poses.pose(np.eye(3), [5.0 * number, 0, 0]))
            frames.append(
                DrivingFrame(scene=scene, time=time, world_from_ego=world_from_ego, cameras=cameras, boxes=[ahead])
            )
    return frames


def write_files(root: Path) -> Path:
    for frame in records():
        for name, image in frame.cameras.items():
            (root / image.file).write_bytes(bytes(encoded_image(gradient(*SIZES[name]), "JPEG")))
    return root


def test_columns() -> None:
    index = index_of_frames(records())
    assert repr(index) == "DrivingIndex(5 frames in 2 scene(s), 2 camera(s), boxes, base: ego)"
    assert (index.camera_names, index.categories) == (("front", "rear"), ("car",))
    assert index.frames.token.tolist() == [b"monday/0", b"monday/1", b"monday/2", b"tuesday/0", b"tuesday/1"]
    assert index.frames.first_of_scene.tolist() == [0, 3, 5]
    assert index.boxes is not None
    np.testing.assert_array_equal(index.boxes.center[:, 0], [20, 15, 10, 20, 15])
    assert index.boxes.instance is not None
    assert index.boxes.instance.tolist() == [0] * 5
    assert index.cameras is not None
    assert index.cameras.file[1].tolist() == [b"monday-1-front.jpg", b""]
    np.testing.assert_allclose(index.cameras.camera_from_base[2, 0] @ [20, 1, 1.6, 1], [-1, 0, 18.5])


def test_an_image_before_its_frame_has_the_pose_of_its_time() -> None:
    """0.1 s at 10 m/s: the camera was 1 m further back."""
    cameras = index_of_frames(records(lag_s=0.1)).cameras
    assert cameras is not None
    for frame, depth in ((2, 19.5), (0, 18.5)):  # the last is before the first known place
        point = cameras.camera_from_base[frame, 0] @ [20, 1, 1.6, 1]
        np.testing.assert_allclose(point, [-1, 0, depth], atol=1e-9)


def test_a_virtual_lidar() -> None:
    turn = poses.pose_of_quaternion(poses.quaternion_of_yaw(-np.pi / 2), [1, 0, 1.8])  # x to the right, y ahead
    own, of_lidar = index_of_frames(records()).cameras, index_of_frames(records(), ego_from_lidar=turn)
    boxes, cameras = of_lidar.boxes, of_lidar.cameras
    assert own is not None
    assert boxes is not None
    assert cameras is not None
    assert of_lidar.base == "lidar"
    np.testing.assert_allclose(boxes.center[0], [-1, 19, -1], atol=1e-9)
    np.testing.assert_allclose(poses.yaw_of_quaternion(boxes.rotation[0]), 0.1 + np.pi / 2)
    moved = poses.joined(cameras.camera_from_base, poses.inverse(turn))
    np.testing.assert_allclose(moved, own.camera_from_base, atol=1e-9)


def test_the_provider_is_plausible_and_projects_2d_boxes(tmp_path: Path) -> None:
    frames = [attrs.evolve(frame, cameras={"front": frame.cameras["front"]}) for frame in records()]
    provider = DrivingProvider(index_of_frames(frames), write_files(tmp_path), boxes_2d=True)
    check_provider(provider, num_workers=0)
    found = provider.get_data(2)["cameras"][0]["boxes_2d"]
    np.testing.assert_allclose(found["centers"], [[50 - 50 / 8.5, 30 + 50 * 0.8 / 8.5]], rtol=1e-6)
    np.testing.assert_allclose(found["depths"], [8.5])
    assert found["box_rows"].tolist() == [0]
    (box,) = found["boxes"]
    assert (box[:2] < found["centers"][0]).all()
    assert (box[2:] > found["centers"][0]).all()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    words = "reference: the data set has none...`index_of_frames(...ego_from_lidar"
    assert_refused(lambda: DrivingProvider(index_of_frames(records()), tmp_path, reference="lidar"), words)
    words = "`categories` lacks 'car', of boxes; it has bus"
    assert_refused(lambda: index_of_frames(records(), categories=["bus"]), words)
    boxes = index_of_frames(records(), categories=["bus", "car"]).boxes
    assert boxes is not None
    assert boxes.category.tolist() == [1] * 5


def changed(**changes: Any) -> list[DrivingFrame]:
    first, second, *others = records()
    return [first, attrs.evolve(second, **changes), *others]


def with_box(**changes: Any) -> list[DrivingFrame]:
    (box,) = records()[1].boxes or ()
    return changed(boxes=[attrs.evolve(box, **changes)])


def with_camera(**changes: Any) -> list[DrivingFrame]:
    return changed(cameras={"front": attrs.evolve(records()[1].cameras["front"], **changes)})


PLACE = "the frame at 100.5 s of the scene 'monday'"
FRONT, BOX, OF_BOX = f"{PLACE}: cameras['front']", f"{PLACE}: boxes[0]", f"{PLACE}: a box ('car')"
REFUSED = {
    "at least one frame": [],
    "the frame at 99.0 s of the scene 'monday' follows on 100.0 s": changed(time=99.0),
    f"{PLACE}: `world_from_ego` must be finite numbers of the shape (3, 4)": changed(world_from_ego=np.eye(3)),
    f"{PLACE}: `world_from_ego` must be a rotation and a translation": changed(world_from_ego=2 * np.eye(4)),
    "All frames or none must have `boxes`, but 1 of 5 have None": changed(boxes=None),
    f"{OF_BOX}: `size` must be finite numbers of the shape (3,)": with_box(size=[1, 2]),
    "frame 'monday/1' in the scene 'monday': a box must be finite numbers with sizes": with_box(size=[4, -2, 1]),
    f"{OF_BOX}: `yaw` must be in radians, got -90, more than two turns": with_box(yaw=-90),
    "`scene` must be text, got 5": [attrs.evolve(records()[1], scene=5)],
    f"{PLACE}: `cameras` must be a dict of images by name": changed(cameras=[CameraImage(file="a.jpg")]),
    f"{PLACE}: the name of a camera must be text, got 0": changed(cameras={0: CameraImage(file="a.jpg")}),
    f"{FRONT} must be a CameraImage, got 'a.jpg'": changed(cameras={"front": "a.jpg"}),
    f"{FRONT}.intrinsics must be": with_camera(intrinsics=np.eye(4)),
    f"{FRONT}.ego_from_camera must be a rotation": with_camera(ego_from_camera=np.zeros((3, 4))),
    f"{FRONT}.time must be a finite number, got '1'": with_camera(time="1"),
    f"{FRONT}.video_frame` must be a whole number of at least 0, got -1": with_camera(video_frame=-1),
    "`video_frame` must be given for all images of a camera or none": with_camera(video_frame=3),
    f"{FRONT}.file must be the path of a file, got None": with_camera(file=None),
    f"{PLACE}: `boxes` must be a list of ObjectBox, got 5": changed(boxes=5),
    f"{BOX} must be an ObjectBox, got {{": changed(boxes=[{"category": "car"}]),
    f"{BOX}: `category` must be a name, got 3": with_box(category=3),
    f"{BOX}: `track` must be a whole number, text or None, got [1]": with_box(track=[1]),
    "must be of the class DrivingFrame, got": [{"scene": "monday"}],
    "frame 'a' in the scene 'monday': its token is that of an earlier frame": [
        attrs.evolve(frame, token="a") for frame in records()[1:3]
    ],
}


@pytest.mark.parametrize("words", REFUSED)
def test_wrong_records_are_named(words: str) -> None:
    assert_refused(lambda: index_of_frames(REFUSED[words]), words)


def test_times_that_are_no_mistakes() -> None:
    """From the start of a drive, with a pause of minutes, and headings that are counted on."""
    times = [0.0, 0.5, 300.0]
    frames = [attrs.evolve(frame, time=time) for frame, time in zip(with_box(yaw=7.0), times, strict=False)]
    assert index_of_frames(frames).frames.time.tolist() == times
