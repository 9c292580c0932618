"""Every recipe on whole data sets: nuScenes as the examples export it, and a folder of reference data."""

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
from support.gpu_cases import Difference
from support.laws import some, spread
from support.shared_data import shared_data

from accvlab.driving_data.recipes import ImageAugmentation, batch_view

LOADER: dict[str, Any] = {"num_workers": 0, "output_type": "numpy"}


@spread("name", RECIPES, 3)
@pytest.mark.parametrize("is_exported", [True, pytest.param(False, marks=pytest.mark.wide)])
def test_batches_hold_what_the_model_learns_of_each_frame(name: str, is_exported: bool, nuscenes: Path) -> None:
    root = nuscenes if is_exported else shared_data("nuscenes_like")
    recipe, settings = RECIPES[name]
    provider = provider_of(root, settings, True)
    num_objects = 0
    with recipe.loader(provider, 2, settings, **LOADER) as loader:
        assert len(loader) > 1
        for batch in loader:
            view = batch_view(batch, settings, 0, camera_names=provider.camera_names)
            assert len(view.cameras) == len(provider.camera_names)
            num_objects += sum(c.heatmap.max() == 1 for c in view.cameras) if "hm" in batch else len(view.centers)
            for key, value in batch.items():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                    assert np.isfinite(value).all(), key
    assert num_objects > 0
    provider = provider_of(root, settings, False)
    with recipe.loader(provider, 1, settings, is_training=False, **LOADER) as loader:
        tokens = [batch["token"][0] for batch in loader if not batch["place"]["is_padding"][0]]
    assert sorted(tokens) == sorted(provider.get_data(number)["token"] for number in range(len(provider)))


# --- the same in all processes --------------------------------------------------------------------------

# Large enough that OpenCV would share each of them among its threads.
IMAGES = ImageAugmentation(output_hw=(192, 352), scale_range=(0.8, 0.95), rotation_range_deg=(-3, 3))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nuscenes") / "root"
    return write_nuscenes(folder, image_hw=(270, 480), frames_per_sequence=(3, 4))


@pytest.fixture
def _all_threads() -> Iterator[None]:
    before = cv2.getNumThreads()
    cv2.setNumThreads(8)
    yield
    cv2.setNumThreads(before)


@pytest.mark.usefixtures("_all_threads")
@some(("name", "method"), [(name, method) for name in RECIPES for method in ("fork", "spawn")], {0})
def test_workers_make_the_batches_of_the_main_process(large: Path, name: str, method: str) -> None:
    recipe, settings = RECIPES[name]
    if name == "detection_2d":  # which rotates none
        settings = attrs.evolve(settings, images=attrs.evolve(IMAGES, rotation_range_deg=(0, 0)))
    elif hasattr(settings, "images"):
        settings = attrs.evolve(settings, images=IMAGES)
    provider, options = provider_of(large, settings, True), {"seed": 3, "output_type": "numpy"}
    with recipe.loader(provider, 2, settings, num_workers=0, **options) as loader:
        alone = list(loader)
    assert cv2.getNumThreads() == 8
    assert len(alone) > 1
    with recipe.loader(provider, 2, settings, num_workers=2, start_method=method, **options) as loader:
        found = Difference.of(list(loader), alone, settings.images_key, 1.0)
    assert (found.worst, found.others) == (0, [])
