"""The nearest of ascending times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.sampling.arithmetic.times import nearest

TIMES = st.integers(-30, 30)


@given(times=st.lists(TIMES, max_size=8).map(sorted), wanted=st.lists(TIMES, max_size=8), within=st.integers(0, 9))
def test_is_the_first_of_those_with_the_least_distance(times: list[int], wanted: list[int], within: int) -> None:
    expected = []
    for time in wanted:
        distances = [abs(each - time) for each in times]
        least = min(distances, default=within + 1)
        expected.append(distances.index(least) if least <= within else -1)
    found = nearest(np.array(times, float), np.array(wanted, float), within)
    assert found.dtype == np.int64
    # Of equal times, any is the nearest.
    assert [-1 if place < 0 else times[place] for place in found.tolist()] == [
        -1 if place < 0 else times[place] for place in expected
    ]
