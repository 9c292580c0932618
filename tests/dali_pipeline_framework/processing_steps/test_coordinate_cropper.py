"""Clamping against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, run_step
from support.laws import examples

from accvlab.dali_pipeline_framework.processing_steps import CoordinateCropper

FLOATS = ["f2", "f4", "f8"]
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


@given(data=st.data())
@settings(max_examples=examples(12, 30), deadline=None)
def test_floats_are_clamped_per_column(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(FLOATS)))
    columns = data.draw(st.integers(1, 4))
    number = st.floats(-100, 100, width=16)
    special = st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0])
    limits = [sorted(data.draw(st.tuples(number, number))) for _ in range(columns)]
    low, high = zip(*limits, strict=True)
    samples = []
    for _ in range(data.draw(st.integers(1, 3))):
        rows = data.draw(st.lists(st.lists(number | special, min_size=columns, max_size=columns), max_size=4))
        samples.append({"p": np.array(rows, dtype).reshape(-1, columns)})
    found = run_step(CoordinateCropper("p", low, high), samples)
    for one, sample in zip(found, samples, strict=True):
        expected = np.clip(sample["p"], np.array(low, dtype), np.array(high, dtype)).astype(dtype)
        np.testing.assert_array_equal(one["p"], expected)
        assert one["p"].dtype == dtype


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact_at_the_ends_of_their_type(dtype: str) -> None:
    info = np.iinfo(dtype)
    ends = [int(info.min), int(info.min) + 1, 5, int(info.max) - 1, int(info.max)]
    points = np.array([[value, value] for value in ends], dtype)
    [found] = run_step(CoordinateCropper("p", [-np.inf, 6.9], [np.inf, 1e30]), [{"p": points}])
    assert found["p"].tolist() == [[value, max(value, 6)] for value in ends]
    assert found["p"].dtype == np.dtype(dtype)


def test_all_fields_of_the_name_and_only_they_change() -> None:
    samples = [
        {
            "p": np.full((n, 2), 9, np.float32),
            "a": {"p": np.full((n, 2), -3, np.int32), "q": np.full((n, 2), 9.0)},
        }
        for n in (2, 0)
    ]
    found = assert_laws(CoordinateCropper("p", [0, 1], [5, 4]), samples)
    for one, n in zip(found, (2, 0), strict=True):
        expected = {
            "p": np.array([[5, 4]] * n, np.float32).reshape(n, 2),
            "a": {"p": np.array([[0, 1]] * n, np.int32).reshape(n, 2), "q": np.full((n, 2), 9.0)},
        }
        assert_same(one, expected)
