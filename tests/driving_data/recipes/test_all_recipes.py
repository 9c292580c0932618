"""Every recipe on whole data sets: nuScenes as the examples export it, and a folder of reference data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.nuscenes_data import write_nuscenes
from driving_support.recipe_cases import RECIPES, provider_of
from support.laws import spread
from support.shared_data import shared_data

from accvlab.driving_data.recipes import batch_view

LOADER: dict[str, Any] = {"num_workers": 0, "output_type": "numpy"}


@pytest.fixture(scope="module", params=["exported", pytest.param("nuscenes_like", marks=pytest.mark.wide)])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "nuscenes_like":
        return shared_data("nuscenes_like")
    return write_nuscenes(tmp_path_factory.mktemp("nuscenes") / "root")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path_factory.getbasetemp() / "index_cache"))


def frames_of(batch: Any, sample: int) -> str:
    """Token of the frame that a sample is about: the last one of a queue."""
    token = batch["token"][sample]
    return token if isinstance(token, str) else token[-1]


@spread("name", RECIPES, 5)
def test_training_batches_hold_what_the_model_learns(root: Path, name: str) -> None:
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


@spread("name", RECIPES, 5)
def test_evaluation_delivers_each_frame_once_in_order(root: Path, name: str) -> None:
    recipe, settings = RECIPES[name]
    provider = provider_of(root, settings, False)
    delivered: list[str] = []
    with recipe.loader(provider, 1, settings, is_training=False, **LOADER) as loader:
        for batch in loader:
            is_padding = batch["place"]["is_padding"]
            delivered += [frames_of(batch, n) for n in range(len(is_padding)) if not is_padding[n]]
    tokens = [provider.get_data(number)["token"] for number in range(len(provider))]
    assert Counter(delivered) == Counter(tokens)
    scene_of = {sample["token"]: sample["scene"] for sample in map(provider.get_data, range(len(provider)))}
    for scene in provider.scene_names:
        of_scene = [token for token in delivered if scene_of[token] == scene]
        assert of_scene == [token for token in tokens if scene_of[token] == scene]
