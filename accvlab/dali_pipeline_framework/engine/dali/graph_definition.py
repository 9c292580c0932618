# SPDX-License-Identifier: Apache-2.0
"""Definition of a DALI graph: parts of the batch, conditionals, seeds and origins of operators.

Operators take their batch size from their inputs; those without inputs have the pipeline's. DALI's conditionals
solve that for the branches of an ``if``, which see a part of the batch only, and `BatchPart` does it in the same
way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import numpy as np
import nvidia.dali.pipeline as dali_pipeline
from nvidia.dali import _conditionals, backend, fn, types
from nvidia.dali._utils import dali_trace
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline, do_not_convert

from ...errors import NotSupportedError, SettingError
from .texts import REPLACED_EXCEPTION

_operators: Any = fn._conditional  # type: ignore[attr-defined]


def split(node: DataNode, predicate: Any) -> tuple[DataNode, DataNode]:
    """Split a batch into the samples where the predicate holds, and the others. Nothing is copied."""
    true, false = _operators.split(node, predicate=predicate)
    return true, false


def merge(true: DataNode, false: DataNode, predicate: Any) -> DataNode:
    """Put the two halves of a batch together, in the order of the predicate. Nothing is copied."""
    merged: DataNode = _operators.merge(true, false, predicate=predicate)
    return merged


_converted: Any = cast(Any, _conditionals)._autograph.convert(recursive=True, user_requested=True)


def define_graph(pipeline: Pipeline, define: Callable[[], tuple[DataNode, ...]], has_conditionals: bool) -> None:
    """Define the graph of a pipeline of any class; DALI's ``pipeline_def`` makes pipelines of DALI's class only.

    Args:
        pipeline: The pipeline.
        define: Defines the operators, and returns the outputs.
        has_conditionals: Whether ``if`` on data is part of the graph.
    """
    if has_conditionals:
        define = _converted(define)
        vars(pipeline).update(_conditionals_enabled=True, _condition_stack=_ConditionStack())
    local = dali_pipeline.pipeline_tls
    outer, depth = Pipeline.current(), len(getattr(local, "pipeline_stack", ()))
    try:
        # DALI finds where the stack of calls of an operator begins by the name of this function.
        dali_pipeline._generate_graph(pipeline, define, (), {})
    finally:
        if Pipeline.current() is pipeline:  # a signal handler has raised as DALI's `with` began or ended
            local.current_pipeline = outer
            del getattr(local, "pipeline_stack", [])[depth:]


def with_conditionals(function: Callable[..., Any]) -> Callable[..., Any]:
    """Get a function, or a callable object, in which ``if`` on data is part of the graph."""

    def apply(*args: Any) -> Any:
        return function(*args)

    converted: Callable[..., Any] = _converted(apply)

    def call(*args: Any) -> Any:
        try:
            return converted(*args)
        except Exception as error:
            original = original_of(error)
            if original is error:
                raise
            raise original from None

    return call


def original_of(error: Exception) -> Exception:
    """Get the exception that DALI's conditionals have replaced, since they do not know its constructor."""
    original = error.__context__
    if type(error).__name__ == REPLACED_EXCEPTION and isinstance(original, Exception):
        return original.with_traceback(error.__traceback__)
    return error


_ConditionStack: Any = cast(Any, _conditionals)._ConditionStack


class _Conditions(_ConditionStack):  # type: ignore[misc]
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
        """Get the part of what an operator without inputs makes; random ones draw as if there was no more."""
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
            yield lambda node: node
            return
        if self.predicate is None:
            conditions = _Conditions(None, None)
        else:

            def part_of(node: DataNode) -> DataNode:
                part = self._of_made(node)
                on_part(node, part)
                return part

            conditions = _Conditions(part_of, self.of(self.predicate))
        with _defined_with(_conditionals_enabled=True, _condition_stack=conditions):
            yield conditions.part


@contextlib.contextmanager
def _defined_with(**settings: Any) -> Iterator[dict[str, Any]]:
    """Let operators be defined, within a ``with`` statement, with other settings; yields those from before."""
    attributes = vars(Pipeline.current())
    before = {name: attributes[name] for name in settings}
    attributes.update(settings)
    try:
        yield before
    finally:
        attributes.update(before)


@contextlib.contextmanager
def without_conditionals() -> Iterator[bool]:
    """Define operators, within a ``with`` statement, of which DALI's conditionals do not know.

    Yields:
        Whether conditionals are enabled otherwise.
    """
    with _defined_with(_conditionals_enabled=False) as before:
        yield before["_conditionals_enabled"]


@contextlib.contextmanager
def with_ways_to_cpu() -> Iterator[None]:
    """Let operators be defined, within a ``with`` statement, that bring data from a GPU to the CPU.

    Other executors than the dynamic one refuse the first of them; see `GraphInspection.require_dynamic_executor`.
    """
    with _defined_with(_exec_dynamic=True):
        yield


