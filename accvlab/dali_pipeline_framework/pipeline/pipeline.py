# SPDX-License-Identifier: Apache-2.0
"""The definition of a pipeline: an input, and what is done to its samples."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.pipeline as dali_pipeline
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline, pipeline_def

from ..checks import bullets, whole_number
from ..draws.draw_records import record_blueprint, take_group, with_record
from ..draws.draw_scope import DrawPlan, DrawSupply
from ..draws.keyed_draws import KeyedDraws
from ..draws.keyed_random import derive_key
from ..engine.control_block import ControlBlock
from ..engine.dali.texts import NO_CONDITIONALS, REPLACED_EXCEPTION
from ..engine.failure_diagnosis import FailureDiagnosis
from ..engine.gpu import log_cpu_fallback_once, move_to_cpu, num_usable_gpus
from ..engine.graph_inspection import INPUT, GraphInspection
from ..engine.source_pickling import pickler_functions
from ..engine.structured_pipeline import PipelineContext, StructuredPipeline
from ..engine.user_warnings import warn_user
from ..engine.worker_process import WorkerSetup
from ..engine.worker_source import CallableSource, IterableSource
from ..errors import DeviceError, SettingError
from ..processing_steps.pipeline_step_base import PipelineStepBase
from ..providers.data_provider import DataProvider
from ..providers.replayed_draws import ReplayedDraws, require_fitting_record
from ..providers.summary import summary
from ..sample_data import FieldPath, Name, Path, SampleDataGroup, format_path, normalized_path
from ..sample_data.graph_mode import do_not_convert
from ..sources.callable_base import CallableBase
from ..sources.input_adapter import InputAdapter
from ..sources.input_parts import InputPart, InputParts
from ..sources.iterable_base import IterableBase
from ..sources.joined_input import JoinedInput
from ..sources.native_input import NativeInput
from ..sources.planned_input import PlannedInput
from ..sources.shards import Shard, detected_rank, num_cores_of_rank
from ..sources.shuffled_sharded_input_callable import ShuffledShardedInputCallable
from ..unknown_arguments import explains_unknown_arguments
from ._insert_copy_for_passthrough import PathType, _InsertCopyForPassthrough
from .draw_keys import require_keys
from .format_folding import fold_format, step_name

PipelineArguments: TypeAlias = dict[str, Any]
Copier: TypeAlias = Callable[[SampleDataGroup], SampleDataGroup]
PipelineInput: TypeAlias = CallableBase | IterableBase | NativeInput | JoinedInput

# In the documentation of older DALI versions, "not given" is written as these values.
_LEGACY_NOT_GIVEN = {
    "batch_size": -1,
    "num_threads": -1,
    "device_id": -1,
    "seed": -1,
    "max_streams": -1,
    "default_cuda_stream_priority": 0,
}


class PipelineDefinition:
    """An input and a chain of processing steps, from which DALI pipelines are made.

    Example::

        definition = PipelineDefinition(
            ShuffledShardedInputCallable(provider, batch_size=4, shuffle=True),
            [ImageDecoder("image", use_device_mixed=True)],
        )
        pipeline = definition.get_dali_pipeline(num_threads=2, py_num_workers=2, py_start_method="spawn")
    """

    _must_declare_draws = True  # where draws are recorded

    @explains_unknown_arguments(dict.fromkeys(("steps", "transforms"), "preprocess_functors"))
    def __init__(
        self,
        data_loading_callable_iterable: PipelineInput,
        preprocess_functors: Sequence[PipelineStepBase | None] | None = None,
        check_data_format: bool = True,
        use_parallel_external_source: bool = True,
        prefetch_queue_depth: int = 2,
        print_sample_data_group_format: bool = False,
        copy_external_source_passthrough_outputs: bool | None = None,
        passthrough_copy_field_names: Sequence[Name] | None = None,
        passthrough_copy_field_names_scope_paths: Sequence[PathType] | None = None,
        passthrough_copy_branch_paths: Sequence[PathType] | None = None,
        *,
        record_draws: Name | None = None,
        replay_draws: Path | None = None,
    ) -> None:
        """Create the definition; nothing is loaded or built.

        Args:
            data_loading_callable_iterable: The input: a callable or an iterable that workers load, a native reader
                (`ReaderInput`), or several of them (`JoinedInput`).
            preprocess_functors: The processing steps, in order. None entries are left out.
            check_data_format: Whether the types of the first batch are compared with the declared format.
            use_parallel_external_source: Whether the input runs in worker processes.
            prefetch_queue_depth: Batches that the workers load ahead. Each worker loads whole batches, so it is
                raised to the number of workers where it is smaller. More than that evens out loading times
                that vary, and takes shared memory for each batch.
            print_sample_data_group_format: Whether to print the format after each step to stdout, each time a
                pipeline is made.
            copy_external_source_passthrough_outputs: Whether output fields are copied on their way out. DALI
                since 2.3 does not need it. With True and no selection, all output fields are copied.
            passthrough_copy_field_names: Selects fields to copy by name; may name fields that a step removes.
            passthrough_copy_field_names_scope_paths: Groups in which to search for these names.
            passthrough_copy_branch_paths: Selects fields to copy by path; a group stands for all below it.
            record_draws: Name of a group that is added to the output, at its end: the random draws that the steps
                declare, one field for each, named after step, group and draw (see `records_of_batch`). Steps that
                use random operators of DALI directly are refused.
            replay_draws: Path of a group of the input sample that holds such recorded draws (see
                `ReplayedDrawsProvider`). They are taken instead of drawing; the steps do not see the group.

        Raises:
            SettingError: An argument breaks a rule; also when fields are selected for copying without
                ``copy_external_source_passthrough_outputs=True``.
        """
        _check_input(data_loading_callable_iterable)
        self._data_input = data_loading_callable_iterable
        self._steps = _checked_steps(preprocess_functors)
        self._check_data_format = check_data_format
        self._is_parallel = use_parallel_external_source
        self._prefetch_queue_depth = whole_number(prefetch_queue_depth, "prefetch_queue_depth", at_least=1)
        self._print_formats = print_sample_data_group_format
        self._record_name = record_draws
        self._replay_path = None if replay_draws is None else normalized_path(replay_draws)
        self._copy_selection: dict[str, Any] | None = None
        selection = {
            "field_names": passthrough_copy_field_names,
            "field_names_scope_paths": passthrough_copy_field_names_scope_paths,
            "branch_paths": passthrough_copy_branch_paths,
        }
        if copy_external_source_passthrough_outputs:
            self._copy_selection = selection
        elif any(value is not None for value in selection.values()):
            raise SettingError(
                "Fields to copy are selected (`passthrough_copy_...`), which needs "
                "`copy_external_source_passthrough_outputs=True`, got "
                f"{copy_external_source_passthrough_outputs!r}."
            )

    def __repr__(self) -> str:
        """Return the input and the steps, a line for each."""
        steps = [f"step {number}: {summary(step)}" for number, step in enumerate(self._steps)]
        return "\n  ".join([type(self).__name__, f"input: {summary(self._data_input)}", *steps])

    @property
    def input_data_structure(self) -> SampleDataGroup:
        """Blueprint of the input."""
        blueprint: SampleDataGroup = self._data_input.used_sample_data_structure
        return blueprint

    @property
    def data_input(self) -> PipelineInput:
        """The input object."""
        return self._data_input

    def with_input(self, data_input: PipelineInput) -> PipelineDefinition:
        """Get a definition of the same steps and settings with another input."""
        _check_input(data_input)
        changed = copy.copy(self)
        changed._data_input = data_input
        return changed

    def check_and_get_output_data_structure(self) -> SampleDataGroup:
        """Check the steps against the format of the input, and get the format of the output.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            SettingError: The selection of fields to copy does not fit the output.
        """
        return self._fold()[0]

    def _fold(self) -> tuple[SampleDataGroup, DrawPlan, Copier | None]:
        blueprint = self.input_data_structure.get_empty_like_self()
        replayed = None if self._replay_path is None else take_group(blueprint, self._replay_path)
        draws = DrawPlan(blueprint.format)
        names: set[Name] = set()

        def on_step(num_steps_done: int, blueprint: SampleDataGroup) -> None:
            names.update(name for path in blueprint.format.flat_paths for name in path)
            if self._print_formats:
                _print_format(num_steps_done, blueprint)

        output = fold_format(blueprint, self._steps, on_step, draws)
        if replayed is not None and self._replay_path is not None:
            require_fitting_record(replayed.format, draws.draws, self._replay_path)
        if self._record_name is not None:
            output = with_record(output, self._record_name, draws.draws)
        return output, draws, self._make_copier(output, names)

    def _make_copier(self, output: SampleDataGroup, known_names: Collection[Name]) -> Copier | None:
        if self._copy_selection is None:
            return None
        try:
            return _InsertCopyForPassthrough(output, **self._copy_selection, removed_names=known_names)
        except SettingError as error:
            raise SettingError(
                f"Invalid pass-through output copy configuration for final output format: {error}"
            ) from error

    def get_dali_pipeline(
        self, *args: Any, worker_init_fn: Callable[[int], object] | None = None, **kwargs: Any
    ) -> Pipeline:
        """Make a DALI pipeline.

        The outputs of the pipeline are the data fields of the output format, in the order of its
        ``field_names_flat``. Texts are padded with zeros to the length of the longest in the batch.

        Args:
            *args: Arguments of `nvidia.dali.Pipeline`, in its order.
            worker_init_fn: Called once in each worker process, with its number from 0, before it loads its first
                sample and after the generators of Python, NumPy and PyTorch were seeded there; not called where
                the input runs in this process. Spawned workers need one that can be pickled.
            **kwargs: Arguments of `nvidia.dali.Pipeline` by name, and ``enable_conditionals`` (for steps that
                use ``if`` on data) and ``debug`` of DALI's ``pipeline_def``. Not given: ``batch_size`` is the
                input's where the input has one, ``num_threads`` is the number of usable cores divided by the
                number of ranks on this machine, and ``device_id`` is None, which means the CPU. With
                ``py_num_workers=0`` the input runs in this process. ``seed`` is also the
                seed of the draws that steps declare, which is 0 if not given; DALI's operators get another one,
                derived from it, on each shard but the first.

        Returns:
            A `StructuredPipeline`, not built yet; with ``debug=True`` DALI's debug pipeline.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            DeviceError: A step needs a GPU, and none is usable.
            SettingError: An argument is unknown or breaks a rule, e.g. a batch size other than the input's; or the
                input cannot supply what a random draw is keyed by.
        """
        if worker_init_fn is not None and not callable(worker_init_fn):
            raise SettingError(
                f"`worker_init_fn` must be a function of the worker number, got {worker_init_fn!r}."
            )
        arguments = _normalised_arguments(args, kwargs)
        parts = InputParts.of(self._data_input)
        unbound = None if parts.main is None else parts.main.source
        if isinstance(unbound, PlannedInput) and unbound.batch_size is None and "batch_size" in arguments:
            bound = unbound.with_settings(batch_size=arguments["batch_size"])
            changed = self.with_input(parts.with_main(bound))
            return changed.get_dali_pipeline(worker_init_fn=worker_init_fn, **arguments)
        size = arguments.get("batch_size")
        if isinstance(unbound, ShuffledShardedInputCallable) and unbound.batch_size != size and _is_count(size):
            # The published input takes any batch size; only its `length` depends on the one that it was given.
            bound, consequence = unbound.for_pipeline(size)
            warn_user(consequence)
            changed = self.with_input(parts.with_main(bound))
            return changed.get_dali_pipeline(worker_init_fn=worker_init_fn, **arguments)
        output, plan, copier = self._fold()
        is_parallel = self._is_parallel and arguments.get("py_num_workers") != 0 and parts.main is not None
        _complete_arguments(arguments, self._data_input if parts.main is None else parts.main.source, is_parallel)
        seed = arguments.get("seed", 0)
        shard = parts.shard or Shard(0, 1)
        if "seed" in arguments:
            arguments["seed"] = _seed_of_shard(arguments["seed"], shard)
        # Workers share the work batch by batch, so with fewer batches in flight some would have nothing to do.
        num_ahead = max(self._prefetch_queue_depth, arguments.get("py_num_workers", 1))
        control = ControlBlock(arguments["batch_size"], _max_in_flight(arguments, num_ahead))
        draws = None if self._replay_path else self._keyed_draws(plan, parts, seed, shard, arguments["batch_size"])
        source = {}
        if parts.main is not None:
            replayed = None
            if self._replay_path is not None:
                replayed = ReplayedDraws.of(plan.draws, self._replay_path, parts.main_field_paths())
            rank = shard.shard_id if shard.num_shards > 1 else detected_rank()
            setup = WorkerSetup(seed, rank, worker_init_fn)
            source = self._source_arguments(
                parts.main.source, control, is_parallel, arguments, draws, replayed, num_ahead, setup
            )
        graph = _Graph(self, parts, source, copier, plan, seed=seed)
        lacks_gpu = arguments["device_id"] is not None and num_usable_gpus() == 0
        if lacks_gpu and arguments.get("debug"):  # DALI would abort the process
            raise DeviceError(
                f"device_id={arguments['device_id']} was asked for with debug=True, but no GPU is usable "
                f"here. Pass device_id=None to debug on the CPU."
            )
        pipeline = _define(graph, arguments)
        if graph.inspection.gpu_users and (lacks_gpu or arguments["device_id"] is None):
            _require_gpu(graph.inspection.gpu_users, arguments["device_id"])
        if lacks_gpu:
            # The graph is defined as for a GPU, to find out whether it needs one, and only once, since steps may
            # draw or count while they define it. Before it is built it can be moved.
            log_cpu_fallback_once(arguments["device_id"])
            move_to_cpu(pipeline)
            arguments["device_id"] = None
        if arguments.get("debug"):
            return pipeline
        context = PipelineContext(
            output_blueprint=output,
            control=control,
            data_input=self._data_input if parts.main is None else parts.main.source,
            native={part.operator_name: part.source for part in parts.native},
            has_workers=parts.main is not None,
            check_dtypes=self._check_data_format,
            source_outputs=[*map(format_path, parts.main_field_paths()), *map(str, plan.draws)],
            last_changed_by=graph.last_changed_by,
            diagnose=_cannot_diagnose
            if parts.native
            else FailureDiagnosis(
                self._data_input,
                control,
                arguments["batch_size"],
                output.format,
                lambda flat, field, steps: self._make_pipeline_of_one(flat, field, steps, arguments, plan),
                [step_name(step) for step in self._steps],
                draws,
            ),
        )
        return StructuredPipeline.adopt(pipeline, context)

    def _keyed_draws(
        self, plan: DrawPlan, parts: InputParts, seed: int, shard: Shard, batch_size: int
    ) -> KeyedDraws | None:
        paths = parts.main_field_paths()
        require_keys(plan.draws, self._data_input if parts.main is None else parts.main.source, paths)
        if not plan.draws or not parts.has_callable:
            return None
        pair = (shard.shard_id, shard.num_shards)
        return KeyedDraws(plan.draws, paths, seed, shard=pair, batch_size=batch_size)

    def _source_arguments(
        self,
        data_input: Any,
        control: ControlBlock,
        is_parallel: bool,
        arguments: PipelineArguments,
        draws: KeyedDraws | None,
        replayed: ReplayedDraws | None,
        num_ahead: int,
        setup: WorkerSetup,
    ) -> dict[str, Any]:
        is_callable = callable(data_input)
        source = (CallableSource if is_callable else IterableSource)(
            data_input,
            data_input.used_sample_data_structure.format,
            control,
            is_parallel,
            pickler_functions(arguments.get("py_callback_pickler")),
            arguments["batch_size"],
            draws,
            replayed,
            setup,
        )
        return {
            "source": source,
            "batch": True,
            "batch_info": True if is_callable else None,
            "parallel": is_parallel,
            "prefetch_queue_depth": num_ahead if is_parallel else None,
            "cycle": None if is_callable else "raise",
        }

    def _make_pipeline_of_one(
        self,
        flat: Sequence[Any],
        output: int | None,
        num_steps: int | None,
        arguments: PipelineArguments,
        plan: DrawPlan,
    ) -> Pipeline:
        source = {"source": lambda: [[array] for array in flat], "batch": True, "parallel": False}
        parts = InputParts.of(self._data_input)
        graph = _Graph(self, parts, source, None, plan, only_output=output, num_steps=num_steps)
        kept: PipelineArguments = {}
        for name in ("device_id", "seed", "enable_conditionals"):
            if name in arguments:
                kept[name] = arguments[name]
        for name in ("output_dtype", "output_ndim", "output_layout"):
            value = None if num_steps is not None else arguments.get(name)
            kept[name] = value[output] if isinstance(value, list) and output is not None else value
        return _define(
            graph,
            {
                **kept,
                "batch_size": 1,
                "num_threads": 1,
                "prefetch_queue_depth": 1,
            },
        )


@attrs.define
class _Graph:
    """Defines the operators of a pipeline.

    Attributes:
        definition: What to define.
        parts: Its input.
        source: Arguments for ``fn.external_source`` beside the format.
        copier: Inserts copies of pass-through outputs, or None.
        plan: The random draws of the steps. The input supplies them after the fields if it is a callable, or as a
            group of the sample if they are replayed; otherwise DALI's generators draw.
        only_output: Flat position of the only output to keep; None for all.
        num_steps: How many of the steps to define; None for all, and what is added to the output.
        seed: Seed of the pipeline.
        inspection: Which steps have operators on a GPU, or random ones.
        last_changed_by: Filled while the graph is defined: per output field, what set it last.
    """

    definition: PipelineDefinition
    parts: InputParts
    source: Mapping[str, Any]
    copier: Copier | None
    plan: DrawPlan
    only_output: int | None = None
    num_steps: int | None = None
    seed: int = 0
    inspection: GraphInspection = attrs.field(factory=GraphInspection, init=False)
    last_changed_by: list[str] = attrs.field(factory=list)
    _num_steps_done: int = attrs.field(default=0, init=False)
    _values: dict[FieldPath, tuple[Any, str]] = attrs.field(factory=dict, init=False)
    _supply: DrawSupply = attrs.field(factory=DrawSupply, init=False)

    def define(self) -> tuple[DataNode, ...]:
        """Define the graph in the current pipeline and return its outputs."""
        data = self._input()
        with self._supply:
            for step in self.definition._steps[: self.num_steps]:
                data = step(data)
                self._note_changes(data, step)
        return self._outputs(data)

    def describe_failure(self, error: Exception) -> None:
        """Add to an exception which step defined its operators when it was raised."""
        if not self._values or self._num_steps_done == len(self.definition._steps):
            return
        step = self.definition._steps[self._num_steps_done]
        note = f"raised while step {self._num_steps_done} ({type(step).__name__}) defined its operators"
        if isinstance(error, TypeError) and NO_CONDITIONALS in str(error):
            note += "; `if` on data needs get_dali_pipeline(enable_conditionals=True)"
        if hasattr(error, "add_note"):  # Python >= 3.11
            error.add_note(note)

    @do_not_convert
    def _input(self) -> SampleDataGroup:
        data = self.definition.input_data_structure.get_empty_like_self()
        data.set_apply_mapping(False)
        data.set_do_check_type(self.definition._check_data_format)
        self._supply = DrawSupply(self.plan)
        self.inspection = GraphInspection()
        data.set_data([node for part in self.parts.parts for node in self._define_part(part)])
        if self.definition._replay_path is not None:
            replayed = take_group(data, self.definition._replay_path)
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
        supplies_draws = self.parts.has_callable and self.definition._replay_path is None
        dtypes += [planned.draw.dtype for planned in self.plan.draws] if supplies_draws else []
        nodes = fn.external_source(num_outputs=len(dtypes), dtype=dtypes, **self.source)
        if supplies_draws:
            self._supply = DrawSupply(self.plan, nodes[num_fields:])
        return nodes[:num_fields]

    @do_not_convert
    def _outputs(self, data: SampleDataGroup) -> tuple[DataNode, ...]:
        if self.definition._record_name is not None and self.num_steps is None:
            self._add_record(data, self.definition._record_name)
        self.last_changed_by[:] = [self._values[path][1] for path in data.format.flat_paths]
        data.ensure_uniform_size_in_batch_for_all_strings()
        if self.copier is not None:
            data = self.copier(data)
        outputs = data.get_data()
        return tuple(outputs) if self.only_output is None else (outputs[self.only_output],)

    @do_not_convert
    def _add_record(self, data: SampleDataGroup, name: Name) -> None:
        if self.definition._must_declare_draws:
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


def _define(graph: _Graph, arguments: PipelineArguments) -> Pipeline:
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


def _require_gpu(users: Mapping[str, Iterable[str]], device_id: int | None) -> None:
    if num_usable_gpus() > 0:
        return
    listed = bullets(f"{step}: {', '.join(names)}" for step, names in users.items())
    if device_id is None:
        rule = "No GPU is usable here (no CUDA driver, or no device), but these steps use one:"
        advice = (
            "Let them choose the CPU where `Pipeline.current().device_id` is None, as steps of this package do."
        )
    else:
        rule = (
            f"device_id={device_id} was asked for, but no GPU is usable here (no CUDA driver, or no device), and "
            f"these steps use one:"
        )
        advice = "Pass device_id=None to run on the CPU; steps of this package then choose the CPU themselves."
    raise DeviceError(f"{rule}\n{listed}\n{advice}")


def _cannot_diagnose(epoch: int, batch: int, batch_in_all: int) -> tuple[str, tuple[int, ...]]:
    return "Which samples form the batch is not known: native readers of DALI do not tell.", ()


def _check_input(data_input: Any) -> None:
    if isinstance(data_input, NativeInput):
        return
    if isinstance(data_input, JoinedInput):
        if data_input.main is not None:
            _check_input(data_input.main)
        return
    if isinstance(data_input, DataProvider):
        raise SettingError(
            f"{type(data_input).__name__} is a data provider, which knows no order. Wrap it in an input, e.g. "
            f"ShuffledShardedInputCallable(provider, batch_size)."
        )
    if not callable(data_input) and not (hasattr(data_input, "__iter__") and hasattr(data_input, "__next__")):
        raise SettingError(
            f"The input must be a callable (see CallableBase), an iterable (see IterableBase), a native reader "
            f"(see ReaderInput) or a JoinedInput, got {type(data_input).__name__}."
        )
    if not hasattr(data_input, "used_sample_data_structure"):
        raise SettingError(
            f"The input must have the property `used_sample_data_structure`, the blueprint of its samples; "
            f"{type(data_input).__name__} has none. Derive it from CallableBase or IterableBase."
        )


def _checked_steps(steps: Sequence[PipelineStepBase | None] | None) -> tuple[PipelineStepBase, ...]:
    if isinstance(steps, PipelineStepBase):
        raise SettingError(f"`preprocess_functors` must be a sequence of steps, got a single one: {steps!r}.")
    kept = tuple(step for step in steps or () if step is not None)
    for index, step in enumerate(kept):
        if not isinstance(step, PipelineStepBase):
            hint = " (a class: create an object of it)" if isinstance(step, type) else ""
            raise SettingError(f"Step {index} must be a PipelineStepBase, got {step!r}{hint}.")
    return kept


def _print_format(num_steps_done: int, blueprint: SampleDataGroup) -> None:
    title = "Input format:" if num_steps_done == 0 else f"Format after step {num_steps_done - 1}:"
    print(f"{title}\n{blueprint.get_string_no_details()}")  # noqa: T201 (asked for by an argument)


def _normalised_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> PipelineArguments:
    """All arguments by name, without those that only say "not given"."""
    parameters = [name for name in inspect.signature(Pipeline.__init__).parameters if name != "self"]
    if len(args) > len(parameters):
        raise SettingError(f"get_dali_pipeline takes at most {len(parameters)} arguments, got {len(args)}.")
    arguments = dict(zip(parameters, args, strict=False))
    known = {*parameters, "enable_conditionals", "debug"}
    for name, value in kwargs.items():
        if name in arguments:
            raise SettingError(f"The argument `{name}` was given twice, by position and by name.")
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise SettingError(f"`{name}` is not an argument of a DALI pipeline.{hint}")
        arguments[name] = value
    for name, value in arguments.items():
        if isinstance(value, np.integer):
            arguments[name] = int(value)
    for name, not_given in _LEGACY_NOT_GIVEN.items():
        value = arguments.get(name)
        if value is None or (isinstance(value, int) and value == not_given):
            arguments.pop(name, None)
    return arguments


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _max_in_flight(arguments: PipelineArguments, num_ahead: int) -> int:
    """How many batches can be loaded or wait for delivery at a time."""
    depth = arguments.get("prefetch_queue_depth", 2)
    depths = depth.values() if isinstance(depth, Mapping) else [depth]
    return max(64, num_ahead + sum(each for each in depths if isinstance(each, int)) + 2)


def _seed_of_shard(seed: Any, shard: Shard) -> Any:
    """The seed of DALI's random operators. With the same seed they would draw the same numbers on all shards."""
    if shard.shard_id == 0 or not isinstance(seed, int):
        return seed
    return derive_key("shard", seed, shard.shard_id) >> 33


