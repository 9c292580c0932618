"""KITTI: odometry and tracking."""

import shutil

import numpy as np
import pytest
from driving_support.kitti import (
    NUM_FRAMES,
    P2,
    P3,
    R_RECT,
    TR_IMU_VELO,
    TR_VELO_CAM,
    odometry_poses,
    oxts_rows,
    turn,
    write_odometry,
    write_tracking,
)
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import KittiOdometryProvider, KittiTrackingProvider


def homogeneous(pose):
    return np.vstack([pose, [0, 0, 0, 1]])


def projected(projection, rectified):
    """Pixels of points ``(n, 3)`` in the rectified camera 0."""
    pixels = projection @ np.r_[rectified.T, np.ones((1, len(rectified)))]
    return (pixels[:2] / pixels[2]).T


def delivered(camera, points):
    """Pixels of points ``(n, 3)`` of a sample, by the matrices of a camera of it."""
    moved = camera["camera_from_reference"] @ np.c_[points, np.ones(len(points))].T
    return projected(np.c_[camera["intrinsics"], np.zeros(3)], moved[:3].T)


class TestTracking:
    def test_centers_fall_where_the_matrices_of_the_files_put_them(self, tmp_path):
        write_tracking(tmp_path)
        sample = KittiTrackingProvider(tmp_path).get_data(0)
        boxes = sample["boxes"]
        rectified_from_lidar = homogeneous(np.c_[R_RECT, np.zeros(3)]) @ homogeneous(TR_VELO_CAM)
        expected = np.array([[1.5, 1.625 - 0.75, 10.0], [-2, 1.5 - 0.9, 8]])
        in_lidar = np.linalg.inv(rectified_from_lidar) @ np.c_[expected, np.ones(2)].T
        np.testing.assert_allclose(boxes["centers"], in_lidar[:3].T, atol=1e-5)
        ahead = np.linalg.inv(rectified_from_lidar)[:3, :3] @ turn(1, -1.25) @ [1, 0, 0]
        np.testing.assert_allclose(boxes["yaws"][0], np.arctan2(ahead[1], ahead[0]), atol=1e-6)
        np.testing.assert_allclose(boxes["sizes"], [[4.25, 1.75, 1.5], [0.8, 0.6, 1.8]], rtol=1e-6)
        for camera, projection in zip(sample["cameras"].values(), (P2, P3), strict=True):
            found = delivered(camera, boxes["centers"])
            np.testing.assert_allclose(found, projected(projection, expected), atol=1e-3)

    def test_boxes_have_what_kitti_says(self, tmp_path):
        write_tracking(tmp_path)
        provider = KittiTrackingProvider(tmp_path)
        boxes = provider.get_data(0)["boxes"]
        assert [provider.class_names[number] for number in boxes["categories"]] == ["Car", "Pedestrian"]
        np.testing.assert_array_equal(boxes["instances"], [5, 7])
        np.testing.assert_array_equal(boxes["visibilities"], [4, 1])
        np.testing.assert_array_equal(boxes["attributes"], [0, 1])
        assert np.isnan(boxes["velocities"]).all()
        assert provider.get_data(2)["boxes"]["visibilities"].tolist() == [0]
        assert [len(provider.get_data(frame)["boxes"]["sizes"]) for frame in (1, 3)] == [0, 0]

    def test_boxes_in_images_know_their_objects(self, tmp_path):
        for name in ("0000", "0001"):
            write_tracking(tmp_path, name)
        provider = KittiTrackingProvider(tmp_path, boxes_2d=True)
        left, right = provider.get_data(0)["cameras"].values()
        assert len(right["boxes_2d"]["boxes"]) == 0
        boxes = left["boxes_2d"]
        np.testing.assert_array_equal(boxes["boxes"][1], [1, 2, 3, 4])
        np.testing.assert_array_equal(boxes["categories"], [0, -1, 3])  # DontCare has no class
        np.testing.assert_array_equal(boxes["box_rows"], [0, -1, 1])
        center = projected(P2, np.array([[1.5, 1.625 - 0.75, 10.0]]))[0]
        np.testing.assert_allclose(boxes["centers"][0], center, rtol=1e-5)
        np.testing.assert_allclose(boxes["depths"], [10.003, -1, 8.003], rtol=1e-6)
        again = provider.get_data(NUM_FRAMES)["cameras"][0]["boxes_2d"]
        np.testing.assert_array_equal(again["boxes"], boxes["boxes"])
        chosen = KittiTrackingProvider(tmp_path, boxes_2d=True, classes=["Pedestrian"]).get_data(0)
        assert chosen["cameras"][0]["boxes_2d"]["box_rows"].tolist() == [0]

    def test_the_vehicle_drives_as_the_devkit_says(self, tmp_path):
        write_tracking(tmp_path)
        ego = KittiTrackingProvider(tmp_path).get_data(3)["ego"]
        rows, radius = oxts_rows(), 6378137
        scale = np.cos(np.radians(rows[0, 0]))

        def place(row):
            east = scale * row[1] * np.pi * radius / 180
            return np.array([east, scale * radius * np.log(np.tan((90 + row[0]) * np.pi / 360)), row[2]])

        rotation = turn(2, rows[3, 5]) @ turn(1, rows[3, 4]) @ turn(0, rows[3, 3])
        np.testing.assert_allclose(ego["world_from_ego"][:3, :3], rotation, atol=1e-12)
        np.testing.assert_allclose(ego["world_from_ego"][:3, 3], place(rows[3]) - place(rows[0]), atol=1e-6)
        np.testing.assert_allclose(np.linalg.inv(ego["ego_from_reference"]), homogeneous(TR_IMU_VELO), atol=1e-9)

    def test_points_that_are_missing_are_empty(self, tmp_path):
        write_tracking(tmp_path)
        provider = KittiTrackingProvider(tmp_path, lidar=True, num_sweeps=2)
        counts = [len(provider.get_data(frame)["lidar"]["points"]) for frame in range(NUM_FRAMES)]
        assert counts == [5, 6, 0, 8]
        assert [len(sweep["points"]) for sweep in provider.get_data(3)["sweeps"].values()] == [6, 5]
        assert ["velodyne" in provider.describe_sample(frame) for frame in range(4)] == [True, True, False, True]
        check_provider(provider, start_method="fork")
        times_s = provider.frame_times_s(("lidar", "points"))
        np.testing.assert_array_equal(times_s, np.where([True, True, False, True], provider.timestamps, np.nan))
        windows = Windows(provider, {"lidar.points": [0]}, edges="drop", unit="s")
        assert windows.rows.tolist() == [0, 1, 3]
        shapes = [windows.get_data(number)["lidar"]["points"].shape for number in range(3)]
        assert shapes == [(1, count, 4) for count in (5, 6, 8)]

    def test_without_labels_there_are_no_boxes(self, tmp_path):
        write_tracking(tmp_path)
        write_tracking(tmp_path, "0001")
        (tmp_path / "label_02/0001.txt").unlink()
        with pytest.warns(UserWarning, match="1 of 2 scenes have no boxes, e.g. '0001', though others have"):
            KittiTrackingProvider(tmp_path)
        assert KittiTrackingProvider(tmp_path, scenes=["0000"]).sequence_lengths == (4,)
        (tmp_path / "label_02/0000.txt").unlink()
        assert "boxes" not in KittiTrackingProvider(tmp_path).get_data(0)
        assert_refused(lambda: KittiTrackingProvider(tmp_path, boxes=True), "boxes: the data set has none")

    @pytest.mark.parametrize(
        ("file", "before", "after", "words"),
        [
            ("label_02", "0 5 Car 0", "0 5 Car", "Line 1 of ...label_02/0000.txt' must have 16 or 17 numbers"),
            ("label_02", "4.25", "-1", "a box must be finite numbers with sizes of at least 0"),
            ("label_02", "0 5 Car", "9 5 Car", "Line 1 of ...a label of the frames 0 to 3, got one of the fra"),
            ("calib", "Tr_velo_cam", "Tr_other", "has no Tr_velo_cam, Tr_velo_to_cam. It has: P0, P1"),
            ("calib", "P2: 7", "P2: x", "P2 in ...must have 12 numbers (a matrix of 3 x 4), got 'x"),
            ("calib", "P2: 7", "P2: -7", "P2 in ...must be a projection"),
            ("calib", "R_rect 9", "R_rect 5", "R_rect in ...must be a rotation"),
            ("oxts", "\n", " ", "Line 1 of ...oxts/0000.txt"),
        ],
    )
    def test_files_that_cannot_be_used_are_named(self, tmp_path, file, before, after, words):
        path = write_tracking(tmp_path) / f"{file}/0000.txt"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after, 1))
        assert_refused(lambda: KittiTrackingProvider(tmp_path), words, FileError)

    def test_folders_without_files_are_named(self, tmp_path):
        assert_refused(lambda: KittiTrackingProvider(tmp_path), "There is no sequence in ...'calib'", FileError)
        path = write_tracking(tmp_path) / "oxts/0000.txt"
        path.write_text("")
        words = "oxts/0000.txt' has 0 lines, but the sequence has a frame 3"
        assert_refused(lambda: KittiTrackingProvider(tmp_path), words, FileError)

    @pytest.mark.parametrize("name", ["000001.JPG", "0000000001.png"])
    def test_two_files_of_a_frame_are_named(self, tmp_path, name):
        folder = write_tracking(tmp_path) / "image_02/0000"
        (folder / "000009.bin").write_bytes(bytes(16))  # of other sensors are left out
        (tmp_path / "velodyne/0000/000002.png").write_bytes(b"a picture of the points")
        provider = KittiTrackingProvider(tmp_path, lidar=True)
        assert (len(provider), len(provider.get_data(2)["lidar"]["points"])) == (4, 0)
        (folder / name).write_bytes((folder / "000002.png").read_bytes())
        words = f"image_02/0000' has two files of the frame 1: ...{name}...Remove one"
        assert_refused(lambda: KittiTrackingProvider(tmp_path), words, FileError)
        assert len(KittiTrackingProvider(tmp_path, cameras=["image_03"])) == 4


