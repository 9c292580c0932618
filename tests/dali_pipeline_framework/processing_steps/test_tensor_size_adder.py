"""Sizes of images as fields."""

from __future__ import annotations

import numpy as np
import pytest
from step_runs import assert_same, run_step
from support.arrays import DT

from accvlab.dali_pipeline_framework.processing_steps import TensorSizeAdder

SAMPLES = [
    {"image": np.zeros((n, 2 * n, 3), np.uint8), "cam": {0: {"image": np.zeros((5, n, 7, 1), np.float32)}}}
    for n in (1, 0, 4)
]


@pytest.mark.parametrize(
    ("dtype", "numpy_type"), [(DT.INT32, np.int32), (DT.FLOAT, np.float32), (DT.INT64, np.int64)]
)
def test_height_and_width_follow_in_the_same_group(dtype: DT, numpy_type: type) -> None:
    found = run_step(TensorSizeAdder("image", "_hw", dtype), SAMPLES)
    for one, sample, n in zip(found, SAMPLES, (1, 0, 4), strict=True):
        expected = {
            "image": sample["image"],
            "cam": {0: {**sample["cam"][0], "image_hw": np.array([n, 7], numpy_type)}},
            "image_hw": np.array([n, 2 * n], numpy_type),
        }
        assert_same(one, expected)
