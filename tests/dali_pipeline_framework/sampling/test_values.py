"""Planned batches are values."""

from __future__ import annotations

import numpy as np
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.sampling import PlannedBatch


def test_planned_batches() -> None:
    assert PlannedBatch([1, 2]) == PlannedBatch(np.array([1, 2]), [False, False])
    assert PlannedBatch([1, 2]) != PlannedBatch([1, 2], [False, True])
    assert PlannedBatch([1, 2]) != PlannedBatch([1, 3])
    assert PlannedBatch([1, 2]) != [1, 2]
    assert_refused(lambda: hash(PlannedBatch([1])), "unhashable", TypeError)
    padded = PlannedBatch([3, 3], [False, True], is_first=[False, False], is_last=[False, False])
    assert (padded.is_first.tolist(), padded.is_last.tolist()) == ([False, True], [False, True])
