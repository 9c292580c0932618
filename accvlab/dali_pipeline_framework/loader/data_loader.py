# SPDX-License-Identifier: Apache-2.0
"""A loader for training loops: owns the pipeline, knows its epochs, and can stop and continue."""

from __future__ import annotations

import copy
import functools
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, cast

from ..checks import flag, shown, whole_number
from ..engine.interrupts import DeferredInterrupt
from ..errors import (
    ClosedError,
    GraphError,
    NotSupportedError,
    SettingError,
    SourceError,
    SourcePicklingError,
    WorkerDiedError,
    WorkerStartError,
)
from ..faults.fault_policy import FailedSample, FailedSamples, FaultPolicy, SamplePolicy
from ..pipeline.dali_structured_output_iterator import DALIStructuredOutputIterator
from ..pipeline.output_conversion import OutputConverter, OutputType, RaggedArgument, SmallFields
from ..pipeline.pipeline import PipelineDefinition
from ..pipeline.pipeline_arguments import Device, checked_device
from ..processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ..providers.data_provider import DataProvider
from ..sample_data import SampleDataGroup
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts
from ..sampling.random_access_sampler import SamplerBase
from ..sources.given_order import GivenOrder
from ..sources.input_adapter import InputAdapter
from ..sources.shards import Shard
from ..unknown_arguments import explains_unknown_arguments
from .input_binding import LOADER_COUNTERPARTS, AskedSettings, ShardArgument, bind_input, composed_definition
from .ledger_recording import LedgerRecording
from .loop import Loop, LoopProgress, Made, Position, no_loop
from .rank_agreement import RankAgreement, loader_settings
from .recovery import LoaderPipeline, Recovery, check_sample_policy, checked_num_workers, with_own_arguments
from .report import LoaderReport, LoopTimes, make_report
from .state import (
    NO_SEGMENTS,
    EpochSegments,
    LoaderState,
    ReaderState,
    continued_segments,
    fields_for_state,
    parse_state,
    require_same_batches,
    require_same_run,
    require_within_epoch,
    with_forms,
)
from .torch_interface import TorchInterface, as_torch_class, tell_accelerate, with_pinning

_logger = logging.getLogger(__name__)


