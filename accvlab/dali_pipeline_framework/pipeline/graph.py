# SPDX-License-Identifier: Apache-2.0
"""The operators of a pipeline: input, steps, outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import attrs
import nvidia.dali.fn as fn
import nvidia.dali.pipeline as dali_pipeline
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline, pipeline_def

from ..draws.draw_records import record_blueprint, take_group
from ..draws.draw_scope import DrawPlan, DrawSupply
from ..engine.dali.texts import NO_CONDITIONALS, REPLACED_EXCEPTION
from ..engine.graph_inspection import INPUT, GraphInspection
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..sample_data import FieldPath, Name, SampleDataGroup
from ..sample_data.graph_mode import do_not_convert
from ..sources.input_parts import InputPart, InputParts
from .pipeline_arguments import PipelineArguments

Copier: TypeAlias = Callable[[SampleDataGroup], SampleDataGroup]


@attrs.define
class Graph:
    """Defines the operators of a pipeline.

    Attributes:
        blueprint: Format of the samples of the input.
        steps: The steps.
        parts: The input.
        source: Arguments for ``fn.external_source`` beside the format.
        copier: Inserts copies of pass-through outputs, or None.
        plan: The random draws of the steps. The input supplies them after the fields if it is a callable, or as a
            group of the sample if they are replayed; otherwise DALI's generators draw.
        only_output: Flat position of the only output to keep; None for all.
        num_steps: How many of the steps to define; None for all, and what is added to the output.
        seed: Seed of the pipeline.
        checks_data_format: Whether types are checked where a step assigns a node.
        replay_path: Path of the group of recorded draws in the sample; None where they are not replayed.
        record_name: Name of the group of drawn numbers in the output; None where they are not recorded.
        must_declare_draws: Whether random operators beside declared draws are refused where draws are recorded.
        inspection: Which steps have operators on a GPU, or random ones.
        last_changed_by: Filled while the graph is defined: per output field, what set it last.
    """

    blueprint: SampleDataGroup
    steps: Sequence[PipelineStepBase]
    parts: InputParts
    source: Mapping[str, Any]
    copier: Copier | None
    plan: DrawPlan
    only_output: int | None = None
    num_steps: int | None = None
    seed: int = 0
    checks_data_format: bool = True
    replay_path: FieldPath | None = None
    record_name: Name | None = None
    must_declare_draws: bool = True
    inspection: GraphInspection = attrs.field(factory=GraphInspection, init=False)
    last_changed_by: list[str] = attrs.field(factory=list)
    _num_steps_done: int = attrs.field(default=0, init=False)
    _values: dict[FieldPath, tuple[Any, str]] = attrs.field(factory=dict, init=False)
    _supply: DrawSupply = attrs.field(factory=DrawSupply, init=False)

    def define(self) -> tuple[DataNode, ...]:
        """Define the graph in the current pipeline and return its outputs."""
        data = self._input()
        with self._supply:
            for step in self.steps[: self.num_steps]:
                data = step(data)
                self._note_changes(data, step)
        return self._outputs(data)

    def describe_failure(self, error: Exception) -> None:
        """Add to an exception which step defined its operators when it was raised."""
        if not self._values or self._num_steps_done == len(self.steps):
            return
        step = self.steps[self._num_steps_done]
        note = f"raised while step {self._num_steps_done} ({type(step).__name__}) defined its operators"
        if isinstance(error, TypeError) and NO_CONDITIONALS in str(error):
            note += "; `if` on data needs get_dali_pipeline(enable_conditionals=True)"
        if hasattr(error, "add_note"):  # Python >= 3.11
            error.add_note(note)

    @do_not_convert
    def _input(self) -> SampleDataGroup:
        data = self.blueprint.get_empty_like_self()
        data.set_apply_mapping(False)
        data.set_do_check_type(self.checks_data_format)
        self._supply = DrawSupply(self.plan)
        self.inspection = GraphInspection()
        data.set_data([node for part in self.parts.parts for node in self._define_part(part)])
        if self.replay_path is not None:
            replayed = take_group(data, self.replay_path)
            nodes = [replayed[planned.record_name] for planned in self.plan.draws]
            self._supply = DrawSupply(self.plan, nodes)
        self._num_steps_done = 0  # with `debug=True` the graph is defined anew for each batch
        self._note_changes(data)
        return data

    @do_not_convert
    def _define_part(self, part: InputPart) -> Sequence[DataNode]:
        if part.is_native:
            nodes: Sequence[DataNode] = part.source.define(part.operator_name, self.seed)
            return nodes
        dtypes = list(part.source.used_sample_data_structure.field_types_flat)
        num_fields = len(dtypes)
        supplies_draws = self.parts.has_callable and self.replay_path is None
        dtypes += [planned.draw.dtype for planned in self.plan.draws] if supplies_draws else []
        nodes = fn.external_source(num_outputs=len(dtypes), dtype=dtypes, **self.source)
        if supplies_draws:
            self._supply = DrawSupply(self.plan, nodes[num_fields:])
        return nodes[:num_fields]

    @do_not_convert
    def _outputs(self, data: SampleDataGroup) -> tuple[DataNode, ...]:
        if self.record_name is not None and self.num_steps is None:
            self._add_record(data, self.record_name)
        self.last_changed_by[:] = [self._values[path][1] for path in data.format.flat_paths]
        data.ensure_uniform_size_in_batch_for_all_strings()
        if self.copier is not None:
            data = self.copier(data)
        outputs = data.get_data()
        return tuple(outputs) if self.only_output is None else (outputs[self.only_output],)

    @do_not_convert
    def _add_record(self, data: SampleDataGroup, name: Name) -> None:
        if self.must_declare_draws:
            self.inspection.require_declared_draws()
        group = record_blueprint(self.plan.draws)
        group.set_data(self._supply.recorded())
        data.add_data_group_field(name, group)
        data[name] = group
        for path, node in zip(group.format.flat_paths, group.get_data(), strict=True):
            self._values[(name, *path)] = (node, "the random draws")

    @do_not_convert
    def _note_changes(self, data: SampleDataGroup, step: PipelineStepBase | None = None) -> None:
        name = INPUT
        if step is not None:
            name = f"step {self._num_steps_done} ({type(step).__name__})"
            self._num_steps_done += 1
        before = self._values
        values = dict(zip(data.format.flat_paths, data.get_data(), strict=True))
        self.inspection.note(name, values.values(), self._supply.made())
        self._values = {
            path: before[path] if path in before and before[path][0] is value else (value, name)
            for path, value in values.items()
        }


def define_pipeline(graph: Graph, arguments: PipelineArguments) -> Pipeline:
    """Make a pipeline of DALI with the operators of a graph; it is not built yet."""
    decorator: Any = pipeline_def
    if arguments.get("debug"):
        decorator = cast(Any, dali_pipeline).experimental.pipeline_def

    def define_graph() -> tuple[DataNode, ...]:
        return graph.define()

    try:
        pipeline: Pipeline = decorator(define_graph)(**arguments)
    except Exception as error:
        original = error.__context__
        if type(error).__name__ == REPLACED_EXCEPTION and isinstance(original, Exception):
            # With conditionals, DALI replaces exceptions whose constructor it does not know.
            graph.describe_failure(original)
            raise original.with_traceback(error.__traceback__) from None
        graph.describe_failure(error)
        raise
    return pipeline
