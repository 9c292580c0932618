# SPDX-License-Identifier: Apache-2.0
"""Which fields steps read and write in a graph; and which steps can come before others because of that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import nvidia.dali.fn as fn
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..sample_data import FieldPath, SampleDataGroup
from .folding import inputs_of


@attrs.frozen
class FieldFlow:
    """What a step, or several of them, does to fields.

    Attributes:
        reads: Paths of the fields that its results depend on.
        writes: Paths of the fields that it changes, adds or removes.
        names: What its random numbers depend on: the names of its class and of the step that it applies.
    """

    reads: frozenset[FieldPath] = frozenset()
    writes: frozenset[FieldPath] = frozenset()
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, step: PipelineStepBase, blueprint: SampleDataGroup, has_gpu: bool) -> FieldFlow | None:
        """Define the operators of a step in a pipeline of its own, to see what they connect.

        Returns:
            None where the step does not let itself be defined like that, e.g. where it has conditionals.
        """
        data = blueprint.get_empty_like_self()
        data.set_apply_mapping(False)
        try:
            with Pipeline(batch_size=1, num_threads=1, device_id=0 if has_gpu else None):
                sources = {
                    path: fn.external_source(name=f"field {i}") for i, path in enumerate(data.format.flat_paths)
                }
                data.set_data([*sources.values()])
                result = copy.copy(step)(data)  # it may count its calls
        except Exception:  # it may be anything, and is reported where the step is defined for good
            return None
        after: dict[FieldPath, Any] = dict(zip(result.format.flat_paths, result.get_data(), strict=True))
        written = {path for path in {*sources, *after} if after.get(path) is not sources.get(path)}
        names = {source.name: path for path, source in sources.items()}
        made = [after[path] for path in written if isinstance(after.get(path), DataNode)]
        reads = {names[node.name] for node in _reached(made) if node.name in names}
        return cls(frozenset(reads), frozenset(written), frozenset(_names_of(step)))

    def __or__(self, other: FieldFlow) -> FieldFlow:
        """Return what both do."""
        return FieldFlow(self.reads | other.reads, self.writes | other.writes, self.names | other.names)

    def commutes_with(self, other: FieldFlow) -> bool:
        """Whether their order does not matter: neither for fields, nor for random numbers."""
        return not (
            self.writes & (other.reads | other.writes) or other.writes & self.reads or self.names & other.names
        )


def _names_of(step: PipelineStepBase | None) -> Iterator[str]:
    while step is not None:
        yield step.random_name or type(step).__name__
        step = step.applied_step


def _reached(nodes: Sequence[DataNode]) -> Iterator[DataNode]:
    """Nodes that some are computed from, and they themselves."""
    seen: set[str] = set()
    pending = [*nodes]
    while pending:
        node = pending.pop()
        if node.name not in seen:
            seen.add(node.name)
            yield node
            pending += inputs_of(node)


def order_with_graph_steps_last(
    steps: Sequence[PipelineStepBase],
    blueprints: Sequence[SampleDataGroup],
    is_of_graph: Callable[[PipelineStepBase], bool],
    has_gpu: bool,
) -> list[int]:
    """Order a chain so that steps for the graph only come after those that do not depend on them.

    Args:
        steps: The chain.
        blueprints: Format before each step.
        is_of_graph: Whether a step can run in the graph only.
        has_gpu: Whether the graph has a GPU.

    Returns:
        Numbers of the steps.
    """
    first = next((number for number, step in enumerate(steps) if is_of_graph(step)), len(steps))
    before, after = [*range(first)], list[int]()
    if not all(map(is_of_graph, steps[first:])):
        kept = FieldFlow()
        for number in range(first, len(steps)):
            flow = FieldFlow.of(steps[number], blueprints[number], has_gpu)
            if flow is None:
                break
            if not is_of_graph(steps[number]) and flow.commutes_with(kept):
                before.append(number)
            else:
                after.append(number)
                kept |= flow
    return [*before, *after, *(number for number in range(first, len(steps)) if number not in {*before, *after})]
