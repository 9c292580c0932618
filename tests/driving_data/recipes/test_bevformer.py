"""Queues of BEVFormer: which frames, what they tell of the motion, what comes out of the loader."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import cv2
import numpy as np
import pytest
from driving_support.driving_data import CAMERAS, HW, write_drive
from driving_support.recipe_cases import batches_of
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import encoded_image, gradient

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import BEVFORMER, BEVFormerQueues, BEVFormerSettings, as_mmdet
from accvlab.driving_data.recipes.bevformer import QueueSampler, queue_frames, queue_states

AS_PUBLISHED = BEVFormerSettings(emulates_reference=True)


def provider_of(drive: Any, **fields: Any) -> DrivingProvider:
    return DrivingProvider(*drive, **{"can_bus": True, **fields})


# --- queues ---------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(1, 6), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_queues_are_those_of_the_published_code(index: int, length: int, seed: int) -> None:
    """As its data set draws them: all but one of the frames before, and the frame; none before the first."""
    before = list(range(index - length, index))
    random.Random(seed).shuffle(before)
    published = [max(frame, 0) for frame in [*sorted(before[1:]), index]]
    assert published == queue_frames(index, before[0] - (index - length), length, 0)


def published_states(of_frame: np.ndarray, frames: list[int], scenes: list[int]) -> tuple[list[Any], list[bool]]:
    """As its ``union2one`` does: entries of one frame are one array."""
    arrays = {frame: of_frame[frame].copy() for frame in frames}
    moves, before, scene_before, exists = [0, 1, 2, -1], np.zeros(4), None, []
    for frame, scene in zip(frames, scenes, strict=True):
        exists.append(scene == scene_before)
        state = arrays[frame][moves]
        arrays[frame][moves] = state - before if exists[-1] else 0
        before, scene_before = state, scene
    return [arrays[frame] for frame in frames], exists


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 5), min_size=1, max_size=5).map(sorted))
@settings(max_examples=50, deadline=None)
def test_states_are_those_of_the_published_code(seed: int, frames: list[int]) -> None:
    scenes = [frame // 3 for frame in frames]
    of_frame = np.random.default_rng(seed).normal(size=(6, 18)) * 100
    can_bus, has_memory = queue_states(of_frame[frames], frames, scenes, emulates_reference=True)
    expected, exists = published_states(of_frame, frames, scenes)
    np.testing.assert_array_equal(can_bus, expected)
    assert has_memory.tolist() == exists


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 8), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_states_add_up_to_the_motion(seed: int, chosen: list[int]) -> None:
    """From where the memory begins to the last frame of the scene; repeated frames have no memory."""
    frames = sorted(chosen)
    scenes = [frame // 3 for frame in frames]
    of_frame = np.random.default_rng(seed).uniform(0, 360, size=(9, 18))
    can_bus, has_memory = queue_states(of_frame[frames], frames, scenes, emulates_reference=False)
    for place, (frame, scene) in enumerate(zip(frames, scenes, strict=True)):
        is_new = place == 0 or scenes[place - 1] != scene or frames[place - 1] == frame
        assert has_memory[place] == (not is_new)
        begin = max(each for each in range(place + 1) if not has_memory[each])
        moved = can_bus[begin : place + 1, :3].sum(axis=0)
        np.testing.assert_allclose(moved, of_frame[frame, :3] - of_frame[frames[begin], :3], atol=1e-9)
        turned = can_bus[begin : place + 1, -1].sum() - (of_frame[frame, -1] - of_frame[frames[begin], -1])
        assert math.isclose(turned / 360, round(turned / 360), abs_tol=1e-9)
    assert (np.abs(can_bus[:, -1]) <= 180).all()
    np.testing.assert_array_equal(can_bus[:, 3:-1], of_frame[frames, 3:-1])


def test_the_sampler_plays_each_frame_once_with_each_queue_equally_often() -> None:
    sampler = QueueSampler(50, queue_length=4, total_batch_size=5, seed=2)
    counts: Counter[int] = Counter()
    for epoch in range(40):
        indices = [int(i) for batch in range(10) for i in sampler.get_batch_indices(epoch, batch)]
        assert sorted(index // 4 for index in indices) == [*range(50)]
        counts.update(index % 4 for index in indices)
    assert all(abs(count - 500) < 80 for count in counts.values())
    assert sampler.num_samples == 200
    both = [*sampler.get_batch_indices(3, 0), *sampler.get_batch_indices(3, 1)]
    assert sorted(sampler.with_settings(total_batch_size=10).get_batch_indices(3, 0)) == sorted(both)
    others = [QueueSampler(50, queue_length=length, seed=2).describe() for length in (4, 4, 3)]
    assert others[0] == others[1] != others[2]
    # A change of these numbers is a change of order.
    assert sampler.get_batch_indices(0, 0).tolist() == [147, 51, 69, 135, 6]


# --- samples --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_training", [False, True])
def test_the_provider_keeps_the_contract(is_training: bool, drive: Any) -> None:
    check_provider(BEVFormerQueues(provider_of(drive), is_training=is_training), num_workers=0)


def test_queues_stay_in_their_scene_unless_emulated(drive: Any) -> None:
    queues = BEVFormerQueues(provider_of(drive))
    assert [queues.frames_of(4 * 3 + left_out) for left_out in range(3)] == [[3, 3, 4], [3, 3, 4], [3, 3, 4]]
    sample = queues.get_data(4 * 3)
    assert sample["prev_bev_exists"].tolist() == [False, False, True]
    assert not sample["can_bus"][:2, :3].any()
    emulated = BEVFormerQueues(provider_of(drive), AS_PUBLISHED)
    assert [emulated.frames_of(4 * 3 + left_out) for left_out in range(3)] == [[2, 3, 4], [1, 3, 4], [1, 2, 4]]
    assert emulated.get_data(4 * 3 + 1)["prev_bev_exists"].tolist() == [False, False, True]


def test_can_bus_holds_pose_and_messages(drive: Any) -> None:
    provider = provider_of(drive)
    [row] = BEVFormerQueues(provider, is_training=False).get_data(2)["can_bus"]
    ego = provider.get_data(2)["ego"]
    rotation = ego["world_from_ego"][:3, :3]
    np.testing.assert_array_equal(row[:3], ego["world_from_ego"][:3, 3])
    w, x, y, z = row[3:7]
    forward = [w * w + x * x - y * y - z * z, 2 * (x * y + w * z), 2 * (x * z - w * y)]
    np.testing.assert_allclose(forward, rotation[:, 0], atol=1e-12)
    np.testing.assert_array_equal(row[7:16], ego["can_bus"][7:16])
    assert 0 <= row[17] < 360
    np.testing.assert_allclose(row[16], math.radians(row[17]))
    np.testing.assert_allclose(np.hypot(*rotation[:2, 0]) * np.cos(row[16]), rotation[0, 0], atol=1e-12)
    [emulated] = BEVFormerQueues(provider, AS_PUBLISHED, is_training=False).get_data(2)["can_bus"]
    assert emulated[3:7].tolist() == [w] * 4
    without = provider_of(drive, can_bus=False)
    zeros = BEVFormerSettings(zero_can_bus=True)
    [zero] = BEVFormerQueues(without, zeros, is_training=False).get_data(2)["can_bus"]
    assert not zero[7:16].any()
    np.testing.assert_array_equal(zero[:7], row[:7])


def test_boxes_in_range_have_the_chosen_layout(drive: Any) -> None:
    provider = provider_of(drive)
    limited = BEVFormerSettings(point_cloud_range=[-15, -18, -5, 20, 21, 3], box_layout="l,w,h,yaw")
    boxes = provider.get_data(1)["boxes"]
    x, y, _ = boxes["centers"].T
    kept = (x > -15) & (x < 20) & (y > -18) & (y < 21) & (boxes["categories"] >= 0)
    assert 0 < kept.sum() < len(kept)
    bottoms = boxes["centers"] - boxes["sizes"] * [0, 0, 0.5]
    velocities = np.nan_to_num(boxes["velocities"][:, :2])
    expected = np.column_stack([bottoms, boxes["sizes"], boxes["yaws"], velocities])[kept]
    found = BEVFormerQueues(provider, limited).get_data(3)["gt_bboxes_3d"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    other = BEVFormerQueues(provider, attrs.evolve(limited, box_layout="w,l,h,-yaw-pi/2")).get_data(3)
    np.testing.assert_allclose(other["gt_bboxes_3d"][:, 3:5], expected[:, [4, 3]], rtol=1e-5)
    angles = expected[:, 6] + other["gt_bboxes_3d"][:, 6] + math.pi / 2
    np.testing.assert_allclose(np.cos(angles), 1, atol=1e-6)


def test_images_of_different_sizes_are_named(tmp_path: Path) -> None:
    other = write_drive(tmp_path)
    (tmp_path / "images/1_LEFT.ppm").write_bytes(bytes(encoded_image(gradient(70, 50))))
    queues = BEVFormerQueues(provider_of((other, tmp_path)))
    told = r"must have one size.*FRONT of frame 0: 30 x 44, LEFT of frame 1: 70 x 50"
    with pytest.raises(FieldValueError, match=told):
        queues.get_data(2 * 3 + 1)
    assert queues.get_data(3 * 3)["token"] == "frame-3"


# --- images ---------------------------------------------------------------------------------------------


def prepared(pixels: np.ndarray) -> np.ndarray:
    """As the published order: normalize, scale, fill up."""
    normal = (pixels.astype(np.float32) - np.float32([123.675, 116.28, 103.53])) / np.float32(
        [58.395, 57.12, 57.375]
    )
    small = cv2.resize(normal, (HW[1] // 2, HW[0] // 2), interpolation=cv2.INTER_LINEAR)
    padded = np.zeros((32, 32, 3), np.float32)
    padded[: small.shape[0], : small.shape[1]] = small
    return padded.transpose(2, 0, 1)


def test_a_loader_of_training(drive: Any) -> None:
    plain = BEVFormerSettings(distorts_colors=False)
    arguments: Any = {"num_workers": 0, "output_type": "numpy"}
    with BEVFORMER.loader(provider_of(drive), 2, plain, seed=5, **arguments) as loader:
        [first, second] = loader
        [again, _] = loader
    assert not np.array_equal(first["can_bus"], again["can_bus"])
    assert first["img"].shape == (2, 3, len(CAMERAS), 3, 32, 32)
    assert first["img"].dtype == np.float32
    arrays = {name: value for name, value in first.items() if isinstance(value, np.ndarray) and name != "img"}
    assert {name: (value.shape, value.dtype.name) for name, value in arrays.items()} == {
        "can_bus": ((2, 3, 18), "float64"),
        "prev_bev_exists": ((2, 3), "bool"),
        "timestamp": ((2, 3), "float64"),
        "lidar2img": ((2, 3, 2, 4, 4), "float64"),
        "lidar2cam": ((2, 3, 2, 4, 4), "float64"),
    }
    assert [boxes.shape[1] for boxes in second["gt_bboxes_3d"]] == [9, 9]
    for slot, token in enumerate(first["token"]):
        frame = int(token.removeprefix("frame-"))
        for camera in range(len(CAMERAS)):
            expected = prepared(gradient(*HW, 10 * frame + camera))
            assert np.abs(first["img"][slot, -1, camera] - expected).max() < 0.1  # of JPEG


def test_evaluation_starts_without_memory_at_each_scene(drive: Any) -> None:
    batches = batches_of(BEVFORMER, provider_of(drive), None, 1, is_training=False)
    assert [bool(batch["prev_bev_exists"][0]) for batch in batches] == [False, True, True, False, True]
    assert batches[0]["img"].shape == (1, len(CAMERAS), 3, 32, 32)
    assert batches[0]["can_bus"].shape == (1, 18)


def test_arguments_of_forward(drive: Any) -> None:
    batch = batches_of(BEVFORMER, provider_of(drive), None, 2, seed=5, output_type="torch")[0]
    arguments = as_mmdet(batch)
    assert {*arguments} == {"img", "img_metas", "gt_bboxes_3d", "gt_labels_3d"}
    boxes = arguments["gt_bboxes_3d"][0]
    assert boxes.tensor is batch["gt_bboxes_3d"][0] or (boxes.tensor == batch["gt_bboxes_3d"][0]).all()
    for sample in range(2):
        assert [*arguments["img_metas"][sample]] == [0, 1, 2]
        last = arguments["img_metas"][sample][2]
        assert last["scene_token"] == batch["scene"][sample]
        assert last["img_shape"] == [(32, 32, 3)] * 2
        assert bool(last["prev_bev_exists"]) == bool(batch["prev_bev_exists"][sample, 2])
        np.testing.assert_array_equal(last["can_bus"], batch["can_bus"][sample, 2].numpy())
        np.testing.assert_array_equal(last["lidar2img"], batch["lidar2img"][sample, 2].numpy())
    batch = batches_of(BEVFORMER, provider_of(drive), is_training=False, output_type="torch")[0]
    arguments = as_mmdet(batch)
    [[meta]] = arguments["img_metas"]
    assert meta["can_bus"].shape == (18,)
    assert len(meta["lidar2img"]) == len(CAMERAS)
    assert arguments["img"][0] is batch["img"]


def test_without_a_gpu_images_are_changed_in_the_workers(drive: Any) -> None:
    """In the graph of the CPU, it would take several times as long."""
    with BEVFORMER.loader(provider_of(drive), 2, num_workers=0) as loader:
        assert loader.plan.startswith("in the workers: 3 of 3 steps (there is no GPU)\n")
