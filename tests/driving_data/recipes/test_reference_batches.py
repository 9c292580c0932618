"""Samples of the recipes against those that the published code delivers for the same data and random numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.recipe_cases import photometric_draws
from support.laws import each_value
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.datasets import InfosProvider
from accvlab.driving_data.recipes import (
    SPARSEDRIVE,
    STREAMPETR,
    ImageAugmentation,
    LidarBoxes,
    QueueProvider,
    SparseDriveSettings,
    StreamPETRSettings,
)
from accvlab.driving_data.recipes.recipe_parts import CAMERAS

OUTPUT_WIDTH = 704
INFOS = {
    "streampetr": "streampetr/nuscenes2d_temporal_infos_train.pkl",
    "sparsedrive": "sparsedrive_extra/nuscenes_infos_train.pkl",
    "sparse4d": "sparse4d/nuscenes_infos_train.pkl",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indices")


def recorded(model: str) -> tuple[Path, dict[str, Any]]:
    folder = shared_data("golden") / "golden" / model
    return folder, json.loads((folder / "draws.json").read_text())


def opened(model: str, fields: dict[str, Any], cache: Path) -> InfosProvider:
    infos = shared_data("golden") / "infos" / INFOS[model]
    return InfosProvider(infos, shared_data("nuscenes_like"), cameras=CAMERAS, index_cache=cache, **fields)


def assert_close(name: str, got: Any, expected: np.ndarray, rtol: float = 1e-5, atol: float = 0.0) -> None:
    """Compare numbers; those near 0 by what is a thousandth of the largest one."""
    got = np.asarray(got)
    assert got.dtype == expected.dtype, name
    if expected.shape == (0,):  # a camera without any label
        expected = expected.reshape(got.shape)
    assert got.shape == expected.shape, name
    if expected.size:
        least = atol + rtol * 1e-3 * np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=least, err_msg=name)


def assert_same_image(camera: int, image: np.ndarray, expected: Any, least_psnr: float) -> None:
    """Compare a normalized image, ``(3, H, W)``, with what was kept of the expected one."""
    name = next(name for name in expected if name.startswith("img.every"))
    step, std_dev = int(name.removeprefix("img.every")), 57.0
    kept = expected[name].reshape(-1, *expected[name].shape[-3:])[camera]
    noise = np.mean(((image[:, ::step, ::step] - kept) * std_dev) ** 2)
    assert 10 * np.log10(255**2 / noise) >= least_psnr, (camera, noise)
    means = expected["img.mean"].reshape(-1, 3)[camera]
    np.testing.assert_allclose(image.mean(axis=(1, 2)), means, atol=0.01)


def entries(folder: Path, of_part: Any) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """What was drawn for each sample, and what was delivered."""
    for entry in of_part:
        with np.load(folder / entry["file"]) as file:
            yield entry, dict(file)


@pytest.mark.parametrize("part", ["train", "test"])
def test_streampetr(part: str, cache: Path) -> None:
    torch = pytest.importorskip("torch")
    folder, draws = recorded("streampetr")
    is_training = part == "train"
    settings = StreamPETRSettings(
        images=ImageAugmentation(scale_range=draws["config"]["ida_aug_conf"]["resize_lim"]),
        classes=draws["config"]["class_names"],
    )
    provider = opened("streampetr", settings.provider_fields(is_training), cache)
    steps = STREAMPETR.steps(provider, settings, is_training=is_training)
    for entry, expected in entries(folder, draws[part]):
        numbers = None
        if is_training:
            crop_call = entry["raw_numpy_calls"][2]
            numbers = {
                "scale": entry["resize"],
                "share": crop_call[3] / max(crop_call[1][1], 1),
                "is_flipped": 0.0 if entry["flip"] else 1.0,
                "bev_angle": entry["bev_rot_angle"],
                "bev_scale": entry["bev_scale"],
            }
        output = run_step(steps, provider.get_data(entry["index"]), draws=numbers, run="workers").output
        for name in ("lidar2img", "intrinsics", "extrinsics", "ego_pose", "ego_pose_inv"):
            assert_close(name, output[name], expected[name][0] if is_training else expected[name])
        for name in ("timestamp", "img_timestamp"):
            np.testing.assert_array_equal(output[name], expected[name][0] if is_training else expected[name])
        for number, camera in output["cameras"].items():
            assert_same_image(number, camera["image"], expected, 50.0)
            for name in ("gt_bboxes", "gt_labels", "centers2d", "depths") if is_training else ():
                assert_close(name, camera[name], expected[f"{name}.cam{number}"])
        if is_training:
            for name in ("gt_bboxes_3d", "gt_labels_3d"):
                assert_close(name, output[name], expected[name])
            boxes = LidarBoxes(torch.from_numpy(np.array(output["gt_bboxes_3d"])))
            assert_close("gravity_center", boxes.gravity_center, expected["gt_bboxes_3d.gravity_center"])
            assert_close("corners", boxes.corners, expected["gt_bboxes_3d.corners"], atol=1e-5)


@each_value(
    run=["workers", pytest.param("graph", marks=pytest.mark.wide)],
    part=["train", "test"],
    model=["sparsedrive", "sparse4d"],
)
def test_sparsedrive(model: str, part: str, run: Any, cache: Path) -> None:
    folder, draws = recorded(model)
    conf = draws["config"]["data_aug_conf"]
    make = SparseDriveSettings if model == "sparsedrive" else SparseDriveSettings.sparse4d
    settings = make(
        images=ImageAugmentation(scale_range=conf["resize_lim"], rotation_range_deg=conf["rot_lim"]),
        classes=draws["config"]["class_names"],
        rotation_3d_range=conf["rot3d_range"],
    )
    is_training = part == "train"
    provider = opened(model, settings.provider_fields(is_training), cache)
    steps = SPARSEDRIVE.steps(provider, settings, is_training=is_training)
    for entry, expected in entries(folder, draws[part]):
        numbers = None
        if is_training:
            change = entry["aug_config"]
            room = max(change["resize_dims"][0] - OUTPUT_WIDTH, 0)
            numbers = {
                "scale": change["resize"],
                "share": (change["crop"][0] + 0.5) / room if room else 0.0,
                "is_flipped": 0.0 if change["flip"] else 1.0,
                "rotation_deg": change["rotate"],
                **photometric_draws(entry["photometric_per_camera"], "cameras"),
            }
            if any(conf["rot3d_range"]):
                numbers["rotation_3d"] = change["rotate_3d"]
        output = run_step(steps, provider.get_data(entry["index"]), draws=numbers, run=run).output
        for name, value in expected.items():
            own_name = name.removeprefix("img_metas.")
            if name.startswith("gt_depth."):
                depths = [camera[f"depth_{name[-1]}"] for camera in output["cameras"].values()]
                assert_close(name, np.stack(depths), value)
            elif own_name == "timestamp":
                assert output["timestamp"] == value
            elif own_name in output.contained_top_level_field_names:
                # Steps of futures are differences of places in float32.
                atol = 1e-5 if own_name == "gt_agent_fut_trajs" else 0.0
                assert_close(name, output[own_name], value, atol=atol)
            else:
                assert name.startswith(("img.", "img_u8", "lidar2img_after")), name
        least_psnr = 49.9 if run == "graph" else 50.0  # in a graph, a rotated pixel may be that of the neighbor
        for number, camera in output["cameras"].items():
            assert_same_image(number, camera["image"], expected, least_psnr)


def test_windows(cache: Path) -> None:
    folder = shared_data("golden") / "golden" / "queue"
    entries = json.loads((folder / "streampetr_window.json").read_text())
    provider = opened("streampetr", {"boxes": False}, cache)
    with np.load(folder / "streampetr_window.npz") as file:
        expected = dict(file)
    for entry in entries:
        length, index = entry["queue_length"], entry["index"]
        seed = entry["python_random_seed"] - index
        windows = QueueProvider(provider, length, num_random_frames=entry["random_length"], seed=seed)
        assert windows.frames_of(index) == expected[f"{entry['key']}.queue"].tolist()
    for entry in entries[:13:4]:
        seed = entry["python_random_seed"] - entry["index"]
        window = QueueProvider(provider, entry["queue_length"], seed=seed).get_data(entry["index"])
        frames = window["frames"].values()
        assert [1.0 - frame["is_first"] for frame in frames] == entry["prev_exists"]
        np.testing.assert_array_equal(
            [frame["timestamp"] for frame in frames], expected[f"{entry['key']}.timestamp"]
        )
