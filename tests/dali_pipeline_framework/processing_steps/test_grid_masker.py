"""Grid masks, against a reference in NumPy that gets the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_forms_agree
from support.array_samples import sample_of
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import GridMasker
from accvlab.dali_pipeline_framework.testing import run_step


def noise(shape: tuple[int, ...], is_float: bool = False) -> np.ndarray:
    pixels = np.random.default_rng(sum(shape)).integers(1, 256, shape, dtype=np.uint8)
    return pixels.astype(np.float32) / 7 if is_float else pixels


@settings(max_examples=examples(10, 25), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=3),
    tile=st.sampled_from([(3, 9), (8, 8), (1, 30)]),
    ratio=st.sampled_from([(0.0, 0.7), (0.5, 0.5), (1.0, 1.0)]),
    angle=st.sampled_from([(0.0, 0.0), (-7.0, 7.0)]),
    kind=st.sampled_from([(False, ()), (False, (2,)), (True, (2,))]),
    prob=st.sampled_from([1.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_a_grid_of_squares(
    sizes: Any, tile: Any, ratio: Any, angle: Any, kind: Any, prob: float, seed: int
) -> None:
    is_float, frames = kind
    images = [noise((*frames, *hw, 3), is_float) for hw in sizes]
    step = GridMasker("image", prob=prob, tile_range=tile, ratio_range=ratio, angle_range=angle)
    constants = {"decision": 0.0, "tile": tile[0], "ratio": ratio[0], "angle": angle[0]}
    runs = assert_forms_agree(step, images, seed=seed)
    for image, (height, width), each in zip(images, sizes, runs, strict=True):
        drawn = {**constants, **{name.split("/")[1]: float(value) for name, value in each.draws.items()}}
        y, x = np.mgrid[:height, :width]
        cos, sin = np.cos(drawn["angle"]), np.sin(drawn["angle"])
        u = (x * cos - y * sin) / drawn["tile"] - drawn["shift_x"]
        v = (x * sin + y * cos) / drawn["tile"] - drawn["shift_y"]
        parts = np.stack([u - np.floor(u), v - np.floor(v)], -1)
        is_black = (parts < drawn["ratio"]).all(-1) & (drawn["decision"] < prob)
        expected = np.where(is_black[..., None], 0, image).astype(image.dtype)
        # At the sides of squares, rounding decides.
        sides = np.minimum(np.abs(parts - drawn["ratio"]), np.minimum(parts, 1 - parts))
        is_clear, found = (sides > 1e-4).all(-1), each.output["image"]
        assert found.dtype == image.dtype
        np.testing.assert_array_equal(found[..., is_clear, :], expected[..., is_clear, :])


@pytest.mark.parametrize("layout", ["FHWC", None])
def test_all_images_and_frames_alike_and_other_fields_untouched(layout: str | None) -> None:
    clips = [np.stack([noise((12, 16, 3))] * frames) for frames in (2, 3)]
    samples = [sample_of({"cameras": [{"image": clip}] * 2, "mask": clip}) for clip in clips]
    layouts: Any = {("cameras", camera, "image"): layout for camera in (0, 1) if layout}
    step = GridMasker("image", prob=1.0, tile_range=(4, 7))
    for clip, run in zip(clips, run_step(step, samples, layouts=layouts), strict=True):
        found, other = (camera["image"] for camera in run.output["cameras"].values())
        assert found.shape == clip.shape
        assert (found == found[:1]).all()
        assert (found == other).all()
        assert (found != clip).any()
        assert (run.output["mask"] == clip).all()
