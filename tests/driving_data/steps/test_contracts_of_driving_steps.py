"""What the tests of the core check of each step, for the steps of driving data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from driving_support.driving_steps import DRIVING_FORMAT, DRIVING_FORMAT_CASES, DRIVING_SETTINGS, DRIVING_STEPS
from support.format_cases import (
    FormatCase,
    assert_a_group_is_no_field,
    assert_what_is_missing_is_named,
    assert_wrong_types_are_named,
    case_name,
)
from support.graphs import untraced
from support.public_steps import untried_steps
from support.step_settings import of_each_step

from accvlab.dali_pipeline_framework.testing import check_step
from accvlab.driving_data import steps


def test_no_step_is_left_out() -> None:
    assert untried_steps(steps, DRIVING_STEPS.keys()) == set()
    # It needs no field; `test_steps_without_names` has the types that it refuses.
    assert {type(of.step).__name__ for of in DRIVING_FORMAT_CASES} == {*steps.__all__} - {"SceneTransformer"}
    DRIVING_SETTINGS.assert_all_are_known()


@pytest.mark.parametrize("name", DRIVING_STEPS)
def test_steps_keep_the_contract(name: str) -> None:
    case = DRIVING_STEPS[name]
    with untraced():
        check_step(case.step, case.samples, **case.options)


@pytest.mark.parametrize("of", DRIVING_FORMAT_CASES, ids=case_name)
def test_formats_that_a_step_cannot_work_on(of: FormatCase) -> None:
    assert_what_is_missing_is_named(of, DRIVING_FORMAT)
    assert_a_group_is_no_field(of, DRIVING_FORMAT)
    assert_wrong_types_are_named(of, DRIVING_FORMAT)


@of_each_step(DRIVING_SETTINGS)
def test_values_of_settings(check: Callable[[str], None], step: str) -> None:
    check(step)
