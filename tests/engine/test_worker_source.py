"""How a worker puts samples together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework.engine.worker_source import SampleChecker
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


def checker(*dtypes: DALIDataType, needs_contiguous: bool = False) -> SampleChecker:
    blueprint = SampleDataGroup()
    for number, dtype in enumerate(dtypes):
        blueprint.add_data_field(f"field_{number}", dtype)
    return SampleChecker(blueprint.format, "Input", needs_contiguous)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.sampled_from([(), (3,), (0, 4), (2, 2)]))
def test_a_column_holds_the_samples_in_order(lengths: list[int], tail: tuple[int, ...]) -> None:
    samples = [(np.full((length, *tail), slot, np.float32),) for slot, length in enumerate(lengths)]
    [column] = checker(DALIDataType.FLOAT).columns(samples)
    assert isinstance(column, np.ndarray) == (len(set(lengths)) == 1)
    assert len(column) == len(samples)
    for got, (expected,) in zip(column, samples, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)


def test_equal_problems_of_array_elements_share_a_line() -> None:
    camera = SampleDataGroup()
    camera.add_data_field("image", DALIDataType.UINT8, ndim=1)
    blueprint = SampleDataGroup()
    blueprint.add_data_group_field_array("cameras", camera, 6)
    samples = SampleChecker(blueprint.format, "Input", needs_contiguous=False)
    flat = [None, None, np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1, np.uint8)]
    with pytest.raises(ValueError, match="is not set") as caught:
        samples.check(flat)
    assert str(caught.value).splitlines() == [
        "  - cameras[0..1].image: is not set",
        "  - cameras[2..4].image: expected dtype uint8, got float64 (shape (1,))",
    ]
    images = [np.zeros(1, np.uint8)] * 6
    clash = samples.describe_rank_clash([np.zeros((2, 1), np.uint8)] * 6, images, "slot 0")
    assert clash == "  - cameras[0..5].image: expected 1 dimension(s) as in slot 0 of the same batch, got 2"


def test_scalars_become_one_array() -> None:
    [column] = checker(DALIDataType.INT64).columns([(np.array(7),), (np.array(8),)])
    assert column.tolist() == [7, 8]
    assert column.dtype == np.int64


def test_large_fields_are_not_copied_together() -> None:
    samples = [(np.zeros(100_000, np.uint8),), (np.ones(100_000, np.uint8),)]
    [column] = checker(DALIDataType.UINT8).columns(samples)
    assert isinstance(column, list)
    assert [array is sample[0] for array, sample in zip(column, samples, strict=True)] == [True, True]


def test_strided_arrays_are_made_contiguous_where_dali_needs_it() -> None:
    strided = np.arange(400_000, dtype=np.uint8)[::2]
    [column] = checker(DALIDataType.UINT8, needs_contiguous=True).columns([(strided,), (strided[:7],)])
    assert all(array.flags.c_contiguous for array in column)
    np.testing.assert_array_equal(column[0], strided)


@pytest.mark.parametrize(
    ("ranks", "odd"),
    [([1, 1, 1], None), ([1, 2, 1], (1, 0)), ([2, 1, 1], (0, 1)), ([1, 1, 2], (2, 0)), ([1, 2], (1, 0))],
)
def test_the_odd_sample_is_found(ranks: list[int], odd: tuple[int, int] | None) -> None:
    samples: list[tuple[Any, ...]] = [(np.zeros((1,) * rank, np.float32),) for rank in ranks]
    assert checker(DALIDataType.FLOAT).find_odd_rank(samples) == odd


def test_of_two_samples_the_one_that_differs_from_earlier_batches_is_odd() -> None:
    vector, matrix = (np.zeros(1, np.float32),), (np.zeros((1, 1), np.float32),)
    batches = checker(DALIDataType.FLOAT)
    assert batches.find_odd_rank([vector, vector]) is None
    assert batches.find_odd_rank([matrix, vector]) == (0, 1)
    assert batches.find_odd_rank([vector, matrix]) == (1, 0)
