"""The check of the lengths of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.sampling.arithmetic.last_batch import checked_lengths


@pytest.mark.parametrize("lengths", [(3, 1, 4), np.array([3, 1, 4]), [3.0, 1.0, 4.0]])
def test_whole_numbers_become_a_copy_in_int64(lengths: Any) -> None:
    checked = checked_lengths(lengths)
    assert checked.tolist() == [3, 1, 4]
    assert checked.dtype == np.int64
    assert not np.may_share_memory(checked, np.asarray(lengths))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], r"`lens` must be a flat list with at least one length, got shape \(0,\)"),
        ([[1, 2], [3]], r"`lens` must be a flat list with at least one length, got nested lists"),
        (5, r"`lens` must be a flat list with at least one length, got an object of type int\."),
        ("345", r"got an object of type str\."),
        ((length for length in [3, 4]), r"got an object of type generator\."),
        ([2, 1.5, 2.5], r"`lens` must hold whole numbers, but length 1 is 1\.5 \(2 such length\(s\)\)"),
        ([2, 3, float("nan")], r"whole numbers, but length 2 is nan \(1 such"),
        ([True, False], r"whole numbers, got bool values"),
        ([2**70], r"whole numbers, got object values"),
        ([3, 0, -2], r"Each of `lens` must be at least 1, but length 1 is 0 \(2 such length\(s\)\)\. Leave empty"),
        ([2**62, 2**62], r"`lens` must add up to at most 2\*\*62 samples, got 9\.2"),
    ],
)
def test_other_things_are_refused(lengths: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        checked_lengths(lengths, "lens")
