"""StreamPETR, SparseDrive and Sparse4D from end to end: orders, queues, labels, arguments of models."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import SCENES
from driving_support.recipe_cases import CLASSES, SMALL, batches_of
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import encoded_image, gradient

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.datasets import CameraImage, DrivingFrame, DrivingProvider, index_of_frames
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.recipes import (
    SPARSEDRIVE,
    STREAMPETR,
    LidarBoxes,
    SparseDriveSettings,
    StreamPETRSettings,
    as_mmdet,
)
from accvlab.driving_data.recipes.image_augmentation import ImagePlan
from accvlab.driving_data.recipes.recipe_parts import scene_boxes
from accvlab.driving_data.recipes.streampetr import visible_boxes

HW = (8, 16)
FRAMEWISE = StreamPETRSettings(images=SMALL, classes=CLASSES, split=1)
TURNED = attrs.evolve(SMALL, rotation_range_deg=(-4, 4))
PLANNING = SparseDriveSettings(
    images=TURNED, classes=CLASSES, num_future_frames=2, num_ego_future_frames=3, split=1
)
TORCH: dict[str, Any] = {"output_type": "torch"}


def provider_of(drive: Any, settings: Any, is_training: bool = True) -> DrivingProvider:
    return DrivingProvider(*drive, **settings.provider_fields(is_training))


# --- StreamPETR ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "first"),
    [(1, {0: 0.0, 1: 1.0, 2: 1.0, 3: 0.0, 4: 1.0}), (2, {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0, 4: 0.0})],
)
def test_pieces_of_scenes_begin_without_history(drive: Any, split: int, first: dict[int, float]) -> None:
    settings, found = attrs.evolve(FRAMEWISE, split=split), {}
    for batch in batches_of(STREAMPETR, provider_of(drive, settings), settings):
        found[int(batch["place"]["sample_index"][0])] = float(batch["prev_exists"][0, 0])
    assert found == first


def test_queues(drive: Any) -> None:
    settings = attrs.evolve(FRAMEWISE, queue_length=3)
    batches = batches_of(STREAMPETR, provider_of(drive, settings), settings, 2, last_batch="drop", **TORCH)
    for batch in batches:
        assert batch["img"].shape == (2, 3, 2, 3, *HW)
        assert (batch["timestamp"].shape, batch["img_timestamp"].shape) == ((2, 3), (2, 3, 2))
        assert (batch["ego_pose"].shape, batch["lidar2img"].shape) == ((2, 3, 4, 4), (2, 3, 2, 4, 4))
        assert batch["prev_exists"][:, 0].tolist() == [0.0, 0.0]
        assert [[len(frames) for frames in sample] for sample in batch["gt_bboxes"]] == [[2] * 3] * 2
        arguments = as_mmdet(batch)
        assert [len(metas) for metas in arguments["img_metas"]] == [3, 3]
        assert arguments["img_metas"][0][2]["sample_token"] == f"frame-{int(batch['place']['sample_index'][0])}"


def test_arguments_of_streampetr(drive: Any) -> None:
    batch = batches_of(STREAMPETR, provider_of(drive, FRAMEWISE), FRAMEWISE, 2, **TORCH)[0]
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
    assert meta["pad_shape"] == [(*HW, 3)] * 2
    assert meta["scene_token"] in SCENES
    np.testing.assert_array_equal(boxes.gravity_center[:, 2], boxes.tensor[:, 2] + boxes.tensor[:, 5] / 2)
    np.testing.assert_allclose(boxes.corners.mean(dim=1), boxes.gravity_center, atol=1e-5)
    assert len(boxes[:1]) == len(boxes.to("cpu")[:1]) == min(len(boxes), 1)
    provider = provider_of(drive, FRAMEWISE, is_training=False)
    arguments = as_mmdet(batches_of(STREAMPETR, provider, FRAMEWISE, is_training=False, **TORCH)[0])
    assert arguments["img"][0].shape == (1, 2, 3, *HW)
    assert arguments["lidar2img"][0][0].shape == (2, 4, 4)
    assert arguments["img_metas"][0][0]["scene_token"] == "scene-a"
    assert as_mmdet({**batch, "weather": ["sun", "rain"]}, "cpu")["weather"] == ["sun", "rain"]
    with pytest.raises(SettingError, match="no batch of StreamPETR"):
        as_mmdet({"image": 1})


def test_images_of_different_sizes(drive: Any) -> None:
    provider = DrivingProvider(*drive, **FRAMEWISE.provider_fields())
    sample = provider.get_data(0)
    step = STREAMPETR.steps(provider, FRAMEWISE)[0]
    draws = {"scale": 0.5, "share": 0.3, "is_flipped": 0.9, "bev_angle": 0.0, "bev_scale": 1.0}
    expected = run_step(step, sample, draws=draws, run="workers").output["cameras"]
    sample["cameras"][1]["image"] = encoded_image(gradient(15, 22), "JPEG")
    result = run_step(step, sample, draws=draws, run="workers").output
    output = result["cameras"]
    # Scaled twice as much, it fills what the larger one fills.
    np.testing.assert_array_equal(output[0]["image_plan"], expected[0]["image_plan"])
    np.testing.assert_array_equal(output[1]["image_plan"], expected[1]["image_plan"])
    focal = np.asarray(sample["cameras"][1]["intrinsics"])[0, 0]
    np.testing.assert_allclose(result["intrinsics"][1][0, 0], 2 * np.float32(0.5) * focal, rtol=1e-6)


def test_a_turned_scene_turns_yaws_as_it_turns_places() -> None:
    yaws, angle = np.array([0.3, -2.0]), 0.7
    ahead = np.column_stack([np.cos(yaws), np.sin(yaws), [0.0, 0.0]])
    scene = np.eye(4)
    scene[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    boxes = {"centers": ahead, "velocities": ahead, "sizes": np.ones((2, 3)), "yaws": yaws}
    found = scene_boxes(boxes, np.array([True, True]), scene, angle, z="center")
    expected = np.column_stack([np.cos(found[:, 6]), np.sin(found[:, 6])])
    np.testing.assert_allclose(found[:, [0, 1, 7, 8]], np.tile(expected, 2), atol=1e-12)


def painted_by_pixels(boxes: np.ndarray, depths: np.ndarray, hw: tuple[int, int]) -> list[int]:
    """Which boxes are left, by painting each pixel."""
    order = np.argsort(-depths, kind="stable")
    painted = np.zeros(hw, np.int64)
    for number, row in enumerate(order):
        left, top = np.ceil(boxes[row, :2]).astype(int)
        right, bottom = np.floor(boxes[row, 2:]).astype(int)
        painted[top:bottom, left:right] = number
    return order[np.unique(painted)].tolist()


@given(st.integers(0, 2**32 - 1))
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


# --- SparseDrive -----------------------------------------------------------------------------------------------


def test_batches_and_arguments_of_sparsedrive(drive: Any) -> None:
    batches = batches_of(SPARSEDRIVE, provider_of(drive, PLANNING), PLANNING, 2, **TORCH)
    assert len(batches) == 3
    for batch in batches:
        assert batch["img"].shape == (2, 2, 3, *HW)
        assert [tuple(depth.shape) for depth in batch["gt_depth"]] == [(2, 2, 2, 4), (2, 2, 1, 2), (2, 2, 1, 1)]
        assert batch["gt_ego_fut_trajs"].shape == (2, 3, 2)
        assert batch["image_wh"][0].tolist() == [[16.0, 8.0]] * 2
        for name, shape in {"gt_bboxes_3d": (9,), "gt_agent_fut_trajs": (2, 2), "gt_map_pts": (38, 20, 2)}.items():
            assert [each.shape[1:] for each in batch[name]] == [shape] * 2
        assert [len(ids) for ids in batch["instance_id"]] == [len(boxes) for boxes in batch["gt_bboxes_3d"]]
        arguments = as_mmdet(batch)
        assert set(arguments) >= {"img", "timestamp", "projection_mat", "gt_depth", "focal", "img_metas"}
        assert not {"instance_id", "T_global", "place", "token"} & set(arguments)
        assert set(arguments["img_metas"][0]) >= {"T_global", "T_global_inv", "timestamp", "instance_id"}


def test_sparse4d_has_no_map(drive: Any) -> None:
    settings = SparseDriveSettings.sparse4d(images=TURNED, classes=CLASSES, split=1)
    batch = batches_of(SPARSEDRIVE, provider_of(drive, settings), settings)[0]
    assert {"gt_map_pts", "gt_bboxes_3d"} & set(batch) == {"gt_bboxes_3d"}


def test_augmentation_is_constant_along_a_sequence(drive: Any) -> None:
    focal: dict[int, set[float]] = {0: set(), 1: set()}
    for batch in batches_of(SPARSEDRIVE, provider_of(drive, PLANNING), PLANNING):
        focal[int(batch["place"]["sequence"][0])].add(float(batch["focal"][0, 0]))
    assert [len(scales) for scales in focal.values()] == [1, 1]
    assert focal[0] != focal[1]


@pytest.mark.parametrize(
    ("lidar_yaw", "axis"), [(None, "-y"), (0.02, "-y"), (-np.pi / 2 + 0.02, "x"), (np.pi / 2, "-x"), (np.pi, "y")]
)
def test_commands_of_sparsedrive_are_those_of_the_vehicle(drive: Any, lidar_yaw: float | None, axis: str) -> None:
    images = {"FRONT": CameraImage(file="images/0_FRONT.ppm")}
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
    settings = SparseDriveSettings(images=TURNED, zero_ego_status=True, num_ego_future_frames=3)
    index = index_of_frames(frames, ego_from_lidar=lidar)
    provider = DrivingProvider(index, drive[1], **settings.provider_fields(is_training=False))
    assert provider.right_axis == axis
    batches = batches_of(SPARSEDRIVE, provider, settings, is_training=False, **TORCH)
    commands = [batch["gt_ego_fut_cmd"][0].tolist() for batch in batches]
    assert [commands[first] for first in (0, 4, 8)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
