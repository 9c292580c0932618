"""How a worker checks samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali.types import DALIDataType
from support.array_samples import group_of

from accvlab.dali_pipeline_framework.workers.samples import SampleChecker


def checker(*dtypes: DALIDataType) -> SampleChecker:
    blueprint = group_of(**{f"field_{number}": dtype for number, dtype in enumerate(dtypes)})
    return SampleChecker(blueprint.format, "Input")


def odd_rank(found_by: SampleChecker, samples: Any) -> tuple[int, int] | None:
    found_by.usual_ranks = found_by.usual_ranks or [array.ndim for array in samples[0]]
    return found_by.find_odd_rank(samples)


def test_equal_problems_of_array_elements_share_a_line() -> None:
    blueprint = group_of(cameras=(group_of(image=(DALIDataType.UINT8, {"ndim": 1})), 6))
    samples = SampleChecker(blueprint.format, "Input")
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


@pytest.mark.parametrize(
    ("ranks", "odd"),
    [([1, 1, 1], None), ([1, 2, 1], (1, 0)), ([2, 1, 1], (0, 1)), ([1, 1, 2], (2, 0)), ([1, 2], (1, 0))],
)
def test_the_odd_sample_is_found(ranks: list[int], odd: tuple[int, int] | None) -> None:
    samples: list[tuple[Any, ...]] = [(np.zeros((1,) * rank, np.float32),) for rank in ranks]
    assert odd_rank(checker(DALIDataType.FLOAT), samples) == odd


def test_of_two_samples_the_one_that_differs_from_earlier_batches_is_odd() -> None:
    vector, matrix = (np.zeros(1, np.float32),), (np.zeros((1, 1), np.float32),)
    batches = checker(DALIDataType.FLOAT)
    assert odd_rank(batches, [vector, vector]) is None
    assert odd_rank(batches, [matrix, vector]) == (0, 1)
    assert odd_rank(batches, [vector, matrix]) == (1, 0)
