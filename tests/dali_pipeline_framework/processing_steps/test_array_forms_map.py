"""Small steps between image steps on arrays: what they refuse, and boxes of equal depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.random_steps import filled

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    ConditionalElementRemover,
    PipelineStepBase,
    PointsInRangeCheck,
    PointsPadder,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType


def sample_of(tree: Mapping[str, Any]) -> SampleDataGroup:
    sample = SampleDataGroup()
    for name, value in tree.items():
        if isinstance(value, dict):
            sample.add_data_group_field(name, sample_of(value))
            sample[name] = sample_of(value)
        else:
            sample.add_data_field(name, value[0])
            sample[name] = np.asarray(value[1]).astype(NUMPY_TYPES[value[0]])
    return sample


def test_of_boxes_of_equal_depth_the_last_is_the_nearest() -> None:
    boxes = [[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 3, 3], [0, 0, 9, 9], [5, 5, 9, 9]]
    step = VisibleBboxSelector(
        "boxes", "mask", image_hw=[8, 8], depths_field_name="depths", check_for_minimum_size=False
    )
    samples = [
        filled({"boxes": (DT.FLOAT, boxes), "depths": (DT.FLOAT, depths)})
        for depths in ([1, 1, 1, 2, 2], [1, 2, 1, 1, np.nan], [np.nan] * 5, [3, 2, 1, 1, 1])
    ]
    masks = [run.output["mask"].tolist() for run in run_step(step, samples, run="workers")]
    assert masks == [
        [False, True, True, True, True],
        [False, False, False, True, False],
        [False, False, False, True, True],
        [False, False, False, True, True],
    ]


@pytest.mark.parametrize(
    ("dtype", "fill", "expected"),
    [
        (DT.INT8, 2.7, 3),
        (DT.INT8, -300, -128),
        (DT.UINT8, -2.7, 0),
        (DT.UINT64, 1e30, 2**64 - 1),
        (DT.INT32, np.nan, 0),
    ],
)
def test_fill_values_are_rounded_and_limited(dtype: Any, fill: float, expected: int) -> None:
    step = PointsPadder("points", num_points=2, fill_value=fill)
    [found] = run_step(step, [filled({"points": (dtype, [1])})], run="workers")
    assert found.output["points"].tolist() == [1, expected]


FAILING = [
    (PointsInRangeCheck("a", "is_in", [0], [1]), (DT.FLOAT, np.zeros((2, 3))), "one number for each limit"),
]


@pytest.mark.parametrize(("step", "value", "rule"), FAILING, ids=lambda each: type(each).__name__)
def test_rows_of_other_numbers_are_refused(step: PipelineStepBase, value: Any, rule: str) -> None:
    with pytest.raises(FieldValueError, match=f"(?i){rule}"):
        run_step(step, filled({"a": value}), run="workers")


def test_masks_and_variables_of_other_lengths_are_refused() -> None:
    mask = (DT.BOOL, [True, False])
    removal_ = ConditionalElementRemover("group", "mask", ["a"], [0], [1], False)
    sample = sample_of({"group": {"a": (DT.INT32, [1, 2, 3]), "mask": mask}})
    with pytest.raises(FieldValueError, match="A mask must have one value for each element"):
        run_step(removal_, sample, run="workers")
    eval_ = AnnotationElementConditionEval("group", "b = a < 2 and mask", False)
    with pytest.raises(FieldValueError, match="Each variable has one value for each element"):
        run_step(eval_, sample, run="workers")
