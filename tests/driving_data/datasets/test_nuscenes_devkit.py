"""The provider of nuScenes against the nuScenes devkit: poses, boxes, velocities, projections."""

import numpy as np
import pytest
from driving_support.driving_data import index_of
from driving_support.nuscenes_data import devkit, open_devkit, write_nuscenes
from support.shared_data import shared_data

from accvlab.driving_data.datasets import NuScenesProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.nuscenes.splits import DETECTION_CLASSES, SPLITS, scenes_of_split

VERSION = "v1.0-mini"
EXACT = {"rtol": 0, "atol": 1e-6}


@pytest.fixture(scope="module", params=["generated", pytest.param("nuscenes_like", marks=pytest.mark.wide)])
def root(request, tmp_path_factory):
    if request.param == "nuscenes_like":
        return shared_data("nuscenes_like")
    return write_nuscenes(tmp_path_factory.mktemp("nuscenes_devkit") / "root", image_hw=(96, 160))


@pytest.fixture(scope="module")
def nusc(root):
    return open_devkit(root)


def opened(root, tmp_path, **settings):
    return NuScenesProvider(root, VERSION, index_cache=tmp_path, **settings)


def matrix(record):
    transform_matrix = devkit("nuscenes.utils.geometry_utils").transform_matrix
    quaternion = devkit("pyquaternion").Quaternion(record["rotation"])
    return transform_matrix(record["translation"], quaternion)


def ego_and_sensor(nusc, token):
    data = nusc.get("sample_data", token)
    ego = nusc.get("ego_pose", data["ego_pose_token"])
    return matrix(ego), nusc.get("calibrated_sensor", data["calibrated_sensor_token"])


def tokens_of(provider):
    return [provider.get_data(number)["token"] for number in range(len(provider))]


class TestKeyframes:
    def test_have_poses_and_matrices_of_the_devkit(self, root, nusc, tmp_path):
        provider = opened(root, tmp_path, lidar=True, num_sweeps=3)
        assert tokens_of(provider) == [
            sample["token"]
            for scene in nusc.scene
            for sample in sorted(
                (one for one in nusc.sample if one["scene_token"] == scene["token"]),
                key=lambda one: one["timestamp"],
            )
        ]
        for number in range(len(provider)):
            found = provider.get_data(number)
            sample = nusc.get("sample", found["token"])
            assert found["timestamp"] == sample["timestamp"] / 1e6
            world_from_ego, lidar = ego_and_sensor(nusc, sample["data"]["LIDAR_TOP"])
            np.testing.assert_allclose(found["ego"]["world_from_ego"], world_from_ego, **EXACT)
            np.testing.assert_allclose(found["ego"]["ego_from_reference"], matrix(lidar), **EXACT)
            world_from_lidar = world_from_ego @ matrix(lidar)
            for camera in found["cameras"].values():
                token = sample["data"][camera["name"]]
                world_from_camera_ego, calibration = ego_and_sensor(nusc, token)
                expected = np.linalg.inv(world_from_camera_ego @ matrix(calibration)) @ world_from_lidar
                np.testing.assert_allclose(camera["camera_from_reference"], expected, **EXACT)
                np.testing.assert_allclose(camera["ego_from_camera"], matrix(calibration), **EXACT)
                np.testing.assert_array_equal(camera["intrinsics"], calibration["camera_intrinsic"])
                data = nusc.get("sample_data", token)
                assert camera["timestamp"] == data["timestamp"] / 1e6
                assert bytes(camera["image"]) == (root / data["filename"]).read_bytes()

    def test_have_boxes_and_velocities_of_the_devkit(self, root, nusc, tmp_path):
        provider = opened(root, tmp_path)
        instances = [one["token"] for one in nusc.instance]
        num_boxes = 0
        for number in range(len(provider)):
            found = provider.get_data(number)["boxes"]
            index = index_of(provider).boxes
            rows = slice(*index.first[number : number + 2])
            sample = nusc.get("sample", tokens_of(provider)[number])
            _, boxes, _ = nusc.get_sample_data(sample["data"]["LIDAR_TOP"])
            assert len(boxes) == len(found["centers"])
            num_boxes += len(boxes)
            for row, box in enumerate(boxes):
                record = nusc.get("sample_annotation", box.token)
                at = rows.start + row
                np.testing.assert_allclose(index.center[at], box.center, **EXACT)
                np.testing.assert_array_equal(index.size[at], box.wlh[[1, 0, 2]])
                turned = poses.rotation_of_quaternion(index.rotation[at])
                np.testing.assert_allclose(turned, box.rotation_matrix, **EXACT)
                velocity = np.linalg.inv(matrix_of(nusc, sample))[:3, :3] @ nusc.box_velocity(box.token)
                np.testing.assert_allclose(index.velocity[at], velocity, **EXACT)
                assert provider.class_names[found["categories"][row]] == record["category_name"]
                names = [nusc.get("attribute", token)["name"] for token in record["attribute_tokens"]]
                attribute = found["attributes"][row]
                assert ([provider.attribute_names[attribute]] if attribute >= 0 else []) == names
                assert found["visibilities"][row] == int(record["visibility_token"] or 0)
                assert found["num_lidar_points"][row] == record["num_lidar_pts"]
                assert found["instances"][row] == instances.index(record["instance_token"])
        assert num_boxes == len(nusc.sample_annotation)
        assert 0 < np.isnan(index_of(provider).boxes.velocity).sum() < index_of(provider).boxes.velocity.size

    def test_have_2d_boxes_of_the_devkit(self, root, nusc, tmp_path):
        geometry = devkit("nuscenes.utils.geometry_utils")
        cut = devkit("nuscenes.scripts.export_2d_annotations_as_json").post_process_coords
        provider = opened(root, tmp_path, boxes_2d=True)
        index, num_found = index_of(provider).boxes_2d, 0
        for number, token in enumerate(tokens_of(provider)):
            for camera, channel in enumerate(provider.camera_names):
                data = nusc.get("sample_data", nusc.get("sample", token)["data"][channel])
                world_from_ego, calibration = ego_and_sensor(nusc, data["token"])
                camera_from_world = np.linalg.inv(world_from_ego @ matrix(calibration))
                intrinsics = np.array(calibration["camera_intrinsic"])
                expected = []
                for box in nusc.get_boxes(nusc.get("sample", token)["data"]["LIDAR_TOP"]):
                    corners, center = (
                        camera_from_world[:3, :3] @ points + camera_from_world[:3, 3:]
                        for points in (box.corners(), box.center[:, None])
                    )
                    corners = corners[:, corners[2] > 0]
                    if center[2] <= 0 or not corners.size:
                        continue
                    pixels = geometry.view_points(corners, intrinsics, True)[:2].T
                    try:
                        found = cut(pixels.tolist(), (data["width"], data["height"]))
                    except AttributeError:  # no area
                        continue
                    if found is not None:
                        middle = geometry.view_points(center, intrinsics, True)[:2, 0]
                        expected.append((*found, *middle, center[2, 0]))
                image = number * len(provider.camera_names) + camera
                rows = slice(*index.first[image : image + 2])
                got = np.column_stack([index.box[rows], index.center[rows], index.depth[rows]])
                np.testing.assert_allclose(got, np.reshape(expected, (-1, 7)), rtol=1e-9, atol=1e-6)
                num_found += len(got)
        assert num_found > 50


