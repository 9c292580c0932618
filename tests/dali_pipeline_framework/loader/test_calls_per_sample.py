"""What a batch costs beside the work on its data."""

from __future__ import annotations

import calls_per_sample
import pytest


# 86 for one when this was written. Each is a hop that a reader makes, and a microsecond in one process.
@pytest.mark.parametrize(("batch_size", "most"), [(1, 92), (8, 240)])
def test_samples_take_few_calls(batch_size: int, most: int) -> None:
    of_all = calls_per_sample.calls_of_a_batch(calls_per_sample.Images(), batch_size)
    calls = calls_per_sample.of_package(of_all)
    assert sum(calls.values()) <= most, calls.most_common()
