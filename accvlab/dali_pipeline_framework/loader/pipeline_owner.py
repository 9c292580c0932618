# SPDX-License-Identifier: Apache-2.0
"""The pipeline that a loader runs, and its replacement when a state is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from ..checks import shown, whole_number
from ..engine.structured_pipeline import StructuredPipeline
from ..engine.workers import warn_of_many_workers
from ..errors import ClosedError, FrameworkError, SettingError, StateError
from ..faults.failed_samples import FailedSamples
from ..faults.fault_policy import FaultPolicy
from ..limits.file_limits import checked_worker_count, is_start_method
from ..pipeline.dali_structured_output_iterator import DALIStructuredOutputIterator
from ..pipeline.pipeline import PipelineDefinition
from ..sampling.arithmetic.last_batch import SampleCounts
from ..sources.given_order import GivenOrderSampler
from ..sources.input_adapter import InputAdapter
from ..sources.input_parts import ReaderEpochs
from ..sources.shards import num_cores_of_rank
from .input_binding import LoaderInput
from .recovery import follow_faults
from .states.position import Position
from .states.state import NO_SEGMENTS, EpochSegments, ReaderState

_MOST_BY_DEFAULT = 8  # workers

_Made: TypeAlias = tuple[StructuredPipeline, Any, Position]


class LoaderPipeline:
    """Owns a pipeline and the iterator over it, and counts its batches, by its input or its native readers.

    Another pipeline takes its place where an epoch goes on with other batch sizes (only at the start of a pipeline
    can workers be told that) and where native readers go on at a checkpoint.

    Attributes:
        pipeline: The present pipeline.
        iterator: The iterator over it; None until it was started.
        data_input: What workers load: the input of the loader, or that of an epoch that goes on.
        starts_at: Where the present pipeline goes on if it is not told otherwise.
        is_closed: Whether the loader was closed.
        is_lost: Whether the pipeline has failed, and is to be replaced before it is used again.
        segments: How the epoch was begun.
        loaded_reader: Where native readers were told to go on, or None.
        failed: The samples that have failed so far.
        given_order: What is run for each epoch where the order is given by the user; else None.
    """

    def __init__(
        self,
        definition: PipelineDefinition,
        bound: LoaderInput,
        arguments: Mapping[str, Any],
        make_iterator: Callable[..., DALIStructuredOutputIterator],
        steps: int | None,
        failed: FailedSamples | None = None,
        tells_samples: bool = False,
    ) -> None:
        """Make the pipeline; nothing is started.

        Args:
            definition: Input and steps.
            bound: The input as the loader has it.
            arguments: Arguments of `PipelineDefinition.get_dali_pipeline`.
            make_iterator: Makes an iterator of the argument ``pipeline``.
            steps: Batches per loop where they were asked for.
            failed: What has failed so far, and what is done about it; None: it is raised.
            tells_samples: Whether workers tell which samples they load.

        Raises:
            SettingError: An argument is out of its range.
            FormatError: The steps do not fit the data.
            DeviceError: A step needs a GPU, and none is usable.
        """
        self._definition = definition.evened_out()
        self._bound = bound
        planned = InputAdapter(bound.data_input).planned
        sampler = None if planned is None else planned.sampler
        self.given_order = sampler.indices if isinstance(sampler, GivenOrderSampler) else None
        self._steps = steps
        self._arguments = arguments
        self._make_iterator = make_iterator
        self._tells_samples = tells_samples
        self.failed = failed or FailedSamples(FaultPolicy())
        self.is_closed = False
        self.iterator: DALIStructuredOutputIterator | None = None
        self._use(NO_SEGMENTS, None, self._make(NO_SEGMENTS, None))

    def _use(self, segments: EpochSegments, reader: ReaderState | None, made: _Made) -> None:
        self.segments, self.loaded_reader = segments, reader
        self.is_lost = False
        self.pipeline, self.data_input, self.starts_at = made
        self._num_batches: dict[int, int | None] = {}

    def _make(self, segments: EpochSegments, reader: ReaderState | None) -> _Made:
        data_input = self._bound.data_input
        if segments[1]:
            data_input = data_input.continued(*segments)
        whole = self._bound.parts.with_main(data_input)
        checkpoint: dict[str, Any] = {} if reader is None else {"checkpoint": reader.checkpoint}
        pipeline = self._definition.with_input(whole).get_dali_pipeline(**self._arguments, **checkpoint)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError("A loader cannot use DALI's debug mode. Use get_dali_pipeline(debug=True).")
        if self._tells_samples:
            pipeline.tell_samples()
        pipeline.is_of_loader = True
        pipeline.limits = (self.failed.policy.blocked_after, self.failed.policy.stacks_after)
        follow_faults(pipeline, self.failed, self._bound)
        return pipeline, data_input, Position() if reader is None else self._continue_readers(pipeline, reader)

    def _continue_readers(self, pipeline: StructuredPipeline, reader: ReaderState) -> Position:
        try:
            pipeline.build()
        except (SettingError, RuntimeError) as error:
            pipeline.close()
            raise StateError(f"DALI cannot restore the state of the native readers: {error}") from error
        if not self._bound.is_read_natively:
            return Position()
        pipeline.continue_at(reader.epoch, reader.batch)
        return Position(reader.epoch, reader.batch)

    def start(self) -> bool:
        """Start the worker processes; return whether that was not done before.

        Raises:
            ClosedError: The loader was closed.
        """
        self.require_open()
        if self.iterator is not None:
            return False
        self.iterator = self._make_iterator(pipeline=self.pipeline)
        return True

    def replace(self, segments: EpochSegments, reader: ReaderState | None = None) -> bool:
        """Use a new pipeline that goes on with an epoch; return whether it was started, as the old one was.

        Raises:
            StateError: The checkpoint of native readers cannot be restored; then nothing was changed.
        """
        made = self._make(segments, reader)
        was_started = self._close_pipeline()
        self._use(segments, reader, made)
        return was_started and self.start()

    def renew(self, position: Position) -> None:
        """Replace a pipeline that was lost by one of the same arguments, started, that goes on at a position.

        Native readers go on behind the batch that was delivered last.

        Raises:
            NotSupportedError: The input cannot be positioned.
            StateError: The native readers do not tell any more where they stood.
            WorkerStartError: The workers could not be started; another call tries it again.
        """
        self.require_resumable()
        if self._bound.keeps_checkpoints:
            self.loaded_reader = self._reader_state_of_lost(position)
        self.is_lost = True
        self._close_pipeline()
        self._use(self.segments, self.loaded_reader, self._make(self.segments, self.loaded_reader))
        self.is_lost = True
        self.start()
        if not self._bound.is_read_natively:
            self.go_to(position)
        self.is_lost = False

    def resolves(self, error: FrameworkError) -> bool:
        """Whether a new pipeline can make the batch that failed, without the samples that are to blame for it.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        faults = self.pipeline.sample_faults
        return faults is not None and faults.resolve(error)

    def gives_up(self, index: int, place: tuple[int, int, int], reason: str) -> bool:
        """Whether new pipelines do without a sample that has ended its workers; it is noted.

        Raises:
            TooManyFailedError: More samples have failed than may.
        """
        faults = self.pipeline.sample_faults
        return faults is not None and faults.note_deadly(index, place, reason)

    def _reader_state_of_lost(self, position: Position) -> ReaderState | None:
        try:
            return self.reader_state(position)
        except RuntimeError as error:
            raise StateError(
                f"Where the native readers stood cannot be told after the failure: {error}"
            ) from error

    def make_order(self, epoch: int) -> None:
        """Make the order of an epoch whose loop begins, where the user gives it."""
        if self.given_order is not None:
            self.given_order.begin(epoch)
            self._num_batches.clear()

    def go_to(self, position: Position) -> None:
        """Have the input, a callable, go on at a position."""
        self.pipeline.begin_epoch(*self.as_counted_by_input(position))
        if self.given_order is not None:  # now that no worker loads what is left of another epoch
            self.given_order.share()

    def as_counted_by_input(self, position: Position) -> tuple[int, int]:
        """Epoch and batch of a position as the input counts them: without epochs where it has none."""
        if self._bound.is_endless:
            return 0, position.epoch * (self._steps or 0) + position.batch
        return position.epoch, position.batch

    def require_resumable(self) -> None:
        """Raise a `NotSupportedError` where the input cannot be positioned."""
        self._bound.require_resumable()

    def reads_one_ahead(self) -> bool:
        """Have new pipelines read one batch ahead with native readers; return whether the present one does not.

        A reader that reads further ahead fails as soon as it cannot read a file, and loses the batches before it.
        """
        bound = self._bound.reading_one_ahead() if self._bound.keeps_checkpoints else None
        self._bound = bound or self._bound
        return bound is not None

    @property
    def has_native_readers(self) -> bool:
        """Whether operators of DALI read the samples, or a part of them."""
        return bool(self._bound.parts.native)

    def reader_state(self, position: Position) -> ReaderState | None:
        """Where native readers stand, while the loader stands at a position; None where none keep their place."""
        if not self._bound.keeps_checkpoints or self.iterator is None:
            return self.loaded_reader
        stands_at = position.epoch, position.batch
        if self._bound.is_read_natively:  # else they are one stream, in which only the checkpoint tells a place
            stands_at = self.pipeline.reader_position
        return ReaderState(*stands_at, cast(Any, self.pipeline).checkpoint())

    # --- batches of an epoch ------------------------------------------------------------------------
    #
    # None where a number is not known; a `ClosedError` where only readers tell it, and the loader was closed.

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch on all shards."""
        if self._steps is not None:
            return self._steps
        if self._bound.is_read_natively:
            epochs = self._reader_epochs
            return None if epochs is None else epochs.num_batches(epoch)
        if epoch not in self._num_batches:  # to find out, a stateful sampler is played to its end
            self._num_batches[epoch] = InputAdapter(self.data_input).num_batches(epoch)
        return self._num_batches[epoch]

    def num_batches_here(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard."""
        if self._steps is not None or self._bound.is_read_natively:
            return self.num_batches(epoch)
        return InputAdapter(self.data_input).num_batches_here(epoch)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Counts of delivered, dropped and repeated samples of an epoch, over all shards."""
        if self._bound.is_read_natively:
            epochs = self._reader_epochs
            return None if epochs is None else epochs.sample_counts
        return InputAdapter(self.data_input).sample_counts(epoch)

    @property
    def _reader_epochs(self) -> ReaderEpochs | None:
        """Of native readers, which count their samples when the pipeline is built; None for a stream."""
        if self._bound.is_endless:
            return None
        self.require_open()
        return self.pipeline.reader_epochs

    def describe_drift(self) -> str:
        """Say why native readers get out of step with the other input of the pipeline; empty where they do not."""
        readers = self.pipeline.joined_reader_epochs
        if not readers or self._bound.is_endless:
            return ""
        num_batches = self.num_batches(0)
        reasons = [
            f"{name} has {epochs.num_made} batches per epoch"
            for name, epochs in readers.items()
            if num_batches is not None and epochs.num_made != num_batches
        ]
        if self._bound.shard.num_shards > 1:
            reasons.append("on several shards, readers and samplers deal the samples in different ways")
        if not reasons:
            return ""
        return (
            f"Samples of the native readers do not stay beside the same samples of the other input, which has "
            f"{num_batches} batches per epoch: {'; '.join(reasons)}. If they belong together, load both by one "
            f"data provider, or use equal numbers of samples with last_batch='pad'."
        )

    # --- closing ----------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise a `ClosedError` where the loader was closed."""
        if self.is_closed:
            raise ClosedError("The loader was closed. Create a new one.")

    def close(self) -> None:
        """End the worker processes and free their memory."""
        self.is_closed = True
        self._close_pipeline()

    def _close_pipeline(self) -> bool:
        """Close the present pipeline; return whether it was started."""
        iterator, self.iterator = self.iterator, None
        if iterator is not None:
            iterator.close()
        self.pipeline.close()
        return iterator is not None


