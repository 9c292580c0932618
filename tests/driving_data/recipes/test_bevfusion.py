"""The data of BEVFusion: augmentations against those of the published code, matrices, batches."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import CAMERAS, HW
from driving_support.recipe_cases import WIDE, batches_of
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.datasets import DrivingProvider, InfosProvider
from accvlab.driving_data.recipes import BEVFUSION, BEVFusionSettings, BEVMasks, ImageAugmentation

IMAGES = ImageAugmentation(output_hw=(16, 24), scale_range=(0.5, 0.8), rotation_range_deg=(-5, 5))


def settings_of(**given: Any) -> BEVFusionSettings:
    return BEVFusionSettings(**{"images": IMAGES, "num_sweeps": 0, "point_cloud_range": WIDE, **given})


SETTINGS = settings_of(num_sweeps=1, num_loaded_sweeps=2, close_distance=0)


def provider_of(drive: Any, **fields: Any) -> DrivingProvider:
    return DrivingProvider(*drive, **{"lidar": True, "num_sweeps": 2, **fields})


STILL: dict[str, Any] = {
    "scale": [0.62, 0.71],
    "share": [0.5, 0.2],
    "is_flipped": [0.9, 0.1],
    "rotation_deg": [0, 3],
    "angle": 0,
    "size": 1,
    "shift": [0, 0, 0],
    "mirrors": [1, 1],
    "point_order": 5,
}


def run_of(drive: Any, frame: int, settings: BEVFusionSettings = SETTINGS, **values: Any) -> Any:
    provider = provider_of(drive, map_lines=settings.masks is not None)
    steps = BEVFUSION.steps(provider, settings)
    draws = {**STILL, **values, **({"order": [0.1, 0.2]} if settings.num_sweeps else {})}
    run = run_step(steps[:-2], provider.get_data(frame), run="workers", draws=draws)
    return provider.get_data(frame), run.output


# --- the scene ------------------------------------------------------------------------------------------


def published(boxes: np.ndarray, points: np.ndarray, drawn: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """``GlobalRotScaleTrans`` and ``RandomFlip3D`` on boxes x, y, z, w, l, h, angle, vx, vy."""
    boxes, points, transform = boxes.copy(), points.copy(), np.eye(4)
    theta, scale, shift = drawn["angle"], drawn["size"], np.array(drawn["shift"])
    sin, cos = math.sin(theta), math.cos(theta)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    boxes[:, :3] = boxes[:, :3] @ turn
    boxes[:, 6] += theta
    boxes[:, 7:9] = boxes[:, 7:9] @ turn[:2, :2]
    boxes[:, :3] += shift
    boxes[:, :6] *= scale
    boxes[:, 7:] *= scale
    points[:, :3] = (points[:, :3] @ turn + shift) * scale
    transform[:3, :3] = turn.T * scale
    transform[:3, 3] = shift * scale
    if drawn["mirrors"][0] < 0.5:
        boxes[:, 1::7] = -boxes[:, 1::7]
        boxes[:, 6] = -boxes[:, 6] + math.pi
        points[:, 1] *= -1
        transform[:3, :] = np.diag([1, -1, 1]) @ transform[:3, :]
    if drawn["mirrors"][1] < 0.5:
        boxes[:, 0::7] = -boxes[:, 0::7]
        boxes[:, 6] = -boxes[:, 6]
        points[:, 0] *= -1
        transform[:3, :] = np.diag([-1, 1, 1]) @ transform[:3, :]
    boxes[:, 6] -= np.floor(boxes[:, 6] / (2 * math.pi) + 0.5) * 2 * math.pi
    return boxes, points, transform


@pytest.mark.parametrize("mirrors", [(1, 1), (0, 1), (1, 0), (0.4, 0.4)], ids=str)
@pytest.mark.parametrize("emulates", [False, True])
def test_the_scene_moves_as_in_the_published_code(drive: Any, mirrors: Any, emulates: bool) -> None:
    drawn = {"angle": 0.6, "size": 1.07, "shift": [0.5, -1.0, 0.25], "mirrors": mirrors}
    settings = settings_of(emulates_reference=emulates, shuffles_points=False)
    sample, output = run_of(drive, 1, settings, **drawn)
    given = sample["boxes"]
    kept = np.flatnonzero(given["categories"] >= 0)
    rows = []
    for row in kept:
        x, y, z = given["centers"][row].astype(float)
        length, width, height = given["sizes"][row].astype(float)
        velocity = np.nan_to_num(given["velocities"][row, :2])
        rows.append([x, y, z, width, length, height, -float(given["yaws"][row]) - math.pi / 2, *velocity])
    sample["lidar"]["points"][:, 4] = 0  # the age
    boxes, points, transform = published(np.array(rows), sample["lidar"]["points"].astype(float), drawn)
    if not emulates:
        boxes[:, 2] -= boxes[:, 5] / 2
    np.testing.assert_allclose(output["lidar_aug_matrix"], transform, atol=1e-6)
    np.testing.assert_allclose(output["points"], points, atol=1e-5)
    found = output["gt_bboxes_3d"]
    np.testing.assert_allclose(np.delete(found, 6, 1), np.delete(boxes, 6, 1), atol=1e-5)
    np.testing.assert_allclose(np.cos(found[:, 6] - boxes[:, 6]), 1, atol=1e-9)
    assert (np.abs(found[:, 6]) <= np.float32(math.pi)).all()
    # car, pedestrian, barrier, as the configuration numbers them
    assert output["gt_labels_3d"].tolist() == np.array([0, 8, 5])[given["categories"][kept]].tolist()


def test_points_and_boxes_out_of_range_are_left_out_and_points_are_shuffled(drive: Any) -> None:
    limits = (-10.0, -12, -1, 20, 15, 1)
    sample, output = run_of(drive, 4, settings_of(point_cloud_range=limits))
    points = sample["lidar"]["points"]
    points[:, 4] = 0  # the age
    inside = ((points[:, :3] > limits[:3]) & (points[:, :3] < limits[3:])).all(axis=1)
    assert 0 < inside.sum() < len(points)
    assert sorted(map(tuple, output["points"].tolist())) == sorted(map(tuple, points[inside].tolist()))
    centers = sample["boxes"]["centers"]
    kept = ((centers[:, :2] > limits[:2]) & (centers[:, :2] < limits[3:5])).all(axis=1)
    np.testing.assert_array_equal(output["gt_bboxes_3d"][:, :2], centers[kept][:, :2])
    (_, one), (_, other) = (run_of(drive, 4, settings_of(), point_order=order) for order in (5, 6))
    assert not np.array_equal(one["points"], other["points"])


@pytest.mark.parametrize(("num_loaded_sweeps", "expected"), [(0, {0, 0.5}), (1, {0, 0.5}), (2, {0, 0.5, 1})])
def test_sweeps_are_drawn_among_the_newest(drive: Any, num_loaded_sweeps: int, expected: set[float]) -> None:
    settings = attrs.evolve(SETTINGS, num_loaded_sweeps=num_loaded_sweeps)
    provider = provider_of(drive)  # has two sweeps
    steps = BEVFUSION.steps(provider, settings)[:-2]
    ages = [
        run_step(steps, provider.get_data(2), run="workers", seed=seed).output["points"][:, 4]
        for seed in range(12)
    ]
    assert {*np.concatenate(ages).round(3).tolist()} == expected


@pytest.mark.parametrize("is_training", [True, False])
def test_points_without_sweeps_have_an_age_of_0(drive: Any, is_training: bool) -> None:
    provider = provider_of(drive, boxes=is_training)
    points = provider.get_data(2)["lidar"]["points"]
    assert points.shape[1] == 5
    assert (points[:, 4] != 0).any()
    zeros = np.zeros((len(points), 1), np.float32)
    expected_of = {
        4: [points[:, :4], zeros],
        3: [points[:, :3], zeros, points[:, 4:]],
        None: [points, zeros],
        5: [points],  # there is no such column
    }
    for age_column, expected in expected_of.items():
        settings = settings_of(age_column=age_column, shuffles_points=False)
        steps = BEVFUSION.steps(provider, settings, is_training=is_training)[:-2]
        output = run_step(steps, provider.get_data(2), run="workers", draws=STILL if is_training else None).output
        np.testing.assert_array_equal(output["points"], np.concatenate(expected, axis=1))


# --- cameras --------------------------------------------------------------------------------------------


def test_matrices_lead_from_the_original_point_to_the_delivered_pixel(drive: Any) -> None:
    sample, output = run_of(drive, 1, angle=0.3, size=0.9)
    np.testing.assert_allclose(output["lidar2ego"], sample["ego"]["ego_from_reference"], rtol=1e-6)
    place = np.array([1.0, 2.0, 3.0, 1.0])
    for number in range(len(CAMERAS)):
        camera, given = output["cameras"][number], sample["cameras"][number]
        np.testing.assert_allclose(camera["lidar2camera"], given["camera_from_reference"], rtol=1e-5)
        np.testing.assert_allclose(camera["camera2lidar"] @ camera["lidar2camera"], np.eye(4), atol=1e-5)
        np.testing.assert_allclose(camera["camera2ego"], given["ego_from_camera"], rtol=1e-5)
        np.testing.assert_allclose(camera["camera_intrinsics"][:3, :3], given["intrinsics"], rtol=1e-6)
        seen = given["intrinsics"] @ (given["camera_from_reference"] @ place)[:3]
        np.testing.assert_allclose((camera["lidar2image"] @ place)[:3], seen, rtol=1e-5)
        change = IMAGES.plan(HW, lambda name, of=number: STILL[name][of]).matrix  # type: ignore[misc]
        expected = [*(change @ (seen / seen[2]))[:2], seen[2], 1]
        np.testing.assert_allclose(
            camera["img_aug_matrix"] @ [*seen[:2] / seen[2], seen[2], 1], expected, rtol=1e-5
        )


def test_masks_are_in_the_scene_as_it_was_moved(drive: Any) -> None:
    masks = BEVMasks(x_range=(-30, 30), y_range=(-30, 30), cell_size=1.0, lines=[1], boxes=[[0, 5, 8]])
    settings = settings_of(masks=masks)
    provider = provider_of(drive, map_lines=True)
    steps = BEVFUSION.steps(provider, settings)
    plain = run_step(steps, provider.get_data(2), run="workers", draws=STILL).output
    assert plain.format.find("map_lines") == plain.format.find("boxes") == []
    mirrored = run_step(steps, provider.get_data(2), run="workers", draws={**STILL, "mirrors": [0, 0]}).output
    assert plain["gt_masks_bev"][0].any()
    assert (plain["gt_masks_bev"][:, ::-1, ::-1] != mirrored["gt_masks_bev"]).sum() <= 1


# --- batches --------------------------------------------------------------------------------------------


def test_a_loader_of_training(drive: Any) -> None:
    settings = settings_of(num_sweeps=1, num_loaded_sweeps=2, masks=BEVMasks(lines=[0], boxes=[0]))
    [batch, _] = batches_of(BEVFUSION, provider_of(drive, map_lines=True), settings, 2, seed=1)
    shapes = {name: (value.shape, value.dtype.name) for name, value in batch.items() if hasattr(value, "shape")}
    of_cameras = (
        "camera_intrinsics",
        "camera2ego",
        "lidar2camera",
        "camera2lidar",
        "lidar2image",
        "img_aug_matrix",
    )
    assert shapes == {
        "img": ((2, 2, 3, 16, 24), "float32"),
        **dict.fromkeys(of_cameras, ((2, 2, 4, 4), "float32")),
        "lidar2ego": ((2, 4, 4), "float32"),
        "lidar_aug_matrix": ((2, 4, 4), "float32"),
        "gt_masks_bev": ((2, 2, 200, 200), "int64"),
    }
    assert [points.shape[1] for points in batch["points"]] == [5, 5]
    assert [boxes.dtype.name for boxes in batch["gt_bboxes_3d"]] == ["float32"] * 2
    assert [labels.dtype.name for labels in batch["gt_labels_3d"]] == ["int64"] * 2
    assert {*batch} - {*shapes} == {"points", "gt_bboxes_3d", "gt_labels_3d", "token", "scene", "place"}


def test_evaluation_has_the_mean_change_of_images(drive: Any) -> None:
    settings = settings_of(num_sweeps=1)
    batches = batches_of(BEVFUSION, provider_of(drive, boxes=False, num_sweeps=1), settings, is_training=False)
    for batch in batches:
        np.testing.assert_array_equal(batch["lidar_aug_matrix"][0], np.eye(4))
        # the mean factor, the middle of the crop
        scale = np.float32(0.65)
        left = int(0.5 * (int(HW[1] * 0.65) - 24))
        expected = [[scale, 0, 0, -left], [0, scale, 0, 16 - int(HW[0] * 0.65)], [0, 0, 1, 0], [0, 0, 0, 1]]
        np.testing.assert_allclose(batch["img_aug_matrix"][0, 0], expected, rtol=1e-6)


# --- reference data -------------------------------------------------------------------------------------


def test_boxes_and_points_of_a_published_pickle(tmp_path: Path) -> None:
    """Boxes against those that the published data set makes of its pickle; points against their definition."""
    folder = shared_data("golden")
    path = folder / "infos/bevfusion/nuscenes_infos_train.pkl"
    expected = np.load(folder / "golden/boxes/bevfusion.npz")
    infos = sorted(pickle.loads(path.read_bytes())["infos"], key=lambda info: info["timestamp"])
    cameras = [*infos[0]["cams"]]
    whole = (-1000.0, -1000, -1000, 1000, 1000, 1000)
    images = ImageAugmentation(scale_range=(0.76, 1.1))
    settings = BEVFusionSettings(images=images, emulates_reference=True, point_cloud_range=whole, num_sweeps=2)
    fields = settings.provider_fields()
    provider = InfosProvider(
        path,
        shared_data("nuscenes_like"),
        cameras=cameras,
        index_cache=tmp_path,
        boxes_convention="w,l,h,-yaw-pi/2",
        **fields,
    )
    steps = BEVFUSION.steps(provider, settings, is_training=False)
    for frame, info in enumerate(infos):
        output = run_step(steps[:2], provider.get_data(frame), run="workers").output
        boxes, raw = output["gt_bboxes_3d"], expected[f"{frame:02d}.gt_bboxes_3d"]
        np.testing.assert_allclose(np.delete(boxes, 6, 1), np.delete(raw, 6, 1), rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(np.cos(boxes[:, 6] - raw[:, 6]), 1, atol=1e-9)
        np.testing.assert_array_equal(output["gt_labels_3d"], expected[f"{frame:02d}.gt_labels_3d"])
        own = np.fromfile(shared_data("nuscenes_like") / info["lidar_path"], np.float32).reshape(-1, 5)
        parts = [np.column_stack([own[:, :4], np.zeros(len(own))])]
        for sweep in info["sweeps"][:2]:
            points = np.fromfile(shared_data("nuscenes_like") / sweep["data_path"], np.float32).reshape(-1, 5)
            points = points[(np.abs(points[:, :2]) >= 1).any(axis=1)].astype(float)
            points[:, :3] = points[:, :3] @ sweep["sensor2lidar_rotation"].T + sweep["sensor2lidar_translation"]
            points[:, 4] = (info["timestamp"] - sweep["timestamp"]) / 1e6
            parts.append(points)
        if not info["sweeps"]:
            parts += [parts[0][(np.abs(own[:, :2]) >= 1).any(axis=1)]] * 2
        np.testing.assert_allclose(output["points"], np.concatenate(parts), rtol=1e-5, atol=1e-5)