POSE = "1 0 0 0 0 1 0 0 0 0 1 0\n"


class TestOdometry:
    def test_the_lidar_drives_as_the_camera_does(self, tmp_path):
        write_odometry(tmp_path)
        provider = KittiOdometryProvider(tmp_path, lidar=True)
        assert provider.class_names == ()
        point = np.array([12.0, 3.0, -0.5, 1.0])  # of the lidar at frame 2
        camera_0 = homogeneous(odometry_poses()[2]) @ homogeneous(TR_VELO_CAM) @ point
        first, sample = provider.get_data(0), provider.get_data(2)
        here = np.linalg.inv(first["ego"]["world_from_reference"]) @ sample["ego"]["world_from_reference"] @ point
        np.testing.assert_allclose(homogeneous(TR_VELO_CAM) @ here, camera_0, atol=1e-9)
        np.testing.assert_allclose(first["ego"]["world_from_ego"], np.eye(4), atol=1e-9)
        expected = projected(P2 @ homogeneous(TR_VELO_CAM), point[None, :3])
        np.testing.assert_allclose(delivered(sample["cameras"][0], point[None, :3]), expected, rtol=1e-9)
        assert sample["timestamp"] == pytest.approx(0.208)
        assert provider.point_columns == ("x", "y", "z", "reflectance")

    def test_sequences_without_poses_are_left_out(self, tmp_path):
        write_odometry(tmp_path)
        write_odometry(tmp_path, "11", with_poses=False)
        provider = KittiOdometryProvider(tmp_path)
        assert provider.scene_names == ("00",)
        assert provider.describe_sample(1) == (
            "scene '00', frame 1, token '00/000001', files sequences/00/image_2/000001.png"
        )
        check_provider(provider, num_workers=0)

    @pytest.mark.parametrize(
        ("file", "text", "words"),
        [
            ("sequences/00/times.txt", "0\n0.1\n0.05\n0.2\n", "times must ascend, got 0.1 and then 0.05"),
            ("sequences/00/times.txt", "0\n0.1\n0.2\n", "times.txt' has 3 lines, but the sequence has a frame 3"),
            ("poses/00.txt", "1 2 3\n", "Line 1 of ...must have 12 numbers (a 3 x 4 matrix), got '1 2 3'"),
            ("poses/00.txt", POSE * 3, "00.txt' has 3 lines, but the sequence has a frame 3"),
            ("poses/00.txt", POSE * 8, "times.txt' has 4 lines, but the sequence has a frame 7"),
            ("poses/00.txt", None, "both a folder in 'sequences' and a file in 'poses'"),
        ],
    )
    def test_bad_files_are_named(self, tmp_path, file, text, words):
        path = write_odometry(tmp_path) / file
        path.unlink() if text is None else path.write_text(text)
        assert_refused(lambda: KittiOdometryProvider(tmp_path), words, FileError)

    def test_a_file_that_is_missing_is_named(self, tmp_path):
        folder = write_odometry(tmp_path) / "sequences/00"
        write_odometry(tmp_path, "01")
        for name in ("image_2/000001.png", "image_2/000003.png", "velodyne/000003.bin"):
            (folder / name).unlink()
        words = "'00/000001' has none of image_2\n...'00/000003' has none of"
        assert_refused(lambda: KittiOdometryProvider(tmp_path), words)
        words = "'00/000003' has none of the points"
        assert_refused(lambda: KittiOdometryProvider(tmp_path, cameras=[], lidar=True), words)
        assert KittiOdometryProvider(tmp_path, cameras=[]).sequence_lengths == (4, 4)
        assert KittiOdometryProvider(tmp_path, scenes=["01"], lidar=True).sequence_lengths == (4,)

    def test_without_the_place_of_the_lidar_the_vehicle_is_at_camera_0(self, tmp_path):
        path = write_odometry(tmp_path) / "sequences/00/calib.txt"
        path.write_text("".join(line for line in path.read_text().splitlines(True) if "Tr" not in line))
        provider = KittiOdometryProvider(tmp_path)
        sample = provider.get_data(2)
        ahead = homogeneous(np.c_[[[0, -1, 0], [0, 0, -1], [1, 0, 0]], np.zeros(3)])
        expected = np.linalg.inv(ahead) @ homogeneous(odometry_poses()[2]) @ ahead
        np.testing.assert_allclose(sample["ego"]["world_from_ego"], expected, atol=1e-9)
        point = np.array([[12.0, 3.0, -0.5]])
        found = delivered(sample["cameras"][0], point)
        np.testing.assert_allclose(found, projected(P2 @ ahead, point), rtol=1e-9)
        assert provider.fields.reference == "ego"
        for settings in ({"lidar": True}, {"reference": "lidar"}):
            words = "calib.txt' has no Tr, ...It has: P0"
            assert_refused(lambda given=settings: KittiOdometryProvider(tmp_path, **given), words, FileError)


