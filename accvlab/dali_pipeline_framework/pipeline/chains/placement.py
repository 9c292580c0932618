# SPDX-License-Identifier: Apache-2.0
"""Which steps of a chain run in the workers, on arrays, and which in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...errors import SettingError
from ...operators.array_packages import is_installed, require_installed
from ...processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from .chain_format import step_name

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
    steps: Sequence[PipelineStepBase], run: RunWhere, *, has_gpu: bool = False, refusal: str = ""
) -> Placement:
    """Decide where steps run.

    Args:
        steps: The chain.
        run: What was asked for: ``"workers"``, as many steps as can; ``"graph"``, as few as must; ``"auto"``,
            where it costs less processor time, and in the graph if that has a GPU.
        has_gpu: Whether the graph has a GPU.
        refusal: Why no step can run in the workers; empty where they can.

    Raises:
        SettingError: A step must run in the workers, and cannot, or one before it can run in the graph only.
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
    return _cheapest(steps, at_least, most, asker)


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


def _cheapest(steps: Sequence[PipelineStepBase], at_least: int, most: int, asker: str) -> Placement:
    missing = [
        (number, name)
        for number in range(at_least, most)
        for name in steps[number].array_form_needs
        if not is_installed(name)
    ]
    if missing:
        most = missing[0][0]
    costs = {number: cost for number, cost in enumerate(_costs(steps)) if at_least <= number <= most}
    best = min(reversed(costs), key=costs.__getitem__)  # the longest of those that cost the same
    if costs[best] >= costs[at_least]:
        best = at_least
    if missing and best == most:
        number, name = missing[0]
        return Placement(best, f"{name} is not installed, which {_named(number, steps[number])} needs on arrays")
    if best == at_least:
        return Placement(best, asker if best else "that costs no more there than in the workers")
    there, here = costs[best] / 1000, costs[at_least] / 1000
    return Placement(
        best, f"about {there:.1f} ms of processor time per image of 1600 x 900, otherwise {here:.1f} ms"
    )


def _costs(steps: Sequence[PipelineStepBase]) -> Iterator[float]:
    """Microseconds per image where none of the steps runs in the workers, the first one, the first two, ..."""
    from .step_prices import BYTES_OF_FILE, PIXELS_OF_IMAGE, US_PER_MEGABYTE, price_of  # not needed for "graph"

    prices: list[tuple[float, float]] = []
    shares, sizes = [1.0], [BYTES_OF_FILE]
    for step in steps:
        price: Any = price_of(step)
        prices.append((price.graph_us * shares[-1], price.workers_us * shares[-1]))
        shares.append(shares[-1] if price.output_pixels is None else price.output_pixels / PIXELS_OF_IMAGE)
        size = sizes[-1] if price.bytes_per_pixel is None else price.bytes_per_pixel
        sizes.append(size)
    for count in range(len(steps) + 1):
        in_workers = sum(workers for _, workers in prices[:count])
        in_graph = sum(graph for graph, _ in prices[count:])
        travels = sizes[count] * PIXELS_OF_IMAGE * shares[count] / 1e6
        yield in_workers + in_graph + US_PER_MEGABYTE * travels
