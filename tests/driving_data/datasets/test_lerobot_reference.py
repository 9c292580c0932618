"""Data sets of LeRobot against what LeRobotDataset delivers: windows, masks, pictures, subsets and statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.driving_data.datasets import LeRobotProvider

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

SETS = ("l2d_like_h264", "l2d_like_av1_split", "l2d_like_v21")


@pytest.fixture(params=SETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(name: str, tmp_path: Path, **settings: Any) -> tuple[LeRobotProvider, dict[str, Any], Path]:
    """The provider, what is expected, and the folder of that."""
    folder = shared_data("golden/lerobot")
    provider = LeRobotProvider(folder / name, index_cache=tmp_path / "indices", **settings)
    expected = folder / "expected" / name
    return provider, json.loads((expected / "expected.json").read_text()), expected


def code_of(image: np.ndarray) -> list[int]:
    """Camera and frame that a picture shows: 12 blocks, the highest bit first."""
    bits = [image[7:13, 7 + 12 * block : 13 + 12 * block].mean() > 127 for block in range(12)]
    number = int("".join(str(int(bit)) for bit in bits), 2)
    return [number >> 10, number & 1023]


def psnr_db(image: np.ndarray, expected: np.ndarray) -> float:
    error = np.square(image.astype(np.float64) - expected).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-12)))


def test_windows_masks_and_pictures_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    provider, expected, folder = opened(name, tmp_path)
    windows = Windows(provider, expected["delta_timestamps"], unit="s", edges="repeat")
    items, images = np.load(folder / "items.npz"), np.load(folder / "images.npz")
    num_codes = num_compared = 0
    for item in expected["items"]:
        row = f"i{item['idx']:03d}"
        sample = windows.get_data(item["idx"])
        assert sample["task"] == item["task"]
        for field in expected["key_order"]:
            if field == "task" or field in provider.camera_names:
                continue
            value, wanted = np.asarray(sample[field]), items[f"{row}.{field}"]
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), field
            np.testing.assert_array_equal(value, wanted, err_msg=f"{row}.{field}")
        for camera in provider.camera_names:
            assert [code_of(image) for image in sample[camera]] == item["image_codes"][camera]
            num_codes += len(sample[camera])
            for place, image in enumerate(sample[camera]):
                key = f"{row}.{camera}.t{place}"
                if key in images:
                    wanted = images[key].transpose(1, 2, 0)
                    assert psnr_db(image, wanted) >= 40
                    assert abs(image.mean() - wanted.mean()) < 2
                    num_compared += 1
                if f"{row}.{camera}.block10" in items:
                    means = image.reshape(18, 10, 32, 10, 3).mean((1, 3)).transpose(2, 0, 1)
                    assert np.abs(means - items[f"{row}.{camera}.block10"][place]).max() < 3
    assert num_codes == 9 * len(expected["items"])
    assert num_compared == len(images.files)


def test_rows_without_windows_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    provider, expected, folder = opened(name, tmp_path)
    items = np.load(folder / "items.npz")
    found = [key.split(".no_delta.") for key in items.files if ".no_delta." in key]
    for row, field in found:
        value = provider.get_data(int(row[1:]))[field]
        np.testing.assert_array_equal(value, items[f"{row}.no_delta.{field}"])
    assert found or name == "l2d_like_v21"
    if (folder / "index_table.npz").exists():
        table, rows = np.load(folder / "index_table.npz"), range(len(provider))
        for field in table.files:
            values = np.array(provider.load_fields({(field,): rows})[field,])
            np.testing.assert_array_equal(values, table[field])
    numbers = [{frozenset(map(str, pair)) for pair in of.items()} for of in (provider.tasks, expected["tasks"])]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("name", SETS[:2])
def test_subsets_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    subset = opened(name, tmp_path)[1]["subset"]
    provider = LeRobotProvider(
        shared_data("golden/lerobot") / name, episodes=subset["episodes"], index_cache=tmp_path / "indices"
    )
    assert len(provider) == subset["num_frames"]
    windows = Windows(provider, {"index": [step / 10 for step in range(-15, 64)]}, unit="s", edges="repeat")
    for item in subset["items"]:
        loaded = windows.get_data(item["idx"])
        np.testing.assert_array_equal(loaded["index"], item["index_window"])
        np.testing.assert_array_equal(loaded["index_is_pad"], item["index_is_pad"])


def test_statistics_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    provider, _, folder = opened(name, tmp_path)
    expected = json.loads((folder / "stats.json").read_text())
    expected = expected.get("stats_of_the_dataset", expected)
    assert provider.statistics.keys() <= expected.keys()
    assert {"observation.state", "action", *provider.camera_names} <= provider.statistics.keys()
    for field, of_field in provider.statistics.items():
        for what, value in of_field.items():
            np.testing.assert_allclose(value, np.array(expected[field][what]), rtol=1e-9, atol=1e-12)
