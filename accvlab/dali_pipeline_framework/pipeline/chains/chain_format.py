# SPDX-License-Identifier: Apache-2.0
"""Compute, and describe, the formats along a chain of steps from that of its input, without building anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from ...draws.draw_scope import DrawPlan
from ...errors import FormatError
from ...processing_steps.image_use import declared_images
from ...processing_steps.pipeline_step_base import PipelineStepBase
from ...sample_data import FieldPath, FormatProblem, GroupFormat, SampleDataGroup, format_error
from ...sample_data.formats import ENCODED_IMAGE, ImageContent, LeafFormat
from ...sample_data.names import alike_paths, format_paths


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
        # What a step of one's own raised shows where; a FormatError would only say the same twice.
        cause = None if isinstance(first_error, FormatError) else first_error
        raise format_error(problems, f"The processing steps do not fit the data: {count}.") from cause
    return blueprint


def chain_description(blueprint: SampleDataGroup, steps: Sequence[PipelineStepBase]) -> str:
    """Describe the formats of the input and the output, and what each step changes, a line for each field.

    ``+`` is before a field that a step adds, ``-`` before one that it removes, ``~`` before one whose format it
    changes; a step that changes values only has no such line. Fields of the elements of an array that are alike
    have one line. The arguments and errors are those of `chain_format`.
    """
    formats: list[dict[FieldPath, str]] = []
    chain_format(blueprint.get_empty_like_self(), steps, lambda _, format: formats.append(_leaves(format)))
    lines = ["input", *(f"    {path}: {leaf}" for path, leaf in _joined_leaves(formats[0]))]
    for number, (step, before, after) in enumerate(zip(steps, formats[:-1], formats[1:], strict=True)):
        lines.append(f"step {number}: {step_name(step)}")
        removed = {path: leaf for path, leaf in before.items() if path not in after}
        added = {path: leaf for path, leaf in after.items() if path not in before}
        changed = {
            path: f"{before[path]} -> {leaf}"
            for path, leaf in after.items()
            if path in before and leaf != before[path]
        }
        for mark, fields in (("-", removed), ("~", changed), ("+", added)):
            lines += [f"  {mark} {path}: {leaf}" for path, leaf in _joined_leaves(fields)]
    lines += ["output", *(f"    {path}: {leaf}" for path, leaf in _joined_leaves(formats[-1]))]
    return "\n".join(lines)


def _leaves(blueprint: SampleDataGroup) -> dict[FieldPath, str]:
    return dict(zip(blueprint.format.flat_paths, map(_described, blueprint.format.flat_leaves), strict=True))


def _described(leaf: LeafFormat) -> str:
    parts = [leaf.dtype.name]
    if leaf.ndim is not None:
        parts.append("scalar" if leaf.ndim == 0 else f"{leaf.ndim}D")
    if leaf.content.is_known:
        parts.append(f"image: {leaf.content.describe()}")
    if leaf.mapping is not None:
        parts.append("of labels")
    return ", ".join(parts)


def _joined_leaves(leaves: Mapping[FieldPath, str]) -> Iterator[tuple[str, str]]:
    """Paths, and what is said of them; those that differ only in indices and are alike are written as one."""
    for group in alike_paths(leaves):
        by_leaf: dict[str, list[FieldPath]] = {}
        for path in group:
            by_leaf.setdefault(leaves[path], []).append(path)
        for leaf, paths in by_leaf.items():
            yield format_paths(paths), leaf


def with_image_files(format: GroupFormat, steps: Sequence[PipelineStepBase]) -> GroupFormat:
    """Get the format of the input, with fields known to hold image files that steps decode.

    Found by their names: a field that a step renames before it is decoded is known only where the input says so.
    """
    blueprint = SampleDataGroup.from_format(format)
    contents = {}
    for step in steps:
        while getattr(step, "_processing_step_to_apply", None) is not None:
            step = step._processing_step_to_apply  # type: ignore[attr-defined]
        try:
            uses = declared_images(step, blueprint.get_empty_like_self()) or ()
        except Exception:  # it is asked again where it stands in the chain, and then it counts
            continue
        for use in uses:
            if isinstance(use.needs, ImageContent) and use.needs.is_encoded:
                contents.update(dict.fromkeys(use.paths(format), ENCODED_IMAGE))
    leaves = zip(format.flat_paths, format.flat_leaves, strict=True)
    unknown = {path for path, leaf in leaves if leaf.content.is_encoded is None and leaf.numpy_dtype == np.uint8}
    return format.with_contents({path: content for path, content in contents.items() if path in unknown})


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
