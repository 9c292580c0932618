"""Grid masks, against a reference in NumPy that gets the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import run_steps
from support.arrays import DT
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import GridMasker


def masker(name: Any, **other: Any) -> GridMasker:
    return GridMasker(name, **{"prob": 1.0, "tile_range": (4, 7), **other})


class Draws:
    """Replaces `fn.random.uniform`: draws for each sample of a batch, and keeps the numbers, call by call."""

    def __init__(self, patch: pytest.MonkeyPatch, batch_size: int, seed: int) -> None:
        self.calls: list[tuple[list[float], np.ndarray]] = []
        self._batch_size = batch_size
        self._generator = np.random.default_rng(seed)
        patch.setattr(fn.random, "uniform", self)

    def __call__(self, *, range: Any, shape: Any = ()) -> Any:
        numbers = self._generator.uniform(*range, (self._batch_size, *shape)).astype(np.float32)
        self.calls.append(([*range], numbers))
        return fn.external_source(lambda: [*numbers], batch=True)


def noise(shape: tuple[int, ...], dtype: DT) -> np.ndarray:
    pixels = np.random.default_rng(sum(shape)).integers(1, 256, shape, dtype=np.uint8)
    return pixels if dtype == DT.UINT8 else pixels.astype(np.float32) / 7


@settings(max_examples=examples(7, 15), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=3),
    tile=st.sampled_from([(3, 9), (8, 8)]),
    ratio=st.sampled_from([(0.2, 0.7), (0.5, 0.5), (1.0, 1.0)]),
    angle=st.sampled_from([(0.0, 0.0), (-3.0, 3.0)]),
    kind=st.sampled_from([(DT.UINT8, 0), (DT.FLOAT, 2)]),
    prob=st.sampled_from([1.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_a_grid_of_squares(
    sizes: Any, tile: Any, ratio: Any, angle: Any, kind: Any, prob: float, seed: int
) -> None:
    dtype, frames = kind
    images = [noise((frames, *hw, 3) if frames else (*hw, 3), dtype) for hw in sizes]
    with pytest.MonkeyPatch.context() as patch:
        draws = Draws(patch, len(images), seed)
        found = run_steps(
            GridMasker("image", prob=prob, tile_range=tile, ratio_range=ratio, angle_range=angle),
            {"image": (dtype, images)},
        )["image"]
    calls = iter(draws.calls)

    def numbers(low: float, high: float, constant: float | None = None) -> np.ndarray:
        return np.full(len(images), constant) if constant is not None else next(calls)[1].astype(float)

    decisions = numbers(0, 1, None if 0 < prob < 1 else 0)
    tiles = np.floor(numbers(tile[0], tile[1] + 1, tile[0] if tile[0] == tile[1] else None))
    ratios = numbers(*ratio, ratio[0] if ratio[0] == ratio[1] else None)
    angles = numbers(*angle, angle[0] if angle[0] == angle[1] else None)
    shifts = numbers(0, 1), numbers(0, 1)
    for i, (image, (height, width)) in enumerate(zip(images, sizes, strict=True)):
        y, x = np.mgrid[:height, :width]
        cos, sin = np.cos(angles[i]), np.sin(angles[i])
        u = (x * cos - y * sin) / tiles[i] - shifts[0][i]
        v = (x * sin + y * cos) / tiles[i] - shifts[1][i]
        parts = np.stack([u - np.floor(u), v - np.floor(v)], -1)
        is_black = (parts < ratios[i]).all(-1) & (decisions[i] < prob)
        expected = np.where(is_black[..., None], 0, image).astype(image.dtype)
        # At the sides of squares, rounding decides.
        is_clear = (np.minimum(np.abs(parts - ratios[i]), np.minimum(parts, 1 - parts)) > 1e-4).all(-1)
        assert found[i].dtype == image.dtype
        np.testing.assert_array_equal(found[i][..., is_clear, :], expected[..., is_clear, :])


def test_what_is_not_changed_is_identical_in_a_mixed_batch() -> None:
    image = noise((12, 16, 3), DT.UINT8)
    found = run_steps(masker("image", prob=0.5), {"image": (DT.UINT8, [image] * 20)})["image"]
    same = [bool((each == image).all()) for each in found]
    assert 3 <= sum(same) <= 17
    assert len({each.tobytes() for each in found}) == 21 - sum(same)
    never = run_steps(masker("image", prob=0), {"image": (DT.UINT8, [image] * 3)})["image"]
    assert all((each == image).all() for each in never)


@pytest.mark.parametrize("layout", ["FHWC", ""])
def test_all_images_and_frames_alike_and_other_fields_untouched(layout: str) -> None:
    clips = [np.stack([noise((12, 16, 3), DT.UINT8)] * frames) for frames in (2, 3)]
    fields = {str(camera): {"image": (DT.UINT8, clips)} for camera in range(2)}
    run = run_steps(
        masker("image"),
        {**fields, "mask": (DT.UINT8, clips)},
        layouts={"0.image": layout, "1.image": layout},
    )
    for clip, found, other, mask in zip(clips, run["0.image"], run["1.image"], run["mask"], strict=True):
        assert found.shape == clip.shape
        assert (found == found[:1]).all()
        assert (found == other).all()
        assert (found != clip).any()
        assert (mask == clip).all()
