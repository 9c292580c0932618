"""Sizes of images as fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from step_runs import assert_laws, assert_same, output_format, run_step
from support.arrays import DT

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.processing_steps import TensorSizeAdder

SAMPLES = [
    {"image": np.zeros((n, 2 * n, 3), np.uint8), "cam": {0: {"image": np.zeros((5, n, 7, 1), np.float32)}}}
    for n in (1, 0, 4)
]


@pytest.mark.parametrize(
    ("dtype", "numpy_type"), [(DT.INT32, np.int32), (DT.FLOAT, np.float32), (DT.INT64, np.int64)]
)
def test_height_and_width_follow_in_the_same_group(dtype: DT, numpy_type: type) -> None:
    found = assert_laws(TensorSizeAdder("image", "_hw", dtype), SAMPLES)
    for one, sample, n in zip(found, SAMPLES, (1, 0, 4), strict=True):
        expected = {
            "image": sample["image"],
            "cam": {0: {**sample["cam"][0], "image_hw": np.array([n, 7], numpy_type)}},
            "image_hw": np.array([n, 2 * n], numpy_type),
        }
        assert_same(one, expected)


def test_the_type_is_int32_unless_told_otherwise() -> None:
    declared = output_format(TensorSizeAdder("image", "_size"), SAMPLES[0])
    assert declared.get_type_of_field("image_size") == DT.INT32


def test_two_axes_fail() -> None:
    with pytest.raises(RuntimeError):
        run_step(TensorSizeAdder("x", "_hw"), [{"x": np.zeros((2, 2))}])


def test_refusals() -> None:
    with pytest.raises(KeyError, match="No occurrences of tensors found: no field has the name 'img'"):
        output_format(TensorSizeAdder("img", "_hw"), SAMPLES[0])
    taken = {"image": np.zeros(1), "image_hw": np.zeros(1), "a": {"image": np.zeros(1), "image_hw": {}}}
    with pytest.raises(KeyError, match=r"image_hw: exists already.*\n.*a\.image_hw: exists already"):
        output_format(TensorSizeAdder("image", "_hw"), taken)
    with pytest.raises(ValueError, match="cam: must be a data field with a tensor, is a group"):
        output_format(TensorSizeAdder("cam", "_hw"), SAMPLES[0])


@pytest.mark.parametrize("arguments", [(1, "_hw"), ("a", ""), ("a", None)])
def test_names_that_cannot_be_formed(arguments: Any) -> None:
    with pytest.raises(SettingError, match="must be texts"):
        TensorSizeAdder(*arguments)


@pytest.mark.parametrize("dtype", [DT.BOOL, DT.STRING, np.int32, None])
def test_types_that_are_no_number_types(dtype: Any) -> None:
    with pytest.raises(SettingError, match=r"`store_size_as_type` must be one of DALIDataType.INT8, "):
        TensorSizeAdder("a", "_hw", dtype)
