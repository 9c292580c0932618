"""Against batches of the published code of BEVFormer, which are not part of the project: see `shared_data`."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.recipe_cases import photometric_draws
from support.laws import each_value
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.datasets import InfosProvider
from accvlab.driving_data.recipes import BEVFORMER, BEVFormerQueues, BEVFormerSettings

CAMERAS = [f"CAM_{place}" for place in ("FRONT", "FRONT_RIGHT", "FRONT_LEFT", "BACK", "BACK_LEFT", "BACK_RIGHT")]


@pytest.fixture(scope="module")
def records() -> Any:
    return json.loads((shared_data("golden") / "golden/bevformer/draws.json").read_text())


AS_PUBLISHED = BEVFormerSettings(emulates_reference=True)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def provider_of(records: Any, cache: Path, infos: str = "bevformer_can") -> InfosProvider:
    pickle = shared_data("golden") / "infos" / infos / "nuscenes_infos_temporal_train.pkl"
    return InfosProvider(
        pickle,
        shared_data("nuscenes_like"),
        cameras=CAMERAS,
        classes=records["config"]["class_names"],
        can_bus=True,
        min_points=1,
        index_cache=cache,
        boxes_convention="w,l,h,-yaw-pi/2",
    )


def images_of(sample: SampleDataGroup, name: str) -> np.ndarray:
    images = sample["images"]
    stacked = np.stack([images[number][name] for number in range(len(images))])
    return stacked.reshape(-1, 6, *stacked.shape[1:])


def compare_images(found: np.ndarray, expected: Any) -> None:
    """All that is stored of the images: 40 dB would do, but they are the same but for rounding."""
    assert found.dtype == np.float32 == np.dtype(str(expected["img.dtype"]))
    found = found if expected["img.shape"].shape == (5,) else found[0]
    assert found.shape == tuple(expected["img.shape"])
    for name in expected.files:
        if name.startswith("img.every"):
            step = int(name.removeprefix("img.every"))
            np.testing.assert_allclose(found[..., ::step, ::step], expected[name], atol=5e-6)
        if name == "img.last_frame_cam0":
            np.testing.assert_allclose(found[-1, 0], expected[name], atol=5e-6)
    np.testing.assert_allclose(found.mean(axis=(-2, -1), dtype=np.float64), expected["img.mean"], atol=1e-6)
    np.testing.assert_allclose(found.std(axis=(-2, -1), dtype=np.float64), expected["img.std"], atol=1e-6)


@each_value(
    run=["workers", "graph"],
    number=[0, 1, *(pytest.param(number, marks=pytest.mark.wide) for number in range(2, 6))],
)
def test_training_samples(records: Any, cache: Path, number: int, run: Any) -> None:
    record = records["train"][number]
    expected = np.load(shared_data("golden") / "golden/bevformer" / record["file"])
    queues = BEVFormerQueues(provider_of(records, cache), AS_PUBLISHED)
    candidates = [record["index"] * 3 + left_out for left_out in range(3)]
    [chosen, *_] = [index for index in candidates if queues.frames_of(index) == record["queue"]]
    sample = queues.get_data(chosen)
    for name in ("can_bus", "prev_bev_exists"):
        assert sample[name].dtype == expected[f"img_metas.{name}"].dtype
        np.testing.assert_allclose(sample[name], expected[f"img_metas.{name}"], rtol=0, atol=1e-12)
    for name in ("gt_bboxes_3d", "gt_labels_3d"):
        assert sample[name].dtype == expected[name].dtype
        np.testing.assert_allclose(sample[name], expected[name], rtol=1e-6, atol=1e-6)
    for name in ("lidar2img", "lidar2cam"):
        np.testing.assert_allclose(images_of(sample, name), expected[f"img_metas.{name}"], rtol=1e-9, atol=1e-9)
    assert sample["token"] == record["token"]
    images = [image for frame in record["photometric_per_frame_and_camera"] for image in frame]
    output = run_step(
        BEVFORMER.steps(queues, queues.settings), sample, run=run, draws=photometric_draws(images, "images")
    ).output
    compare_images(images_of(output, "image"), expected)


@each_value(
    run=["workers", "graph"], number=[0, 1, *(pytest.param(number, marks=pytest.mark.wide) for number in (2, 3))]
)
def test_evaluation_samples(records: Any, cache: Path, number: int, run: Any) -> None:
    record = records["test"][number]
    expected = np.load(shared_data("golden") / "golden/bevformer" / record["file"])
    queues = BEVFormerQueues(provider_of(records, cache), AS_PUBLISHED, is_training=False)
    sample = queues.get_data(record["index"])
    np.testing.assert_allclose(sample["can_bus"][0], expected["img_metas.can_bus"], rtol=1e-14, atol=1e-12)
    for name in ("lidar2img", "lidar2cam"):
        np.testing.assert_allclose(images_of(sample, name)[0], expected[f"img_metas.{name}"], rtol=1e-9, atol=1e-9)
    output = run_step(BEVFORMER.steps(queues, queues.settings, is_training=False), sample, run=run).output
    compare_images(images_of(output, "image"), expected)


def test_all_queues(records: Any, cache: Path) -> None:
    folder = shared_data("golden") / "golden/queue"
    expected = np.load(folder / "bevformer_queue.npz")
    entries = json.loads((folder / "bevformer_queue.json").read_text())
    entries = entries["queues"] if isinstance(entries, dict) else entries
    assert len(entries) == 104
    recipes: dict[Any, Any] = {}
    for entry in entries:
        length, index, key = entry["queue_length"], entry["index"], entry["key"]
        if (entry["infos"], length) not in recipes:
            provider = provider_of(records, cache, entry["infos"])
            as_published = BEVFormerSettings(queue_length=length, emulates_reference=True)
            recipes[entry["infos"], length] = BEVFormerQueues(provider, as_published)
        queues = recipes[entry["infos"], length]
        before = list(range(length))
        random.Random(entry["python_random_seed"]).shuffle(before)
        sample_index = index * length + before[0]
        assert queues.frames_of(sample_index) == entry["queue"] == expected[f"{key}.queue"].tolist()
        can_bus, exists = queues.states_of(sample_index)
        np.testing.assert_allclose(can_bus, expected[f"{key}.can_bus"], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(exists, expected[f"{key}.prev_bev_exists"])
