"""Affine transformations against NumPy: matrices, images, all that is given in pixels; settings and errors."""

from __future__ import annotations

import functools
from typing import Any

import affine_reference as reference
import numpy as np
import pytest
from affine_reference import Border, given_draws, resizings, shares_as_draws, transformations
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_same, run_step
from support.array_samples import sample_of
from support.arrays import DT, gradient
from support.laws import examples
from support.random_steps import filled
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.operators.image_transform import Resampling
from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.testing import run_step as run_published

Mode, Anchor = A.ResizingMode, A.ResizingAnchor
MANY_DRAWS = 60
PROBS = st.sampled_from([0.0, 0.3, 0.7, 1.0])
ALONG_AXES = transformations(PROBS, 9, (0.5, 2))
SIZES = ((13, 17), (8, 20), (20, 9))


# --- against NumPy ----------------------------------------------------------------------------------------


def made_sample(rng: np.random.Generator, hw: tuple[int, int], num: int) -> dict[str | int, Any]:
    low = rng.uniform(-5, 20, (num, 2))
    return {
        "image": rng.integers(0, 256, (*hw, 3), dtype=np.uint8),
        "image_hw": np.array(hw, np.int32),
        "points": rng.uniform(-5, 20, (num, 4)).astype(np.float32),
        "boxes": np.concatenate([low, low + rng.uniform(0, 9, (num, 2))], 1).astype(np.float32),
        "matrix": rng.uniform(-5, 5, (3, 3 + num % 2)).astype(np.float32),
        "other": rng.uniform(-5, 5, (num, 4)).astype(np.float32),
    }


FIELDS = {
    "image_field_names": "image",
    "image_hw_field_names": "image_hw",
    "projection_matrix_field_names": "matrix",
    "point_field_names": "points",
    "box_names": "boxes",
}


@settings(max_examples=examples(12, 24), deadline=None)
@given(ALONG_AXES | transformations(PROBS, 9, (0.5, 2), (180, 30)), resizings, st.integers(0, 1000))
def test_chains_are_what_numpy_computes(steps: Any, resizing: Any, seed: int) -> None:
    """A batch of three samples of different sizes against the reference."""
    rng, output_hw = np.random.default_rng(seed), (11, 14)
    samples = [made_sample(rng, hw, num) for hw, num in zip(SIZES, (2, 0, 3), strict=True)]
    shares = rng.random((3, MANY_DRAWS))
    step = A(output_hw, *resizing, transformation_steps=steps, fill_value=7, **FIELDS)
    with given_draws(shares):
        found = run_step(step, samples)
    for sample, output, draws in zip(samples, found, shares, strict=True):
        hw = sample["image"].shape[:2]
        matrix = reference.matrix_of(steps, hw, output_hw, *resizing, shares_as_draws(draws))
        tolerance = {"rtol": 1e-5, "atol": 1e-3 * max(1, np.abs(matrix[:2, :2]).max())}
        np.testing.assert_allclose(output["points"], reference.points_by(matrix, sample["points"]), **tolerance)
        np.testing.assert_allclose(output["boxes"], reference.boxes_by(matrix, sample["boxes"]), **tolerance)
        np.testing.assert_allclose(output["matrix"], matrix @ sample["matrix"].astype(float), rtol=1e-4, atol=2e-3)
        assert output["image_hw"].tolist() == [*output_hw]
        assert_same(output["other"], sample["other"])
        expected, is_free = reference.image_by(matrix, sample["image"], output_hw, 7)
        assert (output["image"].dtype, output["image"].shape) == (np.uint8, expected.shape)
        assert np.abs(output["image"] - expected)[is_free].max(initial=0) <= 1.5


def resampling_of(*resizing: Any, steps: Any) -> Resampling:
    """The operator that is chosen: where nothing is wrong, only its speed is seen."""
    return A((11, 14), *resizing, "image", transformation_steps=steps)._resampling()  # noqa: SLF001


MIRROR, MOVE, ZOOM = A.NonUniformScaling(0.5, [-1, 1]), A.Translation(0.5, [0, 1]), A.UniformScaling(0.5, 1, 1.5)
Align = A.ShiftToAlignWithOriginalImageBorder
DOUBLED = A.UniformScaling(1, 2)


@pytest.mark.parametrize(
    ("resampling", "steps"),
    [
        (Resampling.REGION, [MIRROR]),
        (Resampling.REGION, [ZOOM, A.ShiftInsideOriginalImage(1, True, True)]),
        (Resampling.REGION, [MOVE, Align(1, Border.TOP)]),
        (Resampling.PASTED_REGION, [A.UniformScaling(0.5, 0.9, 1.5)]),
        (Resampling.PASTED_REGION, [MOVE]),
        (Resampling.PASTED_REGION, [MOVE, Align(0.5, Border.TOP)]),
        (Resampling.PASTED_REGION, [A.Selection(0.5, [0.5, 0.5], [A.UniformScaling(1, 0.5), []])]),
        (Resampling.WARP, [A.Selection(0.5, [1.0], [A.Shearing(1, [1, 1])])]),
    ],
)
def test_the_steps_choose_the_operator(resampling: Resampling, steps: Any) -> None:
    assert resampling_of(Mode.CROP, Anchor.CENTER, steps=steps) == resampling


