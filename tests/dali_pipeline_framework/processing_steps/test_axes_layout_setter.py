"""Setting layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from step_runs import assert_same, run_steps
from support.arrays import DT, ArrayProvider
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework.processing_steps import AxesLayoutSetter


@pytest.mark.parametrize("names", ["image", ("image", "image")])
def test_the_layout_is_set_and_the_data_stay(names: Any) -> None:
    fields: dict[str | int, Any] = {
        "image": (DT.UINT8, [np.full((2, n, 3), n, np.uint8) for n in (0, 1, 4)]),
        "cam": {0: {"image": (DT.FLOAT64, [np.zeros((n, 1, 2)) for n in (0, 1, 4)])}},
        "x": (DT.FLOAT64, [np.zeros((n, 2)) for n in (0, 1, 4)]),
    }
    run = run_steps(AxesLayoutSetter(names, "HWC"), fields)
    assert run.layouts == {"image": "HWC", "cam.[0].image": "HWC", "x": ""}
    for found, value in zip(run["image"], fields["image"][1], strict=True):
        assert_same(found, value)


def test_the_empty_layout_removes_one() -> None:
    steps = [AxesLayoutSetter(["x"], "AB"), AxesLayoutSetter("x", "")]
    assert run_steps(steps, {"x": (DT.FLOAT, [np.zeros((2, 2))])}).layouts["x"] == ""


def test_another_number_of_axes_fails_and_names_the_sample() -> None:
    provider = ArrayProvider({"image": (DT.UINT8, [np.zeros((2, 3))] * 2)})
    steps = [AxesLayoutSetter("image", "HWC")]
    with (
        make_iterator(shuffled(provider, 2), steps, py_num_workers=0, in_graph=True) as iterator,
        pytest.raises(RuntimeError, match=r"sample 0.*field image"),
    ):
        next(iter(iterator))