class TestTrackingThatLacksSomething:
    def test_an_image_that_is_missing_is_named(self, tmp_path, caplog):
        write_tracking(tmp_path)
        (tmp_path / "image_03/0000/000002.png").unlink()
        assert_refused(lambda: KittiTrackingProvider(tmp_path), "'0000/000002' has none of image_03")
        assert KittiTrackingProvider(tmp_path, cameras=["image_02"], lidar=True).sequence_lengths == (4,)
        assert "1 of 4 frames, e.g. '0000/000002' have no points in" in caplog.text

    def test_frames_are_those_of_the_poses(self, tmp_path):
        write_tracking(tmp_path)
        for name in ("image_02/0000/000000.png", "image_02/0000/000003.png", "velodyne/0000/000003.bin"):
            (tmp_path / name).unlink()
        provider = KittiTrackingProvider(tmp_path, cameras=[])
        assert provider.sequence_lengths == (4,)
        np.testing.assert_allclose(np.diff(provider.timestamps), 0.1)
        assert [len(provider.get_data(frame)["boxes"]["yaws"]) for frame in range(4)] == [2, 0, 1, 0]
        words = "'0000/000000' has none of image_02...'0000/000003' has"
        assert_refused(lambda: KittiTrackingProvider(tmp_path), words)

    def test_what_is_not_requested_need_not_be_there(self, tmp_path):
        write_tracking(tmp_path, labels="0 5 Car 0 0")
        path = tmp_path / "calib/0000.txt"
        text = path.read_text()
        path.write_text("".join(line for line in text.splitlines(True) if "imu" not in line and "P3" not in line))
        shutil.rmtree(tmp_path / "oxts")
        wanted = {"boxes": False, "cameras": ["image_02"], "with_poses": False}
        sample = KittiTrackingProvider(tmp_path, **wanted).get_data(3)
        assert len(sample["cameras"]) == 1
        np.testing.assert_array_equal(sample["ego"]["world_from_ego"], np.eye(4))  # the vehicle stays
        for name, value, words in (
            ("boxes", True, "must have 16 or 17 numbers"),
            ("cameras", None, "has no P3. It has: P0"),
            ("with_poses", True, "oxts/0000.txt' cannot be read"),
        ):
            given = {**wanted, name: value}
            assert_refused(lambda given=given: KittiTrackingProvider(tmp_path, **given), words, FileError)
