"""The provider of nuScenes against what converters of models made of the same tables."""

import pickle

import numpy as np
import pytest
from support.shared_data import shared_data

from accvlab.driving_data.datasets import NuScenesProvider

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