def _takes_shape(node: DataNode) -> bool:
    """Whether a random operator made a node that can take shape and batch size from an input."""
    schema = cast(Any, backend).TryGetSchema(getattr(node.source._op, "schema_name", ""))
    return schema is not None and schema.HasRandomSeedArg() and schema.MaxNumInput() > len(node.source.inputs)


@attrs.define
class SourceOutputs:
    """The outputs of one external source: which ones a graph needs is known only when it is complete.

    Attributes:
        arguments: Arguments for ``fn.external_source``, without those about its outputs.
    """

    arguments: Mapping[str, Any]
    _group: Any = attrs.field(default=None, init=False)

    def add(self, dtype: types.DALIDataType, layout: str | None = None) -> DataNode:
        """Add an output of a type, and of a layout if it has one."""
        described: dict[str, Any] = {"dtype": [dtype], **({} if layout is None else {"layout": [layout]})}
        node: DataNode = fn.external_source(num_outputs=1, **described, **self.arguments)[0]
        instance: Any = node.source
        if self._group is None:
            self._group = instance._group
        else:
            instance._group = self._group
            self._group.append(instance)
        return node

    def keep(self, used: Sequence[DataNode]) -> None:
        """Say which outputs are used; the source delivers these, in this order, and no others."""
        for index, node in enumerate(used):
            node.source._output_index = index
        instances = [node.source for node in used]
        if self._group is not None:
            self._group.instances = self._group.utilized_instances = instances


def seed_random_operators(nodes: Iterable[DataNode], seed_of: Callable[[int], int]) -> None:
    """Give each random operator of a graph a seed of its own, numbered in the order of definition.

    DALI hands out seeds in the order in which it reaches the operators from the outputs, so that they would depend
    on what else is in the graph. Operators that were given a seed keep it.
    """
    instances = {id(node.source): node.source for node in nodes}
    unseeded = [instance for instance in instances.values() if _takes_seed(instance)]
    for number, instance in enumerate(sorted(unseeded, key=lambda each: each.id)):
        instance.spec.AddArg("seed", seed_of(number))


def _takes_seed(instance: Any) -> bool:
    schema = cast(Any, backend).TryGetSchema(getattr(instance._op, "schema_name", ""))
    return schema is not None and schema.HasRandomSeedArg() and "seed" not in instance._op._init_args


@contextlib.contextmanager
def origins_from_here() -> Iterator[None]:
    """Let the origins of operators begin below what the caller calls, within a ``with`` statement.

    DALI keeps the stack of calls for each operator, which takes longer the deeper it is. What is above a step says
    nothing about it.
    """
    with _defined_with(_definition_frame_start=dali_trace.get_stack_depth() - 1):
        yield


@do_not_convert
def branched(
    predicate: Any, nodes: Sequence[DataNode], if_true: Callable[..., DataNode], if_false: Callable[..., DataNode]
) -> DataNode:
    """Compute samples in one of two ways, as ``if`` on data does; nothing is copied.

    Operators of a branch to which no sample of a batch goes get a batch without samples.

    Args:
        predicate: Which way, a bool for each sample, on the CPU.
        nodes: All data that the branches use, constants as well: a branch has other samples than the batch.
        if_true: Called with the nodes of the samples where the predicate holds.
        if_false: Called with the nodes of the others.
    """
    true, false = zip(*(split(node, predicate) for node in nodes), strict=True)
    return merge(if_true(*true), if_false(*false), predicate)


@do_not_convert
def python_operator(
    function: Callable[..., Any], inputs: Sequence[DataNode], layouts: Sequence[str]
) -> Sequence[DataNode]:
    """Define an operator that calls Python with all samples of a batch, on the CPU.

    DALI keeps such an operator also where nothing uses its outputs; this one is left out then, like any other.

    Args:
        function: Called with a list of arrays for each input; returns a list of arrays, or a tuple of them.
        inputs: At least one node, on the CPU.
        layouts: For each output, at least one, its layout; empty for none.

    Raises:
        NotSupportedError: The pipeline is one of DALI's debug mode.
    """
    pipeline: Any = Pipeline.current()
    if not hasattr(pipeline, "_sinks") or type(pipeline).__name__ == "_PipelineDebug":
        raise NotSupportedError(
            "A step on arrays cannot be part of a graph with debug=True, which DALI cannot have call Python for a "
            "batch. Leave out `debug`, or let the step run in the workers (`run='workers'`)."
        )
    num_kept = len(pipeline._sinks)
    how: dict[str, Any] = {"output_layouts": [*layouts]} if any(layouts) else {}
    made: Any = fn.python_function(
        *inputs, function=function, num_outputs=len(layouts), batch_processing=True, **how
    )
    del pipeline._sinks[num_kept:]
    return made if len(layouts) > 1 else [made]


