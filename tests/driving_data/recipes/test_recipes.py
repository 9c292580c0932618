"""Recipes from end to end, with data that the tests make: loaders, orders, ranks, windows, arguments of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import SCENES, write_driving_data
from driving_support.recipe_cases import batches_of
from support.arrays import encoded_image, gradient

from accvlab.dali_pipeline_framework import Windows
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.datasets import (
    CameraImage,
    DrivingFrame,
    DrivingIndex,
    DrivingProvider,
    index_of_frames,
)
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.recipes import (
    SPARSEDRIVE,
    STREAMPETR,
    ImageAugmentation,
    LidarBoxes,
    SparseDriveSettings,
    StreamPETRSettings,
    as_mmdet,
)
from accvlab.driving_data.recipes.image_augmentation import ImagePlan
from accvlab.driving_data.recipes.streampetr import visible_boxes

HW = (24, 40)
OUTPUT_HW = (8, 16)
CLASSES = ("car", "pedestrian", "barrier")
NUM_FRAMES = sum(SCENES.values())
IMAGES = ImageAugmentation(output_hw=OUTPUT_HW, scale_range=(0.4, 0.6), rotation_range_deg=(-4, 4))
FRAMEWISE = StreamPETRSettings(images=attrs.evolve(IMAGES, rotation_range_deg=(0, 0)), classes=CLASSES, split=1)
PLANNING = SparseDriveSettings(
    images=IMAGES, classes=CLASSES, num_future_frames=2, num_ego_future_frames=3, split=1
)
TORCH: dict[str, Any] = {"output_type": "torch"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[DrivingIndex, Path]:
    root = tmp_path_factory.mktemp("driving") / "data"
    index = write_driving_data(root)
    for file in (root / "images").iterdir():
        file.unlink()
    names = [[f"images/{frame}_{camera}.jpg" for camera in range(2)] for frame in range(NUM_FRAMES)]
    for frame, row in enumerate(names):
        for camera, name in enumerate(row):
            (root / name).write_bytes(bytes(encoded_image(gradient(*HW, 10 * frame + camera), "JPEG")))
    files = np.array(names, np.bytes_)
    return attrs.evolve(index, cameras=attrs.evolve(index.cameras, file=files)), root


def provider_of(data: tuple[DrivingIndex, Path], settings: Any, is_training: bool = True) -> DrivingProvider:
    fields = {**settings.provider_fields(is_training), "min_points": 1} if is_training else {}
    return DrivingProvider(*data, **({**fields} or settings.provider_fields(False)))


# --- StreamPETR ------------------------------------------------------------------------------------------------


def test_streampetr_training(data: Any) -> None:
    provider = provider_of(data, FRAMEWISE)
    batches = batches_of(STREAMPETR, provider, FRAMEWISE, 2, **TORCH)
    frames = [
        int(index)
        for batch in batches
        for index, is_padding in zip(batch["place"]["sample_index"], batch["place"]["is_padding"], strict=True)
        if not is_padding
    ]
    assert sorted(frames) == list(range(NUM_FRAMES))
    for batch in batches:
        assert batch["img"].shape == (2, 1, 2, 3, *OUTPUT_HW)
        assert batch["lidar2img"].shape == (2, 1, 2, 4, 4)
        assert batch["timestamp"].shape == (2, 1)
        assert batch["img_timestamp"].shape == (2, 1, 2)
        assert batch["ego_pose"].shape == (2, 1, 4, 4)
        np.testing.assert_array_equal(batch["prev_exists"][:, 0], ~batch["place"]["is_first"].numpy())
        for boxes, labels in zip(batch["gt_bboxes_3d"], batch["gt_labels_3d"], strict=True):
            assert boxes[0].shape == (len(labels[0]), 9)
        assert [len(cameras[0]) for cameras in batch["gt_bboxes"]] == [2, 2]


def test_pieces_of_scenes_begin_without_history(data: Any) -> None:
    provider = provider_of(data, FRAMEWISE)
    first = {}
    for batch in batches_of(STREAMPETR, provider, attrs.evolve(FRAMEWISE, split=2)):
        first[int(batch["place"]["sample_index"][0])] = float(batch["prev_exists"][0, 0])
    assert first == {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0, 4: 0.0}  # pieces of 2, 1, 1 and 1 frames


def test_windows(data: Any) -> None:
    provider = provider_of(data, FRAMEWISE)
    settings = attrs.evolve(FRAMEWISE, queue_length=3)
    for batch in batches_of(STREAMPETR, provider, settings, 2, last_batch="drop", **TORCH):
        assert batch["img"].shape == (2, 3, 2, 3, *OUTPUT_HW)
        assert batch["prev_exists"][:, 0].tolist() == [0.0, 0.0]
        assert [[len(frames) for frames in sample] for sample in batch["gt_bboxes"]] == [[2] * 3] * 2
        arguments = as_mmdet(batch)
        assert [len(metas) for metas in arguments["img_metas"]] == [3, 3]
        assert arguments["img_metas"][0][2]["sample_token"] == f"frame-{int(batch['place']['sample_index'][0])}"


def test_streampetr_evaluation(data: Any) -> None:
    provider, found = provider_of(data, FRAMEWISE, is_training=False), {}
    for batch in batches_of(STREAMPETR, provider, FRAMEWISE, is_training=False):
        assert batch["img"].shape == (1, 2, 3, *OUTPUT_HW)
        assert not {"gt_bboxes_3d", "prev_exists"} & set(batch)
        found[int(batch["place"]["sample_index"][0])] = bool(batch["place"]["is_first"][0])
    assert found == {0: True, 1: False, 2: False, 3: True, 4: False}


# --- SparseDrive -----------------------------------------------------------------------------------------------


def test_sparsedrive_training(data: Any) -> None:
    provider = provider_of(data, PLANNING)
    batches = batches_of(SPARSEDRIVE, provider, PLANNING, 2, **TORCH)
    assert len(batches) == 3
    for batch in batches:
        assert batch["img"].shape == (2, 2, 3, *OUTPUT_HW)
        assert [tuple(depth.shape) for depth in batch["gt_depth"]] == [(2, 2, 2, 4), (2, 2, 1, 2), (2, 2, 1, 1)]
        assert batch["gt_ego_fut_trajs"].shape == (2, 3, 2)
        assert batch["image_wh"][0].tolist() == [[16.0, 8.0]] * 2
        for boxes, futures, ids, points in zip(
            batch["gt_bboxes_3d"],
            batch["gt_agent_fut_trajs"],
            batch["instance_id"],
            batch["gt_map_pts"],
            strict=True,
        ):
            assert boxes.shape == (len(ids), 9)
            assert futures.shape == (len(ids), 2, 2)
            assert points.shape[1:] == (38, 20, 2)
        arguments = as_mmdet(batch)
        assert set(arguments) >= {"img", "timestamp", "projection_mat", "gt_depth", "focal", "img_metas"}
        assert not {"instance_id", "T_global", "place", "token"} & set(arguments)
        assert set(arguments["img_metas"][0]) >= {"T_global", "T_global_inv", "timestamp", "instance_id"}


@pytest.mark.parametrize(
    ("lidar_yaw", "axis"), [(None, "-y"), (0.02, "-y"), (-np.pi / 2 + 0.02, "x"), (np.pi / 2, "-x"), (np.pi, "y")]
)
def test_commands_of_sparsedrive_are_those_of_the_vehicle(data: Any, lidar_yaw: float | None, axis: str) -> None:
    images = {"FRONT": CameraImage(file="images/0_0.jpg")}
    start = poses.pose(poses.rotation_of_quaternion(poses.quaternion_of_yaw(0.7)), [9.0, 4.0, 0.0])
    frames = [
        DrivingFrame(
            scene=scene,
            time=number / 2,
            world_from_ego=poses.joined(start, poses.pose(np.eye(3), [5.0 * number, to_left * number, 0.0])),
            cameras=images,
        )
        for scene, to_left in (("right", -1.0), ("left", 1.0), ("straight on", 0.0))
        for number in range(4)
    ]
    lidar = None
    if lidar_yaw is not None:
        lidar = poses.pose(poses.rotation_of_quaternion(poses.quaternion_of_yaw(lidar_yaw)), [1.0, 0.0, 2.0])
    settings = SparseDriveSettings(images=IMAGES, zero_ego_status=True, num_ego_future_frames=3)
    index = index_of_frames(frames, ego_from_lidar=lidar)
    provider = DrivingProvider(index, data[1], **settings.provider_fields(is_training=False))
    assert provider.right_axis == axis
    options: dict[str, Any] = {"is_training": False, "extra_fields": ["frame"], **TORCH}
    for samples in (provider, Windows(provider, {"frame": [0]}, unit="frames")):
        batches = batches_of(SPARSEDRIVE, samples, settings, 1, **options)
        commands = [batch["gt_ego_fut_cmd"][0].tolist() for batch in batches]
        assert [commands[first] for first in (0, 4, 8)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_augmentation_is_constant_along_a_sequence(data: Any) -> None:
    provider = provider_of(data, PLANNING)
    focal: dict[int, set[float]] = {0: set(), 1: set()}
    intrinsics = [provider.get_data(index)["cameras"][0]["intrinsics"][0, 0] for index in range(NUM_FRAMES)]
    for batch in batches_of(SPARSEDRIVE, provider, PLANNING):
        index, sequence = (int(batch["place"][name][0]) for name in ("sample_index", "sequence"))
        focal[sequence].add(round(float(batch["focal"][0, 0]) / intrinsics[index], 5))
    assert [len(scales) for scales in focal.values()] == [1, 1]
    assert focal[0] != focal[1]


def test_sparse4d(data: Any) -> None:
    settings = SparseDriveSettings.sparse4d(images=IMAGES, classes=CLASSES, split=1)
    provider = provider_of(data, settings)
    batch = batches_of(SPARSEDRIVE, provider, settings, 1, **TORCH)[0]
    assert {"gt_map_pts", "gt_bboxes_3d"} & set(batch) == {"gt_bboxes_3d"}
    batches = batches_of(SPARSEDRIVE, provider_of(data, settings, False), settings, 2, is_training=False)
    assert "gt_bboxes_3d" not in batches[0]
    assert sum(int((~batch["place"]["is_padding"]).sum()) for batch in batches) == NUM_FRAMES


# --- forms, arguments of models, errors -------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [FRAMEWISE])
def test_forms_agree(data: Any, settings: Any) -> None:
    provider = provider_of(data, settings)
    sampled = [batches_of(STREAMPETR, provider, settings, 1, run=run, **TORCH) for run in ("workers", "auto")]
    formatter, *on_images = STREAMPETR.steps(provider, settings)
    formatted = run_step(formatter, provider.get_data(1), run="workers").output
    outputs = [run_step(on_images, formatted, run=run).output for run in ("workers", "graph")]
    images = [np.stack([camera["image"] for camera in output["cameras"].values()]) for output in outputs]
    np.testing.assert_allclose(*images, atol=10 / 57)
    for first, second in zip(*sampled, strict=True):
        np.testing.assert_array_equal(first["lidar2img"], second["lidar2img"])


def test_arguments_of_streampetr(data: Any) -> None:
    provider = provider_of(data, FRAMEWISE)
    batch = batches_of(STREAMPETR, provider, FRAMEWISE, 2, **TORCH)[0]
    arguments = as_mmdet(batch)
    assert set(arguments) == {
        *("img", "img_metas", "lidar2img", "intrinsics", "extrinsics", "timestamp", "img_timestamp", "ego_pose"),
        *("ego_pose_inv", "prev_exists", "gt_bboxes_3d", "gt_labels_3d", "gt_bboxes", "gt_labels", "centers2d"),
        "depths",
    }
    boxes = arguments["gt_bboxes_3d"][1][0]
    assert isinstance(boxes, LidarBoxes)
    meta = arguments["img_metas"][1][0]
    assert meta["gt_bboxes_3d"]._data is boxes
    assert meta["pad_shape"] == [(*OUTPUT_HW, 3)] * 2
    assert meta["scene_token"] in SCENES
    np.testing.assert_array_equal(boxes.gravity_center[:, 2], boxes.tensor[:, 2] + boxes.tensor[:, 5] / 2)
    np.testing.assert_allclose(boxes.corners.mean(dim=1), boxes.gravity_center, atol=1e-5)
    assert len(boxes[:1]) == len(boxes.to("cpu")[:1]) == min(len(boxes), 1)
    provider = provider_of(data, FRAMEWISE, False)
    arguments = as_mmdet(batches_of(STREAMPETR, provider, FRAMEWISE, is_training=False, **TORCH)[0])
    assert arguments["img"][0].shape == (1, 2, 3, *OUTPUT_HW)
    assert arguments["lidar2img"][0][0].shape == (2, 4, 4)
    assert arguments["img_metas"][0][0]["scene_token"] == "scene-a"
    with pytest.raises(SettingError, match="no batch of StreamPETR"):
        as_mmdet({"image": 1})


def test_images_of_different_sizes(data: Any, tmp_path: Path) -> None:
    index, root = data
    provider = DrivingProvider(index, root, **FRAMEWISE.provider_fields())
    sample = provider.get_data(0)
    step = STREAMPETR.steps(provider, FRAMEWISE)[0]
    draws = {"scale": 0.5, "share": 0.3, "is_flipped": 0.9, "bev_angle": 0.0, "bev_scale": 1.0}
    expected = run_step(step, sample, draws=draws, run="workers").output["cameras"]
    sample["cameras"][1]["image"] = encoded_image(gradient(12, 20), "JPEG")
    result = run_step(step, sample, draws=draws, run="workers").output
    output = result["cameras"]
    # Scaled twice as much, it fills what the larger one fills.
    np.testing.assert_array_equal(output[0]["image_plan"], expected[0]["image_plan"])
    np.testing.assert_array_equal(output[1]["image_plan"], expected[1]["image_plan"])
    focal = np.asarray(sample["cameras"][1]["intrinsics"])[0, 0]
    np.testing.assert_allclose(result["intrinsics"][1][0, 0], 2 * np.float32(0.5) * focal, rtol=1e-6)


# --- labels in images ----------------------------------------------------------------------------------


def painted_by_pixels(boxes: np.ndarray, depths: np.ndarray, hw: tuple[int, int]) -> list[int]:
    """Which boxes are left, by painting each pixel."""
    order = np.argsort(-depths, kind="stable")
    painted = np.zeros(hw, np.int64)
    for number, row in enumerate(order):
        left, top = np.ceil(boxes[row, :2]).astype(int)
        right, bottom = np.floor(boxes[row, 2:]).astype(int)
        painted[top:bottom, left:right] = number
    return order[np.unique(painted)].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_hidden_boxes_are_left_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hw = (20, 30)
    corners = np.sort(rng.uniform(-5, 35, size=(40, 2, 2)), axis=1)
    boxes, depths = corners.reshape(-1, 4), rng.integers(1, 6, 40).astype(float)
    plan = ImagePlan((20, 30), (0, 0), False, 0.0, 1.0, hw)
    kept, _, rows = visible_boxes(boxes, boxes[:, :2], depths, plan, 2.0)
    limited = np.clip(boxes, 0, [30, 20, 30, 20])
    large = np.flatnonzero((limited[:, 2:] - limited[:, :2] >= 2).all(axis=1))
    expected = large[painted_by_pixels(limited[large], depths[large], hw)]
    assert rows.tolist() == expected.tolist()
    np.testing.assert_array_equal(kept, limited[expected])
    mirrored = attrs.evolve(plan, is_flipped=True)
    flipped, _, _ = visible_boxes(boxes, boxes[:, :2], depths, mirrored, 2.0)
    assert (flipped[:, 2] > flipped[:, 0]).all()
    assert (np.diff(depths[rows]) <= 0).all()
    assert not len(visible_boxes(boxes[:0], boxes[:0, :2], depths[:0], plan, 2.0)[0])
