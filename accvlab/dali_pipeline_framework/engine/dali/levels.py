# SPDX-License-Identifier: Apache-2.0
"""Parts of a graph that work on batches of other sizes than the pipeline's.

Operators take their batch size from their inputs; those without inputs have the pipeline's. DALI's conditionals solve
that for the branches of an ``if``, which see a part of the batch only, and `BatchPart` does it in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import attrs
import numpy as np
from nvidia.dali import _conditionals, backend, types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from .conditionals import split


class _Conditions(_conditionals._ConditionStack):  # type: ignore[misc]
    """What DALI keeps about the branches that operators are defined in, in a part of the batch.

    Unlike DALI's, it takes nodes that it has not seen being made: they belong to the part.

    Args:
        part_of: Gets the part of what an operator without inputs makes, None in the whole batch.
        tracker: A node with the batch size of the part.
    """

    def __init__(self, part_of: Callable[[DataNode], DataNode] | None, tracker: DataNode | None) -> None:
        super().__init__()
        self._part_of = part_of
        self._tracker = tracker
        self._parts: dict[str, DataNode] = {}  # by the name and device of what an operator without inputs made
        self._is_splitting = False

    def preprocess_input(self, data_node: DataNode) -> Any:
        if self._is_splitting:
            return data_node
        node = self.part(data_node)
        if self.stack_depth() == 1:
            return node
        with contextlib.suppress(ValueError):
            return super().preprocess_input(node)
        self._stack[0].add_produced(node)
        return super().preprocess_input(node)

    def part(self, node: DataNode) -> DataNode:
        return self._parts.get(repr(node), node)

    def register_data_nodes(self, data_nodes: Any, global_scope: bool = False) -> None:
        if self._is_splitting:
            return
        if global_scope and self._part_of is not None:
            for node in _flat(data_nodes):
                self._is_splitting = True
                try:
                    part = self._part_of(node)
                finally:
                    self._is_splitting = False
                self._parts[repr(node)] = part
                super().register_data_nodes(part, global_scope=True)
        elif self.stack_depth() > 1 or global_scope:
            super().register_data_nodes(data_nodes, global_scope)

    def scope_batch_size_tracker(self) -> Any:
        return self._tracker if self.stack_depth() == 1 else super().scope_batch_size_tracker()


def _flat(nodes: Any) -> Iterator[DataNode]:
    if isinstance(nodes, DataNode):
        yield nodes
        return
    for node in nodes:
        yield from _flat(node)


@attrs.define
class BatchPart:
    """A part of the batch: the samples for which a predicate holds.

    Attributes:
        predicate: A boolean for each sample of the batch of the pipeline; None for all of the batch.
    """

    predicate: DataNode | None

    def of(self, node: DataNode) -> DataNode:
        """Get the part of a node with the batch of the pipeline."""
        return node if self.predicate is None else split(node, self.predicate)[0]

    def _of_made(self, node: DataNode) -> DataNode:
        """Get the part of what an operator without inputs makes; random ones draw the same as for this part alone."""
        if self.predicate is None or not _takes_shape(node):
            return self.of(node)
        # What such an operator draws depends on all of its batch. With an input it draws for that only.
        operator: Any = node.source._op
        arguments = dict(operator._init_args)
        like = types.Constant(np.zeros(arguments.pop("shape", ()), np.int32), device="cpu")
        drawn: DataNode = type(operator)(**arguments)(self.of(like))
        return drawn

    @contextlib.contextmanager
    def defining(
        self, with_conditionals: bool, on_part: Callable[[DataNode, DataNode], None]
    ) -> Iterator[Callable[[DataNode], DataNode]]:
        """Let operators be defined, within a ``with`` statement, that work on nodes of this part only.

        Args:
            with_conditionals: Whether there may be ``if`` on data.
            on_part: Called for each operator without inputs, with what it makes, and its part.

        Yields:
            A function that takes what an operator without inputs has made there, with the batch of the pipeline,
            to this part; it leaves other nodes as they are.
        """
        if self.predicate is None and not with_conditionals:
            yield _same
            return
        pipeline: Any = Pipeline.current()
        before = pipeline._conditionals_enabled, pipeline._condition_stack
        if self.predicate is None:
            conditions = _Conditions(None, None)
        else:

            def part_of(node: DataNode) -> DataNode:
                part = self._of_made(node)
                on_part(node, part)
                return part

            conditions = _Conditions(part_of, self.of(self.predicate))
        try:
            pipeline._conditionals_enabled, pipeline._condition_stack = True, conditions
            yield conditions.part
        finally:
            pipeline._conditionals_enabled, pipeline._condition_stack = before


@contextlib.contextmanager
def without_conditionals() -> Iterator[bool]:
    """Define operators, within a ``with`` statement, of which DALI's conditionals do not know.

    Yields:
        Whether conditionals are enabled otherwise.
    """
    pipeline: Any = Pipeline.current()
    before = pipeline._conditionals_enabled
    pipeline._conditionals_enabled = False
    try:
        yield before
    finally:
        pipeline._conditionals_enabled = before


def _takes_shape(node: DataNode) -> bool:
    """Whether a random operator made a node that takes the shape, and so the batch size, from an optional input."""
    schema = cast(Any, backend).TryGetSchema(getattr(node.source._op, "schema_name", ""))
    return schema is not None and schema.HasRandomSeedArg() and schema.MaxNumInput() > len(node.source.inputs)


def _same(node: DataNode) -> DataNode:
    return node
