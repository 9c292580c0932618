# SPDX-License-Identifier: Apache-2.0
"""The operators of a pipeline: what workers send to it, steps, outputs."""

from __future__ import annotations

import contextlib
import dis
import functools
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import attrs
import nvidia.dali.fn as fn
import nvidia.dali.pipeline as dali_pipeline
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ..draws.draw_scope import DrawPlan, GraphDraws, PlannedPixels, SupplyNode, step_context
from ..draws.keyed_draws import derive_key
from ..draws.random_draws import PlannedDraw
from ..engine.dali.graph_definition import (
    INPUT,
    GraphInspection,
    SourceOutputs,
    define_graph,
    is_random,
    original_of,
    origins_from_here,
    seed_random_operators,
    with_conditionals,
    with_ways_to_cpu,
    without_conditionals,
)
from ..engine.dali.texts import NO_CONDITIONALS
from ..engine.transport import Delivery
from ..errors import FrameworkError, GraphError, error_that_is_also, text_of
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..providers.sample_loading import add_note
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.folded_formats import WHOLE_SAMPLE, FoldedFormat, FoldedLeaf, Level
from ..sample_data.graph_mode import GraphContext, Within, do_not_convert, graph_context
from ..sample_data.names import format_path
from ..workers.packing import TransportLayout
from ._insert_copy_for_passthrough import _InsertCopyForPassthrough
from .chain import ArraySteps, Chain, Placement, step_name
from .folding import FieldNodes, FoldedSample, Folding, NotFoldableError
from .pipeline_arguments import PipelineArguments

ADVICE_ON_NODES: Final = (
    "In the graph, the fields are not arrays but nodes of DALI (DataNode), which stand for data of a later batch: "
    "NumPy, OpenCV, PyTorch, `if`, `len`, loops and the like cannot compute with them. Use operators of "
    "nvidia.dali.fn, e.g. fn.resize, fn.shapes or fn.cast. Or let the step compute on arrays, in the workers: "
    "MapStep calls a function of NumPy arrays, and a step of your own derives from ArrayStep."
)
_LIBRARIES: Final = ("numpy", "scipy", "cv2", "torch", "torchvision", "PIL", "skimage")
_VALUES_IN_DALI: Final = ("nvidia.dali.data_node", "nvidia.dali._utils.hacks", "nvidia.dali._autograph")
_CALLS_FUNCTION: Final = ".function_steps"  # of the user, which may be written in C
_PACKAGE: Final = __name__.rsplit(".", 2)[0]