def checked_num_workers(
    value: int | None, start_method: str, definition: PipelineDefinition, bound: LoaderInput
) -> int:
    """Check the number of workers that a loader is to have, and warn of more than there are cores.

    Args:
        value: The number. None: as many as this rank has usable cores, at most 8; 1 where one loads all.
        start_method: How they start.
        definition: The definition of the loader.
        bound: Its input.

    Raises:
        SettingError: It is no whole number of at least 0, or there is no memory for so many.
    """
    if value is None:
        return min(num_cores_of_rank(), _MOST_BY_DEFAULT) if bound.is_callable and definition.uses_workers else 1
    if isinstance(value, str):
        raise SettingError(
            f"`num_workers` must be a whole number of at least 0, or None for as many as this rank has usable "
            f"cores, at most {_MOST_BY_DEFAULT}; got {shown(value)}."
        )
    count = checked_worker_count(value, "num_workers", start_method)
    if definition.uses_workers and not bound.is_read_natively:
        warn_of_many_workers(count, "num_workers")
    return count


def with_own_arguments(own: Mapping[str, Any], others: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of `PipelineDefinition.get_dali_pipeline`: those that the loader gives, and others.

    Where the loader has no number of threads or no checkpoints (None), others may tell.

    Raises:
        SettingError: One is out of its range, or is given twice.
    """
    may_be_given = ("num_threads", "enable_checkpointing")
    own = {name: value for name, value in own.items() if value is not None or name not in may_be_given}
    if "num_threads" in own:
        own["num_threads"] = whole_number(own["num_threads"], "num_threads", at_least=1)
    if others is not None and not isinstance(others, Mapping):
        raise SettingError(f"`pipeline_arguments` must be a dict, got {type(others).__name__}.")
    method = own["py_start_method"]
    if not is_start_method(method):
        raise SettingError(f"`start_method` must be 'spawn', 'fork' or 'forkserver', got {shown(method)}.")
    own["py_start_method"] = str.__str__(method)
    for name in others or {}:
        if not isinstance(name, str):
            raise SettingError(f"`pipeline_arguments` must be a dict of names, got the name {shown(name)}.")
        if name in own:
            raise SettingError(f"`pipeline_arguments` has `{name}`, which is an argument of the loader itself.")
    return {**own, **(others or {})}
