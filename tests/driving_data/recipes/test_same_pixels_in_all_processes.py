"""Batches of recipes do not depend on how many processes load them, where OpenCV has all its threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import cv2
import numpy as np
import pytest
from driving_support.nuscenes_data import write_nuscenes
from driving_support.recipe_cases import RECIPES, provider_of

from accvlab.driving_data.recipes import ImageAugmentation

# Large enough that OpenCV would share each of them among its threads.
IMAGES = ImageAugmentation(output_hw=(192, 352), scale_range=(0.8, 0.95), rotation_range_deg=(-3, 3))
QUICK = [("streampetr", "fork", 2)]
ALL = [
    (name, method, count)
    for name in RECIPES
    for method, count in (
        ("fork", 1),
        ("fork", 2),
        ("forkserver", 1),
        ("forkserver", 2),
        ("spawn", 1),
        ("spawn", 2),
    )
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nuscenes") / "root"
    return write_nuscenes(folder, image_hw=(270, 480), frames_per_sequence=(3, 4))


@pytest.fixture(autouse=True)
def _own_cache_and_all_threads(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path_factory.getbasetemp() / "index_cache"))
    before = cv2.getNumThreads()
    cv2.setNumThreads(8)
    yield
    cv2.setNumThreads(before)


def batches_of(root: Path, name: str, **options: Any) -> list[Any]:
    recipe, settings = RECIPES[name]
    if name == "detection_2d":  # which rotates none
        settings = attrs.evolve(settings, images=attrs.evolve(IMAGES, rotation_range_deg=(0, 0)))
    elif hasattr(settings, "images"):
        settings = attrs.evolve(settings, images=IMAGES)
    provider = provider_of(root, settings, True)
    with recipe.loader(provider, 2, settings, seed=3, output_type="numpy", **options) as loader:
        return list(loader)


def assert_same(found: Any, expected: Any, path: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name in expected:
            assert_same(found[name], expected[name], f"{path}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert_same(*pair, f"{path}[{number}]")
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected, err_msg=path)
    else:
        assert found == expected, path


@pytest.mark.parametrize(
    ("name", "method", "num_workers"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.wide) for one in ALL)]
)
def test_workers_make_the_batches_of_the_main_process(
    root: Path, name: str, method: str, num_workers: int
) -> None:
    alone = batches_of(root, name, num_workers=0)
    assert cv2.getNumThreads() == 8
    assert len(alone) > 1
    loaded = batches_of(root, name, num_workers=num_workers, start_method=method)
    assert_same(loaded, alone, "batch")
