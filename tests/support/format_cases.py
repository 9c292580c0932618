"""Steps and the fields that they need; checks of the errors where such a field is missing or another one."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import (
    GroupToApplyToSelectedStepBase,
    PaddingToUniform,
    PipelineStepBase,
    TensorSizeAdder,
)
from support.arrays import DT, ArrayProvider
from support.pipelines import shuffled


@attrs.frozen
class FormatCase:
    """A step, and what it needs.

    Attributes:
        step: The step.
        path: Path of a field that it needs.
        wrong: A type that this field must not have; None if any will do.
        missing: Exceptions that catch the error where the field is missing.
        wrong_type: Exceptions that catch the error where it has the wrong type.
    """

    step: PipelineStepBase
    path: tuple[str, ...]
    wrong: DT | None
    missing: type[Exception] = KeyError
    wrong_type: type[Exception] = ValueError


def case(step: PipelineStepBase, path: str, wrong: DT | None, *errors: type[Exception]) -> FormatCase:
    return FormatCase(step, tuple(path.split(".")), wrong, *errors)


def case_name(of: FormatCase) -> str:
    return f"{type(of.step).__name__}-{'.'.join(of.path)}"


class NeverRead(ArrayProvider):
    """Fields of types, without values."""

    def __init__(self, types: dict[str, Any]) -> None:
        def without_values(types: dict[str, Any]) -> dict[str | int, Any]:
            return {
                name: without_values(dtype) if isinstance(dtype, dict) else (dtype, [None])
                for name, dtype in types.items()
            }

        super().__init__(without_values(types))

    def get_data(self, sample_index: int) -> Any:
        raise AssertionError("read before the format was checked")


def assert_what_is_missing_is_named(of: FormatCase, good: dict[str, Any]) -> None:
    assert PipelineDefinition(shuffled(NeverRead(good), 1), [of.step]).check_and_get_output_data_structure()
    text = _problem_of(of.step, _changed(good, of.path, None), of.missing)
    named = (repr(of.path[-1]), f"`{of.path[-1]}`", f"- {'.'.join(of.path)}: ")
    assert any(name in text for name in named)


def assert_a_group_is_no_field(of: FormatCase, good: dict[str, Any]) -> None:
    if isinstance(of.step, PaddingToUniform) or _is_of_groups(of.step):  # which find groups by the same name
        return
    text = _problem_of(of.step, _changed(good, of.path, {"x": DT.FLOAT}), ValueError)
    assert f"- {'.'.join(of.path)}: " in text
    assert any(rule in text for rule in ("is a group", "is not a data field", "no such data field"))


def assert_wrong_types_are_named(of: FormatCase, good: dict[str, Any]) -> None:
    if of.wrong is None:
        return
    text = _problem_of(of.step, _changed(good, of.path, of.wrong), of.wrong_type)
    assert f"- {'.'.join(of.path)}: must be" in text
    assert _is_of_groups(of.step) or f"got {of.wrong.name}" in text


def _changed(types: dict[str, Any], path: tuple[str, ...], to: Any) -> dict[str, Any]:
    """The types with another one at a path; without it for None."""
    if len(path) > 1:
        return {**types, path[0]: _changed(types[path[0]], path[1:], to)}
    others = {name: dtype for name, dtype in types.items() if name != path[0]}
    return others if to is None else {**others, path[0]: to}


def _problem_of(step: PipelineStepBase, types: dict[str, Any], error: type[Exception]) -> str:
    """The text of the error when a pipeline is made, which reads nothing."""
    definition = PipelineDefinition(shuffled(NeverRead(types), 1), [step])
    with pytest.raises(error) as caught:
        definition.get_dali_pipeline(num_threads=1, py_num_workers=0)
    text = str(caught.value)
    with pytest.raises(error) as caught:
        definition.check_and_get_output_data_structure()
    assert str(caught.value) == text
    applied = f" of {TensorSizeAdder.__name__}" if isinstance(step, GroupToApplyToSelectedStepBase) else ""
    assert f"step 0 ({type(step).__name__}{applied})" in text
    return text


def _is_of_groups(step: PipelineStepBase) -> bool:
    return isinstance(step, GroupToApplyToSelectedStepBase)