class DataLoader(TorchInterface):
    """Delivers batches to a training loop, epoch after epoch, and can be stopped and continued anywhere.

    Each ``for`` loop is one epoch. A loop that is left by ``break`` abandons its epoch: the next one starts the
    next epoch at once (or, after `set_epoch`, the epoch that was set), with no batch that was prefetched before.

    `state_dict` tells what the training loop has received, as a small value for JSON, the same on all ranks.
    A loader that loads it goes on with the batch after that, in any number of workers, on any number of
    shards, and with any batch size that the order allows.

    It has the attributes that code around PyTorch's loader looks at, among them ``dataset``, ``sampler`` (with
    ``set_epoch``), ``batch_sampler``, ``batch_size`` and ``drop_last``.

    Example::

        with DataLoader(provider, batch_size=4, steps=steps, shuffle=True, num_workers=2, shard="auto") as loader:
            for epoch in range(loader.epoch, 10):
                for batch in loader:
                    train(batch)
                    checkpoint["loader"] = loader.state_dict()
    """

    recipe_settings: Any = None
    """Settings of the recipe that has made the loader; None of other loaders. `batch_view` takes them."""

    @explains_unknown_arguments(LOADER_COUNTERPARTS)
    def __init__(
        self,
        source: DataProvider | PipelineDefinition | Any,
        batch_size: int | None = None,
        *,
        steps: Sequence[PipelineStepBase | None] | None = None,
        shuffle: bool | None = None,
        sampler: SamplerBase | GivenOrder | None = None,
        run: RunWhere | None = None,
        num_workers: int | None = None,
        num_threads: int | None = None,
        device_id: Device = None,
        shard: ShardArgument = None,
        last_batch: LastBatch | None = None,
        context_name: str | None = None,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        start_method: str = "spawn",
        output_type: OutputType = "torch",
        ragged: RaggedArgument = "raise",
        stack_arrays: bool = False,
        post_process_func: Callable[[Any], Any] | None = None,
        worker_init_fn: Callable[[int], object] | None = None,
        pin_memory: bool = False,
        small_fields: SmallFields = "cpu",
        pipeline_arguments: Mapping[str, Any] | None = None,
        as_torch_data_loader: bool = False,
        faults: FaultPolicy | SamplePolicy | None = None,
        ledger: str | os.PathLike[str] | None = None,
    ) -> None:
        """Create the loader. Its worker processes start with the first loop, or with `start`.

        Args:
            source: What to load: a data provider; or an input (callable, iterable, native reader, stream), or a
                `PipelineDefinition`, which has steps and order already.
            batch_size: Samples per batch on this shard. None: what input or sampler were created with.
            steps: Processing steps, applied one after the other.
            shuffle: Whether the samples of a data provider come in a random order, another one in each epoch
                (`ShuffledSampler`), or one after the other (`SequentialSampler`; the default).
            sampler: Another order of the samples of a data provider, in place of ``shuffle``: a sampler of this
                package; a function of the epoch that returns the sample indices of all shards in order; or a
                sampler of PyTorch, which gives those of its own rank. The latter two are run in this process when
                a loop begins, ``set_epoch`` is called before, and a last batch may be smaller.
            run: Where steps run that have a form for arrays: in the ``"workers"``; with pixels in the ``"graph"``,
                and all else in the workers; or by the rule of ``"auto"``: with a GPU like ``"graph"``, without one
                on arrays where that costs less (see `PipelineDefinition`). None: ``"auto"``; with a
                `PipelineDefinition`, what it says.
            num_workers: Worker processes that load samples; 0 to load in this process. None: as many as this rank
                has usable cores, at most 8; 1 for an iterable. What is delivered does not depend on the number.
            num_threads: Threads of the pipeline; None for the usable cores, divided by the ranks on this machine.
            device_id: Number of the GPU; None for the CPU. Or ``"auto"``, which is the number of this rank on its
                machine (see the page on several GPUs); ``"cuda:1"``; or a ``torch.device``.
            shard: Which part of each batch this loader delivers: a `Shard`, a pair (shard id, number of shards),
                ``"auto"`` or a source to take it from (see `detect_shard`). None: what the input was created
                with, usually all.
            last_batch: What becomes of a last batch that is not full: ``"drop"``, ``"pad"``, ``"partial"`` or
                ``"wrap"``. None: what the sampler was created with (without a sampler ``"drop"`` where samples are
                shuffled, otherwise ``"partial"``). Not for inputs of one's own.
            context_name: Name for a group that is added to each sample and tells where it stands, with the fields
                of `SamplePlace`. None: what the input was created with. Not for inputs of one's own.
            steps_per_epoch: For endless samplers and inputs: number of batches of a loop. None: until the input
                ends.
            seed: Seed of the order with ``shuffle=True``, and of the random draws of the steps.
            start_method: How workers start: ``"spawn"``, ``"fork"`` (not with ``device_id``) or ``"forkserver"``.
            output_type: ``"torch"`` or ``"numpy"``.
            ragged: What becomes of samples of different shapes: ``"raise"``, ``"list"``, or a dict of these by
                field (see `DALIStructuredOutputIterator`).
            stack_arrays: Whether the elements of each array, e.g. the cameras, come as one tensor
                ``(batch, cameras, ...)`` per field, ``batch["cameras"]["image"]``.
            post_process_func: Applied to each batch; its result is delivered.
            worker_init_fn: Called once in each worker process, with its number from 0, before it loads its first
                sample; not called with ``num_workers=0``. Spawned workers need one that can be pickled.
            pin_memory: Whether tensors on the CPU are delivered in pinned memory, which a GPU fetches by
                ``tensor.to(device, non_blocking=True)`` while the program goes on. Without CUDA nothing changes.
            small_fields: Where fields are delivered that no step in the graph touches: on the ``"cpu"``, or on the
                ``"gpu"`` of ``device_id``, all of them by one copy from pinned memory; texts stay on the CPU.
            pipeline_arguments: Other arguments of `PipelineDefinition.get_dali_pipeline`.
            as_torch_data_loader: Whether ``isinstance(loader, torch.utils.data.DataLoader)`` shall hold, for code
                that asks for it. What such code would change in a loader of PyTorch has no effect on this one.
            faults: What is done about samples that fail, and about workers that die: a `FaultPolicy`, or only what
                becomes of samples, ``"raise"``, ``"skip"`` or ``"replace"``. None: the first one is
                raised.
            ledger: Folder in which each rank notes which samples it has delivered, in a file of its own; see the
                page on ledgers. None: nothing is noted.

        Raises:
            SettingError: An argument breaks a rule, or contradicts what input or sampler were created with.
            FormatError: The steps do not fit the data.
            DeviceError: A step needs a GPU, and none is usable; or ``device_id`` names one that is not there.
        """
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self._seed = whole_number(seed, "seed", at_least=0)
        if self._seed >= 2**63:
            raise SettingError(f"`seed` must be less than 2**63, got {shown(self._seed)}.")
        self._faults = FaultPolicy.of(faults)
        self._definition = definition = composed_definition(source, steps, shuffle, sampler, self._seed, run)
        self._steps = steps_per_epoch
        if steps_per_epoch is not None:
            self._steps = whole_number(steps_per_epoch, "steps_per_epoch", at_least=1)
        asked = AskedSettings(batch_size, shard, last_batch, context_name, self._steps)
        self._bound = bound = bind_input(definition.data_input, asked)
        self._num_workers = checked_num_workers(num_workers, start_method, definition, bound)
        check_sample_policy(bound, self._faults)
        self._keeps_checkpoints = bound.keeps_checkpoints
        self._data_format = bound.parts.whole.used_sample_data_structure.format
        self._ledger = LedgerRecording(ledger, bound, self._seed)
        own_arguments = {
            "batch_size": bound.batch_size,
            "device_id": checked_device(device_id),
            "seed": self._seed,
            "py_num_workers": self._num_workers,
            "py_start_method": start_method,
            "worker_init_fn": worker_init_fn,
            "num_threads": num_threads,
            "enable_checkpointing": bound.keeps_checkpoints or None,
        }
        outputs: Any = {"output_type": output_type, "ragged": ragged, "small_fields": small_fields}
        post_process = with_pinning(post_process_func, pin_memory, output_type)
        make_iterator = functools.partial(
            DALIStructuredOutputIterator, **outputs, stack_arrays=stack_arrays, post_process_func=post_process
        )
        arguments, failed = with_own_arguments(own_arguments, pipeline_arguments), FailedSamples(self._faults)
        self._run = LoaderPipeline(
            definition, bound, arguments, make_iterator, self._steps, failed, self._ledger.is_on
        )
        pipeline = self._run.pipeline
        # It complains about unknown values now.
        about = {"delivery": pipeline.delivery, "device_id": pipeline.device_id, "is_stacked": stack_arrays}
        OutputConverter(output_format=pipeline.output_blueprint.format, **about, **outputs)
        self._progress = LoopProgress(bound.is_endless, is_stream=bound.is_endless and self._steps is None)
        self._times = LoopTimes()
        self._recovery = Recovery(self._run, self._progress, self._faults)
        # The loop holds the loader, which without another reference to it is closed with its loop.
        self._loop: Callable[[], Loop | None] = no_loop
        self.pin_memory = pin_memory
        self._agreement = RankAgreement()
        self._has_logged_account = False
        if flag(as_torch_data_loader, "as_torch_data_loader"):
            self.__class__ = as_torch_class(cast(Any, type(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> DataLoader:
        """Get another loader of the same settings, at its beginning."""
        is_masked = self._arguments["as_torch_data_loader"]
        loader_class: type[DataLoader] = type(self).__bases__[0] if is_masked else type(self)
        return loader_class(**copy.deepcopy(self._arguments, memo))

    def start(self) -> None:
        """Start the worker processes now, e.g. before CUDA is initialised in this process, for forked ones."""
        try:
            self._recovery.start()
        except (WorkerStartError, SourcePicklingError) as error:  # its message says all, not how it got here
            raise error.with_traceback(None) from error.__cause__

    def __repr__(self) -> str:
        """Return its settings, and a line for the input and for each step."""
        device_id = self._run.pipeline.device_id
        settings = [
            f"batch_size={self.batch_size}",
            f"num_workers={self._num_workers}",
            f"device={'CPU' if device_id is None else f'GPU {device_id}'}",
            f"shard={self.shard.shard_id} of {self.shard.num_shards}",
            f"epoch={self._progress.delivered.epoch}",
            *(["closed"] if self._run.is_closed else []),
        ]
        chain = self._definition.chain_lines(self._run.pipeline.steps_in_workers)
        return "\n  ".join([f"{type(self).__name__}({', '.join(settings)})", *chain])

    # --- iterating --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: the next one, or the one that was set or loaded."""
        with DeferredInterrupt():
            self.start()
            self._loop = no_loop
            self._progress.end_setting()
            self._recovery.restore()
            self._forget_segments()
            self._agreement.begin_loop(self.shard, lambda: loader_settings(self))
            self._begin()
            self._ledger.begin(self._progress.delivered)
            self._times.begin()
            self._log_sample_counts()
            loop = Loop(self)
            self._loop = weakref.ref(loop)
            tell_accelerate(self, is_running=True)
            return loop

    @property
    def _is_running(self) -> bool:
        loop = self._loop()
        return loop is not None and not loop.has_ended

    def _forget_segments(self) -> None:
        """Where an epoch that was continued is to be delivered from its beginning: forget how it was begun."""
        epoch, segments = self._run.segments
        if segments and self._progress.next_start == Position(epoch):
            self._replace_pipeline(NO_SEGMENTS)

    def _replace_pipeline(self, segments: EpochSegments, reader: ReaderState | None = None) -> None:
        self._run.replace(segments, reader)
        self._progress.pipeline = self._run.starts_at

    def _begin(self) -> None:
        """Tell the pipeline where the loop starts."""
        start, stands_at = self._progress.next_start, self._progress.pipeline
        self._run.make_order(start.epoch)
        if self._bound.is_callable:
            # An endless stream may go on: nothing that was prefetched is lost.
            if not self._bound.is_endless or start != stands_at:
                self._recovery.go_to(start)
        elif self._run.iterator is not None and not (self._bound.is_read_natively and start == stands_at):
            self._run.iterator.reset()
        self._progress.begin(self._bound.is_callable)

    def _made(self, loop: Loop) -> Made:
        """Make what a loop receives next, unless it is there already: a batch, an error, or the end."""
        progress, times = self._progress, self._times
        if self._run.is_closed:
            self._run.require_open()
        if loop is not self._loop():
            problem = "This loop over the loader has ended"
            raise ClosedError(f"{problem}: another loop has begun, or a state was loaded. Start a new loop.")
        if progress.made is not None:
            return progress.made
        if self._keeps_checkpoints:
            progress.reader = self._run.reader_state(progress.delivered)
        asked_at, start_before = perf_counter_ns(), progress.next_start
        try:
            batch = self._next(loop)
        except Exception as error:
            if isinstance(error, GraphError | SourceError | WorkerDiedError):  # how it got here does not help
                error.__traceback__, error.__suppress_context__ = None, True
            return Made(None, error, progress.pipeline, progress.next_start)
        start_after, progress.next_start = progress.next_start, start_before
        received_at = perf_counter_ns()
        times.num_batches += 1
        times.next_ns += received_at - asked_at
        times.between_ns += asked_at - times.received_at
        times.received_at = received_at
        pipeline = self._run.pipeline
        if received_at >= times.due_at or pipeline is not times.pipeline:
            times.read_clocks(received_at - asked_at, pipeline)
        return Made(batch, None, progress.pipeline, start_after)

    def _next(self, loop: Loop) -> Any:
        run = self._run
        if loop.has_ended or (run.iterator is None and not run.is_lost):
            raise StopIteration
        if self._steps is not None and self._progress.pipeline.batch >= self._steps:
            self._end_loop(loop)
            raise StopIteration
        try:
            data = self._recovery.next_batch()
        except StopIteration:
            self._end_loop(loop)
            raise
        if not loop.has_begun:
            self._agreement.look()
        if self._ledger.is_on:
            self._ledger.note(self._progress.pipeline, run)
        return data

    def _end_loop(self, loop: Loop) -> None:
        loop.has_ended = True
        self._times.now()
        tell_accelerate(self, is_running=False)
        self._progress.end_loop()
        self._forget_segments()
        self._ledger.end_loop()

    def __len__(self) -> int:
        """Number of batches of the current epoch, all of it.

        Raises:
            TypeError: It is not known: the input is endless, or does not tell.
        """
        num_batches = self._run.num_batches_here(self.epoch)
        if num_batches is None:
            problem = "The number of batches per epoch is not known: the input is endless"
            raise TypeError(f"{problem}, or does not tell it. Pass `steps_per_epoch` for loops of a fixed length.")
        return num_batches

    @property
    def epoch(self) -> int:
        """Epoch in which the loop stands, from 0: a loader that is continued from here begins in this epoch.

        Within a loop, and after a ``break``, it is the epoch of that loop (a new loop starts the next one);
        otherwise that of the next loop.
        """
        return self._normalised(self._progress.delivered).epoch

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop run in this epoch, from its beginning; a loop that has no batch yet runs in it, too.

        Nothing changes where the next loop runs in this epoch anyway: a loader that has loaded a state from the
        middle of this epoch goes on there.

        Raises:
            SettingError: The epoch is not a whole number of at least 0.
            NotSupportedError: The input is an iterable, which cannot be told where to start.
        """
        epoch = whole_number(epoch, "epoch", at_least=0)
        if epoch >= 2**31:
            raise SettingError(f"`epoch` must be less than 2**31, got {shown(epoch)}.")
        has_readers, next_epoch = bool(self._bound.parts.native), self._progress.next_start.epoch
        if has_readers and epoch != next_epoch and not self._bound.is_endless:
            rule = "Native readers deliver their epochs one after the other"
            got = f"the next loop runs in epoch {next_epoch}, and cannot run in epoch {epoch}"
            raise NotSupportedError(f"{rule}: {got}. Use a data provider with a sampler.")
        if not self._bound.is_callable and not has_readers:
            advice = "Use a callable, e.g. SamplerInputCallable."
            raise NotSupportedError(f"{self._bound.kind}, which delivers its epochs one after the other. {advice}")
        if self._progress.is_stream:
            advice = "Pass `steps_per_epoch` to count its batches as epochs."
            raise NotSupportedError(f"An endless input has no epochs. {advice}")
        loop, is_new = self._loop(), epoch != next_epoch
        has_begun = loop is not None and loop.has_begun and not loop.has_ended
        self._progress.set_epoch(epoch, has_begun)
        if not has_begun:
            self._forget_segments()
            if is_new and self._is_running:
                self._progress.end_setting()
                self._begin()

    def sample_counts(self, epoch: int | None = None) -> SampleCounts | None:
        """What is delivered, dropped, repeated and padded in an epoch, over all shards.

        Args:
            epoch: The epoch; None for the current one.

        Returns:
            The numbers, or None for endless samplers, and for callables and iterables of one's own, which do not
            tell. A sampler without random access is played to the end of the epoch.
        """
        return self._run.sample_counts(self.epoch if epoch is None else epoch)

    def report(self, since: LoaderReport | None = None) -> LoaderReport:
        """Report where the time of the loop goes: of the running one, or of the last one.

        It changes nothing, so several parts of a program can ask. The first batch of a loop does not count.

        Args:
            since: An earlier report. Where it is of the same loop, only what came after it counts.
        """
        pipeline = self._run.pipeline
        return make_report(self._times, since, pipeline.depth, pipeline.num_threads, self.shard.shard_id)

    def _log_sample_counts(self) -> None:
        if self._has_logged_account:
            return
        self._has_logged_account = True
        source = InputAdapter(self._bound.data_input)
        if source.planned is not None and source.planned.sampler.must_be_played:
            return
        sample_counts = self.sample_counts()
        if sample_counts is not None and self.shard.shard_id == 0:
            text = sample_counts.describe(self._total_batch_size, source.delivers_partial_batches)
            _logger.info("epoch %d: %s", self.epoch, text)

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was delivered so far, and to which data and order that belongs.

        The value can be written as JSON and is the same on all ranks (for the policy ``"partial"``, at the end of
        an epoch only as long as all have the same number of batches). A batch counts when the loop has received
        it. After a ``break`` it is still the position in the abandoned epoch: a loader that loads it finishes that
        epoch, while this one begins the next.

        Raises:
            NotSupportedError: The input is an iterable, which has no random access; or an epoch was begun in an
                order that is not a function of the epoch, of a sampler of PyTorch or a function of the user.
        """
        self._bound.require_resumable()
        position = self._normalised(self._progress.delivered)
        self._require_repeatable(position)
        return self._state(position).to_dict()

    def _require_repeatable(self, position: Position) -> None:
        if self._run.given_order is not None and position.batch > 0:
            self._run.given_order.require_repeatable(position.epoch)

    def _normalised(self, position: Position) -> Position:
        """A position; the end of an epoch is the beginning of the next one."""
        if position.batch == 0 or self._progress.is_stream:
            return position
        num_batches = self._run.num_batches(position.epoch)
        if num_batches is not None and position.batch >= num_batches:
            return Position(position.epoch + 1)
        return position

    def _state(self, position: Position) -> LoaderState:
        epoch, segments = self._run.segments
        place = position.epoch, position.batch, self.shard.num_shards, self._total_batch_size
        begun = segments if epoch == position.epoch and position.batch > 0 else ()
        plan = with_forms(self._bound.description, self._run.pipeline.steps_in_workers)
        reader = self._progress.reader or self._run.reader_state(position)
        return LoaderState(*place, begun, self._seed, plan, self._fields_for_state, reader)

    @functools.cached_property
    def _fields_for_state(self) -> str:
        return fields_for_state(self._data_format)

    def load_state_dict(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Have the next loop go on behind what was delivered when the state was saved.

        Number of workers, start method, depths, number of shards and batch size may differ from those with which
        the state was saved. With another total batch size the rest of the epoch is dealt anew.

        Args:
            state: What `state_dict` has returned, or JSON text of it.

        Raises:
            StateError: The state is damaged, of another version, belongs to other data or another order (its
                ``differences`` tell what differs), or the order depends on the batch size.
            NotSupportedError: As for `state_dict`.
        """
        self._run.require_open()
        self._bound.require_resumable()
        saved = parse_state(state)
        own = self._state(Position())
        require_same_run(saved, own)
        self._require_repeatable(Position(saved.epoch, saved.batch))
        if self._bound.keeps_checkpoints:
            require_same_batches(saved, own)
            self._replace_pipeline(NO_SEGMENTS, saved.reader)
        else:
            segments = continued_segments(saved, own, self._bound.data_input)
            require_within_epoch(saved, self._steps, InputAdapter(self._bound.data_input).planned)
            if segments != self._run.segments:
                self._replace_pipeline(segments)
        position = self._normalised(Position(saved.epoch, saved.batch))
        self._progress.continue_at(position)
        if position.epoch != saved.epoch:
            _logger.warning(
                "What was left of epoch %d does not fill a batch of %d (all shards together) and is dropped; the "
                "next loop runs in epoch %d.",
                saved.epoch,
                self._total_batch_size,
                position.epoch,
            )
        self._loop = no_loop
        self._ledger.continue_from_state()

    # --- access -----------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Samples per batch on this shard."""
        return self._bound.batch_size

    @property
    def _total_batch_size(self) -> int:
        return self.batch_size * self.shard.num_shards

    def step_by_step(self, position: int = 0, *, epoch: int = 0) -> Iterator[tuple[str, SampleDataGroup]]:
        """Load a sample and apply the steps one by one, on arrays; see `PipelineDefinition.step_by_step`."""
        definition = self._definition.with_input(self._bound.data_input)
        return definition.step_by_step(position, epoch=epoch, seed=self._seed)

    def describe(self) -> str:
        """Describe the loader, the fields of its samples, and what each step changes of them."""
        definition = self._definition.with_input(self._bound.data_input)
        return f"{self!r}\n\n{definition.describe()}"

    @property
    def plan(self) -> str:
        """How the pipeline works on arrays, and how fields travel, see `PipelineDefinition.plan`."""
        return self._run.pipeline.plan

    @property
    def num_workers(self) -> int:
        """Worker processes that load samples."""
        return self._num_workers

    @property
    def shard(self) -> Shard:
        """Which part of each batch this loader delivers."""
        return self._bound.shard

    @property
    def bound_input(self) -> Any:
        """The input, with the settings of this loader."""
        return self._run.data_input

    @property
    def dataset(self) -> Any:
        """The data provider, whose ``len`` is its number of samples; for inputs of one's own the input."""
        planned = InputAdapter(self._bound.data_input).planned
        return self._definition.data_input if planned is None else planned.provider

    @property
    def last_batch(self) -> LastBatch:
        """What becomes of a last batch that is not full."""
        planned = InputAdapter(self._bound.data_input).planned
        policy: LastBatch | None = self._arguments["last_batch"] if planned is None else planned.sampler.last_batch
        return policy or "drop"

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Format of the batches, as an empty copy."""
        return self._run.pipeline.output_blueprint

    @property
    def failed_samples(self) -> tuple[FailedSample, ...]:
        """The samples that have failed so far on this shard, each once; without those that were excluded."""
        return self._run.failed.samples

    # --- closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the worker processes and free their memory. Batches that were delivered stay valid."""
        self._times.now()
        self._run.close()
        self._ledger.close()

    def __enter__(self) -> DataLoader:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the loader."""
        self.close()