INPUT = "the input"
_TRANSFER_TO_CPU = "a transfer from the GPU"
_PYTHON_FUNCTION = "fn.pythonfunction"


class GraphInspection:
    """Attributes the operators of a graph, while it grows, to the steps that define them.

    Attributes:
        gpu_users: Names of steps, each with what it does on a GPU, in order.
        to_cpu_users: Names of steps, each with what brings data from a GPU to the CPU, in order.
        random_users: Names of steps, each with its random operators, in order.
        python_users: Names of steps whose operators call Python.
    """

    def __init__(self) -> None:
        """Start with an empty graph."""
        self.gpu_users: dict[str, dict[str, None]] = {}
        self.to_cpu_users: dict[str, dict[str, None]] = {}
        self.random_users: dict[str, dict[str, None]] = {}
        self.python_users: set[str] = set()
        self._instances: dict[int, Any] = {}  # kept, so that no other one gets their ids
        self._seen: set[tuple[int, str]] = set()

    def note(self, step: str, values: Iterable[object], draws: Iterable[DataNode] = ()) -> None:
        """Attribute what is new in the graph to a step: its values, and the draws supplied so far.

        The step may be `INPUT`, whose random operators are none of the record's business.
        """
        self._instances.update((id(node.source), node.source) for node in draws)
        pending = [value for value in values if isinstance(value, DataNode)]
        while pending:
            node = pending.pop()
            instance = node.source
            if (id(instance), node.device) in self._seen:
                continue
            self._seen.add((id(instance), node.device))
            operator = getattr(instance, "_op", None)  # with `debug=True`, nodes do not know it
            if operator is not None and operator._device in ("gpu", "mixed"):
                self.gpu_users.setdefault(step, {})[_function_name(operator)] = None
            elif node.device == "gpu":
                self.gpu_users.setdefault(step, {})["a transfer to the GPU"] = None
            if node.device == "cpu" and operator is not None and operator._device == "gpu":
                self.to_cpu_users.setdefault(step, {})[_TRANSFER_TO_CPU] = None
            if operator is None or id(instance) in self._instances:
                continue
            if _function_name(operator) == _PYTHON_FUNCTION:
                self.python_users.add(step)
            if step != INPUT and _is_random(operator):
                self.random_users.setdefault(step, {})[_function_name(operator)] = None
            self._instances[id(instance)] = instance
            inputs = [*_flat(instance.inputs)]
            pending += inputs
            if operator._device == "cpu" and any(each.device == "gpu" for each in inputs):
                self.to_cpu_users.setdefault(step, {})[_function_name(operator)] = None

    def describe_python(self, step: str) -> str:
        """Describe that a step has Python compute in the graph, to be appended; empty if it has not."""
        if step not in self.python_users:
            return ""
        is_copied = _TRANSFER_TO_CPU in self.to_cpu_users.get(step, ())
        return ", on arrays, by Python in the graph" + ", copied from the GPU and back" * is_copied

    @property
    def brings_data_to_cpu(self) -> bool:
        """Whether the CPU waits for data of a GPU; it need not for the sizes of images."""
        return any(_TRANSFER_TO_CPU in names for names in self.to_cpu_users.values())

    def require_dynamic_executor(self) -> None:
        """Refuse steps that bring data from a GPU to the CPU: only DALI's dynamic executor can.

        Raises:
            SettingError: There are some; lists them.
        """
        _refuse(
            self.to_cpu_users,
            "These steps bring data from the GPU to the CPU (the size of an image is such data), which only "
            "DALI's dynamic executor does",
            "Leave out `exec_dynamic`, `exec_async` and `exec_pipelined`, give `prefetch_queue_depth` as a "
            "number, or pass device_id=None.",
        )


def _refuse(users: Mapping[str, Iterable[str]], problem: str, advice: str) -> None:
    if users:
        listed = "\n".join(f"  - {step}: {', '.join(names)}" for step, names in users.items())
        raise SettingError(f"{problem}:\n{listed}\n{advice}")


def _function_name(operator: Any) -> str:
    # An external source has no schema.
    return "fn." + str(getattr(operator, "schema_name", type(operator).__name__)).replace("__", ".").lower()


def is_random(node: DataNode) -> bool:
    """Whether a random operator made a node."""
    return _is_random(getattr(node.source, "_op", None))


def _is_random(operator: Any) -> bool:
    schema = cast(Any, backend).TryGetSchema(getattr(operator, "schema_name", ""))
    return schema is not None and bool(schema.HasRandomSeedArg())


def move_to_cpu(pipeline: Any) -> None:
    """Have a pipeline that is defined for a GPU, but not built yet, run on the CPU."""
    pipeline._device_id = None
