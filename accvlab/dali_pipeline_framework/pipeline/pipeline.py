# SPDX-License-Identifier: Apache-2.0
"""The definition of a pipeline: an input, and what is done to its samples."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs
from nvidia.dali import types
from nvidia.dali.pipeline import Pipeline

from ..checks import choice, flag, whole_number
from ..draws.draw_scope import DrawPlan
from ..draws.keyed_draws import LoadingSamples
from ..draws.random_draws import DrawSource
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import SettingError
from ..processing_steps.pipeline_step_base import RUN_CHOICES, PipelineStepBase, RunWhere
from ..providers.data_provider import summary
from ..sample_data import SampleDataGroup
from ..sample_data.names import Name
from ..sources.input_adapter import InputAdapter
from ..sources.input_bases import CallableBase, IterableBase
from ..sources.native_input import NativeInput
from ..unknown_arguments import explains_unknown_arguments
from ._insert_copy_for_passthrough import PathType
from .chain import DEFAULT_DEPTH, ArraySteps, Chain, chain_description
from .pipeline_arguments import check_input, checked_steps, normalised_arguments

PipelineInput: TypeAlias = CallableBase | IterableBase | NativeInput


class PipelineDefinition:
    """An input and a chain of processing steps, from which DALI pipelines are made.

    Example::

        definition = PipelineDefinition(
            ShuffledShardedInputCallable(provider, batch_size=4, shuffle=True),
            [ImageDecoder("image", use_device_mixed=True)],
        )
        pipeline = definition.get_dali_pipeline(num_threads=2, py_num_workers=2, py_start_method="spawn")
    """

    @explains_unknown_arguments
    def __init__(
        self,
        data_loading_callable_iterable: PipelineInput,
        preprocess_functors: Sequence[PipelineStepBase | None] | None = None,
        check_data_format: bool = True,
        use_parallel_external_source: bool = True,
        prefetch_queue_depth: int = DEFAULT_DEPTH,
        print_sample_data_group_format: bool = False,
        copy_external_source_passthrough_outputs: bool | None = None,
        passthrough_copy_field_names: Sequence[Name] | None = None,
        passthrough_copy_field_names_scope_paths: Sequence[PathType] | None = None,
        passthrough_copy_branch_paths: Sequence[PathType] | None = None,
        *,
        fold_arrays: bool = True,
        run: RunWhere = "graph",
    ) -> None:
        """Create the definition; nothing is loaded or built.

        Args:
            data_loading_callable_iterable: The input: a callable or an iterable that workers load, or a native
                reader (`ReaderInput`).
            preprocess_functors: The processing steps, in order. None entries are left out.
            check_data_format: Whether the types of the first batch (of native readers: of each) are compared with
                the declared format.
            use_parallel_external_source: Whether the input runs in worker processes.
            prefetch_queue_depth: Batches that the workers load ahead, at least one per worker. A deeper queue
                evens out varying loading times, and takes memory for each batch.
            print_sample_data_group_format: Whether to print the format after each step to stdout, each time a
                pipeline is made or the output format is requested.
            copy_external_source_passthrough_outputs: Whether output fields are copied on their way out. DALI
                since 2.3 does not need it. With True and no selection, all output fields are copied.
            passthrough_copy_field_names: Selects fields to copy by name; may name fields that a step removes.
            passthrough_copy_field_names_scope_paths: Groups in which to search for these names.
            passthrough_copy_branch_paths: Selects fields to copy by path; a group selects all below it.
            fold_arrays: Whether steps that treat elements alike are applied once to all elements of an array (e.g.
                all cameras), instead of once to each. The results are the same; it is faster.
            run: Where steps run. Pixels may differ between the forms, within the ``image_tolerance`` of each step.

                - ``"graph"``: the graph changes pixels, and workers compute all else. The first step that cannot
                  be divided like this (see `PipelineStepBase.declare_pixel_changes`), and those after it, run in
                  the graph as a whole. If a step has to run in the workers and may look at pixels, it and all
                  steps before it change pixels in the workers.
                - ``"workers"``: workers run all steps before the first that works in the graph only, pixels too.
                - ``"auto"`` with a GPU: as ``"graph"``.
                - ``"auto"`` without a GPU: as ``"workers"``, but the graph begins earlier: at the first step that
                  converts images to floating point, or after the last step with ``prefers_arrays`` (see
                  `PipelineStepBase`), whichever is later. If the steps before this place only decode images,
                  ``"auto"`` is ``"graph"``.

        Raises:
            SettingError: An argument breaks a rule, or a step that must run in the workers comes after one that
                cannot; also when fields are selected for copying without
                ``copy_external_source_passthrough_outputs=True``.
        """
        check_input(data_loading_callable_iterable)
        selection: dict[str, Any] = {
            "field_names": passthrough_copy_field_names,
            "field_names_scope_paths": passthrough_copy_field_names_scope_paths,
            "branch_paths": passthrough_copy_branch_paths,
        }
        if not copy_external_source_passthrough_outputs and any(value is not None for value in selection.values()):
            raise SettingError(
                "Fields to copy are selected (`passthrough_copy_...`), which needs "
                "`copy_external_source_passthrough_outputs=True`, got "
                f"{copy_external_source_passthrough_outputs!r}."
            )
        self._chain = Chain(
            data_input=data_loading_callable_iterable,
            steps=checked_steps(preprocess_functors),
            run=choice(run, "run", RUN_CHOICES),
            checks_data_format=check_data_format,
            is_parallel=use_parallel_external_source,
            prefetch_queue_depth=whole_number(prefetch_queue_depth, "prefetch_queue_depth", at_least=1),
            prints_formats=print_sample_data_group_format,
            copy_selection=selection if copy_external_source_passthrough_outputs else None,
            folds_arrays=flag(fold_arrays, "fold_arrays"),
        )

    def _with(self, **changes: Any) -> PipelineDefinition:
        changed = copy.copy(self)
        changed._chain = attrs.evolve(self._chain, **changes)
        return changed

    def __repr__(self) -> str:
        """Return the input and the steps, a line for each."""
        name = type(self).__name__ + ("" if self._chain.run == "graph" else f" (run={self._chain.run!r})")
        return "\n  ".join([name, *self.chain_lines()])

    def chain_lines(self, num_in_workers: int = 0) -> list[str]:
        """Make a line for the input and each step; the first ``num_in_workers`` steps are marked."""
        lines = [f"input: {summary(self.data_input)}"]
        for number, step in enumerate(self._chain.steps):
            mark = " [on arrays, in the workers]" if number < num_in_workers else ""
            lines.append(f"step {number}: {summary(step)}{mark}")
        return lines

    @property
    def input_data_structure(self) -> SampleDataGroup:
        """Blueprint of the input."""
        return self._chain.input_data_structure

    @property
    def data_input(self) -> PipelineInput:
        """The input object."""
        data_input: PipelineInput = self._chain.data_input
        return data_input

    @property
    def steps(self) -> tuple[PipelineStepBase, ...]:
        """The processing steps, in order."""
        return self._chain.steps

    @property
    def run(self) -> RunWhere:
        """Where steps run, if they have a form for arrays; the argument ``run``."""
        return self._chain.run

    def array_steps(self, has_gpu: bool = False) -> ArraySteps | None:
        """Get the steps that run in the workers; None if all run in the graph."""
        return self._chain.array_steps(self._chain.placement(has_gpu))

    def with_input(self, data_input: PipelineInput) -> PipelineDefinition:
        """Get a definition of the same steps and settings with another input."""
        check_input(data_input)
        return self._with(data_input=data_input)

    def fed_pipeline(self, worker_init_fn: Callable[[int], object] | None, **arguments: Any) -> Pipeline:
        """Make a pipeline that a pool of workers feeds; see `get_dali_pipeline`."""
        from .pipeline_making import make_pipeline

        return make_pipeline(self._chain, normalised_arguments((), arguments), worker_init_fn, is_fed=True)

    def for_trial(self, *, divides_steps: bool, draws: DrawSource | None) -> PipelineDefinition:
        """Get the same definition with other draws, and with steps divided (pixels in the graph) or not."""
        return self._with(divides_steps=divides_steps, given_draws=draws)

    def check_and_get_output_data_structure(self) -> SampleDataGroup:
        """Check the steps against the format of the input, and get the format of the output.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            SettingError: The selection of fields to copy does not fit the output.
        """
        return self._chain.output()[0]

    def describe(self) -> str:
        """Describe input, output, and what each step adds (+), removes (-) and changes (~), field by field.

        Raises:
            FormatError: The steps do not fit the data; lists all problems.
        """
        return chain_description(self.input_data_structure, self._chain.steps)

    def plan(self, **arguments: Any) -> str:
        """Say where each step runs, how it treats arrays of the format, and how fields are sent to the graph.

        Args:
            **arguments: Arguments of `get_dali_pipeline`.

        Returns:
            Text with a line for each step, which says whether it is applied once to all elements of an array or
            to each of them, and why; the last line says how many fields are packed, since no step touches them.
        """
        pipeline = self.get_dali_pipeline(**arguments)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError(
                "There is no plan of a pipeline with debug=True: its graph is defined batch by batch."
            )
        with contextlib.closing(pipeline):
            return pipeline.plan

    def step_by_step(
        self, position: int = 0, *, epoch: int = 0, seed: int = 0
    ) -> Iterator[tuple[str, SampleDataGroup]]:
        """Load a sample and apply the steps to it one by one, on arrays, without a pipeline: yields each result.

        Args:
            position: Position of the sample in the epoch, on this shard.
            epoch: The epoch.
            seed: Seed of the random draws, the same as in a pipeline with this seed.

        Yields:
            ``"input"``, or number and class of the step, and the sample after it.

        Raises:
            SettingError: The input is not a callable, or there is no such sample.
            NotSupportedError: A step has a form for the graph only.
            Exception: What loading and the steps raise.
        """
        from ..workers.samples import SampleStepError  # not needed to define a pipeline

        chain, data_input = self._chain, self._chain.data_input
        if not callable(data_input):
            problem = "`step_by_step` needs a callable input, which loads a sample at any position"
            raise SettingError(f"{problem}; the input is {summary(data_input)}.")
        steps = ArraySteps(self.input_data_structure.format, chain.steps)
        batch_size = InputAdapter(data_input).batch_size or 1
        batch, slot = divmod(whole_number(position, "position", at_least=0), batch_size)
        info = types.SampleInfo(position, slot, batch, whole_number(epoch, "epoch", at_least=0))
        try:
            seeds = chain.sample_seeds(seed, batch_size)
            loading = LoadingSamples(seeds, data_input, keeps_generators=True, info=info)
            flat = loading.run(functools.partial(data_input, info))
        except StopIteration:
            raise SettingError(f"Epoch {epoch} has no sample at position {position}.") from None
        draws = DrawPlan(steps.input_format)
        draws.draws += steps.draws
        keyed = chain.keyed_draws(draws, seed, batch_size, None)
        numbers = [] if keyed is None else [each[0] for each in keyed.of_batch(data_input, [info], [flat])]
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
                sample and after the generators of Python, NumPy and PyTorch were seeded there; not called if the
                input runs in this process. It must be picklable, except with ``py_start_method="fork"``.
            **kwargs: Arguments of `nvidia.dali.Pipeline` by name, and ``enable_conditionals`` (for steps that use
                ``if`` on data) and ``debug`` of DALI's ``pipeline_def``. Other than in DALI:

                - ``batch_size``: by default that of the input.
                - ``num_threads``: by default the number of usable cores divided by the ranks on this machine, with
                  a GPU at most 8.
                - ``device_id``: None for the CPU, ``"auto"`` for the local rank, a number, ``"cuda:1"``, or a
                  ``torch.device``.
                - ``py_start_method``: by default ``"fork"``, with a GPU ``"spawn"``.
                - ``py_num_workers``: with 0, the input runs in this process.
                - ``seed``: seed of the draws of steps (by default 0) and of DALI's random operators (by default,
                  DALI chooses it). For these operators, each shard but the first has a different seed, derived
                  from this one.
                - ``decoder_options``: settings of all decoding of images on the GPU, a dict: ``hw_decoder_load``
                  (a step's own value overrides it, unless it is the default, 0.65), and
                  ``preallocate_height_hint`` and ``preallocate_width_hint``, the largest size in pixels, for
                  which the hardware decoder takes its memory at the start.

        Returns:
            A `StructuredPipeline`, not built yet; with ``debug=True`` DALI's debug pipeline.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            DeviceError: A step needs a GPU, and none is usable; ``device_id`` names a missing one; or this
                DALI does not support the GPU.
            UnknownArgumentError: An argument is unknown.
            SettingError: An argument breaks a rule, e.g. a batch size other than the input's; or the input cannot
                supply the key of a random draw.
        """
        from .pipeline_making import make_pipeline  # whoever defines a pipeline need not make one in this process

        return make_pipeline(self._chain, normalised_arguments(args, kwargs), worker_init_fn)
