"""Random changes of colour: the formula, what is drawn, and what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from step_runs import assert_forms_agree
from support.array_samples import sample_of
from support.arrays import gradient
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import PhotoMetricDistorter
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import run_step

YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
PERMUTATIONS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (2, 0, 1), (1, 2, 0)]
PARTS = ("brightness", "contrast", "saturation", "hue", "swap")
RANGES: dict[str, Any] = {
    "brightness": [-32, 32],
    "hue": [-18, 18],
    "contrast": [0.5, 1.5],
    "saturation": [0.5, 1.75],
}
NONE = dict.fromkeys(PARTS, 0.0)


def distorter(ranges: dict[str, Any], probabilities: dict[str, float], **other: Any) -> PhotoMetricDistorter:
    limits = {f"min_max_{name}": limits for name, limits in ranges.items()}
    chances = {f"prob_{part}_aug": probability for part, probability in probabilities.items()}
    chances["prob_swap_channels"] = chances.pop("prob_swap_aug")
    return PhotoMetricDistorter("image", **limits, **chances, **other)


def reference(
    image: np.ndarray, drawn: dict[str, Any], probabilities: dict[str, float], is_bgr: bool = False
) -> np.ndarray:
    """The published operations one after the other, float64."""
    white = 255 if image.dtype == np.uint8 else 1
    is_done = {part: drawn[f"{part}_decision"] < probabilities[part] for part in PARTS}
    x = image.astype(np.float64) / white
    if is_bgr:
        x = x[..., ::-1]
    if is_done["brightness"]:
        x = (x + drawn["brightness"] / white).clip(0, 1)
    if is_done["contrast"] and drawn["contrast_is_early"]:
        x = (x * drawn["contrast"]).clip(0, 1)
    angle = np.radians(drawn["hue"] if is_done["hue"] else 0.0)
    in_yiq = np.eye(3)
    in_yiq[1:, 1:] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    in_yiq[1:, 1:] *= drawn["saturation"] if is_done["saturation"] else 1.0
    x = x @ (np.linalg.inv(YIQ) @ in_yiq @ YIQ).T
    if is_done["contrast"] and not drawn["contrast_is_early"]:
        x = (x * drawn["contrast"]).clip(0, 1)
    if is_bgr:
        x = x[..., ::-1]
    if is_done["swap"]:
        x = x[..., list(PERMUTATIONS[drawn["permutation"]])]
    return x.clip(0, 1) * white


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    # uint8: rounded after the first stage (times a row of the matrix: up to 2.4), and at the end
    assert np.abs(found - expected).max(initial=0) <= (1.7 if found.dtype == np.uint8 else 2e-6)


DRAWS = st.fixed_dictionaries(
    {f"{part}_decision": st.floats(0, 0.96875, width=16) for part in PARTS}
    | {name: st.floats(*range, width=16) for name, range in RANGES.items()}
    | {"contrast_is_early": st.integers(0, 1), "permutation": st.integers(0, 5)}
)
UNDECIDED = dict.fromkeys((f"{part}_decision" for part in PARTS), 0.9) | {
    **{"brightness": 32, "hue": 10, "contrast": 1.5, "saturation": 1.5, "contrast_is_early": 1, "permutation": 4}
}


@settings(max_examples=examples(25, 60), deadline=None)
@given(
    drawn=st.lists(DRAWS, min_size=1, max_size=5),
    probabilities=st.fixed_dictionaries(dict.fromkeys(PARTS, st.sampled_from([0.0, 0.5, 1.0]))),
    is_float=st.booleans(),
    is_bgr=st.booleans(),
    is_clip=st.booleans(),
    seed=st.integers(0, 100),
)
@example([UNDECIDED], dict.fromkeys(PARTS, 0.5), False, False, False, 0)
def test_as_the_published_operations_in_any_mixed_batch(
    drawn: list[dict[str, Any]],
    probabilities: dict[str, float],
    is_float: bool,
    is_bgr: bool,
    is_clip: bool,
    seed: int,
) -> None:
    assume(any(probabilities.values()))
    generator = np.random.default_rng(seed)
    ranges = RANGES
    shapes = [((2,) if is_clip else ()) + (*generator.integers(1, 6, 2), 3) for _ in drawn]
    images = [generator.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    if is_float:
        images = [(image / 255).astype(np.float32) for image in images]
        drawn = [{**each, "brightness": each["brightness"] / 256} for each in drawn]
        ranges = {**RANGES, "brightness": [-0.125, 0.125]}
    step = distorter(ranges, probabilities, is_bgr=is_bgr)
    runs = assert_forms_agree(step, images, draws=drawn)
    for image, numbers, each in zip(images, drawn, runs, strict=True):
        changed = each.output["image"]
        assert changed.dtype == image.dtype
        assert_close(changed, reference(image, numbers, probabilities, is_bgr))
        if numbers == UNDECIDED:
            np.testing.assert_array_equal(changed, image)


def test_where_nothing_can_change_nothing_is_drawn() -> None:
    step, image = distorter(RANGES, NONE), gradient(8, 8)
    assert step.declare_draws(SampleDataGroup()) == ()
    [run] = assert_forms_agree(step, [image])
    np.testing.assert_array_equal(run.output["image"], image)


def test_contrast_is_never_skipped_and_permutations_are_uniform() -> None:
    """The original rounds its draws to integers: for a quarter of the samples contrast is left out."""
    image = np.array([[[20, 60, 100]]], np.uint8)
    ranges = {"brightness": [0, 0], "hue": [0, 0], "contrast": [0.5, 0.5], "saturation": [1, 1]}
    step = distorter(ranges, {**NONE, "contrast": 1.0, "swap": 1.0})
    found = [run.output["image"] for run in run_step(step, [sample_of({"image": image})] * 1200)]
    colors, counts = np.unique(np.concatenate(found).reshape(-1, 3), axis=0, return_counts=True)
    expected = [tuple([10, 30, 50][channel] for channel in permutation) for permutation in PERMUTATIONS]
    assert sorted(map(tuple, colors.tolist())) == sorted(expected)
    assert counts.min() > 150
