"""Sensor logs of Argoverse 2."""

import shutil

import numpy as np
import pytest
from driving_support.argoverse import AXES, IMAGE_TIMES, LIDAR_TIMES, START, ArgoverseData
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import ArgoverseProvider

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
feather = pytest.importorskip("pyarrow.feather")

FRONT, LEFT = "ring_front_center", "ring_side_left"


def city_from_ego(time):
    """As the data was made, without quaternions."""
    part = (time - START) / 1e9
    yaw = 0.3 + 0.2 * part
    pose = np.eye(4)
    pose[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    pose[:3, 3] = [1000 + 10 * part, 2000 - 2 * part, 15 + part]
    return pose


class TestSamples:
    def test_project_boxes_where_numpy_does(self, tmp_path):
        ArgoverseData().write(tmp_path)
        sample = ArgoverseProvider(tmp_path).get_data(0)
        front = sample["cameras"][0]
        taken = IMAGE_TIMES[FRONT][0]
        ego_from_camera = np.eye(4)
        ego_from_camera[:3] = np.c_[AXES, [1.6, 0, 1.4]]
        points = np.array([[12.0, 2.0, 0.75, 1], [2.0, 20.0, 0.9, 1]]).T
        in_camera = np.linalg.inv(city_from_ego(taken) @ ego_from_camera) @ city_from_ego(LIDAR_TIMES[0]) @ points
        order = np.argsort(-sample["boxes"]["centers"][:, 0])
        centers = np.c_[sample["boxes"]["centers"][order], np.ones(2)].T
        found = front["intrinsics"] @ (front["camera_from_reference"] @ centers)[:3]
        expected = in_camera[:2] / in_camera[2] * 80 + [[32], [24]]
        np.testing.assert_allclose(found[:2] / found[2], expected, rtol=1e-6)
        assert front["timestamp"] == taken / 1e9

    def test_project_boxes_where_av2_does(self, tmp_path):
        cameras = pytest.importorskip("av2.geometry.camera.pinhole_camera", reason="av2 is not installed")
        from av2.utils.io import read_city_SE3_ego, read_lidar_sweep

        folder = ArgoverseData().write(tmp_path)
        city_se3_ego = read_city_SE3_ego(folder)
        provider = ArgoverseProvider(tmp_path, lidar=True)
        for frame in (0, 2):
            sample = provider.get_data(frame)
            for delivered, camera in zip(sample["cameras"].values(), (FRONT, LEFT), strict=True):
                taken = int(IMAGE_TIMES[camera][np.argmin(np.abs(IMAGE_TIMES[camera] - LIDAR_TIMES[frame]))])
                model = cameras.PinholeCamera.from_feather(folder, camera)
                centers = sample["boxes"]["centers"].astype(np.float64)
                pixels, in_camera, _ = model.project_ego_to_img_motion_compensated(
                    centers, city_se3_ego[taken], city_se3_ego[int(LIDAR_TIMES[frame])]
                )
                moved = delivered["camera_from_reference"] @ np.c_[centers, np.ones(len(centers))].T
                found = (delivered["intrinsics"] @ moved[:3]).T
                np.testing.assert_allclose(found[:, 2], in_camera[:, 2], rtol=1e-7)
                np.testing.assert_allclose(found[:, :2] / found[:, 2:], pixels, rtol=1e-7)
            sweep = read_lidar_sweep(folder / f"sensors/lidar/{LIDAR_TIMES[frame]}.feather")
            np.testing.assert_allclose(sample["lidar"]["points"][:, :3], sweep)

    def test_hold_the_nearest_image_within_half_a_period(self, tmp_path):
        folder = ArgoverseData().write(tmp_path)
        provider = ArgoverseProvider(tmp_path, cameras=[FRONT])
        for frame, image in ((0, 0), (1, 2), (2, 4)):
            path = folder / f"sensors/cameras/{FRONT}/{IMAGE_TIMES[FRONT][image]}.jpg"
            assert bytes(provider.get_data(frame)["cameras"][0]["image"]) == path.read_bytes()
        left = ArgoverseProvider(tmp_path, cameras=[LEFT])  # 20 ms earlier
        times = [left.get_data(frame)["cameras"][0]["timestamp"] for frame in range(3)]
        np.testing.assert_allclose(times, (LIDAR_TIMES - 20_000_000) / 1e9)
        strict = ArgoverseProvider(tmp_path, cameras=[LEFT], tolerance_s=0.015)
        words = f"frame 'log-1/{LIDAR_TIMES[0]}' has no image of camera '{LEFT}'"
        assert_refused(lambda: strict.get_data(0), words, FileError)

    def test_hold_boxes_with_tracks(self, tmp_path):
        ArgoverseData().write(tmp_path)
        provider = ArgoverseProvider(tmp_path, num_future_frames=2, classes=["REGULAR_VEHICLE"])
        boxes = provider.get_data(0)["boxes"]
        np.testing.assert_allclose(boxes["centers"], [[12, 2, 0.75]])
        np.testing.assert_allclose(boxes["sizes"], [[4.5, 2, 1.6]])
        np.testing.assert_allclose(boxes["yaws"], [0.25])
        np.testing.assert_array_equal(boxes["num_lidar_points"], [30])
        np.testing.assert_array_equal(boxes["is_future_known"], [[False, True]])
        later = np.linalg.inv(city_from_ego(LIDAR_TIMES[0])) @ city_from_ego(LIDAR_TIMES[2]) @ [9, 2, 0.75, 1]
        np.testing.assert_allclose(boxes["future_centers"][0, 1], later[:3], rtol=1e-5)
        assert len(provider.get_data(1)["boxes"]["yaws"]) == 0
        assert ArgoverseProvider(tmp_path, min_lidar_points=1).get_data(2)["boxes"]["yaws"].tolist() == []

    def test_hold_points_in_the_vehicle(self, tmp_path):
        data = ArgoverseData()
        data.write(tmp_path)
        provider = ArgoverseProvider(tmp_path, lidar=True, num_sweeps=1)
        sample = provider.get_data(1)
        expected = np.stack([column.astype(np.float32) for column in data.points(1).values()], axis=-1)
        np.testing.assert_array_equal(sample["lidar"]["points"], expected)
        np.testing.assert_allclose(sample["lidar"]["reference_from_lidar"], np.eye(4), atol=1e-9)
        moved = np.linalg.inv(city_from_ego(LIDAR_TIMES[1])) @ city_from_ego(LIDAR_TIMES[0])
        np.testing.assert_allclose(sample["sweeps"][0]["reference_from_lidar"], moved, atol=1e-6)
        assert provider.point_columns == ("x", "y", "z", "intensity", "laser_number", "offset_ns")
        check_provider(provider, start_method="fork")

    def test_of_splits_are_scenes(self, tmp_path):
        for split, name in (("train", "log-1"), ("val", "log-2")):
            ArgoverseData().write(tmp_path / split, name)
        provider = ArgoverseProvider(tmp_path)
        assert provider.scene_names == ("log-1", "log-2")
        assert "val/log-2/sensors/cameras/ring_front_center/" in provider.describe_sample(3)
        assert len(bytes(provider.get_data(3)["cameras"][0]["image"])) > 100
        assert ArgoverseProvider(tmp_path / "val/log-2").scene_names == ("log-2",)
        ArgoverseData().write(tmp_path / "val", "log-1")
        words = "frame 'log-1/315966265000000000'...its token is that of an earlier frame"
        assert_refused(lambda: ArgoverseProvider(tmp_path), words, FileError)

    def test_without_lidar_are_those_with_boxes(self, tmp_path):
        shutil.rmtree(ArgoverseData().write(tmp_path) / "sensors/lidar")
        np.testing.assert_array_equal(ArgoverseProvider(tmp_path).timestamps, LIDAR_TIMES[[0, 2]] / 1e9)
        assert_refused(lambda: ArgoverseProvider(tmp_path, lidar=True), "lidar: the data set has none")


def without(*names):
    """What leaves columns out."""
    return lambda data: data.left_out.update(names)


def of_poses(rows):
    """What keeps some of the poses of the vehicle."""

    def change(data):
        for name in ("pose_times", "quaternions", "places"):
            setattr(data, name, getattr(data, name)[rows])

    return change


def of_camera(change):
    """What changes the intrinsics of the left camera."""
    return lambda data: change(data.intrinsics)


POSES = "city_SE3_egovehicle.feather"
ERRORS = {  # the words of the message, and what is changed
    "annotations.feather' has no column 'category'. It has: timestamp_ns": without("annotations.feather:category"),
    "column 'category' of ...annotations.feather' must hold texts, got int64": (
        lambda data: setattr(data, "boxes", [(*box[:2], 7, *box[3:]) for box in data.boxes])
    ),
    f"intrinsics of '{LEFT}' must be a matrix of": of_camera(lambda of: of[LEFT].__setitem__(0, 0)),
    f"one row of sensor_name '{LEFT}', got 0. It has: ": of_camera(lambda of: of.update(other=of.pop(LEFT))),
    "Row 1 of ...egovehicle_SE3_sensor.feather' must have finite numbers as qw...nan": (
        lambda data: data.sensors.update({LEFT: (np.full((3, 3), np.nan), [0, 0, 0])})
    ),
    "Row 3 of ...a pose, whose quaternion has the length 1": lambda data: data.quaternions.__setitem__(3, 0),
    f"{POSES}' must have a place of the vehicle near each frame; 1 of 3": of_poses(slice(0, 5)),
    "2 of 3 frames have none: the nearest to 315966265.100 s is 0.120 s away": of_poses(slice(0, 1)),
    "times must ascend, got 315966264980000000 and then 3159662649800": of_poses([0, *range(10)]),
    f"{POSES}' has no rows": of_poses(slice(0, 0)),
}


class TestErrors:
    @pytest.mark.parametrize("words", ERRORS)
    def test_name_the_file(self, tmp_path, words):
        data = ArgoverseData()
        ERRORS[words](data)
        data.write(tmp_path)
        assert_refused(lambda: ArgoverseProvider(tmp_path), words, FileError)

    def test_of_files(self, tmp_path):
        assert_refused(lambda: ArgoverseProvider(tmp_path), "There is no log of Argoverse 2", FileError)
        folder = ArgoverseData().write(tmp_path)
        images = folder / f"sensors/cameras/{LEFT}"
        (images / "first.jpg").write_bytes(b"")
        words = "must be named by their time in nanoseconds, as 315966265259836000.jpg, got first.jpg."
        assert_refused(lambda: ArgoverseProvider(tmp_path), words, FileError)
        for path in images.iterdir():
            path.rename(path.with_suffix(".png"))
        assert_refused(lambda: ArgoverseProvider(tmp_path), "as 315966265259836000.jpg, got ....png, ", FileError)
        (folder / "calibration/intrinsics.feather").unlink()
        words = "intrinsics.feather' cannot be read"
        assert_refused(lambda: ArgoverseProvider(tmp_path), words, FileNotFoundError)

    def test_of_point_files(self, tmp_path):
        first, _, last = (
            ArgoverseData().write(tmp_path) / f"sensors/lidar/{time}.feather" for time in LIDAR_TIMES
        )
        provider = ArgoverseProvider(tmp_path, lidar=True)
        first.write_bytes(first.read_bytes()[:100])
        assert_refused(lambda: provider.get_data(0), ".feather' cannot be read", FileError)
        last.unlink()
        words = f"has boxes of 2 lidar records, of which 1 have no file in 'sensors/lidar', e.g. {LIDAR_TIMES[2]}"
        assert_refused(lambda: ArgoverseProvider(tmp_path, lidar=True), words, FileError)
        assert len(ArgoverseProvider(tmp_path, lidar=True, boxes=False)) == 2

    def test_of_what_is_not_requested_are_none(self, tmp_path):
        data = ArgoverseData()
        data.intrinsics[LEFT][0] = 0
        data.left_out = {"annotations.feather:category"}
        folder = data.write(tmp_path)
        broken = ArgoverseData()
        broken.quaternions[3] = 0
        broken.write(tmp_path, "log-2")
        (folder / f"sensors/cameras/{LEFT}/first.jpg").write_bytes(b"")
        wanted = {"scenes": ["log-1"], "boxes": False, "cameras": [FRONT], "lidar": True}
        assert ArgoverseProvider(tmp_path, **wanted).get_data(1)["cameras"][0]["name"] == FRONT
        (folder / "calibration/intrinsics.feather").unlink()
        shutil.rmtree(folder / "sensors/cameras")
        wanted["cameras"] = []
        assert len(ArgoverseProvider(tmp_path, **wanted).get_data(1)["lidar"]["points"])
        for name, value, words in (
            ("scenes", None, "Row 3 of ...must be a pose"),
            ("boxes", None, "no column 'category'"),
            ("scenes", ["log-3"], "not:\n  - 'log-3'...There are 2: log-1, log-2"),
        ):
            given = {**wanted, name: value}
            assert_refused(lambda given=given: ArgoverseProvider(tmp_path, **given), words, FrameworkError)
