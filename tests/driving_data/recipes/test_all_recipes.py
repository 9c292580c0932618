"""Every recipe on whole data sets: nuScenes as the examples export it, and a folder of reference data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.recipe_cases import RECIPES, provider_of
from support.laws import spread
from support.shared_data import shared_data

from accvlab.driving_data.recipes import batch_view

LOADER: dict[str, Any] = {"num_workers": 0, "output_type": "numpy"}


@spread("name", RECIPES, 3)
@pytest.mark.parametrize("is_exported", [True, pytest.param(False, marks=pytest.mark.wide)])
def test_batches_hold_what_the_model_learns_of_each_frame(name: str, is_exported: bool, nuscenes: Path) -> None:
    root = nuscenes if is_exported else shared_data("nuscenes_like")
    recipe, settings = RECIPES[name]
    provider = provider_of(root, settings, True)
    assert pickle.loads(pickle.dumps(recipe.steps(provider, settings)))  # for workers
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
