"""Setting layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.array_samples import sample_of

from accvlab.dali_pipeline_framework.processing_steps import AxesLayoutSetter
from accvlab.dali_pipeline_framework.testing import run_step, sample_differences


@pytest.mark.parametrize("names", ["image", ("image", "image")])
def test_the_layout_is_set_and_the_data_stay(names: Any) -> None:
    for n in (0, 1, 4):
        sample = sample_of(
            {"image": np.full((2, n, 3), n), "cam": [{"image": np.zeros((n, 1, 2))}], "x": np.eye(2)}
        )
        run = run_step(AxesLayoutSetter(names, "HWC"), sample)
        assert run.layouts == {"image": "HWC", "cam[0].image": "HWC", "x": ""}
        assert sample_differences(run.output, sample) == []


def test_the_empty_layout_removes_one() -> None:
    assert run_step(AxesLayoutSetter("x", ""), sample_of({"x": np.eye(2)}), layouts={"x": "AB"}).layouts == {
        "x": ""
    }
