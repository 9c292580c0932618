"""Setting layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.array_samples import sample_of
from support.arrays import DT, ArrayProvider
from support.pipelines import make_iterator, shuffled

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


def test_another_number_of_axes_fails_and_names_the_sample() -> None:
    provider = ArrayProvider({"image": (DT.UINT8, [np.zeros((2, 3))] * 2)})
    steps = [AxesLayoutSetter("image", "HWC")]
    with (
        make_iterator(shuffled(provider, 2), steps, py_num_workers=0, in_graph=True) as iterator,
        pytest.raises(RuntimeError, match=r"sample 0.*field image"),
    ):
        next(iter(iterator))