class TestFramesBetweenKeyframes:
    @pytest.mark.parametrize("sensor", ["LIDAR_TOP", "CAM_FRONT"])
    def test_have_boxes_moved_as_by_the_devkit(self, root, nusc, tmp_path, sensor):
        provider = opened(root, tmp_path, frames=sensor)
        frames = [one for one in nusc.sample_data if one["channel"] == sensor]
        tokens = tokens_of(provider)
        assert sorted(tokens) == sorted(one["token"] for one in frames)
        boxes = index_of(provider).boxes
        for number, token in enumerate(tokens):
            found = provider.get_data(number)
            data = nusc.get("sample_data", token)
            assert found["timestamp"] == data["timestamp"] / 1e6
            world_from_ego, _ = ego_and_sensor(nusc, token)
            np.testing.assert_allclose(found["ego"]["world_from_ego"], world_from_ego, **EXACT)
            world_from_reference = found["ego"]["world_from_reference"][:3]
            rows = slice(*boxes.first[number : number + 2])
            expected = nusc.get_boxes(token)
            assert rows.stop - rows.start == len(expected)
            if not expected:
                continue
            centers = poses.moved(world_from_reference, boxes.center[rows])
            np.testing.assert_allclose(centers, [box.center for box in expected], **EXACT)
            rotations = world_from_reference[:, :3] @ poses.rotation_of_quaternion(boxes.rotation[rows])
            np.testing.assert_allclose(rotations, [box.rotation_matrix for box in expected], **EXACT)

    def test_have_the_nearest_images_and_their_own_points(self, root, nusc, tmp_path):
        provider = opened(root, tmp_path, frames="CAM_FRONT", lidar=True, num_sweeps=1)
        for number in range(len(provider)):
            found = provider.get_data(number)
            data = nusc.get("sample_data", found["token"])
            assert bytes(found["cameras"][0]["image"]) == (root / data["filename"]).read_bytes()
            scene = nusc.get("sample", data["sample_token"])["scene_token"]
            for camera in found["cameras"].values():
                channel = camera["name"]
                distances = [
                    abs(one["timestamp"] - data["timestamp"])
                    for one in nusc.sample_data
                    if one["channel"] == channel
                    and nusc.get("sample", one["sample_token"])["scene_token"] == scene
                ]
                if not data["is_key_frame"]:
                    assert round(abs(camera["timestamp"] - found["timestamp"]) * 1e6) == min(distances)
            # The points stay where they were in the world, whatever the frame's time.
            lidar = next(
                one
                for one in nusc.sample_data
                if one["channel"] == "LIDAR_TOP" and one["timestamp"] / 1e6 == found["lidar"]["timestamp"]
            )
            world_from_ego, calibration = ego_and_sensor(nusc, lidar["token"])
            np.testing.assert_allclose(
                found["ego"]["world_from_reference"] @ found["lidar"]["reference_from_lidar"],
                world_from_ego @ matrix(calibration),
                **EXACT,
            )


def matrix_of(nusc, sample):
    world_from_ego, lidar = ego_and_sensor(nusc, sample["data"]["LIDAR_TOP"])
    return world_from_ego @ matrix(lidar)


class TestOfficialLists:
    def test_splits_are_those_of_the_devkit(self):
        splits = devkit("nuscenes.utils.splits").create_splits_scenes()
        assert {name: sorted(scenes) for name, scenes in splits.items()} == {
            name: list(scenes_of_split(name)) for name in SPLITS
        }

    def test_detection_classes_are_those_of_the_devkit(self):
        to_name = devkit("nuscenes.eval.detection.utils").category_to_detection_name
        assert all(to_name(raw) == name for name, of in DETECTION_CLASSES.items() for raw in of)
        assert sum(len(of) for of in DETECTION_CLASSES.values()) == 14
