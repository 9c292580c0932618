"""The provider of nuScenes against the nuScenes devkit: poses, boxes, velocities, projections."""

import contextlib
import pickle

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
    return transform_matrix(record["translation"], devkit("pyquaternion").Quaternion(record["rotation"]))


def ego_and_sensor(nusc, token):
    """Matrices of the vehicle in the world, of a sensor in the vehicle, and the intrinsics."""
    data = nusc.get("sample_data", token)
    calibration = nusc.get("calibrated_sensor", data["calibrated_sensor_token"])
    ego = nusc.get("ego_pose", data["ego_pose_token"])
    return matrix(ego), matrix(calibration), calibration["camera_intrinsic"]


def tokens_of(provider):
    return [provider.get_data(number)["token"] for number in range(len(provider))]


class TestKeyframes:
    def test_have_poses_and_matrices_of_the_devkit(self, root, nusc, tmp_path):
        provider = opened(root, tmp_path, lidar=True, num_sweeps=3)
        of_scenes = [[one for one in nusc.sample if one["scene_token"] == scene["token"]] for scene in nusc.scene]
        samples = [sample for each in of_scenes for sample in sorted(each, key=lambda one: one["timestamp"])]
        assert tokens_of(provider) == [sample["token"] for sample in samples]
        for number, sample in enumerate(samples):
            found = provider.get_data(number)
            assert found["timestamp"] == sample["timestamp"] / 1e6
            world_from_ego, ego_from_lidar, _ = ego_and_sensor(nusc, sample["data"]["LIDAR_TOP"])
            np.testing.assert_allclose(found["ego"]["world_from_ego"], world_from_ego, **EXACT)
            np.testing.assert_allclose(found["ego"]["ego_from_reference"], ego_from_lidar, **EXACT)
            for camera in found["cameras"].values():
                data = nusc.get("sample_data", sample["data"][camera["name"]])
                world_from_camera_ego, ego_from_camera, intrinsics = ego_and_sensor(nusc, data["token"])
                camera_from_world = np.linalg.inv(world_from_camera_ego @ ego_from_camera)
                expected = camera_from_world @ world_from_ego @ ego_from_lidar
                np.testing.assert_allclose(camera["camera_from_reference"], expected, **EXACT)
                np.testing.assert_allclose(camera["ego_from_camera"], ego_from_camera, **EXACT)
                np.testing.assert_array_equal(camera["intrinsics"], intrinsics)
                assert camera["timestamp"] == data["timestamp"] / 1e6
                assert bytes(camera["image"]) == (root / data["filename"]).read_bytes()

    def test_have_boxes_and_velocities_of_the_devkit(self, root, nusc, tmp_path):
        provider = opened(root, tmp_path)
        index, instances = index_of(provider).boxes, [one["token"] for one in nusc.instance]
        for number, token in enumerate(tokens_of(provider)):
            found, first = provider.get_data(number)["boxes"], index.first[number]
            lidar = nusc.get("sample", token)["data"]["LIDAR_TOP"]
            world_from_ego, ego_from_lidar, _ = ego_and_sensor(nusc, lidar)
            lidar_from_world = np.linalg.inv(world_from_ego @ ego_from_lidar)[:3, :3]
            _, boxes, _ = nusc.get_sample_data(lidar)
            assert len(boxes) == len(found["centers"])
            for row, box in enumerate(boxes):
                record = nusc.get("sample_annotation", box.token)
                np.testing.assert_allclose(index.center[first + row], box.center, **EXACT)
                np.testing.assert_array_equal(index.size[first + row], box.wlh[[1, 0, 2]])
                turned = poses.rotation_of_quaternion(index.rotation[first + row])
                np.testing.assert_allclose(turned, box.rotation_matrix, **EXACT)
                velocity = lidar_from_world @ nusc.box_velocity(box.token)
                np.testing.assert_allclose(index.velocity[first + row], velocity, **EXACT)
                assert provider.class_names[found["categories"][row]] == record["category_name"]
                names = [nusc.get("attribute", token)["name"] for token in record["attribute_tokens"]]
                attribute = found["attributes"][row]
                assert ([provider.attribute_names[attribute]] if attribute >= 0 else []) == names
                assert found["visibilities"][row] == int(record["visibility_token"] or 0)
                assert found["num_lidar_points"][row] == record["num_lidar_pts"]
                assert found["instances"][row] == instances.index(record["instance_token"])
        assert len(index.center) == len(nusc.sample_annotation)
        assert 0 < np.isnan(index.velocity).sum() < index.velocity.size

    def test_have_2d_boxes_of_the_devkit(self, root, nusc, tmp_path):
        view_points = devkit("nuscenes.utils.geometry_utils").view_points
        cut = devkit("nuscenes.scripts.export_2d_annotations_as_json").post_process_coords
        provider = opened(root, tmp_path, boxes_2d=True)
        index = index_of(provider).boxes_2d
        images = [(token, channel) for token in tokens_of(provider) for channel in provider.camera_names]
        assert len(index.box) > 50
        for image, (token, channel) in enumerate(images):
            of_sample, expected = nusc.get("sample", token)["data"], []
            data = nusc.get("sample_data", of_sample[channel])
            world_from_ego, ego_from_camera, intrinsics = ego_and_sensor(nusc, data["token"])
            camera_from_world = np.linalg.inv(world_from_ego @ ego_from_camera)
            for box in nusc.get_boxes(of_sample["LIDAR_TOP"]):
                corners, center = (
                    camera_from_world[:3, :3] @ points + camera_from_world[:3, 3:]
                    for points in (box.corners(), box.center[:, None])
                )
                corners = corners[:, corners[2] > 0]
                if center[2] <= 0 or not corners.size:
                    continue
                pixels = view_points(corners, np.array(intrinsics), True)[:2].T
                with contextlib.suppress(AttributeError):  # no area
                    if (found := cut(pixels.tolist(), (data["width"], data["height"]))) is not None:
                        middle = view_points(center, np.array(intrinsics), True)[:2, 0]
                        expected.append((*found, *middle, center[2, 0]))
            rows = slice(*index.first[image : image + 2])
            got = np.column_stack([index.box[rows], index.center[rows], index.depth[rows]])
            np.testing.assert_allclose(got, np.reshape(expected, (-1, 7)), rtol=1e-9, atol=1e-6)


