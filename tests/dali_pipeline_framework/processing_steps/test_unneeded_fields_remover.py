"""Removing fields by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali.types import DALIDataType
from step_runs import assert_laws, assert_same, blueprint_of

from accvlab.dali_pipeline_framework.processing_steps import UnneededFieldRemover
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

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
def test_all_occurrences_are_removed_and_nothing_else(names: Any, left: Any) -> None:
    for found in assert_laws(UnneededFieldRemover(names), [SAMPLE] * 2):
        assert_same(found, left)


def test_a_group_that_becomes_empty_stays() -> None:
    step = UnneededFieldRemover(["x"])
    declared = step.check_input_data_format_and_set_output_data_format(blueprint_of({"g": {"x": np.int32(0)}}))
    assert declared.is_data_group_field("g")
    assert len(declared["g"]) == 0


def test_no_operator_is_added() -> None:
    value = object()
    sample = SampleDataGroup()
    sample.add_data_field("kept", DALIDataType.FLOAT)
    sample.add_data_field("gone", DALIDataType.FLOAT)
    sample.set_data([value, None])
    assert UnneededFieldRemover(["gone"])(sample).get_data() == (value,)


@pytest.mark.parametrize("name", ["boxes_2d", "image_hw", "path", "visible", 3])
def test_other_names_are_passed_over(name: Any) -> None:
    sample = {"image": np.uint8(1), "boxes_3d": np.float32(2), "is_visible_in_any": np.bool_(True)}
    step = UnneededFieldRemover([name])
    assert step.check_input_data_format_and_set_output_data_format(blueprint_of(sample)).field_names_flat == tuple(
        sample
    )


def test_names_that_look_misspelt_are_passed_over_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    sample = {"image": np.uint8(1), "boxes_3d": np.float32(2), "group": {"is_visible": np.bool_(True)}}
    step = UnneededFieldRemover(["imgae", "boxes_3d", "is_visble", "boxes_2d"])
    declared = step.check_input_data_format_and_set_output_data_format(blueprint_of(sample))
    assert declared.field_names_flat == ("image", "group.is_visible")
    assert [record.getMessage() for record in caplog.records] == [
        f"UnneededFieldRemover: no field has the name {name!r}, which looks misspelt. Did you mean {meant!r}?"
        for name, meant in [("imgae", "image"), ("is_visble", "is_visible")]
    ]