def computes_on_nodes(error: Exception) -> bool:
    """Whether an exception of a step that defines its operators seems to be about a node that is no array."""
    if isinstance(error, FrameworkError):
        return "cannot store DataNode(" in str(error)
    frames = [*traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    if any(module.partition(".")[0] in _LIBRARIES for module in (*modules, type(error).__module__)):
        return True
    if not isinstance(error, TypeError | ValueError | AttributeError):
        return False
    of_step = [
        number
        for number, module in enumerate(modules)
        if not module.startswith(("nvidia.", _PACKAGE)) or module.endswith(_CALLS_FUNCTION)
    ]
    if not of_step:
        return False
    called = modules[of_step[-1] + 1 :]  # by the last line of the step
    return called[0].startswith(_VALUES_IN_DALI) if called else not _was_raised_by_hand(error)


def _was_raised_by_hand(error: Exception) -> bool:
    """Whether a `raise` statement has raised it, and not the call of a function in C, or Python."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


@attrs.frozen
class SentItems:
    """What workers send to the graph.

    Attributes:
        fields: For each field of the sample that they load its item.
        draws: For each draw of the chain its item; None if they send none.
        dtypes: Types of the items.
        pixels: For each change of pixels in the graph the item of its first parameter.
    """

    fields: Mapping[FieldPath, int]
    draws: Sequence[int] | None
    dtypes: Sequence[types.DALIDataType]
    pixels: Sequence[int]

    @classmethod
    def of(
        cls,
        chain: Chain,
        draws: Sequence[PlannedDraw],
        array_steps: ArraySteps | None,
        pixels: Sequence[PlannedPixels],
        is_drawn: bool,
    ) -> SentItems:
        """Find out what is sent: the fields as they are loaded, or after steps; then parameters, and draws.

        Args:
            chain: The input, and what is done to its samples.
            draws: The draws of the chain.
            array_steps: The steps in the workers.
            pixels: The changes of pixels that they leave to the graph.
            is_drawn: Whether the workers draw.
        """
        loaded = chain.input_data_structure.format
        paths: Sequence[FieldPath] = () if chain.is_native else loaded.flat_paths
        leaves = () if chain.is_native else loaded.flat_leaves
        if array_steps is not None:
            paths, leaves = array_steps.output_format.flat_paths, array_steps.output_format.flat_leaves
        fields = {path: item for item, path in enumerate(paths)}
        dtypes = [leaf.transport_dtype for leaf in leaves]
        firsts = []
        for change in reversed(pixels):  # what is sent is what the first change of an image begins with
            dtypes[fields[change.path]] = change.leaf.transport_dtype
        for change in pixels:
            firsts.append(len(dtypes))
            dtypes += change.parameters.values()
        if not is_drawn:
            return cls(fields, None, dtypes, firsts)
        items = [len(dtypes) + index for index in range(len(draws))]
        return cls(fields, items, [*dtypes, *(planned.draw.dtype for planned in draws)], firsts)

    def unused(self, layout: TransportLayout | None, draws: Sequence[PlannedDraw], num_used: int) -> list[str]:
        """Names of the items that do not travel; none where each item has an output of its own.

        Args:
            layout: What travels.
            draws: The draws of the chain.
            num_used: How many of them were used in the workers.
        """
        if layout is None:
            return []
        names = {item: format_path(path) for path, item in self.fields.items()}
        for item, draw in list(zip(self.draws or (), draws, strict=False))[num_used:]:
            names.setdefault(item, str(draw))
        used = {item for items in (*layout.packed, *layout.fields) for item in items}
        return [names[item] for item in sorted(names.keys() - used)]


@attrs.define
class Graph:
    """Defines the operators of a pipeline.

    Attributes:
        chain: The input, the steps, and how they are applied.
        placement: Which of the steps run in the graph, and which pixels are changed there for the others.
        blueprint: Format of the samples of the input, after the steps in the workers.
        sent: What the workers send.
        source: Arguments for ``fn.external_source`` but for the format.
        copier: Inserts copies of pass-through outputs, or None.
        plan: The random draws of the steps. They travel after the fields if the input is a
            callable; otherwise DALI's generators draw.
        only_outputs: Flat positions of the only outputs to keep; None for all.
        num_steps: How many of the stages to define; None for all, and what is added to the output.
        seed: Seed of the pipeline, for draws and native readers.
        operator_seed: Seed of DALI's random operators; None if DALI chooses one.
        is_packed: Whether fields that no step touches travel packed; else each field has an output.
        num_slots: Entries of the batch of the pipeline per sample: arrays up to this size are folded.
        inspection: Which steps have operators on a GPU, or random ones.
        last_changed_by: Filled while the graph is defined: per output field, what set it last.
        delivery: Places of the fields in the outputs; known once the graph is defined.
        applied: By the name of each step how it was applied, for people.
        not_folded: For steps that treat elements alike, and were not applied to folded arrays: why.
    """

    chain: Chain
    placement: Placement
    blueprint: SampleDataGroup
    plan: DrawPlan
    sent: SentItems
    source: Mapping[str, Any]
    copier: _InsertCopyForPassthrough | None = None
    only_outputs: Sequence[int] | None = None
    num_steps: int | None = None
    seed: int = 0
    is_packed: bool = False
    num_slots: int = 1
    operator_seed: int | None = None
    inspection: GraphInspection = attrs.field(factory=GraphInspection, init=False)
    last_changed_by: list[str] = attrs.field(factory=list)
    delivery: Delivery = attrs.field(init=False)
    applied: dict[str, str] = attrs.field(factory=dict, init=False)
    not_folded: dict[int, str] = attrs.field(factory=dict, init=False)
    _num_steps_done: int | None = attrs.field(default=None, init=False)
    _supply: GraphDraws = attrs.field(factory=GraphDraws, init=False)
    _folding: Folding = attrs.field(init=False)
    _main_nodes: Sequence[DataNode] = attrs.field(default=(), init=False)
    _has_conditionals: bool = attrs.field(default=False, init=False)

    @property
    def first_step(self) -> int:
        """Number of the first step that runs in the graph as a whole."""
        return self.placement.num_in_workers

    @property
    def stages(self) -> Sequence[int]:
        """Positions of the steps that have operators: those whose pixels are changed here, then whole ones."""
        of_pixels = dict.fromkeys(change.position for change in self.placement.pixels)
        return [*of_pixels, *range(self.first_step, len(self.chain.steps))]

    def stage_name(self, number: int) -> str:
        """Name of the step at a position, for people."""
        return f"step {number} ({step_name(self.chain.steps[number])})"

    @do_not_convert
    def define(self) -> tuple[DataNode, ...]:
        """Define the graph in the current pipeline and return its outputs."""
        with with_ways_to_cpu(), without_conditionals() as self._has_conditionals:
            sample = self._input()
            outer = step_context.get()
            try:
                step_context.set(outer._replace(supply=self._supply))
                for done, number in enumerate(self.stages[: self.num_steps]):
                    self._num_steps_done = done
                    change = self._pixels_changed if number < self.first_step else self._applied
                    sample = change(number, sample)
                    self._note(sample, self.stage_name(number))
            finally:
                step_context.set(outer)
            self._num_steps_done = None
            return self._outputs(sample)

    def explained(self, error: Exception) -> Exception:
        """Add to an exception which step defined its operators when it was raised, and what is wrong, if known."""
        if self._num_steps_done is None:
            return error
        name = self.stage_name(self.stages[self._num_steps_done])
        note = f"raised while {name} defined its operators"
        if isinstance(error, TypeError) and NO_CONDITIONALS in text_of(error):
            note += "; `if` on data needs get_dali_pipeline(enable_conditionals=True)"
        if computes_on_nodes(error):
            text = f"{name} failed with {type(error).__name__}: {text_of(error)}\n{ADVICE_ON_NODES}"
            error = error_that_is_also(GraphError, [type(error)], text).with_traceback(error.__traceback__)
        add_note(error, note)
        return error

    @property
    def num_slots_used(self) -> int:
        """The greatest number of elements that a node of the graph holds."""
        layout = self.delivery.layout
        return 1 if layout is None else max((1, *map(len, layout.fields), *layout.element_counts))

    @property
    def merged_fields(self) -> list[str]:
        """Fields whose elements are put together in the graph, after steps that changed single ones."""
        return [*self._folding.merged]

    @property
    def plan_text(self) -> str:
        """What is folded and what is packed, in lines for people."""
        lines = [f"{step}: {how}{self.inspection.describe_python(step)}" for step, how in self.applied.items()]
        layout = self.delivery.layout
        if layout is None:
            return "\n".join([*lines, "each field has an output of its own"])
        num_packed = sum(place.is_packed for place in self.delivery.places)
        of_batch = (
            f"batches of the graph: samples x {self.num_slots}" if self.num_slots > 1 else "nothing is folded"
        )
        packed = f"packed: {num_packed} of {len(self.delivery.places)} fields"
        return "\n".join([of_batch, *lines, f"{packed}; other outputs of workers: {len(layout.fields)}"])

    # --- input ------------------------------------------------------------------------------------

    def _input(self) -> FoldedSample:
        self.inspection = GraphInspection()
        self.not_folded.clear()
        self.applied.clear()
        self._folding = Folding(SourceOutputs(self.source), self.num_slots)
        data = self.blueprint.get_empty_like_self()
        paths = data.format.flat_paths
        items = self.sent.fields
        given: dict[FieldPath, DataNode] = {}
        if self.chain.is_native:
            given = dict(zip(paths, self.chain.data_input.define(self.seed), strict=True))
        elif not self.is_packed:
            given = self._define_main()
        self._supply = GraphDraws(self.plan, self._supply_of_draws(), self.first_step)
        sources = {change.path: change.leaf for change in reversed(self.placement.pixels)}
        # Elements that are alike after the steps may be sent in different forms: some changed, some still to be.
        sent_alike = FoldedFormat.of(data.format.with_replaced(sources), self.num_slots).lengths
        format = FoldedFormat.of(data.format, self.num_slots, only=sent_alike)
        fields = []
        for leaf in format.leaves:
            of_members = [format.full.flat_paths[member] for member in leaf.members]
            if of_members[0] in given:
                node = given[of_members[0]]
                self._folding.note_given(node)
            else:
                sent = sources.get(of_members[0], format.full.flat_leaves[leaf.members[0]])
                # What a step has made on arrays has the layout that it would have in the graph.
                layout = sent.content.layout if self.first_step and not sent.content.is_encoded else None
                of_items = tuple([items[path] for path in of_members])
                node = self._folding.send(of_items, sent.transport_dtype, leaf.level, layout)
            fields.append(FieldNodes(leaf.level, INPUT, node))
        sample = FoldedSample(format, fields)
        self._note(sample, INPUT)
        return sample

    def _define_main(self) -> dict[FieldPath, DataNode]:
        """Define an external source with an output for each field and draw."""
        dtypes = [*self.sent.dtypes]
        self._main_nodes = fn.external_source(num_outputs=len(dtypes), dtype=dtypes, **self.source)
        return {path: self._main_nodes[item] for path, item in self.sent.fields.items()}

    def _supply_of_draws(self) -> SupplyNode | None:
        items_of_draws = self.sent.draws
        if items_of_draws is None:
            return None

        def supply(indices: tuple[int, ...]) -> DataNode:
            sent = tuple([items_of_draws[index] for index in indices])
            if not self.is_packed:
                return self._main_nodes[sent[0]]
            with without_conditionals():
                return self._folding.send(sent, self.plan.draws[indices[0]].draw.dtype, self._supply.level)

        return supply

    # --- steps ------------------------------------------------------------------------------------

    def _pixels_changed(self, number: int, sample: FoldedSample) -> FoldedSample:
        """Change pixels as a step does that runs in the workers, and has left that to the graph."""
        pixels, paths = self.placement.pixels, sample.format.full.flat_paths
        of_step: dict[FieldPath, list[int]] = {}
        for index, change in enumerate(pixels):
            if change.position == number:
                of_step.setdefault(change.path, []).append(index)
        name, how, fields = self.stage_name(number), dict[str, None](), []
        decoded = self._decoded_together(sample, of_step)
        for leaf, field in zip(sample.format.leaves, sample.fields, strict=True):
            if leaf.members in decoded:
                node, count = decoded[leaf.members]
                fields.append(FieldNodes(leaf.level, name, node, [node]))
                how[f"once for {count} fields"] = None
                continue
            changes = [of_step.get(paths[member], []) for member in leaf.members]
            are_alike = len({tuple(pixels[index].alike_key for index in each) for each in changes}) == 1
            if not any(changes):
                fields.append(field)
            elif are_alike:
                node = self._folding.folded(field, [pixels[first].leaf for first, *_ in changes])
                for indices in zip(*changes, strict=True):
                    node = self._changed(node, indices, leaf.level)
                fields.append(FieldNodes(leaf.level, name, node, [node] if leaf.level.count == 1 else None))
                how[f"once for all elements of {leaf.level}" if leaf.level.arrays else "as it is"] = None
            else:
                elements = [*self._folding.elements(field)]
                for element, own in enumerate(changes):
                    for index in own:
                        elements[element] = self._changed(elements[element], (index,), WHOLE_SAMPLE)
                fields.append(FieldNodes(leaf.level, name, None, elements))
                how["element by element, since their changes differ"] = None
        self.applied[name] = f"pixels, {', '.join(how)}"
        return FoldedSample(sample.format, fields)

    def _decoded_together(
        self, sample: FoldedSample, of_step: Mapping[FieldPath, Sequence[int]]
    ) -> dict[tuple[int, ...], tuple[DataNode, int]]:
        """Decode encoded videos of several fields that are in no array, such as cameras with names, at once.

        Returns:
            By the members of the leaf what is decoded, and how many fields share the operator.
        """
        pixels, alike = self.placement.pixels, dict[tuple[object, ...], list[tuple[FoldedLeaf, int, int]]]()
        for leaf, field in zip(sample.format.leaves, sample.fields, strict=True):
            changes = of_step.get(sample.format.full.flat_paths[leaf.members[0]], ())
            sent = self._folding.sent_items(field) if len(leaf.members) == 1 and len(changes) == 1 else None
            if sent is not None and pixels[changes[0]].leaf.content.codecs:
                alike.setdefault(pixels[changes[0]].alike_key, []).append((leaf, changes[0], sent[0]))
        decoded = dict[tuple[int, ...], tuple[DataNode, int]]()
        for of_step_and_name in alike.values():
            for start in range(0, len(of_step_and_name), self.num_slots):
                group = of_step_and_name[start : start + self.num_slots]
                if len(group) > 1:
                    leaves, indices, sent = zip(*group, strict=True)
                    level = Level(((),), (len(group),))
                    with without_conditionals():
                        node = self._folding.send(sent, types.DALIDataType.UINT8, level)
                    node = self._changed(node, indices, level)
                    with without_conditionals():
                        elements = self._folding.elements(FieldNodes(level, "", node))
                    for leaf, element in zip(leaves, elements, strict=True):
                        decoded[leaf.members] = element, len(group)
        return decoded

    def _changed(self, node: DataNode, indices: Sequence[int], level: Level) -> DataNode:
        """Change the pixels of images that are folded, by changes that are alike."""
        change = self.placement.pixels[indices[0]]
        parameters = {}
        for number, (name, dtype) in enumerate(change.parameters.items()):
            items = tuple([self.sent.pixels[index] + number for index in indices])
            parameters[name] = (
                self._folding.send(items, dtype, level) if self.is_packed else self._main_nodes[items[0]]
            )
        step: Any = change.step

        def on_part(made: DataNode, part: DataNode) -> None:
            self._folding.note_given(part, level)

        origins = contextlib.nullcontext() if self._has_conditionals else origins_from_here()
        with self._folding.part(level).defining(self._has_conditionals, on_part) as to_part, origins:
            changed = to_part(step.graph(node, change.leaf, change.path[-1], **parameters))
        self._folding.note_given(changed, level)
        return changed

    def _applied(self, number: int, sample: FoldedSample) -> FoldedSample:
        step, name = self.chain.steps[number], self.stage_name(number)
        result: FoldedSample | None = None
        if step.treats_elements_alike and sample.format.lengths:
            for level in (*sample.format.levels, WHOLE_SAMPLE):
                try:
                    result = self._applied_at(step, sample, level, name, is_folded=True)
                    break
                except NotFoldableError as reason:
                    self.not_folded.setdefault(number, str(reason))
                except Exception as error:
                    self.not_folded.setdefault(
                        number, f"for one element it raises {type(error).__name__}: {text_of(error)}"
                    )
        if result is None:
            result = self._applied_at(step, sample, WHOLE_SAMPLE, name, is_folded=False)
            why = self.not_folded.get(number, "it does not say that it treats elements alike")
            how = f"element by element, since {why}" if sample.format.lengths else "no arrays are folded"
        else:
            self.not_folded.pop(number, None)
            levels = dict.fromkeys(field.level for field in result.fields if field.changed_by == name)
            how = ", ".join(f"once for all elements of {level}" for level in levels if level.arrays) or "as it is"
        self.applied[name] = how
        return result

    def _applied_at(
        self, step: PipelineStepBase, sample: FoldedSample, level: Level, name: str, is_folded: bool
    ) -> FoldedSample:
        data = self._folding.values(sample, is_folded, self.chain.checks_data_format)

        def on_part(made: DataNode, part: DataNode) -> None:
            if is_folded and is_random(made):
                raise NotFoldableError("it draws with DALI's random operators")
            self._folding.note_given(part, level)

        make_sample = self._folding.sample_of_folded if is_folded else self._folding.sample_of
        has_room = self._folding.num_slots > 1 and not is_folded
        together = self._folding.in_one_batch if has_room else None
        context = graph_context.get()._replace(is_folded=is_folded, decode_together=together)
        with self._supply.at(level), Within(graph_context, context):
            with self._folding.part(level).defining(self._has_conditionals, on_part) as to_part:
                if self._has_conditionals:
                    result = with_conditionals(step)(data)
                else:
                    with origins_from_here():
                        result = step(data)
                # Steps may set fields to plain numbers and arrays.
                values = [
                    value if isinstance(value, DataNode) else types.Constant(value, device="cpu")
                    for value in result.get_data()
                ]
                # Keep, of each draw, the part that the step has got: random operators draw it anew.
                self._supply.made = {place: to_part(node) for place, node in self._supply.made.items()}
            return make_sample(result, list(map(to_part, values)), sample, name)

    def _note(self, sample: FoldedSample, name: str) -> None:
        nodes = [node for field in sample.fields for node in field.present]
        self.inspection.note(name, nodes, [*self._supply.made.values(), *self._folding.own_nodes])

    # --- outputs ----------------------------------------------------------------------------------

    def _outputs(self, sample: FoldedSample) -> tuple[DataNode, ...]:
        if self.copier is not None:
            data = self.copier(self._values(sample))
            sample = self._folding.sample_of(data, data.get_data(), sample, "the copy of the outputs")
        members = sample.format.full.num_leaves
        self.last_changed_by[:] = [""] * members
        for leaf, field in zip(sample.format.leaves, sample.fields, strict=True):
            for member in leaf.members:
                self.last_changed_by[member] = field.changed_by
        if not self.is_packed:
            return self._plain_outputs(sample)
        self.delivery, outputs = self._folding.delivered(sample)
        if self.operator_seed is not None:
            numbered = functools.partial(derive_key, "operator", self.operator_seed)
            seed_random_operators(self._folding.reached(outputs).values(), lambda number: numbered(number) >> 33)
        return outputs

    def _values(self, sample: FoldedSample) -> SampleDataGroup:
        return self._folding.values(sample, False, self.chain.checks_data_format)

    def _plain_outputs(self, sample: FoldedSample) -> tuple[DataNode, ...]:
        data = self._values(sample)
        self.delivery = Delivery.of_plain_outputs([leaf.numpy_dtype for leaf in data.format.flat_leaves])
        data.ensure_uniform_size_in_batch_for_all_strings()
        outputs = data.get_data()
        kept = range(len(outputs)) if self.only_outputs is None else self.only_outputs
        return tuple([outputs[number] for number in kept])


_PipelineT = TypeVar("_PipelineT", bound=Pipeline)


def define_pipeline(graph: Graph, arguments: PipelineArguments, pipeline_class: type[_PipelineT]) -> _PipelineT:
    """Make a pipeline with the operators of a graph; it is not built. With ``debug``, DALI chooses the class."""
    arguments = {**arguments}
    options = arguments.pop("decoder_options", {})

    def define() -> tuple[DataNode, ...]:
        outer = graph_context.get()
        try:
            graph_context.set(GraphContext(decoder_options=options))
            return graph.define()
        finally:
            graph_context.set(outer)

    try:
        if arguments.get("debug"):
            debugged: _PipelineT = cast(Any, dali_pipeline).experimental.pipeline_def(define)(**arguments)
            return debugged
        has_conditionals = bool(arguments.pop("enable_conditionals", False))
        pipeline = pipeline_class(**{name: value for name, value in arguments.items() if name != "debug"})
        define_graph(pipeline, define, has_conditionals)
        return pipeline
    except Exception as error:
        explained = graph.explained(original_of(error))
        if explained is error:
            raise
        raise explained from None


def define_pipeline_of_given(
    in_graph: Callable[..., Graph],
    arguments: PipelineArguments,
    flats: Sequence[Sequence[Any]],
    outputs: Sequence[int] | None,
    num_steps: int | None,
) -> Pipeline:
    """Make a pipeline for a batch of given samples, to find out whether it fails.

    Args:
        in_graph: Makes a graph of a source and other settings.
        arguments: Arguments of the pipeline that has failed.
        flats: What the workers send of each sample.
        outputs: Flat positions of the only outputs to keep; None for all.
        num_steps: How many of the steps of the graph to define; None for all.
    """
    by_item = [[*arrays] for arrays in zip(*flats, strict=True)]
    source = {"source": lambda: by_item, "batch": True, "parallel": False}
    graph = in_graph(source, only_outputs=outputs, num_steps=num_steps)
    kept: PipelineArguments = {}
    for name in ("device_id", "seed", "enable_conditionals"):
        if name in arguments:
            kept[name] = arguments[name]
    for name in ("output_dtype", "output_ndim", "output_layout"):
        value = None if num_steps is not None else arguments.get(name)
        if isinstance(value, list) and outputs is not None:
            value = [value[number] for number in outputs]
        kept[name] = value
    kept.update(batch_size=len(flats), num_threads=1, prefetch_queue_depth=1)
    return define_pipeline(graph, kept, Pipeline)
