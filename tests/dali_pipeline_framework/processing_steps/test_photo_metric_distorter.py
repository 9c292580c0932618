"""Random changes of colour: the formula, what is drawn in which order, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from affine_reference import NamedDraws
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import run_steps
from support.arrays import DT, gradient
from support.laws import examples, some

from accvlab.dali_pipeline_framework.processing_steps import (
    PhotoMetricDistorter,
)

YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
PERMUTATIONS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1), (1, 2, 0)]
RANGES: dict[str, Any] = {
    "min_max_brightness": [-32, 32],
    "min_max_hue": [-18, 18],
    "min_max_contrast": [0.5, 1.5],
    "min_max_saturation": [0.5, 1.75],
}
PROBABILITIES = {
    "prob_brightness_aug": 0.5,
    "prob_hue_aug": 0.5,
    "prob_contrast_aug": 0.5,
    "prob_saturation_aug": 0.5,
    "prob_swap_channels": 0.5,
}


DECISIONS = ("brightness?", "contrast?", "saturation?", "hue?", "swap?", "mode")
DRAWN = (*DECISIONS, "brightness", "contrast", "hue", "saturation", "permutation")  # in the published order


def reference(image: np.ndarray, drawn: dict[str, float], is_bgr: bool = False, prob: float = 0.5) -> np.ndarray:
    """The published operations one after the other, float64."""
    is_uint8 = image.dtype == np.uint8
    x = image.astype(np.float64) / (255 if is_uint8 else 1)
    if is_bgr:
        x = x[..., ::-1]
    if drawn["brightness?"] < prob:
        x = (x + drawn["brightness"] / (255 if is_uint8 else 1)).clip(0, 1)
    is_contrast, is_early = drawn["contrast?"] < prob, np.floor(drawn["mode"]) == 1
    if is_contrast and is_early:
        x = (x * drawn["contrast"]).clip(0, 1)
    chroma = drawn["saturation"] if drawn["saturation?"] < prob else 1.0
    angle = np.radians(drawn["hue"] if drawn["hue?"] < prob else 0.0)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) * chroma
    in_yiq = np.eye(3)
    in_yiq[1:, 1:] = turn
    x = x @ (np.linalg.inv(YIQ) @ in_yiq @ YIQ).T
    if is_contrast and not is_early:
        x = (x * drawn["contrast"]).clip(0, 1)
    if is_bgr:
        x = x[..., ::-1]
    if drawn["swap?"] < prob:
        x = x[..., list(PERMUTATIONS[int(drawn["permutation"])])]
    return x.clip(0, 1) * (255 if is_uint8 else 1)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    # uint8: rounded after the first stage (times a row of the matrix: up to 2.4), and at the end
    assert np.abs(found - expected).max(initial=0) <= (1.7 if found.dtype == np.uint8 else 2e-6)


unit = st.floats(0, 1, width=32, exclude_max=True)
draws = st.fixed_dictionaries(
    {f"{part}?": unit for part in ("brightness", "contrast", "saturation", "hue", "swap")}
    | {
        "mode": st.floats(0, 2, width=32, exclude_max=True),
        "brightness": st.floats(-32, 32, width=32),
        "contrast": st.floats(0.5, 1.5, width=32),
        "hue": st.floats(-18, 18, width=32),
        "saturation": st.floats(0.5, 1.5, width=32),
        "permutation": st.floats(0, 6, width=32, exclude_max=True),
    }
)


@settings(max_examples=examples(7, 15), deadline=None)
@given(
    samples=st.lists(draws, min_size=4, max_size=8),
    is_float=st.booleans(),
    is_bgr=st.booleans(),
    layout=st.sampled_from(["HWC", "", "FHWC"]),
    conditionals=st.booleans(),
    seed=st.integers(0, 100),
)
def test_as_the_published_operations_in_any_mixed_batch(
    samples: list[dict[str, float]], is_float: bool, is_bgr: bool, layout: str, conditionals: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    frames = (2,) if layout == "FHWC" else ()
    images = [
        generator.integers(0, 256, (*frames, *generator.integers(1, 6, 2), 3), dtype=np.uint8) for _ in samples
    ]
    if is_float:
        images = [(image / 255).astype(np.float32) for image in images]
        samples = [{**drawn, "brightness": drawn["brightness"] / 255} for drawn in samples]
    step = PhotoMetricDistorter("image", **RANGES, is_bgr=is_bgr)
    with pytest.MonkeyPatch.context() as monkeypatch:
        fake = NamedDraws(monkeypatch, samples, DRAWN)
        fields = {"image": (DT.FLOAT if is_float else DT.UINT8, images)}
        found = run_steps(step, fields, layouts={"image": layout}, conditionals=conditionals)["image"]
    assert fake.ranges == [[0, 1]] * 5 + [[0, 2], [-32, 32], [0.5, 1.5], [-18, 18], [0.5, 1.75], [0, 6]]
    for image, drawn, changed in zip(images, samples, found, strict=True):
        assert changed.dtype == image.dtype
        assert_close(changed, reference(image, drawn, is_bgr))


PARTS = [(), *[(part,) for part in PROBABILITIES], ("prob_brightness_aug", "prob_contrast_aug")]


@some(
    ("parts", "mode", "dtype", "contrast"),
    itertools.product(PARTS, [0.5, 1.5], [DT.UINT8, DT.FLOAT], [0.5, 1.5]),
    {4 * number + (number + number // 2) % 2 * 3 for number in range(2 * len(PARTS))},  # all parts in both modes
)
def test_what_cannot_happen_is_left_out(
    parts: tuple[str, ...], mode: float, dtype: DT, contrast: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = gradient(8, 8)
    drawn: dict[str, float] = dict.fromkeys(DRAWN, 0.5)
    drawn.update(
        {"mode": mode, "brightness": 32, "contrast": contrast, "hue": 10, "saturation": 1.5, "permutation": 4}
    )
    if dtype == DT.FLOAT:
        image, drawn["brightness"] = (image / 255).astype(np.float32), 0.125
    NamedDraws(monkeypatch, [drawn], DRAWN)
    step = PhotoMetricDistorter("image", **RANGES, **{name: float(name in parts) for name in PROBABILITIES})
    [found] = run_steps(step, {"image": (dtype, [image])})["image"]
    none = {f"{name.split('_')[1]}?": 0.5 if name in parts else 1.0 for name in PROBABILITIES}
    assert_close(found, reference(image, {**drawn, **none}, prob=1.0))
    if not parts:
        assert (found == image).all()


def test_nothing_decided_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [np.arange(256 * 3, dtype=np.uint8).reshape(16, 16, 3), gradient(5, 7)]
    NamedDraws(monkeypatch, [dict.fromkeys(DRAWN, 0.9)] * 2, DRAWN)
    found = run_steps(PhotoMetricDistorter("image", **RANGES), {"image": (DT.UINT8, images)})["image"]
    assert all((a == b).all() for a, b in zip(found, images, strict=True))


def test_contrast_is_never_skipped_and_permutations_are_uniform() -> None:
    """The original rounds its draws to integers: for a quarter of the samples contrast is left out."""
    image = np.array([[[20, 60, 100]]], np.uint8)
    step = PhotoMetricDistorter("image", [0, 0], [0, 0], [0.5, 0.5], [1, 1], 0, 0, 1, 0, 1)
    found = run_steps(step, {"image": (DT.UINT8, [image] * 1200)})["image"]
    colors, counts = np.unique(np.concatenate(found).reshape(-1, 3), axis=0, return_counts=True)
    assert sorted(map(tuple, colors.tolist())) == sorted(
        (a, b, c) for a, b, c in [[[10, 30, 50][k] for k in p] for p in PERMUTATIONS]
    )
    assert counts.min() > 150


def test_whole_numbers_as_ranges_that_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {f"{part}?": 0.0 for part in ("brightness", "contrast", "saturation", "hue", "swap")}
    drawn.update({"mode": 0.0, "brightness": 10, "contrast": 1, "hue": 30, "saturation": 2, "permutation": 5.0})
    fake = NamedDraws(monkeypatch, [drawn], [*DECISIONS, "permutation"])
    step = PhotoMetricDistorter("image", [10, 10], [30, 30], (1, 1), np.array([2, 2]))
    [found] = run_steps(step, {"image": (DT.UINT8, [gradient(6, 5)])})["image"]
    assert len(fake.ranges) == 7
    assert_close(found, reference(gradient(6, 5), drawn))


def test_all_images_of_a_sample_alike_and_other_fields_untouched() -> None:
    images = [gradient(4, 5, phase) for phase in range(6)]
    fields = {
        "cameras": {camera: {"image": (DT.UINT8, images)} for camera in range(2)},
        "mask": (DT.UINT8, images),
        "image": (DT.FLOAT, [(image / 255).astype(np.float32) for image in images]),
    }
    run = run_steps(
        PhotoMetricDistorter("image", [0, 0], *[RANGES[name] for name in [*RANGES][1:]]), fields, seed=2
    )
    assert all((a == b).all() for a, b in zip(run["cameras.[0].image"], run["cameras.[1].image"], strict=True))
    assert all(
        np.abs(a / 255 - b).max() < 0.6 / 255 for a, b in zip(run["cameras.[0].image"], run["image"], strict=True)
    )
    assert all((a == b).all() for a, b in zip(run["mask"], images, strict=True))
    assert len({image.tobytes() for image in run["image"]}) == 6
