"""3D boxes turned, scaled, shifted and mirrored, with all that belongs to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from affine_reference import given_draws
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import run_step
from support.array_samples import sample_of
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import BEVBBoxesTransformer3D
from accvlab.dali_pipeline_framework.testing import run_step as run_published

NAMES: list[Any] = ["points", ["velocities"], "sizes", "orientations", ["lidar2img", "extrinsics"], "e2w", "w2e"]


def rigid(generator: np.random.Generator) -> np.ndarray:
    turn, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn, generator.normal(size=3) * 3
    return matrix


def made_sample(seed: int, num_boxes: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    e2w = rigid(generator)
    values = {
        "points": generator.normal(size=(num_boxes, 3)) * 10,
        "velocities": generator.normal(size=(num_boxes, 3)),
        "sizes": generator.uniform(0.1, 5, (num_boxes, 3)),
        "orientations": generator.uniform(-4, 4, num_boxes),
        "lidar2img": generator.normal(size=(3, 4)),
        "extrinsics": rigid(generator),
        "e2w": e2w,
        "w2e": np.linalg.inv(e2w),
        "other": generator.normal(size=(num_boxes, 3)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


def transformation(drawn: dict[str, float], axis: int, flip_probs: tuple[float, float]) -> np.ndarray:
    angle, scale = drawn.get("angle", 0.0), drawn.get("scale", 1.0)
    rotation, mirror, shift = np.eye(4), np.eye(4), np.eye(4)
    one, other = (axis + 1) % 3, (axis + 2) % 3
    rotation[one, one] = rotation[other, other] = np.cos(angle)
    rotation[other, one], rotation[one, other] = np.sin(angle), -np.sin(angle)
    for number, prob in enumerate(flip_probs):
        mirror[number, number] = -1 if drawn.get(f"flip_{'xy'[number]}", 1.0) < prob else 1
    shift[:3, 3] = [drawn.get(f"translation_{each}", 0.0) for each in "xyz"]
    return shift @ np.diag([scale, scale, scale, 1]) @ rotation @ mirror


@settings(max_examples=examples(30, 150), deadline=None)
@given(
    seed=st.integers(0, 999),
    num_boxes=st.integers(0, 4),
    angles=st.sampled_from([None, [-3, 3], [0.5, 0.5]]),
    scales=st.sampled_from([None, [0.5, 2], [2, 2]]),
    shifts=st.sampled_from([None, [4, 4, 4]]),
    axis_and_flips=st.sampled_from([(0, 0, 0), (1, 0, 0), (2, 0.5, 0.25), (2, 1, 0), (2, 0, 1)]),
)
def test_every_field_follows_the_one_transformation(
    seed: int, num_boxes: int, angles: Any, scales: Any, shifts: Any, axis_and_flips: tuple[int, float, float]
) -> None:
    axis, *probs = axis_and_flips
    step = BEVBBoxesTransformer3D(*NAMES, angles, axis, scales, shifts, flip_prob_x=probs[0], flip_prob_y=probs[1])
    before = made_sample(seed, num_boxes)
    run = run_published(step, sample_of(before), seed=seed, run="workers")
    drawn = {name.rpartition("/")[2]: float(value) for name, value in run.draws.items()}
    drawn |= {} if angles != [0.5, 0.5] else {"angle": 0.5}
    drawn |= {} if scales != [2, 2] else {"scale": 2.0}
    matrix, scale = transformation(drawn, axis, (probs[0], probs[1])), drawn.get("scale", 1.0)
    inverse = np.linalg.inv(matrix)
    after = run.output.to_dictionary()
    assert {name: (each.dtype, each.shape) for name, each in after.items()} == {
        name: (np.float32, each.shape) for name, each in before.items()
    }
    found = {name: value.astype(np.float64) for name, value in after.items()}
    # Points, sizes and the matrices of the world are off by their own rounding to float32, at most.
    points = before["points"] @ matrix[:3, :3].T + matrix[:3, 3]
    np.testing.assert_allclose(found["points"], points, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(found["velocities"], before["velocities"] @ matrix[:3, :3].T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["sizes"], before["sizes"] * scale, rtol=1e-7, atol=1e-6)
    for name in ("lidar2img", "extrinsics"):
        np.testing.assert_allclose(found[name], before[name] @ inverse, rtol=0, atol=5e-6)
    np.testing.assert_allclose(found["e2w"], before["e2w"] @ inverse, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(found["w2e"], matrix @ before["w2e"], rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(found["e2w"] @ found["w2e"], np.eye(4), atol=5e-6)
    np.testing.assert_array_equal(after["other"], before["other"])
    headings = before["orientations"].astype(np.float64)
    if run.draws or angles or scales:
        assert (np.abs(after["orientations"]) <= np.float32(np.pi)).all()
    if axis == 2:  # the heading is turned as a vector is
        turned = np.exp(1j * headings).view(float).reshape(-1, 2) @ (matrix[:2, :2] / scale).T
        expected = turned[:, 0] + 1j * turned[:, 1]
    else:
        expected = np.exp(1j * (headings + drawn.get("angle", 0.0)))
    np.testing.assert_allclose(np.exp(1j * found["orientations"]), expected, atol=1e-6)


def test_draws_are_made_in_the_published_order() -> None:
    step = BEVBBoxesTransformer3D(*NAMES, [-3, 3], 2, [0.5, 2], [4, 5, 6], flip_prob_x=0.5, flip_prob_y=0.5)
    with given_draws(np.zeros((1, 7))) as ranges:
        run_step(step, [made_sample(0, 2)])
    assert ranges == [(-3, 3), (0.5, 2), (-4, 4), (-5, 5), (-6, 6), (0, 1), (0, 1)]


def test_without_any_part_nothing_is_drawn_or_changed() -> None:
    sample = sample_of(made_sample(0, 3))
    run = run_published(BEVBBoxesTransformer3D(*NAMES, None, None, None, None), sample)
    assert run.draws == {}
    assert run.output == sample


def test_single_vectors_stacked_matrices_and_names_that_are_given_twice() -> None:
    point, matrices = np.array([1, 2, 3], np.float32), np.random.default_rng(0).normal(size=(2, 3, 4))
    step = BEVBBoxesTransformer3D(["p", "p"], "v", None, None, "m", None, None, None, None, [2, 2], [0, 0, 0])
    found = step(sample_of({"p": point, "v": point, "m": matrices}))
    assert found["p"].tolist() == found["v"].tolist() == [2, 4, 6]
    np.testing.assert_allclose(found["m"], matrices @ np.diag([0.5, 0.5, 0.5, 1]), rtol=1e-7, atol=1e-6)
