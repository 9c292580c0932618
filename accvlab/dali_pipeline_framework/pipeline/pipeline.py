# SPDX-License-Identifier: Apache-2.0
"""The definition of a pipeline: an input, and what is done to its samples."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ..checks import choice, flag, whole_number
from ..draws.draw_records import take_group, with_record
from ..draws.draw_scope import DrawPlan
from ..engine.gpu import log_cpu_fallback_once, move_to_cpu, num_usable_gpus
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import DeviceError, SettingError
from ..processing_steps.pipeline_step_base import RUN_CHOICES, PipelineStepBase, RunWhere
from ..providers.summary import summary
from ..sample_data import Name, Path, SampleDataGroup, normalized_path
from ..sample_data.folded_formats import FoldedFormat
from ..sources.callable_base import CallableBase
from ..sources.input_adapter import InputAdapter
from ..sources.input_parts import InputParts
from ..sources.iterable_base import IterableBase
from ..sources.joined_input import JoinedInput
from ..sources.native_input import NativeInput
from ..sources.planned_input import PlannedInput
from ..sources.shards import Shard, detected_rank
from ..unknown_arguments import explains_unknown_arguments
from ..user_warnings import warn_user
from ._insert_copy_for_passthrough import PathType, _InsertCopyForPassthrough
from .chain_format import chain_description, chain_format, step_name
from .definition_checks import check_input, checked_steps, require_gpu
from .pipeline_arguments import (
    PipelineArguments,
    complete_arguments,
    is_count,
    max_in_flight,
    normalised_arguments,
    seed_of_shard,
)
from .placement import Placement, place_steps

# What only making a pipeline needs is imported there: imports take time, and whoever imports a definition need not
# make a pipeline of it in this process.
if TYPE_CHECKING:
    from ..draws.keyed_draws import KeyedDraws
    from ..engine.control_block import ControlBlock
    from ..engine.worker_process import WorkerSetup
    from ..providers.replayed_draws import ReplayedDraws
    from .array_steps import ArraySteps
    from .graph import Copier, Graph
    from .sent_items import SentItems

PipelineInput: TypeAlias = CallableBase | IterableBase | NativeInput | JoinedInput

_DEFAULT_DEPTH = 2


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
    _evens_out = False  # whether workers load further ahead than was asked for, where nothing was

    @explains_unknown_arguments(dict.fromkeys(("steps", "transforms"), "preprocess_functors"))
    def __init__(
        self,
        data_loading_callable_iterable: PipelineInput,
        preprocess_functors: Sequence[PipelineStepBase | None] | None = None,
        check_data_format: bool = True,
        use_parallel_external_source: bool = True,
        prefetch_queue_depth: int = _DEFAULT_DEPTH,
        print_sample_data_group_format: bool = False,
        copy_external_source_passthrough_outputs: bool | None = None,
        passthrough_copy_field_names: Sequence[Name] | None = None,
        passthrough_copy_field_names_scope_paths: Sequence[PathType] | None = None,
        passthrough_copy_branch_paths: Sequence[PathType] | None = None,
        *,
        record_draws: Name | None = None,
        replay_draws: Path | None = None,
        fold_arrays: bool = True,
        run: RunWhere = "graph",
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
                that vary, and takes shared memory for each batch. With 2, a `DataLoader` chooses by itself (see
                there).
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
            fold_arrays: Whether steps that treat elements alike are applied once to all elements of an array (e.g.
                all cameras), instead of once to each. The results are the same, and there sooner.
            run: Where steps run that have a form for arrays (see `PipelineStepBase`). ``"graph"``: in the graph,
                as far as no step behind them works on arrays only. ``"workers"``: in the workers, up to the first
                step that has a form for the graph only. ``"auto"``: in the graph if it has a GPU; otherwise as
                many steps in the workers as make an image cost least processor time. Pixels may differ between
                the forms, within the tolerance that each step states (``image_tolerance``).

        Raises:
            SettingError: An argument breaks a rule, or a step that must run in the workers stands behind one that
                cannot; also when fields are selected for copying without
                ``copy_external_source_passthrough_outputs=True``.
        """
        check_input(data_loading_callable_iterable)
        self._data_input = data_loading_callable_iterable
        self._steps = checked_steps(preprocess_functors)
        self._check_data_format = check_data_format
        self._is_parallel = use_parallel_external_source
        self._prefetch_queue_depth = whole_number(prefetch_queue_depth, "prefetch_queue_depth", at_least=1)
        self._print_formats = print_sample_data_group_format
        self._record_name = record_draws
        self._fold_arrays = flag(fold_arrays, "fold_arrays")
        self._run = choice(run, "run", RUN_CHOICES)
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
        self._placement(has_gpu=False)

    def __repr__(self) -> str:
        """Return the input and the steps, a line for each."""
        name = type(self).__name__ + ("" if self._run == "graph" else f" (run={self._run!r})")
        return "\n  ".join([name, *self.chain_lines()])

    def chain_lines(self, num_in_workers: int = 0) -> list[str]:
        """Say what the input and the steps are, a line for each; the first steps may be marked."""
        lines = [f"input: {summary(self._data_input)}"]
        for number, step in enumerate(self._steps):
            mark = " [on arrays, in the workers]" if number < num_in_workers else ""
            lines.append(f"step {number}: {summary(step)}{mark}")
        return lines

    @property
    def input_data_structure(self) -> SampleDataGroup:
        """Blueprint of the input."""
        blueprint: SampleDataGroup = self._data_input.used_sample_data_structure
        return blueprint

    @property
    def data_input(self) -> PipelineInput:
        """The input object."""
        return self._data_input

    @property
    def uses_workers(self) -> bool:
        """Whether the input may run in worker processes."""
        return self._is_parallel

    def with_input(self, data_input: PipelineInput) -> PipelineDefinition:
        """Get a definition of the same steps and settings with another input."""
        check_input(data_input)
        changed = copy.copy(self)
        changed._data_input = data_input
        changed._placement(has_gpu=False)
        return changed

    def with_run(self, run: RunWhere) -> PipelineDefinition:
        """Get the same definition, with steps that run elsewhere."""
        changed = copy.copy(self)
        changed._run = choice(run, "run", RUN_CHOICES)
        changed._placement(has_gpu=False)
        return changed

    def _placement(self, has_gpu: bool) -> Placement:
        is_native = bool(InputParts.of(self._data_input).native)
        refusal = "operators of DALI read the samples, or a part of them, so that workers have none" * is_native
        return place_steps(self._steps, self._run, has_gpu=has_gpu, refusal=refusal)

    def evened_out(self) -> PipelineDefinition:
        """Get the same definition, whose workers load as far ahead as it takes to even out loading times.

        A depth that was asked for is kept (a ``prefetch_queue_depth`` other than 2).
        """
        changed = copy.copy(self)
        changed._evens_out = True
        return changed

    def check_and_get_output_data_structure(self) -> SampleDataGroup:
        """Check the steps against the format of the input, and get the format of the output.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            SettingError: The selection of fields to copy does not fit the output.
        """
        return self._output()[0]

    def _output(self) -> tuple[SampleDataGroup, DrawPlan, Copier | None]:
        blueprint = self.input_data_structure.get_empty_like_self()
        replayed = None if self._replay_path is None else take_group(blueprint, self._replay_path)
        draws = DrawPlan(blueprint.format)
        names: set[Name] = set()

        def on_step(num_steps_done: int, blueprint: SampleDataGroup) -> None:
            names.update(name for path in blueprint.format.flat_paths for name in path)
            if self._print_formats:
                _print_format(num_steps_done, blueprint)

        output = chain_format(blueprint, self._steps, on_step, draws)
        if replayed is not None and self._replay_path is not None:
            from ..providers.replayed_draws import require_fitting_record

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

    def describe(self) -> str:
        """Describe input, output, and what each step adds (+), removes (-) and changes (~), field by field.

        Raises:
            FormatError: The steps do not fit the data; lists all problems.
        """
        return chain_description(self.input_data_structure, self._steps)

    def plan(self, **arguments: Any) -> str:
        """Say how a pipeline works on arrays, and how the fields travel.

        Args:
            **arguments: Arguments of `get_dali_pipeline`.

        Returns:
            Text with a line for each step, which tells whether it is applied once to all elements of an array or
            to each of them, and why; the last line tells how many fields are packed, since no step touches them.
        """
        pipeline = self.get_dali_pipeline(**arguments)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError(
                "There is no plan of a pipeline with debug=True: its graph is defined batch by batch."
            )
        try:
            return pipeline.plan
        finally:
            pipeline.close()

    def step_by_step(
        self, position: int = 0, *, epoch: int = 0, seed: int = 0
    ) -> Iterator[tuple[str, SampleDataGroup]]:
        """Load a sample and apply the steps to it one by one, on arrays, without a pipeline: to look at each.

        Args:
            position: Position of the sample in the epoch, of those of this shard.
            epoch: The epoch.
            seed: Seed of the random draws, which are those of a pipeline with this seed.

        Yields:
            ``"input"``, or number and class of the step, and the sample after it.

        Raises:
            SettingError: The input is not a callable, or draws are replayed, or there is no such sample.
            NotSupportedError: A step has a form for the graph only.
            Exception: What loading and the steps raise.
        """
        from ..engine.samples.sample_steps import SampleStepError
        from .array_steps import ArraySteps

        parts = InputParts.of(self._data_input)
        if not callable(self._data_input) or self.replays_draws:
            raise SettingError(
                f"`step_by_step` needs a callable input, which loads a sample at any position, and draws that are "
                f"not replayed; the input is {summary(self._data_input)}."
            )
        steps = ArraySteps(self.input_data_structure.format, self._steps)
        batch_size = InputAdapter(self._data_input).batch_size or 1
        batch, slot = divmod(whole_number(position, "position", at_least=0), batch_size)
        info = types.SampleInfo(position, slot, batch, whole_number(epoch, "epoch", at_least=0))
        try:
            flat = self._data_input(info)
        except StopIteration:
            raise SettingError(f"Epoch {epoch} has no sample at position {position}.") from None
        draws = DrawPlan(steps.input_format)
        draws.draws += steps.draws
        keyed = self._keyed_draws(draws, parts, seed, parts.shard or Shard(0, 1), batch_size, False)
        numbers = [] if keyed is None else [each[0] for each in keyed.of_batch(self._data_input, [info], [flat])]
        try:
            yield from steps.walk(flat, numbers.__getitem__)
        except SampleStepError as error:
            raise error.__cause__ or error from None

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
        from ..engine.control_block import ControlBlock
        from ..engine.failure_diagnosis import FailureDiagnosis
        from ..engine.load_ahead import evening_depth
        from ..engine.pipeline_context import PipelineContext
        from ..engine.transport import TransportLayout
        from ..engine.worker_process import WorkerSetup
        from .graph import define_pipeline, define_pipeline_of_one
        from .sent_items import SentItems, unused_names

        arguments = normalised_arguments(args, kwargs)
        parts = InputParts.of(self._data_input)
        unbound: Any = None if parts.main is None else parts.main.source
        if isinstance(unbound, PlannedInput) and unbound.batch_size is None and "batch_size" in arguments:
            bound = unbound.with_settings(batch_size=arguments["batch_size"])
            changed = self.with_input(parts.with_main(bound))
            return changed.get_dali_pipeline(worker_init_fn=worker_init_fn, **arguments)
        size = arguments.get("batch_size")
        takes_any_size = isinstance(unbound, PlannedInput) and unbound.takes_any_batch_size
        if takes_any_size and unbound.batch_size != size and is_count(size):
            bound, consequence = unbound.for_pipeline(size)
            warn_user(consequence)
            changed = self.with_input(parts.with_main(bound))
            return changed.get_dali_pipeline(worker_init_fn=worker_init_fn, **arguments)
        output, plan, copier = self._output()
        is_parallel = self._is_parallel and arguments.get("py_num_workers") != 0 and parts.main is not None
        complete_arguments(arguments, self._data_input if parts.main is None else parts.main.source, is_parallel)
        seed = arguments.get("seed", 0)
        shard = parts.shard or Shard(0, 1)
        if "seed" in arguments:
            arguments["seed"] = seed_of_shard(arguments["seed"], shard)
        # Workers share the work batch by batch, so with fewer batches in flight some would have nothing to do.
        least_ahead = num_ahead = max(self._prefetch_queue_depth, arguments.get("py_num_workers", 1))
        if self._evens_out and is_parallel and self._prefetch_queue_depth == _DEFAULT_DEPTH:
            depth = evening_depth(arguments.get("py_num_workers", 1), arguments["batch_size"])
            num_ahead = max(num_ahead, depth)
        num_workers = arguments.get("py_num_workers", 1)
        control = ControlBlock(arguments["batch_size"], max_in_flight(arguments, num_ahead), num_workers)
        lacks_gpu = arguments["device_id"] is not None and num_usable_gpus() == 0
        has_gpu = arguments["device_id"] is not None and not lacks_gpu
        placement = self._placement(has_gpu)
        array_steps = self.array_steps(has_gpu)
        blueprint = self._blueprint_of_steps()
        if array_steps is not None:
            blueprint = SampleDataGroup.from_format(array_steps.output_format)
        draws = None
        if self._replay_path is None:
            is_for_steps = array_steps is not None and bool(array_steps.draws)
            draws = self._keyed_draws(plan, parts, seed, shard, arguments["batch_size"], is_for_steps)
        source = {}
        replayed = None
        if parts.main is not None:
            if self._replay_path is not None:
                from ..providers.replayed_draws import ReplayedDraws

                replayed = ReplayedDraws.of(plan.draws, self._replay_path, parts.main_field_paths())
            rank = shard.shard_id if shard.num_shards > 1 else detected_rank()
            setup = WorkerSetup(seed, rank, worker_init_fn)
            source = self._source_arguments(
                parts.main.source, control, is_parallel, arguments, draws, replayed, num_ahead, setup, array_steps
            )
        is_debug = bool(arguments.get("debug"))
        if lacks_gpu and is_debug:  # DALI would abort the process
            raise DeviceError(
                f"device_id={arguments['device_id']} was asked for with debug=True, but no GPU is usable "
                f"here. Pass device_id=None to debug on the CPU."
            )
        # Steps may draw or count while they define the graph, so that is done once, unless less can be folded.
        about_outputs = ("output_dtype", "output_ndim", "output_layout")
        is_packed = not is_debug and all(arguments.get(name) is None for name in about_outputs)
        sent = SentItems.of(
            parts, plan.draws, array_steps, is_drawn=draws is not None, replay_path=self._replay_path
        )
        in_graph = functools.partial(
            self._graph,
            blueprint,
            placement.num_in_workers,
            parts,
            sent,
            plan,
        )
        graph = in_graph(
            source,
            copier,
            seed=seed,
            is_packed=is_packed,
            num_slots=self._num_slots(parts, blueprint, placement.num_in_workers) if is_packed else 1,
            operator_seed=arguments.get("seed"),
        )
        batch_size = arguments["batch_size"]
        pipeline = define_pipeline(graph, {**arguments, "batch_size": batch_size * graph.num_slots})
        if graph.num_slots > 1 and graph.num_slots_used < graph.num_slots:
            graph.num_slots = graph.num_slots_used
            pipeline = define_pipeline(graph, {**arguments, "batch_size": batch_size * graph.num_slots})
        if graph.inspection.gpu_users and (lacks_gpu or arguments["device_id"] is None):
            require_gpu(graph.inspection.gpu_users, arguments["device_id"])
        if lacks_gpu:
            # The graph is defined as for a GPU, to find out whether it needs one, and only once, since steps may
            # draw or count while they define it. Before it is built it can be moved.
            log_cpu_fallback_once(arguments["device_id"])
            move_to_cpu(pipeline)
            arguments["device_id"] = None
        names = graph.sent.names(plan.draws, num_used=0 if array_steps is None else len(array_steps.draws))
        if parts.main is not None:
            layout = graph.delivery.layout if is_packed else TransportLayout.of_plain(len(names))
            source["source"].layout = layout
        if is_debug:  # its graph is defined batch by batch
            return pipeline
        context = PipelineContext(
            output_blueprint=output,
            control=control,
            data_input=self._data_input if parts.main is None else parts.main.source,
            native={part.operator_name: part.source for part in parts.native},
            has_workers=parts.main is not None,
            check_dtypes=self._check_data_format,
            delivery=graph.delivery,
            plan="\n".join([*self._lines_of_placement(placement), graph.plan_text]),
            steps_in_workers=placement.num_in_workers,
            not_folded=graph.not_folded,
            merged_fields=graph.merged_fields,
            batch_size=batch_size,
            unused_fields=unused_names(graph.delivery.layout, names),
            last_changed_by=graph.last_changed_by,
            worker_source=source.get("source"),
            least_ahead=least_ahead,
            diagnose=_cannot_diagnose
            if parts.native
            else FailureDiagnosis(
                self._data_input,
                control,
                arguments["batch_size"],
                output.format,
                functools.partial(define_pipeline_of_one, in_graph, arguments),
                [step_name(step) for step in graph.steps],
                draws,
                array_steps,
                replayed,
                placement.num_in_workers,
            ),
        )
        return StructuredPipeline.adopt(pipeline, context)

    @property
    def replays_draws(self) -> bool:
        """Whether random draws come with the samples."""
        return self._replay_path is not None

    def array_steps(self, has_gpu: bool = False) -> ArraySteps | None:
        """Get the steps that run in the workers; None where all run in the graph."""
        from .array_steps import ArraySteps

        count = self._placement(has_gpu).num_in_workers
        return ArraySteps(self._blueprint_of_steps().format, self._steps[:count]) if count else None

    def _blueprint_of_steps(self) -> SampleDataGroup:
        """Blueprint of the samples, as the first step gets them."""
        blueprint = self.input_data_structure.get_empty_like_self()
        blueprint.set_apply_mapping(False)
        if self._replay_path is not None:
            take_group(blueprint, self._replay_path)
        return blueprint

    def _lines_of_placement(self, placement: Placement) -> list[str]:
        count = placement.num_in_workers
        if not self._steps or (self._run == "graph" and count == 0):
            return []
        lines = [f"in the workers: {count} of {len(self._steps)} steps ({placement.reason})"]
        return [
            *lines,
            *(
                f"step {number} ({step_name(step)}): on arrays, in the workers"
                for number, step in enumerate(self._steps[:count])
            ),
        ]

    def _num_slots(self, parts: InputParts, blueprint: SampleDataGroup, first_step: int) -> int:
        """Entries of the batch of the pipeline per sample: as many as a field can be folded of."""
        in_graph = self._steps[first_step:]
        if not self._fold_arrays or parts.native or not any(step.treats_elements_alike for step in in_graph):
            return 1
        from .graph import MOST_ELEMENTS

        levels = FoldedFormat.of(blueprint.format, MOST_ELEMENTS).levels
        return max((level.count for level in levels), default=1)

    def _keyed_draws(
        self, plan: DrawPlan, parts: InputParts, seed: int, shard: Shard, batch_size: int, is_for_array_steps: bool
    ) -> KeyedDraws | None:
        from ..draws.keyed_draws import KeyedDraws
        from .draw_keys import require_keys

        paths = parts.main_field_paths()
        require_keys(plan.draws, self._data_input if parts.main is None else parts.main.source, paths)
        if not plan.draws or not (parts.has_callable or is_for_array_steps):
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
        array_steps: ArraySteps | None,
    ) -> dict[str, Any]:
        from ..engine.source_pickling import pickler_functions
        from ..engine.worker_source import CallableSource, IterableSource
        from .chain_format import with_image_files

        is_callable = callable(data_input)
        source = (CallableSource if is_callable else IterableSource)(
            data_input,
            with_image_files(data_input.used_sample_data_structure.format, self._steps),
            control,
            is_parallel,
            pickler_functions(arguments.get("py_callback_pickler")),
            arguments["batch_size"],
            draws,
            replayed,
            setup,
            array_steps,
        )
        return {
            "source": source,
            "batch": True,
            "batch_info": True if is_callable else None,
            "parallel": is_parallel,
            "prefetch_queue_depth": num_ahead if is_parallel else None,
            "cycle": None if is_callable else "raise",
        }

    def _graph(
        self,
        blueprint: SampleDataGroup,
        first_step: int,
        parts: InputParts,
        sent: SentItems,
        plan: DrawPlan,
        source: Mapping[str, Any],
        copier: Copier | None,
        **settings: Any,
    ) -> Graph:
        from .graph import Graph

        return Graph(
            blueprint,
            self._steps[first_step:],
            parts,
            sent,
            source,
            copier,
            plan,
            first_step=first_step,
            checks_data_format=self._check_data_format,
            record_name=self._record_name,
            must_declare_draws=self._must_declare_draws,
            **settings,
        )


def _cannot_diagnose(epoch: int, batch: int, batch_in_all: int) -> tuple[str, tuple[int, ...]]:
    return "Which samples form the batch is not known: native readers of DALI do not tell.", ()


def _print_format(num_steps_done: int, blueprint: SampleDataGroup) -> None:
    title = "Input format:" if num_steps_done == 0 else f"Format after step {num_steps_done - 1}:"
    print(f"{title}\n{blueprint.get_string_no_details()}")  # noqa: T201 (asked for by an argument)
