"""Removing fields by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from step_runs import assert_same, output_format
from support.array_samples import sample_of

from accvlab.dali_pipeline_framework.processing_steps import UnneededFieldRemover

SAMPLE = {
    "a": np.float32(1),
    "b": {"a": {"a": np.int64(2), "c": np.int64(3)}, "d": np.zeros((0, 2))},
    "e": {0: {"a": np.uint8(4), "b": np.uint8(5)}},
}


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["a"], {"b": {"d": SAMPLE["b"]["d"]}, "e": {0: {"b": np.uint8(5)}}}),
        (("d", "unknown", 0), {"a": np.float32(1), "b": {"a": SAMPLE["b"]["a"]}, "e": {}}),
        (["b"], {"a": np.float32(1), "e": {0: {"a": np.uint8(4)}}}),
        ([], SAMPLE),
    ],
)
def test_all_occurrences_are_removed_and_groups_that_become_empty_stay(names: Any, left: Any) -> None:
    step = UnneededFieldRemover(names)
    assert_same(step(sample_of(SAMPLE)).to_dictionary(), left)
    assert output_format(step, SAMPLE).get_empty_like_self().type_matches(sample_of(left))


def test_other_names_are_passed_over_and_those_that_look_misspelt_logged(caplog: pytest.LogCaptureFixture) -> None:
    sample = {"image": np.uint8(1), "boxes_3d": np.float32(2), "group": {"is_visible": np.bool_(True)}}
    step = UnneededFieldRemover(["imgae", "boxes_3d", "is_visble", "boxes_2d", "image_hw", "path", 3])
    assert output_format(step, sample).field_names_flat == ("image", "group.is_visible")
    assert [record.getMessage() for record in caplog.records] == [
        f"UnneededFieldRemover: no field has the name {name!r}, which looks misspelt. Did you mean {meant!r}?"
        for name, meant in [("imgae", "image"), ("is_visble", "is_visible")]
    ]