class TestFramesBetweenKeyframes:
    @pytest.mark.parametrize("sensor", ["LIDAR_TOP", "CAM_FRONT"])
    def test_have_boxes_moved_as_by_the_devkit(self, root, nusc, tmp_path, sensor):
        provider = opened(root, tmp_path, frames=sensor)
        tokens, boxes = tokens_of(provider), index_of(provider).boxes
        assert sorted(tokens) == sorted(one["token"] for one in nusc.sample_data if one["channel"] == sensor)
        for number, token in enumerate(tokens):
            found = provider.get_data(number)
            assert found["timestamp"] == nusc.get("sample_data", token)["timestamp"] / 1e6
            np.testing.assert_allclose(found["ego"]["world_from_ego"], ego_and_sensor(nusc, token)[0], **EXACT)
            world_from_reference = found["ego"]["world_from_reference"][:3]
            rows, expected = slice(*boxes.first[number : number + 2]), nusc.get_boxes(token)
            centers = poses.moved(world_from_reference, boxes.center[rows])
            np.testing.assert_allclose(centers, np.reshape([box.center for box in expected], (-1, 3)), **EXACT)
            rotations = world_from_reference[:, :3] @ poses.rotation_of_quaternion(boxes.rotation[rows])
            known = np.reshape([box.rotation_matrix for box in expected], (-1, 3, 3))
            np.testing.assert_allclose(rotations, known, **EXACT)

    def test_have_the_nearest_images_and_their_own_points(self, root, nusc, tmp_path):
        def times_of(channel):
            return {one["timestamp"]: one["token"] for one in of_scene if one["channel"] == channel}

        def scene_of(data):
            return nusc.get("sample", data["sample_token"])["scene_token"]

        provider = opened(root, tmp_path, frames="CAM_FRONT", lidar=True, num_sweeps=1)
        for number in range(len(provider)):
            found = provider.get_data(number)
            data = nusc.get("sample_data", found["token"])
            assert bytes(found["cameras"][0]["image"]) == (root / data["filename"]).read_bytes()
            of_scene = [one for one in nusc.sample_data if scene_of(one) == scene_of(data)]
            for camera in found["cameras"].values() if not data["is_key_frame"] else ():
                distances = [abs(time - data["timestamp"]) for time in times_of(camera["name"])]
                assert round(abs(camera["timestamp"] - found["timestamp"]) * 1e6) == min(distances)
            # The points stay where they were in the world, whatever the frame's time.
            lidar = times_of("LIDAR_TOP")[round(found["lidar"]["timestamp"] * 1e6)]
            world_from_ego, ego_from_lidar, _ = ego_and_sensor(nusc, lidar)
            moved = found["ego"]["world_from_reference"] @ found["lidar"]["reference_from_lidar"]
            np.testing.assert_allclose(moved, world_from_ego @ ego_from_lidar, **EXACT)


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


