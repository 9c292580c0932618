"""Users' own operators as a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn
from step_runs import assert_same, run_step
from support.arrays import DT

from accvlab.dali_pipeline_framework.errors import StepOutputError
from accvlab.dali_pipeline_framework.processing_steps import LambdaStep

SAMPLES = [{"a": np.full(n, 2.0, np.float32), "b": np.arange(n), "c": {"a": np.int8(n)}} for n in (2, 0, 3)]


def halved_and_sum(a: Any, b: Any) -> Any:
    return fn.cast(a * 0.5, dtype=DT.FLOAT64), a + fn.cast(b, dtype=DT.FLOAT)


def test_results_replace_fields_in_place_or_are_added() -> None:
    step = LambdaStep(halved_and_sum, input_names=["a", "b"], output_types={"a": DT.FLOAT64, "sum": DT.FLOAT})
    for one, sample in zip(run_step(step, SAMPLES), SAMPLES, strict=True):
        n = len(sample["a"])
        total = (2 + np.arange(n)).astype(np.float32)
        assert_same(one, {**sample, "a": np.ones(n), "sum": total})


def test_fields_are_named_by_path() -> None:
    def shifted_and_half(image: Any, offset: Any, gain: Any) -> Any:
        return fn.cast(image + offset, dtype=DT.INT32), gain * 0.5

    image, gain, half = ("cameras", 0, "image"), ("cameras", 1, "gain"), ("cameras", 1, "half")
    sample = {
        "cameras": {0: {"image": np.full((2, 3), 5, np.uint8)}, 1: {"gain": np.float32(5)}},
        "offset": np.int32(4),
    }
    step = LambdaStep(
        shifted_and_half, input_names=[image, "offset", gain], output_types={image: DT.INT32, half: DT.FLOAT}
    )
    [found] = run_step(step, [sample])
    cameras = {0: {"image": np.full((2, 3), 9, np.int32)}, 1: {"gain": np.float32(5), "half": np.float32(2.5)}}
    assert_same(found, {**sample, "cameras": cameras})


@pytest.mark.parametrize("function", [lambda a: (a, a), lambda a: None, lambda a: [], lambda a: 1])
def test_another_number_of_results_is_refused(function: Any) -> None:
    with pytest.raises(StepOutputError, match="the function must return one node for each of 'x'"):
        run_step(LambdaStep(function, input_names=["a"], output_types={"x": DT.FLOAT}), SAMPLES)
