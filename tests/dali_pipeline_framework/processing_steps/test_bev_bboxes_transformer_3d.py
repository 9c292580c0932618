"""3D boxes turned, scaled, shifted and mirrored, with all that belongs to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from affine_reference import NamedDraws
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import BatchRun, run_steps
from support.arrays import DT
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import BEVBBoxesTransformer3D
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere

NAMES: list[Any] = ["points", ["velocities"], "sizes", "orientations", ["lidar2img", "extrinsics"], "e2w", "w2e"]
RUNS: tuple[RunWhere, ...] = ("graph", "workers")
DRAWN = ("angle", "scale", "x", "y", "z", "flip_x", "flip_y")


def rigid(generator: np.random.Generator) -> np.ndarray:
    turn, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn, generator.normal(size=3) * 3
    return matrix


def sample(seed: int, num_boxes: int) -> dict[str, np.ndarray]:
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


def fields(samples: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    return {name: (DT.FLOAT, [each[name] for each in samples]) for name in samples[0]}


def rotation(axis: int, angle: float) -> np.ndarray:
    one, other = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.eye(4)
    matrix[one, one] = matrix[other, other] = np.cos(angle)
    matrix[other, one], matrix[one, other] = np.sin(angle), -np.sin(angle)
    return matrix


def transformation(drawn: dict[str, float], axis: int, probs: tuple[float, float]) -> np.ndarray:
    mirror = np.diag([1.0, 1, 1, 1])
    for i, prob in enumerate(probs):
        mirror[i, i] = -1 if drawn[f"flip_{'xy'[i]}"] < prob else 1
    shift = np.eye(4)
    shift[:3, 3] = [drawn[a] for a in "xyz"]
    return shift @ np.diag([drawn["scale"]] * 3 + [1]) @ rotation(axis, drawn["angle"]) @ mirror


def assert_fits(
    before: dict[str, np.ndarray], run: BatchRun, index: int, matrix: np.ndarray, scale: float
) -> None:
    found = {name: values[index].astype(np.float64) for name, values in run.values.items()}
    inverse = np.linalg.inv(matrix)
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
    assert (run["other"][index] == before["other"]).all()
    assert all(values[index].dtype == np.float32 for values in run.values.values())
    assert all(found[name].shape == before[name].shape for name in before)


draws = st.fixed_dictionaries(
    {
        "angle": st.floats(-3, 3, width=32),
        "scale": st.floats(0.5, 2, width=32),
        **{axis: st.floats(-4, 4, width=32) for axis in "xyz"},
        "flip_x": st.floats(0, 1, width=32, exclude_max=True),
        "flip_y": st.floats(0, 1, width=32, exclude_max=True),
    }
)


@settings(max_examples=examples(4, 20), deadline=None)
@given(
    drawn=st.lists(draws, min_size=3, max_size=5),
    axis=st.sampled_from([0, 1, 2]),
    num_boxes=st.lists(st.integers(0, 4), min_size=5, max_size=5),
    conditionals=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_field_follows_the_one_transformation(
    drawn: list[dict[str, float]], axis: int, num_boxes: list[int], conditionals: bool, seed: int
) -> None:
    samples = [sample(seed + i, num_boxes[i]) for i in range(len(drawn))]
    probs = (0.5, 0.25) if axis == 2 else (0.0, 0.0)
    step = BEVBBoxesTransformer3D(
        *NAMES, [-3, 3], axis, [0.5, 2], [4, 4, 4], flip_prob_x=probs[0], flip_prob_y=probs[1]
    )
    with pytest.MonkeyPatch.context() as patch:
        fake = NamedDraws(patch, drawn, DRAWN)
        run = run_steps(step, fields(samples), conditionals=conditionals)
    assert fake.ranges == [[-3, 3], [0.5, 2], *[[-4, 4]] * 3, *[[0, 1]] * (2 if axis == 2 else 0)]
    for index, (before, numbers) in enumerate(zip(samples, drawn, strict=True)):
        matrix = transformation(numbers, axis, probs)
        assert_fits(before, run, index, matrix, numbers["scale"])
        angles = run["orientations"][index].astype(np.float64)
        assert (np.abs(angles) <= np.float32(np.pi)).all()
        if axis == 2:  # the heading is turned as a vector is
            heading = np.stack([f(before["orientations"].astype(np.float64)) for f in (np.cos, np.sin)], -1)
            expected = heading @ (matrix[:2, :2] / numbers["scale"]).T
            np.testing.assert_allclose(np.stack([np.cos(angles), np.sin(angles)], -1), expected, atol=1e-6)
        else:
            turned = before["orientations"].astype(np.float64) + numbers["angle"]
            np.testing.assert_allclose(np.exp(1j * angles), np.exp(1j * turned), atol=1e-6)


@pytest.mark.parametrize("part", ["rotation", "scaling", "translation", "flip"])
def test_each_part_alone(part: str) -> None:
    samples = [sample(i, i) for i in range(3)]
    step = BEVBBoxesTransformer3D(
        *NAMES,
        [0.5, 0.5] if part == "rotation" else None,
        2,
        np.array([2, 2]) if part == "scaling" else None,
        (0, 0, 0) if part == "translation" else None,
        flip_prob_y=float(part == "flip"),
    )
    run = run_steps(step, fields(samples))
    drawn = {**dict.fromkeys(DRAWN, 0.0), "scale": 1.0, "flip_x": 1.0}
    drawn.update({"angle": 0.5} if part == "rotation" else {"scale": 2.0} if part == "scaling" else {})
    for index, before in enumerate(samples):
        assert_fits(before, run, index, transformation(drawn, 2, (0, float(part == "flip"))), drawn["scale"])


def test_without_any_part_nothing_is_drawn_or_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = NamedDraws(monkeypatch, [], DRAWN)
    samples = [sample(i, i) for i in range(3)]
    run = run_steps(BEVBBoxesTransformer3D(*NAMES, None, None, None, None), fields(samples))
    assert fake.ranges == []
    assert all((run[name][i] == samples[i][name]).all() for name in samples[0] for i in range(3))


def test_single_vectors_and_stacked_matrices() -> None:
    point, matrices = np.array([1, 2, 3], np.float32), np.random.default_rng(0).normal(size=(2, 3, 4))
    step = BEVBBoxesTransformer3D("p", "v", None, None, "m", None, None, None, None, [2, 2], [0, 0, 0])
    data = {"p": (DT.FLOAT, [point]), "v": (DT.FLOAT, [point]), "m": (DT.FLOAT, [matrices])}
    run = run_steps(step, data)
    assert run["p"][0].tolist() == run["v"][0].tolist() == [2, 4, 6]
    np.testing.assert_allclose(run["m"][0], matrices @ np.diag([0.5, 0.5, 0.5, 1]), rtol=1e-7, atol=1e-6)


def test_a_name_that_is_given_twice_counts_once() -> None:
    step = BEVBBoxesTransformer3D(["p", "p"], *[None] * 6, None, None, [2, 2], None)
    for run in RUNS:
        assert run_steps(step, {"p": (DT.FLOAT, [[1, 2, 3]])}, run=run)["p"][0].tolist() == [2, 4, 6]