def _complete_arguments(arguments: PipelineArguments, data_input: Any, is_parallel: bool) -> None:
    expected = InputAdapter(data_input).batch_size
    batch_size = arguments.setdefault("batch_size", expected)
    if batch_size is None:
        raise SettingError("`batch_size` must be given, since the input does not tell its batch size.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise SettingError(f"`batch_size` must be a whole number of at least 1, got {batch_size!r}.")
    if expected is not None and batch_size > expected and not callable(data_input):
        # DALI takes smaller batches, so this has always worked.
        warn_user(
            f"{type(data_input).__name__} delivers batches of {expected} samples (on this shard), the pipeline "
            f"has batch_size={batch_size}: batches have {expected} samples."
        )
    elif expected is not None and batch_size != expected:
        raise SettingError(
            f"The batch sizes of input and pipeline must be equal: {type(data_input).__name__} is set up for "
            f"{expected} samples per batch (on this shard), the pipeline for batch_size={batch_size}. Leave "
            f"`batch_size` out here to use the input's."
        )
    arguments.setdefault("num_threads", num_cores_of_rank())
    arguments.setdefault("device_id", None)
    device_id = arguments["device_id"]
    if device_id == cast(Any, types).CPU_ONLY_DEVICE_ID:
        arguments["device_id"] = device_id = None
    if device_id is not None and (isinstance(device_id, bool) or not isinstance(device_id, int) or device_id < 0):
        raise SettingError(f"`device_id` must be None (the CPU) or the number of a GPU, got {device_id!r}.")
    for name, least in (("num_threads", 1), ("py_num_workers", 0)):
        value = arguments.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
    start_method = arguments.get("py_start_method", "fork")
    if start_method not in ("fork", "spawn", "forkserver"):
        raise SettingError(f"`py_start_method` must be 'fork', 'spawn' or 'forkserver', got {start_method!r}.")
    if not is_parallel:
        return
    if not callable(data_input):
        arguments["py_num_workers"] = 1  # an iterable has a state, so DALI runs it in one worker
    if arguments.get("exec_pipelined") is False:
        raise SettingError(
            "`exec_pipelined=False` does not work with worker processes: DALI then never asks them for data. "
            "Leave it out, or use `use_parallel_external_source=False`."
        )
    if start_method == "fork" and arguments.get("py_callback_pickler") is not None:
        raise SettingError("`py_callback_pickler` has no use with forked workers; use py_start_method='spawn'.")
