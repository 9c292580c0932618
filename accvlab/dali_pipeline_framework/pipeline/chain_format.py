# SPDX-License-Identifier: Apache-2.0
"""Compute the output format of a chain of steps from the format of its input, without building anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ..draws.draw_scope import DrawPlan
from ..errors import FormatError
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..sample_data import FormatProblem, SampleDataGroup, format_error


def chain_format(
    blueprint: SampleDataGroup,
    steps: Sequence[PipelineStepBase],
    on_step: Callable[[int, SampleDataGroup], None] | None = None,
    draws: DrawPlan | None = None,
) -> SampleDataGroup:
    """Ask each step in turn which format comes out for the format that goes in.

    A step that refuses its format does not hide the problems of the steps after it: they are asked with the
    format that the refusing step was given.

    Args:
        blueprint: Format of the input.
        steps: The chain.
        on_step: Called with the number of steps done (0: the input) and the format at that place.
        draws: Collects the random draws that the steps declare.

    Returns:
        Format of the output.

    Raises:
        FormatError: One or more steps refuse; lists all problems. ``except`` clauses for the exception
            classes that the steps raised catch it.
    """
    if on_step is not None:
        on_step(0, blueprint)
    problems: list[FormatProblem] = []
    first_error: Exception | None = None
    draws = draws or DrawPlan(blueprint.format)
    for index, step in enumerate(steps):
        draws.position = index
        name = f"step {index} ({step_name(step)})"
        try:
            with draws:
                blueprint = step.check_input_data_format_and_set_output_data_format(blueprint)
        except Exception as error:
            if first_error is not None:
                name += ", given the format from before the step that failed"
            problems += _problems_of(error, name)
            first_error = first_error or error
            continue
        if on_step is not None:
            on_step(index + 1, blueprint)
    if first_error is not None:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        raise format_error(problems, f"The processing steps do not fit the data: {count}.") from first_error
    return blueprint


def step_name(step: object) -> str:
    """Class of a step, and of the step that it applies, if it applies one."""
    applied = getattr(step, "_processing_step_to_apply", None)
    return type(step).__name__ + ("" if applied is None else f" of {step_name(applied)}")


def _problems_of(error: Exception, step: str) -> list[FormatProblem]:
    if isinstance(error, FormatError) and error.problems:
        return [attrs.evolve(problem, step=step) for problem in error.problems]
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if not isinstance(error, KeyError | ValueError | AssertionError):
        text = f"{type(error).__name__}: {text}"
    return [FormatProblem(text, step=step, error_type=type(error))]
