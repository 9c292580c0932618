"""Points in a box against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, run_step
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import PointsInRangeCheck

INF = float("inf")


@given(data=st.data())
@settings(max_examples=examples(12, 30), deadline=None)
def test_is_inclusive_and_nan_is_outside(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["f2", "f4", "f8", "i1", "i8"])))
    columns = data.draw(st.integers(1, 4))
    limits = [
        sorted(data.draw(st.tuples(*[st.sampled_from([-INF, -2.0, -0.5, 0.0, 1.0, 1.5, 3.0, INF])] * 2)))
        for _ in range(columns)
    ]
    low, high = (np.array(side) for side in zip(*limits, strict=True))
    values = [-3, -2, -1, 0, 1, 2, 3, 100]
    if dtype.kind == "f":
        values += [0.5, 1.5, float("nan"), INF, -INF]
    row = st.lists(st.sampled_from(values), min_size=columns, max_size=columns)
    samples = [
        {"p": np.array(data.draw(st.lists(row, max_size=5)), dtype).reshape(-1, columns)}
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    found = run_step(PointsInRangeCheck("p", "is_inside", low, high), samples)
    for one, sample in zip(found, samples, strict=True):
        expected = ((sample["p"] >= low) & (sample["p"] <= high)).all(axis=1)
        assert_same(one, {"p": sample["p"], "is_inside": expected})


def test_large_integers_are_exact() -> None:
    points = np.array([[2**53], [2**53 + 1], [2**53 + 2]])
    [found] = run_step(PointsInRangeCheck("p", "in", [2**53 + 2], [INF]), [{"p": points}])
    assert found["in"].tolist() == [False, False, True]


def test_no_integer_between_the_limits() -> None:
    points = np.arange(4).reshape(-1, 1)
    [found] = run_step(PointsInRangeCheck("p", "in", [1.2], [1.8]), [{"p": points}])
    assert found["in"].tolist() == [False] * 4


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.uint64])
def test_limits_beyond_the_type_are_limits(dtype: Any) -> None:
    limits, (low, high) = np.iinfo(dtype), (-1e30, 1e30)
    samples = [{"p": np.array([[limits.min], [limits.max]], dtype)}]
    for minimum, maximum, expected in ((high, INF, False), (-INF, low, False), (low, high, True)):
        [found] = run_step(PointsInRangeCheck("p", "in", [minimum], [maximum]), samples)
        assert found["in"].tolist() == [expected] * 2


def test_float_limits_are_rounded_to_the_type_of_the_points() -> None:
    points = np.array([[np.float32(0.1)]])
    [found] = run_step(PointsInRangeCheck("p", "in", [-1], [0.1]), [{"p": points}])
    assert found["in"].tolist() == [True]


def test_every_field_of_the_name_gets_a_sibling() -> None:
    samples = [
        {"p": np.zeros((n, 2), np.float32), "a": {0: {"p": np.ones((n, 2), np.float32)}}, "x": np.int8(n)}
        for n in (3, 0, 1)
    ]
    found = assert_laws(PointsInRangeCheck("p", "in", [0, 0], [0.5, INF]), samples)
    for one, sample, n in zip(found, samples, (3, 0, 1), strict=True):
        expected = {
            "p": sample["p"],
            "a": {0: {**sample["a"][0], "in": np.zeros(n, bool)}},
            "x": sample["x"],
            "in": np.ones(n, bool),
        }
        assert_same(one, expected)