# --- what the steps mean, by hand -----------------------------------------------------------------------


def moved(steps: Any, point: Any, hw: tuple[int, int] = (20, 40), shares: Any = None) -> list[float]:
    """Where a point goes when the size stays."""
    step = A(hw, Mode.STRETCH, image_hw_field_names="hw", point_field_names="points", transformation_steps=steps)
    sample = {"hw": np.array(hw, np.int32), "points": np.array([point], np.float32)}
    with given_draws(np.full((1, MANY_DRAWS), 0.5) if shares is None else np.array([shares])):
        [output] = run_step(step, [sample])
    return output["points"][0].round(3).tolist()


@pytest.mark.parametrize(
    ("steps", "point", "expected"),
    [
        ([A.Translation(1, [3, -2])], [5, 5], [8, 3]),
        ([A.Translation(1, [0, -2], [4, 4])], [5, 5], [7, 6]),
        ([A.Rotation(1, 90)], [30, 10], [20, 0]),  # right of the center -> above it: counter-clockwise
        ([A.UniformScaling(1, 2)], [30, 10], [40, 10]),
        ([A.NonUniformScaling(1, [1, 3], [3, 3])], [25, 11], [30, 13]),
        ([A.Shearing(1, [45, 0])], [20, 15], [25, 15]),
        ([A.Shearing(1, [0, 45])], [25, 10], [25, 15]),
        ([DOUBLED, Align(1, Border.TOP)], [0, 0], [-20, 0]),
        ([DOUBLED, Align(1, Border.LEFT)], [0, 0], [0, -10]),
        ([DOUBLED, Align(1, Border.BOTTOM)], [40, 20], [60, 20]),
        ([DOUBLED, Align(1, Border.RIGHT)], [40, 20], [40, 30]),
        ([DOUBLED, A.ShiftInsideOriginalImage(1, True, False)], [0, 0], [-20, -10]),
        ([A.Translation(1, [7, 0]), A.ShiftInsideOriginalImage(1, True, False)], [0, 0], [0, 0]),
        # What is done before stays, and images that are too small stay where they are.
        ([A.Translation(1, [3, 0]), A.NonUniformScaling(1, [-1, 1])], [0, 0], [37, 0]),
        ([A.NonUniformScaling(1, [0.5, 2]), A.ShiftInsideOriginalImage(1, True, True)], [0, 0], [10, -10]),
    ],
)
def test_each_step(steps: Any, point: Any, expected: Any) -> None:
    assert moved(steps, point) == pytest.approx(expected, abs=2e-3)


def test_a_selection_takes_the_first_option_that_the_draw_does_not_exceed() -> None:
    def option(share: float) -> float:
        steps = [A.Selection(1, [0.25, 0.5, 0.25], [A.Translation(1, [x, 0]) for x in (1, 2, 4)])]
        return moved(steps, [0, 0], shares=[0, share, 0, 0, 0])[0]

    assert [option(share) for share in (0.0, 0.25, 0.26, 0.75, 0.76, 0.999)] == [1, 1, 2, 2, 4, 4]


def test_draws_are_made_in_the_published_order() -> None:
    steps = [
        A.Translation(1, [0, 1], [2, 1]),
        A.Selection(
            0.5, [0.5, 0.5], [A.Rotation(0.5, -5, 5), [A.UniformScaling(1, 1, 2), A.Translation(1, [1, 1])]]
        ),
        A.NonUniformScaling(0.5, [1, 2], [3, 4]),
    ]
    step = A([4, 4], Mode.STRETCH, None, "image", transformation_steps=steps)
    with given_draws(np.zeros((1, MANY_DRAWS))) as ranges:
        run_step(step, [{"image": gradient(4, 4)}])
    unit = (0, 1)
    selection = [unit, unit, unit, (-5, 5), unit, (1, 2), unit]
    assert ranges == [unit, (0, 2), *selection, unit, (1, 3), (2, 4)]


def test_steps_that_change_nothing_draw_nothing() -> None:
    idle = [A.ShiftInsideOriginalImage(0.5, False, False), A.UniformScaling(0, 2, 3)]
    steps = [*idle, A.Selection(0.5, [0.5, 0.5], [idle, []])]
    step = A([4, 4], Mode.STRETCH, None, "image", transformation_steps=steps)
    assert run_published(step, filled({"image": (DT.UINT8, gradient(6, 8))})).draws == {}


# --- fields ---------------------------------------------------------------------------------------------


STEPS_OF_RESAMPLING = {
    "region": [A.UniformScaling(1, 1.2)],
    "pasted": [A.UniformScaling(1, 0.7), A.NonUniformScaling(1, [-1, 1])],
    "warp": [A.Rotation(1, 5), A.UniformScaling(1, 0.7)],
}


