# SPDX-License-Identifier: Apache-2.0
"""Which steps of a chain run in the workers, on arrays, and which in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nvidia.dali import types

from ...errors import SettingError
from ...operators.array_packages import is_installed, require_installed
from ...processing_steps.image_use import no_images
from ...processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ...sample_data import FieldPath, GroupFormat, SampleDataGroup
from .chain_format import chain_format, step_name

_BEHIND = "; what stands behind it runs in the graph, too"


class Placement(NamedTuple):
    """Where the steps of a chain run. The first ones run in the workers, the others in the graph.

    Attributes:
        num_in_workers: How many run in the workers.
        reason: Why, for people.
    """

    num_in_workers: int
    reason: str


def place_steps(
    steps: Sequence[PipelineStepBase],
    run: RunWhere,
    blueprint: Callable[[], SampleDataGroup],
    *,
    has_gpu: bool = False,
    refusal: str = "",
) -> Placement:
    """Decide where steps run.

    Args:
        steps: The chain.
        run: What was asked for: ``"workers"``, as many steps as can; ``"graph"``, as few as must; ``"auto"``: with
            a GPU like ``"graph"``; without one, the steps before the first that cannot run in the workers or
            converts images to floating point, if one of these does more to images than decode them.
        blueprint: Gives the format of the input; called for ``"auto"`` without a GPU only.
        has_gpu: Whether the graph has a GPU.
        refusal: Why no step can run in the workers; empty where they can.

    Raises:
        SettingError: A step must run in the workers, and cannot, or one before it can run in the graph only.
        FormatError: The format was needed, and the steps do not fit the data.
    """
    at_least, asker = _least(steps)
    most, obstacle = _most(steps)
    if at_least > most or (refusal and at_least):
        raise SettingError(f"{asker}, but {refusal or obstacle}.")
    if refusal or most == 0:
        return Placement(0, refusal or obstacle)
    _require_packages(steps[: most if run == "workers" else at_least])
    if run == "graph":
        return Placement(at_least, asker if at_least else "run='graph'")
    if run == "workers":
        return Placement(most, "run='workers'" + (f"; {obstacle}" if most < len(steps) else ""))
    if has_gpu:
        return Placement(at_least, asker if at_least else "the graph has a GPU")
    return _without_gpu(steps, at_least, asker, most, obstacle, blueprint())


def _require_packages(steps: Sequence[PipelineStepBase]) -> None:
    for number, step in enumerate(steps):
        for name in step.array_form_needs:
            require_installed(name, f"{_named(number, step)} runs in the workers, on arrays, and")


def _least(steps: Sequence[PipelineStepBase]) -> tuple[int, str]:
    """How many of the first steps must run in the workers, and why."""
    for number in reversed(range(len(steps))):
        step = steps[number]
        if wish_of(step) == "workers":
            return number + 1, f"{_named(number, step)} is to run in the workers (run='workers')"
        if not step.has_graph_form:
            return number + 1, f"{_named(number, step)} works on arrays only, so it must run in the workers"
    return 0, ""


def _most(steps: Sequence[PipelineStepBase]) -> tuple[int, str]:
    """How many of the first steps can run in the workers, and why not the next one."""
    for number, step in enumerate(steps):
        if wish_of(step) == "graph":
            return number, f"{_named(number, step)} is to run in the graph (run='graph'){_BEHIND}"
        if not step.has_array_form:
            return number, f"{_named(number, step)} has a form for the graph only{_BEHIND}"
    return len(steps), "there are no steps"


def _named(number: int, step: PipelineStepBase) -> str:
    return f"step {number} ({step_name(step)})"


def wish_of(step: PipelineStepBase) -> RunWhere:
    """Where a step, or the one that it applies, asks to be run."""
    applied = getattr(step, "_processing_step_to_apply", None)
    return step.run if step.run != "auto" or applied is None else wish_of(applied)


def _without_gpu(
    steps: Sequence[PipelineStepBase],
    at_least: int,
    asker: str,
    most: int,
    obstacle: str,
    blueprint: SampleDataGroup,
) -> Placement:
    num_on_bytes = max(at_least, _num_before_floats(steps[:most], blueprint))
    if num_on_bytes < most:  # the way of an image of float32 to the graph is four times as long
        most, obstacle = (
            num_on_bytes,
            f"{_named(num_on_bytes, steps[num_on_bytes])} converts images to floating point",
        )
    for number in range(at_least, most):
        missing = [name for name in steps[number].array_form_needs if not is_installed(name)]
        if missing:
            needed_by = _named(number, steps[number])
            most, obstacle = number, f"{missing[0]} is not installed, which {needed_by} needs on arrays"
            break
    if any(map(_changes_images, steps[at_least:most])):
        return Placement(most, "there is no GPU" + (f"; {obstacle}" if most < len(steps) else ""))
    if at_least or most == 0:
        return Placement(at_least, asker or obstacle)
    return Placement(0, "in the workers, steps would at most decode images")


def _num_before_floats(steps: Sequence[PipelineStepBase], blueprint: SampleDataGroup) -> int:
    """How many of the first steps come before one that makes floating-point numbers of bytes."""
    formats: list[GroupFormat] = []
    chain_format(blueprint, steps, lambda _, group: formats.append(group.format))
    were_bytes: set[FieldPath] = set()
    for number, group in enumerate(formats):
        leaves = [*zip(group.flat_paths, group.flat_leaves, strict=True)]
        if any(path in were_bytes and leaf.numpy_dtype.kind == "f" for path, leaf in leaves):
            return number - 1
        were_bytes.update(path for path, leaf in leaves if leaf.dtype == types.DALIDataType.UINT8)
    return len(steps)


def _changes_images(step: PipelineStepBase) -> bool:
    """Whether a step, or the one that it applies, declares to do something to images, but to decode them."""
    applied = getattr(step, "_processing_step_to_apply", None)
    if applied is not None:
        return _changes_images(applied)
    is_of_images = type(step).declare_images not in (PipelineStepBase.declare_images, no_images)
    from ...processing_steps.image.image_decoder import ImageDecoder  # not every pipeline has images

    return is_of_images and not isinstance(step, ImageDecoder)