SCENES = ["scene-0061", "scene-0103"]


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    return NuScenesProvider(
        shared_data("nuscenes_like"),
        "v1.0-mini",
        scenes=SCENES,
        classes="detection",
        boxes_2d=True,
        can_bus=True,
        ego_status=True,
        can_bus_root=shared_data("golden") / "can_bus_synthetic",
        index_cache=tmp_path_factory.mktemp("index"),
    )


def infos_of(model):
    (path, *_) = sorted((shared_data("golden") / "infos" / model).glob("*train*.pkl"))
    return {info["token"]: info for info in pickle.loads(path.read_bytes())["infos"]}


def test_can_messages_are_those_of_the_converters(provider):
    bevformer, sparsedrive = infos_of("bevformer_can"), infos_of("sparsedrive_extra")
    for number in range(len(provider)):
        sample = provider.get_data(number)
        np.testing.assert_allclose(sample["ego"]["can_bus"], bevformer[sample["token"]]["can_bus"], atol=1e-9)
        np.testing.assert_array_equal(sample["ego"]["status"], sparsedrive[sample["token"]]["ego_status"])


def test_boxes_in_images_are_those_of_the_converter(provider):
    infos, num_boxes = infos_of("streampetr"), 0
    order = ["car", "truck", "trailer", "bus", "construction_vehicle", "bicycle", "motorcycle", "pedestrian"]
    order += ["traffic_cone", "barrier"]
    for number in range(len(provider)):
        sample = provider.get_data(number)
        info = infos[sample["token"]]
        assert list(info["cams"]) == list(provider.camera_names)
        for camera, name in enumerate(provider.camera_names):
            found = sample["cameras"][camera]["boxes_2d"]
            boxes = np.reshape(info["bboxes2d"][camera], (-1, 4))
            width_and_height = boxes[:, 2:] - boxes[:, :2]
            assert (width_and_height >= 0).all(), name
            np.testing.assert_allclose(found["boxes"], boxes, atol=1e-3)
            np.testing.assert_allclose(found["centers"], np.reshape(info["centers2d"][camera], (-1, 2)), atol=1e-3)
            np.testing.assert_allclose(found["depths"], info["depths"][camera], rtol=1e-5)
            names = [provider.class_names[number] for number in found["categories"]]
            assert names == [order[label] for label in info["labels2d"][camera]]
            num_boxes += len(names)
    assert num_boxes > 100