@pytest.mark.parametrize("kind", [*STEPS_OF_RESAMPLING])
def test_masks_get_no_new_labels(kind: str) -> None:
    rng = np.random.default_rng(2)
    mask = rng.choice(np.array([1, 50, 200], np.uint8), (9, 12, 1))
    steps = STEPS_OF_RESAMPLING[kind]
    step = A([6, 8], Mode.STRETCH, None, "image", transformation_steps=steps, mask_names="mask", fill_value=9)
    [output] = run_step(step, [{"image": gradient(9, 12), "mask": mask}])
    matrix = reference.matrix_of(steps, (9, 12), (6, 8), Mode.STRETCH, None, shares_as_draws(np.zeros(9)))
    y, x = np.mgrid[:6, :8] + 0.5
    column, row = np.floor(np.einsum("ij,jhw->ihw", np.linalg.inv(matrix)[:2], [x, y, x * 0 + 1])).astype(int)
    inside = (row >= 0) & (row < 9) & (column >= 0) & (column < 12)
    expected = np.where(inside, mask[row.clip(0, 8), column.clip(0, 11), 0], 0)
    assert (output["mask"][..., 0] == expected).all()


F4, F8 = np.float32, np.float64
STEPS = [A.Rotation(1, 30), A.Translation(1, [2, -3])]


@pytest.mark.parametrize(
    "kinds",
    [
        [((4, 4), F4)] * 3,
        [((3, 4), F4)] * 3,
        [((3, 3), F4), ((4, 4), F4), ((0, 3, 4), F8), ((2, 2, 3, 3), F8), ((4, 5), F4)],
    ],
    ids=["alike", "projections alike", "different"],
)
def test_each_matrix_follows_whatever_the_others_are(kinds: list[Any]) -> None:
    rng = np.random.default_rng(3)
    groups = {
        number: {"matrix": rng.uniform(-5, 5, shape).astype(dtype)} for number, (shape, dtype) in enumerate(kinds)
    }
    names = {"image_hw_field_names": "hw", "projection_matrix_field_names": "matrix"}
    step = A([8, 9], Mode.STRETCH, **names, transformation_steps=STEPS)
    found = step(sample_of({"hw": np.array([4, 6]), **groups}))
    change = reference.matrix_of(STEPS, (4, 6), (8, 9), Mode.STRETCH, None, shares_as_draws(np.zeros(9)))
    for number, (shape, dtype) in enumerate(kinds):
        expected = groups[number]["matrix"].copy()
        expected[..., :3, :] = change @ expected[..., :3, :]
        assert (found[number]["matrix"].dtype, found[number]["matrix"].shape) == (dtype, shape)
        np.testing.assert_allclose(found[number]["matrix"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.float32, np.float64])
def test_points_of_any_shape_keep_their_type_and_whole_numbers_are_rounded(dtype: Any) -> None:
    shapes = [(3, 6), (0,), (2,), (2, 5, 4)]
    points = {f"points {shape}": np.random.default_rng(3).integers(0, 9, shape).astype(dtype) for shape in shapes}
    step = A(
        [15, 20],
        Mode.STRETCH,
        image_hw_field_names="hw",
        point_field_names=[*points],
        box_names="box",
        transformation_steps=[A.Translation(1, [0.19, 0.31])],
    )
    box = np.array([[1, 2, 3, 4]], dtype)
    found = step(sample_of({"hw": np.array([10, 10], dtype), "box": box, **points}))
    for name, values in {"box": box, **points}.items():
        expected = np.add(values.astype(float).reshape(-1, 2), [0.19, 0.31]) * [2, 1.5]
        expected = expected.round() if np.issubdtype(dtype, np.integer) else expected
        assert found[name].dtype == dtype
        np.testing.assert_allclose(found[name], expected.reshape(values.shape), rtol=1e-3)
    assert_same(found["hw"], np.array([15, 20], dtype))


def test_images_far_outside_leave_only_the_fill_value() -> None:
    for offset in ([100, 0], [-100, 0], [0, 100], [0, -100]):
        step = A(
            [6, 8], Mode.STRETCH, None, "image", transformation_steps=[A.Translation(1, offset)], fill_value=33
        )
        [output] = run_step(step, [{"image": gradient(6, 8)}])
        assert (output["image"] == 33).all()


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [Align(1, Border.TOP), A.ShiftInsideOriginalImage(1, True, True)])
def test_shifts_are_refused_after_rotation_and_shearing(shift: Any) -> None:
    def build(*steps: Any) -> A:
        return A([4, 5], Mode.STRETCH, None, "image", transformation_steps=steps)

    for turning in (A.Rotation(0.5, 1), A.Shearing(1, [1, 1])):
        for steps in (
            [turning, MIRROR, shift],
            [A.Selection(1, [0.5, 0.5], [MIRROR, [MIRROR, turning]]), shift],
            [turning, A.Selection(1, [1.0], [shift])],
            [A.Selection(1, [1.0], [[turning, shift]])],
        ):
            words = f"Cannot perform `{type(shift).__name__}` if rotation or shearing are"
            assert_refused(functools.partial(build, *steps), words)
        assert build(shift, turning)
        assert build(A.Selection(1, [0.5, 0.5], [turning, shift]))
