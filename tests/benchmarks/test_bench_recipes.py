"""The benchmark of recipes runs, and its contestants deliver the same; figures are not judged here."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from bench_recipes import LIBRARY, PYTORCH, REDUCED, SETTINGS, in_torch, main, make_data, recipe
from recipe_torch import LISTED
from support.laws import each_value

from accvlab.driving_data.recipes import ImageAugmentation

pytestmark = pytest.mark.wide


@each_value(scale=[0.42, 0.53], is_flipped=[False, True])
def test_contestants_deliver_the_same(tmp_path: Path, scale: float, is_flipped: bool) -> None:
    images = ImageAugmentation(
        scale_range=(scale, scale), crop_x_range=(0.3, 0.3), flip_prob=1.0 if is_flipped else 0.0
    )
    settings = attrs.evolve(SETTINGS, images=images, bev_rotation_range=(0.2, 0.2), bev_scale_range=(1.02, 1.02))
    provider = make_data(tmp_path, 6, 1)
    expected = {}
    for number, batch in enumerate(in_torch(provider, settings, 1, 0)):
        expected[number] = batch
        if number == 1:
            break
    num_compared = 0
    with recipe(provider, attrs.evolve(settings, split=1), 1, 0) as loader:
        for batch in loader:
            number = int(batch["place"]["sample_index"][0])
            for name, value in expected.get(number, {}).items():
                num_compared += 1
                if name == "img":
                    assert value.shape == batch[name].shape
                    assert float((value - batch[name]).abs().mean()) < 0.01
                elif name in LISTED[2:]:
                    for one, other in zip(value[0][0], batch[name][0][0], strict=True):
                        assert one.dtype == other.dtype
                        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
                elif name in LISTED:
                    np.testing.assert_allclose(value[0], batch[name][0][0], rtol=1e-5, atol=1e-5)
                else:
                    assert value.dtype == batch[name].dtype
                    np.testing.assert_allclose(value, batch[name], rtol=1e-5, atol=1e-4)
    assert num_compared == 2 * 15


def test_a_quick_run_reports_rates_and_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--output", str(tmp_path / "recipes.json")])
    report = json.loads((tmp_path / "recipes.json").read_text())
    assert report["results"][0]["per_second"].keys() == {LIBRARY, REDUCED, PYTORCH}
    for target in report["targets"]:
        assert target["target"] in capsys.readouterr().out or target["is_met"] in (True, False)
